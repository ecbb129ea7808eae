// Functions of each score between all additions and the softmax (score_functions.rs).

#pragma once

#include "cuda/device.cuh"

/// Functions of a score, applied in the order of the members.
struct ScoreFunctions {
    float cap; // c of c tanh(s / c), or 0

    /// Returns the score of a sum.
    __device__ float of(float sum) const {
        if (cap > 0.0f) sum = cap * tanhf(sum / cap);
        return sum;
    }
    /// Returns the score of a sum, and its derivative by the sum.
    __device__ float of(float sum, float& slope) const {
        slope = 1.0f;
        if (cap > 0.0f) {
            const float bend = tanhf(sum / cap);
            sum = cap * bend;
            slope = 1.0f - bend * bend;
        }
        return sum;
    }
};
