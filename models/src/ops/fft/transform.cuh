// Transforms of complex numbers in shared memory, and the spectra of real sequences, for the long
// convolutions of cuda.cu and long.cu.
//
// A real sequence of n = 2M numbers is transformed as z_m = x_{2m} + i x_{2m+1} of M complex numbers,
// Z = DFT_M(z). With w = e^{-2πi/n}, E the transform of the even and O that of the odd positions:
//     E_k = (Z_k + conj Z_{M-k}) / 2,  O_k = (Z_k - conj Z_{M-k}) / 2i,  k = 0 ... M - 1
//     X_k = E_k + wᵏ O_k,  X_{k+M} = E_k - wᵏ O_k = conj X_{M-k}
// No number of one channel or example enters the transform of another.
//
// Transforms are Stockham's, of radix 4 with a last pass of radix 2 for odd powers. A thread holds
// its four numbers between two barriers, so one buffer is enough. `roots` (n) are e^{-2πi j / n}.

#pragma once

#include "cuda/device.cuh"

__device__ inline Complex times_i(Complex a) { return {-a.im, a.re}; }

/// Transforms `count` sequences of `size` numbers in shared memory, one after the other, without a
/// factor. All threads call it, at least count size / 4 of them, after a barrier; it ends with one.
/// `n` is a multiple of `size`.
template <bool INVERSE>
__device__ void transform(Complex* data, int size, int count, const Complex* roots, int n) {
    auto root = [&](int j) { return INVERSE ? conj(roots[j]) : roots[j]; };
    const int quarter = size / 4, i = threadIdx.x;
    // Without divisions for one sequence.
    auto sequence = [&](int j, int each) { return count == 1 ? 0 : j / each; };
    int done = 1; // length of the transforms that are complete
    for (; 4 * done <= size; done *= 4) {
        const bool active = i < count * quarter;
        const int of = active ? sequence(i, quarter) : 0;
        Complex* const own = data + of * size;
        const int butterfly = i - of * quarter, k = butterfly % done;
        Complex v[4];
        if (active) {
            for (int r = 0; r < 4; ++r) {
                v[r] = own[butterfly + r * quarter];
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
            for (int r = 0; r < 4; ++r) own[(butterfly - k) * 4 + k + r * done] = v[r];
        __syncthreads();
    }
    if (done < size) {
        for (int j = i; j < count * done; j += blockDim.x) {
            const int of = sequence(j, done), k = j - of * done;
            Complex* const own = data + of * size;
            const Complex a = own[k], b = own[k + done] * root(k * (n / size));
            own[k] = a + b;
            own[k + done] = a - b;
        }
        __syncthreads();
    }
}

/// X_k and X_{k+M} of a real sequence.
struct Pair {
    Complex low, high;
};

/// Returns the pair of Z_k and Z_{M-k}. `root` is wᵏ.
__device__ inline Pair spectrum_pair(Complex z, Complex mirror, Complex root) {
    const Complex even = 0.5f * (z + conj(mirror));
    const Complex odd = root * (-0.5f * times_i(z - conj(mirror)));
    return {even + odd, even - odd};
}

/// Returns Z_k and Z_{M-k}, as `low` and `high`, of a pair, times `factor`.
__device__ inline Pair packed_pair(Pair x, Complex root, float factor) {
    const Complex even = 0.5f * factor * (x.low + x.high);
    const Complex odd = times_i(conj(root) * (0.5f * factor * (x.low - x.high)));
    return {even + odd, conj(even - odd)};
}

/// Returns the product of a pair and H_k, H_{k+M} = conj H_{M-k}, or their conjugates.
__device__ inline Pair product_pair(Pair x, const Complex* spectrum, int k, int size,
                                    bool conjugate) {
    const Complex low = spectrum[k], high = conj(spectrum[size - k]);
    return {x.low * (conjugate ? conj(low) : low), x.high * (conjugate ? conj(high) : high)};
}

/// Adds a conj(b) to a sum of pairs.
__device__ inline void add_correlation(Pair& sum, Pair a, Pair b) {
    sum.low = sum.low + a.low * conj(b.low);
    sum.high = sum.high + a.high * conj(b.high);
}

/// Returns numbers 2m and 2m + 1 of a channel (L), zeros beyond L.
__device__ inline Complex load_positions(const float* x, int m, int length) {
    return {2 * m < length ? x[2 * m] : 0.0f, 2 * m + 1 < length ? x[2 * m + 1] : 0.0f};
}

/// Writes numbers 2m and 2m + 1 of a channel (L), those below L.
__device__ inline void store_positions(float* y, int m, int length, Complex value) {
    if (2 * m < length) y[2 * m] = value.re;
    if (2 * m + 1 < length) y[2 * m + 1] = value.im;
}

/// The taps of a kernel (K) on a turn of n positions. Causal taps look back by their number. Of
/// bidirectional ones, the first half does, and tap K/2 + i looks ahead by i + 1.
struct Turn {
    int n, taps, length, bidirectional;

    __device__ int half() const { return bidirectional ? taps / 2 : taps; }

    /// Returns the number of the tap at position j, or -1.
    __device__ int tap(int j) const {
        if (j < min(half(), length)) return j;
        const int ahead = n - 1 - j;
        return bidirectional && ahead < min(half(), length - 1) ? half() + ahead : -1;
    }

    /// Returns the tap at position j, or 0.
    __device__ float value(const float* kernel, int j) const {
        const int number = tap(j);
        return number < 0 ? 0.0f : kernel[number];
    }

    /// Returns the position of a tap, or -1 for one that meets no position of a sequence.
    __device__ int position(int tap) const {
        if (tap < half()) return tap < length ? tap : -1;
        const int ahead = tap - half();
        return ahead < length - 1 ? n - 1 - ahead : -1;
    }
};
