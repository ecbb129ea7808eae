// The linear recurrence of mod.rs in chunks of the sequence, forward and backward, real and complex.
//     h_t = a_t h_{t-1} + x_t,   x, h (B, L, W), a (W) or (B, L, W)
//     g_t = dh_t + conj(a_{t+1}) g_{t+1},   dx_t = g_t,   da_t = g_t conj(h_{t-1})
// Both are walks: the forward one from the first position on (from the last, if `reverse`), the
// backward one the other way, with the coefficient of the position that it visited before. A
// complex row holds E = W/2 real parts, then E imaginary parts; a real one E = W numbers. Where
// `resets` (B, L) is not null and not 0, a_t counts as 0: the first positions of packed sequences,
// in the order of the forward walk.
//
// Three launches: each chunk's last state and product of coefficients, from a state of zero; the
// states at the chunks' starts; all states. One thread walks a chunk of an element with its state
// in registers, and loads the operands of several steps before it uses the first, so that it waits
// for memory once for all of them. O(L) memory: x is read twice, h written once. With one chunk,
// the last launch is enough, with `starts` null.

#include "cuda/device.cuh"

constexpr int SCAN_THREADS = 128;

template <class T>
__device__ T load(const float* row, int element, int elements);
template <>
__device__ inline float load(const float* row, int element, int) {
    return row[element];
}
template <>
__device__ inline Complex load(const float* row, int element, int elements) {
    return {row[element], row[elements + element]};
}
__device__ inline void store(float* row, int element, int, float value) { row[element] = value; }
__device__ inline void store(float* row, int element, int elements, Complex value) {
    row[element] = value.re;
    row[elements + element] = value.im;
}

template <class T>
__device__ inline T one();
template <>
__device__ inline float one() {
    return 1.0f;
}
template <>
__device__ inline Complex one() {
    return {1.0f, 0.0f};
}

/// An element of one example, and the steps of a chunk in the order of a walk.
template <class T>
struct ScanWalk {
    static constexpr int PLANES = sizeof(T) / sizeof(float);
    static constexpr int AHEAD = 4; // steps whose operands are loaded together
    const float* a;
    const unsigned char* resets;
    int length, elements, element;
    size_t row;      // of the example's first position
    size_t a_stride; // between the coefficients of two positions: W, or 0 if they share them
    size_t boundary; // row of the chunk among (B, chunks)
    int first, end;  // steps of the chunk
    bool from_end, adjoint;
    T shared{}; // the coefficient of all positions, if they share one

    __device__ ScanWalk(const float* a, const unsigned char* resets, int length, int elements,
                        int chunk, int per_token, int reverse, bool adjoint)
        : resets(resets), length(length), elements(elements),
          element(blockIdx.x * blockDim.x + threadIdx.x), row((size_t)blockIdx.z * length),
          a_stride(per_token ? width() : 0), boundary((size_t)blockIdx.z * gridDim.y + blockIdx.y),
          first(blockIdx.y * chunk), end(min(length, (int)(blockIdx.y + 1) * chunk)),
          from_end((reverse != 0) != adjoint), adjoint(adjoint) {
        this->a = a + row * a_stride;
        if (!per_token && element < elements) shared = load<T>(a, element, elements);
    }

    __device__ size_t width() const { return (size_t)elements * PLANES; }
    __device__ int position(int step) const { return from_end ? length - 1 - step : step; }
    __device__ size_t offset(int position) const { return (row + position) * width(); }
    __device__ bool starts_sequence(int position) const {
        return resets && resets[row + position];
    }

    /// Returns the coefficient of the state before this step.
    __device__ T coefficient(int step) const {
        if (adjoint && step == 0) return T{};
        const int at = position(adjoint ? step - 1 : step);
        if (starts_sequence(at)) return T{};
        const T value = a_stride ? load<T>(a + at * a_stride, element, elements) : shared;
        return adjoint ? conj(value) : value;
    }

    __device__ T value(const float* x, int step) const {
        return load<T>(x + offset(position(step)), element, elements);
    }

    /// Calls `visit(step, value of x, coefficient, more(step))` for every step of the chunk.
    template <class More, class Visit>
    __device__ void each(const float* x, More more, Visit visit) const {
        int step = first;
        for (; step + AHEAD <= end; step += AHEAD) {
            T values[AHEAD], factors[AHEAD], others[AHEAD];
            for (int i = 0; i < AHEAD; ++i) {
                values[i] = value(x, step + i);
                factors[i] = coefficient(step + i);
                others[i] = more(step + i);
            }
            for (int i = 0; i < AHEAD; ++i) visit(step + i, values[i], factors[i], others[i]);
        }
        for (; step < end; ++step) visit(step, value(x, step), coefficient(step), more(step));
    }

    __device__ T start(const float* starts) const {
        return starts ? load<T>(starts + boundary * width(), element, elements) : T{};
    }
};

