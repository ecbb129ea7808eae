// Softmax attention beside its formula, with all weights in memory, in f64.

#include "check.h"
#include "ops/attention/cuda.cu"

/// The word of a weight, drawn alone.
__global__ void draw(Philox stream, unsigned example, unsigned block, PhiloxWords* words) {
    *words = philox(stream, example, block);
}

using Words = Array<unsigned>;

/// A block of keys that a block of queries sees; for each key from, to and diagonal, or nothing.
struct Tile {
    size_t keys;
    std::vector<unsigned> ranges;
};

/// The block mask of a head: positions of its blocks, and the tiles of each block of queries.
struct Mask {
    std::vector<std::vector<unsigned>> queries, keys;
    std::vector<std::vector<Tile>> tiles;
};

constexpr unsigned ALL = 64 << 8 | 255 << 16; // all 64 queries, no diagonal

/// Returns blocks of `size` neighbours that see their own and the next block, the former causally.
Mask local(int queries, int keys, int size) {
    Mask mask;
    for (int first = 0; first < keys; first += size) {
        mask.keys.emplace_back();
        for (int j = first; j < std::min(first + size, keys); ++j) mask.keys.back().push_back(j);
    }
    for (int first = 0; first < queries; first += size) {
        mask.queries.emplace_back();
        mask.tiles.emplace_back();
        for (int i = first; i < std::min(first + size, queries); ++i)
            mask.queries.back().push_back(i);
        const size_t block = first / size;
        if (block < mask.keys.size()) {
            mask.tiles.back().push_back({block, {}});
            for (size_t j = 0; j < mask.keys[block].size(); ++j)
                mask.tiles.back().back().ranges.push_back(j | 64 << 8 | 255 << 16);
        }
        if (block + 1 < mask.keys.size()) mask.tiles.back().push_back({block + 1, {}});
    }
    return mask;
}

/// Returns blocks of every third position but the last, the keys of all overlapping those of a
/// block of the first keys; some queries are in no block, and some pairs in two tiles.
Mask strided(int queries, int keys, int shift) {
    Mask mask;
    mask.keys.emplace_back();
    for (int j = 0; j < std::min(keys, 50); ++j) mask.keys.back().push_back((j + shift) % keys);
    for (int first = 0; first < 2; ++first) {
        std::vector<unsigned> of_queries, of_keys;
        for (int j = first + shift; j < keys && of_keys.size() < 64; j += 3) of_keys.push_back(j);
        for (int i = first; i < queries && of_queries.size() < 64; i += 3) of_queries.push_back(i);
        if (of_queries.empty()) continue;
        mask.queries.push_back(of_queries);
        mask.tiles.push_back({{0, {}}});
        if (of_keys.empty()) continue;
        Tile tile{mask.keys.size(), {}};
        for (unsigned j = 0; j < of_keys.size(); ++j)
            tile.ranges.push_back(j % 5 == 0 ? ALL : j / 2 | (j / 2 + 20) << 8 | j << 16);
        mask.keys.push_back(of_keys);
        mask.tiles.back().push_back(tile);
    }
    return mask;
}

/// A pair of query and key: what is added to its score, and the word that drops it.
struct Pair {
    int key;
    double addition;
    size_t word;
};

/// Tables of `masks` in the layout of Blocks, for the side of queries (0) and of keys (1).
struct Tables {
    Words words[2], slots;
    Blocks of[2];
    int starts_at = 0, slots_at = 0;

