#include "core/tensor.h"

#include <algorithm>
#include <memory>

#include "api/guard.h"
#include "api/take.h"
#include "core/strides.h"
#include "core/views.h"

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
    // Lines without elements have scales too, so that a size of 0 counts as 1. Each size may be 2^31 - 1, so that their product
    // overflows: the limit is divided by one size after another instead.
    const int64_t lines = std::max<int64_t>(rows, 1), length = std::max<int64_t>(cols, 1);
    if (lines > kMaxElements / length || experts > kMaxElements / (lines * length))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "the shape %lld x %lld x %lld has more than 2^48 elements%s; split the tensor",
             (long long)experts, (long long)rows, (long long)cols,
             experts == 0 || rows == 0 || cols == 0 ? ", where a size of 0 counts as 1" : "");

    auto tensor = std::make_unique<mxq_tensor_s>();
    tensor->format = found;
    tensor->scaling = found->scaling;
    tensor->is_3d = is_3d;
    tensor->experts = experts;
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->row_stride = cols;
    return tensor.release();
}

void require_scaled(const mxq_tensor& tensor, const char* what) {
    if (!tensor.format->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no %s; expected a quantized format", tensor.format->name,
             what);
}

// Lists the scalings that a format takes, by the names and numbers of their constants.
std::string scalings_text(const Format& format) {
    std::string text;
    for (int32_t id = MXQ_SCALING_NONE; id <= MXQ_SCALING_TENSOR; id++) {
        if (!format.takes(id)) continue;
        std::string name = scaling_of(id).name;
        for (char& letter : name) letter = letter >= 'a' && letter <= 'z' ? char(letter - 'a' + 'A') : letter;
        text += format_text(" MXQ_SCALING_%s (%d)", name.c_str(), id);
    }
    return text;
}

void require_nvfp4(const mxq_tensor& tensor, const char* what) {
    if (!tensor.format->is_nvfp4())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, expected nvfp4, the only format with %s", tensor.format->name,
             what);
}

// Refuses a Hadamard transform with square tiles, ROW or TENSOR, none of which is a default scaling.
void require_hadamard_scaling(const mxq_tensor& tensor) {
    if (!tensor.rowwise.transformed && !tensor.columnwise.transformed) return;
    if (tensor.tile().is_square() || tensor.tile().is_row())
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor has a Hadamard transform and %s scales, expected blocks of one line; call mxq_tensor_set_scaling, or "
             "mxq_tensor_set_hadamard with 0",
             tensor.tile().name);
}

// Refuses a given factor for scales that are not those of the whole tensor.
void require_quantization_scaling(const mxq_tensor& tensor) {
    if (tensor.quantization_scale.pointer && tensor.scaling != MXQ_SCALING_TENSOR)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor has a quantization scale and %s scales, expected tensor ones; call mxq_tensor_set_scaling with "
             "MXQ_SCALING_TENSOR, or mxq_tensor_set_quantization_scale with NULL",
             tensor.tile().name);
}

// Refuses an amax of a part that has a decode scale, which replaces it.
void require_one_global_scale(const mxq_tensor& tensor, int32_t part) {
    if (tensor.part(part).amax.pointer && tensor.part(part).decode_scale.pointer)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor.%s has an amax and a decode scale, expected one of them; call mxq_tensor_set_amax or "
             "mxq_tensor_set_decode_scale with NULL first",
             part_name(part));
}

// Refuses a layout or an alignment that the scaling cannot have. One that the caller did not choose may still be replaced;
// the default has the smallest block of those that the format takes.
void require_chosen(const mxq_tensor& tensor) {
    if (tensor.scaling_set) require_scale_layout(tensor, "tensor");
    require_hadamard_scaling(tensor);
    require_strides(tensor);
    require_quantization_scaling(tensor);
    const int32_t least = tensor.least_alignment(MXQ_PART_COLUMNWISE);
    if (tensor.columnwise_alignment != 0 && tensor.columnwise_alignment < least)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor has the columnwise group alignment %d, expected a multiple of %d, or 0 for the default: no block of %s "
             "may lie "
             "in two groups; call mxq_tensor_set_group_alignment",
             tensor.columnwise_alignment, least, tensor.tile().name);
}

void set_data(mxq_tensor& tensor, const Buffer& data, bool is_const) {
    refuse_quantized(tensor, "single data buffer", "use mxq_tensor_set_part");
    tensor.rowwise.declare(data, {}, is_const, false);
}

void set_part(mxq_tensor& tensor, int32_t part, const Buffer& codes, const Buffer& scales, bool is_const) {
    require_part_of(tensor, part, "use mxq_tensor_set_data");
    tensor.part(part).declare(codes, scales, is_const, false);
}

void require_2d(const mxq_tensor& tensor) {
    if (tensor.is_3d)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor has 3 dimensions, expected 2: groups divide the rows of one matrix; call mxq_tensor_create_2d");
}

