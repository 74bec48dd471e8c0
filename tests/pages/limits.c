// A program around the fragments of docs/limits.md: refused(call) prints the message of a call, which must fail.
#include <mxq/mxq.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}
static void refused(mxq_status status) {
    if (!status) fprintf(stderr, "a call was not refused\n"), exit(1);
    printf("%s: %s\n", mxq_status_name(status) + sizeof "MXQ_STATUS", mxq_last_error());
}

// Returns a descriptor with memory for every part that is named; of plain numbers with 0 for parts.
static mxq_tensor* tensor(mxq_format format, mxq_scaling scaling, int64_t rows, int64_t cols, mxq_part parts) {
    mxq_tensor* out = NULL;
    uint64_t bytes = 0;
    check(mxq_tensor_create_2d(format, rows, cols, &out));
    if (scaling) check(mxq_tensor_set_scaling(out, scaling));
    check(mxq_tensor_total_bytes(out, parts ? parts : MXQ_PART_ROWWISE, &bytes));
    char* memory = calloc(1, bytes + 256);
    check(mxq_tensor_set_memory(out, parts ? parts : MXQ_PART_ROWWISE, memory + 256 - (uintptr_t)memory % 256, bytes));
    return out;
}

int main(void) {
    mxq_context* cpu = NULL;
    mxq_gemm_options* options = NULL;
    mxq_tensor* x = tensor(MXQ_FORMAT_F32, 0, 64, 128, 0);
    mxq_tensor* y = tensor(MXQ_FORMAT_F32, 0, 64, 96, 0);
    mxq_tensor* xq = tensor(MXQ_FORMAT_MXFP8_E4M3, 0, 64, 128, MXQ_PART_ROWWISE);
    mxq_tensor* wq = tensor(MXQ_FORMAT_MXFP4, 0, 96, 128, MXQ_PART_ROWWISE);
    mxq_tensor* t = NULL;
    check(mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &cpu));
    check(mxq_gemm_options_create(&options));
    (void)x, (void)y, (void)xq, (void)wq, (void)t;
    // page
    return 0;
}
