// Long convolutions beside their sums, computed term by term in f64.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "cuda/transpose.cu"
#include "ops/fft/cuda.cu"
#include "ops/fft/long.cu"

/// Computes in one launch, or by `split` rows in two passes.
void check(int batch, int length, int width, int taps, bool bidirectional, int split = 0) {
    const int half = bidirectional ? taps / 2 : taps, group = 2;
    int n = 4;
    while (n < length + std::min(half, length)) n *= 2;
    const int size = n / 2;
    const size_t all = size_t(batch) * length * width;
    const Floats x = random(all), dy = random(all), kernel = random(size_t(width) * taps);
    Array<Complex> roots(n), spectrum(size_t(width) * (size + 1), {NAN, NAN});
    const unsigned groups = blocks(batch, group);
    Floats y = unwritten(all), dx = unwritten(all), dkernel = unwritten(kernel.size());
    // In two passes, taps that meet no position are not written.
    Floats part = split ? Floats(groups * kernel.size()) : unwritten(groups * kernel.size());
    launch(fft_roots, dim3{blocks(n, 256)}, dim3{256}, 0, roots.data(), n);
    if (split == 0) {
        const dim3 block{unsigned(std::max(32, size / 4))};
        const dim3 grid{unsigned(width), unsigned(batch)};
        const size_t shared = size * sizeof(Complex);
        launch(fft_conv_spectrum, dim3{unsigned(width)}, block, shared, kernel.data(), roots.data(),
               spectrum.data(), taps, length, bidirectional, size);
        launch(fft_conv, grid, block, shared, x.data(), spectrum.data(), roots.data(), y.data(),
               length, size, 0);
        launch(fft_conv, grid, block, shared, dy.data(), spectrum.data(), roots.data(), dx.data(),
               length, size, 1);
        launch(fft_conv_taps, dim3{unsigned(width), groups}, block, shared, x.data(), dy.data(),
               roots.data(), part.data(), batch, group, length, taps, bidirectional, size);
    } else {
        const int rows = split, columns = size / split;
        const dim3 column_block{unsigned(std::max(32, 2 * rows))};
        const dim3 row_block{unsigned(std::max(32, columns / 2))};
        const size_t column_shared = 64 * rows, row_shared = 16 * columns;
        auto column_grid = [&](int examples) {
            return dim3{blocks(columns, LONG_COLUMNS), unsigned(width), unsigned(examples)};
        };
        auto row_grid = [&](int examples) {
            return dim3{unsigned(rows / 2 + 1), unsigned(width), unsigned(examples)};
        };
        Array<Complex> of_x(size_t(batch) * width * size, {NAN, NAN}), of_dy = of_x;
        Array<Complex> of_taps(size_t(groups) * width * size, {NAN, NAN});
        launch(fft_long_tap_columns, column_grid(1), column_block, column_shared, kernel.data(),
               roots.data(), of_taps.data(), taps, length, bidirectional, rows, columns);
        launch(fft_long_spectrum, row_grid(1), row_block, row_shared, of_taps.data(), roots.data(),
               spectrum.data(), rows, columns);
        auto columns_of = [&](const Floats& values, Array<Complex>& scratch) {
            launch(fft_long_columns, column_grid(batch), column_block, column_shared, values.data(),
                   roots.data(), scratch.data(), length, rows, columns);
        };
        columns_of(x, of_x);
        columns_of(dy, of_dy);
        launch(fft_long_correlation, row_grid(groups), row_block, row_shared, of_x.data(),
               of_dy.data(), roots.data(), of_taps.data(), batch, group, width, rows, columns);
        launch(fft_long_taps, column_grid(groups), column_block, column_shared, of_taps.data(),
               roots.data(), part.data(), width, taps, length, bidirectional, rows, columns);
        for (bool adjoint : {false, true}) {
            Array<Complex>& scratch = adjoint ? of_dy : of_x;
            launch(fft_long_product, row_grid(batch), row_block, row_shared, scratch.data(),
                   spectrum.data(), roots.data(), width, rows, columns, adjoint);
            launch(fft_long_sequence, column_grid(batch), column_block, column_shared,
                   scratch.data(), roots.data(), adjoint ? dx.data() : y.data(), length, rows,
                   columns);
        }
    }
    launch(sum_parts, dim3{blocks(kernel.size(), 128)}, dim3{128}, 0, part.data(), dkernel.data(),
           int(groups), int(kernel.size()));

    Doubles expected_y(all), expected_dx(all), expected_dkernel(kernel.size());
    for (int b = 0; b < batch; ++b)
        for (int d = 0; d < width; ++d)
            for (int tap = 0; tap < taps; ++tap) {
                const int lag = tap < half ? tap : half - tap - 1;
                const size_t at = size_t(d) * taps + tap;
                for (int t = std::max(0, lag); t < length && t - lag < length; ++t) {
                    const size_t to = (size_t(b) * width + d) * length + t, from = to - lag;
                    expected_y[to] += double(kernel[at]) * x[from];
                    expected_dx[from] += double(kernel[at]) * dy[to];
                    expected_dkernel[at] += double(x[from]) * dy[to];
                }
            }
    const std::string name = std::string(bidirectional ? "bidirectional " : "causal ") +
                             std::to_string(length) + " by " + std::to_string(taps) + (split ? " in two passes" : "");
    compare(name + " y", y, expected_y, 3e-6);
    compare(name + " dx", dx, expected_dx, 3e-6);
    compare(name + " dkernel", dkernel, expected_dkernel, 3e-6);
}

