/* An expert layer, from tokens to tokens: by single verbs, and as one call. Both give the same bits, which the program checks.
 *
 *     x (T, K)  --route, product with gate_up (E, 2 I, K)-->  SwiGLU  --product with down (E, K, I), weighted sum-->  y (T, K)
 */
#include <math.h>
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 6, CHOICES = 2, E = 4, K = 64, I = 96, S = T * CHOICES };
static const int32_t ids[T][CHOICES] = {{0, 3}, {1, 0}, {3, 2}, {0, -1}, {2, 3}, {3, 1}}; /* -1: dropped */
static const float weights[T][CHOICES] = {{0.6f, 0.4f}, {0.5f, 0.5f}, {0.9f, 0.1f}, {1, 0}, {0.3f, 0.7f}, {0.8f, 0.2f}};
static uint16_t x[T][K], hidden[S][2 * I], activated[S][I], products[S][K];
static float w_gate_up[E][2 * I][K], w_down[E][K][I], by_verbs[T][K], by_one_call[T][K];

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

/* Memory at a multiple of 256 bytes; *block is what free takes. */
static void* memory_of(uint64_t bytes, void** block) {
    *block = malloc(bytes + 255);
    if (!*block) fprintf(stderr, "no memory\n"), exit(1);
    return (uint8_t*)*block + (256 - (uintptr_t)*block % 256) % 256;
}

/* A matrix of BF16 with a row for each choice, in the groups of the experts. */
static mxq_tensor* rows_of(const mxq_routing* routing, int64_t cols, void* data) {
    mxq_tensor* tensor = NULL;
    check(mxq_tensor_create_2d(MXQ_FORMAT_BF16, S, cols, &tensor));
    check(mxq_tensor_set_routing_groups(tensor, routing));
    check(mxq_tensor_set_data(tensor, data, S * (uint64_t)cols * 2));
    return tensor;
}

/* Weights in MXFP4, quantized when the model is loaded. */
static mxq_tensor* weights_of(mxq_context* context, int64_t rows, int64_t cols, const float* values, void** block) {
    mxq_tensor *plain = NULL, *quantized = NULL;
    uint64_t bytes = 0;
    check(mxq_tensor_create_3d(MXQ_FORMAT_F32, E, rows, cols, &plain));
    check(mxq_tensor_set_const_data(plain, values, (uint64_t)(E * rows * cols) * 4));
    check(mxq_tensor_create_3d(MXQ_FORMAT_MXFP4, E, rows, cols, &quantized));
    check(mxq_tensor_total_bytes(quantized, MXQ_PART_ROWWISE, &bytes));
    check(mxq_tensor_set_memory(quantized, MXQ_PART_ROWWISE, memory_of(bytes, block), bytes));
    check(mxq_quantize(context, NULL, plain, quantized, NULL, 0, NULL));
    mxq_tensor_destroy(plain);
    return quantized;
}

static mxq_tensor* tokens_of(mxq_format format, void* data, uint64_t bytes) {
    mxq_tensor* tensor = NULL;
    check(mxq_tensor_create_2d(format, T, K, &tensor));
    check(mxq_tensor_set_data(tensor, data, bytes));
    return tensor;
}

/* The layer by single verbs: a step is a line, once the descriptors are there. */
static void run_verbs(mxq_context* context, const mxq_routing* routing, const mxq_tensor* gate_up, const mxq_tensor* down,
                      const mxq_tensor* y) {
    mxq_tensor *tokens = NULL, *h = rows_of(routing, 2 * I, hidden), *a = rows_of(routing, I, activated),
               *p = rows_of(routing, K, products);
    check(mxq_tensor_create_2d(MXQ_FORMAT_BF16, S, K, &tokens)); /* rows of x by index: nothing is copied by the program */
    check(mxq_tensor_set_routing_rows(tokens, routing));
    check(mxq_tensor_set_const_data(tokens, x, sizeof x));

    check(mxq_route(context, NULL, routing, NULL, 0, NULL));
    check(mxq_grouped_gemm(context, NULL, tokens, gate_up, h, NULL, 0, NULL));
    check(mxq_activate(context, NULL, h, a, NULL, 0, NULL)); /* SwiGLU, gates first */
    check(mxq_grouped_gemm(context, NULL, a, down, p, NULL, 0, NULL));
    check(mxq_combine(context, NULL, routing, p, NULL, y, NULL, 0, NULL));
    mxq_tensor_destroy(tokens), mxq_tensor_destroy(h), mxq_tensor_destroy(a), mxq_tensor_destroy(p);
}

int main(void) {
    mxq_context* context = NULL;
    mxq_routing* routing = NULL;
    mxq_plan* plan = NULL;
    mxq_tensor *tx, *verbs, *call, *gate_up, *down;
    void *first, *second, *block;
    uint64_t bytes = 0;
    double largest = 0;
    int t, i;

    for (t = 0; t < T; ++t)
        for (i = 0; i < K; ++i) x[t][i] = (uint16_t)(0x3F00 + (t * 71 + i * 37) % 0x100 + i % 2 * 0x8000); /* 0.5 to 2 */
    for (i = 0; i < E * 2 * I * K; ++i) (&w_gate_up[0][0][0])[i] = 0.3f * (float)sin(i * 1.7);
    for (i = 0; i < E * K * I; ++i) (&w_down[0][0][0])[i] = 0.3f * (float)cos(i * 0.9);
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context));
    check(mxq_routing_create(T, CHOICES, E, &routing));
    check(mxq_routing_set_ids(routing, ids, sizeof ids, MXQ_TYPE_INT32));
    check(mxq_routing_set_weights(routing, MXQ_FORMAT_F32, weights, sizeof weights));
    check(mxq_routing_required_bytes(routing, &bytes));
    check(mxq_routing_set_memory(routing, memory_of(bytes, &block), bytes));
    gate_up = weights_of(context, 2 * I, K, &w_gate_up[0][0][0], &first);
    down = weights_of(context, K, I, &w_down[0][0][0], &second);
    tx = tokens_of(MXQ_FORMAT_BF16, x, sizeof x);
    verbs = tokens_of(MXQ_FORMAT_F32, by_verbs, sizeof by_verbs);
    call = tokens_of(MXQ_FORMAT_F32, by_one_call, sizeof by_one_call);

    run_verbs(context, routing, gate_up, down, verbs);
    check(mxq_expert_layer_query(context, NULL, tx, routing, gate_up, down, call, &plan)); /* how much workspace, on CUDA */
    check(mxq_expert_layer(context, NULL, tx, routing, gate_up, down, call, NULL, 0, NULL));

    for (t = 0; t < T; ++t)
        for (i = 0; i < K; ++i) largest = fmax(largest, fabs((double)by_one_call[t][i]));
    printf("%s: %d tokens, largest sum %.2f, %s\n", mxq_plan_implementation(plan), T, largest,
           memcmp(by_verbs, by_one_call, sizeof by_verbs) ? "other bits" : "the same bits by single verbs");
    mxq_plan_destroy(plan), mxq_tensor_destroy(tx), mxq_tensor_destroy(verbs), mxq_tensor_destroy(call);
    mxq_tensor_destroy(gate_up), mxq_tensor_destroy(down), mxq_routing_destroy(routing), mxq_context_destroy(context);
    free(first), free(second), free(block);
    return largest < 0.1 || memcmp(by_verbs, by_one_call, sizeof by_verbs) != 0;
}
