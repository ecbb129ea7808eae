// Softmax attention over all keys (mod.rs), in tiles, forward and backward:
//     s_ij = scale q_i·k_j,  w_ij = e^{s_ij - z_i},  z_i = log Σ_j e^{s_ij},  y_i = Σ_j m_ij w_ij v_j
//     t_i = dy_i·y_i,   g_ij = w_ij (m_ij dy_i·v_j - t_i)
//     dq_i = scale Σ_j g_ij k_j,   dk_j = scale Σ_i g_ij q_i,   dv_j = Σ_i m_ij w_ij dy_i
// q, y (B, Lq, H E), k, v (B, Lk, H E), z (B, H, Lq), E at most 64. Keys j with valid (B, Lk) of 0
// are not seen; queries of an example without a key get zeros. m is the dropout of weights, 0 or
// 1 / (1 - rate): weight (h, i, j) of example b takes word (h Lq + i) ⌈Lk / 64⌉ 64 + j of row b.
//
// Nothing of size Lq Lk is stored: weights are computed again from z. A block computes 64 rows of
// one side, its own, and takes the other side in tiles. Both products of a tile, the scores and the
// sums of rows, are computed in registers: thread (r, c) of 16 by 16 has its own rows 4 r to 4 r +
// 3, and of the other side rows c, c + 16, ... of scores, or channels 4 c to 4 c + 3 of sums. All
// sums are f32.

#include "cuda/device.cuh"
#include "cuda/philox.cuh"

constexpr int ATTENTION_THREADS = 256;
constexpr int SIDE = 16;         // threads along rows, and along columns
constexpr int EACH = 4;          // own rows, and channels, of a thread
constexpr int OWN = SIDE * EACH; // own rows of a block
constexpr int WIDE = SIDE * EACH; // most channels of a head
constexpr int STRIDE = OWN + 4;  // of channels, or rows of the other side, in tables of own rows

/// Sizes and constants of a call.
struct Attention {
    int heads, queries, keys, width; // H, Lq, Lk, E
    float scale;
    int drops; // whether `stream` is used
    Philox stream;

    __device__ int example() const { return blockIdx.y / heads; }
    __device__ int head() const { return blockIdx.y % heads; }
    /// Returns the distance between two positions of (B, L, H E).
    __device__ size_t pitch() const { return (size_t)heads * width; }
    /// Returns the block's example and head in (B, L, H E).
    __device__ size_t offset(int length) const {
        return example() * length * pitch() + head() * width;
    }
    __device__ bool sees(const float* valid, int key) const {
        return key < keys && (!valid || valid[(size_t)example() * keys + key] != 0.0f);
    }
    /// Returns the words of the weights of a query and keys `key`, modulo 16, of a group of 64.
    __device__ PhiloxWords words(int query, int key) const {
        const size_t row = (size_t)head() * queries + query;
        const size_t group = row * ((keys + 63) / 64) + key / 64;
        return philox(stream, example(), (unsigned)(group * 16 + key % 16));
    }
    __device__ float kept(const PhiloxWords& words, int key) const {
        return philox_factor(stream, words.word[key % 64 / 16]);
    }
};

/// Four numbers that are loaded and stored at once.
struct alignas(16) Four {
    float of[EACH];
};

__device__ inline int own_row() { return threadIdx.x / SIDE * EACH; }
__device__ inline int column() { return threadIdx.x % SIDE; }

