// Softmax attention (mod.rs), in tiles, forward and backward:
//     s_ij = cap(scale q_i·k_j + a_ij) + d_ij,  w_ij = e^{s_ij - z_i},  z_i = log Σ_j e^{s_ij}
//     y_i = Σ_j m_ij w_ij v_j,  t_i = dy_i·y_i,  g_ij = cap'_ij w_ij (m_ij dy_i·v_j - t_i)
//     dq_i = scale Σ_j g_ij k_j,   dk_j = scale Σ_i g_ij q_i,   dv_j = Σ_i m_ij w_ij dy_i,   da_ij = g_ij
// q (B, Lq, H E), k (B, Lk, H E), v (B, Lk, H Ev), y (B, Lq, H Ev), z (B, H, Lq). Keys j with valid
// (B, Lk) of 0 are not seen; queries without a key get zeros. m is the dropout of weights, 0 or
// 1 / (1 - rate): weight (h, i, j) of example b takes word (h Lq + i) ⌈Lk / 64⌉ 64 + j of row b.
//
// The plain kernels have every query see every key, no a, d and cap, and E = Ev of at most 64. The
// general ones have additions a by distance, a cap c tanh(s / c), heads of any width, and block
// masks: lists of tiles of at most 64 queries by 64 keys at any positions, with additions d. The
// weight of query i and key j of tile n of a mask, both counted within the tile, takes word
// ((h ⌊2²² / H⌋ + n) 64 + i) 64 + j.
//
// Nothing of size Lq Lk is stored: weights are computed again from z. A block computes 64 rows of
// one side, its own, and takes the other side in tiles. Both products of a tile, the scores and the
// sums of rows, are computed in registers: thread (r, c) of 16 by 16 has its own rows 4 r to 4 r +
// 3, and of the other side rows c, c + 16, ... of scores, or channels 4 c to 4 c + 3 of sums.
// Blocks that share own rows have 64 channels of the sums each, and compute the same scores. All
// sums are f32.

#include "ops/attention/tile.cuh"

