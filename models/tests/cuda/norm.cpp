// LayerNorm and RMSNorm beside their formulas.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/norm/cuda.cu"

/// The formulas of cuda.cu in f64.
struct Reference {
    Doubles y, dx, dgain, doffset;

    Reference(bool centred, const Floats& x, const Floats& gain, const Floats& offset,
              const Floats& dy, int rows, int width, double epsilon)
        : y(x.size()), dx(x.size()), dgain(width), doffset(width) {
        for (int row = 0; row < rows; ++row) {
            const size_t at = size_t(row) * width;
            double mean = 0, square = 0, sum = 0, dot = 0;
            for (int i = 0; centred && i < width; ++i) mean += double(x[at + i]) / width;
            for (int i = 0; i < width; ++i) square += std::pow(x[at + i] - mean, 2) / width;
            const double scale = 1 / std::sqrt(square + epsilon);
            for (int i = 0; i < width; ++i) {
                const double z = (x[at + i] - mean) * scale, g = double(dy[at + i]) * gain[i];
                y[at + i] = z * gain[i] + (centred ? offset[i] : 0);
                dgain[i] += dy[at + i] * z;
                doffset[i] += dy[at + i];
                sum += centred ? g / width : 0;
                dot += g * z / width;
            }
            for (int i = 0; i < width; ++i) {
                const double z = (x[at + i] - mean) * scale, g = double(dy[at + i]) * gain[i];
                dx[at + i] = scale * (g - sum - z * dot);
            }
        }
    }
};

void check(bool centred, int rows, int width) {
    const float epsilon = 1e-5f;
    const size_t all = size_t(rows) * width;
    const Floats x = random(all, -2, 3), gain = random(width), offset = random(width);
    const Floats dy = random(all);
    Floats y = unwritten(all), dx = unwritten(all), means = unwritten(rows);
    Floats scales = unwritten(rows);
    const unsigned segments = blocks(rows, SEGMENT);
    Floats part = unwritten(segments * 2 * width), sums = unwritten(2 * width);
    const dim3 grid{blocks(rows, ROWS)}, block{ROWS * WARP};
    if (centred) {
        launch(layer_norm_forward, grid, block, 0, x.data(), gain.data(), offset.data(), y.data(),
               means.data(), scales.data(), rows, width, epsilon);
        launch(layer_norm_backward, grid, block, 0, x.data(), gain.data(), means.data(),
               scales.data(), dy.data(), dx.data(), rows, width);
    } else {
        launch(rms_norm_forward, grid, block, 0, x.data(), gain.data(), y.data(), scales.data(),
               rows, width, epsilon);
        launch(rms_norm_backward, grid, block, 0, x.data(), gain.data(), scales.data(), dy.data(),
               dx.data(), rows, width);
    }
    const float* mean = centred ? means.data() : nullptr;
    launch(norm_parameters, dim3{blocks(width, WARP), segments}, block, 0, x.data(), mean,
           scales.data(), dy.data(), part.data(), rows, width);
    launch(sum_parts, dim3{blocks(2 * width, 128)}, dim3{128}, 0, part.data(), sums.data(),
           int(segments), 2 * width);
    const Reference expected(centred, x, gain, offset, dy, rows, width, epsilon);
    const std::string name = std::string(centred ? "layer norm " : "rms norm ") +
                             std::to_string(rows) + " x " + std::to_string(width);
    compare(name + " y", y, expected.y, 2e-6);
    // Rows of one number are all mean: their gradients are differences of equal numbers.
    compare(name + " dx", dx, expected.dx, 5e-6, width == 1 ? 100 : 1e-3);
    compare(name + " dgain", {sums.begin(), sums.begin() + width}, expected.dgain, 5e-6);
    compare(name + " doffset", {sums.begin() + width, sums.end()}, expected.doffset, 5e-6);
}

void cases() {
    for (bool centred : {true, false})
        for (auto [rows, width] : {std::pair{1, 1}, {1, 17}, {9, 1}, {3, 1023}, {17, 64}, {521, 33}})
            check(centred, rows, width);
}

int main() { return prove("norm", cases); }
