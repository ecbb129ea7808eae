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
// one side, its own, and takes the other side in tiles. Each of its 4 warps has 16 own rows. It
// computes the scores of a tile by tensor cores (cuda/mma.cuh), into registers of which a lane has
// two own rows and every fourth pair of columns. The weights that they become are a factor of the
// sums of rows as they lie there. Blocks that share own rows have 64 channels of the sums each, and
// compute the same scores. All sums are f32.

#include "ops/attention/tile.cuh"

/// Adds the products of own rows and of a tile (`add_products`), with factors of the call's
/// precision.
template <int N>
__device__ inline void add_products(const Attention& of, float (&sums)[N][4], const SharedRows& own,
                                    const SharedRows& tile, int width) {
    if (of.single)
        add_products<1>(sums, own, tile, width);
    else
        add_products<2>(sums, own, tile, width);
}

/// Adds rows of a tile (`add_rows`), with factors of the call's precision.
template <int N>
__device__ inline void add_rows(const Attention& of, float (&sums)[WIDE_TILES][4],
                                const float (&rest)[2], const float (&factors)[N][4],
                                const SharedRows& rows, int width) {
    if (of.single)
        add_rows<1>(sums, rest, factors, rows, width);
    else
        add_rows<2>(sums, rest, factors, rows, width);
}

/// The parts of 64 channels of a head, in an order that ends with that of the block, which is then
/// in shared memory.
struct Parts {
    int width, last;

    __device__ int count() const { return (width + WIDE - 1) / WIDE; }
    /// Returns the first channel of part number `n`.
    __device__ int channel(int n) const { return (last + 1 + n) % count() * WIDE; }
    /// Returns the channels of the part that begins with a channel.
    __device__ int channels(int channel) const { return min(WIDE, width - channel); }
};

/// The lowest finite number, below every score that is seen: differences to it are numbers even
/// before the first key, and a score of NaN stays one.
constexpr float LOWEST = -3.40282347e38f;

