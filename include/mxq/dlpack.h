/* Descriptors of tensors that a framework hands over as DLPack (https://dmlc.github.io/dlpack). C99 and C++, inline functions
 * over the setters of mxq.h, and no part of the ABI.
 *
 * libmxq ships no copy of DLPack's header: two copies of different versions cannot stand in one program. Include your own
 * before this one, under any path; otherwise <dlpack/dlpack.h> is looked for.
 *
 * A tensor fits a context of device_type and ordinal (those of mxq_context_create) where its memory does: of a CPU context CPU
 * memory or memory that CUDA pinned, of a CUDA context memory of that device or managed memory. The functions read the DLTensor
 * during the call and keep nothing of it: its owner calls the deleter, after the work on its memory is done.
 *
 * `message` has room for MXQ_DLPACK_MESSAGE_BYTES, or is NULL. A refusal writes there which field is wrong, what was expected,
 * what came, and what to do; mxq_last_error() knows only what the library itself refused, which is then copied. */
#ifndef MXQ_DLPACK_H
#define MXQ_DLPACK_H

#include <mxq/mxq.h>

#include <stdarg.h>
#include <stdio.h>

#ifndef DLPACK_DLPACK_H_ /* the guard of DLPack's own header */
#include <dlpack/dlpack.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MXQ_DLPACK_MESSAGE_BYTES 512

/* Writes a message and returns INVALID_ARGUMENT. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline mxq_status mxq_dlpack_refuse(char* message, const char* format, ...) {
    if (message) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message, MXQ_DLPACK_MESSAGE_BYTES, format, arguments);
        va_end(arguments);
    }
    return MXQ_STATUS_INVALID_ARGUMENT;
}

/* Copies the library's message of a call that failed. Returns the status. */
static inline mxq_status mxq_dlpack_pass(mxq_status status, char* message) {
    if (status != MXQ_STATUS_OK && message) snprintf(message, MXQ_DLPACK_MESSAGE_BYTES, "%s", mxq_last_error());
    return status;
}

/* Checks what all uses share: one number an element, on the device of the context. */
static inline mxq_status mxq_dlpack_check(const DLTensor* source, mxq_device device_type, int32_t ordinal, char* message) {
    enum { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 }; /* DLDeviceType; older headers lack some */
    int device, fits;
    if (!source) return mxq_dlpack_refuse(message, "source is NULL, expected a DLTensor");
    if (device_type != MXQ_DEVICE_CPU && device_type != MXQ_DEVICE_CUDA)
        return mxq_dlpack_refuse(message, "device_type is %d, expected MXQ_DEVICE_CPU (1) or MXQ_DEVICE_CUDA (2)",
                                 (int)device_type);
    device = (int)source->device.device_type;
    if (device_type == MXQ_DEVICE_CPU) fits = device == cpu || device == cuda_host;
    else fits = (device == cuda && source->device.device_id == ordinal) || device == cuda_managed;
    if (!fits)
        return mxq_dlpack_refuse(message,
                                 "device is (%d, %d), expected memory of the context's device (%d, %d); copy the tensor there",
                                 device, (int)source->device.device_id, (int)device_type, (int)ordinal);
    if (source->dtype.lanes != 1)
        return mxq_dlpack_refuse(message, "dtype.lanes is %d, expected 1; view the vectors as one more dimension",
                                 (int)source->dtype.lanes);
    if (source->ndim < 0 || (source->ndim > 0 && !source->shape))
        return mxq_dlpack_refuse(message, "ndim is %d and shape %s, expected a shape of that many numbers", (int)source->ndim,
                                 source->shape ? "set" : "NULL");
    return MXQ_STATUS_OK;
}

/* The address of the first element; NULL for a tensor without memory. */
static inline void* mxq_dlpack_first(const DLTensor* source) {
    return source->data ? (void*)((char*)source->data + source->byte_offset) : NULL;
}

/* Address and bytes of a tensor of any type whose elements follow one another: codes, scales, ends, an amax, a workspace. They
 * are what the setters of mxq.h and the verbs take. Types of 4 and 6 bits are packed, and their rows are whole bytes. */
