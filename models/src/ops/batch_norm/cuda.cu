// BatchNorm (mod.rs) of columns, forward and backward:
//     y = n ⊙ gain + offset,  n = r (x - μ),  r = 1 / √(σ² + ε)
// x, y (R, D), all others (D). Moments μ and σ² lie as (2, D). Where they are given,
//     doffset = Σ dy,  dgain = Σ dy ⊙ n,  dx = r gain dy,
// with sums over all rows. Where they are those of the N rows of x that `valid` (R) does not hide,
//     dx = r gain (dy - (doffset + n dgain) / N) in these rows.
// Kept for the backward pass: x, the moments and N.
//
// A block computes a segment of 512 rows of 32 columns: a lane a column, a warp every eighth row.
// Sums over segments are added in order by the block of their columns, or by sum_parts.

#include "cuda/device.cuh"

constexpr int BATCH_WARPS = 8;                      // warps of a block
constexpr int BATCH_THREADS = BATCH_WARPS * WARP;
constexpr int BATCH_SEGMENT = 512;                  // rows of a block

/// Returns the sum of a column's numbers over the warps of a block, in every thread; adds them in
/// order. `shared` is memory of 256 numbers, and free again on return. All threads call it.
__device__ inline double sum_of_warps(double own, double* shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < BATCH_WARPS; ++w) sum += shared[w * WARP + lane()];
    __syncthreads();
    return sum;
}

/// The rows of a thread, and its column.
struct BatchColumn {
    int column, row, end;

    __device__ BatchColumn(int rows)
        : column(blockIdx.x * WARP + lane()), row(blockIdx.y * BATCH_SEGMENT + warp()),
          end(min(rows, (int)(blockIdx.y + 1) * BATCH_SEGMENT)) {}
};

/// Writes the moments of each segment, part (⌈R / 512⌉, 3, D): mean, sum of squares around it, and
/// number of the rows that count. `valid` is null if all do.
///
/// Grid (⌈D / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BATCH_THREADS)
    batch_norm_segments(const float* x, const float* valid, float* part, int rows, int width) {
    SHARED(double, shared, BATCH_THREADS);
    const BatchColumn at(rows);
    const int end = at.column < width ? at.end : 0;
    float count = 0.0f, sum = 0.0f, squares = 0.0f;
    for (int row = at.row; row < end; row += BATCH_WARPS) {
        if (valid && valid[row] == 0.0f) continue;
        count += 1.0f;
        sum += x[(size_t)row * width + at.column];
    }
    const double all = sum_of_warps(count, shared);
    const float mean = sum_of_warps(sum, shared) / fmax(all, 1.0);
    for (int row = at.row; row < end; row += BATCH_WARPS) {
        if (valid && valid[row] == 0.0f) continue;
        const float apart = x[(size_t)row * width + at.column] - mean;
        squares += apart * apart;
    }
    const double around = sum_of_warps(squares, shared);
    if (warp() == 0 && at.column < width) {
        part += (size_t)blockIdx.y * 3 * width + at.column;
        part[0] = mean;
        part[width] = around;
        part[2 * (size_t)width] = all;
    }
}

/// Writes moments (2, D), the mean and the variance over the rows that count, and their number,
/// count (1), from the parts of `segments` segments. Zeros if no row counts.
///
/// Grid (⌈D / 32⌉), block 256.
extern "C" __global__ void __launch_bounds__(BATCH_THREADS)
    batch_norm_moments(const float* part, float* moments, float* count, int segments, int width) {
    SHARED(double, shared, BATCH_THREADS);
    const int column = blockIdx.x * WARP + lane();
    const int end = column < width ? segments : 0;
    const float *means = part + column, *squares = means + width, *counts = squares + width;
    double own = 0.0, sum = 0.0, around = 0.0;
    for (int segment = warp(); segment < end; segment += BATCH_WARPS) {
        const size_t i = (size_t)segment * 3 * width;
        own += counts[i];
        sum += (double)counts[i] * means[i];
    }
    const double all = sum_of_warps(own, shared), share = 1.0 / fmax(all, 1.0);
    const double mean = sum_of_warps(sum, shared) * share;
    for (int segment = warp(); segment < end; segment += BATCH_WARPS) {
        const size_t i = (size_t)segment * 3 * width;
        const double apart = means[i] - mean;
        around += squares[i] + counts[i] * apart * apart;
    }
    const double variance = sum_of_warps(around, shared) * share;
    if (warp() == 0 && column < width) {
        moments[column] = mean;
        moments[width + column] = variance;
        if (column == 0) *count = all;
    }
}