/// Computes y and z. A block has channels 64 blockIdx.z on of y.
template <bool GENERAL>
__device__ inline void forward(const float* q, const float* k, const float* v, const float* valid,
                               float* y, float* z, const Attention& of, const Distances& by,
                               const Blocks& blocks, float* shared) {
    constexpr int COLUMNS = TILE / MMA_COLUMNS;
    const SharedRows own{shared, SharedRows::stride_of(of.width)};
    const SharedRows tile_k{own.end(OWN), own.stride};
    const SharedRows tile_v{tile_k.end(TILE), SharedRows::stride_of(of.values)};
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.queries - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const Parts parts{of.width, 0};
    const int slice = GENERAL ? blockIdx.z * WIDE : 0, channels = min(WIDE, of.values - slice);
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * of.values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, of.values) + slice;
    y += of.offset(of.queries, of.values) + slice;
    const int count = GENERAL ? parts.count() : 1;
    if (count == 1) own.load(q, pitch, rows, of.width, OWN);
    float sums[WIDE_TILES][4] = {}, totals[2] = {}, largest[2] = {LOWEST, LOWEST};
    for (Tiles<GENERAL> tile(blocks, block, of.keys); tile.more(); tile.next()) {
        float weights[COLUMNS][4] = {};
        ROLLED
        for (int n = 0; n < count; ++n) {
            const int e = GENERAL ? parts.channel(n) : 0;
            const int width = GENERAL ? parts.channels(e) : of.width;
            __syncthreads();
            if (count > 1) own.load(q + e, pitch, rows, width, OWN);
            tile_k.load(k + e, pitch, tile.rows, width, TILE);
            if (n == 0) tile_v.load(v, pitch_v, tile.rows, channels, TILE);
            __syncthreads();
            add_products(of, weights, own, tile_k, width);
        }
        UNROLL
        for (int j = 0; j < COLUMNS; ++j)
            UNROLL
            for (int b = 0; b < 2; ++b) {
                IN_ORDER;
                const int row = column(j, b);
                const bool has = row < tile.rows.count;
                const int key = has ? tile.rows.position(row) : 0;
                const bool seen = has && of.valid_key(valid, key);
                UNROLL
                for (int half = 0; half < 2; ++half) {
                    float score = of.scale * weights[j][2 * half + b];
                    if (GENERAL && seen && own_row(half) < rows.count) {
                        if (by.keys > 0) score += by.of(of, rows.position(own_row(half)), key);
                        score = of.functions.of(score);
                        const int query = rows.first + own_row(half);
                        score = tile.sees(query, tile.begin + row)
                                    ? score + tile.addition(query, tile.begin + row)
                                    : -INFINITY;
                    }
                    weights[j][2 * half + b] = seen ? score : -INFINITY;
                }
            }
        float rest[2];
        UNROLL
        for (int half = 0; half < 2; ++half) {
            float most = largest[half];
            UNROLL
            for (int j = 0; j < COLUMNS; ++j)
                most = fmaxf(most, fmaxf(weights[j][2 * half], weights[j][2 * half + 1]));
            most = max_of_row(most);
            rest[half] = expf(largest[half] - most);
            float total = 0.0f;
            UNROLL
            for (int j = 0; j < COLUMNS; ++j)
                UNROLL
                for (int b = 0; b < 2; ++b) {
                    float& weight = weights[j][2 * half + b];
                    weight = expf(weight - most);
                    total += weight;
                }
            largest[half] = most;
            totals[half] = totals[half] * rest[half] + sum_of_row(total);
            if (!of.drops) continue;
            UNROLL
            for (int first = 0; first < 4; ++first) {
                // Columns 16 apart take words of the same four.
                const int key = tile.begin + column(first / 2, first);
                const PhiloxWords words = tile.words(of, rows.first + own_row(half), key);
                UNROLL
                for (int j = first / 2; j < COLUMNS; j += 2)
                    weights[j][2 * half + first % 2] *=
                        of.kept(words, tile.begin + column(j, first));
            }
        }
        add_rows(of, sums, rest, weights, tile_v, channels);
    }
    UNROLL
    for (int half = 0; half < 2; ++half) {
        if (own_row(half) >= rows.count) continue;
        const int query = rows.position(own_row(half));
        // A sum of NaN stays one.
        const float factor = totals[half] == 0.0f ? 0.0f : 1.0f / totals[half];
        store_row(y + query * pitch_v, channels, sums, half, factor);
        if (lane() % 4 == 0 && slice == 0)
            z[(size_t)blockIdx.y * of.queries + query] = largest[half] + logf(totals[half]);
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
        sum = of.functions.of(sum, slope);
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
        if (has && lane() % 4 == 0) sums.store(row, reach);
    }
};

