// Sets and gets where the lines and experts of a quantized part lie.
#include "api/guard.h"
#include "api/put.h"
#include "core/strides.h"

using namespace mxq;

namespace {

constexpr int64_t kMostBytes = int64_t(1) << 52;  // that the lines of an expert, or the experts, may span

const mxq_tensor& require_quantized(const mxq_tensor* tensor, const char* what, const char* remedy) {
    const mxq_tensor& t = require_handle(tensor, "tensor");
    if (!t.format->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no %s; %s", t.format->name, what, remedy);
    return t;
}

void require_span(const char* name, int64_t stride, int64_t count) {
    if (stride < 0 || stride > kMostBytes / (count > 0 ? count : 1))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %lld, expected 0 (none) or more, and no more than 2^52 bytes for all %lld",
             name, (long long)stride, (long long)count);
}

void require_experts(const mxq_tensor& t, const char* name, int64_t stride) {
    if (stride != 0 && !t.is_3d)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %lld on a tensor of 2 dimensions, expected 0; create one with mxq_tensor_create_3d", name,
             (long long)stride);
}

}  // namespace

mxq_status mxq_tensor_set_strides(mxq_tensor* tensor, int32_t part, int64_t code_line, int64_t code_expert,
                                  int64_t scale_line, int64_t scale_expert) {
    return guard("mxq_tensor_set_strides", [&] {
        const mxq_tensor& t = require_quantized(tensor, "parts", "call mxq_tensor_set_row_stride");
        require_part(part);
        const int64_t lines = part == MXQ_PART_ROWWISE ? t.rows : t.cols;
        require_span("code_line", code_line, lines);
        require_span("code_expert", code_expert, t.experts);
        require_span("scale_line", scale_line, lines);
        require_span("scale_expert", scale_expert, t.experts);
        require_experts(t, "code_expert", code_expert);
        require_experts(t, "scale_expert", scale_expert);
        mxq_tensor spread = t;
        spread.part(part).strides = {code_line, code_expert, scale_line, scale_expert};
        require_chosen_strides(spread);
        tensor->part(part).strides = spread.part(part).strides;
    });
}

mxq_status mxq_tensor_get_strides(const mxq_tensor* tensor, int32_t part, int64_t* code_line, int64_t* code_expert,
                                  int64_t* scale_line, int64_t* scale_expert) {
    return guard("mxq_tensor_get_strides", [&] {
        const mxq_tensor& t = require_quantized(tensor, "parts", "call mxq_tensor_get_row_stride");
        require_part(part);
        const Strides& strides = t.part(part).strides;
        put(code_line, strides.code_line);
        put(code_expert, strides.code_expert);
        put(scale_line, strides.scale_line);
        put(scale_expert, strides.scale_expert);
    });
}

mxq_status mxq_tensor_set_part_list(mxq_tensor* tensor, int32_t part, int64_t count, const void* const* codes,
                                    uint64_t code_bytes, const void* const* scales, uint64_t scale_bytes) {
    return guard("mxq_tensor_set_part_list", [&] {
        const mxq_tensor& t = require_quantized(tensor, "parts", "call mxq_tensor_set_data, with experts one after another");
        require_part(part);
        if (!t.is_3d)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "tensor has 2 dimensions, expected 3, with an address for each expert; call mxq_tensor_set_part");
        if (count != t.experts)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "count is %lld, expected %lld, the experts of the tensor", (long long)count,
                 (long long)t.experts);
        mxq_tensor listed = t;
        Part& target = listed.part(part);
        target.declared = target.is_const = target.listed = true;
        target.codes = {const_cast<void**>(codes), code_bytes};
        target.scales = {const_cast<void**>(scales), scale_bytes};
        require_chosen_strides(listed);
        tensor->part(part) = target;
    });
}

mxq_status mxq_tensor_get_part_list(const mxq_tensor* tensor, int32_t part, int64_t* count, const void* const** codes,
                                    uint64_t* code_bytes, const void* const** scales, uint64_t* scale_bytes) {
    return guard("mxq_tensor_get_part_list", [&] {
        const mxq_tensor& t = require_quantized(tensor, "parts", "call mxq_tensor_get_data");
        require_part(part);
        const Part& given = t.part(part);
        const Part of_list = given.listed ? given : Part{};
        put(count, given.listed ? t.experts : 0);
        put(codes, static_cast<const void* const*>(of_list.codes.pointer));
        put(code_bytes, of_list.codes.bytes);
        put(scales, static_cast<const void* const*>(of_list.scales.pointer));
        put(scale_bytes, of_list.scales.bytes);
    });
}
