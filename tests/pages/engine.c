// An engine around the fragments of docs/embedding.md: 48 tokens in F32 and the weights of a layer, quantized on a CPU
// context.
#include <mxq/mxq.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 48
#define INPUTS 128
#define OUTPUTS 64

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}
static void* engine_alloc(uint64_t bytes) { /* at a multiple of 256 */
    char* memory = malloc(bytes + 256);
    return memory ? memory + 256 - (uintptr_t)memory % 256 : NULL;
}
static void engine_log(const char* line) { printf("engine: %s\n", line); }

static float values[TOKENS][INPUTS], weight_values[OUTPUTS][INPUTS], results[TOKENS][OUTPUTS];
static uint8_t weight_codes[OUTPUTS][INPUTS / 2], weight_scales[OUTPUTS][INPUTS / 32];

int main(void) {
    mxq_context* context = NULL;
    mxq_tensor *x = NULL, *xq = NULL, *source = NULL, *w = NULL, *y = NULL;
    void *workspace = NULL, *stream = NULL;
    uint64_t workspace_bytes = 0;
    for (int i = 0; i < TOKENS * INPUTS; ++i) values[0][i] = (float)(i % 7 - 3);
    for (int i = 0; i < OUTPUTS * INPUTS; ++i) weight_values[0][i] = (float)(i % 5 - 2);
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, TOKENS, INPUTS, &x));
    check(mxq_tensor_set_const_data(x, values, sizeof values));
    check(mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, TOKENS, INPUTS, &xq));
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, OUTPUTS, INPUTS, &source));
    check(mxq_tensor_set_const_data(source, weight_values, sizeof weight_values));
    check(mxq_tensor_create_2d(MXQ_FORMAT_MXFP4, OUTPUTS, INPUTS, &w));
    check(mxq_tensor_set_part(w, MXQ_PART_ROWWISE, weight_codes, sizeof weight_codes, weight_scales, sizeof weight_scales));
    check(mxq_quantize(context, NULL, source, w, NULL, 0, NULL));
    check(mxq_tensor_create_2d(MXQ_FORMAT_F32, TOKENS, OUTPUTS, &y));
    check(mxq_tensor_set_data(y, results, sizeof results));
    (void)stream, (void)workspace, (void)workspace_bytes, (void)engine_alloc, (void)engine_log;
    // page
    mxq_tensor_destroy(x), mxq_tensor_destroy(xq), mxq_tensor_destroy(source), mxq_tensor_destroy(w), mxq_tensor_destroy(y);
    mxq_context_destroy(context);
    return 0;
}
