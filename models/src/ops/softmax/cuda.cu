// Softmax of rows with hidden keys (mod.rs), forward and backward:
//     y_k = e^{x_k - m} / Σ_j e^{x_j - m},  m = max_j x_j, over the keys j with valid_j ≠ 0
//     dx_k = y_k (dy_k - Σ_j dy_j y_j)
// x, y (B, R, K), valid (B, K) or null. Hidden keys get 0, and so do rows without another key. Only
// y is kept for the backward pass. A warp computes a row.

#include "cuda/device.cuh"

constexpr int SOFTMAX_ROWS = 8; // rows, and warps, of a block

/// `rows` is B R, `rows_each` is R. Grid (⌈B R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    softmax_forward(const float* x, const float* valid, float* y, int rows, int rows_each,
                    int keys) {
    const int row = blockIdx.x * SOFTMAX_ROWS + warp();
    if (row >= rows) return;
    x += (size_t)row * keys;
    y += (size_t)row * keys;
    if (valid) valid += (size_t)(row / rows_each) * keys;
    float largest = -INFINITY;
    for (int k = lane(); k < keys; k += WARP)
        if (!valid || valid[k] != 0.0f) largest = fmaxf(largest, x[k]);
    largest = warp_max(largest);
    float sum = 0.0f;
    for (int k = lane(); k < keys; k += WARP)
        if (!valid || valid[k] != 0.0f) sum += expf(x[k] - largest);
    sum = warp_sum(sum);
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int k = lane(); k < keys; k += WARP)
        y[k] = !valid || valid[k] != 0.0f ? expf(x[k] - largest) * factor : 0.0f;
}

/// Grid (⌈B R / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    softmax_backward(const float* y, const float* dy, float* dx, int rows, int keys) {
    const int row = blockIdx.x * SOFTMAX_ROWS + warp();
    if (row >= rows) return;
    y += (size_t)row * keys;
    dy += (size_t)row * keys;
    dx += (size_t)row * keys;
    float dot = 0.0f;
    for (int k = lane(); k < keys; k += WARP) dot += dy[k] * y[k];
    dot = warp_sum(dot);
    for (int k = lane(); k < keys; k += WARP) dx[k] = y[k] * (dy[k] - dot);
}