static inline mxq_status mxq_dlpack_memory(const DLTensor* source, mxq_device device_type, int32_t ordinal, void** data,
                                           uint64_t* bytes, char* message) {
    const uint64_t most = (uint64_t)1 << 52;
    uint64_t count = 1, row_bits;
    int32_t i;
    mxq_status status = mxq_dlpack_check(source, device_type, ordinal, message);
    if (status) return status;
    if (!data || !bytes) return mxq_dlpack_refuse(message, "data or bytes is NULL, expected addresses to write");
    for (i = 0; i < source->ndim; ++i)
        if (source->shape[i] == 0) count = 0;
    for (i = source->ndim; i-- > 0 && count > 0;) {
        const int64_t size = source->shape[i];
        if (size < 0 || (uint64_t)size > most / count)
            return mxq_dlpack_refuse(message, "shape[%d] is %lld, expected 0 or more, and no more than 2^52 elements", (int)i,
                                     (long long)size);
        if (source->strides && size > 1 && source->strides[i] != (int64_t)count)
            return mxq_dlpack_refuse(message, "strides[%d] is %lld, expected %lld (compact, row-major); make a contiguous copy",
                                     (int)i, (long long)source->strides[i], (long long)count);
        count *= (uint64_t)size;
    }
    row_bits = (source->ndim > 0 ? (uint64_t)source->shape[source->ndim - 1] : 1) * source->dtype.bits;
    if (source->dtype.bits == 0 || (source->dtype.bits % 8 != 0 && row_bits % 8 != 0))
        return mxq_dlpack_refuse(message, "dtype.bits is %d, expected rows of whole bytes; view the packed codes as bytes",
                                 (int)source->dtype.bits);
    *data = count ? mxq_dlpack_first(source) : NULL;
    *bytes = count * source->dtype.bits / 8;
    return MXQ_STATUS_OK;
}

/* The format of a plain tensor with this type; 0 where there is none. */
static inline mxq_format mxq_dlpack_format(DLDataType dtype) {
    enum { ieee = 2, bfloat = 4 }; /* DLDataTypeCode */
    if (dtype.code == ieee && dtype.bits == 32) return MXQ_FORMAT_F32;
    if (dtype.code == ieee && dtype.bits == 16) return MXQ_FORMAT_F16;
    if (dtype.code == bfloat && dtype.bits == 16) return MXQ_FORMAT_BF16;
    return 0;
}

/* The elements from one row of a (rows, cols) or (experts, rows, cols) tensor to the next; -1, with a message, where no row
 * stride describes its strides. Strides of dimensions of size 1 mean nothing. */
static inline int64_t mxq_dlpack_row_stride(const DLTensor* source, char* message) {
    const int32_t last = source->ndim - 1;
    const int64_t cols = source->shape[last], rows = source->shape[last - 1], experts = last == 2 ? source->shape[0] : 1;
    const int64_t* const strides = source->strides;
    int64_t row_stride = cols;
    if (!strides || rows <= 0 || cols <= 0 || experts <= 0) return cols;
    if (cols > 1 && strides[last] != 1) {
        mxq_dlpack_refuse(message, "strides[%d] is %lld, expected 1 (row-major); make a contiguous copy", (int)last,
                          (long long)strides[last]);
        return -1;
    }
    if (rows > 1) row_stride = strides[last - 1];
    else if (experts > 1) row_stride = strides[0];
    if (row_stride < cols) {
        mxq_dlpack_refuse(message, "strides[%d] is %lld, expected at least %lld, one row; make a contiguous copy",
                          rows > 1 ? (int)last - 1 : 0, (long long)row_stride, (long long)cols);
        return -1;
    }
    if (experts > 1 && (strides[0] % rows != 0 || strides[0] / rows != row_stride)) {
        mxq_dlpack_refuse(message,
                          "strides[0] is %lld, expected %lld rows of %lld, expert after expert; make a contiguous copy, or call"
                          " mxq_tensor_set_data_list",
                          (long long)strides[0], (long long)rows, (long long)row_stride);
        return -1;
    }
    return row_stride;
}

/* Creates the descriptor of a plain tensor, F32, F16 or BF16, of (rows, cols) or (experts, rows, cols), with its row stride and
 * its memory. read_only is 1 where the producer says so (DLPACK_FLAG_BITMASK_READ_ONLY): verbs then refuse to write it. On
 * failure *out is NULL. */
