/* Multiplies operands that arrived quantized, as codes and scales that something else made: MXFP8 E4M3 with a scale for
 * every 32 codes. Nothing is quantized for y = x w^T. It takes compact scales and swizzled ones, and gives the same bits.
 * For the gradient dx = dy w, whose sums run down the columns of w, w is requantized to blocks along its columns. All
 * numbers are such that nothing is rounded, and plain loops must give the same. */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, K = 64 };
static const uint8_t digits[7] = {0xC4, 0xC0, 0xB8, 0x00, 0x38, 0x40, 0x44}; /* -3 to 3 in E4M3 */

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

typedef struct {
    uint8_t codes[N][K], scales[N][K / 32], swizzled[512]; /* scale byte 127 is 1, 128 is 2; the same bytes swizzled */
    float values[N][K];                                    /* what they mean */
} operand;

static void arrive(operand* a, int seed) {
    int i, k;
    memset(a, 0, sizeof *a); /* bytes of swizzled scales that belong to no block are zero */
    for (i = 0; i < N; ++i)
        for (k = 0; k < K; ++k) {
            const int digit = (i * 5 + k * k + seed) % 7, exponent = (i + k / 32 + seed) % 4 - 1;
            a->codes[i][k] = digits[digit];
            a->scales[i][k / 32] = (uint8_t)(127 + exponent);
            a->swizzled[i % 32 * 16 + i / 32 * 4 + k / 32] =
                (uint8_t)(127 + exponent); /* docs/layouts.md; one tile holds all */
            a->values[i][k] = (float)(digit - 3) * (exponent < 0 ? 0.5f : (float)(1 << exponent));
        }
}

/* Describes an operand where it lies. */
static mxq_tensor* describe(operand* a, int swizzled) {
    mxq_tensor* t = NULL;
    check(mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, N, K, &t));
    check(mxq_tensor_set_swizzled(t, swizzled));
    check(mxq_tensor_set_part(t, MXQ_PART_ROWWISE, a->codes, sizeof a->codes, swizzled ? a->swizzled : a->scales[0],
                              swizzled ? sizeof a->swizzled : sizeof a->scales));
    return t;
}

int main(void) {
    static operand x, w, dy;
    static float y[2][N][N], dx[N][K];
    static uint8_t codes[K][N], scales[K][N / 32]; /* the columnwise part of w: codes are stored transposed */
    mxq_context* context = NULL;
    mxq_tensor *a, *b, *d = NULL, *columnwise = NULL;
    mxq_gemm_options* options = NULL;
    int swizzled, m, n, k, wrong = 0;

    arrive(&x, 1), arrive(&w, 2), arrive(&dy, 3);
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, N, N, &d)); /* dx has the same shape: K is N */
    for (swizzled = 0; swizzled < 2; ++swizzled) {
        a = describe(&x, swizzled), b = describe(&w, swizzled);
        check(mxq_tensor_set_data(d, y[swizzled], sizeof y[swizzled]));
        check(mxq_gemm(context, NULL, a, b, d, NULL, 0, NULL)); /* without options: A as it is, B transposed */
        mxq_tensor_destroy(a), mxq_tensor_destroy(b);
    }

    a = describe(&dy, 0), b = describe(&w, 0);
    check(mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, N, K, &columnwise)); /* the shape is that of w, whatever the part */
    check(mxq_tensor_set_part(columnwise, MXQ_PART_COLUMNWISE, codes, sizeof codes, scales, sizeof scales));
    check(mxq_requantize(context, NULL, b, columnwise, NULL, 0, NULL));
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_transpose(options, MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N));
    check(mxq_tensor_set_data(d, dx, sizeof dx));
    check(mxq_gemm(context, options, a, columnwise, d, NULL, 0, NULL));

    for (m = 0; m < N; ++m)
        for (n = 0; n < N; ++n) {
            float forward = 0, gradient = 0;
            for (k = 0; k < K; ++k) forward += x.values[m][k] * w.values[n][k], gradient += dy.values[m][k] * w.values[k][n];
            wrong += (y[0][m][n] != forward) + (y[1][m][n] != forward) + (dx[m][n] != gradient);
        }
    printf("w, first number: code %02X, scale 2^%d; requantized for dx = dy w: code %02X, scale 2^%d\n", w.codes[0][0],
           w.scales[0][0] - 127, codes[0][0], scales[0][0] - 127);
    printf("%d wrong numbers of %d\n", wrong, 3 * N * N);

    mxq_tensor_destroy(a), mxq_tensor_destroy(b), mxq_tensor_destroy(columnwise), mxq_tensor_destroy(d);
    mxq_gemm_options_destroy(options), mxq_context_destroy(context);
    return wrong != 0;
}
