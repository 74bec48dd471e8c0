// Getters of a tensor, one for each setter, and its description in words.
#include <algorithm>
#include <cstring>

#include "api/guard.h"
#include "api/put.h"
#include "core/tensor.h"
#include "core/views.h"

using namespace mxq;

namespace {

template <class Read>
mxq_status get_part(const mxq_tensor* tensor, int32_t part, const Read& read, const char* function = __builtin_FUNCTION()) {
    const auto read_part = [&](const mxq_tensor& t) {
        require_part(part);
        read(t.part(part));
    };
    return with(tensor, read_part, function);
}

uint64_t bytes_of_ends(const Groups& groups) { return groups.set ? uint64_t(groups.count) * groups.end_bytes() : 0; }

}  // namespace

mxq_status mxq_tensor_get_format(const mxq_tensor* tensor, int32_t* format) {
    return with(tensor, [&](const mxq_tensor& t) { put(format, t.format->id); });
}

mxq_status mxq_tensor_get_shape(const mxq_tensor* tensor, int32_t* dimensions, int64_t* experts, int64_t* rows,
                                int64_t* cols) {
    return with(tensor, [&](const mxq_tensor& t) {
        put(dimensions, t.is_3d ? 3 : 2);
        put(experts, t.experts);
        put(rows, t.rows);
        put(cols, t.cols);
    });
}

mxq_status mxq_tensor_get_scaling(const mxq_tensor* tensor, int32_t* scaling) {
    return with(tensor, [&](const mxq_tensor& t) { put(scaling, t.scaling); });
}

mxq_status mxq_tensor_get_swizzled(const mxq_tensor* tensor, int32_t* swizzled) {
    return with(tensor, [&](const mxq_tensor& t) { put(swizzled, t.swizzled); });
}

mxq_status mxq_tensor_get_row_stride(const mxq_tensor* tensor, int64_t* elements) {
    return with(tensor, [&](const mxq_tensor& t) { put(elements, t.row_stride); });
}

mxq_status mxq_tensor_get_data(const mxq_tensor* tensor, void** data, uint64_t* bytes, int32_t* is_const) {
    return with(tensor, [&](const mxq_tensor& t) {
        refuse_quantized(t, "single data buffer", "use mxq_tensor_get_part");
        put(data, bytes, t.rowwise.listed ? Buffer{} : t.rowwise.codes);
        put(is_const, t.rowwise.is_const);
    });
}

mxq_status mxq_tensor_get_part(const mxq_tensor* tensor, int32_t part, int32_t* declared, void** codes, uint64_t* code_bytes,
                               void** scales, uint64_t* scale_bytes, int32_t* is_const) {
    return with(tensor, [&](const mxq_tensor& t) {
        require_part_of(t, part, "use mxq_tensor_get_data");
        const Part& given = t.part(part);
        put(declared, given.declared);
        put(codes, code_bytes, given.listed ? Buffer{} : given.codes);
        put(scales, scale_bytes, given.listed ? Buffer{} : given.scales);
        put(is_const, given.is_const);
    });
}

mxq_status mxq_tensor_get_groups(const mxq_tensor* tensor, const void** ends, uint64_t* bytes, int32_t* ends_type,
                                 int32_t* count) {
    return with(tensor, [&](const mxq_tensor& t) {
        put(ends, t.groups.ends);
        put(bytes, bytes_of_ends(t.groups));
        put(ends_type, t.groups.type);
        put(count, t.groups.count);
    });
}

mxq_status mxq_tensor_get_groups_cover_rows(const mxq_tensor* tensor, int32_t* cover) {
    return with(tensor, [&](const mxq_tensor& t) { put(cover, t.groups.cover_rows); });
}

mxq_status mxq_tensor_get_host_ends(const mxq_tensor* tensor, const void** ends, uint64_t* bytes) {
    return with(tensor, [&](const mxq_tensor& t) {
        put(ends, t.host_ends);
        put(bytes, t.host_ends ? bytes_of_ends(t.groups) : 0);
    });
}

mxq_status mxq_tensor_get_group_alignment(const mxq_tensor* tensor, int32_t* rowwise, int32_t* columnwise) {
    return with(tensor, [&](const mxq_tensor& t) {
        put(rowwise, t.alignment(MXQ_PART_ROWWISE));
        put(columnwise, t.alignment(MXQ_PART_COLUMNWISE));
    });
}

mxq_status mxq_tensor_get_padded_groups(const mxq_tensor* tensor, int32_t part, void** starts, uint64_t* start_bytes,
                                        void** ends, uint64_t* end_bytes) {
    return get_part(tensor, part, [&](const Part& p) {
        put(starts, start_bytes, p.starts);
        put(ends, end_bytes, p.ends);
    });
}

mxq_status mxq_tensor_get_amax(const mxq_tensor* tensor, int32_t part, float** amax, uint64_t* bytes) {
    return get_part(tensor, part, [&](const Part& p) { put(amax, bytes, p.amax); });
}

mxq_status mxq_tensor_get_decode_scale(const mxq_tensor* tensor, int32_t part, const float** scale, uint64_t* bytes) {
    return get_part(tensor, part, [&](const Part& p) { put(scale, bytes, p.decode_scale); });
}

mxq_status mxq_tensor_get_hadamard(const mxq_tensor* tensor, int32_t part, int32_t* transformed, int32_t* mask) {
    return get_part(tensor, part, [&](const Part& p) {
        put(transformed, p.transformed);
        put(mask, p.hadamard_mask);
    });
}

mxq_status mxq_tensor_get_scale_max(const mxq_tensor* tensor, int32_t* scale_max) {
    return with(tensor, [&](const mxq_tensor& t) { put(scale_max, t.scale_max); });
}

mxq_status mxq_tensor_get_quantization_scale(const mxq_tensor* tensor, const float** scale, uint64_t* bytes) {
    return with(tensor, [&](const mxq_tensor& t) { put(scale, bytes, t.quantization_scale); });
}

mxq_status mxq_tensor_get_scope(const mxq_tensor* tensor, int32_t* scope) {
    return with(tensor, [&](const mxq_tensor& t) { put(scope, t.per_expert ? MXQ_SCOPE_EXPERT : MXQ_SCOPE_TENSOR); });
}

uint64_t mxq_tensor_describe(const mxq_tensor* tensor, char* buffer, uint64_t size) {
    std::string text;
    if (tensor) with(tensor, [&](const mxq_tensor& t) { text = tensor_text(t); });
    if (buffer && size > 0) {
        const uint64_t kept = std::min<uint64_t>(text.size(), size - 1);
        std::memcpy(buffer, text.data(), kept);
        buffer[kept] = 0;
    }
    return text.size();
}
