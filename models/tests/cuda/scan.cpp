// The recurrence beside its formula, walked in f64 one position after the other.

#include <complex>

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/scan/cuda.cu"

struct Case {
    bool complex, per_token, reverse, packed;
    int batch, length, elements, chunk;
};

void check(const Case& c) {
    using Number = std::complex<double>;
    const int width = c.elements * (c.complex ? 2 : 1), chunks = blocks(c.length, c.chunk);
    const size_t rows = size_t(c.batch) * c.length, all = rows * width;
    const Floats x = random(all), dh = random(all), a = random(c.per_token ? all : width, -0.9, 0.9);
    Array<unsigned char> starts_of_sequences(rows);
    for (auto& start : starts_of_sequences) start = uniform() > 0.7;
    const unsigned char* resets = c.packed ? starts_of_sequences.data() : nullptr;

    Floats h = unwritten(all), dx = unwritten(all);
    Floats ends = unwritten(size_t(c.batch) * chunks * width), products = unwritten(ends.size());
    Floats da = unwritten(c.per_token ? all : ends.size()), sum = unwritten(width);
    const dim3 grid{blocks(c.elements, SCAN_THREADS), unsigned(chunks), unsigned(c.batch)};
    const dim3 starts_grid{grid.x, grid.z}, block{SCAN_THREADS};
    const float* starts = chunks == 1 ? nullptr : ends.data();
    auto carry = [&](const Floats& x, int adjoint) {
        if (!starts) return;
        launch(c.complex ? scan_complex_ends : scan_real_ends, grid, block, 0, x.data(), a.data(),
               resets, ends.data(), products.data(), c.length, c.elements, c.chunk, c.per_token,
               c.reverse, adjoint);
        launch(c.complex ? scan_complex_starts : scan_real_starts, starts_grid, block, 0,
               ends.data(), products.data(), chunks, c.elements);
    };
    carry(x, 0);
    launch(c.complex ? scan_complex_forward : scan_real_forward, grid, block, 0, x.data(), a.data(),
           resets, starts, h.data(), c.length, c.elements, c.chunk, c.per_token, c.reverse);
    carry(dh, 1);
    launch(c.complex ? scan_complex_backward : scan_real_backward, grid, block, 0, dh.data(),
           h.data(), a.data(), resets, starts, dx.data(), da.data(), c.length, c.elements, c.chunk,
           c.per_token, c.reverse);
    if (!c.per_token) {
        launch(sum_parts, dim3{blocks(width, 128)}, dim3{128}, 0, da.data(), sum.data(),
               c.batch * chunks, width);
        da = sum;
    }

    auto read = [&](const Floats& values, size_t row, int e) {
        const float* at = values.data() + row * width;
        return Number(at[e], c.complex ? at[c.elements + e] : 0.0);
    };
    Doubles expected_h(all), expected_dx(all), expected_da(da.size());
    auto add = [&](Doubles& values, size_t row, int e, Number number) {
        double* at = values.data() + row * width;
        at[e] += number.real();
        if (c.complex) at[c.elements + e] += number.imag();
    };
    for (int b = 0; b < c.batch; ++b)
        for (int e = 0; e < c.elements; ++e) {
            std::vector<Number> states(c.length);
            auto row = [&](int step) {
                return size_t(b) * c.length + (c.reverse ? c.length - 1 - step : step);
            };
            auto factor = [&](int step) {
                const bool reset = resets && resets[row(step)];
                return reset ? Number() : read(a, c.per_token ? row(step) : 0, e);
            };
            Number state;
            for (int step = 0; step < c.length; ++step) {
                state = factor(step) * state + read(x, row(step), e);
                states[step] = state;
                add(expected_h, row(step), e, state);
            }
            Number gradient;
            for (int step = c.length - 1; step >= 0; --step) {
                gradient += read(dh, row(step), e);
                add(expected_dx, row(step), e, gradient);
                const bool reset = resets && resets[row(step)];
                const Number before = step && !reset ? states[step - 1] : Number();
                add(expected_da, c.per_token ? row(step) : 0, e, gradient * std::conj(before));
                gradient *= std::conj(factor(step));
            }
        }
    const std::string name = std::string("scan ") + (c.complex ? "complex" : "real") +
                             (c.per_token ? " per token" : "") + (c.reverse ? " reverse" : "") +
                             (c.packed ? " packed" : "") + " of " + std::to_string(c.length) +
                             " by " + std::to_string(c.chunk);
    compare(name + " h", h, expected_h, 3e-6);
    compare(name + " dx", dx, expected_dx, 3e-6);
    compare(name + " da", da, expected_da, 5e-6);
}

void cases() {
    for (bool complex : {false, true})
        for (bool per_token : {false, true})
            for (bool reverse : {false, true})
                for (bool packed : {false, true}) {
                    check({complex, per_token, reverse, packed, 1, 1, 1, 16});
                    check({complex, per_token, reverse, packed, 2, 17, 130, 5});
                }
    check({false, false, false, false, 2, 1023, 3, 128});
    check({false, true, true, false, 2, 1023, 3, 1024});
    // Drawn for each token and reset: powers of |0.9 + 0.9i| = 1.27 would overflow.
    check({true, true, false, true, 1, 1023, 5, 100});
}

int main() { return prove("scan", cases); }
