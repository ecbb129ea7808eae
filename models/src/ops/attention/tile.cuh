// Tiles of attention (cuda.cu): rows of both sides, their products and sums in registers, scores by
// distance, and block masks.

#pragma once

#include "cuda/device.cuh"
#include "cuda/mma.cuh"
#include "cuda/philox.cuh"
#include "ops/attention/score_functions.cuh"

constexpr int OWN = 64;                             // own rows of a block
constexpr int WARPS = OWN / MMA_ROWS;               // of a block, each with 16 own rows
constexpr int ATTENTION_THREADS = 32 * WARPS;
constexpr int WIDE = 64;                            // channels of a head that are computed together
constexpr int WIDE_TILES = WIDE / MMA_COLUMNS;
constexpr int TILE = 32;                            // rows of the other side at a time
constexpr int STRIDE = OWN + 4;                     // of rows of the other side in `store_columns`
constexpr int SUM_THREADS = 256;                    // of attention_sum_rows
constexpr int NUMBERED = 1 << 22; // tiles that the dropout stream of an example has numbers for
constexpr unsigned NONE = 0xffffffffu;

/// Sizes and constants of a call.
struct Attention {
    int heads, queries, keys, width, values; // H, Lq, Lk, E, Ev
    float scale;
    ScoreFunctions functions;
    int drops;  // whether `stream` is used
    int single; // whether factors of products are rounded to tf32
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
    /// Returns the gradients of the keys' table for a key.
    __device__ float* of_key(int key) const {
        return gradients + ((size_t)blockIdx.y * keys + key - first) * columns();
    }
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
template <bool GENERAL>
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
    float of[4];
};

/// Returns the own row of the first (0) or second (1) row of a lane. The two are 16 apart, so that
/// their weights as keys take words of the same four.
__device__ inline int own_row(int half) {
    return warp() / 2 * 32 + half * 16 + warp() % 2 * 8 + lane() / 4;
}

/// Returns the column of number `i` of a lane's sums `tile`.
__device__ inline int column(int tile, int i) {
    return MMA_COLUMNS * tile + lane() % 4 * 2 + i % 2;
}

/// Returns the sum over the lanes that share own rows, in each of them. All lanes call it.
__device__ inline float sum_of_row(float value) {
    for (unsigned distance = 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}
__device__ inline float max_of_row(float value) {
    for (unsigned distance = 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/// Rows of up to WIDE channels in shared memory. Four channels of a row are neighbours; their order
/// depends on the row, so that no lanes of a fragment read from one bank.
struct SharedRows {
    float* numbers;
    int stride; // 32 or 64

    /// Returns the numbers that rows of `width` channels take.
    __device__ static int stride_of(int width) { return width > WIDE / 2 ? WIDE : WIDE / 2; }
    __device__ float* at(int row, int channel) const {
        return numbers + row * stride + (channel ^ row % 8 * 4);
    }
    __device__ float* end(int rows) const { return numbers + rows * stride; }

    /// Copies `width` channels of `count` rows, with zeros up to a multiple of 8 channels. Rows
    /// beyond the last become zeros.
    __device__ void load(const float* x, size_t pitch, const Rows& rows, int width, int count) const {
        const bool aligned = ((size_t)x / sizeof(float) | pitch | width) % 4 == 0;
        const int bits = stride == WIDE ? 4 : 3;
        for (int i = threadIdx.x; i < count << bits; i += ATTENTION_THREADS) {
            const int row = i >> bits, e = (i & ((1 << bits) - 1)) * 4;
            if (e >= (width + 7) / 8 * 8) continue;
            Four four{};
            const float* from = x;
            if (row < rows.count) from += rows.position(row) * pitch + e;
            const int here = row < rows.count ? width - e : 0;
            if (aligned && here > 0) four = *reinterpret_cast<const Four*>(from);
            if (!aligned) {
                UNROLL
                for (int c = 0; c < 4; ++c)
                    if (c < here) four.of[c] = from[c];
            }
            *reinterpret_cast<Four*>(at(row, e)) = four;
        }
    }
};

/// Adds the products of own rows and of the 8 `N` rows of a tile, over `width` channels.
template <int PARTS, int N>
__device__ inline void add_products(float (&sums)[N][4], const SharedRows& own,
                                    const SharedRows& tile, int width) {
    const int g = lane() / 4, t = lane() % 4;
    ROLLED
    for (int e = 0; e < width; e += MMA_DEPTH) {
        float a[4], b[N][2];
        UNROLL
        for (int i = 0; i < 4; ++i) a[i] = *own.at(own_row(i % 2), e + t + i / 2 * 4);
        UNROLL
        for (int n = 0; n < N; ++n)
            UNROLL
            for (int i = 0; i < 2; ++i) b[n][i] = *tile.at(MMA_COLUMNS * n + g, e + t + 4 * i);
        multiply_tiles<PARTS>(sums, a, b);
    }
}

/// Replaces sums by `rest` of them and Σ_j factors_j rows_j of a tile, of `width` channels. `rest`
/// has a number for each own row. The lane's factors in columns 2t and 2t + 1 are columns t and t +
/// 4 of A.
template <int PARTS, int N>
__device__ inline void add_rows(float (&sums)[WIDE_TILES][4], const float (&rest)[2],
                                const float (&factors)[N][4], const SharedRows& rows, int width) {
    constexpr int AT_ONCE = 2;
    const int g = lane() / 4;
    UNROLL
    for (int first = 0; first < WIDE_TILES; first += AT_ONCE) {
        if (MMA_COLUMNS * first >= width) continue;
        float of_tile[AT_ONCE][4] = {};
        UNROLL
        for (int j = 0; j < N; ++j) {
            const float a[4] = {factors[j][0], factors[j][2], factors[j][1], factors[j][3]};
            float b[AT_ONCE][2];
            UNROLL
            for (int n = 0; n < AT_ONCE; ++n) {
                const int channel = MMA_COLUMNS * (first + n);
                UNROLL
                for (int i = 0; i < 2; ++i)
                    b[n][i] = channel < width ? *rows.at(column(j, i), channel + g) : 0.0f;
            }
            multiply_tiles<PARTS>(of_tile, a, b);
        }
        UNROLL
        for (int n = 0; n < AT_ONCE; ++n)
            UNROLL
            for (int i = 0; i < 4; ++i)
                sums[first + n][i] = sums[first + n][i] * rest[i / 2] + of_tile[n][i];
    }
}

/// Writes the factors of own rows and of rows of a tile as columns of own rows.
template <int N>
__device__ inline void store_columns(float* to, const float (&factors)[N][4]) {
    UNROLL
    for (int j = 0; j < N; ++j)
        UNROLL
        for (int i = 0; i < 4; ++i) to[column(j, i) * STRIDE + own_row(i / 2)] = factors[j][i];
}

/// Writes the lane's sums of an own row of `width` channels, times `factor`.
__device__ inline void store_row(float* row, int width, const float (&sums)[WIDE_TILES][4], int half,
                                 float factor) {
    UNROLL
    for (int n = 0; n < WIDE_TILES; ++n)
        UNROLL
        for (int i = 0; i < 2; ++i)
            if (column(n, i) < width) row[column(n, i)] = factor * sums[n][2 * half + i];
}
