// Spectra of states whose matrix is diagonal plus one of rank 1, beside the formula with complex
// numbers and difference quotients.

#include <complex>

#include "check.h"
#include "ops/dplr_spectrum/cuda.cu"

using Wide = std::complex<long double>;

/// Returns K̂ of one channel at one root, by rows (2J + 2, M).
std::vector<Wide> reference(const std::vector<long double>& rows, int modes, int directions,
                            int bin, int longest) {
    const int products = 2 * directions + 2;
    const long double half = M_PIl * bin / longest, s = std::sin(half), c = std::cos(half);
    const Wide i{0, 1};
    std::vector<Wide> sums(products);
    for (int m = 0; m < modes; ++m) {
        // The numbers of a pair, from the sum and the product of both.
        const long double sum = rows[2 * products * modes + m];
        const long double product = rows[(2 * products + 1) * modes + m];
        const Wide root = std::sqrt(Wide(sum * sum / 4 - product));
        const Wide one = sum / 2 + root, other = sum / 2 - root;
        for (int j = 0; j < products; ++j)
            sums[j] += (2.0l * i * s * rows[j * modes + m] - c * rows[(products + j) * modes + m]) /
                       ((2.0l * i * s - c * one) * (2.0l * i * s - c * other));
    }
    const Wide factor = c * sums[2 * directions] / (1.0l + c * sums[2 * directions + 1]);
    std::vector<Wide> spectra;
    for (int d = 0; d < directions; ++d)
        spectra.push_back((sums[d] - factor * sums[directions + d]) * Wide(c, s));
    return spectra;
}

/// Compares numbers of f64: differences, beside the largest number or 1, with zeros.
void compare_wide(const std::string& name, const Array<double>& values,
                  const std::vector<long double>& expected, double tolerance) {
    long double largest = 1;
    for (long double value : expected) largest = std::max(largest, std::abs(value));
    Floats differences(values.size());
    for (size_t i = 0; i < values.size(); ++i)
        differences[i] = float((values[i] - expected[i]) / largest);
    compare(name, differences, Doubles(values.size()), tolerance, 1.0);
}

void check(int channels, int modes, int longest, int directions) {
    const int products = 2 * directions + 2, each = (2 * products + 2) * modes;
    const int bins = longest / 2 + 1;
    Array<double> rows(size_t(channels) * each);
    Array<double> spectra(size_t(channels) * 2 * directions * bins, NAN);
    Array<double> gradient(spectra.size());
    for (double& value : rows) value = uniform() / modes;
    for (int h = 0; h < channels; ++h)
        for (int m = 0; m < modes; ++m) {
            // A pole on the left of the imaginary axis.
            const double re = -0.55 + 0.45 * uniform(), im = 1.5 + 1.5 * uniform();
            rows[size_t(h) * each + 2 * products * modes + m] = 2 * re;
            rows[size_t(h) * each + (2 * products + 1) * modes + m] = re * re + im * im;
        }
    for (double& value : gradient) value = uniform();
    const unsigned segments = blocks(bins, DPLR_SEGMENT);
    Array<double> part(segments * rows.size(), NAN), sums(rows.size());
    launch(dplr_spectrum_forward, dim3{blocks(bins, DPLR_THREADS), unsigned(channels)},
           dim3{DPLR_THREADS}, each * sizeof(double), rows.data(), spectra.data(), modes, bins,
           longest, directions);
    launch(dplr_spectrum_backward,
           dim3{segments, unsigned(channels), blocks(modes, WARP)}, dim3{DPLR_THREADS},
           (each + (2 * products + 2) * DPLR_THREADS) * sizeof(double), rows.data(),
           gradient.data(), part.data(), modes, bins, longest, directions);
    for (unsigned segment = 0; segment < segments; ++segment)
        for (size_t i = 0; i < rows.size(); ++i) sums[i] += part[segment * rows.size() + i];

    std::vector<long double> expected(spectra.size()), differences(rows.size());
    for (int h = 0; h < channels; ++h) {
        const std::vector<long double> own(rows.begin() + h * each, rows.begin() + (h + 1) * each);
        const size_t first = size_t(h) * 2 * directions * bins;
        /// Returns the sum over frequencies of K̂ times its gradient.
        auto dot = [&](const std::vector<long double>& rows, bool keeps) {
            long double sum = 0;
            for (int bin = 0; bin < bins; ++bin) {
                const auto all = reference(rows, modes, directions, bin, longest);
                for (int d = 0; d < directions; ++d) {
                    const size_t re = first + size_t(d) * bins + bin;
                    const size_t im = re + size_t(directions) * bins;
                    sum += all[d].real() * gradient[re] + all[d].imag() * gradient[im];
                    if (keeps) expected[re] = all[d].real(), expected[im] = all[d].imag();
                }
            }
            return sum;
        };
        dot(own, true);
        const long double step = 1e-6l;
        for (int i = 0; i < each; ++i) {
            auto moved = [&](long double by) {
                std::vector<long double> rows = own;
                rows[i] += by;
                return dot(rows, false);
            };
            differences[size_t(h) * each + i] = (moved(step) - moved(-step)) / (2 * step);
        }
    }
    const std::string name = std::to_string(channels) + " channels, " + std::to_string(modes) +
                             " modes, T = " + std::to_string(longest) + ", " +
                             std::to_string(directions) + " directions";
    compare_wide(name, spectra, expected, 1e-12);
    compare_wide(name + ", gradient", sums, differences, 1e-9);
}

void cases() {
    check(1, 1, 1, 1);
    check(2, 1, 7, 2);
    check(3, 2, 16, 1);
    check(1, 33, 5, 2);
    check(2, 5, 300, 1);
    check(1, 1, 2600, 2);
}

int main() { return prove("dplr spectrum", cases); }
