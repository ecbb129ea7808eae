// Long convolutions beside their sums, computed term by term in f64.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/fft/cuda.cu"

void check(int batch, int length, int width, int taps, bool bidirectional) {
    const int half = bidirectional ? taps / 2 : taps, group = 2;
    int n = 4;
    while (n < length + std::min(half, length)) n *= 2;
    const int size = n / 2;
    const size_t all = size_t(batch) * length * width;
    const Floats x = random(all), dy = random(all), kernel = random(size_t(width) * taps);
    Array<Complex> roots(n), spectrum(size_t(width) * (size + 1));
    const unsigned groups = blocks(batch, group);
    Floats y(all), dx(all), part(groups * kernel.size()), dkernel(kernel.size());
    const dim3 block{unsigned(std::max(32, size / 4))};
    const dim3 grid{unsigned(width), unsigned(batch)};
    const size_t shared = size * sizeof(Complex);
    launch(fft_roots, dim3{blocks(n, 256)}, dim3{256}, 0, roots.data(), n);
    launch(fft_conv_spectrum, dim3{unsigned(width)}, block, shared, kernel.data(), roots.data(),
           spectrum.data(), taps, length, bidirectional, size);
    launch(fft_conv, grid, block, shared, x.data(), spectrum.data(), roots.data(), y.data(),
           length, width, size, 0);
    launch(fft_conv, grid, block, shared, dy.data(), spectrum.data(), roots.data(), dx.data(),
           length, width, size, 1);
    launch(fft_conv_taps, dim3{unsigned(width), groups}, block, shared, x.data(), dy.data(),
           roots.data(), part.data(), batch, group, length, width, taps, bidirectional, size);
    launch(sum_parts, dim3{blocks(kernel.size(), 128)}, dim3{128}, 0, part.data(), dkernel.data(),
           int(groups), int(kernel.size()));

    Doubles expected_y(all), expected_dx(all), expected_dkernel(kernel.size());
    for (int b = 0; b < batch; ++b)
        for (int d = 0; d < width; ++d)
            for (int tap = 0; tap < taps; ++tap) {
                const int lag = tap < half ? tap : half - tap - 1;
                const size_t at = size_t(d) * taps + tap;
                for (int t = std::max(0, lag); t < length && t - lag < length; ++t) {
                    const size_t to = (size_t(b) * length + t) * width + d;
                    const size_t from = (size_t(b) * length + t - lag) * width + d;
                    expected_y[to] += double(kernel[at]) * x[from];
                    expected_dx[from] += double(kernel[at]) * dy[to];
                    expected_dkernel[at] += double(x[from]) * dy[to];
                }
            }
    const std::string name = std::string(bidirectional ? "bidirectional " : "causal ") +
                             std::to_string(length) + " by " + std::to_string(taps);
    compare(name + " y", y, expected_y, 3e-6);
    compare(name + " dx", dx, expected_dx, 3e-6);
    compare(name + " dkernel", dkernel, expected_dkernel, 3e-6);
}

void cases() {
    for (auto [length, taps] : {std::pair{1, 1}, {1, 5}, {2, 2}, {17, 17}, {17, 40}, {64, 64},
                                {100, 7}, {300, 300}, {1023, 1023}})
        check(3, length, 2, taps, false);
    for (auto [length, taps] : {std::pair{1, 2}, {2, 2}, {17, 34}, {17, 6}, {128, 256}, {33, 100}})
        check(3, length, 3, taps, true);
    check(1, 4096, 1, 4096, false);
}

int main() { return prove("fft", cases); }