    Tables(const std::vector<Mask>& masks, int keys, float diagonal) {
        for (bool by_key : {false, true}) {
            Words starts{0}, own, tiles, positions, targets, ranges;
            auto place = [&](const std::vector<unsigned>& block) {
                positions.insert(positions.end(), block.begin(), block.end());
                return unsigned(positions.size() - block.size());
            };
            unsigned rows = 0, most = 0;
            for (const Mask& mask : masks) {
                unsigned row = 0;
                for (size_t b = 0; b < (by_key ? mask.keys : mask.queries).size(); ++b) {
                    const auto& block = (by_key ? mask.keys : mask.queries)[b];
                    const unsigned at = place(block), first = tiles.size() / 4;
                    targets.resize(positions.size());
                    for (size_t i = 0; i < block.size(); ++i) targets[at + i] = row++;
                    unsigned number = 0;
                    for (size_t c = 0; c < mask.queries.size(); ++c)
                        for (const Tile& tile : mask.tiles[c]) {
                            const unsigned present = number++;
                            if (b != (by_key ? tile.keys : c)) continue;
                            const auto& other = by_key ? mask.queries[c] : mask.keys[tile.keys];
                            const unsigned range = tile.ranges.empty() ? NONE : ranges.size();
                            ranges.insert(ranges.end(), tile.ranges.begin(), tile.ranges.end());
                            for (unsigned word : {place(other), unsigned(other.size()), range, present})
                                tiles.push_back(word);
                        }
                    for (unsigned word : {at, unsigned(block.size()), first, unsigned(tiles.size() / 4)})
                        own.push_back(word);
                }
                starts.push_back(own.size() / 4);
                rows = std::max(rows, row);
                most = std::max(most, starts.back() - starts[starts.size() - 2]);
            }
            targets.resize(positions.size());
            Words& all = words[by_key];
            int places[6], next = 0;
            for (const Words* part : {&starts, &own, &tiles, &positions, &targets, &ranges}) {
                places[next++] = all.size();
                all.insert(all.end(), part->begin(), part->end());
            }
            of[by_key] = {all.data(), int(masks.size()), places[0],   places[1],
                          places[2],  places[3],         places[4] - places[3], places[5],
                          int(rows),  diagonal};
            blocks[by_key] = most;
        }
        // The slots of each key.
        Words starts, list;
        for (const Mask& mask : masks)
            for (int key = 0; key <= keys; ++key) {
                starts.push_back(list.size());
                unsigned row = 0;
                for (const auto& block : mask.keys)
                    for (unsigned position : block) {
                        if (int(position) == key) list.push_back(row);
                        ++row;
                    }
            }
        slots = starts;
        slots_at = slots.size();
        slots.insert(slots.end(), list.begin(), list.end());
    }
    unsigned blocks[2];
};

/// A comparison; a reach below 0 means no additions by distance.
struct Case {
    int batch, heads, queries, keys, width;
    bool masked = false, drops = false;
    int values = 0; // 0 for `width`
    int reach = -1, first = 0, placed = 0;
    bool of_heads = false, of_queries = false, of_keys = false;
    float cap = 0.0f;
    std::vector<Mask> masks = {};
    bool general = false;
    bool single = false; // factors in tf32
};

