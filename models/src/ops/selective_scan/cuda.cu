// State spaces whose steps and projections depend on the token (mod.rs), forward and backward:
//     h_tn = e^(δ_t a_n) h_(t-1)n + δ_t b_tn x_t,   y_t = Σ_n c_tn h_tn + skip x_t
// x, δ, y (B, L, D), a (D, N), b and c side by side (B, L, 2N), skip (D). With g_t = c_t dy_t +
// e^(δ_(t+1) a) g_(t+1), the gradient of h_t, and w_t = g_t h_(t-1) e^(δ_t a):
//     dx_t = δ_t Σ_n g b + skip dy,   dδ_t = x_t Σ_n g b + Σ_n w a,   da = Σ_t δ_t w,
//     db_t = Σ_d g δ x,   dc_t = Σ_d h dy,   dskip = Σ_t x dy
//
// A block walks the sequence of an example for 256 / lanes channels, tile by tile. A thread has the
// state of one mode of one channel in a register, and `lanes` threads beside each other, 8, 16 or
// 32, have the modes of a channel. More modes than 32 take several launches, each for the modes
// from `first` on, and those after the first add to y, dx and dδ. The states at the starts of tiles
// are kept for the backward pass, which computes those within a tile again: N / 16 numbers a token
// and channel.

#include "cuda/device.cuh"

constexpr int SELECTIVE_THREADS = 256;
constexpr int SELECTIVE_TILE = 16;
constexpr int SELECTIVE_CHANNELS = 32; // most channels of a block: 256 threads of 8 lanes
constexpr int SELECTIVE_WARPS = SELECTIVE_THREADS / WARP;