/// Returns the sum over the threads that share own rows, in each of them. All lanes call it.
__device__ inline float sum_of_row(float value) {
    for (unsigned distance = SIDE / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}
__device__ inline float max_of_row(float value) {
    for (unsigned distance = SIDE / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/// Copies `count` rows from `first` on of a head as columns: number e of row i to `to[e stride +
/// i]`. Rows beyond `length` become zeros.
__device__ inline void load_columns(float* to, const float* x, const Attention& of, int first,
                                    int count, int stride, int length) {
    for (int i = threadIdx.x; i < count * of.width; i += ATTENTION_THREADS) {
        const int row = i / of.width, e = i % of.width;
        to[e * stride + row] = first + row < length ? x[(first + row) * of.pitch() + e] : 0.0f;
    }
}

/// Copies `count` rows of a head as rows of WIDE numbers, zeros beyond E and beyond `length`.
__device__ inline void load_rows(float* to, const float* x, const Attention& of, int first,
                                 int count, int length) {
    for (int i = threadIdx.x; i < count * WIDE; i += ATTENTION_THREADS) {
        const int row = i / WIDE, e = i % WIDE;
        to[i] = first + row < length && e < of.width ? x[(first + row) * of.pitch() + e] : 0.0f;
    }
}

/// Adds the products of own rows and rows `column() + 16 j` of a tile, both stored as columns.
template <int COLUMNS>
__device__ inline void add_products(float (&sums)[EACH][COLUMNS], const float* own,
                                    const float* tile, int stride, int width) {
    for (int e = 0; e < width; ++e) {
        const Four a = *reinterpret_cast<const Four*>(own + e * STRIDE + own_row());
        for (int j = 0; j < COLUMNS; ++j) {
            const float b = tile[e * stride + column() + SIDE * j];
            for (int i = 0; i < EACH; ++i) sums[i][j] += a.of[i] * b;
        }
    }
}

/// Adds Σ_j factors_j rows_j of a tile to channels `4 column()` on of own rows. `factors` (count)
/// are columns of own rows.
__device__ inline void add_rows(float (&sums)[EACH][EACH], const float* factors, const float* rows,
                                int count) {
    for (int j = 0; j < count; ++j) {
        const Four a = *reinterpret_cast<const Four*>(factors + j * STRIDE + own_row());
        const Four b = *reinterpret_cast<const Four*>(rows + j * WIDE + EACH * column());
        for (int i = 0; i < EACH; ++i)
            for (int c = 0; c < EACH; ++c) sums[i][c] += a.of[i] * b.of[c];
    }
}

/// Writes the factors of own rows and of rows `column() + 16 j` of a tile as columns of own rows.
template <int COLUMNS>
__device__ inline void store_factors(float* to, const float (&factors)[EACH][COLUMNS]) {
    for (int j = 0; j < COLUMNS; ++j) {
        Four four;
        for (int i = 0; i < EACH; ++i) four.of[i] = factors[i][j];
        *reinterpret_cast<Four*>(to + (column() + SIDE * j) * STRIDE + own_row()) = four;
    }
}

/// Writes own row i of a block that begins at `first`, times `factor`.
__device__ inline void store_row(float* x, const Attention& of, int row, const float (&sums)[EACH],
                                 float factor) {
    for (int c = 0; c < EACH; ++c) {
        const int e = EACH * column() + c;
        if (e < of.width) x[row * of.pitch() + e] = factor * sums[c];
    }
}

// Grid (⌈L / 64⌉, B H), block 256, L of the side whose rows are written. Dynamic shared memory in
// numbers: 2 · 68 E + 64 · 64 + 64 · 68 forward, and with tiles of 32 rows 2 · 68 E + 2 · 36 E +
// 32 (64 + 68), twice the last for keys, backward.

/// Computes y and z.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_forward(const float* q, const float* k, const float* v, const float* valid, float* y,
                      float* z, Attention of) {
    constexpr int TILE = 64, COLUMNS = TILE / SIDE;
    DYNAMIC_SHARED(float, shared);
    float *own = shared, *tile_k = own + STRIDE * of.width, *tile_v = tile_k + STRIDE * of.width;
    float* factors = tile_v + TILE * WIDE;
    const int first = blockIdx.x * OWN;
    const size_t queries = of.offset(of.queries), keys = of.offset(of.keys);
    load_columns(own, q + queries, of, first, OWN, STRIDE, of.queries);
    float sums[EACH][EACH] = {}, totals[EACH] = {}, largest[EACH];
    for (int i = 0; i < EACH; ++i) largest[i] = -INFINITY;
    for (int start = 0; start < of.keys; start += TILE) {
        __syncthreads();
        load_columns(tile_k, k + keys, of, start, TILE, STRIDE, of.keys);
        load_rows(tile_v, v + keys, of, start, TILE, of.keys);
        __syncthreads();
        float weights[EACH][COLUMNS] = {};
        add_products(weights, own, tile_k, STRIDE, of.width);
        bool seen[COLUMNS];
        for (int j = 0; j < COLUMNS; ++j) seen[j] = of.sees(valid, start + column() + SIDE * j);
        for (int i = 0; i < EACH; ++i) {
            float most = largest[i];
            for (int j = 0; j < COLUMNS; ++j) {
                weights[i][j] = seen[j] ? of.scale * weights[i][j] : -INFINITY;
                most = fmaxf(most, weights[i][j]);
            }
            most = max_of_row(most);
            // Before the first key that is seen there is nothing to scale.
            const float rest = most == -INFINITY ? 1.0f : expf(largest[i] - most);
            float total = 0.0f;
            for (int j = 0; j < COLUMNS; ++j) {
                weights[i][j] = seen[j] ? expf(weights[i][j] - most) : 0.0f;
                total += weights[i][j];
            }
            largest[i] = most;
            totals[i] = totals[i] * rest + sum_of_row(total);
            for (int c = 0; c < EACH; ++c) sums[i][c] *= rest;
            if (of.drops) {
                const int key = start + column();
                const PhiloxWords words = of.words(first + own_row() + i, key);
                for (int j = 0; j < COLUMNS; ++j)
                    weights[i][j] *= of.kept(words, key + SIDE * j);
            }
        }
        store_factors(factors, weights);
        __syncthreads();
        add_rows(sums, factors, tile_v, TILE);
    }
    for (int i = 0; i < EACH; ++i) {
        const int query = first + own_row() + i;
        if (query >= of.queries) continue;
        store_row(y + queries, of, query, sums[i], totals[i] > 0.0f ? 1.0f / totals[i] : 0.0f);
        if (column() == 0)
            z[(size_t)blockIdx.y * of.queries + query] = largest[i] + logf(totals[i]);
    }
}

constexpr int TILE = 32;             // rows of the other side at a time, backward
constexpr int COLUMNS = TILE / SIDE; // of a thread
constexpr int NARROW = TILE + 4;     // stride of channels in a tile

/// Replaces score and product dy·v of a query and a key by g and m w, both 0 if the query does not
/// see the key.
__device__ inline void differentiate(const Attention& of, bool seen, float z, float t, float kept,
                                     float& score, float& product) {
    const bool none = !seen || z == -INFINITY;
    const float weight = none ? 0.0f : expf(of.scale * score - z);
    score = none ? 0.0f : weight * (kept * product - t);
    product = kept * weight;
}

/// Computes dq, and t (B, H, Lq) for attention_backward_keys.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_backward_queries(const float* q, const float* k, const float* v, const float* valid,
                               const float* y, const float* z, const float* dy, float* dq, float* t,
                               Attention of) {
    DYNAMIC_SHARED(float, shared);
    float *own_q = shared, *own_dy = own_q + STRIDE * of.width;
    float *tile_k = own_dy + STRIDE * of.width, *tile_v = tile_k + NARROW * of.width;
    float *rows_k = tile_v + NARROW * of.width, *factors = rows_k + TILE * WIDE;
    const int first = blockIdx.x * OWN;
    const size_t queries = of.offset(of.queries), keys = of.offset(of.keys);
    load_columns(own_q, q + queries, of, first, OWN, STRIDE, of.queries);
    load_columns(own_dy, dy + queries, of, first, OWN, STRIDE, of.queries);
    __syncthreads();
    float sums[EACH][EACH] = {}, dots[EACH], logs[EACH];
    for (int i = 0; i < EACH; ++i) {
        const int row = own_row() + i, query = first + row;
        float product = 0.0f;
        if (query < of.queries)
            for (int e = column(); e < of.width; e += SIDE)
                product += own_dy[e * STRIDE + row] * y[queries + query * of.pitch() + e];
        dots[i] = sum_of_row(product);
        const size_t at = (size_t)blockIdx.y * of.queries + query;
        logs[i] = query < of.queries ? z[at] : -INFINITY;
        if (query < of.queries && column() == 0) t[at] = dots[i];
    }
    for (int start = 0; start < of.keys; start += TILE) {
        __syncthreads();
        load_columns(tile_k, k + keys, of, start, TILE, NARROW, of.keys);
        load_columns(tile_v, v + keys, of, start, TILE, NARROW, of.keys);
        load_rows(rows_k, k + keys, of, start, TILE, of.keys);
        __syncthreads();
        float scores[EACH][COLUMNS] = {}, products[EACH][COLUMNS] = {};
        add_products(scores, own_q, tile_k, NARROW, of.width);
        add_products(products, own_dy, tile_v, NARROW, of.width);
        const int key = start + column();
        for (int i = 0; i < EACH; ++i) {
            PhiloxWords words{};
            if (of.drops) words = of.words(first + own_row() + i, key);
            for (int j = 0; j < COLUMNS; ++j)
                differentiate(of, of.sees(valid, key + SIDE * j), logs[i], dots[i],
                              of.drops ? of.kept(words, key + SIDE * j) : 1.0f, scores[i][j],
                              products[i][j]);
        }
        store_factors(factors, scores);
        __syncthreads();
        add_rows(sums, factors, rows_k, TILE);
    }
    for (int i = 0; i < EACH; ++i) {
        const int query = first + own_row() + i;
        if (query < of.queries) store_row(dq + queries, of, query, sums[i], of.scale);
    }
}

/// Computes dk and dv, from t of attention_backward_queries. Hidden keys get zeros.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_backward_keys(const float* q, const float* k, const float* v, const float* valid,
                            const float* z, const float* t, const float* dy, float* dk, float* dv,
                            Attention of) {
    DYNAMIC_SHARED(float, shared);
    float *own_k = shared, *own_v = own_k + STRIDE * of.width;
    float *tile_q = own_v + STRIDE * of.width, *tile_dy = tile_q + NARROW * of.width;
    float *rows_q = tile_dy + NARROW * of.width, *rows_dy = rows_q + TILE * WIDE;
    float *gradients = rows_dy + TILE * WIDE, *weights = gradients + TILE * STRIDE;
    const int first = blockIdx.x * OWN;
    const size_t queries = of.offset(of.queries), keys = of.offset(of.keys);
    load_columns(own_k, k + keys, of, first, OWN, STRIDE, of.keys);
    load_columns(own_v, v + keys, of, first, OWN, STRIDE, of.keys);
    bool seen[EACH];
    for (int i = 0; i < EACH; ++i) seen[i] = of.sees(valid, first + own_row() + i);
    float sums_k[EACH][EACH] = {}, sums_v[EACH][EACH] = {};
    for (int start = 0; start < of.queries; start += TILE) {
        __syncthreads();
        load_columns(tile_q, q + queries, of, start, TILE, NARROW, of.queries);
        load_columns(tile_dy, dy + queries, of, start, TILE, NARROW, of.queries);
        load_rows(rows_q, q + queries, of, start, TILE, of.queries);
        load_rows(rows_dy, dy + queries, of, start, TILE, of.queries);
        __syncthreads();
        float scores[EACH][COLUMNS] = {}, products[EACH][COLUMNS] = {};
        add_products(scores, own_k, tile_q, NARROW, of.width);
        add_products(products, own_v, tile_dy, NARROW, of.width);
        for (int j = 0; j < COLUMNS; ++j) {
            const int query = start + column() + SIDE * j;
            const size_t at = (size_t)blockIdx.y * of.queries + query;
            const float log = query < of.queries ? z[at] : -INFINITY;
            const float dot = query < of.queries ? t[at] : 0.0f;
            for (int i = 0; i < EACH; ++i) {
                const int key = first + own_row() + i;
                const float kept = of.drops ? of.kept(of.words(query, key), key) : 1.0f;
                differentiate(of, seen[i], log, dot, kept, scores[i][j], products[i][j]);
            }
        }
        store_factors(gradients, scores);
        store_factors(weights, products);
        __syncthreads();
        add_rows(sums_k, gradients, rows_q, TILE);
        add_rows(sums_v, weights, rows_dy, TILE);
    }
    for (int i = 0; i < EACH; ++i) {
        const int key = first + own_row() + i;
        if (key >= of.keys) continue;
        store_row(dk + keys, of, key, sums_k[i], of.scale);
        store_row(dv + keys, of, key, sums_v[i], 1.0f);
    }
}