static inline mxq_status mxq_dlpack_create_tensor(const DLTensor* source, mxq_device device_type, int32_t ordinal,
                                                  int32_t read_only, mxq_tensor** out, char* message) {
    mxq_format format;
    int64_t row_stride;
    uint64_t bytes = 0;
    void* data;
    mxq_status status;
    if (!out) return mxq_dlpack_refuse(message, "out is NULL, expected the address of a handle");
    *out = NULL;
    status = mxq_dlpack_check(source, device_type, ordinal, message);
    if (status) return status;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): mxq_dlpack_check refuses NULL, and no refusal is 0. */
    if (source->ndim != 2 && source->ndim != 3)
        return mxq_dlpack_refuse(message, "ndim is %d, expected 2 (rows, cols) or 3 (experts, rows, cols); reshape the tensor",
                                 (int)source->ndim);
    format = mxq_dlpack_format(source->dtype);
    if (format == 0)
        return mxq_dlpack_refuse(message,
                                 "dtype is (code %d, %d bits), expected float32, float16 or bfloat16; convert the tensor",
                                 (int)source->dtype.code, (int)source->dtype.bits);
    row_stride = mxq_dlpack_row_stride(source, message);
    if (row_stride == -1) return MXQ_STATUS_INVALID_ARGUMENT;
    status = source->ndim == 2 ? mxq_tensor_create_2d(format, source->shape[0], source->shape[1], out)
                               : mxq_tensor_create_3d(format, source->shape[0], source->shape[1], source->shape[2], out);
    if (!status) status = mxq_tensor_set_row_stride(*out, row_stride);
    if (!status) status = mxq_tensor_required_bytes(*out, MXQ_PART_ROWWISE, &bytes, NULL);
    data = bytes ? mxq_dlpack_first(source) : NULL;
    if (!status)
        status = read_only ? mxq_tensor_set_const_data(*out, data, bytes) : mxq_tensor_set_data(*out, data, bytes);
    if (!status) return MXQ_STATUS_OK;
    mxq_dlpack_pass(status, message);
    mxq_tensor_destroy(*out);
    *out = NULL;
    return status;
}

/* Codes or scales of a part: their address, and the bytes from a row (line) to the next and from an expert to the next; 0:
 * contiguous. */
typedef struct mxq_dlpack_piece {
    void* data;
    uint64_t bytes; /* from the first row to the end of the last */
    int64_t line, expert;
} mxq_dlpack_piece;

/* Reads the codes or scales of `experts` times `lines` rows. Elements of a row are contiguous; rows, experts or both may have
 * strides. */
static inline mxq_status mxq_dlpack_find_piece(const DLTensor* source, mxq_device device_type, int32_t ordinal, int64_t experts,
                                               int64_t lines, mxq_dlpack_piece* piece, char* message) {
    const int64_t most = (int64_t)1 << 52;
    int64_t width = 1, sizes[2] = {1, 1}, steps[2] = {0, 0}, span; /* of what has strides, rows before experts */
    int32_t i, apart = 0, bits, is_experts;
    mxq_status status = mxq_dlpack_check(source, device_type, ordinal, message);
    if (status) return status;
    piece->line = piece->expert = 0;
    for (i = source->ndim; source->strides && i-- > 0;) {
        const int64_t size = source->shape[i], step = source->strides[i];
        if (size == 0) apart = 0;
        if (size == 0) break;
        if (size == 1) continue;
        if (size < 0 || step < 0 || step > most / size || width > most / size)
            return mxq_dlpack_refuse(message,
                                     "shape[%d] is %lld and strides[%d] %lld, expected 0 or more, and no more than 2^52 elements",
                                     (int)i, (long long)size, (int)i, (long long)step);
        if (apart == 0 && step == width) {
            width *= size;
        } else if (apart == 2) {
            return mxq_dlpack_refuse(message,
                                     "strides[%d] is %lld, expected lines and experts alone to lie apart; make a contiguous copy",
                                     (int)i, (long long)step);
        } else {
            sizes[apart] = size;
            steps[apart++] = step;
        }
    }
    if (apart == 0) return mxq_dlpack_memory(source, device_type, ordinal, &piece->data, &piece->bytes, message);
    bits = source->dtype.bits;
    is_experts = apart == 1 && experts > 1 && sizes[0] == experts; /* whose rows are contiguous */
    if (apart == 2 ? sizes[0] != lines || sizes[1] != experts
                   : !is_experts && (lines > most / (experts > 0 ? experts : 1) || sizes[0] != experts * lines))
        return mxq_dlpack_refuse(message,
                                 "%lld x %lld pieces lie apart, expected %lld experts, %lld lines of each, or both; make a"
                                 " contiguous copy",
                                 (long long)sizes[1], (long long)sizes[0], (long long)experts, (long long)lines);
    if (bits == 0 || width * bits % 8 != 0 || steps[0] * bits % 8 != 0 || steps[1] * bits % 8 != 0)
        return mxq_dlpack_refuse(message,
                                 "dtype.bits is %d, expected lines and strides of whole bytes; view the packed codes as bytes",
                                 (int)bits);
    span = (sizes[0] - 1) * steps[0] + (sizes[1] - 1) * steps[1] + width;
    piece->data = mxq_dlpack_first(source);
    piece->bytes = (uint64_t)span * (uint64_t)bits / 8;
    if (is_experts) piece->expert = steps[0] * bits / 8;
    else piece->line = steps[0] * bits / 8, piece->expert = steps[1] * bits / 8;
    return MXQ_STATUS_OK;
}