void check(const Case& now) {
    const int batch = now.batch, heads = now.heads, queries = now.queries, keys = now.keys;
    const int width = now.width, values = now.values ? now.values : width;
    const bool sparse = !now.masks.empty(), placed = now.reach >= 0;
    const bool general =
        now.general || sparse || placed || now.cap > 0 || values != width || width > WIDE;
    const float scale = 1 / std::sqrt(float(width)), diagonal = -1.5f;
    const size_t all = size_t(batch) * heads, rows = all * queries;
    const size_t of_q = rows * width, of_k = all * keys * width, of_v = all * keys * values;
    const Floats q = random(of_q, -3, 3), k = random(of_k, -3, 3), v = random(of_v);
    const Floats dy = random(rows * values);
    Floats valid(size_t(batch) * keys), dk = unwritten(of_k), dv = unwritten(of_v);
    Floats z = unwritten(rows), t = unwritten(rows);
    // Queries in no block of a mask are not written: zeros are asked for.
    Floats y = sparse ? Floats(rows * values) : unwritten(rows * values);
    Floats dq = sparse ? Floats(of_q) : unwritten(of_q);
    // The last example sees no key.
    for (size_t i = 0; i < valid.size(); ++i)
        valid[i] = i < size_t(batch - 1) * keys && uniform() > -0.5;
    const Philox stream{3, 4, 10, 2, 3, unsigned(0.25 * 4294967296.0), float(1 / 0.75)};
    const Attention of{heads, queries, keys, width, values, scale, {now.cap}, now.drops, now.single,
                       stream};
    const float* seen = now.masked ? valid.data() : nullptr;
    const size_t columns = placed ? 2 * now.reach + 1 : 0;
    const Floats of_heads = random(now.of_heads * heads * columns, -2, 2);
    const Floats of_queries = random(now.of_queries * rows * columns, -2, 2);
    const Floats of_keys = random(now.of_keys * all * now.placed * columns, -2, 2);
    auto pointer = [](auto& x) { return x.empty() ? nullptr : x.data(); };
    Tables tables(now.masks, keys, diagonal);
    const unsigned query_blocks = sparse ? tables.blocks[0] : blocks(queries, OWN);
    const unsigned key_blocks = sparse ? tables.blocks[1] : blocks(keys, OWN);
    Floats parts(now.of_heads * batch * query_blocks * heads * columns);
    Floats d_queries(of_queries.size()), d_keys(of_keys.size());
    Distances by{};
    if (placed)
        by = {pointer(of_heads), pointer(of_queries), pointer(of_keys), pointer(parts),
              pointer(d_queries), now.reach, now.first, now.placed};
    Blocks by_query{}, by_key{};
    if (sparse) by_query = tables.of[0], by_key = tables.of[1];

    const dim3 block{ATTENTION_THREADS};
    const size_t number = sizeof(float), row = width > 32 ? 64 : 32, row_v = values > 32 ? 64 : 32;
    const size_t forward = number * (96 * row + 32 * row_v);
    const size_t backward = number * 96 * (row + row_v);
    const size_t backward_table = backward + number * (now.of_heads ? 32 * 68 : 0);
    const unsigned slices = blocks(width, WIDE), slices_v = blocks(values, WIDE), grid_y = all;
    if (general) {
        launch(attention_general_forward, dim3{query_blocks, grid_y, slices_v}, block, forward,
               q.data(), k.data(), v.data(), seen, y.data(), z.data(), of, by, by_query);
        launch(attention_general_backward_queries, dim3{query_blocks, grid_y, slices}, block,
               backward_table, q.data(), k.data(), v.data(), seen, y.data(), z.data(), dy.data(),
               dq.data(), t.data(), of, by, by_query);
        by.gradients = pointer(d_keys);
        const size_t slots = by_key.rows * all;
        Floats row_dk = unwritten(slots * width), row_dv = unwritten(slots * values);
        float *to_k = sparse ? row_dk.data() : dk.data(), *to_v = sparse ? row_dv.data() : dv.data();
        launch(attention_general_backward_keys, dim3{key_blocks, grid_y, slices + slices_v}, block,
               backward, q.data(), k.data(), v.data(), seen, z.data(), t.data(), dy.data(), to_k,
               to_v, of, by, by_key);
        for (bool of_values : {false, true}) {
            if (!sparse) break;
            const int wide = of_values ? values : width;
            launch(attention_sum_rows, dim3{blocks(keys * wide, 256), grid_y}, dim3{SUM_THREADS}, 0,
                   of_values ? row_dv.data() : row_dk.data(), of_values ? dv.data() : dk.data(),
                   tables.slots.data(), 0, tables.slots_at, by_key.masks, heads, wide, keys,
                   by_key.rows);
        }
    } else {
        launch(attention_forward, dim3{query_blocks, grid_y}, block, forward, q.data(), k.data(),
               v.data(), seen, y.data(), z.data(), of);
        launch(attention_backward_queries, dim3{query_blocks, grid_y}, block, backward, q.data(),
               k.data(), v.data(), seen, y.data(), z.data(), dy.data(), dq.data(), t.data(), of);
        launch(attention_backward_keys, dim3{key_blocks, grid_y}, block, backward, q.data(), k.data(), v.data(), seen, z.data(), t.data(),
               dy.data(), dk.data(), dv.data(), of);
    }
    Floats d_heads(now.of_heads * heads * columns);
    for (size_t i = 0; i < parts.size(); ++i) d_heads[i % d_heads.size()] += parts[i];

    Doubles expected_y(y.size()), expected_dq(of_q), expected_dk(of_k), expected_dv(of_v);
    Doubles expected_heads(d_heads.size()), expected_queries(d_queries.size());
    Doubles expected_keys(d_keys.size());
    Array<PhiloxWords> words(1);
    for (int b = 0; b < batch; ++b)
        for (int h = 0; h < heads; ++h) {
            const size_t head = size_t(b) * heads + h;
            std::vector<std::vector<Pair>> pairs(queries);
            if (sparse) {
                const Mask& mask = now.masks[head % now.masks.size()];
                size_t tiles = h * (NUMBERED / heads);
                for (size_t c = 0; c < mask.queries.size(); ++c)
                    for (const Tile& tile : mask.tiles[c]) {
                        for (size_t i = 0; i < mask.queries[c].size(); ++i)
                            for (size_t j = 0; j < mask.keys[tile.keys].size(); ++j) {
                                const unsigned range = tile.ranges.empty() ? ALL : tile.ranges[j];
                                if (i < (range & 255) || i >= (range >> 8 & 255)) continue;
                                pairs[mask.queries[c][i]].push_back(
                                    {int(mask.keys[tile.keys][j]), i == range >> 16 ? diagonal : 0.0,
                                     (tiles * 64 + i) * 64 + j});
                            }
                        ++tiles;
                    }
            } else {
                for (int i = 0; i < queries; ++i)
                    for (int j = 0; j < keys; ++j)
                        pairs[i].push_back(
                            {j, 0.0, (size_t(h) * queries + i) * ((keys + 63) / 64 * 64) + j});
            }
            for (int i = 0; i < queries; ++i) {
                const size_t at = ((size_t(b) * queries + i) * heads + h) * width;
                const size_t at_y = at / width * values;
                auto key = [&](int j) { return ((size_t(b) * keys + j) * heads + h) * width; };
                auto value = [&](int j) { return key(j) / width * values; };
                auto column = [&](int j) {
                    return std::clamp(j - now.first - i, -now.reach, now.reach) + now.reach;
                };
                auto has = [&](int j) { return placed && j >= now.first && j < now.first + now.placed; };
                const size_t of_query = (head * queries + i) * columns;
                auto of_key = [&](int j) { return (head * now.placed + j - now.first) * columns; };
                const size_t count = pairs[i].size();
                Doubles weights(count), factors(count, 1.0), products(count), slopes(count, 1.0);
                double sum = 0, mean = 0;
                for (size_t p = 0; p < count; ++p) {
                    const Pair& pair = pairs[i][p];
                    const int j = pair.key;
                    if (now.masked && valid[size_t(b) * keys + j] == 0) continue;
                    double score = 0;
                    for (int e = 0; e < width; ++e) score += double(q[at + e]) * k[key(j) + e];
                    score *= scale;
                    if (has(j) && now.of_heads) score += of_heads[h * columns + column(j)];
                    if (has(j) && now.of_queries) score += of_queries[of_query + column(j)];
                    if (has(j) && now.of_keys) score += of_keys[of_key(j) + column(j)];
                    if (now.cap > 0) {
                        const double bend = std::tanh(score / now.cap);
                        score = now.cap * bend;
                        slopes[p] = 1 - bend * bend;
                    }
                    sum += weights[p] = std::exp(score + pair.addition);
                    if (!now.drops) continue;
                    launch(draw, dim3{1}, dim3{1}, 0, stream, unsigned(b),
                           unsigned(pair.word / 64 * 16 + pair.word % 16), words.data());
                    const bool dropped = words[0].word[pair.word % 64 / 16] < stream.threshold;
                    factors[p] = dropped ? 0 : stream.keep;
                }
                for (size_t p = 0; p < count; ++p) {
                    const int j = pairs[i][p].key;
                    weights[p] = sum > 0 ? weights[p] / sum : 0;
                    for (int e = 0; e < values; ++e) {
                        expected_y[at_y + e] += weights[p] * factors[p] * v[value(j) + e];
                        expected_dv[value(j) + e] += weights[p] * factors[p] * dy[at_y + e];
                        products[p] += factors[p] * dy[at_y + e] * v[value(j) + e];
                    }
                    mean += weights[p] * products[p];
                }
                for (size_t p = 0; p < count; ++p) {
                    const int j = pairs[i][p].key;
                    const double gradient = slopes[p] * weights[p] * (products[p] - mean);
                    for (int e = 0; e < width; ++e) {
                        expected_dq[at + e] += scale * gradient * k[key(j) + e];
                        expected_dk[key(j) + e] += scale * gradient * q[at + e];
                    }
                    if (!has(j)) continue;
                    if (now.of_heads) expected_heads[h * columns + column(j)] += gradient;
                    if (now.of_queries) expected_queries[of_query + column(j)] += gradient;
                    if (now.of_keys) expected_keys[of_key(j) + column(j)] += gradient;
                }
            }
        }
    const std::string name =
        "attention " + std::to_string(queries) + " by " + std::to_string(keys) + " of " +
        std::to_string(width) + " and " + std::to_string(values) + (now.masked ? " masked" : "") +
        (now.drops ? " dropped" : "") + (placed ? " reach " + std::to_string(now.reach) : "") +
        (now.cap > 0 ? " capped" : "") + (sparse ? " in blocks" : "") + (now.single ? " in tf32" : "");
    const double of_y = now.single ? 1e-2 : 5e-6, of_gradients = now.single ? 2e-2 : 1e-5;
    compare(name + " y", y, expected_y, of_y);
    compare(name + " dq", dq, expected_dq, of_gradients, 0.1);
    compare(name + " dk", dk, expected_dk, of_gradients, 0.1);
    compare(name + " dv", dv, expected_dv, of_gradients);
    if (now.of_heads) compare(name + " dheads", d_heads, expected_heads, 1e-5, 0.1);
    if (now.of_queries) compare(name + " dqueries", d_queries, expected_queries, 1e-5, 0.1);
    if (now.of_keys) compare(name + " dkeys", d_keys, expected_keys, 1e-5, 0.1);
}

