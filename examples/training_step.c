/* One training step of a layer of experts, y = x w^T, in which each expert has some of the tokens. x, w and dy, the gradient of
 * y, are quantized to MXFP8 in both directions. Three products give y, dx = dy w and dw = dy^T x. All numbers are small
 * integers, which MXFP8 holds exactly, so that plain loops must give the same.
 *     training_step          runs on the CPU
 *     training_step cuda     runs on CUDA device 0 */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef EXAMPLE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

enum { EXPERTS = 3, TOKENS = 70, IN = 64, OUT = 32, ARENA = 64 << 20 };
static const int32_t ends[EXPERTS] = {30, 30, 70}; /* one past the last token of each expert; the second has none */
static mxq_context* context;
static unsigned char *arena, *next; /* memory that both the host and the device can access */

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

static void* take(uint64_t bytes) {
    next += (256 - (uintptr_t)next % 256) % 256 + bytes;
    if (next > arena + ARENA) fprintf(stderr, "the arena is too small\n"), exit(1);
    return next - bytes;
}

static void open_device(int cuda) {
    check(mxq_context_create(cuda ? MXQ_DEVICE_CUDA : MXQ_DEVICE_CPU, 0, NULL, &context));
    if (!cuda) arena = malloc(ARENA);
#ifdef EXAMPLE_WITH_CUDA
    if (cuda && cudaMallocManaged((void**)&arena, ARENA, cudaMemAttachGlobal)) arena = NULL;
#endif
    if (!(next = arena)) fprintf(stderr, "no memory\n"), exit(1);
}

/* Returns a tensor with all of its memory. 0 experts: a matrix; groups: its rows belong to experts. */
static mxq_tensor* make(mxq_format format, int64_t experts, int64_t rows, int64_t cols, const int32_t* groups) {
    const mxq_part parts = format == MXQ_FORMAT_F32 ? MXQ_PART_ROWWISE : MXQ_PART_BOTH;
    mxq_tensor* t = NULL;
    uint64_t bytes = 0;
    check(experts ? mxq_tensor_create_3d(format, experts, rows, cols, &t) : mxq_tensor_create_2d(format, rows, cols, &t));
    if (groups) check(mxq_tensor_set_groups(t, groups, sizeof ends, MXQ_TYPE_INT32, EXPERTS));
    check(mxq_tensor_total_bytes(t, parts, &bytes));
    check(mxq_tensor_set_memory(t, parts, take(bytes), bytes));
    return t;
}

static float* values(const mxq_tensor* t) {
    void* data = NULL;
    check(mxq_tensor_get_data(t, &data, NULL, NULL));
    return data;
}

/* Returns a tensor of integers from -3 to 3, quantized. */
static mxq_tensor* quantized(int64_t experts, int64_t rows, int64_t cols, const int32_t* groups, float** numbers) {
    mxq_tensor *plain = make(MXQ_FORMAT_F32, experts, rows, cols, NULL), *t = make(MXQ_FORMAT_MXFP8_E4M3, experts, rows, cols, groups);
    int64_t i;
    *numbers = values(plain);
    for (i = 0; i < (experts ? experts : 1) * rows * cols; ++i) (*numbers)[i] = (float)(i * i % 97 % 7 - 3);
    check(mxq_quantize(context, NULL, plain, t, NULL, 0, NULL));
    mxq_tensor_destroy(plain);
    return t;
}

/* Multiplies for each expert, waits, and returns the numbers of the product. */
static const float* multiply(mxq_transpose ta, const mxq_tensor* a, mxq_transpose tb, const mxq_tensor* b, mxq_tensor* d) {
    mxq_gemm_options* options = NULL;
    mxq_plan* plan = NULL;
    uint64_t bytes;
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_transpose(options, ta, tb));
    check(mxq_grouped_gemm_query(context, options, a, b, d, &plan));
    bytes = mxq_plan_workspace_bytes(plan);
    check(mxq_grouped_gemm(context, options, a, b, d, take(bytes), bytes, NULL));
    printf("%s by %s\n", mxq_context_description(context), mxq_plan_implementation(plan));
    mxq_plan_destroy(plan);
    mxq_gemm_options_destroy(options);
#ifdef EXAMPLE_WITH_CUDA
    cudaDeviceSynchronize();
#endif
    return values(d);
}

static float dot(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count) {
    float sum = 0;
    for (; count > 0; --count, a += a_step, b += b_step) sum += *a * *b;
    return sum;
}

int main(int argc, char** argv) {
    mxq_tensor *x, *w, *dy, *y, *dx, *dw;
    float *xs, *ws, *dys;
    const float *ys, *dxs, *dws;
    int32_t* groups;
    int64_t e, t, o, i, begin = 0, wrong = 0;
    const int cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;

    open_device(cuda);
    groups = memcpy(take(sizeof ends), ends, sizeof ends);
    x = quantized(0, TOKENS, IN, groups, &xs);
    dy = quantized(0, TOKENS, OUT, groups, &dys);
    w = quantized(EXPERTS, OUT, IN, NULL, &ws);
    ys = multiply(MXQ_TRANSPOSE_N, x, MXQ_TRANSPOSE_T, w, y = make(MXQ_FORMAT_F32, 0, TOKENS, OUT, NULL));
    dxs = multiply(MXQ_TRANSPOSE_N, dy, MXQ_TRANSPOSE_N, w, dx = make(MXQ_FORMAT_F32, 0, TOKENS, IN, NULL));
    dws = multiply(MXQ_TRANSPOSE_T, dy, MXQ_TRANSPOSE_N, x, dw = make(MXQ_FORMAT_F32, EXPERTS, OUT, IN, NULL));

    for (e = 0; e < EXPERTS; begin = ends[e++])
        for (o = 0; o < OUT; ++o)
            for (i = 0; i < IN; ++i) {
                const float *we = ws + e * OUT * IN, *xe = xs + begin * IN, *dye = dys + begin * OUT;
                wrong += dws[(e * OUT + o) * IN + i] != dot(dye + o, OUT, xe + i, IN, ends[e] - begin);
                for (t = begin; t < ends[e]; ++t) {
                    wrong += i == 0 && ys[t * OUT + o] != dot(xs + t * IN, 1, we + o * IN, 1, IN);
                    wrong += o == 0 && dxs[t * IN + i] != dot(dys + t * OUT, 1, we + i, IN, OUT);
                }
            }
    printf("%d wrong numbers of %d\n", (int)wrong, TOKENS * (IN + OUT) + EXPERTS * OUT * IN);

    mxq_tensor_destroy(x), mxq_tensor_destroy(w), mxq_tensor_destroy(dy);
    mxq_tensor_destroy(y), mxq_tensor_destroy(dx), mxq_tensor_destroy(dw);
    mxq_context_destroy(context);
    if (!cuda) free(arena);
    return wrong != 0;
}
