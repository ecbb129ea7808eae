// Device code that several kernels share: shared memory, sums over warps and blocks, the logistic
// function, complex numbers.
//
// Kernels declare shared memory by SHARED and DYNAMIC_SHARED. The host build of the tests
// (models/tests/cuda/shim.h) defines both as memory of exactly the declared size, filled with NaN.
//
// Sums have a fixed order, and no kernel adds floating-point numbers atomically: equal operands
// give equal bits.

#pragma once

#ifdef __CUDACC__
#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                               \
    extern __shared__ __align__(16) unsigned char shared_bytes[]; \
    type* const name = reinterpret_cast<type*>(shared_bytes)
/// Unrolls the loop behind it, so that an array with its index stays in registers.
#define UNROLL _Pragma("unroll")
/// Keeps a loop of many instructions from being unrolled.
#define ROLLED _Pragma("unroll 1")
/// Keeps loads behind it from being moved before it, where their values would take registers.
#define IN_ORDER asm volatile("" ::: "memory")
#else
#define UNROLL
#define ROLLED
#define IN_ORDER (void)0
#endif

constexpr unsigned WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr unsigned MOST_WARPS = 32;

/// Returns the lane of the thread in its warp, for blocks (threads, 1, 1).
__device__ inline unsigned lane() { return threadIdx.x % WARP; }

/// Returns the warp of the thread in its block, for blocks (threads, 1, 1).
__device__ inline unsigned warp() { return threadIdx.x / WARP; }

/// Returns the sum over the lanes of a warp, in every lane. All 32 lanes call it.
template <class T>
__device__ inline T warp_sum(T value) {
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/// Returns the largest value of a warp, in every lane. All 32 lanes call it.
__device__ inline float warp_max(float value) {
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/// Returns the sum over a block of whole warps, in every thread. `partial` is shared memory of
/// MOST_WARPS numbers, and free again on return. All threads call it.
template <class T>
__device__ inline T block_sum(T value, T* partial) {
    value = warp_sum(value);
    if (lane() == 0) partial[warp()] = value;
    __syncthreads();
    T sum = 0;
    for (unsigned w = 0; w < blockDim.x / WARP; ++w) sum += partial[w];
    __syncthreads();
    return sum;
}

/// Returns 1 / (1 + e^-x).
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// A complex number.
struct Complex {
    float re, im;
};

__device__ inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ inline Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Complex operator*(float a, Complex b) { return {a * b.re, a * b.im}; }
__device__ inline Complex conj(Complex a) { return {a.re, -a.im}; }
__device__ inline float conj(float a) { return a; }
