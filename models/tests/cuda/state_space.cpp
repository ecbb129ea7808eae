// The kernel of a state space beside its formula, with powers by products in f64.

#include <complex>

#include "check.h"
#include "cuda/sum_parts.cu"
#include "ops/state_space/cuda.cu"

void check(bool complex, int width, int modes, int length, bool zeros) {
    using Number = std::complex<double>;
    const size_t all = size_t(width) * modes;
    Floats a_re(all), a_im(all), c_re = random(all), c_im = random(all);
    for (size_t i = 0; i < all; ++i) {
        // |a| up to 1, as of modes that forget within 3 and within many thousand positions.
        const double magnitude = std::exp(-std::exp(-6 + 6 * uniform()));
        const double angle = complex ? 3.1 * uniform() : 0.0;
        a_re[i] = zeros ? 0.0 : magnitude * std::cos(angle);
        a_im[i] = zeros ? 0.0 : magnitude * std::sin(angle);
    }
    const Floats dkernel = random(size_t(width) * length);
    const float* a_imag = complex ? a_im.data() : nullptr;
    const float* c_imag = complex ? c_im.data() : nullptr;
    const unsigned spans = blocks(length, STATE_SPAN);
    Floats kernel = unwritten(size_t(width) * length), part = unwritten(spans * 4 * all);
    Floats sums = unwritten(4 * all);
    const dim3 grid{spans, unsigned(width)}, block{STATE_THREADS};
    launch(state_space_kernel_forward, grid, block, 0, a_re.data(), a_imag, c_re.data(), c_imag,
           kernel.data(), modes, length);
    launch(state_space_kernel_backward, grid, block, 0, a_re.data(), a_imag, c_re.data(), c_imag,
           dkernel.data(), part.data(), modes, length);
    launch(sum_parts, dim3{blocks(4 * all, 128)}, dim3{128}, 0, part.data(), sums.data(),
           int(spans), int(4 * all));
    Doubles expected(kernel.size()), gradients(4 * all);
    for (int d = 0; d < width; ++d)
        for (int n = 0; n < modes; ++n) {
            const size_t at = size_t(d) * modes + n;
            const Number a(a_re[at], complex ? a_im[at] : 0), c(c_re[at], complex ? c_im[at] : 0);
            Number power = 1, before = 0, dc, da;
            for (int l = 0; l < length; ++l) {
                const double g = dkernel[size_t(d) * length + l];
                expected[size_t(d) * length + l] += (c * power).real();
                dc += g * std::conj(power);
                da += g * std::conj(c * double(l) * before);
                before = power;
                power *= a;
            }
            gradients[at] = da.real();
            gradients[all + at] = da.imag();
            gradients[2 * all + at] = dc.real();
            gradients[3 * all + at] = dc.imag();
        }
    const std::string name = std::string(complex ? "complex " : "real ") + std::to_string(modes) +
                             " modes, " + std::to_string(length);
    compare(name + " kernel", kernel, expected, 1e-6);
    for (int i = 0; i < 4; ++i)
        if (complex || i % 2 == 0) {
            const char* names[] = {" da_re", " da_im", " dc_re", " dc_im"};
            compare(name + names[i], {sums.begin() + i * all, sums.begin() + (i + 1) * all},
                    {gradients.begin() + i * all, gradients.begin() + (i + 1) * all}, 2e-5);
        }
}

void cases() {
    for (bool complex : {true, false})
        for (auto [modes, length] : {std::pair{1, 1}, {3, 17}, {9, 1023}, {2, 1025}, {5, 2048}})
            check(complex, 2, modes, length, false);
    check(true, 3, 2, 40, true);
    check(true, 1, 4, 16384, false);
}

int main() { return prove("state space", cases); }