/// Computes y and z. A block has channels 64 blockIdx.z on of y.
template <bool GENERAL>
__device__ inline void forward(const float* q, const float* k, const float* v, const float* valid,
                               float* y, float* z, const Attention& of, const Distances& by,
                               const Blocks& blocks, float* shared) {
    constexpr int TILE = 64, COLUMNS = TILE / SIDE;
    const int part = GENERAL ? min(of.width, WIDE) : of.width;
    float *own = shared, *tile_k = own + STRIDE * part, *tile_v = tile_k + STRIDE * part;
    float* factors = tile_v + TILE * WIDE;
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.queries - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const bool parts = GENERAL && of.width > WIDE;
    const int slice = GENERAL ? blockIdx.z * WIDE : 0, channels = of.values - slice;
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * of.values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, of.values) + slice;
    y += of.offset(of.queries, of.values) + slice;
    if (!parts) load_columns(own, q, pitch, rows, of.width, OWN, STRIDE);
    float sums[EACH][EACH] = {}, totals[EACH] = {}, largest[EACH];
    UNROLL
    for (int i = 0; i < EACH; ++i) largest[i] = -INFINITY;
    for (Tiles<GENERAL, TILE> tile(blocks, block, of.keys); tile.more(); tile.next()) {
        float weights[EACH][COLUMNS] = {};
        for (int e = 0; e < of.width; e += part) {
            const int width = min(part, of.width - e);
            __syncthreads();
            if (parts) load_columns(own, q + e, pitch, rows, width, OWN, STRIDE);
            load_columns(tile_k, k + e, pitch, tile.rows, width, TILE, STRIDE);
            if (e == 0) load_rows(tile_v, v, pitch_v, tile.rows, channels, TILE);
            __syncthreads();
            add_products(weights, own, tile_k, STRIDE, width);
        }
        UNROLL
        for (int j = 0; j < COLUMNS; ++j) {
            const int row = column() + SIDE * j;
            const bool has = row < tile.rows.count;
            const int key = has ? tile.rows.position(row) : 0;
            const bool seen = has && of.valid_key(valid, key);
            UNROLL
            for (int i = 0; i < EACH; ++i) {
                float score = of.scale * weights[i][j];
                if (GENERAL && seen && own_row() + i < rows.count) {
                    if (by.keys > 0) score += by.of(of, rows.position(own_row() + i), key);
                    if (of.cap > 0.0f) score = of.cap * tanhf(score / of.cap);
                    const int query = rows.first + own_row() + i;
                    score = tile.sees(query, tile.begin + row)
                                ? score + tile.addition(query, tile.begin + row)
                                : -INFINITY;
                }
                weights[i][j] = seen ? score : -INFINITY;
            }
        }
        UNROLL
        for (int i = 0; i < EACH; ++i) {
            float most = largest[i];
            UNROLL
            for (int j = 0; j < COLUMNS; ++j) most = fmaxf(most, weights[i][j]);
            most = max_of_row(most);
            // Before the first key that is seen there is nothing to scale.
            const bool none = most == -INFINITY;
            const float rest = none ? 1.0f : expf(largest[i] - most);
            float total = 0.0f;
            UNROLL
            for (int j = 0; j < COLUMNS; ++j) {
                weights[i][j] = none ? 0.0f : expf(weights[i][j] - most);
                total += weights[i][j];
            }
            largest[i] = most;
            totals[i] = totals[i] * rest + sum_of_row(total);
            UNROLL
            for (int c = 0; c < EACH; ++c) sums[i][c] *= rest;
            if (of.drops) {
                const int key = tile.begin + column();
                const PhiloxWords words = tile.words(of, rows.first + own_row() + i, key);
                UNROLL
                for (int j = 0; j < COLUMNS; ++j)
                    weights[i][j] *= of.kept(words, key + SIDE * j);
            }
        }
        store_factors(factors, weights);
        __syncthreads();
        add_rows(sums, factors, tile_v, TILE);
    }
    UNROLL
    for (int i = 0; i < EACH; ++i) {
        if (own_row() + i >= rows.count) continue;
        const int query = rows.position(own_row() + i);
        const float factor = totals[i] > 0.0f ? 1.0f / totals[i] : 0.0f;
        store_row(y + query * pitch_v, channels, sums[i], factor);
        if (column() == 0 && slice == 0)
            z[(size_t)blockIdx.y * of.queries + query] = largest[i] + logf(totals[i]);
    }
}

/// Replaces product q·k and product dy·v of a query and a key by g and m w, both 0 if the query
/// does not see the key. Queries and keys are given by position and by index.
template <bool GENERAL, class Tile>
__device__ inline void differentiate(const Attention& of, const Distances& by, const Tile& tile,
                                     bool seen, int query, int key, int query_index, int key_index,
                                     float z, float t, float kept, float& score, float& product) {
    const bool none = !seen || z == -INFINITY;
    float sum = of.scale * score, slope = 1.0f;
    if (GENERAL && !none) {
        if (by.keys > 0) sum += by.of(of, query, key);
        if (of.cap > 0.0f) {
            const float bend = tanhf(sum / of.cap);
            sum = of.cap * bend;
            slope = 1.0f - bend * bend;
        }
        sum = tile.sees(query_index, key_index) ? sum + tile.addition(query_index, key_index)
                                                : -INFINITY;
    }
    const float weight = none ? 0.0f : expf(sum - z);
    score = none ? 0.0f : slope * weight * (kept * product - t);
    product = kept * weight;
}

/// Gradients at both ends of a table, to which the pairs of many distances add.
struct Ends {
    float low = 0.0f, high = 0.0f;

    /// Adds a gradient to the number of its distance, or keeps it until `store`.
    __device__ void add(float* row, int reach, int distance, float gradient) {
        if (distance <= -reach)
            low += gradient;
        else if (distance >= reach)
            high += gradient;
        else
            row[distance + reach] += gradient;
    }
    __device__ void store(float* row, int reach) const {
        row[0] += low;
        row[2 * reach] += high;
    }
    /// Stores the sums over the threads that share own rows. All lanes call it.
    __device__ void store_sums(bool has, float* row, int reach) const {
        const Ends sums{sum_of_row(low), sum_of_row(high)};
        if (has && column() == 0) sums.store(row, reach);
    }
};

