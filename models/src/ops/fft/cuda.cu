// Long convolutions (mod.rs) by fast Fourier transforms in shared memory, forward and backward:
//     y = IDFT(DFT(x) ⊙ H),   dx = IDFT(DFT(dy) ⊙ conj H),   dk = taps of IDFT(Σ_b DFT(dy) ⊙ conj DFT(x))
// x, y (B, D, L), kernel k (D, K), H (D, n/2 + 1) the transform of its n taps of a turn, n = 2M a
// power of 2 of at least L + min(K, L) (L + min(K/2, L) with bidirectional lags), 4 to 8,192. Longer
// ones are in long.cu, and transforms in transform.cuh.
//
// Transform, product and inverse are one launch; one block computes one channel of one example in a
// buffer of M complex numbers (32 KiB for 4,096).

#include "ops/fft/transform.cuh"

constexpr int FFT_THREADS = 1024; // most threads of a block: M / 4, at least 32
constexpr int FFT_PAIRS = 3;      // most pairs (k, M - k) of a thread

/// Makes the roots, in f64. Grid (⌈n / 256⌉), block 256.
extern "C" __global__ void __launch_bounds__(256) fft_roots(Complex* roots, int n) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n) return;
    double sine, cosine;
    sincospi(-2.0 * j / n, &sine, &cosine);
    roots[j] = {(float)cosine, (float)sine};
}

__device__ inline Pair load_pair(const Complex* data, int k, int size, const Complex* roots) {
    return spectrum_pair(data[k], data[(size - k) % size], roots[k]);
}

__device__ inline void store_pair(Complex* data, int k, int size, const Complex* roots, Pair x) {
    const Pair z = packed_pair(x, roots[k], 1.0f / size);
    data[k] = z.low;
    if (k > 0 && 2 * k < size) data[size - k] = z.high;
}

/// Loads channel `blockIdx.x` of an example and transforms it.
__device__ inline void load_spectrum(Complex* data, const float* x, int example, int length,
                                     int size, const Complex* roots) {
    x += ((size_t)example * gridDim.x + blockIdx.x) * length;
    for (int m = threadIdx.x; m < size; m += blockDim.x) data[m] = load_positions(x, m, length);
    __syncthreads();
    transform<false>(data, size, 1, roots, 2 * size);
}

/// Computes H (D, M + 1) of the taps. Grid (D), block max(32, M / 4), 8 M bytes of shared memory.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv_spectrum(const float* kernel, const Complex* roots, Complex* spectrum, int taps,
                      int length, int bidirectional, int size) {
    DYNAMIC_SHARED(Complex, data);
    kernel += (size_t)blockIdx.x * taps;
    spectrum += (size_t)blockIdx.x * (size + 1);
    const Turn turn{2 * size, taps, length, bidirectional};
    for (int m = threadIdx.x; m < size; m += blockDim.x)
        data[m] = {turn.value(kernel, 2 * m), turn.value(kernel, 2 * m + 1)};
    __syncthreads();
    transform<false>(data, size, 1, roots, 2 * size);
    for (int k = threadIdx.x; 2 * k <= size; k += blockDim.x) {
        const Pair x = load_pair(data, k, size, roots);
        spectrum[k] = x.low;
        if (2 * k < size) spectrum[size - k] = conj(x.high);
    }
}

/// Computes y of x, or with `adjoint` dx of dy. Grid (D, B), block max(32, M / 4), 8 M bytes of
/// shared memory.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv(const float* x, const Complex* spectrum, const Complex* roots, float* y, int length,
             int size, int adjoint) {
    DYNAMIC_SHARED(Complex, data);
    spectrum += (size_t)blockIdx.x * (size + 1);
    load_spectrum(data, x, blockIdx.y, length, size, roots);
    for (int k = threadIdx.x; 2 * k <= size; k += blockDim.x) {
        const Pair pair = load_pair(data, k, size, roots);
        store_pair(data, k, size, roots, product_pair(pair, spectrum, k, size, adjoint != 0));
    }
    __syncthreads();
    transform<true>(data, size, 1, roots, 2 * size);
    y += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * length;
    for (int m = threadIdx.x; 2 * m < length; m += blockDim.x)
        store_positions(y, m, length, data[m]);
}

/// Writes the parts (⌈B / group⌉, D, K) of dk, each the sum over a group of examples, for sum_parts.
///
/// Grid (D, ⌈B / group⌉), block max(32, M / 4), 8 M bytes of shared memory. Spectra of x and their
/// sums stay in registers.
extern "C" __global__ void __launch_bounds__(FFT_THREADS)
    fft_conv_taps(const float* x, const float* dy, const Complex* roots, float* part, int batch,
                  int group, int length, int taps, int bidirectional, int size) {
    DYNAMIC_SHARED(Complex, data);
    Pair sums[FFT_PAIRS] = {};
    const int end = min(batch, (int)(blockIdx.y + 1) * group);
    for (int example = blockIdx.y * group; example < end; ++example) {
        Pair spectra[FFT_PAIRS];
        load_spectrum(data, x, example, length, size, roots);
        for (int i = 0; i < FFT_PAIRS; ++i) {
            const int k = threadIdx.x + i * blockDim.x;
            if (2 * k <= size) spectra[i] = load_pair(data, k, size, roots);
        }
        __syncthreads();
        load_spectrum(data, dy, example, length, size, roots);
        for (int i = 0; i < FFT_PAIRS; ++i) {
            const int k = threadIdx.x + i * blockDim.x;
            if (2 * k <= size) add_correlation(sums[i], load_pair(data, k, size, roots), spectra[i]);
        }
        __syncthreads();
    }
    for (int i = 0; i < FFT_PAIRS; ++i) {
        const int k = threadIdx.x + i * blockDim.x;
        if (2 * k <= size) store_pair(data, k, size, roots, sums[i]);
    }
    __syncthreads();
    transform<true>(data, size, 1, roots, 2 * size);
    const Turn turn{2 * size, taps, length, bidirectional};
    part += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * taps;
    for (int tap = threadIdx.x; tap < taps; tap += blockDim.x) {
        const int j = turn.position(tap);
        part[tap] = j < 0 ? 0.0f : j % 2 == 0 ? data[j / 2].re : data[j / 2].im;
    }
}