// Requires exactly the bytes that the ends have: a type that is not theirs has another size.
void require_ends_bytes(const Groups& groups, uint64_t bytes) {
    const uint64_t need = uint64_t(groups.count) * groups.end_bytes();
    if (bytes != need)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "bytes is %llu, expected exactly %llu: %d ends of %s; check their type and count",
             (unsigned long long)bytes, (unsigned long long)need, groups.count,
             groups.type == MXQ_TYPE_INT32 ? "MXQ_TYPE_INT32" : "MXQ_TYPE_INT64");
}

}  // namespace

mxq_status mxq_tensor_create_2d(int32_t format, int64_t rows, int64_t cols, mxq_tensor** out) {
    return guard_create(out, [&] { return create_tensor(format, false, 1, rows, cols); });
}

mxq_status mxq_tensor_create_3d(int32_t format, int64_t experts, int64_t rows, int64_t cols, mxq_tensor** out) {
    return guard_create(out, [&] { return create_tensor(format, true, experts, rows, cols); });
}

void mxq_tensor_destroy(mxq_tensor* tensor) { destroy(tensor); }

mxq_status mxq_tensor_set_scaling(mxq_tensor* tensor, int32_t scaling) {
    return change(tensor, [&](auto& t) {
        require_scaled(t, "scales");
        if (!t.format->takes(scaling))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "scaling is %d, expected one of%s for %s", scaling,
                 scalings_text(*t.format).c_str(), t.format->name);
        t.scaling = scaling;
        t.scaling_set = true;
        require_chosen(t);
    });
}

mxq_status mxq_tensor_set_swizzled(mxq_tensor* tensor, int32_t swizzled) {
    return change(tensor, [&](auto& t) {
        require_scaled(t, "scales");
        if (swizzled != 0 && swizzled != 1)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "swizzled is %d, expected 0 (compact) or 1 (swizzled)", swizzled);
        t.swizzled = swizzled == 1;
        require_chosen(t);
    });
}

mxq_status mxq_tensor_set_row_stride(mxq_tensor* tensor, int64_t elements) {
    return with(tensor, [&](auto& t) {
        refuse_quantized(t, "row stride", "call mxq_tensor_set_strides, which takes bytes");
        if (elements < t.cols || elements > kMaxElements)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "elements is %lld, expected %lld (cols) to 2^48", (long long)elements,
                 (long long)t.cols);
        t.row_stride = elements;
    });
}

mxq_status mxq_tensor_set_data(mxq_tensor* tensor, void* data, uint64_t bytes) {
    return with(tensor, [&](auto& t) { set_data(t, buffer_of(data, bytes, "data"), false); });
}

mxq_status mxq_tensor_set_const_data(mxq_tensor* tensor, const void* data, uint64_t bytes) {
    return with(tensor, [&](auto& t) { set_data(t, buffer_of(data, bytes, "data"), data != nullptr); });
}

mxq_status mxq_tensor_set_part(mxq_tensor* tensor, int32_t part, void* codes, uint64_t code_bytes, void* scales,
                               uint64_t scale_bytes) {
    return with(tensor, [&](auto& t) {
        set_part(t, part, buffer_of(codes, code_bytes, "codes"), buffer_of(scales, scale_bytes, "scales"), false);
    });
}

mxq_status mxq_tensor_set_const_part(mxq_tensor* tensor, int32_t part, const void* codes, uint64_t code_bytes,
                                     const void* scales, uint64_t scale_bytes) {
    return with(tensor, [&](auto& t) {
        set_part(t, part, buffer_of(codes, code_bytes, "codes"), buffer_of(scales, scale_bytes, "scales"), codes || scales);
    });
}

mxq_status mxq_tensor_clear_part(mxq_tensor* tensor, int32_t part) {
    return with(tensor, [&](auto& t) {
        require_scaled(t, "parts");
        require_part(part);
        t.part(part) = {};
    });
}

mxq_status mxq_tensor_set_groups(mxq_tensor* tensor, const void* ends, uint64_t bytes, int32_t ends_type, int32_t count) {
    return change(tensor, [&](auto& t) {
        if (count == 0 && !ends) {
            t.groups = {.cover_rows = t.groups.cover_rows};
            t.host_ends = nullptr;
            return;
        }
        require_2d(t);
        require_type(ends_type, "ends_type");
        if (count < 0 || count > MXQ_MAX_GROUPS)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "count is %d, expected 0 to %d groups", count, MXQ_MAX_GROUPS);
        const Groups groups{ends, ends_type, count, true, t.groups.cover_rows};
        if (ends) require_ends_bytes(groups, bytes);
        t.groups = groups;
        require_strides(t);
        t.host_ends = nullptr;  // they belong to the groups that were set before
    });
}

mxq_status mxq_tensor_set_groups_cover_rows(mxq_tensor* tensor, int32_t cover) {
    return with(tensor, [&](auto& t) {
        require_flag(cover, "cover");
        if (cover == 1) require_2d(t);
        t.groups.cover_rows = cover == 1;
    });
}

