/* Multiplies with the experts of gpt-oss as its checkpoints store them: nothing is converted or moved.
 *     gate_up_proj_blocks   uint8 (experts, rows, cols / 32, 16)   two E2M1 codes a byte, the even one in the low half
 *     gate_up_proj_scales   uint8 (experts, rows, cols / 32)       powers of two, 127 is 1
 *     gate_up_proj_bias     BF16  (experts, rows)
 * are the codes and scales of an MXFP4 tensor (experts, rows, cols), and a bias for each group. Rows 2 j and 2 j + 1 are
 * gate and up of neuron j, and so are columns 2 j and 2 j + 1 of the product. */
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 4, NEURONS = 48, ROWS = 2 * NEURONS, COLS = 96, TOKENS = 7 };
static const int32_t ends[EXPERTS] = {3, 3, 4, 7}; /* one past the last token of each expert; the second has none */
static uint8_t blocks[EXPERTS][ROWS][COLS / 32][16], scales[EXPERTS][ROWS][COLS / 32];
static uint16_t bias[EXPERTS][ROWS], x[TOKENS][COLS]; /* BF16 */
static float y[TOKENS][NEURONS][2];                   /* gate, up */

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

/* Converts a small integer, which BF16 holds exactly. */
static uint16_t bf16(int integer) {
    const float value = (float)integer;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static int activation(int token, int col) { return (token * 3 + col * col) % 7 - 3; }
static int added(int expert, int row) { return expert - row % 5; }

/* Returns a weight as the checkpoint's own code reads it: a table of 16 values, then an exponent. */
static float weight(int expert, int row, int col) {
    static const float table[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const uint8_t pair = blocks[expert][row][col / 32][col % 32 / 2];
    return table[col % 2 ? pair >> 4 : pair & 15] / (float)(1 << (127 - scales[expert][row][col / 32]));
}

int main(void) {
    mxq_context* context = NULL;
    mxq_tensor *tx = NULL, *tw = NULL, *ty = NULL;
    mxq_gemm_options* options = NULL;
    int e, r, c, t, wrong = 0;
    size_t i;

    for (i = 0; i < sizeof blocks; ++i) ((uint8_t*)blocks)[i] = (uint8_t)(i * i * 31 + i / 7);
    for (i = 0; i < sizeof scales; ++i) ((uint8_t*)scales)[i] = (uint8_t)(120 + i % 5);
    for (e = 0; e < EXPERTS; ++e)
        for (r = 0; r < ROWS; ++r) bias[e][r] = bf16(added(e, r));
    for (t = 0; t < TOKENS; ++t)
        for (c = 0; c < COLS; ++c) x[t][c] = bf16(activation(t, c));

    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_tensor_create_3d(MXQ_FORMAT_MXFP4, EXPERTS, ROWS, COLS, &tw));
    check(mxq_tensor_set_part(tw, MXQ_PART_ROWWISE, blocks, sizeof blocks, scales, sizeof scales));
    check(mxq_tensor_create_2d(MXQ_FORMAT_BF16, TOKENS, COLS, &tx));
    check(mxq_tensor_set_const_data(tx, x, sizeof x));
    check(mxq_tensor_set_groups(tx, ends, sizeof ends, MXQ_TYPE_INT32, EXPERTS));
    check(mxq_tensor_set_groups_cover_rows(tx, 1)); /* so that starts or sizes in place of ends are refused */
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, TOKENS, ROWS, &ty));
    check(mxq_tensor_set_data(ty, y, sizeof y));
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_bias(options, MXQ_FORMAT_BF16, bias, sizeof bias));
    check(mxq_grouped_gemm(context, options, tx, tw, ty, NULL, 0, NULL));

    for (e = t = 0; e < EXPERTS; ++e)
        for (; t < ends[e]; ++t)
            for (r = 0; r < ROWS; ++r) {
                float sum = (float)added(e, r); /* all sums are exact in fp32 */
                for (c = 0; c < COLS; ++c) sum += (float)activation(t, c) * weight(e, r, c);
                wrong += y[t][r / 2][r % 2] != sum;
            }
    printf("token 0, neuron 0: gate %g, up %g; %d wrong numbers of %d\n", y[0][0][0], y[0][0][1], wrong, TOKENS * ROWS);

    mxq_tensor_destroy(tx), mxq_tensor_destroy(tw), mxq_tensor_destroy(ty);
    mxq_gemm_options_destroy(options), mxq_context_destroy(context);
    return wrong != 0;
}
