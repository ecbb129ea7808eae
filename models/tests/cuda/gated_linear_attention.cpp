// Linear attention with decays beside its recurrence, walked in f64 one position after the other.

#include "check.h"
#include "ops/gated_linear_attention/cuda.cu"

/// Decays of a call.
enum Decays { NONE, TOKEN, CHANNEL };

struct Options {
    Decays decays;
    bool delta, reverse, exclusive;
    int chunks;     // of a segment
    double weakest; // logarithms of decays lie between this and 0
};

void check(int batch, int length, int heads, int keys, int values, Options options) {
    const size_t rows = size_t(batch) * length * heads;
    const size_t of_keys = rows * keys, of_values = rows * values;
    const int decays = options.decays == NONE ? 0 : options.decays == TOKEN ? 1 : keys;
    const double size = std::pow(double(keys), -0.5);
    const Floats q = random(of_keys), k = random(of_keys, -size, size), v = random(of_values);
    const Floats log = random(rows * decays, options.weakest, 0.0), rate = random(rows, 0.0, 1.5);
    const Floats dy = random(of_values);
    const float* log_decay = decays ? log.data() : nullptr;
    const float* delta = options.delta ? rate.data() : nullptr;
    const int tile = keys > 64 ? 16 : 32;
    const GatedLinearAttention of{length, heads, keys, values, decays, options.delta,
                                  options.reverse, options.exclusive, options.chunks, tile};

    const unsigned chunks = blocks(length, GLA_CHUNK), segments = blocks(chunks, options.chunks);
    const unsigned sequences = batch * heads, tiles = blocks(values, tile);
    const size_t wide = (keys + 3) / 4 * 4, of_decays = decays > 1 ? 16 * (wide + 1) : 16;
    const size_t state = wide * (tile + 1);
    const size_t forward = 32 * (wide + 1) + 3 * of_decays + 48 * (tile + 1) + 2 * 272 + 16 + state;
    const size_t backward = forward + 49 * wide + 48 + state + 16 * (tile + 1) + 2 * 272 + 16;
    const dim3 block{GLA_THREADS}, by_segment{sequences, segments, tiles};
    const dim3 walks{sequences, options.delta ? 1 : segments, tiles};
    const dim3 by_number{sequences, blocks(size_t(keys) * values, GLA_THREADS)};
    Floats states = unwritten(size_t(sequences) * segments * keys * values);
    Floats dstates = unwritten(states.size());
    Floats totals = unwritten(size_t(sequences) * segments * std::max(1, decays));
    Floats y = unwritten(of_values), dq = unwritten(of_keys), dk = unwritten(of_keys);
    Floats dv = unwritten(of_values), dlog = unwritten(log.size()), drate = unwritten(rows);
    const bool several = segments > 1;
    if (several) {
        launch(gated_linear_attention_states, walks, block, 4 * forward, k.data(), v.data(),
               log_decay, delta, states.data(), totals.data(), of);
        if (!options.delta)
            launch(gated_linear_attention_starts, by_number, block, 0, states.data(), totals.data(), 0,
                   of);
    }
    const float* starts = several ? states.data() : nullptr;
    launch(gated_linear_attention_forward, by_segment, block, 4 * forward, q.data(), k.data(), v.data(),
           log_decay, delta, starts, y.data(), of);
    if (several) {
        launch(gated_linear_attention_adjoint, walks, block, 4 * forward, q.data(), k.data(), log_decay,
               delta, dy.data(), dstates.data(), totals.data(), of);
        if (!options.delta)
            launch(gated_linear_attention_starts, by_number, block, 0, dstates.data(), totals.data(),
                   1, of);
    }
    const float* ends = several ? dstates.data() : nullptr;
    launch(gated_linear_attention_backward, dim3{sequences, chunks}, block, 4 * backward, q.data(),
           k.data(), v.data(), log_decay, delta, starts, ends, dy.data(), dq.data(), dk.data(), dv.data(),
           dlog.data(), drate.data(), of);

    Doubles expected_y(of_values), expected_dq(of_keys), expected_dk(of_keys), expected_dv(of_values);
    Doubles expected_dlog(log.size()), expected_drate(rows);
    for (int b = 0; b < batch; ++b)
        for (int h = 0; h < heads; ++h) {
            auto row = [&](int t) {
                return (size_t(b) * length + (options.reverse ? length - 1 - t : t)) * heads + h;
            };
            auto factor = [&](int t, int c) {
                return decays == 0 ? 1.0 : std::exp(double(log[row(t) * decays + (decays > 1 ? c : 0)]));
            };
            const size_t numbers = size_t(keys) * values;
            // States before each step, what a key reads there, and what is written.
            Doubles states_before(numbers), rests(size_t(length) * values);
            states_before.reserve(numbers * (length + 1));
            auto read = [&](const double* state, int t) {
                for (int c = 0; c < keys; ++c)
                    for (int e = 0; e < values; ++e)
                        expected_y[row(t) * values + e] += state[c * values + e] * q[row(t) * keys + c];
            };
            auto written = [&](int t, int e) {
                return options.delta ? rate[row(t)] * rests[size_t(t) * values + e]
                                     : double(v[row(t) * values + e]);
            };
            for (int t = 0; t < length; ++t) {
                if (options.exclusive) read(&states_before[t * numbers], t);
                Doubles state(&states_before[t * numbers], &states_before[t * numbers] + numbers);
                for (int c = 0; c < keys; ++c)
                    for (int e = 0; e < values; ++e) state[c * values + e] *= factor(t, c);
                for (int e = 0; e < values; ++e) {
                    double rest = v[row(t) * values + e];
                    for (int c = 0; c < keys; ++c) rest -= state[c * values + e] * k[row(t) * keys + c];
                    rests[size_t(t) * values + e] = rest;
                }
                for (int c = 0; c < keys; ++c)
                    for (int e = 0; e < values; ++e)
                        state[c * values + e] += k[row(t) * keys + c] * written(t, e);
                states_before.insert(states_before.end(), state.begin(), state.end());
                if (!options.exclusive) read(&states_before[(t + 1) * numbers], t);
            }
            Doubles gradient(numbers);
            for (int t = length - 1; t >= 0; --t) {
                const double* before = &states_before[t * numbers];
                const double* after = before + numbers;
                const int reader = options.exclusive ? t + 1 : t;
                if (reader < length)
                    for (int c = 0; c < keys; ++c)
                        for (int e = 0; e < values; ++e) {
                            const double of_y = dy[row(reader) * values + e];
                            gradient[c * values + e] += q[row(reader) * keys + c] * of_y;
                            expected_dq[row(reader) * keys + c] += after[c * values + e] * of_y;
                        }
                for (int e = 0; e < values; ++e) {
                    double of_written = 0;
                    for (int c = 0; c < keys; ++c) {
                        of_written += gradient[c * values + e] * k[row(t) * keys + c];
                        expected_dk[row(t) * keys + c] += gradient[c * values + e] * written(t, e);
                    }
                    if (options.delta) {
                        expected_drate[row(t)] += of_written * rests[size_t(t) * values + e];
                        of_written *= rate[row(t)];
                        for (int c = 0; c < keys; ++c) {
                            const double faded = factor(t, c) * before[c * values + e];
                            expected_dk[row(t) * keys + c] -= faded * of_written;
                            gradient[c * values + e] -= k[row(t) * keys + c] * of_written;
                        }
                    }
                    expected_dv[row(t) * values + e] = of_written;
                }
                for (int c = 0; c < keys; ++c)
                    for (int e = 0; e < values; ++e) {
                        double& of_state = gradient[c * values + e];
                        of_state *= factor(t, c);
                        if (decays)
                            expected_dlog[row(t) * decays + (decays > 1 ? c : 0)] +=
                                of_state * before[c * values + e];
                    }
            }
        }
    const char* const names[] = {"none", "token", "channel"};
    const std::string name = "gated linear attention of " + std::to_string(length) + ", " +
                             std::to_string(keys) + " by " + std::to_string(values) + ", decays " +
                             names[options.decays] + (options.delta ? ", delta" : "") +
                             (options.reverse ? ", reverse" : "") +
                             (options.exclusive ? ", exclusive" : "");
    // On a GPU the last digits of each decay add up over the steps that a state lasts: 8e-6 were
    // seen.
    compare(name + " y", y, expected_y, 1e-5, 0.1);
    compare(name + " dq", dq, expected_dq, 1e-5, 0.1);
    compare(name + " dk", dk, expected_dk, 1e-5, 0.1);
    compare(name + " dv", dv, expected_dv, 1e-5, 0.1);
    if (decays) compare(name + " dlog_decay", dlog, expected_dlog, 1e-5, 0.1);
    if (options.delta) compare(name + " drate", drate, expected_drate, 1e-5, 0.1);
}

void cases() {
    for (Decays decays : {NONE, TOKEN, CHANNEL})
        for (bool delta : {false, true}) {
            check(1, 1, 1, 1, 1, {decays, delta, false, false, 1, -1.0});
            check(2, 17, 3, 5, 18, {decays, delta, false, true, 1, -1.0});
            check(1, 70, 1, 16, 35, {decays, delta, true, false, 2, -0.05});
            check(1, 37, 1, 9, 3, {decays, delta, true, true, 2, -200.0});
        }
    check(1, 1, 2, 3, 2, {TOKEN, false, false, true, 1, -1.0});
    check(1, 1023, 1, 4, 5, {TOKEN, false, false, false, 4, -1e-3});
    check(1, 150, 2, 3, 4, {CHANNEL, false, true, false, 1, -30.0});
    check(1, 1023, 1, 5, 2, {CHANNEL, true, false, true, 1, -0.1});
    check(1, 33, 1, 128, 17, {CHANNEL, true, false, false, 2, -1.0});
    check(1, 35, 1, 65, 33, {TOKEN, false, true, false, 4, -1.0});
}

int main() { return prove("gated linear attention", cases); }