/// The inverse of a spectrum as the convolution of a pulse, and its gradient as the spectrum of a
/// whole turn, for n positions.
void check_inverse(int n, int width, int split = 0) {
    const int size = n / 2;
    Array<Complex> roots(n), spectrum(size_t(width) * (size + 1)), of_dy(spectrum.size());
    for (Complex& bin : spectrum) bin = {float(uniform()), float(uniform())};
    for (int d = 0; d < width; ++d)
        for (int k : {0, size}) spectrum[size_t(d) * (size + 1) + k].im = 0;
    const Floats dy = random(size_t(width) * n);
    Floats pulse(dy.size()), y = unwritten(dy.size());
    for (int d = 0; d < width; ++d) pulse[size_t(d) * n] = 1;
    launch(fft_roots, dim3{blocks(n, 256)}, dim3{256}, 0, roots.data(), n);
    if (split == 0) {
        const dim3 block{unsigned(std::max(32, size / 4))}, grid{unsigned(width)};
        const size_t shared = size * sizeof(Complex);
        launch(fft_conv, grid, block, shared, pulse.data(), spectrum.data(), roots.data(), y.data(),
               n, size, 0);
        launch(fft_conv_spectrum, grid, block, shared, dy.data(), roots.data(), of_dy.data(), n, n,
               0, size);
    } else {
        const int rows = split, columns = size / split;
        const dim3 column_grid{blocks(columns, LONG_COLUMNS), unsigned(width)};
        const dim3 row_grid{unsigned(rows / 2 + 1), unsigned(width)};
        const dim3 column_block{unsigned(std::max(32, 2 * rows))};
        const dim3 row_block{unsigned(std::max(32, columns / 2))};
        const size_t column_shared = 64 * rows, row_shared = 16 * columns;
        Array<Complex> scratch(size_t(width) * size);
        launch(fft_long_columns, column_grid, column_block, column_shared, pulse.data(),
               roots.data(), scratch.data(), n, rows, columns);
        launch(fft_long_product, row_grid, row_block, row_shared, scratch.data(), spectrum.data(),
               roots.data(), width, rows, columns, 0);
        launch(fft_long_sequence, column_grid, column_block, column_shared, scratch.data(),
               roots.data(), y.data(), n, rows, columns);
        launch(fft_long_tap_columns, column_grid, column_block, column_shared, dy.data(),
               roots.data(), scratch.data(), n, n, 0, rows, columns);
        launch(fft_long_spectrum, row_grid, row_block, row_shared, scratch.data(), roots.data(),
               of_dy.data(), rows, columns);
    }
    Doubles expected(y.size()), gradient(2 * of_dy.size());
    for (int d = 0; d < width; ++d)
        for (int k = 0; k <= size; ++k) {
            const size_t bin = size_t(d) * (size + 1) + k;
            const double weight = (k == 0 || k == size ? 1.0 : 2.0) / n;
            for (int t = 0; t < n; ++t) {
                const double angle = 2 * M_PI * (size_t(k) * t % n) / n;
                const size_t at = size_t(d) * n + t;
                expected[at] += weight * (spectrum[bin].re * std::cos(angle) -
                                          spectrum[bin].im * std::sin(angle));
                gradient[2 * bin] += dy[at] * std::cos(angle);
                gradient[2 * bin + 1] -= dy[at] * std::sin(angle);
            }
        }
    Floats numbers;
    for (const Complex& bin : of_dy) numbers.insert(numbers.end(), {bin.re, bin.im});
    const std::string name = "inverse to " + std::to_string(n) + (split ? " in two passes" : "");
    compare(name, y, expected, 3e-6);
    compare(name + ", gradient", numbers, gradient, 3e-6);
}