/// A score that is not a number makes the row of its query none, wherever it lies.
void no_number(bool in_keys) {
    const int queries = 2, keys = 40, width = 8;
    Floats q = random(queries * width), k = random(keys * width), y(queries * width), z(queries);
    const Floats v = random(keys * width);
    // A whole tile of keys, or the first query.
    std::fill_n(in_keys ? k.begin() : q.begin(), in_keys ? 32 * width : width, NAN);
    const Attention of{1, queries, keys, width, width, 1.0f, 0.0f, false, false, {}};
    launch(attention_forward, dim3{1, 1}, dim3{ATTENTION_THREADS}, sizeof(float) * 128 * 32,
           q.data(), k.data(), v.data(), (const float*)nullptr, y.data(), z.data(), of);
    for (int i = 0; i < queries * width; ++i)
        if (std::isnan(y[i]) != (in_keys || i < width)) {
            ++failures;
            std::printf("attention: %s that are not numbers give %g\n", in_keys ? "keys" : "queries",
                        y[i]);
            return;
        }
}

/// The product of two tiles by a warp.
__global__ void multiply(const float* a, const float* b, float* c, int parts) {
    const int g = lane() / 4, t = lane() % 4;
    float own_a[4], own_b[1][2], sums[1][4] = {};
    for (int i = 0; i < 4; ++i) own_a[i] = a[(g + i % 2 * 8) * MMA_DEPTH + t + i / 2 * 4];
    for (int i = 0; i < 2; ++i) own_b[0][i] = b[(t + i * 4) * MMA_COLUMNS + g];
    if (parts == 1)
        multiply_tiles<1>(sums, own_a, own_b);
    else
        multiply_tiles<2>(sums, own_a, own_b);
    for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * MMA_COLUMNS + 2 * t + i % 2] = sums[0][i];
}

