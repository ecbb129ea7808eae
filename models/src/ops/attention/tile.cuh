// Tiles of attention (cuda.cu): rows of both sides, their products and sums in registers, scores by
// distance, and block masks.

#pragma once

#include "cuda/device.cuh"
#include "cuda/philox.cuh"

constexpr int ATTENTION_THREADS = 256;
constexpr int SIDE = 16;          // threads along rows, and along columns
constexpr int EACH = 4;           // own rows, and channels, of a thread
constexpr int OWN = SIDE * EACH;  // own rows of a block
constexpr int WIDE = SIDE * EACH; // channels of a head that are computed together
constexpr int STRIDE = OWN + 4;   // of channels, or rows of the other side, in tables of own rows
constexpr int BACK = 32;          // rows of the other side at a time, backward
constexpr int NARROW = BACK + 4;  // stride of channels in a tile, backward
constexpr int NUMBERED = 1 << 22; // tiles that the dropout stream of an example has numbers for
constexpr unsigned NONE = 0xffffffffu;

/// Sizes and constants of a call.
struct Attention {
    int heads, queries, keys, width, values; // H, Lq, Lk, E, Ev
    float scale;
    float cap; // c of c tanh(s / c), or 0
    int drops; // whether `stream` is used
    Philox stream;

    __device__ int example() const { return blockIdx.y / heads; }
    __device__ int head() const { return blockIdx.y % heads; }
    /// Returns the block's example and head in (B, L, H W).
    __device__ size_t offset(int length, int width) const {
        return ((size_t)example() * length * heads + head()) * width;
    }
    __device__ bool valid_key(const float* valid, int key) const {
        return !valid || valid[(size_t)example() * keys + key] != 0.0f;
    }
    __device__ float kept(const PhiloxWords& words, int key) const {
        return philox_factor(stream, words.word[key % 64 / 16]);
    }
};

/// Additions to scores by distance j - i, cut off at the reach R, of query i and of key j counted
/// from the first of the keys that have a position.
struct Distances {
    const float *of_heads, *of_queries, *of_keys; // (H, C), (B, H, Lq, C), (B, H, keys, C); C = 2R + 1
    float* parts;                                 // (B, blocks of queries, H, C), gradients of of_heads
    float* gradients;                             // of of_queries, or of of_keys
    int reach, first, keys;

    __device__ int columns() const { return 2 * reach + 1; }
    __device__ bool has(int key) const { return key >= first && key < first + keys; }
    __device__ int between(int query, int key) const { return key - first - query; }
    /// Returns the addition to the score of a pair.
    __device__ float of(const Attention& call, int query, int key) const {
        if (!has(key)) return 0.0f;
        const int column = max(-reach, min(reach, between(query, key))) + reach;
        float sum = 0.0f;
        if (of_heads) sum += of_heads[(size_t)call.head() * columns() + column];
        if (of_queries)
            sum += of_queries[((size_t)blockIdx.y * call.queries + query) * columns() + column];
        if (of_keys) sum += of_keys[((size_t)blockIdx.y * keys + key - first) * columns() + column];
        return sum;
    }
};

/// Rows of one side: those at positions `at`, or all from `first` on.
struct Rows {
    const unsigned* at;
    int first, count;

    __device__ int position(int row) const { return at ? (int)at[row] : first + row; }
    __device__ Rows from(int row) const {
        return {at ? at + row : nullptr, first + row, count - row};
    }
};

/// The block masks of all heads (`BlockMasks`), as one side sees them: for each mask its blocks
/// of own rows, for each block its tiles. Offsets are into `all`; head i of B H has mask i mod
/// `masks`.
struct Blocks {
    const unsigned* all; // null: every query sees every key
    int masks;
    int starts;    // (masks + 1) first block of each mask
    int own;       // (blocks, 4) place and number of own positions, first tile and end of its tiles
    int tiles;     // (tiles, 4) place and number of other positions, ranges or NONE, number
    int positions; // of both sides
    int targets;   // rows of gradients, where they are not the positions, beside them
    int ranges;    // of a tile, for each key: from, to and diagonal of the queries that see it
    int rows;      // rows of gradients of an example
    float diagonal;