/// Roots are those of f64, rounded once.
void check_roots(int n) {
    Array<Complex> roots(n);
    launch(fft_roots, dim3{blocks(n, 256)}, dim3{256}, 0, roots.data(), n);
    Floats numbers;
    Doubles expected;
    for (int j = 0; j < n; ++j) {
        numbers.insert(numbers.end(), {roots[j].re, roots[j].im});
        const double angle = 2 * M_PI * j / n;
        expected.insert(expected.end(), {std::cos(angle), -std::sin(angle)});
    }
    compare("roots of " + std::to_string(n), numbers, expected, 6e-8);
}

void check_transpose(int batch, int rows, int columns) {
    const Floats x = random(size_t(batch) * rows * columns);
    Floats y = unwritten(x.size());
    const unsigned by_column = blocks(columns, TRANSPOSE_TILE), by_row = blocks(rows, TRANSPOSE_TILE);
    launch(transpose, dim3{by_column, by_row, unsigned(batch)}, dim3{TRANSPOSE_THREADS}, 0, x.data(),
           y.data(), rows, columns);
    Doubles expected(x.size());
    for (int b = 0; b < batch; ++b)
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < columns; ++c)
                expected[(size_t(b) * columns + c) * rows + r] = x[(size_t(b) * rows + r) * columns + c];
    compare("transpose of " + std::to_string(rows) + " x " + std::to_string(columns), y, expected, 1e-7);
}

void cases() {
    check_roots(1000);
    for (auto [rows, columns] : {std::pair{1, 1}, {1, 33}, {32, 32}, {65, 31}, {100, 7}})
        check_transpose(2, rows, columns);
    for (auto [length, taps] : {std::pair{1, 1}, {1, 5}, {2, 2}, {17, 17}, {17, 40}, {64, 64},
                                {100, 7}, {300, 300}, {1023, 1023}})
        check(3, length, 2, taps, false);
    for (auto [length, taps] : {std::pair{1, 2}, {2, 2}, {17, 34}, {17, 6}, {128, 256}, {33, 100}})
        check(3, length, 3, taps, true);
    check(1, 4096, 1, 4096, false);
    check(3, 4, 2, 4, false, 2); // 2 rows of 2
    check(3, 3, 2, 4, true, 2);
    check(3, 17, 2, 17, false, 4);
    check(3, 33, 2, 100, true, 8);
    check(3, 50, 2, 50, false, 4); // 4 rows of 16
    check(3, 300, 1, 300, false, 16);
    check(2, 4100, 1, 600, false, 64);
    for (int n : {4, 8, 64, 1024}) check_inverse(n, 3);
    for (auto [n, split] : {std::pair{16, 2}, {64, 4}, {2048, 32}}) check_inverse(n, 2, split);
}

int main() { return prove("fft", cases); }
