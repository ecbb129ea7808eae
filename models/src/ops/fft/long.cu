// Long convolutions as in cuda.cu, beyond what fits into shared memory: M up to 65,536, n up to
// 131,072, by two passes over a transform. M = R C with rows R and columns C, powers of 2 from 2 to
// 256, m = c + C r and k = p + R q:
//     T_pc = w_M^{c p} Σ_r w_R^{r p} z_{c + C r},   Z_{p + R q} = Σ_c w_C^{c q} T_pc
// T (.., D, R, C) is scratch memory. A convolution is three launches: columns of x, then rows with
// product and inverse, in place, then columns of y. A block of the second computes rows p and R - p,
// whose numbers Z_k and Z_{M-k} are pairs of the real sequence's spectrum.

#include "ops/fft/transform.cuh"

constexpr int LONG_COLUMNS = 8;   // columns of a block
constexpr int LONG_THREADS = 512; // most threads of a block of columns
constexpr int LONG_PAIRS = 3;     // most pairs (k, M - k) of a thread in a block of rows

/// R, C and their number of roots, n.
struct Split {
    int rows, columns;

    __device__ int size() const { return rows * columns; }
    __device__ int n() const { return 2 * rows * columns; }
    /// Returns the number of w_M^{c p} among the roots.
    __device__ int twiddle(int c, int p) const { return 2 * c * p; }
};

/// Transforms the block's columns of `load(m)` and writes them to T.
template <class Load>
__device__ void columns_to_scratch(Complex* data, Complex* scratch, const Complex* roots,
                                   Split split, Load load) {
    const int first = blockIdx.x * LONG_COLUMNS, count = min(LONG_COLUMNS, split.columns - first);
    for (int i = threadIdx.x; i < count * split.rows; i += blockDim.x) {
        const int c = i % count, r = i / count;
        data[c * split.rows + r] = load(first + c + split.columns * r);
    }
    __syncthreads();
    transform<false>(data, split.rows, count, roots, split.n());
    for (int i = threadIdx.x; i < count * split.rows; i += blockDim.x) {
        const int c = i % count, p = i / count;
        scratch[p * split.columns + first + c] =
            data[c * split.rows + p] * roots[split.twiddle(first + c, p)];
    }
}

/// Reads the block's columns of T, transforms them back, and calls `store(m, value)`.
template <class Store>
__device__ void columns_from_scratch(Complex* data, const Complex* scratch, const Complex* roots,
                                     Split split, Store store) {
    const int first = blockIdx.x * LONG_COLUMNS, count = min(LONG_COLUMNS, split.columns - first);
    for (int i = threadIdx.x; i < count * split.rows; i += blockDim.x) {
        const int c = i % count, p = i / count;
        data[c * split.rows + p] = scratch[p * split.columns + first + c];
    }
    __syncthreads();
    transform<true>(data, split.rows, count, roots, split.n());
    for (int i = threadIdx.x; i < count * split.rows; i += blockDim.x) {
        const int c = i % count, r = i / count;
        store(first + c + split.columns * r, data[c * split.rows + r]);
    }
}

/// Rows p = blockIdx.x and R - p of T, or one row if both are the same.
struct RowPair {
    Split split;
    int p, count;

    __device__ explicit RowPair(Split split)
        : split(split), p(blockIdx.x), count(p > 0 && 2 * p < split.rows ? 2 : 1) {}

    /// Returns the number of the pairs (Z_k, Z_{M-k}) in the rows.
    __device__ int pairs() const {
        if (count == 2) return split.columns;
        return split.columns / 2 + (p == 0);
    }
    __device__ int k(int pair) const { return p + split.rows * pair; }
    /// Returns the place of Z_{M-k}.
    __device__ int mirror(int pair) const {
        if (p == 0) return (split.columns - pair) % split.columns;
        return (count - 1) * split.columns + split.columns - 1 - pair;
    }
    __device__ int row(int i) const { return i < split.columns ? p : split.rows - p; }