/// Factors of one part are rounded to the nearest tf32; with two parts a product is almost exact,
/// also where all factors are `alike` and errors add up.
void check_tiles(int parts, bool alike) {
    auto factors = [&](size_t count) {
        return alike ? Floats(count, 1.0f + 4099.0f / (1 << 23)) : random(count);
    };
    const Floats a = factors(MMA_ROWS * MMA_DEPTH), b = factors(MMA_DEPTH * MMA_COLUMNS);
    Floats c = unwritten(MMA_ROWS * MMA_COLUMNS);
    launch(multiply, dim3{1}, dim3{WARP}, 0, a.data(), b.data(), c.data(), parts);
    auto factor = [&](float x) {
        if (parts == 2) return double(x);
        int exponent;
        const double digits = std::frexp(x, &exponent);
        return std::ldexp(std::round(digits * 2048), exponent - 11);
    };
    Doubles expected(c.size());
    for (int i = 0; i < MMA_ROWS; ++i)
        for (int j = 0; j < MMA_COLUMNS; ++j)
            for (int k = 0; k < MMA_DEPTH; ++k)
                expected[i * MMA_COLUMNS + j] +=
                    factor(a[i * MMA_DEPTH + k]) * factor(b[k * MMA_COLUMNS + j]);
    const std::string name = "tiles of " + std::to_string(parts) + " parts";
    compare(name + (alike ? " alike" : ""), c, expected, alike ? 4e-7 : 2e-6);
}

