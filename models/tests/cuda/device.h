// Runs the kernels' tests on a GPU: the part of shim.h that they use, by CUDA's runtime. Operands lie
// in memory that host and device share, so the tests are the same source.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace shim {

inline void require(cudaError_t result, const char* action) {
    if (result == cudaSuccess) return;
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", action, cudaGetErrorString(result));
    std::_Exit(66);
}

/// Allocates memory of host and device.
template <class T>
struct Memory {
    using value_type = T;
    Memory() = default;
    template <class Other>
    Memory(const Memory<Other>&) {}
    T* allocate(size_t count) {
        void* memory = nullptr;
        require(cudaMallocHost(&memory, count * sizeof(T)), "cudaMallocHost");
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t) { cudaFreeHost(memory); }
    template <class Other>
    bool operator==(const Memory<Other>&) const {
        return true;
    }
};

/// Both runs of a test take the same order here, the card's: they must still give the same bits.
enum class Order { Forward, Backward };
inline Order order = Order::Forward;

template <class Kernel, class... Arguments>
void launch(Kernel kernel, dim3 grid, dim3 block, size_t dynamic_bytes, Arguments... arguments) {
    if (dynamic_bytes > 48 * 1024)
        require(cudaFuncSetAttribute((const void*)kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(dynamic_bytes)),
                "cudaFuncSetAttribute");
    kernel<<<grid, block, dynamic_bytes>>>(arguments...);
    require(cudaGetLastError(), "launch");
    require(cudaDeviceSynchronize(), "kernel");
}

}  // namespace shim