    /// Loads the rows and transforms them.
    __device__ void load(Complex* data, const Complex* scratch, const Complex* roots) const {
        for (int i = threadIdx.x; i < count * split.columns; i += blockDim.x)
            data[i] = scratch[row(i) * split.columns + i % split.columns];
        __syncthreads();
        transform<false>(data, split.columns, count, roots, split.n());
    }
    /// Transforms the rows back and stores them, ready for the columns.
    __device__ void store(Complex* data, Complex* scratch, const Complex* roots) const {
        __syncthreads();
        transform<true>(data, split.columns, count, roots, split.n());
        for (int i = threadIdx.x; i < count * split.columns; i += blockDim.x) {
            const int c = i % split.columns;
            scratch[row(i) * split.columns + c] =
                data[i] * conj(roots[split.twiddle(c, row(i))]);
        }
    }
    __device__ Pair get(const Complex* data, int pair, const Complex* roots) const {
        return spectrum_pair(data[pair], data[mirror(pair)], roots[k(pair)]);
    }
    __device__ void set(Complex* data, int pair, const Complex* roots, Pair x) const {
        const Pair z = packed_pair(x, roots[k(pair)], 1.0f / split.size());
        data[pair] = z.low;
        if (mirror(pair) != pair) data[mirror(pair)] = z.high;
    }
};

// Columns: grid (⌈C / 8⌉, D, B), block max(32, 2 R), 64 R bytes of shared memory. B is 1 for taps.
// Rows: grid (R / 2 + 1, D, B), block max(32, C / 2), 16 C bytes of shared memory.

/// Writes T (B, D, R, C) of x.
extern "C" __global__ void __launch_bounds__(LONG_THREADS)
    fft_long_columns(const float* x, const Complex* roots, Complex* scratch, int length, int rows,
                     int columns) {
    DYNAMIC_SHARED(Complex, data);
    const Split split{rows, columns};
    const size_t channel = (size_t)blockIdx.z * gridDim.y + blockIdx.y;
    x += channel * length;
    scratch += channel * split.size();
    columns_to_scratch(data, scratch, roots, split,
                       [&](int m) { return load_positions(x, m, length); });
}

/// Writes T (D, R, C) of the taps.
extern "C" __global__ void __launch_bounds__(LONG_THREADS)
    fft_long_tap_columns(const float* kernel, const Complex* roots, Complex* scratch, int taps,
                         int length, int bidirectional, int rows, int columns) {
    DYNAMIC_SHARED(Complex, data);
    const Split split{rows, columns};
    const Turn turn{split.n(), taps, length, bidirectional};
    kernel += (size_t)blockIdx.y * taps;
    columns_to_scratch(data, scratch + (size_t)blockIdx.y * split.size(), roots, split,
                       [&](int m) {
                           return Complex{turn.value(kernel, 2 * m), turn.value(kernel, 2 * m + 1)};
                       });
}

/// Writes H (D, M + 1) of T of the taps, with B 1.
extern "C" __global__ void __launch_bounds__(128)
    fft_long_spectrum(const Complex* scratch, const Complex* roots, Complex* spectrum, int rows,
                      int columns) {
    DYNAMIC_SHARED(Complex, data);
    const RowPair pair(Split{rows, columns});
    const int size = pair.split.size();
    pair.load(data, scratch + (size_t)blockIdx.y * size, roots);
    spectrum += (size_t)blockIdx.y * (size + 1);
    for (int i = threadIdx.x; i < pair.pairs(); i += blockDim.x) {
        const Pair x = pair.get(data, i, roots);
        const int k = pair.k(i);
        spectrum[k] = x.low;
        if (2 * k != size) spectrum[size - k] = conj(x.high);
    }
}

