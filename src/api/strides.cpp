// Sets and gets the strides of a tensor's K-major rows and of its experts.
#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"
#include "core/strides.h"

using namespace mxq;

namespace {

constexpr int64_t kMostBytes = int64_t(1) << 52;  // that the rows of an expert, or the experts, may span

void require_span(const char* name, int64_t stride, int64_t count) {
    if (stride < 0 || stride > kMostBytes / (count > 0 ? count : 1))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %lld, expected 0 (none) or more, and no more than 2^52 bytes for all %lld lines or experts; give bytes",
             name, (long long)stride, (long long)count);
}

void require_experts(const mxq_tensor& t, const char* name, int64_t stride) {
    if (stride != 0 && !t.is_3d)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %lld on a tensor of 2 dimensions, expected 0; create one with mxq_tensor_create_3d", name,
             (long long)stride);
}

// Refuses a list that has no address for each expert.
void require_list(const mxq_tensor& t, int64_t count, const char* setter) {
    if (!t.is_3d)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor has 2 dimensions, expected 3, with an address for each expert; call %s",
             setter);
    if (count != t.experts)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "count is %lld, expected %lld, the experts of the tensor; give an address for each, or create it with others",
             (long long)count, (long long)t.experts);
}

}  // namespace

mxq_status mxq_tensor_set_strides(mxq_tensor* tensor, int32_t part, int64_t code_line, int64_t code_expert,
                                  int64_t scale_line, int64_t scale_expert) {
    return change(tensor, [&](auto& t) {
        require_part_of(t, part, "call mxq_tensor_set_row_stride");
        const int64_t lines = part == MXQ_PART_ROWWISE ? t.rows : t.cols;
        require_span("code_line", code_line, lines);
        require_span("code_expert", code_expert, t.experts);
        require_span("scale_line", scale_line, lines);
        require_span("scale_expert", scale_expert, t.experts);
        require_experts(t, "code_expert", code_expert);
        require_experts(t, "scale_expert", scale_expert);
        t.part(part).strides = {code_line, code_expert, scale_line, scale_expert};
        require_strides(t);
    });
}

mxq_status mxq_tensor_get_strides(const mxq_tensor* tensor, int32_t part, int64_t* code_line, int64_t* code_expert,
                                  int64_t* scale_line, int64_t* scale_expert) {
    return with(tensor, [&](auto& t) {
        require_part_of(t, part, "call mxq_tensor_get_row_stride");
        const Strides& strides = t.part(part).strides;
        put(code_line, strides.code_line);
        put(code_expert, strides.code_expert);
        put(scale_line, strides.scale_line);
        put(scale_expert, strides.scale_expert);
    });
}

mxq_status mxq_tensor_set_part_list(mxq_tensor* tensor, int32_t part, int64_t count, const void* const* codes,
                                    uint64_t code_bytes, const void* const* scales, uint64_t scale_bytes) {
    return change(tensor, [&](auto& t) {
        require_part_of(t, part, "call mxq_tensor_set_data_list");
        require_list(t, count, "mxq_tensor_set_part");
        const Buffer list = buffer_of(codes, code_bytes, "codes");
        t.part(part).declare(list, buffer_of(scales, scale_bytes, "scales"), true, true);
        require_strides(t);
    });
}

mxq_status mxq_tensor_get_part_list(const mxq_tensor* tensor, int32_t part, int64_t* count, const void* const** codes,
                                    uint64_t* code_bytes, const void* const** scales, uint64_t* scale_bytes) {
    return with(tensor, [&](auto& t) {
        require_part_of(t, part, "call mxq_tensor_get_data_list");
        const Part& given = t.part(part);
        const Part of_list = given.listed ? given : Part{};
        put(count, given.listed ? t.experts : 0);
        put(codes, code_bytes, of_list.codes);
        put(scales, scale_bytes, of_list.scales);
    });
}

mxq_status mxq_tensor_set_data_list(mxq_tensor* tensor, int64_t count, const void* const* data, uint64_t bytes) {
    return with(tensor, [&](auto& t) {
        refuse_quantized(t, "single data buffer", "call mxq_tensor_set_part_list");
        require_list(t, count, "mxq_tensor_set_data");
        t.rowwise.declare(buffer_of(data, bytes, "data"), {}, true, true);
    });
}

mxq_status mxq_tensor_get_data_list(const mxq_tensor* tensor, int64_t* count, const void* const** data, uint64_t* bytes) {
    return with(tensor, [&](auto& t) {
        refuse_quantized(t, "single data buffer", "call mxq_tensor_get_part_list");
        const bool listed = t.rowwise.listed;
        put(count, listed ? t.experts : 0);
        put(data, bytes, listed ? t.rowwise.codes : Buffer{});
    });
}
