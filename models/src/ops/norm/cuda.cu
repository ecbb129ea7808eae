// LayerNorm (mod.rs) and RMSNorm (../rms_norm.rs) of rows, forward and backward.
//     LayerNorm  y = z ⊙ gain + offset,  z = r (x - mean x),  r = 1 / √(mean (x - mean x)² + ε)
//     RMSNorm    y = z ⊙ gain,           z = r x,             r = 1 / √(mean x² + ε)
// With g = dy ⊙ gain, and mean g only for LayerNorm:
//     dx = r (g - mean g - z mean(g ⊙ z)),   dgain = Σ_rows dy ⊙ z,   doffset = Σ_rows dy
// x, y (R, D), gain, offset (D). Kept for the backward pass: x, r (R), and mean x (R) of LayerNorm.
//
// A warp computes a row. Parameters' gradients are sums over segments of rows, then over segments
// by sum_parts.

#include "cuda/device.cuh"

constexpr int ROWS = 8;      // rows, and warps, of a block
constexpr int SEGMENT = 512; // rows that one block of norm_parameters adds

template <bool CENTRED>
__device__ void norm_row(const float* x, const float* weight, const float* bias, float* y,
                         float* means, float* scales, int rows, int width, float epsilon) {
    const int row = blockIdx.x * ROWS + warp();
    if (row >= rows) return;
    x += (size_t)row * width;
    y += (size_t)row * width;
    float mean = 0.0f;
    if (CENTRED) {
        for (int i = lane(); i < width; i += WARP) mean += x[i];
        mean = warp_sum(mean) / width;
    }
    float square = 0.0f;
    for (int i = lane(); i < width; i += WARP) square += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(warp_sum(square) / width + epsilon);
    for (int i = lane(); i < width; i += WARP) {
        const float z = (x[i] - mean) * scale;
        y[i] = CENTRED ? z * weight[i] + bias[i] : z * weight[i];
    }
    if (lane() == 0) {
        scales[row] = scale;
        if (CENTRED) means[row] = mean;
    }
}

template <bool CENTRED>
__device__ void norm_row_gradient(const float* x, const float* weight, const float* means,
                                  const float* scales, const float* dy, float* dx, int rows,
                                  int width) {
    const int row = blockIdx.x * ROWS + warp();
    if (row >= rows) return;
    x += (size_t)row * width;
    dy += (size_t)row * width;
    dx += (size_t)row * width;
    const float mean = CENTRED ? means[row] : 0.0f;
    const float scale = scales[row];
    float sum = 0.0f, dot = 0.0f;
    for (int i = lane(); i < width; i += WARP) {
        const float g = dy[i] * weight[i];
        sum += g;
        dot += g * (x[i] - mean) * scale;
    }
    sum = CENTRED ? warp_sum(sum) / width : 0.0f;
    dot = warp_sum(dot) / width;
    for (int i = lane(); i < width; i += WARP) {
        const float z = (x[i] - mean) * scale;
        dx[i] = scale * (dy[i] * weight[i] - sum - z * dot);
    }
}

/// Grid (⌈R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    layer_norm_forward(const float* x, const float* weight, const float* bias, float* y,
                       float* means, float* scales, int rows, int width, float epsilon) {
    norm_row<true>(x, weight, bias, y, means, scales, rows, width, epsilon);
}

/// Grid (⌈R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    rms_norm_forward(const float* x, const float* weight, float* y, float* scales, int rows,
                     int width, float epsilon) {
    norm_row<false>(x, weight, nullptr, y, nullptr, scales, rows, width, epsilon);
}

/// Grid (⌈R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    layer_norm_backward(const float* x, const float* weight, const float* means,
                        const float* scales, const float* dy, float* dx, int rows, int width) {
    norm_row_gradient<true>(x, weight, means, scales, dy, dx, rows, width);
}

/// Grid (⌈R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    rms_norm_backward(const float* x, const float* weight, const float* scales, const float* dy,
                      float* dx, int rows, int width) {
    norm_row_gradient<false>(x, weight, nullptr, scales, dy, dx, rows, width);
}

/// Writes a segment's part of dgain and doffset, part (⌈R / 512⌉, 2, D). `means` is null for
/// RMSNorm.
///
/// Grid (⌈D / 32⌉, ⌈R / 512⌉), block 256: 8 warps add every eighth row each, of a column per lane.
extern "C" __global__ void __launch_bounds__(256)
    norm_parameters(const float* x, const float* means, const float* scales, const float* dy,
                    float* part, int rows, int width) {
    SHARED(float, sums, 2 * ROWS * WARP);
    const int column = blockIdx.x * WARP + lane();
    const int end = min(rows, (int)(blockIdx.y + 1) * SEGMENT);
    float weight = 0.0f, bias = 0.0f;
    if (column < width) {
        for (int row = blockIdx.y * SEGMENT + warp(); row < end; row += ROWS) {
            const size_t i = (size_t)row * width + column;
            const float mean = means ? means[row] : 0.0f;
            weight += dy[i] * (x[i] - mean) * scales[row];
            bias += dy[i];
        }
    }
    sums[threadIdx.x] = weight;
    sums[ROWS * WARP + threadIdx.x] = bias;
    __syncthreads();
    // The first warp adds the parts of dgain, the second one those of doffset.
    if (warp() < 2 && column < width) {
        float total = 0.0f;
        for (int w = 0; w < ROWS; ++w) total += sums[(warp() * ROWS + w) * WARP + lane()];
        part[((size_t)blockIdx.y * 2 + warp()) * width + column] = total;
    }
}
