// Linear attention with decays (mod.rs), forward and backward. With u_t = v_t, or by the delta rule
// u_t = β_t e_t and e_t = v_t - (diag(a_t) S_(t-1))ᵀ k_t:
//     S_t = diag(a_t) S_(t-1) + k_t u_tᵀ,   y_t = S_tᵀ q_t
// q, k (B, L, H, K), v, y (B, L, H, V), logarithms of a (B, L, H), (B, L, H, K) or null, β (B, L,
// H) or null. K at most 128.
//
// A chunk has 16 rows. With p_i = a_1 ⊙ .. ⊙ a_i, s_j = a_(j+1) ⊙ .. ⊙ a_16, d_ij = a_(j+1) ⊙ .. ⊙
// a_i, products of numbers up to 1 that are formed one by one, and S the state at its start:
//     y_i = Sᵀ (q_i ⊙ p_i) + Σ_(j ≤ i) w_ij u_j,   w_ij = q_i·(k_j ⊙ d_ij)
//     e_i = v_i - Sᵀ (k_i ⊙ p_i) - Σ_(j < i) m_ij u_j,   m_ij = k_i·(k_j ⊙ d_ij)
//     S ← diag(p_16) S + Σ_j (k_j ⊙ s_j) u_jᵀ
// and backward, with the gradient G of the state at its end, and g_i = β_i × the gradient of u_i:
//     du_j = Gᵀ (k_j ⊙ s_j) + Σ_(i ≥ j) w_ij dy_i - Σ_(i > j) m_ij g_i,   dv = du or g
//     dw_ij = dy_i·u_j,   dm_ij = -g_i·u_j,   dβ_i = du_i·e_i
//     G ← diag(p_16) G + Σ_i (q_i ⊙ p_i) dy_iᵀ - (k_i ⊙ p_i) g_iᵀ
//
// The state is kept at the start of every segment of some chunks, (B, H, segments, K, V). States,
// and their gradients, are sums of segments, which `gated_linear_attention_starts` carries from one
// to the next; by the delta rule a block walks the whole sequence instead. All else takes segments
// and chunks at once. A block has a tile of the values' columns, 16 or 32; the backward pass goes
// through all tiles, as gradients of q, k and a sum over them.

#include "cuda/device.cuh"

constexpr int GLA_THREADS = 128;
constexpr int GLA_CHUNK = 16;
constexpr int GLA_LANES = GLA_THREADS / GLA_CHUNK; // threads of a row
constexpr int GLA_WIDEST = 128;                    // most keys
constexpr int GLA_OWN = GLA_WIDEST / GLA_LANES;    // keys of a thread
constexpr int GLA_PAIRS = GLA_CHUNK + 1;           // stride of pairs of rows
constexpr int GLA_AHEAD = 8;                       // segments loaded at once

/// Sizes, and the order of rows.
struct GatedLinearAttention {
    int length, heads, keys, values;
    int decays; // numbers of a row: none, one, or one for each key
    int delta, reverse, exclusive;
    int chunks; // of a segment
    int tile;   // columns of values that a block has

    __device__ int all_chunks() const { return (length + GLA_CHUNK - 1) / GLA_CHUNK; }
    __device__ int segments() const { return (all_chunks() + chunks - 1) / chunks; }
    /// Returns the number behind the last chunk of a segment.
    __device__ int end(int segment) const { return min((segment + 1) * chunks, all_chunks()); }
    __device__ int wide_keys() const { return (keys + 3) / 4 * 4; }
    __device__ int of_decay() const { return decays > 1 ? decays : 1; }

    /// Returns the place of step t of the block's sequence and head among rows.
    __device__ size_t row(int t) const {
        const size_t position = reverse ? length - 1 - t : t;
        return (blockIdx.x / heads * (size_t)length + position) * heads + blockIdx.x % heads;
    }

    /// Returns the number of a segment of the block's sequence and head.
    __device__ size_t kept(int segment) const {
        return (size_t)blockIdx.x * segments() + segment;
    }
};

/// What is loaded of a chunk; null for what is not.
struct GatedOperands {
    const float *q, *k, *v, *log_decay, *delta, *dy;
};