/// Returns the sum over the lanes of a channel, in each of them.
__device__ inline float sum_of_modes(float value, int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/// Returns the sum over the channels of a warp, in each lane that of its mode.
__device__ inline float sum_of_channels(float value, int lanes) {
    for (int distance = WARP / 2; distance >= lanes; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/// Position of a thread, and the sizes.
struct Selective {
    int length, width, modes, first, lanes;
    int channels, channel, d, mode;

    __device__ Selective(int length, int width, int modes, int first, int lanes)
        : length(length), width(width), modes(modes), first(first), lanes(lanes) {
        channels = SELECTIVE_THREADS / lanes;
        channel = threadIdx.x / lanes;
        d = blockIdx.x * channels + channel;
        mode = first + threadIdx.x % lanes;
    }

    /// Returns whether the thread has a mode of a channel.
    __device__ bool active() const { return d < width && mode < modes; }

    /// Returns the first row of the block's example.
    __device__ size_t example() const { return (size_t)blockIdx.y * length; }

    /// Returns the place of the thread's state at the start of a tile.
    __device__ size_t kept(int tile) const {
        const int tiles = (length + SELECTIVE_TILE - 1) / SELECTIVE_TILE;
        return (((size_t)blockIdx.y * tiles + tile) * width + d) * modes + mode;
    }

    /// Loads a tile of a plane (B, L, D) from row `base`; zeros beyond its end.
    __device__ void load(const float* plane, int base, float* tile) const {
        for (int i = threadIdx.x; i < SELECTIVE_TILE * channels; i += SELECTIVE_THREADS) {
            const int t = base + i / channels, c = blockIdx.x * channels + i % channels;
            tile[i] = t < length && c < width ? plane[(example() + t) * width + c] : 0.0f;
        }
    }

    /// Stores a tile of a plane, or adds it if others have written before.
    __device__ void store(const float* tile, int base, float* plane) const {
        for (int i = threadIdx.x; i < SELECTIVE_TILE * channels; i += SELECTIVE_THREADS) {
            const int t = base + i / channels, c = blockIdx.x * channels + i % channels;
            if (t >= length || c >= width) continue;
            float* const to = plane + (example() + t) * width + c;
            *to = first ? *to + tile[i] : tile[i];
        }
    }

    /// Loads b and c of a tile, zeros beyond the sequence and the modes.
    __device__ void load_projections(const float* projections, int base, float* b, float* c) const {
        for (int i = threadIdx.x; i < SELECTIVE_TILE * lanes; i += SELECTIVE_THREADS) {
            const int t = base + i / lanes, n = first + i % lanes;
            const bool inside = t < length && n < modes;
            const float* row = projections + (example() + t) * 2 * modes;
            b[i] = inside ? row[n] : 0.0f;
            c[i] = inside ? row[modes + n] : 0.0f;
        }
    }
};

/// Writes y, and the states at the starts of tiles, kept (B, ⌈L / 16⌉, D, N), if not null.
///
/// Grid (⌈D lanes / 256⌉, B), block 256.
extern "C" __global__ void __launch_bounds__(SELECTIVE_THREADS)
    selective_scan_forward(const float* x, const float* delta, const float* a,
                           const float* projections, const float* skip, float* y, float* kept,
                           int length, int width, int modes, int first, int lanes) {
    SHARED(float, xs, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, deltas, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, ys, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, bs, SELECTIVE_TILE* WARP);
    SHARED(float, cs, SELECTIVE_TILE* WARP);
    const Selective at(length, width, modes, first, lanes);
    const bool active = at.active();
    const int lane_of_mode = threadIdx.x % lanes;
    const float rate = active ? a[(size_t)at.d * modes + at.mode] : 0.0f;
    const float skipped = at.d < width && first == 0 ? skip[at.d] : 0.0f;
    float h = 0.0f;
    for (int base = 0; base < length; base += SELECTIVE_TILE) {
        at.load(x, base, xs);
        at.load(delta, base, deltas);
        at.load_projections(projections, base, bs, cs);
        __syncthreads();
        if (kept && active) kept[at.kept(base / SELECTIVE_TILE)] = h;
        const int rows = min(SELECTIVE_TILE, length - base);
        for (int t = 0; t < rows; ++t) {
            const int place = t * at.channels + at.channel, mode = t * lanes + lane_of_mode;
            const float input = xs[place], step = deltas[place];
            h = expf(step * rate) * h + step * input * bs[mode];
            const float sum = sum_of_modes(cs[mode] * h, lanes);
            if (lane_of_mode == 0) ys[place] = sum + skipped * input;
        }
        __syncthreads();
        at.store(ys, base, y);
        __syncthreads();
    }
}

/// Writes dx and dδ, and parts of the other gradients for sum_parts: da_part (B, D, N),
/// dskip_part (B, D), and dprojections_part (⌈D lanes / 256⌉, B, L, 2N).
///
/// Grid (⌈D lanes / 256⌉, B), block 256.
extern "C" __global__ void __launch_bounds__(SELECTIVE_THREADS)
    selective_scan_backward(const float* x, const float* delta, const float* a,
                            const float* projections, const float* skip, const float* kept,
                            const float* dy, float* dx, float* ddelta, float* da_part,
                            float* dprojections_part, float* dskip_part, int length, int width,
                            int modes, int first, int lanes) {
    SHARED(float, xs, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, deltas, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, dys, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, dxs, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, ddeltas, SELECTIVE_TILE* SELECTIVE_CHANNELS);
    SHARED(float, bs, SELECTIVE_TILE* WARP);
    SHARED(float, cs, SELECTIVE_TILE* WARP);
    // db and dc of each warp's channels.
    SHARED(float, sums, SELECTIVE_WARPS* SELECTIVE_TILE * 2 * WARP);
    const Selective at(length, width, modes, first, lanes);
    const bool active = at.active();
    const int lane_of_mode = threadIdx.x % lanes;
    const float rate = active ? a[(size_t)at.d * modes + at.mode] : 0.0f;
    const float skipped = at.d < width && first == 0 ? skip[at.d] : 0.0f;
    float carry = 0.0f, da = 0.0f, dskip = 0.0f;
    for (int tile = (length - 1) / SELECTIVE_TILE; tile >= 0; --tile) {
        const int base = tile * SELECTIVE_TILE;
        at.load(x, base, xs);
        at.load(delta, base, deltas);
        at.load(dy, base, dys);
        at.load_projections(projections, base, bs, cs);
        __syncthreads();
        float before[SELECTIVE_TILE];
        float h = active ? kept[at.kept(tile)] : 0.0f;
        UNROLL
        for (int t = 0; t < SELECTIVE_TILE; ++t) {
            const int place = t * at.channels + at.channel;
            before[t] = h;
            // Steps beyond the sequence are 0, and change nothing.
            h = expf(deltas[place] * rate) * h +
                deltas[place] * xs[place] * bs[t * lanes + lane_of_mode];
        }
        UNROLL
        for (int t = SELECTIVE_TILE - 1; t >= 0; --t) {
            const int place = t * at.channels + at.channel, mode = t * lanes + lane_of_mode;
            const float input = xs[place], step = deltas[place], gradient = dys[place];
            const float decay = expf(step * rate);
            const float g = cs[mode] * gradient + carry;
            carry = g * decay;
            const float w = carry * before[t];
            da += step * w;
            const float of_input = sum_of_modes(g * bs[mode], lanes);
            const float of_rate = sum_of_modes(w * rate, lanes);
            const float db = sum_of_channels(g * step * input, lanes);
            const float dc = sum_of_channels(h * gradient, lanes);
            h = before[t];
            if ((int)lane() < lanes) {
                float* const row = sums + (warp() * SELECTIVE_TILE + t) * 2 * lanes;
                row[lane()] = db;
                row[lanes + lane()] = dc;
            }
            if (lane_of_mode == 0) {
                dxs[place] = step * of_input + skipped * gradient;
                ddeltas[place] = input * of_input + of_rate;
                dskip += input * gradient;
            }
        }
        __syncthreads();
        at.store(dxs, base, dx);
        at.store(ddeltas, base, ddelta);
        for (int i = threadIdx.x; i < SELECTIVE_TILE * 2 * lanes; i += SELECTIVE_THREADS) {
            const int t = base + i / (2 * lanes), column = i % (2 * lanes);
            const int n = first + column % lanes;
            if (t >= length || n >= modes) continue;
            float sum = 0.0f;
            for (int w = 0; w < SELECTIVE_WARPS; ++w)
                sum += sums[w * SELECTIVE_TILE * 2 * lanes + i];
            const size_t row = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * length + t;
            dprojections_part[row * 2 * modes + (column < lanes ? n : modes + n)] = sum;
        }
        __syncthreads();
    }
    if (active) da_part[((size_t)blockIdx.y * width + at.d) * modes + at.mode] = da;
    if (lane_of_mode == 0 && at.d < width && first == 0)
        dskip_part[(size_t)blockIdx.y * width + at.d] = dskip;
}
