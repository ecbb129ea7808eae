// The kernel of diagonal state spaces with constant coefficients (mod.rs), forward and backward:
//     K_dl = Re Σ_n c_dn a_dnˡ,   l = 0 ... L - 1,   a, c (D, N) complex, K (D, L)
//     dc = conj Σ_l dK_l aˡ,      da = conj(c Σ_l dK_l l aˡ⁻¹)
// O(D N L) time, and no memory beside K. fft_conv applies K to a sequence. Real modes have null
// for the imaginary parts of a and c.
//
// Powers do not come from products of L factors: log a = log|a| + 2πi turns is taken in f64, l turns
// is reduced to a part of a turn in f64, and exp, sin and cos are f32. An error of l turns is thus
// 1e-16 l, and that of aˡ two roundings for any l.

#include "cuda/device.cuh"

constexpr int STATE_THREADS = 256;
constexpr int STATE_SPAN = 1024; // positions of a block: 32 times 32
constexpr int STATE_BATCH = 4;   // modes whose powers a block tabulates at a time

/// The logarithm of a coefficient: log|a|, and its angle as a part of a turn.
struct Logarithm {
    double magnitude, turns;
};

__device__ inline Logarithm logarithm(float re, float im) {
    const double pi = 3.14159265358979323846;
    const double square = (double)re * re + (double)im * im;
    return {0.5 * log(square), atan2((double)im, (double)re) / (2.0 * pi)};
}

/// Returns a to the power l.
__device__ inline Complex power(Logarithm a, int l) {
    if (l == 0) return {1.0f, 0.0f}; // for a = 0, too
    const double turns = a.turns * l;
    const float part = (float)(turns - rint(turns));
    float sine, cosine;
    sincospif(2.0f * part, &sine, &cosine);
    const float magnitude = expf((float)(a.magnitude * l));
    return {magnitude * cosine, magnitude * sine};
}

/// Grid (⌈L / 1024⌉, D), block 256. Position 32 i + j of a block is the product of the powers 32 i,
/// with the block's first position added, and j, both tabulated: one complex product a mode.
extern "C" __global__ void __launch_bounds__(STATE_THREADS)
    state_space_kernel_forward(const float* a_re, const float* a_im, const float* c_re,
                               const float* c_im, float* kernel, int modes, int length) {
    SHARED(Complex, high, STATE_BATCH * WARP);
    SHARED(Complex, low, STATE_BATCH * WARP);
    constexpr int EACH = STATE_SPAN / STATE_THREADS;
    const int base = blockIdx.x * STATE_SPAN;
    float sums[EACH] = {};
    for (int first = 0; first < modes; first += STATE_BATCH) {
        // Threads tabulate 4 modes times 64 powers.
        const int mode = threadIdx.x / (2 * WARP), entry = threadIdx.x % (2 * WARP);
        if (first + mode < modes) {
            const size_t at = (size_t)blockIdx.y * modes + first + mode;
            const Logarithm a = logarithm(a_re[at], a_im ? a_im[at] : 0.0f);
            if (entry < (int)WARP)
                high[mode * WARP + entry] = power(a, base + WARP * entry);
            else
                low[mode * WARP + entry - WARP] =
                    Complex{c_re[at], c_im ? c_im[at] : 0.0f} * power(a, entry - WARP);
        }
        __syncthreads();
        for (int m = 0; m < min(STATE_BATCH, modes - first); ++m) {
            const Complex right = low[m * WARP + lane()];
            for (int i = 0; i < EACH; ++i) {
                const Complex left = high[m * WARP + warp() + i * STATE_THREADS / WARP];
                sums[i] += left.re * right.re - left.im * right.im;
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i) {
        const int l = base + i * STATE_THREADS + threadIdx.x;
        if (l < length) kernel[(size_t)blockIdx.y * length + l] = sums[i];
    }
}

/// Writes parts of the gradients, part (⌈L / 1024⌉, 4, D, N), for sum_parts: those of a_re, a_im,
/// c_re, c_im. Real modes have no use for the second and fourth.
///
/// Grid (⌈L / 1024⌉, D), block 256. A warp computes every eighth mode. Its lanes evaluate the
/// polynomials Σ_j dK_j aʲ and Σ_j dK_{j+1} (j + 1) aʲ over 32 positions each by Horner's rule,
/// times the power of their first position.
extern "C" __global__ void __launch_bounds__(STATE_THREADS)
    state_space_kernel_backward(const float* a_re, const float* a_im, const float* c_re,
                                const float* c_im, const float* dkernel, float* part, int modes,
                                int length) {
    // Rows of 33, so that the lanes' positions lie in different banks.
    SHARED(float, gradient, WARP*(WARP + 1) + 1);
    const int base = blockIdx.x * STATE_SPAN;
    for (int i = threadIdx.x; i <= STATE_SPAN; i += STATE_THREADS) {
        const int l = base + i;
        gradient[i / WARP * (WARP + 1) + i % WARP] =
            l < length ? dkernel[(size_t)blockIdx.y * length + l] : 0.0f;
    }
    __syncthreads();
    const float* mine = gradient + lane() * (WARP + 1);
    const int start = base + lane() * WARP;
    const size_t plane = (size_t)gridDim.y * modes;
    for (int mode = warp(); mode < modes; mode += STATE_THREADS / WARP) {
        const size_t at = (size_t)blockIdx.y * modes + mode;
        const Complex a = {a_re[at], a_im ? a_im[at] : 0.0f};
        const Complex c = {c_re[at], c_im ? c_im[at] : 0.0f};
        Complex value{}, slope{};
        float next = lane() + 1 < WARP ? mine[WARP + 1] : gradient[WARP * (WARP + 1)];
        for (int j = WARP - 1; j >= 0; --j) {
            value = value * a + Complex{mine[j], 0.0f};
            slope = slope * a + Complex{(start + j + 1) * next, 0.0f};
            next = mine[j];
        }
        const Complex first = power(logarithm(a.re, a.im), start);
        value = value * first;
        slope = slope * first * c;
        const float sums[4] = {warp_sum(slope.re), -warp_sum(slope.im), warp_sum(value.re),
                               -warp_sum(value.im)};
        if (lane() == 0)
            for (int i = 0; i < 4; ++i) part[(blockIdx.x * 4 + i) * plane + at] = sums[i];
    }
}
