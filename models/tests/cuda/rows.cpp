// Softmax, cross-entropy and gates of rows beside their formulas.

#include "check.h"
#include "ops/cross_entropy/cuda.cu"
#include "ops/gated_linear/cuda.cu"
#include "ops/softmax/cuda.cu"

std::string sized(const char* name, int rows, int width) {
    return std::string(name) + " " + std::to_string(rows) + " x " + std::to_string(width);
}

void check_softmax(int batch, int each, int keys, bool masked) {
    const int rows = batch * each;
    const size_t all = size_t(rows) * keys;
    const Floats x = random(all, -30, 90), dy = random(all);
    Floats valid(size_t(batch) * keys), y = unwritten(all), dx = unwritten(all);
    // Of the first example, no key is seen.
    for (size_t i = 0; i < valid.size(); ++i) valid[i] = i >= size_t(keys) && uniform() > 0;
    const dim3 grid{blocks(rows, SOFTMAX_ROWS)}, block{256};
    launch(softmax_forward, grid, block, 0, x.data(), masked ? valid.data() : nullptr, y.data(),
           rows, each, keys);
    launch(softmax_backward, grid, block, 0, y.data(), dy.data(), dx.data(), rows, keys);
    Doubles expected(all), gradient(all);
    for (int row = 0; row < rows; ++row) {
        const size_t at = size_t(row) * keys;
        auto sees = [&](int k) { return !masked || valid[row / each * size_t(keys) + k] != 0; };
        double sum = 0, dot = 0;
        for (int k = 0; k < keys; ++k) sum += sees(k) ? std::exp(double(x[at + k])) : 0;
        for (int k = 0; k < keys; ++k) {
            expected[at + k] = sees(k) ? std::exp(double(x[at + k])) / sum : 0;
            dot += expected[at + k] * dy[at + k];
        }
        for (int k = 0; k < keys; ++k) gradient[at + k] = expected[at + k] * (dy[at + k] - dot);
    }
    compare(sized("softmax", rows, keys) + (masked ? " masked" : ""), y, expected, 2e-6);
    compare(sized("softmax dx", rows, keys), dx, gradient, 2e-6, 0.1);
}

/// A number that is none makes its row none.
void no_number() {
    const Floats x{NAN, NAN, 1.0f, NAN};
    Floats y(4);
    launch(softmax_forward, dim3{1}, dim3{256}, 0, x.data(), (const float*)nullptr, y.data(), 2, 2,
           2);
    if (std::all_of(y.begin(), y.end(), [](float y) { return std::isnan(y); })) return;
    ++failures;
    std::printf("softmax hides what is not a number\n");
}

/// Numbers lie around `base`.
void check_loss(int rows, int classes, double base) {
    const size_t all = size_t(rows) * classes;
    const Floats x = random(all, base - 20, base + 90), dlosses = random(rows);
    Array<unsigned> labels(rows);
    for (unsigned& label : labels) label = unsigned((uniform() + 1) / 2 * classes);
    Floats losses = unwritten(rows), dx = unwritten(all);
    const dim3 grid{blocks(rows, LOSS_ROWS)}, block{256};
    launch(cross_entropy_forward, grid, block, 0, x.data(), labels.data(), losses.data(), rows,
           classes);
    launch(cross_entropy_backward, grid, block, 0, x.data(), labels.data(), dlosses.data(),
           dx.data(), rows, classes);
    Doubles expected(rows), gradient(all);
    for (int row = 0; row < rows; ++row) {
        const float* at = x.data() + size_t(row) * classes;
        double sum = 0;
        for (int c = 0; c < classes; ++c) sum += std::exp(at[c] - base);
        expected[row] = std::log(sum) + base - at[labels[row]];
        for (int c = 0; c < classes; ++c)
            gradient[size_t(row) * classes + c] =
                dlosses[row] * (std::exp(at[c] - base) / sum - (unsigned(c) == labels[row]));
    }
    compare(sized("cross-entropy", rows, classes), losses, expected, 2e-6, 1.0);
    compare(sized("cross-entropy dx", rows, classes), dx, gradient, 1e-5, 0.1);
}

void bad_label() {
    const Floats x = random(3);
    const Array<unsigned> label{3};
    const Floats dloss{1};
    Floats loss(1), dx(3);
    launch(cross_entropy_forward, dim3{1}, dim3{256}, 0, x.data(), label.data(), loss.data(), 1, 3);
    launch(cross_entropy_backward, dim3{1}, dim3{256}, 0, x.data(), label.data(),
           dloss.data(), dx.data(), 1, 3);
    if (std::isnan(loss[0]) && std::isnan(dx[0]) && std::isnan(dx[2])) return;
    ++failures;
    std::printf("cross-entropy: a label without a class has a loss\n");
}

/// Values and gates lie in one array, with these strides of rows, the gates from `gate` on.
void check_gate(int rows, int width, int value_stride, int gate_stride, size_t gate) {
    const size_t all = size_t(rows) * width, size = gate + size_t(rows) * gate_stride;
    const Floats made = random(size, -30, 30), dy = random(all);
    Floats y = unwritten(all), dmade(size);
    const dim3 grid{blocks(width, GATE_THREADS), unsigned(std::min(rows, 5))}, block{GATE_THREADS};
    launch(gate_forward, grid, block, 0, made.data(), made.data() + gate, y.data(), rows, width,
           value_stride, gate_stride);
    launch(gate_backward, grid, block, 0, made.data(), made.data() + gate, dy.data(), dmade.data(),
           dmade.data() + gate, rows, width, value_stride, gate_stride);
    Doubles expected(all), gradient(size);
    for (int row = 0; row < rows; ++row)
        for (int i = 0; i < width; ++i) {
            const size_t v = size_t(row) * value_stride + i, at = size_t(row) * width + i;
            const size_t g = size_t(row) * gate_stride + i + gate;
            const double open = 1 / (1 + std::exp(-double(made[g])));
            expected[at] = made[v] * open;
            gradient[v] = dy[at] * open;
            gradient[g] = dy[at] * made[v] * open * (1 - open);
        }
    compare(sized("gate", rows, width), y, expected, 1e-6);
    compare(sized("gate gradients", rows, width), dmade, gradient, 1e-6);
}

void cases() {
    for (bool masked : {false, true})
        for (auto [each, keys] : {std::pair{1, 1}, {3, 17}, {2, 1023}, {5, 64}})
            check_softmax(2, each, keys, masked);
    for (auto [rows, classes] : {std::pair{1, 1}, {9, 2}, {17, 10}, {3, 1023}})
        for (double base : {0.0, 1e5}) check_loss(rows, classes, base);
    bad_label();
    no_number();
    for (auto [rows, width] : {std::pair{1, 1}, {17, 3}, {6, 257}}) {
        check_gate(rows, width, width, width, size_t(rows) * width); // apart
        check_gate(rows, width, 2 * width, 2 * width, width);        // halves of one product (R, 2D)
    }
    check_gate(7, 5, 6, 9, 42);
}

int main() { return prove("rows", cases); }