/// Overwrites T of x by that of y, or with `adjoint` T of dy by that of dx.
extern "C" __global__ void __launch_bounds__(128)
    fft_long_product(Complex* scratch, const Complex* spectrum, const Complex* roots, int width,
                     int rows, int columns, int adjoint) {
    DYNAMIC_SHARED(Complex, data);
    const RowPair pair(Split{rows, columns});
    const int size = pair.split.size();
    scratch += ((size_t)blockIdx.z * width + blockIdx.y) * size;
    spectrum += (size_t)blockIdx.y * (size + 1);
    pair.load(data, scratch, roots);
    for (int i = threadIdx.x; i < pair.pairs(); i += blockDim.x) {
        const Pair x = pair.get(data, i, roots);
        pair.set(data, i, roots, product_pair(x, spectrum, pair.k(i), size, adjoint != 0));
    }
    pair.store(data, scratch, roots);
}

/// Writes y (B, D, L) of its T.
extern "C" __global__ void __launch_bounds__(LONG_THREADS)
    fft_long_sequence(const Complex* scratch, const Complex* roots, float* y, int length, int rows,
                      int columns) {
    DYNAMIC_SHARED(Complex, data);
    const Split split{rows, columns};
    const size_t channel = (size_t)blockIdx.z * gridDim.y + blockIdx.y;
    y += channel * length;
    scratch += channel * split.size();
    columns_from_scratch(data, scratch, roots, split, [&](int m, Complex value) {
        store_positions(y, m, length, value);
    });
}

/// Writes T (⌈B / group⌉, D, R, C) of the sums over groups of examples of dk, from T of x and of dy,
/// with ⌈B / group⌉ for B in the grid.
extern "C" __global__ void __launch_bounds__(128)
    fft_long_correlation(const Complex* scratch_x, const Complex* scratch_dy, const Complex* roots,
                         Complex* sum, int batch, int group, int width, int rows, int columns) {
    DYNAMIC_SHARED(Complex, data);
    const RowPair pair(Split{rows, columns});
    const int size = pair.split.size();
    Pair sums[LONG_PAIRS] = {};
    const int end = min(batch, (int)(blockIdx.z + 1) * group);
    for (int example = blockIdx.z * group; example < end; ++example) {
        const size_t at = ((size_t)example * width + blockIdx.y) * size;
        Pair spectra[LONG_PAIRS];
        pair.load(data, scratch_x + at, roots);
        for (int j = 0; j < LONG_PAIRS; ++j) {
            const int i = threadIdx.x + j * blockDim.x;
            if (i < pair.pairs()) spectra[j] = pair.get(data, i, roots);
        }
        __syncthreads();
        pair.load(data, scratch_dy + at, roots);
        for (int j = 0; j < LONG_PAIRS; ++j) {
            const int i = threadIdx.x + j * blockDim.x;
            if (i < pair.pairs()) add_correlation(sums[j], pair.get(data, i, roots), spectra[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < LONG_PAIRS; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < pair.pairs()) pair.set(data, i, roots, sums[j]);
    }
    pair.store(data, sum + ((size_t)blockIdx.z * width + blockIdx.y) * size, roots);
}

/// Writes the parts (⌈B / group⌉, D, K) of dk, for sum_parts, with ⌈B / group⌉ for B in the grid.
/// Taps that meet no position are not written: `part` begins as zeros.
extern "C" __global__ void __launch_bounds__(LONG_THREADS)
    fft_long_taps(const Complex* sum, const Complex* roots, float* part, int width, int taps,
                  int length, int bidirectional, int rows, int columns) {
    DYNAMIC_SHARED(Complex, data);
    const Split split{rows, columns};
    const Turn turn{split.n(), taps, length, bidirectional};
    const size_t of = (size_t)blockIdx.z * width + blockIdx.y;
    part += of * taps;
    auto store = [&](int j, float value) {
        const int tap = turn.tap(j);
        if (tap >= 0) part[tap] = value;
    };
    columns_from_scratch(data, sum + of * split.size(), roots, split, [&](int m, Complex value) {
        store(2 * m, value.re);
        store(2 * m + 1, value.im);
    });
}