template <class T>
__device__ void chunk_ends(const float* x, const float* a, const unsigned char* resets,
                           float* ends, float* products, int length, int elements, int chunk,
                           int per_token, int reverse, int adjoint) {
    const ScanWalk<T> walk(a, resets, length, elements, chunk, per_token, reverse, adjoint != 0);
    if (walk.element >= elements) return;
    T state{}, product = one<T>();
    walk.each(x, [](int) { return T{}; }, [&](int, T value, T factor, T) {
        state = factor * state + value;
        product = factor * product;
    });
    const size_t at = walk.boundary * walk.width();
    store(ends + at, walk.element, elements, state);
    store(products + at, walk.element, elements, product);
}

template <class T>
__device__ void chunk_starts(float* ends, const float* products, int chunks, int elements) {
    const int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= elements) return;
    const size_t width = (size_t)elements * ScanWalk<T>::PLANES;
    constexpr int AHEAD = ScanWalk<T>::AHEAD;
    ends += (size_t)blockIdx.y * chunks * width;
    products += (size_t)blockIdx.y * chunks * width;
    T state{};
    for (int first = 0; first < chunks; first += AHEAD) {
        T values[AHEAD], factors[AHEAD];
        for (int i = 0; i < AHEAD; ++i) {
            const int c = min(first + i, chunks - 1);
            values[i] = load<T>(ends + c * width, element, elements);
            factors[i] = load<T>(products + c * width, element, elements);
        }
        for (int i = 0; i < AHEAD && first + i < chunks; ++i) {
            store(ends + (first + i) * width, element, elements, state);
            state = factors[i] * state + values[i];
        }
    }
}

template <class T>
__device__ void all_states(const float* x, const float* a, const unsigned char* resets,
                           const float* starts, float* h, int length, int elements, int chunk,
                           int per_token, int reverse) {
    const ScanWalk<T> walk(a, resets, length, elements, chunk, per_token, reverse, false);
    if (walk.element >= elements) return;
    T state = walk.start(starts);
    walk.each(x, [](int) { return T{}; }, [&](int step, T value, T factor, T) {
        state = factor * state + value;
        store(h + walk.offset(walk.position(step)), walk.element, elements, state);
    });
}

template <class T>
__device__ void all_gradients(const float* dh, const float* h, const float* a,
                              const unsigned char* resets, const float* starts, float* dx,
                              float* da, int length, int elements, int chunk, int per_token,
                              int reverse) {
    const ScanWalk<T> walk(a, resets, length, elements, chunk, per_token, reverse, true);
    if (walk.element >= elements) return;
    // The state before a step's position, or zero at the start of a sequence.
    auto before = [&](int step) {
        if (step + 1 >= length || walk.starts_sequence(walk.position(step))) return T{};
        return walk.value(h, step + 1);
    };
    T state = walk.start(starts), sum{};
    walk.each(dh, before, [&](int step, T value, T factor, T before) {
        state = factor * state + value;
        const size_t at = walk.offset(walk.position(step));
        store(dx + at, walk.element, elements, state);
        const T gradient = state * conj(before);
        if (per_token) store(da + at, walk.element, elements, gradient);
        sum = sum + gradient;
    });
    if (!per_token) store(da + walk.boundary * walk.width(), walk.element, elements, sum);
}

// `kind` is real (T = float) or complex (T = Complex). C = ⌈L / chunk⌉.
//
// scan_<kind>_ends      grid (⌈E / 128⌉, C, B), block 128: ends, products (B, C, W). x is dh, and
//                       `adjoint` 1, for the backward walk.
// scan_<kind>_starts    grid (⌈E / 128⌉, B), block 128: overwrites `ends` by the chunks' starts.
// scan_<kind>_forward   grid (⌈E / 128⌉, C, B), block 128: h (B, L, W).
// scan_<kind>_backward  grid (⌈E / 128⌉, C, B), block 128: dx (B, L, W), and da (B, L, W) if
//                       `per_token`, else its parts (B C, W) for sum_parts.
#define SCAN_KERNELS(kind, T)                                                                      \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 8) scan_##kind##_ends(                 \
        const float* x, const float* a, const unsigned char* resets, float* ends, float* products, \
        int length, int elements, int chunk, int per_token, int reverse, int adjoint) {            \
        chunk_ends<T>(x, a, resets, ends, products, length, elements, chunk, per_token, reverse,   \
                      adjoint);                                                                    \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 8)                                     \
        scan_##kind##_starts(float* ends, const float* products, int chunks, int elements) {       \
        chunk_starts<T>(ends, products, chunks, elements);                                         \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 8) scan_##kind##_forward(              \
        const float* x, const float* a, const unsigned char* resets, const float* starts,          \
        float* h, int length, int elements, int chunk, int per_token, int reverse) {               \
        all_states<T>(x, a, resets, starts, h, length, elements, chunk, per_token, reverse);       \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 8) scan_##kind##_backward(             \
        const float* dh, const float* h, const float* a, const unsigned char* resets,              \
        const float* starts, float* dx, float* da, int length, int elements, int chunk,            \
        int per_token, int reverse) {                                                              \
        all_gradients<T>(dh, h, a, resets, starts, dx, da, length, elements, chunk, per_token,     \
                         reverse);                                                                 \
    }

SCAN_KERNELS(real, float)
SCAN_KERNELS(complex, Complex)
