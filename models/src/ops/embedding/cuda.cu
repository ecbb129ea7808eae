// Rows of a table by number (mod.rs), forward and backward:
//     y_i = table_{id i},   dtable_v = Σ_{i: id i = v} dy_i
// ids (R), y (R, D), table (V, D). An id of V or more gives NaN, and no gradient.
//
// Backward, a warp adds a segment of rows into a table of its own in shared memory, 32 columns of
// all V rows: no two threads add to one number. The tables of the segments are parts for sum_parts.

#include "cuda/device.cuh"

constexpr int EMBEDDING_THREADS = 256;
constexpr int EMBEDDING_AHEAD = 8; // rows that are loaded before the first is added

/// Grid (⌈R D / 256⌉), block 256.
extern "C" __global__ void __launch_bounds__(EMBEDDING_THREADS)
    embedding_forward(const unsigned* ids, const float* table, float* y, long long numbers,
                      int vocabulary, int width) {
    const long long i = (long long)blockIdx.x * EMBEDDING_THREADS + threadIdx.x;
    if (i >= numbers) return;
    const unsigned id = ids[i / width];
    y[i] = id < (unsigned)vocabulary ? table[(size_t)id * width + i % width] : NAN;
}

/// Writes the parts (⌈R / segment⌉, V, D) of dtable.
///
/// Grid (⌈D / 32⌉, ⌈R / segment⌉), block 32, 128 V bytes of shared memory.
extern "C" __global__ void __launch_bounds__(WARP)
    embedding_backward(const unsigned* ids, const float* dy, float* part, int rows, int vocabulary,
                       int width, int segment) {
    DYNAMIC_SHARED(float, shared);
    const int column = blockIdx.x * WARP + lane();
    if (column >= width) return;
    float* sums = shared + lane();
    for (int v = 0; v < vocabulary; ++v) sums[v * WARP] = 0.0f;
    auto add = [&](unsigned id, float gradient) {
        if (id < (unsigned)vocabulary) sums[id * WARP] += gradient;
    };
    int row = blockIdx.y * segment;
    const int end = min(rows, row + segment);
    for (; row + EMBEDDING_AHEAD <= end; row += EMBEDDING_AHEAD) {
        unsigned id[EMBEDDING_AHEAD];
        float gradients[EMBEDDING_AHEAD];
        for (int i = 0; i < EMBEDDING_AHEAD; ++i) {
            id[i] = ids[row + i];
            gradients[i] = dy[(size_t)(row + i) * width + column];
        }
        for (int i = 0; i < EMBEDDING_AHEAD; ++i) add(id[i], gradients[i]);
    }
    for (; row < end; ++row) add(ids[row], dy[(size_t)row * width + column]);
    part += (size_t)blockIdx.y * vocabulary * width + column;
    for (int v = 0; v < vocabulary; ++v) part[(size_t)v * width] = sums[v * WARP];
}
