/* mxq/dlpack.h as a C99 program sees it. */
#include "dlpack_types.h"

#include <mxq/dlpack.h>

int mxq_use_dlpack_from_c(void);

/* Quantizes two rows of 32 ones that lie 40 elements apart, handed over as DLPack; 0 if all went well, else the line that
 * failed. */
int mxq_use_dlpack_from_c(void) {
    float x[72];
    uint8_t codes[64], scales[2] = {0, 0};
    int64_t shape[2] = {2, 32}, strides[2] = {40, 1}, scale_shape[2] = {2, 1};
    DLTensor in = {0}, out = {0}, out_scales = {0};
    char message[MXQ_DLPACK_MESSAGE_BYTES];
    mxq_context* context = NULL;
    mxq_tensor *from = NULL, *to = NULL;
    int i;
    for (i = 0; i < 72; ++i) x[i] = i < 32 || i >= 40 ? 1.0f : 1000.0f;
    in.data = x, in.ndim = 2, in.shape = shape, in.strides = strides, in.device.device_type = kDLCPU;
    in.dtype.code = kDLFloat, in.dtype.bits = 32, in.dtype.lanes = 1;
    out = in;
    out.data = codes, out.strides = NULL, out.dtype.code = kDLUInt, out.dtype.bits = 8;
    out_scales = out;
    out_scales.data = scales, out_scales.shape = scale_shape;
    if (mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context)) return __LINE__;
    if (mxq_dlpack_create_tensor(&in, MXQ_DEVICE_CPU, 0, 1, &from, message)) return __LINE__;
    if (mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, 2, 32, &to)) return __LINE__;
    if (mxq_dlpack_set_part(to, MXQ_PART_ROWWISE, &out, &out_scales, MXQ_DEVICE_CPU, 0, message)) return __LINE__;
    if (mxq_quantize(context, NULL, from, to, NULL, 0, NULL)) return __LINE__;
    for (i = 0; i < 64; ++i)
        if (codes[i] != 0x78) return __LINE__; /* 256, under 2^(119 - 127) */
    if (scales[0] != 119 || scales[1] != 119) return __LINE__;
    mxq_tensor_destroy(to);
    mxq_tensor_destroy(from);
    mxq_context_destroy(context);
    return 0;
}