/// Adds the gradients of a tile to those of the heads' table by distance: thread d has the pairs of
/// row j of the tile and own row j + 63 - d. Positions of both sides are neighbours.
__device__ inline void add_diagonal(Ends& ends, float* row, const float* gradients,
                                    const Distances& by, int first_query, int first_key) {
    const int d = threadIdx.x;
    if (d >= OWN + BACK - 1) return;
    const int start = max(max(0, d - (OWN - 1)), by.first - first_key);
    const int end = min(min(BACK, d + 1), by.first + by.keys - first_key);
    float sum = 0.0f;
    for (int j = start; j < end; ++j) sum += gradients[j * STRIDE + j + OWN - 1 - d];
    if (start < end)
        ends.add(row, by.reach, by.between(first_query + OWN - 1 - d, first_key), sum);
}

/// Computes dq, t (B, H, Lq), and the gradients of the heads' and the queries' tables. A block has
/// channels 64 blockIdx.z on of dq.
template <bool GENERAL>
__device__ inline void backward_queries(const float* q, const float* k, const float* v,
                                        const float* valid, const float* y, const float* z,
                                        const float* dy, float* dq, float* t, const Attention& of,
                                        const Distances& by, const Blocks& blocks, float* shared) {
    constexpr int COLUMNS = BACK / SIDE;
    const int part = GENERAL ? min(of.width, WIDE) : of.width;
    const int part_v = GENERAL ? min(of.values, WIDE) : of.width;
    float *own_q = shared, *own_dy = own_q + STRIDE * part;
    float *tile_k = own_dy + STRIDE * part_v, *tile_v = tile_k + NARROW * part;
    float *rows_k = tile_v + NARROW * part_v, *factors = rows_k + BACK * WIDE;
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.queries - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const int values = GENERAL ? of.values : of.width;
    const bool parts = GENERAL && max(of.width, values) > WIDE;
    const int slice = GENERAL ? blockIdx.z * WIDE : 0;
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, values);
    y += of.offset(of.queries, values);
    dy += of.offset(of.queries, values);
    if (!parts) {
        load_columns(own_q, q, pitch, rows, of.width, OWN, STRIDE);
        load_columns(own_dy, dy, pitch_v, rows, values, OWN, STRIDE);
    }
    float sums[EACH][EACH] = {}, dots[EACH], logs[EACH];
    UNROLL
    for (int i = 0; i < EACH; ++i) {
        const bool has = own_row() + i < rows.count;
        const int query = has ? rows.position(own_row() + i) : 0;
        float product = 0.0f;
        for (int e = column(); has && e < values; e += SIDE)
            product += dy[query * pitch_v + e] * y[query * pitch_v + e];
        dots[i] = sum_of_row(product);
        const size_t at = (size_t)blockIdx.y * of.queries + query;
        logs[i] = has ? z[at] : -INFINITY;
        if (has && column() == 0 && slice == 0) t[at] = dots[i];
    }
    // The tables' gradients are written by the blocks of the first channels.
    const bool of_rows = GENERAL && by.gradients && slice == 0;
    const bool of_columns = GENERAL && by.parts && slice == 0;
    const size_t example = (size_t)of.example() * gridDim.x + blockIdx.x;
    float* diagonals = by.parts + (example * of.heads + of.head()) * by.columns();
    Ends ends;
    for (Tiles<GENERAL, BACK> tile(blocks, block, of.keys); tile.more(); tile.next()) {
        float scores[EACH][COLUMNS] = {}, products[EACH][COLUMNS] = {};
        for (int e = 0; e < max(of.width, values); e += WIDE) {
            const int width = min(part, of.width - e), width_v = min(part_v, values - e);
            __syncthreads();
            if (parts && width > 0)
                load_columns(own_q, q + e, pitch, rows, width, OWN, STRIDE);
            if (parts && width_v > 0)
                load_columns(own_dy, dy + e, pitch_v, rows, width_v, OWN, STRIDE);
            if (width > 0) load_columns(tile_k, k + e, pitch, tile.rows, width, BACK, NARROW);
            if (width_v > 0) load_columns(tile_v, v + e, pitch_v, tile.rows, width_v, BACK, NARROW);
            if (e == 0) load_rows(rows_k, k + slice, pitch, tile.rows, of.width - slice, BACK);
            __syncthreads();
            add_products(scores, own_q, tile_k, NARROW, width);
            add_products(products, own_dy, tile_v, NARROW, width_v);
        }
        const int first_key = tile.begin + column();
        UNROLL
        for (int i = 0; i < EACH; ++i) {
            const int index = rows.first + own_row() + i;
            const int query = own_row() + i < rows.count ? rows.position(own_row() + i) : 0;
            const bool has_row = own_row() + i < rows.count;
            float* gradients = by.gradients;
            if (of_rows) gradients += ((size_t)blockIdx.y * of.queries + query) * by.columns();
            Ends row_ends;
            PhiloxWords words{};
            if (of.drops) words = tile.words(of, index, first_key);
            UNROLL
            for (int j = 0; j < COLUMNS; ++j) {
                const int row = column() + SIDE * j;
                const bool has = row < tile.rows.count;
                const int key = has ? tile.rows.position(row) : 0;
                differentiate<GENERAL>(of, by, tile, has && of.valid_key(valid, key), query, key,
                                       index, first_key + SIDE * j, logs[i], dots[i],
                                       of.drops ? of.kept(words, first_key + SIDE * j) : 1.0f,
                                       scores[i][j], products[i][j]);
                if (of_rows && has && has_row && by.has(key))
                    row_ends.add(gradients, by.reach, by.between(query, key), scores[i][j]);
            }
            if (of_rows) row_ends.store_sums(has_row, gradients, by.reach);
        }
        store_factors(factors, scores);
        __syncthreads();
        add_rows(sums, factors, rows_k, BACK);
        if (of_columns)
            add_diagonal(ends, diagonals, factors, by, rows.position(0), tile.rows.position(0));
    }
    UNROLL
    for (int i = 0; i < EACH; ++i) {
        if (own_row() + i < rows.count)
            store_row(dq + of.offset(of.queries, of.width) + slice +
                          rows.position(own_row() + i) * pitch,
                      of.width - slice, sums[i], of.scale);
    }
    if (!of_columns) return;
    __syncthreads();
    const Ends of_block{block_sum(ends.low, factors), block_sum(ends.high, factors)};
    if (threadIdx.x == 0) of_block.store(diagonals, by.reach);
}

