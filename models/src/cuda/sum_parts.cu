// Sums of parts that blocks have left in memory:
//     sum_w = Σ_p part_pw,   part (P, W), sum (W)
//
// A thread adds the parts of one w in order.

#include "cuda/device.cuh"

/// Grid (⌈W / 128⌉), block 128.
extern "C" __global__ void __launch_bounds__(128)
    sum_parts(const float* part, float* sum, int parts, int width) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    if (w >= width) return;
    float total = 0.0f;
    for (int p = 0; p < parts; ++p) total += part[(size_t)p * width + w];
    sum[w] = total;
}
