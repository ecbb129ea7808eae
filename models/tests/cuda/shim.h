// Runs CUDA kernels on the host, to prove what they compute: every CUDA thread is a fibre, the
// fibres of a block take turns on one thread of the processor, and blocks follow each other.
//
// What is checked beside the results:
// - Address and undefined-behaviour sanitizer: every access, of global and of shared memory, which
//   has exactly the declared size and begins as NaN.
// - Thread sanitizer: every pair of accesses by two threads of a grid without a barrier between
//   them, but those by equal threads of blocks whose numbers differ by a multiple of 3. Fibres
//   count as threads, and only barriers and __syncwarp order them; shuffles do not.
// - Barriers that some threads never reach, or that threads reach in different lines; shuffles with
//   a lane that is absent; grids, blocks and shared memory beyond what all targets have.
// - launch() runs in the order that `order` says. Results that depend on it are faults.
//
// Tensor cores are computed lane by lane, from the fragments of all lanes (cuda/mma.cuh).
//
// Not covered: the rounding of tensor cores' sums, asynchronous copies, the memory model between
// blocks, and speed. Atomics exist for integers only, so floating-point ones do not compile.

#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

namespace shim {

/// Marks functions of the shim, whose accesses are not those of a kernel.
#define SHIM_INTERNAL __attribute__((no_sanitize("thread"), noinline))

[[noreturn]] inline void fail(const char* format, auto... values) {
    std::fflush(stdout);
    std::fprintf(stderr, "shim: ");
    std::fprintf(stderr, format, values...);
    std::fprintf(stderr, "\n");
    std::_Exit(66);
}

inline void acquire([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(address);
#endif
}

inline void release([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(address);
#endif
}

/// Keeps the thread sanitizer from seeing the accesses of the calling fibre.
struct Quiet {
    SHIM_INTERNAL Quiet() {
#if defined(__SANITIZE_THREAD__)
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    SHIM_INTERNAL ~Quiet() {
#if defined(__SANITIZE_THREAD__)
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
};

/// Allocates what kernels read and write.
template <class T>
using Memory = std::allocator<T>;

/// What the threads of a block, and blocks of a grid, are taken in.
enum class Order { Forward, Backward };
inline Order order = Order::Forward;

/// Limits that hold on all targets: of threads in a block, and of shared memory, in bytes, without
/// and with a request of the host (cudaFuncAttributeMaxDynamicSharedMemorySize).
constexpr size_t MOST_THREADS = 1024, MOST_SHARED = 48 * 1024, MOST_REQUESTED = 99 * 1024;
constexpr size_t STACK = 256 * 1024;
constexpr unsigned WARP_LANES = 32;
/// Bytes of a structure that lanes share.
constexpr size_t MOST_WARP_SHARED = 512;

enum class State { Idle, Ready, AtBlockBarrier, AtWarpBarrier };

struct Fibre {
    ucontext_t context;
    void* stack = nullptr;
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // of the address sanitizer
    void* sanitizer = nullptr;   // of the thread sanitizer
    State state = State::Idle;
    dim3 thread, block;
    unsigned index = 0;  // in the block
    const char* file = nullptr;
    int line = 0;
    unsigned mask = 0;
    // Passed barriers. Values and addresses of two consecutive barriers must differ.
    unsigned block_barriers = 0, warp_barriers = 0;
    uint64_t published[2] = {0, 0};
    alignas(16) unsigned char shared[2][MOST_WARP_SHARED];
};

/// What orders the threads of one block for the thread sanitizer.
struct Barriers {
    char block[2], warp[2 * MOST_THREADS / WARP_LANES];
};

struct SharedArray {
    const char* file;
    int line;
    void* memory;
};

/// All state of the shim.
struct Device {
    // Of the present block and, for the thread sanitizer, of the last two: accesses of one fibre
    // have an order.
    std::vector<std::unique_ptr<Fibre>> fibres, last, before_last;
    Fibre main;
    Fibre* current = &main;
    std::function<void()> kernel;
    dim3 grid, block;
    unsigned size = 0;  // threads of a block
    size_t dynamic_bytes = 0, shared_bytes = 0, shared_limit = MOST_SHARED;
    void* dynamic = nullptr;
    SharedArray shared[16];
    int shared_count = 0;
    std::vector<void*> garbage;  // shared memory and barriers of earlier blocks of this grid
    Barriers* barriers = nullptr;
    char launched = 0, finished = 0;

    ~Device() {
        for (auto* all : {&fibres, &last, &before_last})
            for (auto& fibre : *all) std::free(fibre->stack);
    }
};
inline Device device;

SHIM_INTERNAL inline void switch_to(Fibre& from, Fibre& into) {
    device.current = &into;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.fake_stack, into.stack, into.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(into.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
    swapcontext(&from.context, &into.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

SHIM_INTERNAL inline void pause() { switch_to(*device.current, device.main); }

/// Runs one thread of every block that is given to the fibre.
SHIM_INTERNAL inline void fibre_main() {
#if defined(__SANITIZE_ADDRESS__)
    const void* stack = nullptr;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &device.main.stack_bytes);
    device.main.stack = const_cast<void*>(stack);
#endif
    for (;;) {
        acquire(&device.launched);
        device.kernel();
        release(&device.finished);
        device.current->state = State::Idle;
        pause();
    }
}

inline void add_fibre() {
    auto fibre = std::make_unique<Fibre>();
    fibre->stack = std::malloc(STACK);
    fibre->stack_bytes = STACK;
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = STACK;
    fibre->context.uc_link = nullptr;
    makecontext(&fibre->context, fibre_main, 0);
    // The address sanitizer is told of every switch. Otherwise it forgets at each what surrounds the
    // locals on this stack, which takes most of the time.
    fibre->context.uc_stack.ss_size = 0;
#if defined(__SANITIZE_THREAD__)
    fibre->sanitizer = __tsan_create_fiber(0);
#endif
    fibre->index = device.fibres.size();
    device.fibres.push_back(std::move(fibre));
}

/// Returns a new array of NaN, which ends where the sanitizer sees it.
SHIM_INTERNAL inline void* shared_memory(size_t bytes) {
    Quiet quiet;
    device.shared_bytes += bytes;
    if (device.shared_bytes > device.shared_limit)
        fail("a block uses %zu bytes of shared memory of %zu", device.shared_bytes,
             device.shared_limit);
    void* memory = std::malloc(bytes);
    std::memset(memory, 0xff, bytes);
    device.garbage.push_back(memory);
    return memory;
}

/// Returns the block's array that is declared in this line.
SHIM_INTERNAL inline void* shared_array(const char* file, int line, size_t bytes) {
    for (int i = 0; i < device.shared_count; ++i)
        if (device.shared[i].file == file && device.shared[i].line == line)
            return device.shared[i].memory;
    if (device.shared_count == 16) fail("%s:%d: more than 16 shared arrays", file, line);
    SharedArray& array = device.shared[device.shared_count++];
    array = {file, line, shared_memory(bytes)};
    return array.memory;
}

SHIM_INTERNAL inline void* dynamic_shared() { return device.dynamic; }
SHIM_INTERNAL inline dim3 thread_index() { return device.current->thread; }
SHIM_INTERNAL inline dim3 block_index() { return device.current->block; }
SHIM_INTERNAL inline dim3 block_size() { return device.block; }
SHIM_INTERNAL inline dim3 grid_size() { return device.grid; }

SHIM_INTERNAL inline void block_barrier(const char* file, int line) {
    Fibre& fibre = *device.current;
    char* address = &device.barriers->block[fibre.block_barriers++ % 2];
    fibre.file = file;
    fibre.line = line;
    fibre.state = State::AtBlockBarrier;
    release(address);
    pause();
    acquire(address);
}

/// Waits until all lanes of `mask` are in this line.
SHIM_INTERNAL inline void meet_warp(const char* file, int line, unsigned mask) {
    Fibre& fibre = *device.current;
    fibre.file = file;
    fibre.line = line;
    fibre.mask = mask;
    fibre.state = State::AtWarpBarrier;
    if (!(mask >> fibre.index % WARP_LANES & 1))
        fail("%s:%d: lane %u is not in its mask %x", file, line, fibre.index % WARP_LANES, mask);
    pause();
    ++fibre.warp_barriers;
}

SHIM_INTERNAL inline void warp_barrier(const char* file, int line, unsigned mask = ~0u) {
    const Fibre& fibre = *device.current;
    char* address = &device.barriers->warp[fibre.index / WARP_LANES * 2 + fibre.warp_barriers % 2];
    release(address);
    meet_warp(file, line, mask);
    acquire(address);
}

/// Publishes eight bytes to the lanes of the warp.
SHIM_INTERNAL inline unsigned publish(const char* file, int line, unsigned mask, uint64_t value) {
    Fibre& fibre = *device.current;
    const unsigned slot = fibre.warp_barriers % 2;
    fibre.published[slot] = value;
    meet_warp(file, line, mask);
    return slot;
}

SHIM_INTERNAL inline uint64_t published(const char* file, int line, unsigned mask, unsigned lane,
                                        unsigned slot) {
    const unsigned index = device.current->index / WARP_LANES * WARP_LANES + lane;
    if (!(mask >> lane & 1) || index >= device.size)
        fail("%s:%d: reads from lane %u, which is not in mask %x", file, line, lane, mask);
    return device.fibres[index]->published[slot];
}

SHIM_INTERNAL inline unsigned own_lane() { return device.current->index % WARP_LANES; }

template <class T>
SHIM_INTERNAL T exchange(const char* file, int line, unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    const unsigned slot = publish(file, line, mask, bits);
    bits = published(file, line, mask, from, slot);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

SHIM_INTERNAL inline unsigned ballot(const char* file, int line, unsigned mask, bool value) {
    const unsigned slot = publish(file, line, mask, value);
    unsigned result = 0;
    for (unsigned lane = 0; lane < WARP_LANES; ++lane)
        if (mask >> lane & 1) result |= unsigned(published(file, line, mask, lane, slot)) << lane;
    return result;
}

/// Copies a structure for all lanes of the warp, and waits for theirs.
template <class T>
SHIM_INTERNAL void share_with_warp(const char* file, int line, const T& value) {
    static_assert(sizeof(T) <= MOST_WARP_SHARED);
    Fibre& fibre = *device.current;
    __builtin_memcpy(fibre.shared[fibre.warp_barriers % 2], &value, sizeof value);
    meet_warp(file, line, ~0u);
}

/// Returns what a lane has shared at the last barrier of the warp.
template <class T>
SHIM_INTERNAL const T& shared_by(unsigned lane) {
    const unsigned slot = (device.current->warp_barriers + 1) % 2;
    const unsigned index = device.current->index / WARP_LANES * WARP_LANES + lane;
    return *reinterpret_cast<const T*>(device.fibres[index]->shared[slot]);
}

/// Rounds to 10 fraction bits, ties away from zero, as cvt.rna.tf32.f32 does.
SHIM_INTERNAL inline float round_to_tf32(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    // Not what has all bits of the exponent set: infinity and NaN.
    if ((bits >> 23 & 255) < 255) bits += 1u << 12;
    bits &= ~((1u << 13) - 1);
    __builtin_memcpy(&x, &bits, sizeof bits);
    return x;
}

/// Computes what mma.sync m16n8k8 does with factors in tf32 that all lanes have shared.
template <class Factors, size_t N>
SHIM_INTERNAL void multiply(float (&c)[N][4], const Factors&, int of_a, int of_b) {
    const unsigned g = own_lane() / 4, t = own_lane() % 4;
    const Factors *of_row[4], *of_column[2][4];
    for (unsigned k = 0; k < 4; ++k) {
        of_row[k] = &shared_by<Factors>(4 * g + k);
        for (unsigned i = 0; i < 2; ++i)
            of_column[i][k] = &shared_by<Factors>(4 * (2 * t + i) + k);
    }
    for (size_t n = 0; n < N; ++n)
        for (unsigned i = 0; i < 4; ++i) {
            double sum = c[n][i];
            for (unsigned k = 0; k < 8; ++k)
                sum += double(of_row[k % 4]->a[of_a][i / 2 + k / 4 * 2]) *
                       of_column[i % 2][k % 4]->b[of_b][n][k / 4];
            // Cuts off.
            float cut = float(sum);
            if (std::abs(double(cut)) > std::abs(sum)) cut = std::nextafterf(cut, 0.0f);
            c[n][i] = cut;
        }
}

/// Lets the fibres go on whose barriers are complete. Returns whether there were any.
inline bool release_barriers() {
    unsigned waiting = 0, idle = 0;
    const Fibre* first = nullptr;
    for (unsigned i = 0; i < device.size; ++i) {
        const Fibre& fibre = *device.fibres[i];
        idle += fibre.state == State::Idle;
        if (fibre.state != State::AtBlockBarrier) continue;
        ++waiting;
        if (!first) first = &fibre;
        if (first->file != fibre.file || first->line != fibre.line)
            fail("threads %u and %u wait at different barriers: %s:%d and %s:%d", first->index,
                 fibre.index, first->file, first->line, fibre.file, fibre.line);
    }
    if (waiting > 0 && waiting + idle == device.size) {
        if (idle > 0)
            fail("%s:%d: %u threads wait at a barrier, %u have returned", first->file, first->line,
                 waiting, idle);
        for (unsigned i = 0; i < device.size; ++i) device.fibres[i]->state = State::Ready;
        return true;
    }
    bool any = false;
    for (unsigned start = 0; start < device.size; start += WARP_LANES) {
        for (unsigned own = start; own < start + WARP_LANES && own < device.size; ++own) {
            const Fibre& fibre = *device.fibres[own];
            if (fibre.state != State::AtWarpBarrier) continue;
            const unsigned mask = fibre.mask;
            bool complete = true;
            for (unsigned lane = 0; lane < WARP_LANES; ++lane) {
                if (!(mask >> lane & 1)) continue;
                if (start + lane >= device.size)
                    fail("%s:%d: mask %x has lanes beyond the block", fibre.file, fibre.line, mask);
                const Fibre& other = *device.fibres[start + lane];
                complete = complete && other.state == State::AtWarpBarrier &&
                           other.mask == mask && other.file == fibre.file &&
                           other.line == fibre.line;
            }
            if (!complete) continue;
            any = true;
            for (unsigned lane = 0; lane < WARP_LANES; ++lane)
                if (mask >> lane & 1) device.fibres[start + lane]->state = State::Ready;
        }
    }
    return any;
}

inline void run_block(dim3 block_index, size_t dynamic_bytes) {
    device.shared_count = 0;
    device.shared_bytes = 0;
    device.dynamic = shared_memory(dynamic_bytes);
    device.barriers = static_cast<Barriers*>(std::calloc(1, sizeof(Barriers)));
    device.garbage.push_back(device.barriers);
#if defined(__SANITIZE_THREAD__)
    std::swap(device.fibres, device.before_last);
    std::swap(device.last, device.before_last);
    while (device.fibres.size() < device.size) add_fibre();
#endif
    const dim3 block = device.block;
    for (unsigned i = 0; i < device.size; ++i) {
        Fibre& fibre = *device.fibres[i];
        fibre.thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        fibre.block = block_index;
        fibre.state = State::Ready;
        fibre.block_barriers = fibre.warp_barriers = 0;
    }
    for (;;) {
        bool ran = false;
        for (unsigned i = 0; i < device.size; ++i) {
            const unsigned next = order == Order::Forward ? i : device.size - 1 - i;
            if (device.fibres[next]->state != State::Ready) continue;
            ran = true;
            switch_to(device.main, *device.fibres[next]);
        }
        if (release_barriers()) continue;
        if (ran) continue;
        for (unsigned i = 0; i < device.size; ++i) {
            const Fibre& fibre = *device.fibres[i];
            if (fibre.state != State::Idle)
                fail("%s:%d: thread %u waits for threads that never come", fibre.file, fibre.line, i);
        }
        return;
    }
}

/// Runs a kernel over a grid. `dynamic_bytes` is its dynamic shared memory. `shared_limit` is the
/// shared memory that it may have in all.
template <class Kernel, class... Arguments>
void launch(Kernel kernel, dim3 grid, dim3 block, size_t dynamic_bytes, Arguments... arguments) {
    Quiet quiet;
    device.grid = grid;
    device.block = block;
    device.size = block.x * block.y * block.z;
    device.shared_limit = dynamic_bytes > MOST_SHARED ? MOST_REQUESTED : MOST_SHARED;
    if (device.size == 0 || device.size > MOST_THREADS) fail("a block of %u threads", device.size);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
        fail("a grid of %u, %u, %u blocks", grid.x, grid.y, grid.z);
#if defined(__SANITIZE_THREAD__)
    device.main.sanitizer = __tsan_get_current_fiber();
#endif
    while (device.fibres.size() < device.size) add_fibre();
    device.kernel = [=] { kernel(arguments...); };
    release(&device.launched);
    const unsigned blocks = grid.x * grid.y * grid.z;
    for (unsigned i = 0; i < blocks; ++i) {
        const unsigned next = order == Order::Forward ? i : blocks - 1 - i;
        run_block({next % grid.x, next / grid.x % grid.y, next / grid.x / grid.y}, dynamic_bytes);
    }
    acquire(&device.finished);
    for (void* memory : device.garbage) std::free(memory);
    device.garbage.clear();
}

}  // namespace shim

// The language of kernels.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define SHARED(type, name, count)                                               \
    type(&name)[count] = *reinterpret_cast<type(*)[count]>(                     \
        shim::shared_array(__FILE__, __LINE__, sizeof(type) * (count)))
#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(shim::dynamic_shared())
#define threadIdx (shim::thread_index())
#define blockIdx (shim::block_index())
#define blockDim (shim::block_size())
#define gridDim (shim::grid_size())
#define __syncthreads() shim::block_barrier(__FILE__, __LINE__)
#define __syncwarp(...) shim::warp_barrier(__FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(mask, value, from) \
    shim::exchange(__FILE__, __LINE__, mask, value, (from) % 32)
#define __shfl_xor_sync(mask, value, distance) \
    shim::exchange(__FILE__, __LINE__, mask, value, shim::own_lane() ^ (distance))
#define __shfl_down_sync(mask, value, distance)                                          \
    shim::exchange(__FILE__, __LINE__, mask, value,                                      \
                   shim::own_lane() + (distance) < 32 ? shim::own_lane() + (distance)    \
                                                      : shim::own_lane())
#define __shfl_up_sync(mask, value, distance)                                            \
    shim::exchange(__FILE__, __LINE__, mask, value,                                      \
                   shim::own_lane() >= (distance) ? shim::own_lane() - (distance)        \
                                                  : shim::own_lane())
#define __ballot_sync(mask, value) shim::ballot(__FILE__, __LINE__, mask, (value) != 0)
#define __any_sync(mask, value) (__ballot_sync(mask, value) != 0)

inline unsigned atomicAdd(unsigned* address, unsigned value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline int atomicAdd(int* address, int value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicMax(unsigned* address, unsigned value) {
    unsigned seen = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(address, &seen, value, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return uint64_t(a) * b >> 32; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
template <class T>
T __ldg(const T* address) {
    return *address;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline void sincospif(float x, float* sine, float* cosine) {
    const double pi = 3.14159265358979323846;
    *sine = std::sin(pi * x);
    *cosine = std::cos(pi * x);
}
inline void sincospi(double x, double* sine, double* cosine) {
    const double pi = 3.14159265358979323846;
    *sine = std::sin(pi * x);
    *cosine = std::cos(pi * x);
}