/// Computes dk and dv from t, and the gradients of the keys' table. Hidden keys get zeros. In the
/// general form a block has channels of one: 64 blockIdx.z on of dk, then those of dv.
template <bool GENERAL>
__device__ inline void backward_keys(const float* q, const float* k, const float* v,
                                     const float* valid, const float* z, const float* t,
                                     const float* dy, float* dk, float* dv, const Attention& of,
                                     const Distances& by, const Blocks& blocks, float* shared) {
    constexpr int COLUMNS = BACK / SIDE;
    const int values = GENERAL ? of.values : of.width;
    const int part = GENERAL ? min(of.width, WIDE) : of.width;
    const int part_v = GENERAL ? min(values, WIDE) : of.width;
    float *own_k = shared, *own_v = own_k + STRIDE * part;
    float *tile_q = own_v + STRIDE * part_v, *tile_dy = tile_q + NARROW * part;
    float *gradients = tile_dy + NARROW * part_v, *rows_q = gradients + BACK * STRIDE;
    float *weights = rows_q + BACK * WIDE, *rows_dy = weights + BACK * STRIDE;
    const bool has_k = !GENERAL || (int)blockIdx.z * WIDE < of.width;
    const int slice = !GENERAL ? 0
                      : has_k  ? blockIdx.z * WIDE
                               : (blockIdx.z - (of.width + WIDE - 1) / WIDE) * WIDE;
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.keys - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const bool parts = GENERAL && max(of.width, values) > WIDE;
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, values);
    dy += of.offset(of.queries, values);
    if (!parts) {
        load_columns(own_k, k, pitch, rows, of.width, OWN, STRIDE);
        load_columns(own_v, v, pitch_v, rows, values, OWN, STRIDE);
    }
    const bool of_rows = GENERAL && by.gradients && blockIdx.z == 0;
    // In the general form `sums` are those of dk or of dv.
    float sums[EACH][EACH] = {}, sums_v[EACH][EACH] = {};
    for (Tiles<GENERAL, BACK> tile(blocks, block, of.queries); tile.more(); tile.next()) {
        float scores[EACH][COLUMNS] = {}, products[EACH][COLUMNS] = {};
        for (int e = 0; e < max(of.width, values); e += WIDE) {
            const int width = min(part, of.width - e), width_v = min(part_v, values - e);
            __syncthreads();
            if (parts && width > 0)
                load_columns(own_k, k + e, pitch, rows, width, OWN, STRIDE);
            if (parts && width_v > 0)
                load_columns(own_v, v + e, pitch_v, rows, width_v, OWN, STRIDE);
            if (width > 0) load_columns(tile_q, q + e, pitch, tile.rows, width, BACK, NARROW);
            if (width_v > 0)
                load_columns(tile_dy, dy + e, pitch_v, tile.rows, width_v, BACK, NARROW);
            if (e == 0 && has_k)
                load_rows(rows_q, q + slice, pitch, tile.rows, of.width - slice, BACK);
            if (e == 0 && (!GENERAL || !has_k))
                load_rows(GENERAL ? rows_q : rows_dy, dy + slice, pitch_v, tile.rows,
                          values - slice, BACK);
            __syncthreads();
            add_products(scores, own_k, tile_q, NARROW, width);
            if (has_k) add_products(products, own_v, tile_dy, NARROW, width_v);
        }
        UNROLL
        for (int j = 0; j < COLUMNS; ++j) {
            const int row = column() + SIDE * j, index = tile.begin + row;
            const bool has = row < tile.rows.count;
            const int query = has ? tile.rows.position(row) : 0;
            const size_t at = (size_t)blockIdx.y * of.queries + query;
            const float log = has ? z[at] : -INFINITY, dot = has ? t[at] : 0.0f;
            UNROLL
            for (int i = 0; i < EACH; ++i) {
                const int key_index = rows.first + own_row() + i;
                const bool has_key = own_row() + i < rows.count;
                const int key = has_key ? rows.position(own_row() + i) : 0;
                const bool seen = has_key && of.valid_key(valid, key);
                const float kept =
                    of.drops ? of.kept(tile.words(of, index, key_index), key_index) : 1.0f;
                differentiate<GENERAL>(of, by, tile, seen, query, key, index, key_index, log,
                                       dot, kept, scores[i][j], products[i][j]);
                if (!of_rows) continue;
                const bool has_row = seen && by.has(key);
                float* gradient = by.gradients;
                if (has_row)
                    gradient += ((size_t)blockIdx.y * by.keys + key - by.first) * by.columns();
                Ends row_ends;
                if (has_row && has)
                    row_ends.add(gradient, by.reach, by.between(query, key), scores[i][j]);
                row_ends.store_sums(has_row, gradient, by.reach);
            }
        }
        if (!GENERAL || has_k) store_factors(gradients, scores);
        if (!GENERAL || !has_k) store_factors(GENERAL ? gradients : weights, products);
        __syncthreads();
        add_rows(sums, gradients, rows_q, BACK);
        if (!GENERAL) add_rows(sums_v, weights, rows_dy, BACK);
    }
    const int length = GENERAL && blocks.all ? blocks.rows : of.keys;
    dk += of.offset(length, of.width) + slice;
    dv += of.offset(length, values) + slice;
    UNROLL
    for (int i = 0; i < EACH; ++i) {
        if (own_row() + i >= rows.count) continue;
        int target = rows.position(own_row() + i);
        if (GENERAL && blocks.all) target = rows.at[blocks.targets + own_row() + i];
        if (has_k) store_row(dk + target * pitch, of.width - slice, sums[i], of.scale);
        if (!GENERAL) store_row(dv + target * pitch_v, values, sums_v[i], 1.0f);
        if (!has_k) store_row(dv + target * pitch_v, values - slice, sums[i], 1.0f);
    }
}