/// R by C sums of products of a thread, in rows from i on and in every `across`th column from j on.
template <int R, int C>
struct GatedSums {
    int i, j, across;
    float sums[R][C];

    /// Adds a(row, d) b(d, column) for each d below `depth`.
    template <class A, class B>
    __device__ void add(int depth, A a, B b) {
        for (int d = 0; d < depth; ++d) {
            float x[R], y[C];
            UNROLL
            for (int r = 0; r < R; ++r) x[r] = a(i + r, d);
            UNROLL
            for (int c = 0; c < C; ++c) y[c] = b(d, j + c * across);
            UNROLL
            for (int r = 0; r < R; ++r) {
                UNROLL
                for (int c = 0; c < C; ++c) sums[r][c] += x[r] * y[c];
            }
        }
    }

    /// Calls to(row, column, sum) for each sum.
    template <class To>
    __device__ void each(To to) const {
        UNROLL
        for (int r = 0; r < R; ++r) {
            UNROLL
            for (int c = 0; c < C; ++c) to(i + r, j + c * across, sums[r][c]);
        }
    }
};

/// Calls f with the sums of all rows and columns, each in one thread and always in the same.
template <int R, int C, class F>
__device__ inline void for_sums(int rows, int columns, F f) {
    const int across = columns / C;
    for (int at = threadIdx.x; at < rows / R * across; at += GLA_THREADS) {
        GatedSums<R, C> sums{at / across * R, at % across, across, {}};
        f(sums);
    }
}

