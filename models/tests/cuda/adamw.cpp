// AdamW of several parameters: to the bit beside the CPU's order of operations, and beside the
// formula in f64.

#include "check.h"
#include "ops/adamw/cuda.cu"

void cases() {
    const double beta1 = 0.9, beta2 = 0.98, rate = 0.01, clip = 0.5;
    const std::vector<int> sizes = {1, CHUNK, CHUNK + 17, 3, 2 * CHUNK + 1};
    std::vector<Floats> values, first, second, gradients;
    for (int size : sizes) {
        values.push_back(random(size));
        first.push_back(Floats(size));
        second.push_back(Floats(size));
        gradients.push_back(random(size));
    }
    std::vector<Doubles> m, v, theta;
    for (const Floats& value : values) {
        theta.emplace_back(value.begin(), value.end());
        m.emplace_back(value.size());
        v.emplace_back(value.size());
    }
    for (int update = 1; update <= 3; ++update) {
        const AdamWNumbers numbers{float(beta1), float(1 - beta1), float(beta2), float(1 - beta2),
                                   float(1 / std::sqrt(1 - std::pow(beta2, update))), 1e-8f};
        Array<AdamWParameter> parameters;
        int chunks = 0;
        double squares = 0;
        for (size_t p = 0; p < sizes.size(); ++p) {
            // Two learning rates, and a parameter without a gradient in the second update.
            const double own = p == 3 ? rate / 10 : rate;
            const bool used = p != 2 || update != 2;
            parameters.push_back({values[p].data(), first[p].data(), second[p].data(),
                                  used ? gradients[p].data() : nullptr, sizes[p], chunks,
                                  float(1 - own * 0.1), float(own / (1 - std::pow(beta1, update)))});
            chunks += blocks(sizes[p], CHUNK);
            for (float g : gradients[p]) squares += used ? double(g) * g : 0;
        }
        Array<double> parts(chunks, NAN);
        Floats norm = unwritten(1), scale = unwritten(1);
        const int count = sizes.size();
        const dim3 grid{unsigned(chunks)}, block{CHUNK_THREADS};
        launch(gradient_squares, grid, block, 0, parameters.data(), count, parts.data());
        launch(gradient_norm, dim3{1}, block, 0, parts.data(), chunks, float(clip), norm.data(), scale.data());
        compare("norm", norm, {std::sqrt(squares)}, 1e-6);
        compare("scale", scale, {clip / std::sqrt(squares)}, 1e-6);
        const std::vector<Floats> before[] = {values, first, second};
        launch(adamw, grid, block, 0, parameters.data(), count, numbers, scale.data());
        for (int p = 0; p < count; ++p) {
            const AdamWParameter& of = parameters[p];
            Floats same(sizes[p]);
            for (int i = 0; i < sizes[p]; ++i) {
                const float g = of.gradient ? of.gradient[i] * scale[0] : 0;
                const float one = std::fma(before[1][p][i], numbers.beta1, g * numbers.rest1);
                const float two = std::fma(before[2][p][i], numbers.beta2, g * g * numbers.rest2);
                const float size = std::fma(std::sqrt(two), numbers.correction, numbers.epsilon);
                same[i] = std::fma(one / size, -of.step, before[0][p][i] * of.keep);

                const double own = p == 3 ? rate / 10 : rate;
                const double exact = of.gradient ? of.gradient[i] * clip / std::sqrt(squares) : 0;
                m[p][i] = beta1 * m[p][i] + (1 - beta1) * exact;
                v[p][i] = beta2 * v[p][i] + (1 - beta2) * exact * exact;
                const double mean = m[p][i] / (1 - std::pow(beta1, update));
                const double square = v[p][i] / (1 - std::pow(beta2, update));
                theta[p][i] -= own * 0.1 * theta[p][i] + own * mean / (std::sqrt(square) + 1e-8);
            }
            compare("bits", values[p], {same.begin(), same.end()}, 1e-30);
            compare("parameter", values[p], theta[p], 1e-6);
            compare("first moment", first[p], m[p], 1e-6);
            compare("second moment", second[p], v[p], 1e-6, 1e-6);
        }
    }
    Floats norm(1), scale(1);
    const Array<double> none(1);
    launch(gradient_norm, dim3{1}, dim3{CHUNK_THREADS}, 0, none.data(), 1, 0.0f, norm.data(), scale.data());
    compare("scale without clipping", scale, {1}, 1e-30);
    launch(gradient_norm, dim3{1}, dim3{CHUNK_THREADS}, 0, none.data(), 1, 1.0f, norm.data(), scale.data());
    compare("scale of gradients of zero", scale, {1}, 1e-30);
    // More chunks than threads.
    const Array<double> many(300, 3.0);
    launch(gradient_norm, dim3{1}, dim3{CHUNK_THREADS}, 0, many.data(), 300, 1.0f, norm.data(), scale.data());
    compare("norm of 300 chunks", norm, {30}, 1e-6);
    // Squares that f32 does not have, and a parameter that no norm scales.
    Floats value{1}, one{0}, two{0};
    const Floats large{1e25f}, small{0.5f};
    Array<double> part(1);
    Array<AdamWParameter> alone;
    alone.push_back({value.data(), one.data(), two.data(), large.data(), 1, 0, 1, 1});
    launch(gradient_squares, dim3{1}, dim3{CHUNK_THREADS}, 0, alone.data(), 1, part.data());
    launch(gradient_norm, dim3{1}, dim3{CHUNK_THREADS}, 0, part.data(), 1, 1.0f, norm.data(), scale.data());
    compare("a large norm", norm, {1e25}, 1e-6);
    alone[0].gradient = small.data();
    launch(adamw, dim3{1}, dim3{CHUNK_THREADS}, 0, alone.data(), 1,
           AdamWNumbers{0.5f, 0.5f, 0.5f, 0.5f, 1.0f, 0.0f}, (const float*)nullptr);
    compare("an update without a scale", value, {1 - 0.25 / std::sqrt(0.125)}, 1e-6);
}

int main() { return prove("adamw", cases); }
