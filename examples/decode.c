/* Decodes with weights of 4 bits: the few tokens of one step, in BF16, go through the MXFP4 weights of the experts that they
 * chose; most experts have none. Products are exact, so that the weights alone lose something: the program checks the error
 * of each sum against its bound, and prints what the 4 bits cost. */
#include <math.h>
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 8, TOKENS = 4, IN = 256, OUT = 96 };
static const int32_t ends[EXPERTS] = {0, 1, 1, 1, 3, 3, 3, 4}; /* experts 1, 4 and 7 have 1, 2 and 1 tokens */
static uint16_t x[TOKENS][IN];
static float w[EXPERTS][OUT][IN], back[EXPERTS][OUT][IN], y[TOKENS][OUT];
static uint8_t codes[EXPERTS][OUT][IN / 2], scales[EXPERTS][OUT][IN / 32];

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

static float bf16_value(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

int main(void) {
    mxq_context* context = NULL;
    mxq_tensor *tx = NULL, *tw = NULL, *tq = NULL, *ty = NULL, *tb = NULL;
    mxq_gemm_options* options = NULL;
    mxq_plan* plan = NULL;
    double signal = 0, noise = 0;
    int e, t, o, i, wrong = 0;

    for (t = 0; t < TOKENS; ++t)
        for (i = 0; i < IN; ++i)
            x[t][i] = (uint16_t)(0x3F00 + (t * 71 + i * 37) % 0x100 + i % 2 * 0x8000); /* 0.5 to 2, both signs */
    for (e = 0; e < EXPERTS; ++e)
        for (o = 0; o < OUT; ++o)
            for (i = 0; i < IN; ++i) w[e][o][i] = 0.05f * (float)(sin(e * 40 + o + i * 1.7) * cos(i * 0.37 + o * i));

    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_tensor_create_3d(MXQ_FORMAT_F32, EXPERTS, OUT, IN, &tw));
    check(mxq_tensor_set_const_data(tw, w, sizeof w));
    check(mxq_tensor_create_3d(MXQ_FORMAT_F32, EXPERTS, OUT, IN, &tb));
    check(mxq_tensor_set_data(tb, back, sizeof back));
    check(mxq_tensor_create_3d(MXQ_FORMAT_MXFP4, EXPERTS, OUT, IN, &tq));
    check(mxq_tensor_set_part(tq, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
    check(mxq_quantize(context, NULL, tw, tq, NULL, 0, NULL)); /* once, when the model is loaded */
    check(mxq_dequantize(context, NULL, tq, tb, NULL, 0, NULL));

    check(mxq_tensor_create_2d(MXQ_FORMAT_BF16, TOKENS, IN, &tx));
    check(mxq_tensor_set_const_data(tx, x, sizeof x));
    check(mxq_tensor_set_groups(tx, ends, sizeof ends, MXQ_TYPE_INT32, EXPERTS));
    check(mxq_tensor_set_groups_cover_rows(tx, 1)); /* so that starts or sizes in place of ends are refused */
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, TOKENS, OUT, &ty));
    check(mxq_tensor_set_data(ty, y, sizeof y));
    check(mxq_gemm_options_create(&options));
    check(mxq_gemm_options_set_exact_products(options, 1));
    check(mxq_grouped_gemm_query(context, options, tx, tq, ty, &plan));
    check(mxq_grouped_gemm(context, options, tx, tq, ty, NULL, 0, NULL)); /* a CPU needs no workspace */

    for (e = t = 0; e < EXPERTS; ++e)
        for (; t < ends[e]; ++t)
            for (o = 0; o < OUT; ++o) {
                double exact = 0, before = 0,
                       size = 0; /* the sum, with the weights before they were quantized, of magnitudes */
                for (i = 0; i < IN; ++i) {
                    exact += (double)bf16_value(x[t][i]) * back[e][o][i];
                    before += (double)bf16_value(x[t][i]) * w[e][o][i];
                    size += fabs((double)bf16_value(x[t][i]) * back[e][o][i]);
                }
                wrong += !(fabs(y[t][o] - exact) <= ldexp((1.3 * IN + 40) * size + fabs(exact), -24));
                signal += before * before, noise += (y[t][o] - before) * (y[t][o] - before);
            }
    wrong += mxq_plan_bound(plan) != MXQ_BOUND_EXACT_PRODUCTS;
    printf("%d tokens for %d experts by %s: %d sums beyond their bound\n", TOKENS, EXPERTS, mxq_plan_implementation(plan),
           wrong);
    printf("weights: %d bytes, %d in BF16; the 4 bits leave %.1f dB\n", (int)(sizeof codes + sizeof scales),
           (int)(sizeof w / 2), 10 * log10(signal / noise));

    mxq_plan_destroy(plan), mxq_gemm_options_destroy(options);
    mxq_tensor_destroy(tx), mxq_tensor_destroy(tw), mxq_tensor_destroy(tq), mxq_tensor_destroy(ty), mxq_tensor_destroy(tb);
    mxq_context_destroy(context);
    return wrong != 0;
}
