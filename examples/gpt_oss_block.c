/* Times one token through the matrices of a block of gpt-oss-20b on the CPU: attention's in BF16, the experts' in MXFP4, as
 * the checkpoint has them. Attention over the context, normalization and the router's choice are left out; the experts are
 * drawn anew for each token, so that weights come from memory. Usage: gpt_oss_block [threads [tokens [experts]]] */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <mxq/mxq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HIDDEN = 2880, QKV = 5120, HEADS = 4096, NEURONS = 2880, CHOSEN = 4, BLOCKS = 24 };
enum { MOST_EXPERTS = 128, MOST_THREADS = 64 };

static mxq_context* context;

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}

static void* memory(uint64_t bytes) {
    void* out;
    if (posix_memalign(&out, 256, bytes ? bytes : 1))
        fprintf(stderr, "no memory of %llu bytes\n", (unsigned long long)bytes), exit(1);
    return memset(out, 0, bytes);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fills memory with bytes of one repeating pattern. */
static void fill(uint8_t* to, uint64_t bytes, const uint8_t* pattern, size_t period) {
    uint64_t i;
    for (i = 0; i < bytes; ++i) to[i] = pattern[i % period];
}

/* Weights: a tensor, and the bytes that one expert has. */
typedef struct {
    mxq_tensor* tensor;
    double expert_bytes;
} weights;

static weights experts_of(int64_t experts, int64_t rows, int64_t cols) {
    static const uint8_t codes[] = {0x1A, 0x93, 0xC2, 0x05, 0x2B, 0x70, 0xE4}, scales[] = {118, 120, 119};
    weights out;
    uint64_t data_bytes, scale_bytes;
    uint8_t *data, *scale;
    check(mxq_tensor_create_3d(MXQ_FORMAT_MXFP4, experts, rows, cols, &out.tensor));
    check(mxq_tensor_required_bytes(out.tensor, MXQ_PART_ROWWISE, &data_bytes, &scale_bytes));
    fill(data = memory(data_bytes), data_bytes, codes, sizeof codes);
    fill(scale = memory(scale_bytes), scale_bytes, scales, sizeof scales);
    check(mxq_tensor_set_part(out.tensor, MXQ_PART_ROWWISE, data, data_bytes, scale, scale_bytes));
    out.expert_bytes = (double)(data_bytes + scale_bytes) / (double)experts;
    return out;
}

/* Makes a tensor of plain numbers with memory of its own, which *data points to. */
static mxq_tensor* plain(int32_t format, int64_t rows, int64_t cols, void** data) {
    mxq_tensor* out;
    uint64_t bytes;
    check(mxq_tensor_create_2d(format, rows, cols, &out));
    check(mxq_tensor_required_bytes(out, MXQ_PART_ROWWISE, &bytes, NULL));
    check(mxq_tensor_set_data(out, *data = memory(bytes), bytes));
    return out;
}

static weights matrix_of(int64_t rows, int64_t cols) {
    static const uint8_t numbers[] = {0x10, 0x3C, 0x80, 0xBC, 0x40, 0x3C}; /* BF16 */
    weights out;
    void* data;
    out.tensor = plain(MXQ_FORMAT_BF16, rows, cols, &data);
    out.expert_bytes = 2.0 * (double)rows * (double)cols;
    fill(data, (uint64_t)out.expert_bytes, numbers, sizeof numbers);
    return out;
}

/* Draws CHOSEN different experts. */
static void choose(int32_t* ids, int32_t experts) {
    char chosen[MOST_EXPERTS] = {0};
    int32_t e, count = 0;
    while (count < CHOSEN) {
        e = rand() % experts;
        if (!chosen[e]) chosen[e] = 1, ids[count++] = e;
    }
}

/* Makes the routing of one token, whose choices have the same weight. */
static mxq_routing* routing_of(const int32_t* ids, int32_t experts) {
    static const float weights[CHOSEN] = {0.25f, 0.25f, 0.25f, 0.25f};
    mxq_routing* out;
    uint64_t bytes;
    check(mxq_routing_create(1, CHOSEN, experts, &out));
    check(mxq_routing_set_ids(out, ids, CHOSEN * sizeof *ids, MXQ_TYPE_INT32));
    check(mxq_routing_set_weights(out, MXQ_FORMAT_F32, weights, sizeof weights));
    check(mxq_routing_required_bytes(out, &bytes));
    check(mxq_routing_set_memory(out, memory(bytes), bytes));
    return out;
}

/* gpt-oss's activation of interleaved gate and up: gate sigmoid(1.702 gate) (up + 1), both limited to 7. */
static mxq_expert_layer_options* layer_options(void) {
    mxq_activate_options* activation;
    mxq_expert_layer_options* out;
    check(mxq_activate_options_create(&activation));
    check(mxq_activate_options_set_activation(activation, MXQ_ACTIVATION_SWIGLU_CLAMPED));
    check(mxq_activate_options_set_gate_layout(activation, MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP));
    check(mxq_expert_layer_options_create(&out));
    check(mxq_expert_layer_options_set_activate_options(out, activation));
    mxq_activate_options_destroy(activation);
    return out;
}

static void multiply(mxq_tensor* a, mxq_tensor* b, mxq_tensor* d) { check(mxq_gemm(context, NULL, a, b, d, NULL, 0, NULL)); }

/* Reads a share of memory, for the rate at which as many threads can. */
enum { SHARE = 128 << 20 };
static void* read_share(void* share) {
    const uint64_t* const words = share;
    uint64_t sums[8] = {0};
    size_t i, j;
    for (i = 0; i < SHARE / sizeof *words; i += 8)
        for (j = 0; j < 8; ++j) sums[j] ^= words[i + j];
    for (j = 1; j < 8; ++j) sums[0] ^= sums[j];
    ((uint64_t*)share)[0] = sums[0]; /* so that it is used */
    return NULL;
}

static double memory_rate(int threads) {
    pthread_t readers[MOST_THREADS];
    uint8_t* const shares = memory((uint64_t)threads * SHARE);
    double best = 0, start, rate;
    int t, round;
    memset(shares, 1, (size_t)threads * SHARE);
    for (round = 0; round < 5; ++round) {
        start = seconds();
        for (t = 1; t < threads; ++t)
            if (pthread_create(&readers[t], NULL, read_share, shares + (size_t)t * SHARE)) exit(1);
        read_share(shares);
        for (t = 1; t < threads; ++t) pthread_join(readers[t], NULL);
        rate = (double)threads * SHARE / (seconds() - start);
        if (rate > best) best = rate;
    }
    free(shares);
    return best;
}

int main(int argc, char** argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 2, tokens = argc > 2 ? atoi(argv[2]) : 20;
    const int experts = argc > 3 ? atoi(argv[3]) : 32;
    mxq_context_options* options;
    weights qkv, o, gate_up, down;
    mxq_tensor *x, *q, *heads, *y, *out;
    mxq_routing* routing;
    mxq_expert_layer_options* layer;
    void *x_data, *q_data, *y_data, *out_data;
    int32_t ids[CHOSEN];
    double best = 1e9, bytes, start, time, rate;
    int token, i;

    if (threads < 1 || threads > MOST_THREADS || tokens < 1 || experts < CHOSEN || experts > MOST_EXPERTS)
        return fprintf(stderr, "usage: gpt_oss_block [threads [tokens [experts]]]\n"), 2;
    check(mxq_context_options_create(&options));
    check(mxq_context_options_set_threads(options, threads));
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, options, &context));
    qkv = matrix_of(QKV, HIDDEN), o = matrix_of(HIDDEN, HEADS);
    gate_up = experts_of(experts, 2 * NEURONS, HIDDEN), down = experts_of(experts, HIDDEN, NEURONS);

    x = plain(MXQ_FORMAT_BF16, 1, HIDDEN, &x_data), q = plain(MXQ_FORMAT_BF16, 1, QKV, &q_data);
    y = plain(MXQ_FORMAT_BF16, 1, HIDDEN, &y_data), out = plain(MXQ_FORMAT_F32, 1, HIDDEN, &out_data);
    choose(ids, experts);
    routing = routing_of(ids, experts), layer = layer_options();
    check(mxq_tensor_create_2d(MXQ_FORMAT_BF16, 1, HEADS, &heads)); /* q's first numbers in place of attention's result */
    check(mxq_tensor_set_const_data(heads, q_data, 2 * HEADS));
    for (i = 0; i < HIDDEN; ++i) ((uint16_t*)x_data)[i] = (uint16_t)(0x3F00 + i % 97);

    for (token = 0; token < tokens; ++token) {
        choose(ids, experts);
        start = seconds();
        multiply(x, qkv.tensor, q);
        multiply(heads, o.tensor, y);
        check(mxq_expert_layer(context, layer, y, routing, gate_up.tensor, down.tensor, out, NULL, 0, NULL));
        time = seconds() - start;
        if (time < best) best = time;
    }
    for (i = 0; i < HIDDEN; ++i)
        if (!isfinite(((float*)out_data)[i])) return fprintf(stderr, "number %d is not finite\n", i), 1;

    bytes = qkv.expert_bytes + o.expert_bytes + CHOSEN * (gate_up.expert_bytes + down.expert_bytes);
    rate = memory_rate(threads);
    printf("%s\n", mxq_context_description(context));
    printf("a block of one token: %.2f ms, %.1f MB of weights, %.1f GB/s; the same threads read memory at %.1f GB/s\n",
           best * 1e3, bytes * 1e-6, bytes / best * 1e-9, rate * 1e-9);
    printf("%d such blocks: %.1f tokens a second\n", BLOCKS, 1 / (BLOCKS * best));
    return 0;
}