/// Adds the gradients of a tile to those of the heads' table by distance: thread d has the pairs of
/// row j of the tile and own row j + 63 - d. Positions of both sides are neighbours.
__device__ inline void add_diagonal(Ends& ends, float* row, const float* gradients,
                                    const Distances& by, int first_query, int first_key) {
    const int d = threadIdx.x;
    if (d >= OWN + TILE - 1) return;
    const int start = max(max(0, d - (OWN - 1)), by.first - first_key);
    const int end = min(min(TILE, d + 1), by.first + by.keys - first_key);
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
    constexpr int COLUMNS = TILE / MMA_COLUMNS;
    const int values = GENERAL ? of.values : of.width;
    const SharedRows own_q{shared, SharedRows::stride_of(of.width)};
    const SharedRows own_dy{own_q.end(OWN), SharedRows::stride_of(values)};
    const SharedRows tile_k{own_dy.end(OWN), own_q.stride}, tile_v{tile_k.end(TILE), own_dy.stride};
    float* columns = tile_v.end(TILE); // only where the heads' table has gradients
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.queries - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const int slice = GENERAL ? blockIdx.z * WIDE : 0, channels = min(WIDE, of.width - slice);
    const Parts parts{of.width, slice / WIDE}, parts_v{values, 0};
    const int count = GENERAL ? max(parts.count(), parts_v.count()) : 1;
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, values);
    y += of.offset(of.queries, values);
    dy += of.offset(of.queries, values);
    if (count == 1) {
        own_q.load(q, pitch, rows, of.width, OWN);
        own_dy.load(dy, pitch_v, rows, values, OWN);
    }
    float sums[WIDE_TILES][4] = {}, dots[2], logs[2];
    UNROLL
    for (int half = 0; half < 2; ++half) {
        const bool has = own_row(half) < rows.count;
        const int query = has ? rows.position(own_row(half)) : 0;
        float product = 0.0f;
        for (int e = lane() % 4; has && e < values; e += 4)
            product += dy[query * pitch_v + e] * y[query * pitch_v + e];
        dots[half] = sum_of_row(product);
        const size_t at = (size_t)blockIdx.y * of.queries + query;
        logs[half] = has ? z[at] : -INFINITY;
        if (has && lane() % 4 == 0 && slice == 0) t[at] = dots[half];
    }
    // The tables' gradients are written by the blocks of the first channels.
    const bool of_rows = GENERAL && by.gradients && slice == 0;
    const bool of_columns = GENERAL && by.parts && slice == 0;
    const size_t example = (size_t)of.example() * gridDim.x + blockIdx.x;
    float* diagonals = by.parts + (example * of.heads + of.head()) * by.columns();
    Ends ends;
    for (Tiles<GENERAL> tile(blocks, block, of.keys); tile.more(); tile.next()) {
        float scores[COLUMNS][4] = {}, products[COLUMNS][4] = {};
        ROLLED
        for (int n = 0; n < count; ++n) {
            const bool has_k = !GENERAL || n < parts.count();
            const bool has_v = !GENERAL || n < parts_v.count();
            const int e = GENERAL ? parts.channel(n) : 0, e_v = GENERAL ? parts_v.channel(n) : 0;
            const int width = GENERAL ? parts.channels(e) : of.width;
            const int width_v = GENERAL ? parts_v.channels(e_v) : of.width;
            __syncthreads();
            if (count > 1 && has_k) own_q.load(q + e, pitch, rows, width, OWN);
            if (count > 1 && has_v) own_dy.load(dy + e_v, pitch_v, rows, width_v, OWN);
            if (has_k) tile_k.load(k + e, pitch, tile.rows, width, TILE);
            if (has_v) tile_v.load(v + e_v, pitch_v, tile.rows, width_v, TILE);
            __syncthreads();
            if (has_k) add_products(of, scores, own_q, tile_k, width);
            if (has_v) add_products(of, products, own_dy, tile_v, width_v);
        }
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const int index = rows.first + own_row(half);
            const bool has_row = own_row(half) < rows.count;
            const int query = has_row ? rows.position(own_row(half)) : 0;
            float* gradients = by.gradients;
            if (of_rows) gradients += ((size_t)blockIdx.y * of.queries + query) * by.columns();
            Ends row_ends;
            UNROLL
            for (int first = 0; first < 4; ++first) {
                PhiloxWords words{};
                if (of.drops) words = tile.words(of, index, tile.begin + column(first / 2, first));
                UNROLL
                for (int j = first / 2; j < COLUMNS; j += 2) {
                    IN_ORDER;
                    const int row = column(j, first), number = 2 * half + first % 2;
                    const bool has = row < tile.rows.count;
                    const int key = has ? tile.rows.position(row) : 0;
                    differentiate<GENERAL>(of, by, tile, has && of.valid_key(valid, key), query, key,
                                           index, tile.begin + row, logs[half], dots[half],
                                           of.drops ? of.kept(words, tile.begin + row) : 1.0f,
                                           scores[j][number], products[j][number]);
                    if (of_rows && has && has_row && by.has(key))
                        row_ends.add(gradients, by.reach, by.between(query, key), scores[j][number]);
                }
            }
            if (of_rows) row_ends.store_sums(has_row, gradients, by.reach);
        }
        add_rows(of, sums, {1.0f, 1.0f}, scores, tile_k, channels);
        if (of_columns) {
            store_columns(columns, scores);
            __syncthreads();
            add_diagonal(ends, diagonals, columns, by, rows.position(0), tile.rows.position(0));
        }
    }
    UNROLL
    for (int half = 0; half < 2; ++half) {
        if (own_row(half) < rows.count)
            store_row(dq + of.offset(of.queries, of.width) + slice +
                          rows.position(own_row(half)) * pitch,
                      channels, sums, half, of.scale);
    }
    if (!of_columns) return;
    __syncthreads();
    const Ends of_block{block_sum(ends.low, columns), block_sum(ends.high, columns)};
    if (threadIdx.x == 0) of_block.store(diagonals, by.reach);
}

