// The side of libmxq in docs/transformer-engine.md, run on a CPU context: 64 tokens in 3 groups, 128 inputs, 96 outputs.
#include <mxq/mxq.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M 64
#define K 128
#define N 96
#define E 3
static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}
static void* allocate(uint64_t bytes) {
    char* memory = calloc(1, bytes + 256);
    return memory ? memory + 256 - (uintptr_t)memory % 256 : NULL;
}
static float values[M * K], weight_values[E * N * K], gradient_values[M * N], outputs[M * N], input_gradient[M * K],
    weight_gradient[E * N * K], biases[N];
static uint8_t row_data[M * K], row_scales[M * K / 32], column_data[M * K], column_scales[M * K / 32];
static float scale = 100, amax, scale_inv;
static const int32_t ends[E] = {20, 20, 64};
static uint64_t rng_state[2] = {1, 0};

// Returns a descriptor around plain numbers, and one with memory for their quantized form.
static mxq_tensor* plain(float* data, int64_t rows, int64_t cols) {
    mxq_tensor* out = NULL;
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, rows, cols, &out));
    check(mxq_tensor_set_data(out, data, (uint64_t)(rows * cols) * 4));
    return out;
}
static void give_memory(mxq_tensor* tensor) {
    uint64_t bytes = 0;
    check(mxq_tensor_total_bytes(tensor, MXQ_PART_BOTH, &bytes));
    check(mxq_tensor_set_memory(tensor, MXQ_PART_BOTH, allocate(bytes), bytes));
}
static mxq_tensor* quantized(mxq_context* context, mxq_tensor* in, mxq_format format, int64_t rows, int64_t cols) {
    mxq_tensor* out = NULL;
    check(mxq_tensor_create_2d(format, rows, cols, &out));
    give_memory(out);
    check(mxq_quantize(context, NULL, in, out, NULL, 0, NULL));
    return out;
}

int main(void) {
    mxq_context* context = NULL;
    mxq_quantize_options* options = NULL;
    mxq_gemm_options* gemm_options = NULL;
    void *workspace = NULL, *stream = NULL;
    uint64_t workspace_bytes = 0;
    for (int i = 0; i < M * K; ++i) values[i] = (float)(i % 7 - 3);
    for (int i = 0; i < E * N * K; ++i) weight_values[i] = (float)(i % 5 - 2);
    for (int i = 0; i < M * N; ++i) gradient_values[i] = (float)(i % 3 - 1);
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_quantize_options_create(&options));
    check(mxq_gemm_options_create(&gemm_options));
    mxq_tensor *x = plain(values, M, K), *w = plain(weight_values, N, K), *dy = plain(gradient_values, M, N);
    mxq_tensor *y = plain(outputs, M, N), *dx = plain(input_gradient, M, K), *dw = plain(weight_gradient, N, K), *t = NULL;
    mxq_tensor *xq = quantized(context, x, MXQ_FORMAT_MXFP8_E4M3, M, K),
               *wq = quantized(context, w, MXQ_FORMAT_MXFP8_E4M3, N, K);
    mxq_tensor* dyq = quantized(context, dy, MXQ_FORMAT_MXFP8_E4M3, M, N);
    (void)ends, (void)rng_state, (void)scale, (void)amax, (void)scale_inv, (void)biases, (void)row_data, (void)row_scales;
    (void)column_data, (void)column_scales, (void)dx, (void)dw, (void)y, (void)xq, (void)wq, (void)dyq;
    // page
    mxq_tensor_destroy(t);
    return 0;
}