/// Returns the sum over the threads of a row, in each of them.
__device__ inline float sum_of_lanes(float value) {
    for (int distance = GLA_LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/// A chunk in shared memory. Rows beyond the sequence, and columns beyond the widths, are zeros
/// with a decay of 1.
struct GatedChunk {
    const GatedLinearAttention of;
    int wide, pitch;           // of keys
    int value_pitch;           // of values
    int decay_row, decay_step; // strides of decays; a step of 0 where all keys share one
    float *q, *k;              // (16, K)
    float *a, *p, *s;          // (16, K) or (16)
    float *u, *e, *dy;         // (16, V)
    float *w, *m;              // (16, 16)
    float* rate;               // (16)
    float* next;               // shared memory behind it

    __device__ GatedChunk(const GatedLinearAttention& of, float* shared) : of(of), next(shared) {
        wide = of.wide_keys();
        pitch = wide + 1;
        value_pitch = of.tile + 1;
        decay_row = of.decays > 1 ? pitch : 1;
        decay_step = of.decays > 1;
        for (float** rows : {&q, &k}) *rows = take(GLA_CHUNK * pitch);
        for (float** rows : {&a, &p, &s}) *rows = take(GLA_CHUNK * decay_row);
        for (float** rows : {&u, &e, &dy}) *rows = take(GLA_CHUNK * value_pitch);
        for (float** pairs : {&w, &m}) *pairs = take(GLA_CHUNK * GLA_PAIRS);
        rate = take(GLA_CHUNK);
    }

    __device__ float* take(int numbers) {
        float* const taken = next;
        next += numbers;
        return taken;
    }

    __device__ float* take_state() { return take(wide * value_pitch); }

    __device__ float& key(float* rows, int i, int c) const { return rows[i * pitch + c]; }
    __device__ float& value(float* rows, int i, int c) const { return rows[i * value_pitch + c]; }
    __device__ float& decay(float* rows, int i, int c) const {
        return rows[i * decay_row + c * decay_step];
    }
    __device__ float whole(int c) const { return decay(p, GLA_CHUNK - 1, c); }

    /// Copies `count` columns from `first` on of the rows of 16 steps from `step` on, each `width`
    /// wide, to rows that are `stride` apart.
    __device__ void load_rows(const float* from, int step, int width, int first, int count,
                              float* to, int stride) const {
        for (int at = threadIdx.x; at < GLA_CHUNK * count; at += GLA_THREADS) {
            const int i = at / count, c = at % count, t = step + i;
            const bool inside = t < of.length && first + c < width;
            to[i * stride + c] = inside ? from[of.row(t) * width + first + c] : 0.0f;
        }
    }

    /// Writes rows of `width` numbers from such columns, as load_rows reads them.
    __device__ void store_rows(const float* from, int step, int width, int first, int count,
                               float* to, int stride) const {
        for (int at = threadIdx.x; at < GLA_CHUNK * count; at += GLA_THREADS) {
            const int i = at / count, c = at % count, t = step + i;
            if (t < of.length && first + c < width)
                to[of.row(t) * width + first + c] = from[i * stride + c];
        }
    }

    /// Writes zeros to rows of `width` numbers that no query lies ahead of.
    __device__ void clear_first(float* to, int width, int first, int count) const {
        if (!of.exclusive) return;
        for (int c = first + threadIdx.x; c < min(width, first + count); c += GLA_THREADS)
            to[of.row(0) * width + c] = 0.0f;
    }

    /// Copies the columns from `first` on of a segment's state; zeros if there are none.
    __device__ void load_state(const float* states, int segment, int first, float* state) const {
        for (int at = threadIdx.x; at < wide * of.tile; at += GLA_THREADS) {
            const int c = at / of.tile, v = at % of.tile;
            const bool inside = states && c < of.keys && first + v < of.values;
            value(state, c, v) =
                inside ? states[(of.kept(segment) * of.keys + c) * of.values + first + v] : 0.0f;
        }
        __syncthreads();
    }

    __device__ void store_state(float* state, int segment, int first, float* states) const {
        for (int at = threadIdx.x; at < of.keys * of.tile; at += GLA_THREADS) {
            const int c = at / of.tile, v = at % of.tile;
            if (first + v < of.values)
                states[(of.kept(segment) * of.keys + c) * of.values + first + v] =
                    value(state, c, v);
        }
    }

    /// Loads chunk n, and forms p and s, w of queries and keys, and m by the delta rule, the latter
    /// two if `pairs`.
    __device__ void load(const GatedOperands& from, int n, int first, bool pairs) {
        const int step = n * GLA_CHUNK, query = step + of.exclusive;
        if (from.q) load_rows(from.q, query, of.keys, 0, wide, q, pitch);
        if (from.k) load_rows(from.k, step, of.keys, 0, wide, k, pitch);
        float* const values = of.delta ? e : u;
        if (from.v) load_rows(from.v, step, of.values, first, of.tile, values, value_pitch);
        if (from.dy) load_rows(from.dy, query, of.values, first, of.tile, dy, value_pitch);
        if (from.delta) load_rows(from.delta, step, 1, 0, 1, rate, 1);
        const int decays = of.decays > 1 ? wide : 1;
        for (int c = threadIdx.x; c < decays; c += GLA_THREADS) {
            float factors[GLA_CHUNK], product = 1.0f;
            UNROLL
            for (int i = 0; i < GLA_CHUNK; ++i) {
                const int t = step + i;
                const bool inside = from.log_decay && t < of.length && c < of.of_decay();
                factors[i] = inside ? expf(from.log_decay[of.row(t) * of.decays + c]) : 1.0f;
            }
            UNROLL
            for (int i = 0; i < GLA_CHUNK; ++i) {
                product *= factors[i];
                decay(a, i, c) = factors[i];
                decay(p, i, c) = product;
            }
            product = 1.0f;
            UNROLL
            for (int i = GLA_CHUNK - 1; i >= 0; --i) {
                decay(s, i, c) = product;
                product *= factors[i];
            }
        }
        __syncthreads();
        if (!pairs) return;
        form_pairs(from.q);
        __syncthreads();
    }

    /// Forms w if there are `queries`, and m by the delta rule; zeros above the diagonal. The
    /// threads of row j multiply its key by one decay after the other.
    __device__ void form_pairs(bool queries) const {
        const int j = threadIdx.x / GLA_LANES, own = threadIdx.x % GLA_LANES;
        float decayed[GLA_OWN];
        UNROLL
        for (int n = 0; n < GLA_OWN; ++n) {
            const int c = own + GLA_LANES * n;
            decayed[n] = c < wide ? key(k, j, c) : 0.0f;
        }
        for (int i = 0; i < GLA_CHUNK; ++i) {
            float of_query = 0.0f, of_key = 0.0f;
            UNROLL
            for (int n = 0; n < GLA_OWN; ++n) {
                const int c = own + GLA_LANES * n;
                if (i < j || c >= wide) break;
                if (i > j) decayed[n] *= decay(a, i, c);
                if (queries) of_query += key(q, i, c) * decayed[n];
                if (of.delta && i > j) of_key += key(k, i, c) * decayed[n];
            }
            if (queries) of_query = sum_of_lanes(of_query);
            if (of.delta) of_key = sum_of_lanes(of_key);
            if (own == 0) {
                w[i * GLA_PAIRS + j] = of_query;
                m[i * GLA_PAIRS + j] = of_key;
            }
        }
    }

    /// Forms u, and e by the delta rule, of a state at the chunk's start.
    __device__ void form_values(float* state) const {
        if (!of.delta) return;
        for_sums<2, 4>(GLA_CHUNK, of.tile, [&](GatedSums<2, 4>& sums) {
            sums.add(
                wide, [&](int i, int c) { return key(k, i, c) * decay(p, i, c); },
                [&](int c, int v) { return value(state, c, v); });
            sums.each([&](int i, int v, float sum) { value(e, i, v) -= sum; });
        });
        __syncthreads();
        for (int v = threadIdx.x; v < of.tile; v += GLA_THREADS) {
            float written[GLA_CHUNK];
            UNROLL
            for (int i = 0; i < GLA_CHUNK; ++i) {
                float rest = value(e, i, v);
                UNROLL
                for (int j = 0; j < i; ++j) rest -= m[i * GLA_PAIRS + j] * written[j];
                written[i] = rate[i] * rest;
                value(e, i, v) = rest;
                value(u, i, v) = written[i];
            }
        }
        __syncthreads();
    }

    /// Makes the state at the chunk's end of that at its start.
    __device__ void advance(float* state) const {
        for_sums<4, 4>(wide, of.tile, [&](GatedSums<4, 4>& sums) {
            sums.add(
                GLA_CHUNK, [&](int c, int j) { return key(k, j, c) * decay(s, j, c); },
                [&](int j, int v) { return value(u, j, v); });
            sums.each([&](int c, int v, float sum) {
                value(state, c, v) = whole(c) * value(state, c, v) + sum;
            });
        });
        __syncthreads();
    }

    /// Writes du, or g by the delta rule, of the gradient of the state at the chunk's end. Replaces
    /// e by du ⊙ e if `rates`.
    __device__ void form_value_gradients(float* dstate, float* g, bool rates) const {
        for_sums<2, 4>(GLA_CHUNK, of.tile, [&](GatedSums<2, 4>& sums) {
            sums.add(
                wide, [&](int j, int c) { return key(k, j, c) * decay(s, j, c); },
                [&](int c, int v) { return value(dstate, c, v); });
            sums.add(
                GLA_CHUNK, [&](int j, int i) { return w[i * GLA_PAIRS + j]; },
                [&](int i, int v) { return value(dy, i, v); });
            sums.each([&](int j, int v, float sum) { value(g, j, v) = sum; });
        });
        __syncthreads();
        if (!of.delta) return;
        for (int v = threadIdx.x; v < of.tile; v += GLA_THREADS) {
            float after[GLA_CHUNK];
            UNROLL
            for (int j = GLA_CHUNK - 1; j >= 0; --j) {
                float gradient = value(g, j, v);
                UNROLL
                for (int i = j + 1; i < GLA_CHUNK; ++i)
                    gradient -= m[i * GLA_PAIRS + j] * after[i];
                after[j] = rate[j] * gradient;
                value(g, j, v) = after[j];
                if (rates) value(e, j, v) *= gradient;
            }
        }
        __syncthreads();
    }

    /// Makes the gradient of the state at the chunk's start of that at its end, and of g by the
    /// delta rule.
    __device__ void retreat(float* dstate, float* g) const {
        for_sums<4, 4>(wide, of.tile, [&](GatedSums<4, 4>& sums) {
            sums.add(
                GLA_CHUNK, [&](int c, int i) { return key(q, i, c) * decay(p, i, c); },
                [&](int i, int v) { return value(dy, i, v); });
            if (of.delta)
                sums.add(
                    GLA_CHUNK, [&](int c, int i) { return -key(k, i, c) * decay(p, i, c); },
                    [&](int i, int v) { return value(g, i, v); });
            sums.each([&](int c, int v, float sum) {
                value(dstate, c, v) = whole(c) * value(dstate, c, v) + sum;
            });
        });
        __syncthreads();
    }

    /// Writes the product of a segment's decays.
    __device__ void store_total(float total, int segment, float* totals) const {
        const int c = threadIdx.x, width = of.of_decay();
        if (totals && blockIdx.z == 0 && c < width) totals[of.kept(segment) * width + c] = total;
    }
};

// Dynamic shared memory in numbers, with W = ⌈K / 4⌉ 4, a tile of T columns (16 for K above 64,
// otherwise 32), and R = 16 (W + 1) where each key has its decay, otherwise 16: 32 (W + 1) + 3 R +
// 48 (T + 1) + 2 · 272 + 16 + W (T + 1), and backward 49 W + 48 + (W + 16) (T + 1) + 2 · 272 + 16
// more.

/// Writes the sums of segments from a state of zeros, with the products of their decays, totals
/// (B, H, segments, K or 1); or, by the delta rule, states at the starts of segments.
///
/// Grid (B H, segments, or 1 by the delta rule, ⌈V / T⌉), block 128.
extern "C" __global__ void __launch_bounds__(GLA_THREADS, 4)
    gated_linear_attention_states(const float* k, const float* v, const float* log_decay,
                                  const float* delta, float* states, float* totals,
                                  GatedLinearAttention of) {
    DYNAMIC_SHARED(float, shared);
    GatedChunk chunk(of, shared);
    float* const state = chunk.take_state();
    const GatedOperands from{nullptr, k, v, log_decay, delta, nullptr};
    const int first = blockIdx.z * of.tile, last = of.delta ? of.segments() - 1 : (int)blockIdx.y;
    chunk.load_state(nullptr, 0, first, state);
    float total = 1.0f;
    for (int segment = blockIdx.y; segment <= last; ++segment) {
        if (of.delta) {
            chunk.store_state(state, segment, first, states);
            if (segment == last) break;
        }
        for (int n = segment * of.chunks; n < of.end(segment); ++n) {
            chunk.load(from, n, first, of.delta);
            if ((int)threadIdx.x < of.of_decay()) total *= chunk.whole(threadIdx.x);
            chunk.form_values(state);
            chunk.advance(state);
        }
    }
    if (of.delta) return;
    chunk.store_state(state, blockIdx.y, first, states);
    chunk.store_total(total, blockIdx.y, totals);
}

/// Replaces the sums of segments by states at their starts, or those of gradients, if `adjoint`, by
/// the gradients of states at their ends.
///
/// Grid (B H, ⌈K V / 128⌉), block 128.
extern "C" __global__ void __launch_bounds__(GLA_THREADS)
    gated_linear_attention_starts(float* states, const float* totals, int adjoint,
                                  GatedLinearAttention of) {
    const int numbers = of.keys * of.values, at = blockIdx.y * GLA_THREADS + threadIdx.x;
    if (at >= numbers) return;
    const int segments = of.segments(), width = of.of_decay();
    const int channel = of.decays > 1 ? at / of.values : 0;
    float carry = 0.0f;
    for (int base = 0; base < segments; base += GLA_AHEAD) {
        float sums[GLA_AHEAD], products[GLA_AHEAD];
        UNROLL
        for (int n = 0; n < GLA_AHEAD; ++n) {
            if (base + n >= segments) break;
            const size_t kept = of.kept(adjoint ? segments - 1 - base - n : base + n);
            sums[n] = states[kept * numbers + at];
            products[n] = totals[kept * width + channel];
        }
        UNROLL
        for (int n = 0; n < GLA_AHEAD; ++n) {
            if (base + n >= segments) break;
            const size_t kept = of.kept(adjoint ? segments - 1 - base - n : base + n);
            states[kept * numbers + at] = carry;
            carry = products[n] * carry + sums[n];
        }
    }
}

/// Writes y, of states at the starts of segments, null for a single one.
///
/// Grid (B H, segments, ⌈V / T⌉), block 128.
extern "C" __global__ void __launch_bounds__(GLA_THREADS, 4)
    gated_linear_attention_forward(const float* q, const float* k, const float* v,
                                   const float* log_decay, const float* delta, const float* states,
                                   float* y, GatedLinearAttention of) {
    DYNAMIC_SHARED(float, shared);
    GatedChunk chunk(of, shared);
    float* const state = chunk.take_state();
    const GatedOperands from{q, k, v, log_decay, delta, nullptr};
    const int first = blockIdx.z * of.tile, segment = blockIdx.y;
    if (segment == 0) chunk.clear_first(y, of.values, first, of.tile);
    chunk.load_state(states, segment, first, state);
    for (int n = segment * of.chunks; n < of.end(segment); ++n) {
        chunk.load(from, n, first, true);
        chunk.form_values(state);
        for_sums<2, 4>(GLA_CHUNK, of.tile, [&](GatedSums<2, 4>& sums) {
            sums.add(
                chunk.wide,
                [&](int i, int c) { return chunk.key(chunk.q, i, c) * chunk.decay(chunk.p, i, c); },
                [&](int c, int column) { return chunk.value(state, c, column); });
            sums.add(
                GLA_CHUNK, [&](int i, int j) { return chunk.w[i * GLA_PAIRS + j]; },
                [&](int j, int column) { return chunk.value(chunk.u, j, column); });
            sums.each([&](int i, int column, float sum) {
                const int t = n * GLA_CHUNK + i + of.exclusive;
                if (t < of.length && first + column < of.values)
                    y[of.row(t) * of.values + first + column] = sum;
            });
        });
        if (n + 1 == of.end(segment)) break;
        __syncthreads();
        chunk.advance(state);
    }
}

/// Writes the sums of segments of the gradients of states, as gated_linear_attention_states does of
/// states; or, by the delta rule, gradients of the states at the ends of segments.
///
/// Grid (B H, segments, or 1 by the delta rule, ⌈V / T⌉), block 128.
extern "C" __global__ void __launch_bounds__(GLA_THREADS, 4)
    gated_linear_attention_adjoint(const float* q, const float* k, const float* log_decay,
                                   const float* delta, const float* dy, float* dstates,
                                   float* totals, GatedLinearAttention of) {
    DYNAMIC_SHARED(float, shared);
    GatedChunk chunk(of, shared);
    float* const dstate = chunk.take_state();
    const GatedOperands from{q, of.delta ? k : nullptr, nullptr, log_decay, delta, dy};
    const int first = blockIdx.z * of.tile, last = of.delta ? of.segments() - 1 : (int)blockIdx.y;
    chunk.load_state(nullptr, 0, first, dstate);
    float total = 1.0f;
    for (int segment = last; segment >= (int)blockIdx.y; --segment) {
        if (of.delta) {
            chunk.store_state(dstate, segment, first, dstates);
            if (segment == 0) break;
        }
        for (int n = of.end(segment) - 1; n >= segment * of.chunks; --n) {
            chunk.load(from, n, first, of.delta);
            if ((int)threadIdx.x < of.of_decay()) total *= chunk.whole(threadIdx.x);
            if (of.delta) chunk.form_value_gradients(dstate, chunk.u, false);
            chunk.retreat(dstate, chunk.u);
        }
    }
    if (of.delta) return;
    chunk.store_state(dstate, blockIdx.y, first, dstates);
    chunk.store_total(total, blockIdx.y, totals);
}

/// Writes all gradients, of states at the starts of segments and gradients of states at their ends,
/// both null for a single one.
///
/// Grid (B H, ⌈L / 16⌉), block 128.
extern "C" __global__ void __launch_bounds__(GLA_THREADS, 3)
    gated_linear_attention_backward(const float* q, const float* k, const float* v,
                                    const float* log_decay, const float* delta, const float* states,
                                    const float* dstates, const float* dy, float* dq, float* dk,
                                    float* dv, float* dlog_decay, float* ddelta,
                                    GatedLinearAttention of) {
    DYNAMIC_SHARED(float, shared);
    GatedChunk chunk(of, shared);
    const int wide = chunk.wide, pitch = chunk.pitch;
    float *const state = chunk.take_state(), *const dstate = chunk.take_state();
    float* const g = chunk.take(GLA_CHUNK * chunk.value_pitch);
    // Sums over all columns of values, side by side: gradients of q, of k that reads the state and
    // that is added to it, (16, K) each, without pairs of rows; of w and m; of the decay of the
    // whole chunk (K); and of β (16).
    const int of_rows = GLA_CHUNK * pitch, of_pairs = GLA_CHUNK * GLA_PAIRS;
    float *const sums_q = chunk.next, *const sums_read = sums_q + of_rows;
    float *const sums_kept = sums_read + of_rows, *const dw = sums_kept + of_rows;
    float *const dm = dw + of_pairs, *const whole = dm + of_pairs;
    float *const rates = whole + wide, *const end = rates + GLA_CHUNK;
    for (float* at = sums_q + threadIdx.x; at < end; at += GLA_THREADS) *at = 0.0f;
    const GatedOperands all{q, k, v, log_decay, delta, dy};
    const GatedOperands of_state{nullptr, k, v, log_decay, delta, nullptr};
    const GatedOperands of_dstate{q, of.delta ? k : nullptr, nullptr, log_decay, delta, dy};
    const int own = blockIdx.y, segment = own / of.chunks, step = own * GLA_CHUNK;
    const int row = threadIdx.x / GLA_LANES, lane_of_row = threadIdx.x % GLA_LANES;
    for (int first = 0; first < of.values; first += of.tile) {
        chunk.load_state(states, segment, first, state);
        for (int n = segment * of.chunks; n < own; ++n) {
            chunk.load(of_state, n, first, of.delta);
            chunk.form_values(state);
            chunk.advance(state);
        }
        chunk.load_state(dstates, segment, first, dstate);
        for (int n = of.end(segment) - 1; n > own; --n) {
            chunk.load(of_dstate, n, first, of.delta);
            if (of.delta) chunk.form_value_gradients(dstate, g, false);
            chunk.retreat(dstate, g);
        }
        chunk.load(all, own, first, true);
        chunk.form_values(state);
        chunk.form_value_gradients(dstate, g, true);
        chunk.store_rows(g, step, of.values, first, of.tile, dv, chunk.value_pitch);
        for_sums<2, 4>(GLA_CHUNK, GLA_CHUNK, [&](GatedSums<2, 4>& sums) {
            sums.add(
                of.tile, [&](int i, int column) { return chunk.value(chunk.dy, i, column); },
                [&](int column, int j) { return chunk.value(chunk.u, j, column); });
            sums.each([&](int i, int j, float sum) { dw[i * GLA_PAIRS + j] += sum; });
        });
        for_sums<2, 4>(GLA_CHUNK, wide, [&](GatedSums<2, 4>& sums) {
            sums.add(
                of.tile, [&](int i, int column) { return chunk.value(chunk.dy, i, column); },
                [&](int column, int c) { return chunk.value(state, c, column); });
            sums.each([&](int i, int c, float sum) {
                chunk.key(sums_q, i, c) += chunk.decay(chunk.p, i, c) * sum;
            });
        });
        for_sums<2, 4>(GLA_CHUNK, wide, [&](GatedSums<2, 4>& sums) {
            sums.add(
                of.tile, [&](int j, int column) { return chunk.value(chunk.u, j, column); },
                [&](int column, int c) { return chunk.value(dstate, c, column); });
            sums.each([&](int j, int c, float sum) {
                chunk.key(sums_kept, j, c) += chunk.decay(chunk.s, j, c) * sum;
            });
        });
        if (of.delta) {
            for_sums<2, 4>(GLA_CHUNK, GLA_CHUNK, [&](GatedSums<2, 4>& sums) {
                sums.add(
                    of.tile, [&](int i, int column) { return chunk.value(g, i, column); },
                    [&](int column, int j) { return chunk.value(chunk.u, j, column); });
                sums.each([&](int i, int j, float sum) { dm[i * GLA_PAIRS + j] -= sum; });
            });
            for_sums<2, 4>(GLA_CHUNK, wide, [&](GatedSums<2, 4>& sums) {
                sums.add(
                    of.tile, [&](int i, int column) { return chunk.value(g, i, column); },
                    [&](int column, int c) { return chunk.value(state, c, column); });
                sums.each([&](int i, int c, float sum) {
                    chunk.key(sums_read, i, c) -= chunk.decay(chunk.p, i, c) * sum;
                });
            });
            float sum = 0.0f;
            for (int column = lane_of_row; column < of.tile; column += GLA_LANES)
                sum += chunk.value(chunk.e, row, column);
            sum = sum_of_lanes(sum);
            if (lane_of_row == 0) rates[row] += sum;
        }
        for (int c = threadIdx.x; c < wide; c += GLA_THREADS) {
            float sum = 0.0f;
            for (int column = 0; column < of.tile; ++column)
                sum += chunk.value(state, c, column) * chunk.value(dstate, c, column);
            whole[c] += chunk.whole(c) * sum;
        }
        __syncthreads();
    }
    if (own == 0) chunk.clear_first(dq, of.keys, 0, of.keys);
    // A thread has a key channel of all rows, and adds the gradients of pairs of rows.
    const int c = threadIdx.x;
    if (c < of.keys) {
        float of_q[GLA_CHUNK], of_read[GLA_CHUNK], between[GLA_CHUNK], of_decay[GLA_CHUNK];
        UNROLL
        for (int i = 0; i < GLA_CHUNK; ++i) {
            of_q[i] = chunk.key(sums_q, i, c);
            of_read[i] = chunk.key(sums_read, i, c);
        }
        UNROLL
        for (int j = 0; j < GLA_CHUNK; ++j) {
            float decayed = chunk.key(chunk.k, j, c), decay = 1.0f, sum = 0.0f;
            UNROLL
            for (int i = j + 1; i < GLA_CHUNK; ++i) {
                const float factor = chunk.decay(chunk.a, i, c);
                decayed *= factor;
                decay *= factor;
                const float of_w = dw[i * GLA_PAIRS + j];
                of_q[i] += of_w * decayed;
                sum += of_w * decay * chunk.key(chunk.q, i, c);
                if (!of.delta) continue;
                const float of_m = dm[i * GLA_PAIRS + j];
                of_read[i] += of_m * decayed;
                sum += of_m * decay * chunk.key(chunk.k, i, c);
            }
            between[j] = sum;
        }
        // A decay is in every product of a row from it on with one before it.
        float after = 0.0f, before = whole[c];
        UNROLL
        for (int i = GLA_CHUNK - 1; i >= 0; --i) {
            after += chunk.key(chunk.q, i, c) * of_q[i] +
                     chunk.key(chunk.k, i, c) * (of_read[i] - between[i]);
            of_decay[i] = after;
        }
        UNROLL
        for (int i = 0; i < GLA_CHUNK; ++i) {
            const float query = chunk.key(chunk.q, i, c), key = chunk.key(chunk.k, i, c);
            const float kept = chunk.key(sums_kept, i, c), of_w = dw[i * GLA_PAIRS + i];
            of_decay[i] += before;
            before += key * kept;
            const int t = step + i, at = t + of.exclusive;
            if (at < of.length) dq[of.row(at) * of.keys + c] = of_q[i] + of_w * key;
            if (t < of.length)
                dk[of.row(t) * of.keys + c] = kept + between[i] + of_read[i] + of_w * query;
            if (t < of.length && of.decays > 1) dlog_decay[of.row(t) * of.keys + c] = of_decay[i];
            chunk.key(sums_q, i, c) = of_decay[i];
        }
    }
    __syncthreads();
    if (of.decays == 1) {
        float sum = 0.0f;
        for (int channel = lane_of_row; channel < of.keys; channel += GLA_LANES)
            sum += chunk.key(sums_q, row, channel);
        sum = sum_of_lanes(sum);
        if (lane_of_row == 0 && step + row < of.length) dlog_decay[of.row(step + row)] = sum;
    }
    if (of.delta) chunk.store_rows(rates, step, 1, 0, 1, ddelta, 1);
}
