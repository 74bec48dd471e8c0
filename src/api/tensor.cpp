#include "core/tensor.h"

#include <memory>

#include "api/guard.h"

using namespace mxq;

namespace {

constexpr int64_t kMaxElements = int64_t(1) << 48;

mxq_tensor* create_tensor(int32_t format, bool is_3d, int64_t experts, int64_t rows, int64_t cols) {
    const Format* found = find_format(format);
    if (!found)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "format is %d, expected one of MXQ_FORMAT_*; mxq_format_name names them", format);
    const struct {
        const char* name;
        int64_t value;
    } sizes[] = {{"experts", experts}, {"rows", rows}, {"cols", cols}};
    for (const auto& size : sizes)
        if (size.value < 0 || size.value > MXQ_MAX_DIM)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %lld, expected 0 to %d", size.name, (long long)size.value, MXQ_MAX_DIM);
    // The three may be 2^31 - 1 each, so the product is taken one by one.
    if (experts > 0 && rows > 0 && cols > 0 && (rows > kMaxElements / cols || experts > kMaxElements / (rows * cols)))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "the shape %lld x %lld x %lld has more than 2^48 elements; split the tensor",
             (long long)experts, (long long)rows, (long long)cols);

    auto tensor = std::make_unique<mxq_tensor_s>();
    tensor->format = found;
    tensor->scaling = found->quantized ? MXQ_SCALING_1X32 : MXQ_SCALING_NONE;
    tensor->is_3d = is_3d;
    tensor->experts = experts;
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->row_stride = cols;
    return tensor.release();
}

void require_quantized(const mxq_tensor& tensor, const char* what) {
    if (!tensor.format->quantized)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no %s; expected a quantized format", tensor.format->name,
             what);
}

void require_plain(const mxq_tensor& tensor, const char* what, const char* remedy) {
    if (tensor.format->quantized)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no %s; %s", tensor.format->name, what, remedy);
}

void require_part(int32_t part) {
    if (part != MXQ_PART_ROWWISE && part != MXQ_PART_COLUMNWISE)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "part is %d, expected MXQ_PART_ROWWISE (1) or MXQ_PART_COLUMNWISE (2)", part);
}

}  // namespace

mxq_status mxq_tensor_create_2d(int32_t format, int64_t rows, int64_t cols, mxq_tensor** out) {
    return guard_create("mxq_tensor_create_2d", out, [&] { return create_tensor(format, false, 1, rows, cols); });
}

mxq_status mxq_tensor_create_3d(int32_t format, int64_t experts, int64_t rows, int64_t cols, mxq_tensor** out) {
    return guard_create("mxq_tensor_create_3d", out, [&] { return create_tensor(format, true, experts, rows, cols); });
}

void mxq_tensor_destroy(mxq_tensor* tensor) { delete tensor; }

mxq_status mxq_tensor_set_scaling(mxq_tensor* tensor, int32_t scaling) {
    return guard("mxq_tensor_set_scaling", [&] {
        require_quantized(require_handle(tensor, "tensor"), "scales");
        if (scaling != MXQ_SCALING_1X32 && scaling != MXQ_SCALING_32X32)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "scaling is %d, expected MXQ_SCALING_1X32 (1) or MXQ_SCALING_32X32 (2) for %s",
                 scaling, tensor->format->name);
        tensor->scaling = scaling;
    });
}

mxq_status mxq_tensor_set_swizzled(mxq_tensor* tensor, int32_t swizzled) {
    return guard("mxq_tensor_set_swizzled", [&] {
        require_quantized(require_handle(tensor, "tensor"), "scales");
        if (swizzled != 0 && swizzled != 1)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "swizzled is %d, expected 0 (compact) or 1 (swizzled)", swizzled);
        tensor->swizzled = swizzled == 1;
    });
}

mxq_status mxq_tensor_set_row_stride(mxq_tensor* tensor, int64_t elements) {
    return guard("mxq_tensor_set_row_stride", [&] {
        require_plain(require_handle(tensor, "tensor"), "row stride", "its codes are contiguous");
        if (elements < tensor->cols || elements > kMaxElements)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "elements is %lld, expected %lld (cols) to 2^48", (long long)elements,
                 (long long)tensor->cols);
        tensor->row_stride = elements;
    });
}

mxq_status mxq_tensor_set_data(mxq_tensor* tensor, void* data, uint64_t bytes) {
    return guard("mxq_tensor_set_data", [&] {
        require_plain(require_handle(tensor, "tensor"), "single data buffer", "use mxq_tensor_set_part");
        tensor->rowwise = {true, data, bytes, nullptr, 0};
    });
}

mxq_status mxq_tensor_set_part(mxq_tensor* tensor, int32_t part, void* codes, uint64_t code_bytes, void* scales,
                               uint64_t scale_bytes) {
    return guard("mxq_tensor_set_part", [&] {
        require_handle(tensor, "tensor");
        if (!tensor->format->quantized)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no parts; use mxq_tensor_set_data",
                 tensor->format->name);
        require_part(part);
        tensor->part(part) = {true, codes, code_bytes, scales, scale_bytes};
    });
}

mxq_status mxq_tensor_clear_part(mxq_tensor* tensor, int32_t part) {
    return guard("mxq_tensor_clear_part", [&] {
        require_quantized(require_handle(tensor, "tensor"), "parts");
        require_part(part);
        tensor->part(part) = {};
    });
}

mxq_status mxq_tensor_set_groups(mxq_tensor* tensor, const void* ends, int32_t ends_type, int32_t count) {
    return guard("mxq_tensor_set_groups", [&] {
        require_quantized(require_handle(tensor, "tensor"), "groups in this version");
        if (count == 0 && !ends) {
            tensor->groups = {};
            return;
        }
        if (tensor->is_3d)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor has 3 dimensions, expected 2: groups divide the rows of one matrix");
        if (ends_type != MXQ_TYPE_INT32 && ends_type != MXQ_TYPE_INT64)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "ends_type is %d, expected MXQ_TYPE_INT32 (1) or MXQ_TYPE_INT64 (2)", ends_type);
        if (count < 0 || count > MXQ_MAX_GROUPS)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "count is %d, expected 0 to %d groups", count, MXQ_MAX_GROUPS);
        tensor->groups = {ends, ends_type, count, true};
    });
}

mxq_status mxq_tensor_required_bytes(const mxq_tensor* tensor, int32_t part, uint64_t* code_bytes, uint64_t* scale_bytes) {
    return guard("mxq_tensor_required_bytes", [&] {
        require_handle(tensor, "tensor");
        require_part(part);
        int64_t codes = 0, scales = 0;
        if (tensor->format->quantized) {
            const Storage storage = tensor->storage(part);
            codes = storage.code_bytes;
            scales = storage.scale_bytes;
        } else {
            if (part != MXQ_PART_ROWWISE)
                fail(MXQ_STATUS_INVALID_ARGUMENT, "part is MXQ_PART_COLUMNWISE, expected MXQ_PART_ROWWISE for %s",
                     tensor->format->name);
            codes = tensor->data_bytes();
            if (codes < 0)
                fail(MXQ_STATUS_INVALID_ARGUMENT,
                     "tensor has row stride %lld, with which it is 2^63 bytes or more; use a smaller "
                     "row stride",
                     (long long)tensor->row_stride);
        }
        if (code_bytes) *code_bytes = uint64_t(codes);
        if (scale_bytes) *scale_bytes = uint64_t(scales);
    });
}
