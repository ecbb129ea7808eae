// The gate of mod.rs behind its product, forward and backward:
//     y = v ⊙ σ(g),   dv = dy ⊙ σ(g),   dg = dy ⊙ v ⊙ σ(g) (1 - σ(g))
// v, g, y (R, D). Rows of v and g lie `value_stride` and `gate_stride` numbers apart, so that both
// can be halves of one product (R, 2D), and dv and dg halves of its gradient.

#include "cuda/device.cuh"

constexpr int GATE_THREADS = 256;

/// Grid (⌈D / 256⌉, min(R, 65535)), block 256.
extern "C" __global__ void __launch_bounds__(GATE_THREADS)
    gate_forward(const float* value, const float* gate, float* y, int rows, int width,
                 int value_stride, int gate_stride) {
    const int i = blockIdx.x * GATE_THREADS + threadIdx.x;
    if (i >= width) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y)
        y[(size_t)row * width + i] =
            value[(size_t)row * value_stride + i] * sigmoid(gate[(size_t)row * gate_stride + i]);
}

/// Grid (⌈D / 256⌉, min(R, 65535)), block 256.
extern "C" __global__ void __launch_bounds__(GATE_THREADS)
    gate_backward(const float* value, const float* gate, const float* dy, float* dvalue,
                  float* dgate, int rows, int width, int value_stride, int gate_stride) {
    const int i = blockIdx.x * GATE_THREADS + threadIdx.x;
    if (i >= width) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const float open = sigmoid(gate[(size_t)row * gate_stride + i]);
        const float gradient = dy[(size_t)row * width + i];
        const float scaled = value[(size_t)row * value_stride + i] * (open * (1.0f - open));
        dvalue[(size_t)row * value_stride + i] = gradient * open;
        dgate[(size_t)row * gate_stride + i] = gradient * scaled;
    }
}
