// The selective scan beside its formula, walked in f64 one position after the other.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/selective_scan/cuda.cu"

Floats sum_of_parts(const Floats& parts, int count) {
    const int width = int(parts.size()) / count;
    Floats sum = unwritten(width);
    launch(sum_parts, dim3{blocks(width, 128)}, dim3{128}, 0, parts.data(), sum.data(), count,
           width);
    return sum;
}

void check(int batch, int length, int width, int modes) {
    const size_t rows = size_t(batch) * length, all = rows * width;
    const Floats x = random(all), delta = random(all, 0.0, 1.5), dy = random(all);
    const Floats a = random(size_t(width) * modes, -2.0, -0.01), skip = random(width);
    const Floats projections = random(rows * 2 * modes);
    const int lanes = modes <= 8 ? 8 : modes <= 16 ? 16 : 32;
    const unsigned groups = blocks(size_t(width) * lanes, SELECTIVE_THREADS);
    const unsigned tiles = blocks(length, SELECTIVE_TILE);

    Floats y = unwritten(all), kept = unwritten(size_t(batch) * tiles * width * modes);
    Floats dx = unwritten(all), ddelta = unwritten(all);
    Floats da = unwritten(size_t(batch) * width * modes);
    Floats dprojections = unwritten(groups * rows * 2 * modes);
    Floats dskip = unwritten(size_t(batch) * width);
    const dim3 grid{groups, unsigned(batch)}, block{SELECTIVE_THREADS};
    for (int first = 0; first < modes; first += lanes)
        launch(selective_scan_forward, grid, block, 0, x.data(), delta.data(), a.data(),
               projections.data(), skip.data(), y.data(), kept.data(), length, width, modes, first,
               lanes);
    for (int first = 0; first < modes; first += lanes)
        launch(selective_scan_backward, grid, block, 0, x.data(), delta.data(), a.data(),
               projections.data(), skip.data(), kept.data(), dy.data(), dx.data(), ddelta.data(),
               da.data(), dprojections.data(), dskip.data(), length, width, modes, first, lanes);
    // Without states for a backward pass.
    Floats alone = unwritten(all);
    for (int first = 0; first < modes; first += lanes)
        launch(selective_scan_forward, grid, block, 0, x.data(), delta.data(), a.data(),
               projections.data(), skip.data(), alone.data(), (float*)nullptr, length, width, modes,
               first, lanes);
    da = sum_of_parts(da, batch);
    dprojections = sum_of_parts(dprojections, groups);
    dskip = sum_of_parts(dskip, batch);

    Doubles expected_y(all), expected_dx(all), expected_ddelta(all), expected_da(da.size());
    Doubles expected_dprojections(dprojections.size()), expected_dskip(width);
    for (int b = 0; b < batch; ++b)
        for (int d = 0; d < width; ++d) {
            auto at = [&](int t) { return (size_t(b) * length + t) * width + d; };
            for (int t = 0; t < length; ++t) {
                expected_y[at(t)] += double(skip[d]) * x[at(t)];
                expected_dx[at(t)] += double(skip[d]) * dy[at(t)];
                expected_dskip[d] += double(x[at(t)]) * dy[at(t)];
            }
            for (int n = 0; n < modes; ++n) {
                const double rate = a[size_t(d) * modes + n];
                auto b_at = [&](int t) { return (size_t(b) * length + t) * 2 * modes + n; };
                Doubles h(length + 1);
                for (int t = 0; t < length; ++t) {
                    const double step = delta[at(t)];
                    h[t + 1] = std::exp(step * rate) * h[t] + step * projections[b_at(t)] * x[at(t)];
                    expected_y[at(t)] += projections[b_at(t) + modes] * h[t + 1];
                }
                double carry = 0.0;
                for (int t = length - 1; t >= 0; --t) {
                    const double step = delta[at(t)], in = projections[b_at(t)];
                    const double g = double(projections[b_at(t) + modes]) * dy[at(t)] + carry;
                    carry = g * std::exp(step * rate);
                    const double w = carry * h[t];
                    expected_dx[at(t)] += step * g * in;
                    expected_ddelta[at(t)] += x[at(t)] * g * in + w * rate;
                    expected_da[size_t(d) * modes + n] += step * w;
                    expected_dprojections[b_at(t)] += g * step * x[at(t)];
                    expected_dprojections[b_at(t) + modes] += h[t + 1] * dy[at(t)];
                }
            }
        }
    const std::string name = "selective scan of " + std::to_string(length) + ", " +
                             std::to_string(width) + " channels, " + std::to_string(modes) + " modes";
    compare(name + " y", y, expected_y, 3e-6);
    compare(name + " y alone", alone, expected_y, 3e-6);
    compare(name + " dx", dx, expected_dx, 3e-6);
    compare(name + " ddelta", ddelta, expected_ddelta, 5e-6);
    compare(name + " da", da, expected_da, 5e-6);
    compare(name + " dprojections", dprojections, expected_dprojections, 5e-6);
    compare(name + " dskip", dskip, expected_dskip, 5e-6);
}

void cases() {
    check(1, 1, 1, 1);
    check(2, 17, 35, 3);
    check(1, 16, 17, 16);
    check(2, 33, 5, 33);
    check(1, 1023, 2, 9);
}

int main() { return prove("selective scan", cases); }
