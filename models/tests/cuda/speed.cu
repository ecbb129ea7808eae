// Times the kernels on a GPU at sizes of the benchmark, and compares bytes moved with the memory's
// speed. Not a test: it measures, and checks nothing. `run.sh speed` builds and runs it.
//
// A row has the kernel, its shape, milliseconds of a launch (median of 20, after 3), the bytes that
// it must move at least (operands read once, results written once), those per second, that as a
// share of a device-to-device copy measured first, and its floating-point operations per second.

#include <algorithm>
#include <functional>
#include <string>

#include "cuda/sum_parts.cu"
#include "cuda/transpose.cu"
#include "device.h"
#include "ops/activation/cuda.cu"
#include "ops/adamw/cuda.cu"
#include "ops/attention/cuda.cu"
#include "ops/batch_norm/cuda.cu"
#include "ops/cross_entropy/cuda.cu"
#include "ops/dplr_spectrum/cuda.cu"
#include "ops/dropout/cuda.cu"
#include "ops/fft/cuda.cu"
#include "ops/fft/long.cu"
#include "ops/gated_linear/cuda.cu"
#include "ops/gated_linear_attention/cuda.cu"
#include "ops/linear/cuda.cu"
#include "ops/norm/cuda.cu"
#include "ops/scan/cuda.cu"
#include "ops/softmax/cuda.cu"
#include "ops/state_space/cuda.cu"

using shim::require;

double copy_speed = 0.0;  // bytes per second

