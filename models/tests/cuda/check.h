// What the kernels' tests share: operands from a seed, comparison with sums in f64, and the run of
// every case in both orders of threads and blocks, which must give the same bits.

#pragma once

#ifdef __CUDACC__
#include "device.h"
#else
#include "shim.h"
#endif

#include <algorithm>
#include <string>

using shim::launch;
/// Numbers that a kernel can read and write.
template <class T>
using Array = std::vector<T, shim::Memory<T>>;
using Floats = Array<float>;
using Doubles = std::vector<double>;

inline uint64_t seed = 1;
inline uint64_t fingerprint = 0;
inline double worst = 0.0;
inline std::string worst_name = "nothing";
inline int failures = 0, comparisons = 0;

/// Returns the next number in [-1, 1).
inline double uniform() {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return double(seed >> 11) / double(1ull << 52) - 1.0;
}

inline Floats random(size_t count, double low = -1.0, double high = 1.0) {
    Floats values(count);
    for (float& value : values) value = low + (high - low) * (uniform() + 1.0) / 2.0;
    return values;
}

/// Returns memory of a result. What a kernel does not write stays NaN.
inline Floats unwritten(size_t count) { return Floats(count, NAN); }

inline unsigned blocks(size_t elements, size_t of) { return (elements + of - 1) / of; }

/// Compares results with their reference: the largest difference, beside the largest value of the
/// reference or `floor`, may be at most `tolerance`.
inline void compare(const std::string& name, const Floats& values, const Doubles& expected,
                    double tolerance, double floor = 1e-3) {
    double largest = floor, difference = 0.0;
    bool finite = values.size() == expected.size();
    for (size_t i = 0; finite && i < values.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        difference = std::max(difference, std::abs(values[i] - expected[i]));
        finite = std::isfinite(values[i]);
    }
    ++comparisons;
    for (float value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        fingerprint = (fingerprint ^ bits) * 1099511628211u;
    }
    const double error = difference / largest / tolerance;
    if (error > worst) {
        worst = error;
        worst_name = name;
    }
    if (finite && error <= 1.0) return;
    ++failures;
    std::printf("%s: error %.1e of at most %.1e%s\n", name.c_str(), difference / largest, tolerance,
                finite ? "" : ", and numbers that are not finite");
    // A planted fault is found by the first error.
    if (std::getenv("FIRST_ERROR")) std::exit(1);
}

/// Runs the cases of a kernel in both orders, with the thread sanitizer in one, and returns the
/// exit code of the test.
inline int prove(const char* kernel, void (*cases)()) {
    auto print_of = [&](shim::Order order) {
        shim::order = order;
        seed = 1;
        fingerprint = 0;
        cases();
        return fingerprint;
    };
    [[maybe_unused]] const uint64_t print = print_of(shim::Order::Forward);
#if defined(__SANITIZE_THREAD__)
    // A race is one in any order; results of both orders are compared in the other build.
    const bool differ = false;
#else
    const bool differ = print_of(shim::Order::Backward) != print;
#endif
    if (differ) {
        ++failures;
        std::printf("%s: two runs, in opposite orders of threads and blocks, differ\n", kernel);
    }
    std::printf("%s: %d comparisons, largest error %.2f of its tolerance (%s)\n", kernel,
                comparisons, worst, worst_name.c_str());
    return failures ? 1 : 0;
}
