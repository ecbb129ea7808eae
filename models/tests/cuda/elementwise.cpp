// Activations, sums and biases beside their formulas.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/activation/cuda.cu"
#include "ops/add/cuda.cu"
#include "ops/linear/cuda.cu"

constexpr int FUNCTIONS = SIGMOID + 1;

/// Returns f(x) and f'(x).
std::pair<double, double> reference(int function, double floor, double x) {
    const double open = 1 / (1 + std::exp(-x));
    switch (function) {
        case GELU_TANH: {
            const double slope = std::sqrt(2 / M_PI);
            const double t = std::tanh(slope * (x + 0.044715 * x * x * x));
            return {x / 2 * (1 + t),
                    (1 + t) / 2 + x / 2 * (1 - t * t) * slope * (1 + 3 * 0.044715 * x * x)};
        }
        case GELU_ERF: {
            const double share = std::erfc(-x / std::sqrt(2.0)) / 2;
            return {x * share, share + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI)};
        }
        case RELU: return {std::max(x, 0.0) + floor, x > 0};
        case ELU_PLUS_ONE: return {x > 0 ? x + 1 : std::exp(x), x > 0 ? 1 : std::exp(x)};
        case SILU: return {x * open, open + x * open * (1 - open)};
        case SIGMOID: return {open, open / (1 + std::exp(x))};
        default: return {std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))), open};
    }
}

void check_activation(int function, int count) {
    const char* const names[] = {"gelu", "gelu_erf", "relu", "elu + 1", "silu", "softplus",
                                 "sigmoid"};
    const float floor = 0.25f, points[] = {0.0f, -0.0f, 40.0f, -40.0f, 1e4f, -1e4f};
    Floats x = random(count, -6, 6), dy = random(count), y = unwritten(count), dx = unwritten(count);
    for (int i = 0; i < std::min(count / 2, 6); ++i) x[i] = points[i];
    const unsigned grid = blocks(count, ACTIVATION_THREADS * ACTIVATION_EACH);
    launch(activation_forward, dim3{grid}, dim3{ACTIVATION_THREADS}, 0, x.data(), y.data(),
           function, floor, (long long)count);
    launch(activation_backward, dim3{grid}, dim3{ACTIVATION_THREADS}, 0, x.data(), dy.data(),
           dx.data(), function, (long long)count);
    Doubles expected(count), gradient(count);
    for (int i = 0; i < count; ++i) {
        const auto [value, slope] = reference(function, floor, x[i]);
        expected[i] = value;
        gradient[i] = dy[i] * slope;
    }
    const std::string name = names[function] + (" of " + std::to_string(count));
    // Beside numbers of size 1: those of 1e4 have a comparison of their own.
    const int large = std::min(count / 2, 6);
    compare(name + ", large", {y.begin(), y.begin() + large},
            {expected.begin(), expected.begin() + large}, 1e-6);
    compare(name, {y.begin() + large, y.end()}, {expected.begin() + large, expected.end()}, 2e-6,
            1.0);
    compare(name + " dx", dx, gradient, 4e-6, 1.0);
}

/// A number that is none has no value, and no slope but that of relu, which hides it.
void stays_visible() {
    const Floats x{NAN}, one{1};
    for (int function = 0; function < FUNCTIONS; ++function) {
        Floats y(1), dx(1);
        launch(activation_forward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, x.data(), y.data(),
               function, 0.0f, 1ll);
        launch(activation_backward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, x.data(), one.data(),
               dx.data(), function, 1ll);
        if (std::isnan(y[0]) && (std::isnan(dx[0]) || function == RELU)) continue;
        ++failures;
        std::printf("activation %d hides what is not a number\n", function);
    }
}

/// Slopes where the square of a number is infinite, and values far below 1.
void far_from_zero() {
    const Floats x{3e30f, -3e30f, -40.0f, -60.0f}, ones(4, 1.0f);
    Floats dx(4), y(4);
    launch(activation_backward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, x.data(), ones.data(),
           dx.data(), int(GELU_TANH), 2ll);
    compare("slopes of gelu, large", {dx[0], dx[1]}, {1, 0}, 1e-7);
    launch(activation_forward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, x.data(), y.data(),
           int(SIGMOID), 0.0f, 4ll);
    launch(activation_backward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, x.data(), ones.data(),
           dx.data(), int(SIGMOID), 4ll);
    for (int i : {2, 3}) {
        const double small = std::exp(double(x[i]));
        compare("sigmoid, small", {y[i]}, {small}, 1e-6, 0.0);
        compare("slope of sigmoid, small", {dx[i]}, {small}, 1e-6, 0.0);
    }
    const Floats tails{-40.0f, -5.0f, 40.0f, 60.0f};
    auto value = [&](int function, int i) {
        launch(activation_forward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, &tails[i], y.data(),
               function, 0.0f, 1ll);
        return Floats{y[0]};
    };
    compare("softplus, small", value(SOFTPLUS, 0), {std::exp(-40.0)}, 1e-6, 0.0);
    compare("gelu_erf, small", value(GELU_ERF, 1), {-2.5 * std::erfc(5 / std::sqrt(2.0))}, 1e-5, 0.0);
    launch(activation_backward, dim3{1}, dim3{ACTIVATION_THREADS}, 0, tails.data(), ones.data(),
           dx.data(), int(SIGMOID), 4ll);
    for (int i : {2, 3})
        compare("slope of sigmoid, far", {dx[i]}, {std::exp(-double(tails[i]))}, 1e-6, 0.0);
}

void check_sum(int count) {
    const Floats a = random(count), b = random(count);
    Floats y = unwritten(count);
    launch(add, dim3{blocks(count, ADD_THREADS * ADD_EACH)}, dim3{ADD_THREADS}, 0, a.data(),
           b.data(), y.data(), (long long)count);
    Doubles expected(count);
    for (int i = 0; i < count; ++i) expected[i] = double(a[i]) + b[i];
    compare("sum of " + std::to_string(count), y, expected, 1e-7);
}

void check_bias(int rows, int width) {
    const size_t all = size_t(rows) * width;
    const Floats product = random(all), bias = random(width), dy = random(all);
    const unsigned segments = blocks(rows, BIAS_SEGMENT);
    Floats y = unwritten(all), part = unwritten(size_t(segments) * width), dbias = unwritten(width);
    const dim3 grid{blocks(width, WARP), segments}, block{BIAS_THREADS};
    launch(linear_bias, grid, block, 0, product.data(), bias.data(), y.data(), rows, width);
    launch(linear_bias_gradient, grid, block, 0, dy.data(), part.data(), rows, width);
    launch(sum_parts, dim3{blocks(width, 128)}, dim3{128}, 0, part.data(), dbias.data(),
           int(segments), width);
    Doubles expected(all), gradient(width);
    for (size_t i = 0; i < all; ++i) {
        expected[i] = double(product[i]) + bias[i % width];
        gradient[i % width] += dy[i];
    }
    const std::string name = "bias " + std::to_string(rows) + " x " + std::to_string(width);
    compare(name, y, expected, 1e-7);
    compare(name + " gradient", dbias, gradient, 2e-6, 1.0);
}

void cases() {
    for (int function = 0; function < FUNCTIONS; ++function)
        for (int count : {1, 17, 1023, 2049}) check_activation(function, count);
    stays_visible();
    far_from_zero();
    for (int count : {1, 1023, 1025, 5000}) check_sum(count);
    for (auto [rows, width] : {std::pair{1, 1}, {9, 17}, {521, 33}, {1030, 2}})
        check_bias(rows, width);
}

int main() { return prove("elementwise", cases); }
