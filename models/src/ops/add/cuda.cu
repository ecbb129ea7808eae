// The sum of two tensors:
//     y = a + b
// a, b, y (N).

#include "cuda/device.cuh"

constexpr int ADD_THREADS = 256;
constexpr int ADD_EACH = 4;  // elements of a thread

/// Grid (⌈N / 1024⌉), block 256.
extern "C" __global__ void __launch_bounds__(ADD_THREADS)
    add(const float* a, const float* b, float* y, long long count) {
    const long long first = (long long)blockIdx.x * ADD_THREADS * ADD_EACH;
    UNROLL
    for (int k = 0; k < ADD_EACH; ++k) {
        const long long i = first + k * ADD_THREADS + threadIdx.x;
        if (i < count) y[i] = a[i] + b[i];
    }
}
