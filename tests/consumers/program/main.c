/* A program of a user: creates a CPU context and quantizes one block. */
#include <mxq/mxq.h>

#include <stdio.h>

int main(void) {
    float x[32] = {448.0f};
    uint8_t codes[32], scale = 0;
    mxq_context* context = NULL;
    mxq_tensor *in = NULL, *out = NULL;
    int good = !mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context) && !mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, 32, &in) &&
               !mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, 1, 32, &out) && !mxq_tensor_set_data(in, x, sizeof x) &&
               !mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 1) &&
               !mxq_quantize(context, NULL, in, out, NULL, 0, NULL) && codes[0] == 0x7E && codes[1] == 0 && scale == 127;
    if (!good) fprintf(stderr, "%s\n", mxq_last_error());
    mxq_tensor_destroy(out);
    mxq_tensor_destroy(in);
    mxq_context_destroy(context);
    return !good;
}
