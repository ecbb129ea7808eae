// Spectra of kernels of states whose matrix is diagonal plus one of rank 1 (mod.rs), forward and
// backward, in f64. At the root e^{-iθ}, with s = sin θ/2, c = cos θ/2 and the rows r, a and b of
// channel h,
//     T_i = Σ_m (2is r_im - c r_{J+i,m}) / z_m,   z_m = c² b_m - 4s² - 2is c a_m,
//     g = c T_BP / (1 + c T_PP),   K̂_d = (T_CB,d - g T_CP,d) (c + is).
// rows (H, 2J + 2, M): r of J products, r_J.. of the same times the conjugate step, a and b; J is 2
// directions + 2, T in the order CB, CP, BP, PP; K̂ (H, 2 directions, F), real parts and then
// imaginary parts. Kept for the backward pass: rows. The gradient of a complex number is that of
// its real part plus i times that of its imaginary part.
//
// A thread sums over the modes at one frequency, whose rows lie in shared memory. In the backward
// pass it leaves the gradients of T there, and a lane then adds up those of one mode.

#include "cuda/device.cuh"

constexpr int DPLR_THREADS = 128;
constexpr int DPLR_WARPS = DPLR_THREADS / WARP;
constexpr int DPLR_SEGMENT = 1024; // frequencies of a block of the backward pass

/// A complex number of f64.
struct Complex64 {
    double re, im;
};

