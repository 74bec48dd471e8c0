/* One training step of a layer of experts, y = x w^T, in which each expert has some of the tokens. x, w and dy, the gradient of
 * y, are quantized to MXFP8 in both directions; three products give y, dx = dy w and dw = dy^T x. All numbers are small
 * integers, which MXFP8 holds exactly, so that sum(dy y) = sum(dx x) = sum(dw w). (moe_layer does this on CUDA, too.) */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 3, TOKENS = 70, IN = 64, OUT = 32 };
static const int32_t ends[EXPERTS] = {30, 30, 70}; /* one past the last token of each expert; the second has none */
static mxq_context* context;
static mxq_tensor* made[9];
static int made_count;

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

/* Returns a tensor with all of its memory. 0 experts: a matrix, whose rows belong to experts if it is quantized. */
static mxq_tensor* make(mxq_format format, int64_t experts, int64_t rows, int64_t cols) {
    static unsigned char arena[1 << 20], *next = arena;
    const mxq_part parts = format == MXQ_FORMAT_F32 ? MXQ_PART_ROWWISE : MXQ_PART_BOTH;
    mxq_tensor* t = NULL;
    uint64_t bytes = 0;
    check(experts ? mxq_tensor_create_3d(format, experts, rows, cols, &t) : mxq_tensor_create_2d(format, rows, cols, &t));
    if (!experts && parts == MXQ_PART_BOTH) check(mxq_tensor_set_groups(t, ends, sizeof ends, MXQ_TYPE_INT32, EXPERTS));
    check(mxq_tensor_total_bytes(t, parts, &bytes));
    next += (256 - (uintptr_t)next % 256) % 256;
    check(mxq_tensor_set_memory(t, parts, next, (uint64_t)(arena + sizeof arena - next)));
    next += bytes;
    return made[made_count++] = t;
}

static float* values(const mxq_tensor* t) {
    void* data = NULL;
    check(mxq_tensor_get_data(t, &data, NULL, NULL));
    return data;
}

/* Returns `count` integers from -3 to 3 in a plain tensor, and the same quantized. */
static mxq_tensor* integers(int64_t count, int64_t experts, int64_t rows, int64_t cols, mxq_tensor** quantized) {
    mxq_tensor* plain = make(MXQ_FORMAT_F32, experts, rows, cols);
    while (count-- > 0) values(plain)[count] = (float)(count * count % 97 % 7 - 3);
    check(mxq_quantize(context, NULL, plain, *quantized = make(MXQ_FORMAT_MXFP8_E4M3, experts, rows, cols), NULL, 0, NULL));
    return plain;
}

static void multiply(mxq_transpose ta, const mxq_tensor* a, mxq_transpose tb, const mxq_tensor* b, const mxq_tensor* d) {
    mxq_gemm_options* options = NULL;
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_transpose(options, ta, tb));
    check(mxq_grouped_gemm(context, options, a, b, d, NULL, 0, NULL));
    mxq_gemm_options_destroy(options);
}

static double sum_of_products(const mxq_tensor* a, const mxq_tensor* b, int64_t count) {
    double sum = 0;
    while (count-- > 0) sum += (double)values(a)[count] * values(b)[count];
    return sum;
}

int main(void) {
    mxq_tensor *x, *w, *dy, *xq, *wq, *dyq, *y, *dx, *dw;
    double of_y, of_dx, of_dw;
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    x = integers(TOKENS * IN, 0, TOKENS, IN, &xq);
    w = integers(EXPERTS * OUT * IN, EXPERTS, OUT, IN, &wq);
    dy = integers(TOKENS * OUT, 0, TOKENS, OUT, &dyq);
    multiply(MXQ_TRANSPOSE_N, xq, MXQ_TRANSPOSE_T, wq, y = make(MXQ_FORMAT_F32, 0, TOKENS, OUT));
    multiply(MXQ_TRANSPOSE_N, dyq, MXQ_TRANSPOSE_N, wq, dx = make(MXQ_FORMAT_F32, 0, TOKENS, IN));
    multiply(MXQ_TRANSPOSE_T, dyq, MXQ_TRANSPOSE_N, xq, dw = make(MXQ_FORMAT_F32, EXPERTS, OUT, IN));
    of_y = sum_of_products(dy, y, TOKENS * OUT);
    of_dx = sum_of_products(dx, x, TOKENS * IN), of_dw = sum_of_products(dw, w, EXPERTS * OUT * IN);
    printf("sum(dy y) = %g, sum(dx x) = %g, sum(dw w) = %g\n", of_y, of_dx, of_dw);
    while (made_count > 0) mxq_tensor_destroy(made[--made_count]);
    mxq_context_destroy(context);
    return of_y != of_dx || of_y != of_dw;
}