mxq_status mxq_tensor_set_host_ends(mxq_tensor* tensor, const void* ends, uint64_t bytes) {
    return with(tensor, [&](auto& t) {
        if (ends && !t.groups.set)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "tensor has no groups, expected some, whose type and count the ends on the host have; call "
                 "mxq_tensor_set_groups first");
        buffer_of(ends, bytes, "ends");
        if (ends) require_ends_bytes(t.groups, bytes);
        t.host_ends = ends;
    });
}

mxq_status mxq_tensor_set_group_alignment(mxq_tensor* tensor, int32_t rowwise, int32_t columnwise) {
    return change(tensor, [&](auto& t) {
        const auto known = [](int32_t a) { return a >= 1 && a <= 128 && (a & (a - 1)) == 0; };
        if (!known(rowwise))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "rowwise is %d, expected a power of two from 1 to 128", rowwise);
        if (columnwise != 0 && !known(columnwise))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "columnwise is %d, expected 0 (the default) or a power of two up to 128",
                 columnwise);
        t.rowwise_alignment = rowwise;
        t.columnwise_alignment = columnwise;
        require_chosen(t);
    });
}

mxq_status mxq_tensor_set_padded_groups(mxq_tensor* tensor, int32_t part, void* starts, uint64_t start_bytes, void* ends,
                                        uint64_t end_bytes) {
    return change(tensor, [&](auto& t) {
        require_part(part);
        if (part == MXQ_PART_COLUMNWISE && !t.format->quantized())
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "part is MXQ_PART_COLUMNWISE, expected MXQ_PART_ROWWISE: tensor is %s, whose rows alone are padded",
                 t.format->name);
        t.part(part).starts = buffer_of(starts, start_bytes, "starts");
        t.part(part).ends = buffer_of(ends, end_bytes, "ends");
    });
}

mxq_status mxq_tensor_set_amax(mxq_tensor* tensor, int32_t part, float* amax, uint64_t bytes) {
    return change(tensor, [&](auto& t) {
        require_part(part);
        if (!t.format->is_nvfp4() && !t.format->is_fp8())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, expected nvfp4 or fp8, the formats with an amax",
                 t.format->name);
        t.part(part).amax = buffer_of(amax, bytes, "amax");
        require_one_global_scale(t, part);
    });
}

mxq_status mxq_tensor_set_decode_scale(mxq_tensor* tensor, int32_t part, const float* scale, uint64_t bytes) {
    return change(tensor, [&](auto& t) {
        require_nvfp4(t, "a decode scale");
        require_part(part);
        t.part(part).decode_scale = buffer_of(scale, bytes, "scale");
        require_one_global_scale(t, part);
    });
}

mxq_status mxq_tensor_set_scale_max(mxq_tensor* tensor, int32_t scale_max) {
    return with(tensor, [&](auto& t) {
        require_nvfp4(t, "a largest block scale");
        if (scale_max != 448 && scale_max != 256)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "scale_max is %d, expected 448 or 256", scale_max);
        t.scale_max = scale_max;
    });
}

mxq_status mxq_tensor_set_hadamard(mxq_tensor* tensor, int32_t part, int32_t transformed, int32_t mask) {
    return change(tensor, [&](auto& t) {
        if (t.format->element != Element::E2M1)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, expected nvfp4 or mxfp4, the formats with a Hadamard transform",
                 t.format->name);
        require_part(part);
        require_flag(transformed, "transformed");
        if (mask < 0 || mask > 0xFFFF)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "mask is %d, expected 16 bits, one for each element that changes its sign",
                 mask);
        if (transformed == 0 && mask != 0)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "mask is 0x%04X without a transform, expected 0; set transformed to 1",
                 unsigned(mask));
        t.part(part).transformed = transformed == 1;
        t.part(part).hadamard_mask = uint16_t(mask);
        require_chosen(t);
    });
}

mxq_status mxq_tensor_set_quantization_scale(mxq_tensor* tensor, const float* scale, uint64_t bytes) {
    return change(tensor, [&](auto& t) {
        if (!t.format->is_fp8())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, expected fp8, the formats with a quantization scale",
                 t.format->name);
        t.quantization_scale = buffer_of(scale, bytes, "scale");
        require_quantization_scaling(t);
    });
}

mxq_status mxq_tensor_set_scope(mxq_tensor* tensor, int32_t scope) {
    return change(tensor, [&](auto& t) {
        if (!t.format->is_nvfp4() && !t.format->is_fp8())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, expected nvfp4 or fp8, which share something above blocks",
                 t.format->name);
        if (scope != MXQ_SCOPE_TENSOR && scope != MXQ_SCOPE_EXPERT)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "scope is %d, expected MXQ_SCOPE_TENSOR (1) or MXQ_SCOPE_EXPERT (2)", scope);
        t.per_expert = scope == MXQ_SCOPE_EXPERT;
        require_strides(t);
    });
}
