// One AdamW update of all parameters, and the norm of all gradients (mod.rs), each in one launch:
//     m ← β1 m + (1 - β1) s g        v ← β2 v + (1 - β2) (s g)²
//     θ ← keep θ - step · m / (√v · correction + ε)
// The operations are those of the CPU's form in its order, with its fused products and sums.
//
// Parameters are cut into chunks of 4,096 elements. `first_chunk` of parameter p is the number of
// chunks of all parameters before it, so that a block finds its parameter by bisection.

#include "cuda/device.cuh"

constexpr int CHUNK = 4096;
constexpr int CHUNK_THREADS = 256;

/// A parameter with its moments and gradient; `gradient` is null for zeros.
struct AdamWParameter {
    float *parameter, *first, *second;
    const float* gradient;
    long long elements;
    int first_chunk;
    float keep; // 1 - rate · weight decay
    float step; // rate / (1 - β1ᵗ)
};

/// The numbers that all parameters share.
struct AdamWNumbers {
    float beta1, rest1, beta2, rest2; // β and 1 - β, each rounded from f64
    float correction, epsilon;        // 1 / √(1 - β2ᵗ), ε
};

/// Returns the parameter of a chunk: the last one whose first chunk is not beyond it.
__device__ inline const AdamWParameter& parameter_of(const AdamWParameter* parameters, int count,
                                                     int chunk) {
    int low = 0, high = count; // of chunk is in [low, high)
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (parameters[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return parameters[low];
}

/// `scale` is s, one number of the device, or null for 1. Grid (chunks), block 256.
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
    adamw(const AdamWParameter* parameters, int count, AdamWNumbers numbers, const float* scale) {
    const AdamWParameter of = parameter_of(parameters, count, blockIdx.x);
    const long long first = (long long)(blockIdx.x - of.first_chunk) * CHUNK;
    const float factor = scale ? *scale : 1.0f;
    for (int i = threadIdx.x; i < CHUNK && first + i < of.elements; i += CHUNK_THREADS) {
        const long long at = first + i;
        const float g = of.gradient ? of.gradient[at] * factor : 0.0f;
        const float m = fmaf(of.first[at], numbers.beta1, g * numbers.rest1);
        const float v = fmaf(of.second[at], numbers.beta2, g * g * numbers.rest2);
        const float size = fmaf(sqrtf(v), numbers.correction, numbers.epsilon);
        of.first[at] = m;
        of.second[at] = v;
        of.parameter[at] = fmaf(m / size, -of.step, of.parameter[at] * of.keep);
    }
}

/// Writes the sum of squares of each chunk of the gradients, parts (chunks), in f64.
///
/// Grid (chunks), block 256.
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
    gradient_squares(const AdamWParameter* parameters, int count, double* parts) {
    SHARED(double, partial, MOST_WARPS);
    const AdamWParameter of = parameter_of(parameters, count, blockIdx.x);
    const long long first = (long long)(blockIdx.x - of.first_chunk) * CHUNK;
    double sum = 0.0;
    for (int i = threadIdx.x; i < CHUNK && first + i < of.elements; i += CHUNK_THREADS) {
        const double g = of.gradient ? of.gradient[first + i] : 0.0f;
        sum += g * g;
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// Adds the parts in order, and writes the norm, and s = clip / max(norm, clip), or 1 if `clip` is
/// 0. Grid (1), block 256.
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
    gradient_norm(const double* parts, int chunks, float clip, float* norm, float* scale) {
    SHARED(double, partial, MOST_WARPS);
    double sum = 0.0;
    for (int i = threadIdx.x; i < chunks; i += CHUNK_THREADS) sum += parts[i];
    const double root = sqrt(block_sum(sum, partial));
    if (threadIdx.x == 0) {
        *norm = (float)root;
        *scale = clip > 0.0f ? (float)(clip / fmax(root, (double)clip)) : 1.0f;
    }
}
