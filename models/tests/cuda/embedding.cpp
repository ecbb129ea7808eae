// Rows of a table by number beside their sums in f64.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/embedding/cuda.cu"

void check(int rows, int vocabulary, int width, int segment) {
    const size_t all = size_t(rows) * width, table_size = size_t(vocabulary) * width;
    const unsigned segments = blocks(rows, segment);
    const Floats table = random(table_size), dy = random(all);
    Array<unsigned> ids(rows);
    for (auto& id : ids) id = unsigned((uniform() + 1) / 2 * vocabulary);
    Floats y = unwritten(all), part = unwritten(segments * table_size), dtable = unwritten(table_size);
    launch(embedding_forward, dim3{blocks(all, EMBEDDING_THREADS)}, dim3{EMBEDDING_THREADS}, 0,
           ids.data(), table.data(), y.data(), (long long)all, vocabulary, width);
    launch(embedding_backward, dim3{blocks(width, WARP), segments}, dim3{WARP},
           vocabulary * WARP * sizeof(float), ids.data(), dy.data(), part.data(), rows, vocabulary,
           width, segment);
    launch(sum_parts, dim3{blocks(table_size, 128)}, dim3{128}, 0, part.data(), dtable.data(),
           int(segments), int(table_size));
    Doubles expected_y(all), expected(table_size);
    for (int i = 0; i < rows; ++i)
        for (int e = 0; e < width; ++e) {
            expected_y[size_t(i) * width + e] = table[size_t(ids[i]) * width + e];
            expected[size_t(ids[i]) * width + e] += dy[size_t(i) * width + e];
        }
    const std::string name = "embedding of " + std::to_string(rows) + " in " +
                             std::to_string(vocabulary) + " x " + std::to_string(width);
    compare(name + " y", y, expected_y, 1e-7);
    compare(name + " dtable", dtable, expected, 2e-6);
}

/// Rows of no number, and what they add to none.
void bad_ids() {
    const Array<unsigned> ids{1, 2, 0, 2000000000};
    const Floats table{3, 5}, dy{1, 10, 100, 1000};
    Floats y = unwritten(4), part = unwritten(2);
    launch(embedding_forward, dim3{1}, dim3{EMBEDDING_THREADS}, 0, ids.data(), table.data(),
           y.data(), 4ll, 2, 1);
    launch(embedding_backward, dim3{1, 1}, dim3{WARP}, 2 * WARP * sizeof(float), ids.data(),
           dy.data(), part.data(), 4, 2, 1, 64);
    compare("known ids", {y[0], y[2]}, {5, 3}, 1e-7);
    compare("gradients of known ids", part, {100, 1}, 1e-7);
    if (std::isnan(y[1]) && std::isnan(y[3])) return;
    ++failures;
    std::printf("embedding: an id without a row has one\n");
}

void cases() {
    bad_ids();
    check(1, 1, 1, 64);
    check(17, 3, 33, 64);
    check(1023, 257, 16, 64);
    check(130, 20, 64, 100);
    check(8, 512, 5, 8);
}

int main() { return prove("embedding", cases); }
