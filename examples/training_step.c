/* A training step of a layer of experts on a CPU (moe_layer has CUDA): x, w and dy, the gradient of y, become MXFP8 in both
 * directions; products give y, dx and dw. MXFP8 holds small integers exactly, so sum(dy y) = sum(dx x) = sum(dw w). */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 3, TOKENS = 70, IN = 64, OUT = 32 };
enum { X, Y, W }; /* Each shape has given numbers (x, dy, w), the same quantized, and a product (dx, y, dw). */
static const int64_t rows[] = {TOKENS, TOKENS, OUT}, cols[] = {IN, OUT, IN}, experts[] = {1, 1, EXPERTS};
static const int32_t ends[EXPERTS] = {30, 30, 70}; /* one past the last token of each expert; the second has none */
static mxq_tensor *given[3], *quantized[3], *product[3];
static float *numbers[3], *results[3];

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

/* Makes a tensor of shape i and returns its memory. Quantized tokens are in groups, one for each expert. */
static float* make(int i, mxq_format format, mxq_part parts, mxq_tensor** t) {
    static float arena[1 << 16], *memory = arena;
    uint64_t bytes = 0;
    check(i == W ? mxq_tensor_create_3d(format, EXPERTS, OUT, IN, t) : mxq_tensor_create_2d(format, rows[i], cols[i], t));
    if (i != W && parts == MXQ_PART_BOTH) check(mxq_tensor_set_groups(*t, ends, sizeof ends, MXQ_TYPE_INT32, EXPERTS));
    check(mxq_tensor_total_bytes(*t, parts, &bytes));
    while ((uintptr_t)memory % 256) ++memory;
    check(mxq_tensor_set_memory(*t, parts, memory, sizeof arena - (size_t)(memory - arena) * sizeof *arena));
    memory += bytes / sizeof *memory;
    return memory - bytes / sizeof *memory;
}

static void multiply(mxq_context* context, mxq_transpose ta, int a, mxq_transpose tb, int b, int d) {
    mxq_gemm_options* options = NULL;
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_transpose(options, ta, tb));
    check(mxq_grouped_gemm(context, options, quantized[a], quantized[b], product[d], NULL, 0, NULL));
    mxq_gemm_options_destroy(options);
}

int main(void) {
    double sums[3] = {0, 0, 0};
    mxq_context* context = NULL;
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    for (int i = X; i <= W; ++i) {
        numbers[i] = make(i, MXQ_FORMAT_F32, MXQ_PART_ROWWISE, &given[i]);
        results[i] = make(i, MXQ_FORMAT_F32, MXQ_PART_ROWWISE, &product[i]);
        make(i, MXQ_FORMAT_MXFP8_E4M3, MXQ_PART_BOTH, &quantized[i]);
        for (int64_t n = 0; n < experts[i] * rows[i] * cols[i]; ++n) numbers[i][n] = (float)(n * n % 97 % 7 - 3);
        check(mxq_quantize(context, NULL, given[i], quantized[i], NULL, 0, NULL));
    }
    multiply(context, MXQ_TRANSPOSE_N, X, MXQ_TRANSPOSE_T, W, Y); /* y = x w^T */
    multiply(context, MXQ_TRANSPOSE_N, Y, MXQ_TRANSPOSE_N, W, X); /* dx = dy w */
    multiply(context, MXQ_TRANSPOSE_T, Y, MXQ_TRANSPOSE_N, X, W); /* dw = dy^T x */
    for (int i = X; i <= W; ++i)
        for (int64_t n = 0; n < experts[i] * rows[i] * cols[i]; ++n) sums[i] += (double)numbers[i][n] * results[i][n];
    printf("sum(dy y) = %g, sum(dx x) = %g, sum(dw w) = %g\n", sums[Y], sums[X], sums[W]);
    for (int i = X; i <= W; ++i)
        mxq_tensor_destroy(given[i]), mxq_tensor_destroy(quantized[i]), mxq_tensor_destroy(product[i]);
    mxq_context_destroy(context);
    return sums[X] != sums[Y] || sums[X] != sums[W];
}