__device__ inline Complex64 operator+(Complex64 a, Complex64 b) {
    return {a.re + b.re, a.im + b.im};
}
__device__ inline Complex64 operator-(Complex64 a, Complex64 b) {
    return {a.re - b.re, a.im - b.im};
}
__device__ inline Complex64 operator*(Complex64 a, Complex64 b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Complex64 operator*(double a, Complex64 b) { return {a * b.re, a * b.im}; }
__device__ inline Complex64 conj(Complex64 a) { return {a.re, -a.im}; }
__device__ inline Complex64 inverse(Complex64 a) {
    return 1.0 / (a.re * a.re + a.im * a.im) * conj(a);
}

/// Half the angle of a root.
struct HalfAngle {
    double sine, cosine;

    __device__ HalfAngle(int bin, int longest) {
        sincospi((double)bin / longest, &sine, &cosine);
    }
    __device__ HalfAngle(double sine, double cosine) : sine(sine), cosine(cosine) {}
    __device__ Complex64 root() const { return {cosine, sine}; }
    /// Returns 1 / z of numbers a and b of a mode.
    __device__ Complex64 inverse_of(double a, double b) const {
        return inverse({cosine * cosine * b - 4.0 * sine * sine, -2.0 * sine * cosine * a});
    }
};

/// The sums T of one frequency, and what K̂ is made of.
template <int DIRECTIONS>
struct Sums {
    static constexpr int PRODUCTS = 2 * DIRECTIONS + 2;
    Complex64 all[PRODUCTS];
    HalfAngle at;

    /// Adds up over the modes; `rows` are those of one channel.
    __device__ Sums(const double* rows, int modes, HalfAngle at) : all{}, at(at) {
        const double *a = rows + 2 * PRODUCTS * modes, *b = a + modes;
        for (int m = 0; m < modes; ++m) {
            const Complex64 share = at.inverse_of(a[m], b[m]);
            UNROLL
            for (int i = 0; i < PRODUCTS; ++i)
                all[i] = all[i] + Complex64{-at.cosine * rows[(PRODUCTS + i) * modes + m],
                                            2.0 * at.sine * rows[i * modes + m]} *
                                      share;
        }
    }
    __device__ Complex64 input(int direction) const { return all[direction]; }
    __device__ Complex64 low(int direction) const { return all[DIRECTIONS + direction]; }
    /// Returns 1 / (1 + c T_PP).
    __device__ Complex64 rest() const {
        return inverse(Complex64{1.0, 0.0} + at.cosine * all[2 * DIRECTIONS + 1]);
    }
    /// Returns g.
    __device__ Complex64 factor() const { return at.cosine * all[2 * DIRECTIONS] * rest(); }

    /// Overwrites T by its gradient, for that of K̂ (2 directions) with `bins` between its rows.
    __device__ void differentiate(const double* gradient, size_t bins) {
        const Complex64 g = factor(), rest = this->rest();
        Complex64 of_factor{0.0, 0.0};
        UNROLL
        for (int d = 0; d < DIRECTIONS; ++d) {
            const Complex64 out{gradient[d * bins], gradient[(DIRECTIONS + d) * bins]};
            const Complex64 turned = out * conj(at.root());
            of_factor = of_factor - turned * conj(low(d));
            all[d] = turned;
            all[DIRECTIONS + d] = Complex64{0.0, 0.0} - turned * conj(g);
        }
        all[2 * DIRECTIONS] = at.cosine * of_factor * conj(rest);
        all[2 * DIRECTIONS + 1] = -at.cosine * of_factor * conj(g * rest);
    }
};

/// Loads the rows of channel `blockIdx.y`.
__device__ inline void load_rows(double* shared, const double* rows, int count) {
    rows += (size_t)blockIdx.y * count;
    for (int i = threadIdx.x; i < count; i += DPLR_THREADS) shared[i] = rows[i];
    __syncthreads();
}

template <int DIRECTIONS>
__device__ void dplr_forward(double* shared, const double* rows, double* spectra, int modes,
                             int bins, int longest) {
    load_rows(shared, rows, (2 * Sums<DIRECTIONS>::PRODUCTS + 2) * modes);
    const int bin = blockIdx.x * DPLR_THREADS + threadIdx.x;
    if (bin >= bins) return;
    const Sums<DIRECTIONS> sums(shared, modes, HalfAngle(bin, longest));
    const Complex64 g = sums.factor();
    spectra += (size_t)blockIdx.y * 2 * DIRECTIONS * bins + bin;
    UNROLL
    for (int d = 0; d < DIRECTIONS; ++d) {
        const Complex64 out = (sums.input(d) - g * sums.low(d)) * sums.at.root();
        spectra[(size_t)d * bins] = out.re;
        spectra[(size_t)(DIRECTIONS + d) * bins] = out.im;
    }
}

template <int DIRECTIONS>
__device__ void dplr_backward(double* shared, const double* rows, const double* gradient,
                              double* part, int modes, int bins, int longest) {
    constexpr int PRODUCTS = Sums<DIRECTIONS>::PRODUCTS, ROWS_OF = 2 * PRODUCTS + 2;
    const int count = ROWS_OF * modes, mode = blockIdx.z * WARP + lane();
    load_rows(shared, rows, count);
    gradient += (size_t)blockIdx.y * 2 * DIRECTIONS * bins;
    // Gradients of T (2J, 128), s and c (128) of the frequencies at hand.
    double* const of_sums = shared + count;
    double total[ROWS_OF] = {};
    const int end = min(bins, (int)(blockIdx.x + 1) * DPLR_SEGMENT);
    for (int first = blockIdx.x * DPLR_SEGMENT; first < end; first += DPLR_THREADS) {
        const int bin = first + threadIdx.x;
        if (bin < end) {
            Sums<DIRECTIONS> sums(shared, modes, HalfAngle(bin, longest));
            sums.differentiate(gradient + bin, bins);
            double* const own = of_sums + threadIdx.x;
            UNROLL
            for (int i = 0; i < PRODUCTS; ++i) {
                own[2 * i * DPLR_THREADS] = sums.all[i].re;
                own[(2 * i + 1) * DPLR_THREADS] = sums.all[i].im;
            }
            own[2 * PRODUCTS * DPLR_THREADS] = sums.at.sine;
            own[(2 * PRODUCTS + 1) * DPLR_THREADS] = sums.at.cosine;
        }
        __syncthreads();
        const int last = min(end - first, (int)(warp() + 1) * (int)WARP);
        for (int at = warp() * WARP; mode < modes && at < last; ++at) {
            const double* const of = of_sums + at;
            const HalfAngle angle(of[2 * PRODUCTS * DPLR_THREADS],
                                  of[(2 * PRODUCTS + 1) * DPLR_THREADS]);
            const double twice = 2.0 * angle.sine, cosine = angle.cosine;
            const double* const own = shared + mode;
            const Complex64 share =
                angle.inverse_of(own[2 * PRODUCTS * modes], own[(2 * PRODUCTS + 1) * modes]);
            Complex64 of_share{0.0, 0.0};
            UNROLL
            for (int i = 0; i < PRODUCTS; ++i) {
                const Complex64 of_sum{of[2 * i * DPLR_THREADS], of[(2 * i + 1) * DPLR_THREADS]};
                const Complex64 of_term = of_sum * conj(share);
                total[i] += twice * of_term.im;
                total[PRODUCTS + i] -= cosine * of_term.re;
                of_share = of_share +
                           of_sum * Complex64{-cosine * own[(PRODUCTS + i) * modes],
                                              -twice * own[i * modes]};
            }
            // Of z, whose real part has c² b, and whose imaginary part -2 s c a.
            const Complex64 of_z = Complex64{0.0, 0.0} - of_share * conj(share * share);
            total[2 * PRODUCTS] -= twice * cosine * of_z.im;
            total[2 * PRODUCTS + 1] += cosine * cosine * of_z.re;
        }
        __syncthreads();
    }
    UNROLL
    for (int row = 0; row < ROWS_OF; ++row) of_sums[row * DPLR_THREADS + threadIdx.x] = total[row];
    __syncthreads();
    part += ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * count;
    for (int row = warp(); mode < modes && row < ROWS_OF; row += DPLR_WARPS) {
        double sum = 0.0;
        for (int w = 0; w < DPLR_WARPS; ++w) sum += of_sums[row * DPLR_THREADS + w * WARP + lane()];
        part[(size_t)row * modes + mode] = sum;
    }
}

/// Writes K̂ (H, 2 directions, F).
///
/// Grid (⌈F / 128⌉, H), block 128, 8 (2J + 2) M bytes of shared memory.
extern "C" __global__ void __launch_bounds__(DPLR_THREADS)
    dplr_spectrum_forward(const double* rows, double* spectra, int modes, int bins, int longest,
                          int directions) {
    DYNAMIC_SHARED(double, shared);
    if (directions == 1)
        dplr_forward<1>(shared, rows, spectra, modes, bins, longest);
    else
        dplr_forward<2>(shared, rows, spectra, modes, bins, longest);
}

/// Writes parts (⌈F / 1024⌉, H, 2J + 2, M) of the gradient of rows, each the sum over a segment of
/// frequencies.
///
/// Grid (⌈F / 1024⌉, H, ⌈M / 32⌉), block 128, 8 (2J + 2) (M + 128) bytes of shared memory.
extern "C" __global__ void __launch_bounds__(DPLR_THREADS)
    dplr_spectrum_backward(const double* rows, const double* gradient, double* part, int modes,
                           int bins, int longest, int directions) {
    DYNAMIC_SHARED(double, shared);
    if (directions == 1)
        dplr_backward<1>(shared, rows, gradient, part, modes, bins, longest);
    else
        dplr_backward<2>(shared, rows, gradient, part, modes, bins, longest);
}
