// Long convolutions (mod.rs) by fast Fourier transforms in shared memory, forward and backward:
//     y = IDFT(DFT(x) ⊙ H),   dx = IDFT(DFT(dy) ⊙ conj H),   dk = taps of IDFT(Σ_b DFT(dy) ⊙ conj DFT(x))
// x, y (B, L, D), kernel k (D, K), H (D, n/2 + 1) the transform of its n taps of a turn, n = 2M a
// power of 2 of at least L + min(K, L) (L + min(K/2, L) with bidirectional lags), 4 to 8,192.
// Transform, product and inverse are one launch; one block computes one channel of one example.
//
// A real sequence of n numbers is transformed as z_m = x_{2m} + i x_{2m+1} of M complex numbers,
// Z = DFT_M(z). With w = e^{-2πi/n}, E the transform of the even and O that of the odd positions:
//     E_k = (Z_k + conj Z_{M-k}) / 2,  O_k = (Z_k - conj Z_{M-k}) / 2i,  k = 0 ... M/2
//     X_k = E_k + wᵏ O_k,  X_{k+M} = E_k - wᵏ O_k = conj X_{M-k}
// No number of one channel or example enters the transform of another.
//
// Transforms are Stockham's, of radix 4 with a last pass of radix 2 for odd powers. A thread holds
// its four numbers between two barriers, so one buffer of M complex numbers is enough (32 KiB for
// 4,096). `roots` (n) are e^{-2πi j / n}, made once for every n by fft_roots.

#include "cuda/device.cuh"

constexpr int FFT_THREADS = 1024; // most threads of a block: M / 4, at least 32
constexpr int FFT_PAIRS = 3;      // most pairs (k, M - k) of a thread

__device__ inline Complex times_i(Complex a) { return {-a.im, a.re}; }

/// Makes the roots, in f64. Grid (⌈n / 256⌉), block 256.
extern "C" __global__ void __launch_bounds__(256) fft_roots(Complex* roots, int n) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n) return;
    double sine, cosine;
    sincospi(-2.0 * j / n, &sine, &cosine);
    roots[j] = {(float)cosine, (float)sine};
}

/// Transforms `data` of `size` = M complex numbers in shared memory, without a factor. All threads
/// call it, after a barrier; it ends with one.
template <bool INVERSE>
__device__ void transform(Complex* data, int size, const Complex* roots) {
    const int n = 2 * size, i = threadIdx.x;
    auto root = [&](int j) { return INVERSE ? conj(roots[j]) : roots[j]; };
    int done = 1; // length of the transforms that are complete
    for (; 4 * done <= size; done *= 4) {
        const bool active = i < size / 4;
        const int k = i % done;
        Complex v[4];
        if (active) {
            for (int r = 0; r < 4; ++r) {
                v[r] = data[i + r * (size / 4)];
                if (r > 0) v[r] = v[r] * root(k * r * (n / (4 * done)));
            }
            const Complex a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3];
            const Complex d = INVERSE ? times_i(v[1] - v[3]) : times_i(v[3] - v[1]);
            v[0] = a + c;
            v[1] = b + d;
            v[2] = a - c;
            v[3] = b - d;
        }
        __syncthreads();
        if (active)
            for (int r = 0; r < 4; ++r) data[(i - k) * 4 + k + r * done] = v[r];
        __syncthreads();
    }
    if (done < size) {
        for (int k = i; k < done; k += blockDim.x) {
            const Complex a = data[k], b = data[k + done] * root(2 * k);
            data[k] = a + b;
            data[k + done] = a - b;
        }
        __syncthreads();
    }
}

/// X_k and X_{k+M} of a real sequence.
struct Pair {
    Complex low, high;
};

__device__ inline Pair spectrum_pair(const Complex* data, int k, int size, const Complex* roots) {
    const Complex z = data[k], mirror = conj(data[(size - k) % size]);
    const Complex even = 0.5f * (z + mirror);
    const Complex odd = roots[k] * (-0.5f * times_i(z - mirror));
    return {even + odd, even - odd};
}

/// Writes Z_k and Z_{M-k} of a real sequence, times `factor`.
__device__ inline void store_pair(Complex* data, int k, int size, const Complex* roots, Pair x,
                                  float factor) {
    const Complex even = 0.5f * factor * (x.low + x.high);
    const Complex odd = times_i(conj(roots[k]) * (0.5f * factor * (x.low - x.high)));
    data[k] = even + odd;
    if (k > 0 && 2 * k < size) data[size - k] = conj(even - odd);
}

/// Loads channel `blockIdx.x` of an example, with zeros up to n.
__device__ inline void load_sequence(Complex* data, const float* x, int example, int length,
                                     int width, int size) {
    x += (size_t)example * length * width + blockIdx.x;
    for (int m = threadIdx.x; m < size; m += blockDim.x) {
        const float even = 2 * m < length ? x[(size_t)(2 * m) * width] : 0.0f;
        const float odd = 2 * m + 1 < length ? x[(size_t)(2 * m + 1) * width] : 0.0f;
        data[m] = {even, odd};
    }
    __syncthreads();
}