// Grid (⌈L / 64⌉, B H), block 256, L of the side whose rows are written. Dynamic shared memory in
// numbers: 2 · 68 E + 64 · 64 + 64 · 68 forward, and with tiles of 32 rows (68 + 36) (E + Ev) +
// 32 (64 + 68) backward, twice the last for keys in the plain form; 64 stands for a larger E or Ev.

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_forward(const float* q, const float* k, const float* v, const float* valid, float* y,
                      float* z, Attention of) {
    DYNAMIC_SHARED(float, shared);
    forward<false>(q, k, v, valid, y, z, of, {}, {}, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_backward_queries(const float* q, const float* k, const float* v, const float* valid,
                               const float* y, const float* z, const float* dy, float* dq, float* t,
                               Attention of) {
    DYNAMIC_SHARED(float, shared);
    backward_queries<false>(q, k, v, valid, y, z, dy, dq, t, of, {}, {}, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_backward_keys(const float* q, const float* k, const float* v, const float* valid,
                            const float* z, const float* t, const float* dy, float* dk, float* dv,
                            Attention of) {
    DYNAMIC_SHARED(float, shared);
    backward_keys<false>(q, k, v, valid, z, t, dy, dk, dv, of, {}, {}, shared);
}

// General forms. The grid's third size is ⌈Ev / 64⌉ forward, ⌈E / 64⌉ for queries, and the sum of
// both for keys. With block masks its first size is the most blocks of a mask.

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_general_forward(const float* q, const float* k, const float* v, const float* valid,
                              float* y, float* z, Attention of, Distances by, Blocks blocks) {
    DYNAMIC_SHARED(float, shared);
    forward<true>(q, k, v, valid, y, z, of, by, blocks, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_general_backward_queries(const float* q, const float* k, const float* v,
                                       const float* valid, const float* y, const float* z,
                                       const float* dy, float* dq, float* t, Attention of,
                                       Distances by, Blocks blocks) {
    DYNAMIC_SHARED(float, shared);
    backward_queries<true>(q, k, v, valid, y, z, dy, dq, t, of, by, blocks, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_general_backward_keys(const float* q, const float* k, const float* v,
                                    const float* valid, const float* z, const float* t,
                                    const float* dy, float* dk, float* dv, Attention of,
                                    Distances by, Blocks blocks) {
    DYNAMIC_SHARED(float, shared);
    backward_keys<true>(q, k, v, valid, z, t, dy, dk, dv, of, by, blocks, shared);
}

/// Adds up rows of `parts` (B, rows, H W) that belong to one position: row j of head i of B H of x
/// (B, length, H W) has rows `slots[starts[j]]` to `slots[starts[j + 1] - 1]`, both of mask i mod
/// `masks`; `starts` (masks, length + 1) and `slots` are parts of `all`. Grid (⌈length W / 256⌉,
/// B H), block 256.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_sum_rows(const float* parts, float* x, const unsigned* all, int starts, int slots,
                       int masks, int heads, int width, int length, int rows) {
    const int i = blockIdx.x * ATTENTION_THREADS + threadIdx.x, row = i / width, e = i % width;
    if (row >= length) return;
    const unsigned* range = all + starts + (size_t)(blockIdx.y % masks) * (length + 1) + row;
    const size_t example = blockIdx.y / heads, pitch = (size_t)heads * width;
    const size_t channel = (size_t)(blockIdx.y % heads) * width + e;
    float sum = 0.0f;
    for (unsigned slot = range[0]; slot < range[1]; ++slot)
        sum += parts[(example * rows + all[slots + slot]) * pitch + channel];
    x[(example * length + row) * pitch + channel] = sum;
}
