/* Quantizes a small matrix to MXFP8 E4M3 on the CPU, prints codes and scales, and dequantizes it again. */
#include <mxq/mxq.h>
#include <stdio.h>

enum { ROWS = 2, COLS = 64, BLOCKS = COLS / 32 };

static int fail(void) {
    fprintf(stderr, "%s\n", mxq_last_error());
    return 1;
}

int main(void) {
    float in[ROWS * COLS], back[ROWS * COLS];
    uint8_t codes[ROWS * COLS], scales[ROWS * BLOCKS];
    mxq_context* context = NULL;
    mxq_tensor *x = NULL, *q = NULL, *y = NULL;
    int i;

    for (i = 0; i < ROWS * COLS; ++i)
        in[i] = (float)(i % 32 + 1) * (i < COLS ? 1.0f : 1000.0f) * (i % 2 ? -1.0f : 1.0f);

    if (mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context)) return fail();
    if (mxq_tensor_create_2d(MXQ_FORMAT_F32, ROWS, COLS, &x)) return fail();
    if (mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, ROWS, COLS, &q)) return fail();
    if (mxq_tensor_create_2d(MXQ_FORMAT_F32, ROWS, COLS, &y)) return fail();
    if (mxq_tensor_set_data(x, in, sizeof in)) return fail();
    if (mxq_tensor_set_data(y, back, sizeof back)) return fail();
    if (mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales)) return fail();

    if (mxq_quantize(context, NULL, x, q, NULL, 0, NULL)) return fail();
    if (mxq_dequantize(context, NULL, q, y, NULL, 0, NULL)) return fail();

    printf("libmxq %s on %s\n", mxq_version_string(), mxq_context_description(context));
    for (i = 0; i < ROWS * BLOCKS; ++i)
        printf("row %d, block %d: scale %3d = 2^%d; first codes %02X %02X %02X; first values %g %g %g, was %g %g %g\n",
               i / BLOCKS, i % BLOCKS, scales[i], scales[i] - 127, codes[32 * i], codes[32 * i + 1], codes[32 * i + 2],
               back[32 * i], back[32 * i + 1], back[32 * i + 2], in[32 * i], in[32 * i + 1], in[32 * i + 2]);

    mxq_tensor_destroy(y);
    mxq_tensor_destroy(q);
    mxq_tensor_destroy(x);
    mxq_context_destroy(context);
    return 0;
}
