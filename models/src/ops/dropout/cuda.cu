// Dropout (mod.rs) with a mask drawn from its counter, forward and backward:
//     y = r + m ⊙ x,   dx = m ⊙ dy
// x, y, r (B, E), r null for none. m is 0 with probability `rate`, else 1 / (1 - rate): element i of
// example b takes word i of row b of the stream, or word i % period if the positions of an example
// share a mask. The backward pass is the same launch with dy for x and without r.

#include "cuda/device.cuh"
#include "cuda/philox.cuh"

constexpr int DROPOUT_THREADS = 128;
constexpr int DROPOUT_REPEATS = 64; // positions of a thread, where they share a mask

/// `elements` is E. With `offsets` (B + 1) not null, example b has the elements from width ·
/// offsets_b up to width · offsets_{b+1} instead, and `elements` is the largest number of them.
/// `period` is E, or D for a mask that the positions share.
///
/// Grid (⌈16 ⌈period / 64⌉ / 128⌉, B, ⌈⌈E / period⌉ / 64⌉), block 128. A thread draws a block of
/// four words.
extern "C" __global__ void __launch_bounds__(DROPOUT_THREADS)
    dropout(const float* x, const float* residual, float* y, Philox stream, const int* offsets,
            int width, long long elements, long long period) {
    const unsigned block = blockIdx.x * DROPOUT_THREADS + threadIdx.x;
    const unsigned example = blockIdx.y;
    size_t begin = (size_t)example * elements, count = elements;
    if (offsets) {
        begin = (size_t)offsets[example] * width;
        count = (size_t)offsets[example + 1] * width - begin;
    }
    const size_t first = philox_element(block);
    if (first >= (size_t)period) return;
    const PhiloxWords words = philox(stream, example, block);
    for (int repeat = 0; repeat < DROPOUT_REPEATS; ++repeat) {
        const size_t start = ((size_t)blockIdx.z * DROPOUT_REPEATS + repeat) * period;
        if (start >= count) return;
        for (int w = 0; w < 4; ++w) {
            const size_t word = first + 16 * w, i = start + word;
            if (word >= (size_t)period || i >= count) continue;
            const float kept = x[begin + i] * philox_factor(stream, words.word[w]);
            y[begin + i] = residual ? residual[begin + i] + kept : kept;
        }
    }
}
