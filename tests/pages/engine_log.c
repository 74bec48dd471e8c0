// A program around the log callback of docs/embedding.md.
#include <mxq/mxq.h>
#include <stdio.h>

static void engine_log(int level, const char* text) { printf("level %d: %s\n", level, text); }

// page

static float values[4][64];
static uint8_t codes[4][64], scales[4][2];

int main(void) {
    mxq_context* context = NULL;
    mxq_tensor *x = NULL, *xq = NULL;
    return mxq_set_log_callback(to_engine, MXQ_LOG_INFO, NULL) || mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context) ||
           mxq_tensor_create_2d(MXQ_FORMAT_F32, 4, 64, &x) || mxq_tensor_set_data(x, values, sizeof values) ||
           mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, 4, 64, &xq) ||
           mxq_tensor_set_part(xq, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales) ||
           mxq_quantize(context, NULL, x, xq, NULL, 0, NULL);
}
