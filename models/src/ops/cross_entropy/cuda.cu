// The softmax cross-entropy of rows (mod.rs), forward and backward:
//     loss_b = log Σ_c e^{x_bc} - x_{b, label b},   dx_bc = dloss_b (softmax(x_b)_c - [c = label b])
// x (B, C), labels (B), loss (B). A warp computes a row. A label of C or more gives NaN.

#include "cuda/device.cuh"

constexpr int LOSS_ROWS = 8; // rows, and warps, of a block

/// Returns the largest of a row and log Σ_c e^{x_c - largest}.
struct LogSum {
    float largest, log_sum;
};
__device__ inline LogSum log_sum(const float* x, int classes) {
    float largest = -INFINITY, sum = 0.0f;
    for (int c = lane(); c < classes; c += WARP) largest = fmaxf(largest, x[c]);
    largest = warp_max(largest);
    for (int c = lane(); c < classes; c += WARP) sum += expf(x[c] - largest);
    return {largest, logf(warp_sum(sum))};
}

/// Grid (⌈B / 8⌉), block 256.
extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_forward(const float* x, const unsigned* labels, float* losses, int rows,
                          int classes) {
    const int row = blockIdx.x * LOSS_ROWS + warp();
    if (row >= rows) return;
    x += (size_t)row * classes;
    const LogSum of = log_sum(x, classes);
    const unsigned label = labels[row];
    if (lane() == 0)
        losses[row] = label < (unsigned)classes ? of.log_sum - (x[label] - of.largest) : NAN;
}

/// Grid (⌈B / 8⌉), block 256. `dlosses` (B).
extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_backward(const float* x, const unsigned* labels, const float* dlosses, float* dx,
                           int rows, int classes) {
    const int row = blockIdx.x * LOSS_ROWS + warp();
    if (row >= rows) return;
    x += (size_t)row * classes;
    dx += (size_t)row * classes;
    const LogSum of = log_sum(x, classes);
    const unsigned label = labels[row];
    for (int c = lane(); c < classes; c += WARP) {
        const float weight = expf(x[c] - of.largest - of.log_sum);
        dx[c] = label < (unsigned)classes ? dlosses[row] * (weight - ((unsigned)c == label)) : NAN;
    }
}
