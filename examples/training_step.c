/* One training step of a layer of experts, y = x w^T, in which each expert has some of the tokens. x, w and dy, the gradient of
 * y, are quantized to MXFP8 in both directions; three products give y, dx = dy w and dw = dy^T x. All numbers are small
 * integers, which MXFP8 holds exactly, so that plain loops must give the same. (moe_layer does this on CUDA, too.) */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 3, TOKENS = 70, IN = 64, OUT = 32 };
static const int32_t ends[EXPERTS] = {30, 30, 70}; /* one past the last token of each expert; the second has none */
static mxq_context* context;

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
    return t;
}

static float* values(const mxq_tensor* t) {
    void* data = NULL;
    check(mxq_tensor_get_data(t, &data, NULL, NULL));
    return data;
}

/* Returns a plain tensor of integers from -3 to 3, and the same quantized. */
static mxq_tensor* integers(int64_t experts, int64_t rows, int64_t cols, mxq_tensor** quantized) {
    mxq_tensor* plain = make(MXQ_FORMAT_F32, experts, rows, cols);
    int64_t i;
    for (i = 0; i < (experts ? experts : 1) * rows * cols; ++i) values(plain)[i] = (float)(i * i % 97 % 7 - 3);
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

/* Returns how many numbers of d (m, n) are not those of a times b, whose steps along m or n and along the sum are given. */
static int64_t wrong(const float* d, int64_t m, int64_t n, const float* a, int64_t a_m, int64_t a_k, const float* b, int64_t b_n,
                     int64_t b_k, int64_t count) {
    int64_t i, k, found = 0;
    for (i = 0; i < m * n; ++i) {
        float sum = 0;
        for (k = 0; k < count; ++k) sum += a[i / n * a_m + k * a_k] * b[i % n * b_n + k * b_k];
        found += d[i] != sum;
    }
    return found;
}

int main(void) {
    mxq_tensor *x, *w, *dy, *xq, *wq, *dyq, *y, *dx, *dw;
    int64_t e, begin = 0, found = 0;
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    x = integers(0, TOKENS, IN, &xq), w = integers(EXPERTS, OUT, IN, &wq), dy = integers(0, TOKENS, OUT, &dyq);
    multiply(MXQ_TRANSPOSE_N, xq, MXQ_TRANSPOSE_T, wq, y = make(MXQ_FORMAT_F32, 0, TOKENS, OUT));
    multiply(MXQ_TRANSPOSE_N, dyq, MXQ_TRANSPOSE_N, wq, dx = make(MXQ_FORMAT_F32, 0, TOKENS, IN));
    multiply(MXQ_TRANSPOSE_T, dyq, MXQ_TRANSPOSE_N, xq, dw = make(MXQ_FORMAT_F32, EXPERTS, OUT, IN));

    for (e = 0; e < EXPERTS; begin = ends[e++]) {
        const float *xe = values(x) + begin * IN, *we = values(w) + e * OUT * IN, *dye = values(dy) + begin * OUT;
        const int64_t tokens = ends[e] - begin;
        found += wrong(values(y) + begin * OUT, tokens, OUT, xe, IN, 1, we, IN, 1, IN);
        found += wrong(values(dx) + begin * IN, tokens, IN, dye, OUT, 1, we, 1, IN, OUT);
        found += wrong(values(dw) + e * OUT * IN, OUT, IN, dye, 1, OUT, xe, 1, IN, tokens);
    }
    printf("%d wrong numbers of %d\n", (int)found, TOKENS * (IN + OUT) + EXPERTS * OUT * IN);
    mxq_tensor_destroy(x), mxq_tensor_destroy(w), mxq_tensor_destroy(dy);
    mxq_tensor_destroy(xq), mxq_tensor_destroy(wq), mxq_tensor_destroy(dyq);
    mxq_tensor_destroy(y), mxq_tensor_destroy(dx), mxq_tensor_destroy(dw);
    mxq_context_destroy(context);
    return found != 0;
}