/// Computes dk and dv from t, and the gradients of the keys' table. Hidden keys get zeros. In the
/// general form a block has channels of one: 64 blockIdx.z on of dk, then those of dv.
template <bool GENERAL>
__device__ inline void backward_keys(const float* q, const float* k, const float* v,
                                     const float* valid, const float* z, const float* t,
                                     const float* dy, float* dk, float* dv, const Attention& of,
                                     const Distances& by, const Blocks& blocks, float* shared) {
    constexpr int COLUMNS = TILE / MMA_COLUMNS;
    const int values = GENERAL ? of.values : of.width;
    const SharedRows own_k{shared, SharedRows::stride_of(of.width)};
    const SharedRows own_v{own_k.end(OWN), SharedRows::stride_of(values)};
    const SharedRows tile_q{own_v.end(OWN), own_k.stride}, tile_dy{tile_q.end(TILE), own_v.stride};
    const int slices = (of.width + WIDE - 1) / WIDE;
    const bool of_k = !GENERAL || (int)blockIdx.z < slices, of_v = !GENERAL || !of_k;
    const int slice = GENERAL ? (of_k ? blockIdx.z : blockIdx.z - slices) * WIDE : 0;
    Rows rows{nullptr, (int)blockIdx.x * OWN, of.keys - (int)blockIdx.x * OWN};
    const unsigned* block = nullptr;
    if (GENERAL && blocks.all) {
        block = blocks.block();
        if (!block) return;
        rows = blocks.rows_of(block);
    }
    const Parts parts{of.width, of_k ? slice / WIDE : 0}, parts_v{values, of_k ? 0 : slice / WIDE};
    const int count = GENERAL ? max(parts.count(), parts_v.count()) : 1;
    const int channels = min(WIDE, (of_k ? of.width : values) - slice);
    const size_t pitch = (size_t)of.heads * of.width, pitch_v = (size_t)of.heads * values;
    q += of.offset(of.queries, of.width);
    k += of.offset(of.keys, of.width);
    v += of.offset(of.keys, values);
    dy += of.offset(of.queries, values);
    if (count == 1) {
        own_k.load(k, pitch, rows, of.width, OWN);
        own_v.load(v, pitch_v, rows, values, OWN);
    }
    const bool of_rows = GENERAL && by.gradients && blockIdx.z == 0;
    // In the general form `sums` are those of dk or of dv.
    float sums[WIDE_TILES][4] = {}, sums_v[WIDE_TILES][4] = {};
    for (Tiles<GENERAL> tile(blocks, block, of.queries); tile.more(); tile.next()) {
        float scores[COLUMNS][4] = {}, products[COLUMNS][4] = {};
        ROLLED
        for (int n = 0; n < count; ++n) {
            const bool has_k = !GENERAL || n < parts.count();
            const bool has_v = !GENERAL || n < parts_v.count();
            const int e = GENERAL ? parts.channel(n) : 0, e_v = GENERAL ? parts_v.channel(n) : 0;
            const int width = GENERAL ? parts.channels(e) : of.width;
            const int width_v = GENERAL ? parts_v.channels(e_v) : of.width;
            __syncthreads();
            if (count > 1 && has_k) own_k.load(k + e, pitch, rows, width, OWN);
            if (count > 1 && has_v) own_v.load(v + e_v, pitch_v, rows, width_v, OWN);
            if (has_k) tile_q.load(q + e, pitch, tile.rows, width, TILE);
            if (has_v) tile_dy.load(dy + e_v, pitch_v, tile.rows, width_v, TILE);
            __syncthreads();
            if (has_k) add_products(of, scores, own_k, tile_q, width);
            if (has_v && of_k) add_products(of, products, own_v, tile_dy, width_v);
        }
        Ends row_ends[2];
        const int first_key = rows.first + own_row(0);
        UNROLL
        for (int j = 0; j < COLUMNS; ++j)
            UNROLL
            for (int b = 0; b < 2; ++b) {
                IN_ORDER;
                const int row = column(j, b), index = tile.begin + row;
                const bool has = row < tile.rows.count;
                const int query = has ? tile.rows.position(row) : 0;
                const size_t at = (size_t)blockIdx.y * of.queries + query;
                const float log = has ? z[at] : -INFINITY, dot = has ? t[at] : 0.0f;
                PhiloxWords words{};
                if (of.drops) words = tile.words(of, index, first_key);
                UNROLL
                for (int half = 0; half < 2; ++half) {
                    const int key_index = rows.first + own_row(half), number = 2 * half + b;
                    const bool has_key = own_row(half) < rows.count;
                    const int key = has_key ? rows.position(own_row(half)) : 0;
                    const bool seen = has_key && of.valid_key(valid, key);
                    differentiate<GENERAL>(of, by, tile, seen, query, key, index, key_index, log,
                                           dot, of.drops ? of.kept(words, key_index) : 1.0f,
                                           scores[j][number], products[j][number]);
                    if (of_rows && seen && has && by.has(key))
                        row_ends[half].add(by.of_key(key), by.reach, by.between(query, key),
                                           scores[j][number]);
                }
            }
        UNROLL
        for (int half = 0; half < 2; ++half) {
            if (!of_rows) continue;
            const bool has_key = own_row(half) < rows.count;
            const int key = has_key ? rows.position(own_row(half)) : 0;
            const bool seen = has_key && of.valid_key(valid, key) && by.has(key);
            row_ends[half].store_sums(seen, by.of_key(seen ? key : by.first), by.reach);
        }
        if (of_k) add_rows(of, sums, {1.0f, 1.0f}, scores, tile_q, channels);
        if (of_v) add_rows(of, GENERAL ? sums : sums_v, {1.0f, 1.0f}, products, tile_dy, channels);
    }
    const int length = GENERAL && blocks.all ? blocks.rows : of.keys;
    dk += of.offset(length, of.width) + slice;
    dv += of.offset(length, values) + slice;
    UNROLL
    for (int half = 0; half < 2; ++half) {
        if (own_row(half) >= rows.count) continue;
        int target = rows.position(own_row(half));
        if (GENERAL && blocks.all) target = rows.at[blocks.targets + own_row(half)];
        if (of_k) store_row(dk + target * pitch, channels, sums, half, of.scale);
        if (of_v)
            store_row(dv + target * pitch_v, channels, GENERAL ? sums : sums_v, half, 1.0f);
    }
}

