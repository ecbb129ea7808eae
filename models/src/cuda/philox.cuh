// The counter-based generator of cpu/src/philox.rs: the same words for the same key, counter and
// place in a row, and so the same dropped elements as on the CPU.
//
// Word i of a row is word i % 64 / 16 of block i / 64 · 16 + i % 16, whose counter is (block, rest).

#pragma once

/// A row of random words, and the elements that they drop: those whose word is below `threshold`
/// become 0, the others are multiplied by `keep` (models/src/rng.rs, mask_constants).
struct Philox {
    unsigned key0, key1;
    unsigned first_row, tail0, tail1;
    unsigned threshold;
    float keep;
};

/// The four words of a block: those of the elements `element`, + 16, + 32 and + 48 of the row.
struct PhiloxWords {
    unsigned word[4];
};

/// Returns the place in its row of the first word of a block.
__device__ inline size_t philox_element(unsigned block) {
    return (size_t)(block / 16) * 64 + block % 16;
}

/// Returns the words of a block of a row: Philox4x32 of ten rounds.
__device__ inline PhiloxWords philox(const Philox& stream, unsigned row, unsigned block) {
    unsigned a = block, b = stream.first_row + row, c = stream.tail0, d = stream.tail1;
    unsigned key0 = stream.key0, key1 = stream.key1;
    for (int round = 0; round < 10; ++round) {
        const unsigned left = __umulhi(0xD2511F53u, a), right = __umulhi(0xCD9E8D57u, c);
        const unsigned next_b = 0xCD9E8D57u * c, next_d = 0xD2511F53u * a;
        a = right ^ b ^ key0;
        c = left ^ d ^ key1;
        b = next_b;
        d = next_d;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

/// Returns the factor of the element of a word.
__device__ inline float philox_factor(const Philox& stream, unsigned word) {
    return word < stream.threshold ? 0.0f : stream.keep;
}
