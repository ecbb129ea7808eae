// BatchNorm beside its formulas.

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/batch_norm/cuda.cu"

/// The rows that count.
enum class Rows { All, Some, None };

/// The formulas of cuda.cu in f64, with the moments of x or with given ones.
struct Reference {
    Doubles y, dx, dgain, doffset, moments;
    double count = 0;

    Reference(const Floats& x, const Floats& gain, const Floats& offset, const Floats& dy,
              const Floats& valid, const Floats* given, int rows, int width, double epsilon)
        : y(x.size()), dx(x.size()), dgain(width), doffset(width), moments(2 * width) {
        for (float v : valid) count += v != 0;
        const double share = 1 / std::max(count, 1.0);
        for (int i = 0; i < width; ++i) {
            auto at = [&](int row) { return double(x[size_t(row) * width + i]); };
            double mean = 0, variance = 0;
            for (int row = 0; row < rows; ++row) mean += valid[row] != 0 ? at(row) * share : 0;
            for (int row = 0; row < rows; ++row)
                variance += valid[row] != 0 ? std::pow(at(row) - mean, 2) * share : 0;
            if (given) mean = (*given)[i], variance = (*given)[width + i];
            moments[i] = mean;
            moments[width + i] = variance;
            const double inverse = 1 / std::sqrt(variance + epsilon);
            for (int row = 0; row < rows; ++row) {
                const size_t k = size_t(row) * width + i;
                const double n = (at(row) - mean) * inverse;
                y[k] = n * gain[i] + offset[i];
                dgain[i] += dy[k] * n;
                doffset[i] += dy[k];
            }
            for (int row = 0; row < rows; ++row) {
                const size_t k = size_t(row) * width + i;
                const double n = (at(row) - mean) * inverse;
                const double own = given || valid[row] == 0 ? 0 : share;
                dx[k] = inverse * gain[i] * (dy[k] - own * (doffset[i] + n * dgain[i]));
            }
        }
    }
};

void check(int rows, int width, Rows counted, bool given) {
    const float epsilon = 1e-3f;
    const size_t all = size_t(rows) * width;
    // Far from zero, where a sum of squares less the square of the mean would have no digits.
    const Floats x = random(all, 28, 32), gain = random(width), offset = random(width);
    const Floats dy = random(all);
    Floats valid(rows), y = unwritten(all), dx = unwritten(all), moments = unwritten(2 * width);
    Floats count = unwritten(1), sums = unwritten(2 * width);
    for (float& v : valid) v = counted == Rows::All || (counted == Rows::Some && uniform() > 0.2);
    const unsigned segments = blocks(rows, BATCH_SEGMENT), columns = blocks(width, WARP);
    Floats part = unwritten(size_t(segments) * 3 * width);
    Floats parts = unwritten(size_t(segments) * 2 * width);
    const dim3 grid{columns, segments}, block{BATCH_THREADS};
    const float* hidden = counted == Rows::All ? nullptr : valid.data();
    launch(batch_norm_segments, grid, block, 0, x.data(), hidden, part.data(), rows, width);
    launch(batch_norm_moments, dim3{columns}, block, 0, part.data(), moments.data(), count.data(),
           int(segments), width);
    Floats others = random(2 * width, 28, 32);
    for (int i = width; i < 2 * width; ++i) others[i] = (others[i] - 28) / 4;
    const Floats& used = given ? others : moments;
    launch(batch_norm_forward, grid, block, 0, x.data(), gain.data(), offset.data(), used.data(),
           y.data(), rows, width, epsilon);
    launch(batch_norm_parameters, grid, block, 0, x.data(), used.data(), dy.data(), parts.data(),
           rows, width, epsilon);
    launch(sum_parts, dim3{blocks(2 * width, 128)}, dim3{128}, 0, parts.data(), sums.data(),
           int(segments), 2 * width);
    const float* none = nullptr;
    launch(batch_norm_backward, grid, block, 0, x.data(), gain.data(), used.data(), dy.data(),
           given ? none : hidden, given ? none : sums.data(), given ? none : count.data(),
           dx.data(), rows, width, epsilon);
    const Reference of_x(x, gain, offset, dy, valid, nullptr, rows, width, epsilon);
    const char* const which[] = {"", " masked", " of no row"};
    const std::string name = "batch norm " + std::to_string(rows) + " x " + std::to_string(width) +
                             which[int(counted)] + (given ? " by given moments" : "");
    compare(name + " moments", moments, of_x.moments, 2e-7, 1e-3);
    compare(name + " count", count, {of_x.count}, 1e-9);
    const Reference expected(x, gain, offset, dy, valid, given ? &others : nullptr, rows, width,
                             epsilon);
    // Of one row, n is a difference of equal numbers times up to 1 / √ε.
    const bool alone = !given && (of_x.count <= 1 || rows == 1);
    compare(name + " y", y, expected.y, alone ? 2e-4 : 1e-5, 1.0);
    compare(name + " dx", dx, expected.dx, alone ? 2e-4 : 1e-5, 1.0);
    compare(name + " dgain", {sums.begin(), sums.begin() + width}, expected.dgain, 1e-5, 1.0);
    compare(name + " doffset", {sums.begin() + width, sums.end()}, expected.doffset, 1e-5, 1.0);
}

void cases() {
    for (Rows counted : {Rows::All, Rows::Some, Rows::None})
        for (bool given : {false, true})
            for (auto [rows, width] :
                 {std::pair{1, 1}, {1, 17}, {9, 1}, {23, 64}, {521, 33}, {5003, 3}})
                check(rows, width, counted, given);
}

int main() { return prove("batch norm", cases); }
