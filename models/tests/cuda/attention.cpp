// Softmax attention beside its formula, with all weights in memory, in f64.

#include "check.h"
#include "ops/attention/cuda.cu"

/// The word of a weight, drawn alone.
__global__ void draw(Philox stream, unsigned example, unsigned block, PhiloxWords* words) {
    *words = philox(stream, example, block);
}

void check(int batch, int heads, int queries, int keys, int width, bool masked, bool drops) {
    const float scale = 1 / std::sqrt(float(width));
    const size_t of_q = size_t(batch) * queries * heads * width;
    const size_t of_k = size_t(batch) * keys * heads * width, rows = size_t(batch) * heads * queries;
    const Floats q = random(of_q, -3, 3), k = random(of_k, -3, 3), v = random(of_k);
    const Floats dy = random(of_q);
    Floats valid(size_t(batch) * keys), y(of_q), dq(of_q), dk(of_k), dv(of_k), z(rows), t(rows);
    // The last example sees no key.
    for (size_t i = 0; i < valid.size(); ++i)
        valid[i] = i < size_t(batch - 1) * keys && uniform() > -0.5;
    const Philox stream{3, 4, 10, 2, 3, unsigned(0.25 * 4294967296.0), float(1 / 0.75)};
    const Attention of{heads, queries, keys, width, scale, drops, stream};
    const float* seen = masked ? valid.data() : nullptr;
    const dim3 block{ATTENTION_THREADS};
    const dim3 by_query{blocks(queries, OWN), unsigned(batch * heads)};
    const dim3 by_key{blocks(keys, OWN), unsigned(batch * heads)};
    const size_t number = sizeof(float), forward = number * (2 * 68 * width + 64 * (64 + 68));
    const size_t of_own = 2 * (68 + 36) * width, of_rows = 32 * (64 + 68);
    launch(attention_forward, by_query, block, forward, q.data(), k.data(), v.data(),
           seen, y.data(), z.data(), of);
    launch(attention_backward_queries, by_query, block, number * (of_own + of_rows), q.data(), k.data(),
           v.data(), seen, y.data(), z.data(), dy.data(), dq.data(), t.data(), of);
    launch(attention_backward_keys, by_key, block, number * (of_own + 2 * of_rows), q.data(), k.data(),
           v.data(), seen, z.data(), t.data(), dy.data(), dk.data(), dv.data(), of);

    Doubles expected_y(of_q), expected_dq(of_q), expected_dk(of_k), expected_dv(of_k);
    Array<PhiloxWords> words(1);
    for (int b = 0; b < batch; ++b)
        for (int h = 0; h < heads; ++h)
            for (int i = 0; i < queries; ++i) {
                const size_t at = ((size_t(b) * queries + i) * heads + h) * width;
                auto key = [&](int j) { return ((size_t(b) * keys + j) * heads + h) * width; };
                Doubles weights(keys), factors(keys, 1.0), products(keys);
                double sum = 0, mean = 0;
                for (int j = 0; j < keys; ++j) {
                    if (masked && valid[size_t(b) * keys + j] == 0) continue;
                    double score = 0;
                    for (int e = 0; e < width; ++e) score += double(q[at + e]) * k[key(j) + e];
                    sum += weights[j] = std::exp(scale * score);
                    if (!drops) continue;
                    const unsigned word = (h * queries + i) * ((keys + 63) / 64 * 64) + j;
                    launch(draw, dim3{1}, dim3{1}, 0, stream, unsigned(b),
                           word / 64 * 16 + word % 16, words.data());
                    const bool dropped = words[0].word[word % 64 / 16] < stream.threshold;
                    factors[j] = dropped ? 0 : stream.keep;
                }
                for (int j = 0; j < keys; ++j) {
                    weights[j] = sum > 0 ? weights[j] / sum : 0;
                    for (int e = 0; e < width; ++e) {
                        expected_y[at + e] += weights[j] * factors[j] * v[key(j) + e];
                        expected_dv[key(j) + e] += weights[j] * factors[j] * dy[at + e];
                        products[j] += factors[j] * dy[at + e] * v[key(j) + e];
                    }
                    mean += weights[j] * products[j];
                }
                for (int j = 0; j < keys; ++j)
                    for (int e = 0; e < width; ++e) {
                        const double gradient = weights[j] * (products[j] - mean) * scale;
                        expected_dq[at + e] += gradient * k[key(j) + e];
                        expected_dk[key(j) + e] += gradient * q[at + e];
                    }
            }
    const std::string name = "attention " + std::to_string(queries) + " by " +
                             std::to_string(keys) + " of " + std::to_string(width) +
                             (masked ? " masked" : "") + (drops ? " dropped" : "");
    compare(name + " y", y, expected_y, 5e-6);
    compare(name + " dq", dq, expected_dq, 1e-5, 0.1);
    compare(name + " dk", dk, expected_dk, 1e-5, 0.1);
    compare(name + " dv", dv, expected_dv, 1e-5);
}

void cases() {
    check(1, 1, 1, 1, 1, false, false);
    check(2, 3, 17, 17, 8, true, false);
    check(2, 2, 5, 70, 3, true, true);
    check(1, 2, 33, 65, 64, false, false);
    check(1, 1, 2, 1023, 16, false, true);
    check(1, 1, 1023, 3, 5, false, false);
    check(2, 2, 70, 130, 37, true, true);
}

int main() { return prove("attention", cases); }