/// Returns r of a variance.
__device__ inline float inverse_deviation(float variance, float epsilon) {
    return 1.0f / sqrtf(variance + epsilon);
}

/// Grid (⌈D / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BATCH_THREADS)
    batch_norm_forward(const float* x, const float* gain, const float* offset,
                       const float* moments, float* y, int rows, int width, float epsilon) {
    const BatchColumn at(rows);
    if (at.column >= width) return;
    const float mean = moments[at.column], shift = offset[at.column];
    const float scale =
        inverse_deviation(moments[width + at.column], epsilon) * gain[at.column];
    for (int row = at.row; row < at.end; row += BATCH_WARPS) {
        const size_t i = (size_t)row * width + at.column;
        y[i] = (x[i] - mean) * scale + shift;
    }
}

/// Writes a segment's part of dgain and doffset, part (⌈R / 512⌉, 2, D).
///
/// Grid (⌈D / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BATCH_THREADS)
    batch_norm_parameters(const float* x, const float* moments, const float* dy, float* part,
                          int rows, int width, float epsilon) {
    SHARED(float, sums, 2 * BATCH_THREADS);
    const BatchColumn at(rows);
    float gain = 0.0f, offset = 0.0f;
    if (at.column < width) {
        const float mean = moments[at.column];
        for (int row = at.row; row < at.end; row += BATCH_WARPS) {
            const size_t i = (size_t)row * width + at.column;
            gain += dy[i] * (x[i] - mean);
            offset += dy[i];
        }
        gain *= inverse_deviation(moments[width + at.column], epsilon);
    }
    sums[threadIdx.x] = gain;
    sums[BATCH_THREADS + threadIdx.x] = offset;
    __syncthreads();
    // The first warp adds the parts of dgain, the second one those of doffset.
    if (warp() < 2 && at.column < width) {
        float total = 0.0f;
        for (int w = 0; w < BATCH_WARPS; ++w)
            total += sums[(warp() * BATCH_WARPS + w) * WARP + lane()];
        part[((size_t)blockIdx.y * 2 + warp()) * width + at.column] = total;
    }
}

/// Writes dx. `sums` (2, D) are dgain and doffset, and `count` (1) is N. Both are null where the
/// moments are given.
///
/// Grid (⌈D / 32⌉, ⌈R / 512⌉), block 256.
extern "C" __global__ void __launch_bounds__(BATCH_THREADS)
    batch_norm_backward(const float* x, const float* gain, const float* moments, const float* dy,
                        const float* valid, const float* sums, const float* count, float* dx,
                        int rows, int width, float epsilon) {
    const BatchColumn at(rows);
    if (at.column >= width) return;
    const float mean = moments[at.column];
    const float inverse = inverse_deviation(moments[width + at.column], epsilon);
    const float scale = inverse * gain[at.column];
    const float share = sums ? 1.0f / fmaxf(*count, 1.0f) : 0.0f;
    const float dgain = sums ? sums[at.column] : 0.0f;
    const float doffset = sums ? sums[width + at.column] : 0.0f;
    for (int row = at.row; row < at.end; row += BATCH_WARPS) {
        const size_t i = (size_t)row * width + at.column;
        const float own = valid && valid[row] == 0.0f ? 0.0f : share;
        const float n = (x[i] - mean) * inverse;
        dx[i] = scale * (dy[i] - own * (doffset + n * dgain));
    }
}
