// The transpose of matrices, by tiles in shared memory:
//     y_bcr = x_brc,   x (B, R, C), y (B, C, R)

#include "cuda/device.cuh"

constexpr int TRANSPOSE_TILE = 32;  // rows and columns of a block
constexpr int TRANSPOSE_ROWS = 8;   // rows of a tile at a time
constexpr int TRANSPOSE_THREADS = TRANSPOSE_TILE * TRANSPOSE_ROWS;

/// Grid (⌈C / 32⌉, ⌈R / 32⌉, B), block 256.
extern "C" __global__ void __launch_bounds__(TRANSPOSE_THREADS)
    transpose(const float* x, float* y, int rows, int columns) {
    // Rows of 33, so that the numbers of a column lie in different banks.
    SHARED(float, tile, TRANSPOSE_TILE*(TRANSPOSE_TILE + 1));
    const int row = blockIdx.y * TRANSPOSE_TILE, column = blockIdx.x * TRANSPOSE_TILE;
    const int i = threadIdx.x % TRANSPOSE_TILE, first = threadIdx.x / TRANSPOSE_TILE;
    x += (size_t)blockIdx.z * rows * columns;
    y += (size_t)blockIdx.z * rows * columns;
    for (int r = first; r < TRANSPOSE_TILE; r += TRANSPOSE_ROWS)
        if (row + r < rows && column + i < columns)
            tile[r * (TRANSPOSE_TILE + 1) + i] = x[(size_t)(row + r) * columns + column + i];
    __syncthreads();
    for (int c = first; c < TRANSPOSE_TILE; c += TRANSPOSE_ROWS)
        if (column + c < columns && row + i < rows)
            y[(size_t)(column + c) * rows + row + i] = tile[i * (TRANSPOSE_TILE + 1) + c];
}