/* Writes which of two tensors a message is about before it. Returns the status. */
static inline mxq_status mxq_dlpack_name(mxq_status status, const char* name, char* message) {
    char text[MXQ_DLPACK_MESSAGE_BYTES];
    if (status == MXQ_STATUS_OK || !message) return status;
    snprintf(text, sizeof text, "%s", message);
    snprintf(message, MXQ_DLPACK_MESSAGE_BYTES, "%s: %.*s", name, MXQ_DLPACK_MESSAGE_BYTES - 16, text);
    return status;
}

/* Sets the codes and scales of a part of a quantized tensor, of any type: as bytes or in the types of a framework. Where both
 * are compact it does what mxq_tensor_set_part does. Where rows or experts have strides, as those of a slice do, it also sets
 * the strides of mxq_tensor_set_strides; a DLTensor that these do not describe is refused. Strides that the part had are
 * replaced. Set scaling, layout and scope before. Whether the bytes are large enough is found by the verb. */
static inline mxq_status mxq_dlpack_set_part(mxq_tensor* tensor, mxq_part part, const DLTensor* codes, const DLTensor* scales,
                                             mxq_device device_type, int32_t ordinal, char* message) {
    mxq_dlpack_piece of_codes = {NULL, 0, 0, 0}, of_scales = {NULL, 0, 0, 0};
    int64_t experts = 1, rows = 0, cols = 0, lines, tile, code_line, code_expert, scale_line, scale_expert;
    int64_t quantized = 0;
    mxq_format format = 0;
    mxq_scaling scaling = 0;
    mxq_status status = mxq_tensor_get_format(tensor, &format);
    if (!status) status = mxq_format_property(format, MXQ_PROPERTY_QUANTIZED, &quantized);
    if (!status && !quantized)
        return mxq_dlpack_refuse(message, "tensor is %s, which has no parts; call mxq_dlpack_create_tensor or mxq_tensor_set_data",
                                 mxq_format_name(format));
    if (!status) status = mxq_tensor_get_shape(tensor, NULL, &experts, &rows, &cols);
    if (!status) status = mxq_tensor_get_scaling(tensor, &scaling);
    if (!status) status = mxq_tensor_get_strides(tensor, part, &code_line, &code_expert, &scale_line, &scale_expert);
    if (status) return mxq_dlpack_pass(status, message);
    lines = part == MXQ_PART_ROWWISE ? rows : cols;
    tile = scaling == MXQ_SCALING_32X32 ? 32 : scaling == MXQ_SCALING_128X128 ? 128 : 1;
    status = mxq_dlpack_find_piece(codes, device_type, ordinal, experts, lines, &of_codes, message);
    if (status) return mxq_dlpack_name(status, "codes", message);
    status = mxq_dlpack_find_piece(scales, device_type, ordinal, experts, (lines + tile - 1) / tile, &of_scales, message);
    if (status) return mxq_dlpack_name(status, "scales", message);
    status = mxq_tensor_set_strides(tensor, part, of_codes.line, of_codes.expert, of_scales.line, of_scales.expert);
    if (status) return mxq_dlpack_pass(status, message);
    status = mxq_tensor_set_part(tensor, part, of_codes.data, of_codes.bytes, of_scales.data, of_scales.bytes);
    if (status) { /* the part keeps the strides that it had */
        mxq_dlpack_pass(status, message);
        mxq_tensor_set_strides(tensor, part, code_line, code_expert, scale_line, scale_expert);
    }
    return status;
}

#ifdef __cplusplus
}
#endif

#endif /* MXQ_DLPACK_H */
