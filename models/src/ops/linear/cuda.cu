// The bias of the linear map (mod.rs) behind its product, forward and backward:
//     y = p + b in each row,   db = Σ_rows dy
// p, y (R, N), b (N). The products themselves are a library's.
//
// A block computes a segment of 512 rows of 32 columns: a lane a column, a warp every eighth row.

#include "cuda/device.cuh"

constexpr int BIAS_WARPS = 8;                    // warps of a block
constexpr int BIAS_THREADS = BIAS_WARPS * WARP;
constexpr int BIAS_SEGMENT = 512;                // rows of a block

/// Grid (⌈N / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BIAS_THREADS)
    linear_bias(const float* product, const float* bias, float* y, int rows, int width) {
    const int column = blockIdx.x * WARP + lane();
    const int end = min(rows, (int)(blockIdx.y + 1) * BIAS_SEGMENT);
    if (column >= width) return;
    const float shift = bias[column];
    for (int row = blockIdx.y * BIAS_SEGMENT + warp(); row < end; row += BIAS_WARPS)
        y[(size_t)row * width + column] = product[(size_t)row * width + column] + shift;
}

/// Writes a segment's part of db, part (⌈R / 512⌉, N).
///
/// Grid (⌈N / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BIAS_THREADS)
    linear_bias_gradient(const float* dy, float* part, int rows, int width) {
    SHARED(float, sums, BIAS_THREADS);
    const int column = blockIdx.x * WARP + lane();
    const int end = min(rows, (int)(blockIdx.y + 1) * BIAS_SEGMENT);
    float sum = 0.0f;
    if (column < width)
        for (int row = blockIdx.y * BIAS_SEGMENT + warp(); row < end; row += BIAS_WARPS)
            sum += dy[(size_t)row * width + column];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp() == 0 && column < width) {
        float total = 0.0f;
        for (int w = 0; w < BIAS_WARPS; ++w) total += sums[w * WARP + lane()];
        part[(size_t)blockIdx.y * width + column] = total;
    }
}
