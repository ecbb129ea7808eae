// Elementwise non-linearities (mod.rs), forward and backward:
//     y = f(x),   dx = dy f'(x)
// x, y (N). Kept for the backward pass: x.

#include "cuda/device.cuh"

constexpr int ACTIVATION_THREADS = 256;
constexpr int ACTIVATION_EACH = 4;  // elements of a thread

/// The functions, numbered as cuda.rs numbers them.
enum Activation { GELU_TANH, GELU_ERF, RELU, ELU_PLUS_ONE, SILU, SOFTPLUS, SIGMOID };

constexpr float GELU_LINEAR = 1.5957691216f;  // 2 √(2/π)
constexpr float GELU_CUBIC = GELU_LINEAR * 0.044715f;
constexpr float GELU_FAR = 100.0f;  // the slope is 0 or 1 from here on

/// Returns the share of the normal distribution below x.
__device__ inline float normal_share(float x) { return 0.5f * erfcf(-0.70710678119f * x); }

/// Returns f(x). A number that is none stays visible.
__device__ inline float activation_value(int function, float floor, float x) {
    switch (function) {
        case GELU_TANH: return x * sigmoid(x * (GELU_LINEAR + GELU_CUBIC * x * x));
        case GELU_ERF: return x * normal_share(x);
        case RELU: return (x < 0.0f ? 0.0f : x) + floor;
        case ELU_PLUS_ONE: return x > 0.0f ? x + 1.0f : expf(x);
        case SILU: return x * sigmoid(x);
        case SIGMOID: return sigmoid(x);
        default: return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
    }
}

/// Returns f'(x).
__device__ inline float activation_slope(int function, float x) {
    switch (function) {
        case GELU_TANH: {
            // The square of a large number is infinite. Not fminf, which swallows a NaN.
            x = x < -GELU_FAR ? -GELU_FAR : x > GELU_FAR ? GELU_FAR : x;
            const float square = x * x, share = sigmoid(x * (GELU_LINEAR + GELU_CUBIC * square));
            return share +
                   x * share * (1.0f - share) * (GELU_LINEAR + 3.0f * GELU_CUBIC * square);
        }
        case GELU_ERF: return normal_share(x) + x * 0.39894228040f * expf(-0.5f * x * x);
        case RELU: return x > 0.0f ? 1.0f : 0.0f;
        case ELU_PLUS_ONE: return x > 0.0f ? 1.0f : expf(x);
        case SILU: {
            const float share = sigmoid(x);
            return share + x * share * (1.0f - share);
        }
        case SIGMOID: {
            const float small = expf(-fabsf(x));
            return small / ((1.0f + small) * (1.0f + small));
        }
        default: return sigmoid(x);
    }
}

/// Grid (⌈N / 1024⌉), block 256.
extern "C" __global__ void __launch_bounds__(ACTIVATION_THREADS)
    activation_forward(const float* x, float* y, int function, float floor, long long count) {
    const long long first = (long long)blockIdx.x * ACTIVATION_THREADS * ACTIVATION_EACH;
    UNROLL
    for (int k = 0; k < ACTIVATION_EACH; ++k) {
        const long long i = first + k * ACTIVATION_THREADS + threadIdx.x;
        if (i < count) y[i] = activation_value(function, floor, x[i]);
    }
}

/// Grid (⌈N / 1024⌉), block 256.
extern "C" __global__ void __launch_bounds__(ACTIVATION_THREADS)
    activation_backward(const float* x, const float* dy, float* dx, int function,
                        long long count) {
    const long long first = (long long)blockIdx.x * ACTIVATION_THREADS * ACTIVATION_EACH;
    UNROLL
    for (int k = 0; k < ACTIVATION_EACH; ++k) {
        const long long i = first + k * ACTIVATION_THREADS + threadIdx.x;
        if (i < count) dx[i] = dy[i] * activation_slope(function, x[i]);
    }
}
