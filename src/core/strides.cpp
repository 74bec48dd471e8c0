#include "core/strides.h"

#include "core/error.h"
#include "core/views.h"

namespace mxq {
namespace {

// Refuses a stride below the bytes of one K-major row, with which rows would overlap.
void require_line(const char* name, int32_t part, const char* what, int64_t stride, int64_t line_bytes) {
    if (stride != 0 && stride < line_bytes)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s has a %s stride of %lld bytes, expected 0 (none) or at least %lld, one line; call mxq_tensor_set_strides, "
             "which takes bytes",
             name, part_name(part), what, (long long)stride, (long long)line_bytes);
}

void require_whole_scales(const char* name, int32_t part, const char* what, int64_t stride, int64_t scale_bytes) {
    if (stride % scale_bytes != 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s has a %s stride of %lld bytes, expected a multiple of %lld, the size of a scale; call "
             "mxq_tensor_set_strides, which takes bytes",
             name, part_name(part), what, (long long)stride, (long long)scale_bytes);
}

// Returns the contiguous runs of bytes that gaps leave. Where both rows and experts have gaps, the gaps between rows count
// as bytes of the expert. Experts whose rows alternate count as one run without gaps.
Buffers::Rows rows_between(int64_t matrices, int64_t matrix_stride, int64_t lines, int64_t line_stride, int64_t width) {
    const int64_t matrix = (lines - 1) * line_stride + width;
    const bool lines_alone = matrices == 1 || matrix_stride == lines * line_stride;
    if (lines_alone) return width == line_stride ? Buffers::Rows{} : Buffers::Rows{uint64_t(width), uint64_t(line_stride)};
    return matrix_stride >= matrix ? Buffers::Rows{uint64_t(matrix), uint64_t(matrix_stride)} : Buffers::Rows{};
}

void require_code_strides(const mxq_tensor& t, int32_t part, const char* name, const Storage& s) {
    const Strides& strides = t.part(part).strides;
    const int64_t line_bytes = s.lines == 0 ? 0 : s.line_bytes;
    require_line(name, part, "code line", strides.code_line, line_bytes);
    require_line(name, part, "code expert", strides.code_expert, line_bytes);
}

// Refuses strides of scales that the scaling, the layout or the scope cannot have.
void require_scale_strides(const mxq_tensor& t, int32_t part, const char* name, const Storage& s) {
    const Part& given = t.part(part);
    const Strides& strides = given.strides;
    if ((strides.scale_expert != 0 || given.listed) && t.scaling == MXQ_SCALING_TENSOR && !t.per_expert)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s has one scale for all experts and %s, expected a scale for each; call mxq_tensor_set_scope with "
             "MXQ_SCOPE_EXPERT first, or %s",
             name, part_name(part), given.listed ? "a list of experts" : "an expert stride of scales",
             given.listed ? "mxq_tensor_set_part" : "mxq_tensor_set_strides with 0");
    const bool in_one_line = t.swizzled || t.scaling == MXQ_SCALING_TENSOR;
    if (strides.scale_line != 0 && in_one_line)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s has a scale line stride of %lld bytes, which %s scales do not have, expected 0; call "
             "mxq_tensor_set_strides%s",
             name, part_name(part), (long long)strides.scale_line, t.swizzled ? "swizzled" : "tensor",
             t.swizzled ? "" : ", or mxq_tensor_set_scaling first");
    const int64_t bytes = s.scales.bytes, line_bytes = s.scale_lines == 0 ? 0 : s.scale_width * bytes;
    require_whole_scales(name, part, "scale line", strides.scale_line, bytes);
    require_whole_scales(name, part, "scale expert", strides.scale_expert, bytes);
    require_line(name, part, "scale line", strides.scale_line, line_bytes);
    require_line(name, part, "scale expert", strides.scale_expert, line_bytes);
}

}  // namespace

void require_strides(const mxq_tensor& t, int32_t part, const char* name) {
    const Part& given = t.part(part);
    if (!t.format->quantized() || (!given.strides.set() && !given.listed)) return;
    if (t.groups.set)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s has groups and strides of its %s part, expected one of them; call mxq_tensor_set_strides with 0", name,
             part_name(part));
    const bool expert_strides = given.strides.code_expert != 0 || given.strides.scale_expert != 0;
    if (given.listed && expert_strides)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s has a list of experts and an expert stride, expected one of them; call mxq_tensor_set_strides with expert "
             "strides of 0, or mxq_tensor_set_part",
             name, part_name(part));
    const Storage s = t.storage(part);
    require_code_strides(t, part, name, s);
    require_scale_strides(t, part, name, s);
}

void require_strides(const mxq_tensor& t) {
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) require_strides(t, part, "tensor");
}

Addresses addresses_of(const Part& part) {
    return part.listed ? Addresses::Listed : part.strides.set() ? Addresses::Strided : Addresses::Dense;
}

Buffers::Rows rows_of_codes(const mxq_tensor& t, const Part& part, const Storage& s) {
    if (addresses_of(part) == Addresses::Dense) return {};
    return rows_between(part.listed ? 1 : t.experts, s.matrix_stride, s.lines, s.line_stride, s.line_bytes);
}

Buffers::Rows rows_of_scales(const mxq_tensor& t, const Part& part, const Storage& s) {
    if (addresses_of(part) == Addresses::Dense) return {};
    const int64_t bytes = s.scales.bytes, line = s.scale_lines == 1 ? s.scale_width : s.scales.line_stride;
    return rows_between(part.listed ? 1 : t.experts, s.scales.matrix_scales * bytes, s.scale_lines, line * bytes,
                        s.scale_width * bytes);
}

}  // namespace mxq