void cases() {
    for (int parts : {1, 2}) check_tiles(parts, false);
    check_tiles(2, true);
    no_number(false);
    no_number(true);
    // Begin with a small case of all tables and of blocks that share rows, which finds many faults.
    check({.batch = 1, .heads = 2, .queries = 3, .keys = 5, .width = 66, .reach = 0, .placed = 5,
           .of_heads = true, .of_queries = true, .of_keys = true, .cap = 0.7f});
    // Every query on every key.
    check({1, 1, 1, 1, 1});
    check({2, 3, 17, 17, 8, true});
    check({2, 2, 5, 70, 3, true, true});
    check({1, 2, 33, 65, 64});
    check({1, 1, 2, 1023, 16, false, true});
    check({1, 1, 1023, 3, 5});
    check({2, 2, 70, 130, 37, true, true});
    check({.batch = 2, .heads = 1, .queries = 5, .keys = 70, .width = 8, .masked = true,
           .drops = true, .general = true});
    check({1, 1, 17, 31, 40});
    // Factors in tf32.
    check({.batch = 2, .heads = 2, .queries = 17, .keys = 70, .width = 37, .masked = true,
           .drops = true, .single = true});
    check({.batch = 1, .heads = 1, .queries = 66, .keys = 5, .width = 70, .values = 7,
           .single = true});
    // Heads of other widths.
    check({.batch = 1, .heads = 1, .queries = 66, .keys = 70, .width = 96, .drops = true});
    check({.batch = 2, .heads = 1, .queries = 5, .keys = 67, .width = 32, .masked = true,
           .values = 130});
    check({.batch = 1, .heads = 2, .queries = 67, .keys = 9, .width = 129, .values = 3});
    // Scores by distance, and the cap.
    check({.batch = 2, .heads = 2, .queries = 70, .keys = 70, .width = 8, .masked = true,
           .drops = true, .reach = 69, .placed = 70, .of_heads = true});
    check({.batch = 2, .heads = 1, .queries = 70, .keys = 70, .width = 5, .values = 66, .reach = 40,
           .placed = 70, .of_heads = true, .cap = 2.0f});
    check({.batch = 2, .heads = 2, .queries = 70, .keys = 75, .width = 4, .masked = true,
           .reach = 9, .first = 5, .placed = 66, .of_heads = true, .of_queries = true,
           .of_keys = true});
    // Block masks: one for all heads, one a head, and one for each head of each example.
    check({.batch = 2, .heads = 1, .queries = 120, .keys = 120, .width = 8, .masked = true,
           .drops = true, .masks = {local(120, 120, 50)}});
    check({.batch = 1, .heads = 2, .queries = 70, .keys = 131, .width = 6, .drops = true,
           .values = 70, .masks = {strided(70, 131, 0), local(70, 131, 64)}});
    check({.batch = 2, .heads = 1, .queries = 20, .keys = 40, .width = 70, .masked = true,
           .cap = 3.0f, .masks = {strided(20, 40, 2), strided(20, 40, 1)}});
    check({.batch = 1, .heads = 2, .queries = 90, .keys = 90, .width = 4, .drops = true,
           .reach = 63, .placed = 90, .of_heads = true, .of_queries = true, .of_keys = true,
           .masks = {local(90, 90, 40)}});
    check({.batch = 2, .heads = 1, .queries = 90, .keys = 95, .width = 4, .reach = 20, .first = 5,
           .placed = 90, .of_queries = true, .masks = {strided(90, 95, 3)}});
}

int main() { return prove("attention", cases); }
