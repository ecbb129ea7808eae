// Products of tiles by tensor cores, with factors in tf32: f32 with 10 fraction bits.
//
// A warp multiplies A (16, 8) by B (8, 8). With g = lane / 4 and t = lane % 4, a lane has
//     of A: a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 4), a[3] (g + 8, t + 4),
//     of B: b[0] (t, g), b[1] (t + 4, g),
//     of the sums: c[0] (g, 2t), c[1] (g, 2t + 1), c[2] (g + 8, 2t), c[3] (g + 8, 2t + 1).
// Which channel or row of its operands a column of A is, the caller may choose, as B's rows follow.
//
// The sum of the 8 products and of what was there is one operation of the card, whose rounding is
// not documented; cards cut off. The host build of the tests (models/tests/cuda/shim.h) adds in f64
// and cuts off to f32. Long sums are added up outside, in f32 that is rounded to the nearest.

#pragma once

#include "cuda/device.cuh"

constexpr int MMA_ROWS = 16;   // of A
constexpr int MMA_COLUMNS = 8; // of B
constexpr int MMA_DEPTH = 8;   // columns of A, rows of B

constexpr unsigned TF32_BITS = 0xffffe000; // of an f32, which tf32 has
constexpr unsigned TF32_HALF = 0x1000;     // half of the last of them

/// Returns the number of 10 fraction bits that is nearest to x, of two the larger in size.
__device__ inline float round_to_tf32(float x) {
#ifdef __CUDACC__
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
#else
    return shim::round_to_tf32(x);
#endif
}

/// The factors of a lane in tf32: with `PARTS` of 2 a factor is the sum of a large and a small
/// part.
template <int PARTS, int N>
struct MmaFactors {
    float a[PARTS][4], b[PARTS][N][2];

    /// Stores the parts of a number. Two parts are made by integer operations, since the card's
    /// conversion takes four times as long: the large one is cut off, so that NaN stays, and the
    /// small one is rounded to the nearest.
    __device__ static void split(float x, float* large, float* small) {
        if (PARTS == 1) {
            *large = round_to_tf32(x);
            return;
        }
        *large = __uint_as_float(__float_as_uint(x) & TF32_BITS);
        *small = __uint_as_float((__float_as_uint(x - *large) + TF32_HALF) & TF32_BITS);
    }
    __device__ MmaFactors(const float (&own_a)[4], const float (&own_b)[N][2]) {
        UNROLL
        for (int i = 0; i < 4; ++i) split(own_a[i], &a[0][i], &a[PARTS - 1][i]);
        UNROLL
        for (int n = 0; n < N; ++n)
            UNROLL
            for (int i = 0; i < 2; ++i) split(own_b[n][i], &b[0][n][i], &b[PARTS - 1][n][i]);
    }
    /// Adds the products of a part of A and a part of each B.
    __device__ void multiply(float (&c)[N][4], int of_a, int of_b) const {
#ifdef __CUDACC__
        UNROLL
        for (int n = 0; n < N; ++n)
            asm volatile(
                "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
                : "r"(__float_as_uint(a[of_a][0])), "r"(__float_as_uint(a[of_a][1])),
                  "r"(__float_as_uint(a[of_a][2])), "r"(__float_as_uint(a[of_a][3])),
                  "r"(__float_as_uint(b[of_b][n][0])), "r"(__float_as_uint(b[of_b][n][1])));
#else
        shim::multiply(c, *this, of_a, of_b);
#endif
    }
};

/// Adds the products of A and of each of `N` matrices B to as many sums. With `PARTS` of 1 factors
/// are rounded to tf32. With 2 an error is that of f32: only products of small parts are left out.
/// All 32 lanes call it.
template <int PARTS, int N>
__device__ inline void multiply_tiles(float (&c)[N][4], const float (&a)[4],
                                      const float (&b)[N][2]) {
    const MmaFactors<PARTS, N> factors(a, b);
#ifndef __CUDACC__
    shim::share_with_warp(__FILE__, __LINE__, factors);
#endif
    if (PARTS == 2) {
        factors.multiply(c, PARTS - 1, 0);
        factors.multiply(c, 0, PARTS - 1);
    }
    factors.multiply(c, 0, 0);
}