/// Returns the tap at position j of a turn of n, or -1. Causal taps look back by j. Of
/// bidirectional ones, the first half does, and tap K/2 + i looks ahead by i + 1.
__device__ inline int tap_at(int j, int n, int taps, int length, int bidirectional) {
    const int back = bidirectional ? taps / 2 : taps;
    if (j < min(back, length)) return j;
    const int ahead = n - 1 - j;
    return bidirectional && ahead < min(back, length - 1) ? back + ahead : -1;
}

/// Computes H (D, M + 1) of the taps. Grid (D), block max(32, M / 4), 8 M bytes of shared memory.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv_spectrum(const float* kernel, const Complex* roots, Complex* spectrum, int taps,
                      int length, int bidirectional, int size) {
    DYNAMIC_SHARED(Complex, data);
    kernel += (size_t)blockIdx.x * taps;
    spectrum += (size_t)blockIdx.x * (size + 1);
    for (int m = threadIdx.x; m < size; m += blockDim.x) {
        const int even = tap_at(2 * m, 2 * size, taps, length, bidirectional);
        const int odd = tap_at(2 * m + 1, 2 * size, taps, length, bidirectional);
        data[m] = {even < 0 ? 0.0f : kernel[even], odd < 0 ? 0.0f : kernel[odd]};
    }
    __syncthreads();
    transform<false>(data, size, roots);
    for (int k = threadIdx.x; 2 * k <= size; k += blockDim.x) {
        const Pair x = spectrum_pair(data, k, size, roots);
        spectrum[k] = x.low;
        if (2 * k < size) spectrum[size - k] = conj(x.high);
    }
}

/// Computes y of x, or with `adjoint` dx of dy. Grid (D, B), block max(32, M / 4), 8 M bytes of
/// shared memory.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv(const float* x, const Complex* spectrum, const Complex* roots, float* y, int length,
             int width, int size, int adjoint) {
    DYNAMIC_SHARED(Complex, data);
    spectrum += (size_t)blockIdx.x * (size + 1);
    load_sequence(data, x, blockIdx.y, length, width, size);
    transform<false>(data, size, roots);
    for (int k = threadIdx.x; 2 * k <= size; k += blockDim.x) {
        Pair pair = spectrum_pair(data, k, size, roots);
        const Complex low = spectrum[k], high = conj(spectrum[size - k]);
        pair.low = pair.low * (adjoint ? conj(low) : low);
        pair.high = pair.high * (adjoint ? conj(high) : high);
        store_pair(data, k, size, roots, pair, 1.0f / size);
    }
    __syncthreads();
    transform<true>(data, size, roots);
    y += (size_t)blockIdx.y * length * width + blockIdx.x;
    for (int m = threadIdx.x; 2 * m < length; m += blockDim.x) {
        y[(size_t)(2 * m) * width] = data[m].re;
        if (2 * m + 1 < length) y[(size_t)(2 * m + 1) * width] = data[m].im;
    }
}

/// Writes the parts (⌈B / group⌉, D, K) of dk, each the sum over a group of examples, for sum_parts.
///
/// Grid (D, ⌈B / group⌉), block max(32, M / 4), 8 M bytes of shared memory. Spectra of x and their
/// sums stay in registers.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv_taps(const float* x, const float* dy, const Complex* roots, float* part, int batch,
                  int group, int length, int width, int taps, int bidirectional, int size) {
    DYNAMIC_SHARED(Complex, data);
    Pair sums[FFT_PAIRS] = {};
    const int end = min(batch, (int)(blockIdx.y + 1) * group);
    for (int example = blockIdx.y * group; example < end; ++example) {
        Pair spectra[FFT_PAIRS];
        load_sequence(data, x, example, length, width, size);
        transform<false>(data, size, roots);
        for (int i = 0; i < FFT_PAIRS; ++i) {
            const int k = threadIdx.x + i * blockDim.x;
            if (2 * k <= size) spectra[i] = spectrum_pair(data, k, size, roots);
        }
        __syncthreads();
        load_sequence(data, dy, example, length, width, size);
        transform<false>(data, size, roots);
        for (int i = 0; i < FFT_PAIRS; ++i) {
            const int k = threadIdx.x + i * blockDim.x;
            if (2 * k > size) continue;
            const Pair other = spectrum_pair(data, k, size, roots);
            sums[i].low = sums[i].low + other.low * conj(spectra[i].low);
            sums[i].high = sums[i].high + other.high * conj(spectra[i].high);
        }
        __syncthreads();
    }
    for (int i = 0; i < FFT_PAIRS; ++i) {
        const int k = threadIdx.x + i * blockDim.x;
        if (2 * k <= size) store_pair(data, k, size, roots, sums[i], 1.0f / size);
    }
    __syncthreads();
    transform<true>(data, size, roots);
    part += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * taps;
    // Taps beyond the sequence meet no position.
    for (int tap = threadIdx.x; tap < taps; tap += blockDim.x) {
        const int half = bidirectional ? taps / 2 : taps;
        const int reach = tap < half ? min(half, length) : min(half, length - 1);
        const int lag = tap < half ? tap : tap - half;
        const int j = tap < half ? lag : 2 * size - 1 - lag;
        const Complex number = lag < reach ? data[j / 2] : Complex{};
        part[tap] = j % 2 == 0 ? number.re : number.im;
    }
}