    /// Returns the block's entry, or null where its head has fewer blocks.
    __device__ const unsigned* block() const {
        const unsigned* start = all + starts + blockIdx.y % masks;
        const unsigned number = start[0] + blockIdx.x;
        return number < start[1] ? all + own + 4 * (size_t)number : nullptr;
    }
    __device__ Rows rows_of(const unsigned* entry) const {
        return {all + positions + entry[0], 0, (int)entry[1]};
    }
};

/// The tiles that a block walks through, of `TILE` rows of the other side.
template <bool GENERAL, int TILE>
struct Tiles {
    const Blocks& blocks;
    Rows rows;              // of the present tile
    int begin = 0;          // index of its first row: a position, or a number within a block of a mask
    unsigned ranges = NONE; // place of its ranges
    unsigned number = 0;
    unsigned entry = 0, end = 0;

    __device__ Tiles(const Blocks& blocks, const unsigned* block, int length)
        : blocks(blocks), rows{nullptr, 0, length} {
        if (!GENERAL || !block) return;
        entry = block[2];
        end = block[3];
        rows.count = 0;
        if (entry < end) read();
    }
    __device__ void read() {
        const unsigned* tile = blocks.all + blocks.tiles + 4 * (size_t)entry;
        rows = blocks.rows_of(tile);
        ranges = tile[2];
        number = tile[3];
        begin = 0;
    }
    __device__ bool more() const { return rows.count > 0; }
    __device__ void next() {
        rows = rows.from(TILE);
        begin += TILE;
        if (GENERAL && rows.count <= 0 && entry < end && ++entry < end) read();
    }
    /// Returns whether a query sees a key, both given by index.
    __device__ bool sees(int query, int key) const {
        if (!GENERAL || ranges == NONE) return true;
        const unsigned range = blocks.all[blocks.ranges + ranges + key];
        return (unsigned)query - (range & 255) < (range >> 8 & 255) - (range & 255);
    }
    /// Returns what a mask adds to the score of a pair.
    __device__ float addition(int query, int key) const {
        if (!GENERAL || ranges == NONE) return 0.0f;
        const unsigned range = blocks.all[blocks.ranges + ranges + key];
        return (int)(range >> 16) == query ? blocks.diagonal : 0.0f;
    }
    /// Returns the words of the weights of a query and keys `key`, modulo 16, of a group of 64.
    __device__ PhiloxWords words(const Attention& of, int query, int key) const {
        const size_t groups = (of.keys + 63) / 64;
        size_t group = ((size_t)of.head() * of.queries + query) * groups + key / 64;
        if (GENERAL && blocks.all)
            group = ((size_t)of.head() * (NUMBERED / of.heads) + number) * 64 + query;
        return philox(of.stream, of.example(), (unsigned)(group * 16 + key % 16));
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

/// Copies `width` numbers of `count` rows as columns: number e of row i to `to[e stride + i]`. Rows
/// beyond the last become zeros.
__device__ inline void load_columns(float* to, const float* x, size_t pitch, const Rows& rows,
                                    int width, int count, int stride) {
    for (int i = threadIdx.x; i < count * width; i += ATTENTION_THREADS) {
        const int row = i / width, e = i % width;
        to[e * stride + row] = row < rows.count ? x[rows.position(row) * pitch + e] : 0.0f;
    }
}

/// Copies `count` rows as rows of WIDE numbers, zeros beyond `width` and beyond the last row.
__device__ inline void load_rows(float* to, const float* x, size_t pitch, const Rows& rows,
                                 int width, int count) {
    for (int i = threadIdx.x; i < count * WIDE; i += ATTENTION_THREADS) {
        const int row = i / WIDE, e = i % WIDE;
        to[i] = row < rows.count && e < width ? x[rows.position(row) * pitch + e] : 0.0f;
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

/// Writes the thread's channels of a row of `width` numbers, times `factor`.
__device__ inline void store_row(float* row, int width, const float (&sums)[EACH], float factor) {
    for (int c = 0; c < EACH; ++c) {
        const int e = EACH * column() + c;
        if (e < width) row[e] = factor * sums[c];
    }
}