/// Returns `count` numbers of the device, all 0.5.
float* numbers(size_t count) {
    float* memory = nullptr;
    require(cudaMalloc(&memory, count * sizeof(float)), "cudaMalloc");
    std::vector<float> values(count, 0.5f);
    require(cudaMemcpy(memory, values.data(), count * sizeof(float), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    return memory;
}

/// Returns seconds of a run: the median of 20, after 3.
double seconds(const std::function<void()>& run) {
    cudaEvent_t start, end;
    require(cudaEventCreate(&start), "cudaEventCreate");
    require(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int round = 0; round < 23; ++round) {
        float milliseconds = 0.0f;
        require(cudaEventRecord(start), "cudaEventRecord");
        run();
        require(cudaEventRecord(end), "cudaEventRecord");
        require(cudaEventSynchronize(end), "kernel");
        require(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
        if (round >= 3) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] / 1e3;
}

void report(const char* kernel, const std::string& shape, double bytes, double operations,
            const std::function<void()>& run) {
    const double time = seconds(run);
    require(cudaGetLastError(), kernel);
    std::printf("%-28s %-34s %9.3f %9.1f %8.0f %6.0f %% %9.2f\n", kernel, shape.c_str(), time * 1e3,
                bytes / 1e6, bytes / time / 1e9, 100.0 * bytes / time / copy_speed,
                operations / time / 1e12);
}

unsigned blocks(size_t elements, size_t of) { return unsigned((elements + of - 1) / of); }

std::string shape(std::initializer_list<std::pair<const char*, int>> sizes) {
    std::string text;
    for (const auto& [name, size] : sizes)
        text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(size);
    return text;
}

void rows(int rows, int width) {
    const size_t all = size_t(rows) * width;
    const double plane = 4.0 * all;
    float *x = numbers(all), *y = numbers(all), *dy = numbers(all), *dx = numbers(all);
    float *gain = numbers(width), *offset = numbers(width), *means = numbers(rows);
    float *scales = numbers(rows), *part = numbers(size_t(blocks(rows, SEGMENT)) * 2 * width);
    const std::string size = shape({{"R", rows}, {"D", width}});
    const dim3 grid(blocks(rows, ROWS)), block(256);
    report("layer_norm_forward", size, 2 * plane, 8.0 * all, [&] {
        layer_norm_forward<<<grid, block>>>(x, gain, offset, y, means, scales, rows, width, 1e-5f);
    });
    report("layer_norm_backward", size, 3 * plane, 14.0 * all, [&] {
        layer_norm_backward<<<grid, block>>>(x, gain, means, scales, dy, dx, rows, width);
    });
    report("norm_parameters", size, 2 * plane, 5.0 * all, [&] {
        norm_parameters<<<dim3(blocks(width, WARP), blocks(rows, SEGMENT)), block>>>(
            x, means, scales, dy, part, rows, width);
    });
    report("softmax_forward", size, 2 * plane, 5.0 * all, [&] {
        softmax_forward<<<grid, block>>>(x, nullptr, y, rows, rows, width);
    });
    report("softmax_backward", size, 3 * plane, 4.0 * all,
           [&] { softmax_backward<<<grid, block>>>(y, dy, dx, rows, width); });
    const dim3 gates(blocks(width, GATE_THREADS), std::min(rows, 65535));
    report("gate_forward", size, 3 * plane, 5.0 * all,
           [&] { gate_forward<<<gates, block>>>(x, y, dy, rows, width, width, width); });
    const Philox stream{1, 2, 3, 4, 5, 429496729u, 1.0f / 0.9f};
    const dim3 draws(blocks(all / 4, DROPOUT_THREADS));
    report("dropout", size, 2 * plane, 2.0 * all, [&] {
        dropout<<<draws, DROPOUT_THREADS>>>(x, nullptr, y, stream, nullptr, width, all, all);
    });
    report("activation_forward, gelu_erf", size, 2 * plane, 20.0 * all, [&] {
        activation_forward<<<blocks(all, 1024), block>>>(x, y, GELU_ERF, 0.0f, all);
    });
    report("activation_backward, gelu_erf", size, 3 * plane, 40.0 * all, [&] {
        activation_backward<<<blocks(all, 1024), block>>>(x, dy, dx, GELU_ERF, all);
    });
    const dim3 columns(blocks(width, WARP), blocks(rows, BIAS_SEGMENT));
    report("linear_bias", size, 2 * plane, 1.0 * all,
           [&] { linear_bias<<<columns, block>>>(x, gain, y, rows, width); });
    report("linear_bias_gradient", size, plane, 1.0 * all,
           [&] { linear_bias_gradient<<<columns, block>>>(dy, part, rows, width); });
    for (float* memory : {x, y, dy, dx, gain, offset, means, scales, part}) cudaFree(memory);
}

void batch_norms(int rows, int width) {
    const size_t all = size_t(rows) * width;
    const double plane = 4.0 * all;
    const unsigned segments = blocks(rows, BATCH_SEGMENT);
    float *x = numbers(all), *y = numbers(all), *dy = numbers(all), *gain = numbers(width);
    float *moments = numbers(2 * width), *sums = numbers(2 * width), *count = numbers(1);
    float* part = numbers(size_t(segments) * 3 * width);
    const std::string size = shape({{"R", rows}, {"D", width}});
    const dim3 grid(blocks(width, WARP), segments), block(BATCH_THREADS);
    report("batch norm (3 launches)", size, 3 * plane, 8.0 * all, [&] {
        batch_norm_segments<<<grid, block>>>(x, nullptr, part, rows, width);
        batch_norm_moments<<<grid.x, block>>>(part, moments, count, segments, width);
        batch_norm_forward<<<grid, block>>>(x, gain, gain, moments, y, rows, width, 1e-5f);
    });
    report("batch norm, backward (3)", size, 5 * plane, 12.0 * all, [&] {
        batch_norm_parameters<<<grid, block>>>(x, moments, dy, part, rows, width, 1e-5f);
        sum_parts<<<blocks(2 * width, 128), 128>>>(part, sums, segments, 2 * width);
        batch_norm_backward<<<grid, block>>>(x, gain, moments, dy, nullptr, sums, count, y, rows,
                                             width, 1e-5f);
    });
    for (float* memory : {x, y, dy, gain, moments, sums, count, part}) cudaFree(memory);
}

void dplr_spectra(int channels, int modes, int longest, int directions) {
    const int each = 4 * directions + 6, bins = longest / 2 + 1;
    const size_t count = size_t(channels) * each * modes;
    const unsigned segments = blocks(bins, DPLR_SEGMENT);
    const double sums = double(channels) * bins * modes;
    // Pairs of f32 are some number of f64, the same everywhere.
    auto wide = [](size_t count) { return reinterpret_cast<double*>(numbers(2 * count)); };
    double *rows = wide(count), *part = wide(segments * count);
    double *spectra = wide(size_t(channels) * 2 * directions * bins);
    const std::string size = shape({{"D", channels}, {"N", modes}, {"L", longest}});
    const double bytes = 16.0 * channels * directions * bins;
    report("dplr_spectrum_forward", size, bytes, (4 * each + 20) * sums, [&] {
        dplr_spectrum_forward<<<dim3(blocks(bins, DPLR_THREADS), channels), DPLR_THREADS,
                                8 * each * modes>>>(rows, spectra, modes, bins, longest,
                                                    directions);
    });
    report("dplr_spectrum_backward", size, bytes, (12 * each + 40) * sums, [&] {
        dplr_spectrum_backward<<<dim3(segments, channels, blocks(modes, WARP)), DPLR_THREADS,
                                 8 * each * (modes + DPLR_THREADS)>>>(rows, spectra, part, modes,
                                                                      bins, longest, directions);
    });
    for (double* memory : {rows, part, spectra}) cudaFree(memory);
}

void scans(int batch, int length, int elements, int chunk) {
    const size_t all = size_t(batch) * length * elements * 2;
    const int chunks = blocks(length, chunk);
    float *x = numbers(all), *h = numbers(all), *a = numbers(2 * elements);
    float *ends = numbers(all / length * chunks), *products = numbers(all / length * chunks);
    const dim3 grid(blocks(elements, SCAN_THREADS), chunks, batch);
    report("scan_complex (3 launches)",
           shape({{"B", batch}, {"L", length}, {"E", elements}, {"chunk", chunk}}), 8.0 * all,
           4.0 * all, [&] {
               scan_complex_ends<<<grid, SCAN_THREADS>>>(x, a, nullptr, ends, products, length,
                                                         elements, chunk, 0, 0, 0);
               scan_complex_starts<<<dim3(grid.x, batch), SCAN_THREADS>>>(ends, products, chunks,
                                                                          elements);
               scan_complex_forward<<<grid, SCAN_THREADS>>>(x, a, nullptr, ends, h, length,
                                                            elements, chunk, 0, 0);
           });
    for (float* memory : {x, h, a, ends, products}) cudaFree(memory);
}

void state_spaces(int width, int modes, int length) {
    const size_t all = size_t(width) * modes;
    float *a = numbers(all), *c = numbers(all), *kernel = numbers(size_t(width) * length);
    float* part = numbers(blocks(length, STATE_SPAN) * 4 * all);
    const dim3 grid(blocks(length, STATE_SPAN), width);
    const std::string size = shape({{"D", width}, {"N", modes}, {"L", length}});
    report("state_space_kernel_forward", size, 4.0 * width * length, 4.0 * all * length, [&] {
        state_space_kernel_forward<<<grid, STATE_THREADS>>>(a, a, c, c, kernel, modes, length);
    });
    report("state_space_kernel_backward", size, 4.0 * width * length, 16.0 * all * length, [&] {
        state_space_kernel_backward<<<grid, STATE_THREADS>>>(a, a, c, c, kernel, part, modes,
                                                             length);
    });
    for (float* memory : {a, c, kernel, part}) cudaFree(memory);
}

void convolutions(int batch, int length, int width) {
    const size_t all = size_t(batch) * length * width;
    const int size = length;  // n = 2 L
    float *x = numbers(all), *y = numbers(all), *roots = numbers(4 * size);
    float *spectrum = numbers(size_t(width) * (size + 1) * 2);
    Complex *turns = reinterpret_cast<Complex*>(roots), *of = reinterpret_cast<Complex*>(spectrum);
    fft_roots<<<blocks(2 * size, 256), 256>>>(turns, 2 * size);
    // Two transforms of M numbers at 5 M log2 M operations, and the product.
    const double operations = double(batch) * width * (10.0 * size * std::log2(size) + 40.0 * size);
    report("fft_conv", shape({{"B", batch}, {"L", length}, {"D", width}}), 8.0 * all, operations,
           [&] {
               fft_conv<<<dim3(width, batch), std::max(32, size / 4), size * sizeof(Complex)>>>(
                   x, of, turns, y, length, size, 0);
           });
    const dim3 tiles(blocks(width, TRANSPOSE_TILE), blocks(length, TRANSPOSE_TILE), batch);
    report("transpose", shape({{"B", batch}, {"L", length}, {"D", width}}), 8.0 * all, 0.0,
           [&] { transpose<<<tiles, TRANSPOSE_THREADS>>>(x, y, length, width); });
    for (float* memory : {x, y, roots, spectrum}) cudaFree(memory);
}

void long_convolutions(int batch, int length, int width, int rows) {
    const size_t all = size_t(batch) * length * width;
    const int size = length, columns = size / rows;  // n = 2 L
    float *x = numbers(all), *y = numbers(all), *roots = numbers(4 * size);
    float *spectrum = numbers(size_t(width) * (size + 1) * 2), *scratch = numbers(2 * all);
    Complex *turns = reinterpret_cast<Complex*>(roots), *of = reinterpret_cast<Complex*>(spectrum);
    Complex* between = reinterpret_cast<Complex*>(scratch);
    fft_roots<<<blocks(2 * size, 256), 256>>>(turns, 2 * size);
    const dim3 column_grid(blocks(columns, LONG_COLUMNS), width, batch);
    const dim3 row_grid(rows / 2 + 1, width, batch);
    const int column_block = std::max(32, 2 * rows), row_block = std::max(32, columns / 2);
    const double operations = double(batch) * width * (10.0 * size * std::log2(size) + 56.0 * size);
    report("fft_long (3 launches)", shape({{"B", batch}, {"L", length}, {"D", width}}), 40.0 * all,
           operations, [&] {
               fft_long_columns<<<column_grid, column_block, 64 * rows>>>(x, turns, between, length,
                                                                         rows, columns);
               fft_long_product<<<row_grid, row_block, 16 * columns>>>(between, of, turns, width,
                                                                      rows, columns, 0);
               fft_long_sequence<<<column_grid, column_block, 64 * rows>>>(
                   between, turns, y, length, rows, columns);
           });
    for (float* memory : {x, y, roots, spectrum, scratch}) cudaFree(memory);
}

/// Returns the numbers that a row of a head takes in shared memory.
size_t shared_row(int width) { return width > WIDE / 2 ? WIDE : WIDE / 2; }

/// Times the plain form, with factors in tf32 if `single`.
void attentions(int batch, int heads, int length, int width, bool single) {
    const size_t all = size_t(batch) * length * heads * width, rows = size_t(batch) * heads * length;
    float *q = numbers(all), *k = numbers(all), *v = numbers(all), *y = numbers(all);
    float *dq = numbers(all), *dk = numbers(all), *dv = numbers(all);
    float *logs = numbers(rows), *dots = numbers(rows);
    Attention of{};
    of.heads = heads, of.queries = of.keys = length, of.width = of.values = width, of.scale = 0.1f;
    of.single = single;
    const dim3 grid(blocks(length, OWN), batch * heads);
    const size_t forward = sizeof(float) * (OWN + 2 * TILE) * shared_row(width);
    const size_t backward = sizeof(float) * (OWN + TILE) * 2 * shared_row(width);
    for (auto kernel : {(const void*)attention_backward_queries, (const void*)attention_backward_keys,
                        (const void*)attention_forward})
        require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(std::max(forward, backward))),
                "cudaFuncSetAttribute");
    const std::string size =
        shape({{"B", batch}, {"H", heads}, {"L", length}, {"E", width}}) + (single ? ", tf32" : "");
    const double products = 2.0 * rows * length * width;
    report("attention_forward", size, 16.0 * all, 2 * products, [&] {
        attention_forward<<<grid, ATTENTION_THREADS, forward>>>(q, k, v, nullptr, y, logs, of);
    });
    report("attention_backward (2 launches)", size, 32.0 * all, 7 * products, [&] {
        attention_backward_queries<<<grid, ATTENTION_THREADS, backward>>>(q, k, v, nullptr, y, logs, y,
                                                                          dq, dots, of);
        attention_backward_keys<<<grid, ATTENTION_THREADS, backward>>>(q, k, v, nullptr, logs, dots,
                                                                       y, dk, dv, of);
    });
    for (float* memory : {q, k, v, y, dq, dk, dv, logs, dots}) cudaFree(memory);
}

/// Times the general form: a reach of 0 or more adds scores by distance, and a `window` of 1 or
/// more lets blocks of 64 see that many blocks, the first of which is their own.
void general_attentions(const char* name, int batch, int heads, int length, int width, int values,
                        int reach, int window, bool single = false) {
    const size_t rows = size_t(batch) * heads * length, of_q = rows * width, of_v = rows * values;
    float *q = numbers(of_q), *k = numbers(of_q), *dq = numbers(of_q), *dk = numbers(of_q);
    float *v = numbers(of_v), *y = numbers(of_v), *dv = numbers(of_v);
    float *logs = numbers(rows), *dots = numbers(rows);
    const int own = blocks(length, OWN), columns = reach < 0 ? 0 : 2 * reach + 1;
    float* table = numbers(std::max(1, heads * columns));
    float* parts = numbers(std::max(size_t(1), size_t(batch) * own * heads * columns));
    const Attention of{heads, length, length, width, values, 0.1f, 0.0f, 0, single, {}};
    Distances forward_by{}, by{};
    if (reach >= 0) {
        forward_by = {table, nullptr, nullptr, nullptr, nullptr, reach, 0, length};
        by = {table, nullptr, nullptr, parts, nullptr, reach, 0, length};
    }
    Blocks by_query{}, by_key{};
    unsigned* lists = nullptr;
    double seen = length;
    if (window > 0) {
        // Starts, then own blocks and tiles of queries, of keys, then positions.
        std::vector<unsigned> words{0, unsigned(own)};
        int places[4], next = 0;
        for (bool keys : {false, true}) {
            std::vector<unsigned> tiles;
            places[next++] = words.size();
            for (int block = 0; block < own; ++block) {
                const unsigned start = tiles.size() / 4;
                for (int near = 0; near < window; ++near) {
                    const int other = keys ? block - near : block + near;
                    if (other < 0 || other >= own) continue;
                    for (unsigned word : {unsigned(other * OWN), unsigned(OWN), NONE, 0u})
                        tiles.push_back(word);
                }
                for (unsigned word :
                     {unsigned(block * OWN), unsigned(OWN), start, unsigned(tiles.size() / 4)})
                    words.push_back(word);
            }
            places[next++] = words.size();
            words.insert(words.end(), tiles.begin(), tiles.end());
        }
        const int positions = words.size();
        for (int i = 0; i < own * OWN; ++i) words.push_back(i);
        const size_t bytes = words.size() * sizeof(unsigned);
        require(cudaMalloc(&lists, bytes), "cudaMalloc");
        require(cudaMemcpy(lists, words.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        by_query = {lists, 1, 0, places[0], places[1], positions, 0, 0, length, 0.0f};
        by_key = {lists, 1, 0, places[2], places[3], positions, 0, 0, length, 0.0f};
        seen = window * OWN;
    }
    const unsigned heads_of_all = batch * heads;
    const unsigned slices = blocks(width, WIDE), slices_v = blocks(values, WIDE);
    const size_t row = shared_row(width), row_v = shared_row(values);
    const size_t forward = sizeof(float) * ((OWN + TILE) * row + TILE * row_v);
    const size_t of_table = reach < 0 ? 0 : TILE * STRIDE;
    const size_t backward = sizeof(float) * ((OWN + TILE) * (row + row_v) + of_table);
    for (auto kernel : {(const void*)attention_general_forward,
                        (const void*)attention_general_backward_queries,
                        (const void*)attention_general_backward_keys})
        require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(std::max(forward, backward))),
                "cudaFuncSetAttribute");
    const std::string size = shape({{"B", batch}, {"H", heads}, {"L", length}, {"E", width}, {"Ev", values}}) +
                             (single ? ", tf32" : "");
    const double pairs = rows * seen;
    const std::string kernel = std::string(name) + ", forward";
    report(kernel.c_str(), size, 8.0 * (of_q + of_v), 2 * pairs * (width + values), [&] {
        attention_general_forward<<<dim3(own, heads_of_all, slices_v), ATTENTION_THREADS, forward>>>(
            q, k, v, nullptr, y, logs, of, forward_by, by_query);
    });
    const std::string back = std::string(name) + ", backward";
    report(back.c_str(), size, 16.0 * (of_q + of_v), 2 * pairs * (4 * width + 3 * values), [&] {
        attention_general_backward_queries<<<dim3(own, heads_of_all, slices), ATTENTION_THREADS,
                                             backward>>>(q, k, v, nullptr, y, logs, y, dq, dots, of,
                                                         by, by_query);
        attention_general_backward_keys<<<dim3(own, heads_of_all, slices + slices_v),
                                          ATTENTION_THREADS, backward>>>(
            q, k, v, nullptr, logs, dots, y, dk, dv, of, forward_by, by_key);
    });
    for (float* memory : {q, k, dq, dk, v, y, dv, logs, dots, table, parts}) cudaFree(memory);
    cudaFree(lists);
}

/// Times linear attention with one decay or `decays` of them for each head, by the delta rule if
/// `delta`.
void gated_linear_attentions(int batch, int heads, int length, int width, int decays, bool delta) {
    const int chunks = width > 48 ? 2 : 1, tile = 32, segments = blocks(length, 16 * chunks);
    const size_t rows = size_t(batch) * length * heads, all = rows * width;
    const size_t kept = size_t(batch) * heads * segments * width * width;
    float *q = numbers(all), *k = numbers(all), *v = numbers(all), *y = numbers(all);
    float *dq = numbers(all), *dk = numbers(all), *dv = numbers(all), *states = numbers(kept);
    float *dstates = numbers(kept), *log = numbers(rows * decays), *dlog = numbers(rows * decays);
    float *totals = numbers(kept), *rate = numbers(rows), *drate = numbers(rows);
    const float* rates = delta ? rate : nullptr;
    const GatedLinearAttention of{length, heads, width, width, decays, delta, 0, 0, chunks, tile};
    const size_t of_decays = decays > 1 ? 16 * (width + 1) : 16, state = width * (tile + 1);
    const size_t numbers_forward = 32 * (width + 1) + 3 * of_decays + 48 * (tile + 1) + 560 + state;
    const size_t forward = 4 * numbers_forward;
    const size_t backward = forward + 4 * (49 * width + 48 + state + 16 * (tile + 1) + 560);
    require(cudaFuncSetAttribute((const void*)gated_linear_attention_backward,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, int(backward)),
            "cudaFuncSetAttribute");
    const dim3 block(GLA_THREADS), by_segment(batch * heads, segments, blocks(width, tile));
    const dim3 walks(batch * heads, delta ? 1 : segments, blocks(width, tile));
    const dim3 by_number(batch * heads, blocks(width * width, GLA_THREADS));
    const std::string size = shape({{"B", batch}, {"H", heads}, {"L", length}, {"K", width}}) +
                             (decays > 1 ? " channel" : "") + (delta ? " delta" : "");
    const double products = 2.0 * rows * width * width;
    report("gated_linear_attention", size, 16.0 * all, 3 * products, [&] {
        gated_linear_attention_states<<<walks, block, forward>>>(k, v, log, rates, states, totals, of);
        if (!delta) gated_linear_attention_starts<<<by_number, block>>>(states, totals, 0, of);
        gated_linear_attention_forward<<<by_segment, block, forward>>>(q, k, v, log, rates, states, y,
                                                                       of);
    });
    report("gated_linear_attention backward", size, 32.0 * all, 6 * products, [&] {
        gated_linear_attention_adjoint<<<walks, block, forward>>>(q, k, log, rates, y, dstates, totals,
                                                                  of);
        if (!delta) gated_linear_attention_starts<<<by_number, block>>>(dstates, totals, 1, of);
        gated_linear_attention_backward<<<dim3(batch * heads, blocks(length, 16)), block, backward>>>(
            q, k, v, log, rates, states, dstates, y, dq, dk, dv, dlog, drate, of);
    });
    for (float* memory : {q, k, v, y, dq, dk, dv, states, dstates, log, dlog, totals, rate, drate})
        cudaFree(memory);
}

void parameters(int count, int elements) {
    const size_t all = size_t(count) * elements;
    float* memory[] = {numbers(all), numbers(all), numbers(all), numbers(all)};
    std::vector<AdamWParameter> each;
    const int chunks = blocks(elements, CHUNK);
    for (int p = 0; p < count; ++p) {
        const size_t at = size_t(p) * elements;
        each.push_back({memory[0] + at, memory[1] + at, memory[2] + at, memory[3] + at, elements,
                        p * chunks, 1.0f, 1e-3f});
    }
    AdamWParameter* list = nullptr;
    const size_t bytes = each.size() * sizeof(AdamWParameter);
    require(cudaMalloc(&list, bytes), "cudaMalloc");
    require(cudaMemcpy(list, each.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    report("adamw", shape({{"parameters", count}, {"of", elements}}), 28.0 * all, 14.0 * all, [&] {
        adamw<<<count * chunks, CHUNK_THREADS>>>(list, count, {0.9f, 0.1f, 0.98f, 0.02f, 1, 1e-8f},
                                                 nullptr);
    });
    for (float* each_memory : memory) cudaFree(each_memory);
    cudaFree(list);
}

int main() {
    cudaDeviceProp card;
    require(cudaGetDeviceProperties(&card, 0), "cudaGetDeviceProperties");
    const size_t count = size_t(1) << 26;
    float *from = numbers(count), *to = numbers(count);
    copy_speed = 8.0 * count / seconds([&] {
        require(cudaMemcpy(to, from, 4 * count, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    });
    cudaFree(from);
    cudaFree(to);
    std::printf("%s, %d multiprocessors, a copy moves %.0f GB/s\n", card.name,
                card.multiProcessorCount, copy_speed / 1e9);
    std::printf("%-28s %-34s %9s %9s %8s %8s %9s\n", "kernel", "shape", "ms", "MB", "GB/s", "of copy",
                "TFLOP/s");
    rows(32 * 4096, 512);
    batch_norms(16 * 16384, 256);
    dplr_spectra(256, 32, 16384, 2);
    for (int chunk : {4096, 512, 128, 64}) scans(32, 4096, 256, chunk);
    for (int chunk : {256, 128, 64}) scans(1, 16384, 256, chunk);
    state_spaces(256, 64, 16384);
    state_spaces(512, 32, 1024);
    convolutions(32, 1024, 512);
    convolutions(32, 4096, 256);
    long_convolutions(4, 16384, 256, 128);
    for (bool single : {false, true}) {
        attentions(32, 4, 1024, 64, single);
        attentions(4, 4, 4096, 64, single);
        attentions(32, 2, 4096, 32, single);
        general_attentions("by distance", 32, 1, 4096, 32, 128, 4095, 0, single);
    }
    general_attentions("in blocks", 32, 4, 4096, 64, 64, -1, 3);
    general_attentions("wide heads", 32, 2, 1024, 128, 128, -1, 0);
    gated_linear_attentions(32, 4, 4096, 32, 1, false);
    gated_linear_attentions(32, 4, 4096, 32, 32, false);
    gated_linear_attentions(32, 4, 4096, 32, 1, true);
    gated_linear_attentions(8, 4, 4096, 64, 64, true);
    parameters(80, 300000);
}