// Grid (⌈L / 64⌉, B H), block 128, L of the side whose rows are written. Dynamic shared memory in
// numbers, where a row of a head takes 32, or from 33 channels on 64, written [E]: (64 + 32) [E] +
// 32 [Ev] forward, and (64 + 32) ([E] + [Ev]) backward.

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3)
    attention_forward(const float* q, const float* k, const float* v, const float* valid, float* y,
                      float* z, Attention of) {
    DYNAMIC_SHARED(float, shared);
    forward<false>(q, k, v, valid, y, z, of, {}, {}, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3)
    attention_backward_queries(const float* q, const float* k, const float* v, const float* valid,
                               const float* y, const float* z, const float* dy, float* dq, float* t,
                               Attention of) {
    DYNAMIC_SHARED(float, shared);
    backward_queries<false>(q, k, v, valid, y, z, dy, dq, t, of, {}, {}, shared);
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3)
    attention_backward_keys(const float* q, const float* k, const float* v, const float* valid,
                            const float* z, const float* t, const float* dy, float* dk, float* dv,
                            Attention of) {
    DYNAMIC_SHARED(float, shared);
    backward_keys<false>(q, k, v, valid, z, t, dy, dk, dv, of, {}, {}, shared);
}

// General forms. The grid's third size is ⌈Ev / 64⌉ forward, ⌈E / 64⌉ for queries, and the sum of
// both for keys. With block masks its first size is the most blocks of a mask. Gradients of the
// heads' table take 32 · 68 more numbers of shared memory.

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3)
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
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    attention_sum_rows(const float* parts, float* x, const unsigned* all, int starts, int slots,
                       int masks, int heads, int width, int length, int rows) {
    const int i = blockIdx.x * SUM_THREADS + threadIdx.x, row = i / width, e = i % width;
    if (row >= length) return;
    const unsigned* range = all + starts + (size_t)(blockIdx.y % masks) * (length + 1) + row;
    const size_t example = blockIdx.y / heads, pitch = (size_t)heads * width;
    const size_t channel = (size_t)(blockIdx.y % heads) * width + e;
    float sum = 0.0f;
    for (unsigned slot = range[0]; slot < range[1]; ++slot)
        sum += parts[(example * rows + all[slots + slot]) * pitch + channel];
    x[(example * length + row) * pitch + channel] = sum;
}
