// Dropout beside a Philox of its own, written from the published algorithm, and the words that
// cpu/src/philox.rs is held to.

#include <tuple>

#include "check.h"
#include "ops/dropout/cuda.cu"

/// Returns the four words of a counter: Salmon et al., 2011, Philox4x32-10.
std::vector<uint32_t> reference(std::vector<uint32_t> counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t left = uint64_t(0xD2511F53) * counter[0];
        const uint64_t right = uint64_t(0xCD9E8D57) * counter[2];
        counter = {uint32_t(right >> 32) ^ counter[1] ^ key0, uint32_t(right),
                   uint32_t(left >> 32) ^ counter[3] ^ key1, uint32_t(left)};
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return counter;
}

__global__ void draw(Philox stream, unsigned block, PhiloxWords* words) {
    *words = philox(stream, 0, block);
}

/// Known answers of the reference implementation (Random123, file kat_vectors, philox4x32 10), of
/// counters of four equal words and of the digits of pi.
void known_answers() {
    const Philox zeros{0, 0, 0, 0, 0, 0, 0}, ones{~0u, ~0u, ~0u, ~0u, ~0u, 0, 0};
    const Philox digits{0xa4093822, 0x299f31d0, 0x85a308d3, 0x13198a2e, 0x03707344, 0, 0};
    const std::tuple<Philox, unsigned, PhiloxWords> answers[] = {
        {zeros, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {ones, ~0u, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {digits, 0x243f6a88, {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (const auto& [stream, block, expected] : answers) {
        Array<PhiloxWords> words(1);
        launch(draw, dim3{1}, dim3{1}, 0, stream, block, words.data());
        for (int i = 0; i < 4; ++i)
            if (words[0].word[i] != expected.word[i]) {
                ++failures;
                std::printf("philox: word %d is %08x, not %08x\n", i, words[0].word[i],
                            expected.word[i]);
            }
    }
}

/// An element is dropped by words below the threshold, and kept by the threshold itself.
void threshold() {
    const Floats x{3};
    for (unsigned more : {0, 1}) {
        const Philox stream{0, 0, 0, 0, 0, 0x6627e8d5u + more, 2};
        Floats y = unwritten(1);
        launch(dropout, dim3{1}, dim3{DROPOUT_THREADS}, 0, x.data(), (const float*)nullptr, y.data(),
               stream, (const int*)nullptr, 1, 1ll, 1ll);
        compare("an element at the threshold", y, {more ? 0.0 : 6.0}, 1e-7);
    }
}

void check(std::vector<int> lengths, int width, bool tied, bool packed, bool residual) {
    const int batch = lengths.size(), longest = *std::max_element(lengths.begin(), lengths.end());
    Array<int> offsets{0};
    for (int length : lengths) offsets.push_back(offsets.back() + (packed ? length : longest));
    const size_t all = size_t(offsets.back()) * width;
    const long long elements = (long long)longest * width, period = tied ? width : elements;
    const Philox stream{7, 8, 4000000000u, 2, 3, unsigned(0.3 * 4294967296.0), float(1 / 0.7)};
    const Floats x = random(all), other = random(all);
    Floats y = unwritten(all);
    const dim3 grid{blocks(16 * blocks(period, 64), DROPOUT_THREADS), unsigned(batch),
                    blocks(blocks(elements, period), DROPOUT_REPEATS)};
    launch(dropout, grid, dim3{DROPOUT_THREADS}, 0, x.data(), residual ? other.data() : nullptr,
           y.data(), stream, packed ? offsets.data() : nullptr, width, elements, period);
    Doubles expected(all);
    for (int b = 0; b < batch; ++b)
        for (size_t i = 0; i < size_t(offsets[b + 1] - offsets[b]) * width; ++i) {
            const size_t word = i % period, at = size_t(offsets[b]) * width + i;
            const auto words = reference({uint32_t(word / 64 * 16 + word % 16), 4000000000u + b, 2, 3},
                                         7, 8);
            const bool dropped = words[word % 64 / 16] < stream.threshold;
            expected[at] = (residual ? other[at] : 0) + (dropped ? 0 : double(x[at]) * stream.keep);
        }
    compare("dropout of " + std::to_string(longest) + " x " + std::to_string(width), y, expected,
            1e-6);
}

void cases() {
    known_answers();
    threshold();
    check({1}, 1, false, false, false);
    check({17, 17}, 5, false, false, true);
    check({1023}, 3, false, false, false);
    check({130, 130}, 67, true, false, false);
    check({0, 17, 1, 40}, 33, false, true, true);
    check({70, 0, 3}, 20, true, true, false);
}

int main() { return prove("dropout", cases); }
