/* The header as a C99 program sees it. */
#include <mxq/mxq.h>

#include <string.h>

int mxq_use_from_c(void);

/* Quantizes 32 ones; 0 if all went well, else the line that failed. */
int mxq_use_from_c(void) {
    float x[32];
    uint8_t codes[32], scale = 0;
    mxq_context* context = NULL;
    mxq_tensor *in = NULL, *out = NULL;
    int i;
    for (i = 0; i < 32; ++i) x[i] = 1.0f;
    if (mxq_version() != MXQ_VERSION_MAJOR * 10000 + MXQ_VERSION_MINOR * 100 + MXQ_VERSION_PATCH) return __LINE__;
    if (mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context)) return __LINE__;
    if (mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, 32, &in)) return __LINE__;
    if (mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, 1, 32, &out)) return __LINE__;
    if (mxq_tensor_set_data(in, x, sizeof x)) return __LINE__;
    if (mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 1)) return __LINE__;
    if (mxq_quantize(context, NULL, in, out, NULL, 0, NULL)) return __LINE__;
    for (i = 0; i < 32; ++i)
        if (codes[i] != 0x78) return __LINE__; /* 256, under 2^(119 - 127) */
    if (scale != 119) return __LINE__;
    if (strcmp(mxq_format_name(MXQ_FORMAT_BF16), "bf16") != 0) return __LINE__;
    mxq_tensor_destroy(out);
    mxq_tensor_destroy(in);
    mxq_context_destroy(context);
    return 0;
}
