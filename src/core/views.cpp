#include "core/views.h"

#include "core/groups.h"
#include "core/strides.h"

namespace mxq {
namespace {

const char* listed_text(const Part& part) { return part.listed ? " listed" : ""; }

std::string strides_text(const Strides& strides) {
    if (!strides.set()) return "";
    return format_text(" strides (%lld, %lld, %lld, %lld)", (long long)strides.code_line, (long long)strides.code_expert,
                       (long long)strides.scale_line, (long long)strides.scale_expert);
}

std::string plain_text(const mxq_tensor& t) {
    const std::string stride = t.row_stride == t.cols ? "" : format_text(" row stride %lld", (long long)t.row_stride);
    return stride + listed_text(t.rowwise);
}

std::string groups_text(const mxq_tensor& t) {
    if (t.groups.count == 0) return "none";
    return format_text("%d with %s ends", t.groups.count, t.groups.type == MXQ_TYPE_INT32 ? "int32" : "int64");
}

// Compares the ends of b with those of a, which are known to be in memory.
void require_equal_ends(const mxq_tensor& a, const char* a_name, const mxq_tensor& b, const char* b_name) {
    for (int64_t g = 0; g < a.groups.count; g++) {
        const int64_t of_a = read_end(a.groups, g), of_b = read_end(b.groups, g);
        if (of_a != of_b)
            fail(MXQ_STATUS_SHAPE_MISMATCH,
                 "%s has other groups than %s, expected equal ends, and end %lld is %lld and %lld; set the same groups on "
                 "both",
                 b_name, a_name, (long long)g, (long long)of_b, (long long)of_a);
    }
}

// Refuses a Hadamard transform along a contraction that is no multiple of 16.
void require_hadamard(const mxq_tensor& t, int32_t part, const char* name) {
    if (!t.part(part).transformed) return;
    const int64_t contraction = part == MXQ_PART_ROWWISE ? t.cols : t.groups.set ? t.alignment(part) : t.rows;
    if (contraction % kNvBlock != 0)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s.%s has a Hadamard transform and a contraction of %lld, expected a multiple of 16; pad it, or call "
             "mxq_tensor_set_hadamard with 0",
             name, part_name(part), (long long)contraction);
}

// Adds a buffer of a part, or those of all experts where they are listed.
void add_stored(const mxq_tensor& t, const Part& given, const BufferName& name, const Buffer& buffer, uint64_t need,
                uint64_t alignment, Access access, const char* setter, const Buffers::Rows& rows, Buffers& buffers) {
    if (given.listed)
        buffers.add_list(name, buffer, t.experts, need, alignment, setter, rows);
    else
        buffers.add(name, buffer, need, alignment, access, setter, rows);
}

PlainMatrix stored_view(const mxq_tensor& t, const char* name, Buffers& buffers, Access access) {
    const Part& given = t.rowwise;
    const Buffer& data = given.codes;
    if (access == Access::Write && given.is_const)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s has %s may only be read, expected data that this verb may write; set it with mxq_tensor_set_data", name,
             given.listed ? "a list of experts, which" : "data that");
    const int64_t bytes = t.data_bytes();
    if (bytes < 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %s with row stride %lld, which is 2^63 bytes or more; use a smaller row stride", name,
             shape_text(t).c_str(), (long long)t.row_stride);
    const auto element = uint64_t(t.format->bits / 8);
    const Buffers::Rows rows{uint64_t(t.cols) * element, uint64_t(t.row_stride) * element};
    add_stored(t, given, {name, nullptr, "data"}, data, uint64_t(bytes), element, access,
               given.listed ? "mxq_tensor_set_data_list" : "mxq_tensor_set_data", rows, buffers);
    // Addresses of buffers without bytes were not checked.
    void* const first = given.listed && bytes == 0 ? nullptr : data.pointer;
    const int32_t group_unit = t.groups.set ? t.rowwise_alignment : 1;
    return {first, t.format->id, t.experts, t.rows, t.cols, t.row_stride, group_unit, addresses_of(given)};
}

// Refuses numbers that are no row of the source, and not -1.
void require_row_indices(const RowIndices& by, int64_t rows, const char* name) {
    for (int64_t i = 0; i < rows; i++) {
        const int64_t index = read_row_index(by, i);
        if (index < -1 || index >= by.source_rows)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "%s.row_indices[%lld] is %lld, expected -1 (a row of zeros) to %lld (the last row of its data)", name,
                 (long long)i, (long long)index, (long long)by.source_rows - 1);
    }
}

void require_writable(const Part& given, int32_t part, const char* name) {
    if (given.is_const)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s.%s %s, expected codes and scales that this verb may write; set them with mxq_tensor_set_part", name,
             part_name(part), given.listed ? "is a list of experts, which may only be read" : "may only be read");
}

void add_part(const mxq_tensor& t, int32_t part, const char* name, const Storage& s, Buffers& buffers, Access access,
              Touches touches) {
    const Part& given = t.part(part);
    const char* setter = given.listed ? "mxq_tensor_set_part_list" : "mxq_tensor_set_part";
    const auto add = [&](const char* what, const Buffer& buffer, int64_t bytes, int64_t alignment,
                         const Buffers::Rows& rows) {
        add_stored(t, given, {name, part_name(part), what}, buffer, uint64_t(bytes), uint64_t(alignment), access, setter,
                   rows, buffers);
    };
    if (touches == Touches::CodesAndScales) add("codes", given.codes, s.code_bytes, 1, rows_of_codes(t, given, s));
    const char* scales = t.swizzled ? "scales (swizzled)" : "scales (compact)";
    add(scales, given.scales, s.scale_bytes(), s.scales.bytes, rows_of_scales(t, given, s));
}

void add_floats(const mxq_tensor& t, int32_t part, const char* name, const char* what, const Buffer& buffer,
                Buffers& buffers, Access access, const char* setter) {
    const int64_t count = t.storage(part).amax_count;
    if (count == 1) require_scope(t, BufferName{name, part_name(part), what}.text(), buffer);
    buffers.add({name, part_name(part), what}, buffer, uint64_t(count) * sizeof(float), sizeof(float), access, setter);
}

}  // namespace

std::string shape_text(const mxq_tensor& t) {
    const std::string matrix = std::to_string(t.rows) + " x " + std::to_string(t.cols);
    return t.is_3d ? std::to_string(t.experts) + " x " + matrix : matrix;
}

std::string tensor_text(const mxq_tensor& t) {
    std::string text = std::string(t.format->name) + " " + shape_text(t);
    if (t.row_indices.set) text += " by index of " + std::to_string(t.row_indices.source_rows);
    if (t.groups.set) text += " in " + std::to_string(t.groups.count) + " groups";
    if (!t.format->quantized()) return text + plain_text(t);
    text += std::string(" ") + t.tile().name;
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (t.part(part).declared)
            text += std::string(" ") + part_name(part) + listed_text(t.part(part)) + strides_text(t.part(part).strides);
    return text + (t.swizzled ? " swizzled" : "");
}

const char* part_name(int32_t part) { return part == MXQ_PART_ROWWISE ? "rowwise" : "columnwise"; }

const mxq_tensor& require(const mxq_tensor* tensor, const char* name) {
    if (!tensor)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is NULL, expected a tensor; create one with mxq_tensor_create_2d", name);
    require_alive(tensor, name);
    return *tensor;
}

const mxq_routing& require_routing(const mxq_routing* routing) {
    if (!routing)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "routing is NULL, expected a routing; create one with mxq_routing_create");
    require_alive(routing, "routing");
    return *routing;
}

void require_plain(const mxq_tensor& t, const char* name, const char* remedy) {
    if (t.format->quantized())
        fail(MXQ_STATUS_UNSUPPORTED, "%s is %s, expected f32, f16 or bf16; %s", name, t.format->name, remedy);
}

void require_quantized(const mxq_tensor& t, const char* name, const char* remedy) {
    if (!t.format->quantized())
        fail(MXQ_STATUS_UNSUPPORTED, "%s is %s, expected a quantized format such as mxfp8_e4m3; %s", name, t.format->name,
             remedy);
}

void require_order(const mxq_tensor& in, const mxq_tensor& out, bool quantizes) {
    if (in.format->quantized() != quantizes || out.format->quantized() == quantizes) return;
    fail(MXQ_STATUS_UNSUPPORTED, "in is %s and out is %s, expected a %s in and a %s out; swap them, or call %s",
         in.format->name, out.format->name, quantizes ? "plain" : "quantized", quantizes ? "quantized" : "plain",
         quantizes ? "mxq_dequantize" : "mxq_quantize");
}

void require_same_shape(const mxq_tensor& in, const mxq_tensor& out) {
    if (in.is_3d == out.is_3d && in.experts == out.experts && in.rows == out.rows && in.cols == out.cols) return;
    const bool transposed = in.is_3d == out.is_3d && in.experts == out.experts && in.rows == out.cols && in.cols == out.rows &&
                            (in.format->quantized() || out.format->quantized());
    fail(MXQ_STATUS_SHAPE_MISMATCH, "out is %s, expected in's shape %s; create it with that%s", shape_text(out).c_str(),
         shape_text(in).c_str(), transposed ? ": rows and cols are those of the matrix, for a columnwise part too" : "");
}

void require_no_groups(const mxq_tensor& t, const char* name, const char* remedy) {
    if (t.groups.set) fail(MXQ_STATUS_UNSUPPORTED, "%s has groups, expected none; %s", name, remedy);
}

void require_groups(const mxq_tensor& t, const char* name, Buffers& buffers) {
    if (!t.groups.set)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s has no groups, expected some; call mxq_tensor_set_groups", name);
    const uint64_t bytes = t.groups.end_bytes();
    buffers.add_read({name, nullptr, "ends"}, t.groups.ends, bytes * uint64_t(t.groups.count), bytes,
                     "mxq_tensor_set_groups");
}

void require_same_groups(const mxq_tensor& a, const char* a_name, const mxq_tensor& b, const char* b_name,
                         Buffers& buffers) {
    if (b.groups.type != a.groups.type || b.groups.count != a.groups.count)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s has other groups than %s (%s and %s), expected ends of the same type and count; set the same groups on both",
             b_name, a_name, groups_text(b).c_str(), groups_text(a).c_str());
    if (b.groups.ends == a.groups.ends) return;
    if (!buffers.is_cpu())
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s has other groups than %s, expected the same array of ends, whose values the host does not read; set the "
             "same "
             "groups on both",
             b_name, a_name);
    require_groups(b, b_name, buffers);
    if (buffers.can_read()) require_equal_ends(a, a_name, b, b_name);
}

GroupedRows require_groups_alike(const mxq_tensor& in, const char* in_name, const mxq_tensor& out, const char* out_name,
                                 Buffers& buffers) {
    const mxq_tensor& grouped = in.groups.set ? in : out;
    if (!grouped.groups.set) return {};
    require_groups(grouped, in.groups.set ? in_name : out_name, buffers);
    // A plain tensor without groups holds its rows without padding, as it would with groups of alignment 1.
    const mxq_tensor& other = in.groups.set ? out : in;
    if (other.groups.set || other.format->quantized()) require_same_groups(in, in_name, out, out_name, buffers);
    GroupedRows found{grouped.groups, grouped.rows};
    found.groups.cover_rows = in.groups.cover_rows || out.groups.cover_rows;
    return found;
}

void require_scale_layout(const mxq_tensor& t, const char* name) {
    if (t.swizzled && t.format->is_fp8() && t.tile().length == 0)
        fail(MXQ_STATUS_UNSUPPORTED, "%s with %s scales cannot have swizzled ones, expected compact ones; leave mxq_tensor_set_swizzled at 0", name,
             t.tile().name);
}

void require_storage(const mxq_tensor& t, int32_t part, const char* name) {
    if (!t.format->quantized()) return;
    require_scale_layout(t, name);
    require_strides(t, part, name);
    require_hadamard(t, part, name);
    if (t.swizzled && t.format->is_fp8() && t.groups.set && part == MXQ_PART_COLUMNWISE)
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s.columnwise has groups and swizzled fp32 scales, which exist for groups of rows only; use compact ones",
             name);
}

bool declares_none(const mxq_tensor& t) { return !t.rowwise.declared && !t.columnwise.declared; }

bool uses_part(const mxq_tensor& t, int32_t part, Check check) {
    return t.part(part).declared || (declares_none(t) && check == Check::Query && part == MXQ_PART_ROWWISE);
}

void require_any_part(const mxq_tensor& t, const char* name, Check check) {
    if (!uses_part(t, MXQ_PART_ROWWISE, check) && !uses_part(t, MXQ_PART_COLUMNWISE, check))
        fail(MXQ_STATUS_MISSING_BUFFER, "%s declares no part, expected rowwise, columnwise or both; call mxq_tensor_set_part",
             name);
}

void require_without_strides(const mxq_tensor& t, int32_t part, const char* name) {
    if (t.part(part).strides.set())
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s.%s has strides, which only what is read may have, expected codes and scales without gaps; call "
             "mxq_tensor_set_strides with 0",
             name, part_name(part));
}

void require_any_written_part(const mxq_tensor& t, const char* name, Check check) {
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (uses_part(t, part, Check::Query)) require_without_strides(t, part, name);
    require_any_part(t, name, check);
}

PlainMatrix plain_view(const mxq_tensor& t, const char* name, Buffers& buffers, Access access) {
    if (t.row_indices.set)
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s has rows by index, which only the input of quantize, amax, convert, pad_groups and products may have; "
             "mxq_convert gathers them",
             name);
    return stored_view(t, name, buffers, access);
}

PlainMatrix indexed_view(const mxq_tensor& t, const char* name, Buffers& buffers, RowIndices& by_index) {
    by_index = t.row_indices;
    if (!t.row_indices.set) return plain_view(t, name, buffers, Access::Read);
    const RowIndices& by = t.row_indices;
    if (t.groups.set && t.rowwise_alignment != 1)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s has rows by index and groups padded to multiples of %d rows, expected no padding; call "
             "mxq_tensor_set_group_alignment with 1",
             name, t.rowwise_alignment);
    const uint64_t bytes = uint64_t(t.rows * by.index_bytes());
    buffers.add_read({name, nullptr, "row_indices"}, by.indices, bytes, uint64_t(by.index_bytes()),
                     "mxq_tensor_set_row_indices");
    if (buffers.can_read()) require_row_indices(by, t.rows, name);
    return stored_view(t, name, buffers, Access::Read);
}

std::string hadamard_text(bool transformed, uint32_t mask) {
    return transformed ? format_text("a Hadamard transform with the mask 0x%04X", mask) : "no Hadamard transform";
}

void require_hadamard_alike(const mxq_tensor& in, const mxq_tensor& out, int32_t part) {
    const Part &of_in = in.part(part), &of_out = out.part(part);
    if (of_in.transformed != of_out.transformed || of_in.hadamard_mask != of_out.hadamard_mask)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "in.%s has %s and out.%s %s, expected the same; call mxq_tensor_set_hadamard",
             part_name(part), hadamard_text(of_in.transformed, of_in.hadamard_mask).c_str(), part_name(part),
             hadamard_text(of_out.transformed, of_out.hadamard_mask).c_str());
}

QuantizedPart part_view(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers, Access access,
                        Touches touches) {
    require_storage(t, part, name);
    const Part& given = t.part(part);
    if (access == Access::Write) {
        require_writable(given, part, name);
        require_without_strides(t, part, name);
    }
    if (touches == Touches::Scales && given.listed)
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s.%s is a list of experts, expected their scales in one piece; set them with mxq_tensor_set_part", name,
             part_name(part));
    const Storage s = t.storage(part);
    add_part(t, part, name, s, buffers, access, touches);
    QuantizedPart view{};
    // Addresses of buffers without bytes were not checked.
    if (!given.listed || s.code_bytes > 0) view.codes = static_cast<uint8_t*>(given.codes.pointer);
    if (!given.listed || s.scale_bytes() > 0) view.scales = static_cast<uint8_t*>(given.scales.pointer);
    view.matrices = t.experts;
    view.lines = s.lines;
    view.length = s.length;
    view.line_bytes = s.line_stride;
    view.matrix_bytes = s.matrix_stride;
    view.layout = s.scales;
    view.units = s.units;
    view.element = t.format->element;
    view.bits = t.format->bits;
    view.scale_type = t.format->scale;
    view.columnwise = part == MXQ_PART_COLUMNWISE;
    view.transformed = given.transformed;
    view.hadamard_mask = given.hadamard_mask;
    view.amax = static_cast<float*>(given.amax.pointer);
    view.decode_scale = static_cast<const float*>(given.decode_scale.pointer);
    view.scale_max = t.scale_max;
    view.scope_stride = t.per_expert ? 1 : 0;
    view.addresses = addresses_of(given);
    return view;
}

PlainArray numbers_view(const Numbers& given, int64_t rows, int64_t cols, const char* name, const char* setter,
                        Buffers& buffers, Access access) {
    const auto& [format, values] = given;
    if (format == 0) return {};
    const Format& found = *find_format(format);
    const uint64_t element = uint64_t(found.bits / 8), need = uint64_t(rows * cols) * element;
    if (values.pointer && values.bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL,
             "options.%s holds %llu bytes, expected at least %llu: %lld x %lld numbers of %s; give as many", name,
             (unsigned long long)values.bytes, (unsigned long long)need, (long long)rows, (long long)cols, found.name);
    buffers.add({"options", nullptr, name}, values, need, element, access, setter);
    return {values.pointer, format};
}

void require_scope(const mxq_tensor& t, const std::string& name, const Buffer& buffer) {
    const int64_t members = t.groups.set ? t.groups.count : t.experts;
    if (t.per_expert || members < 2 || buffer.bytes != uint64_t(members) * sizeof(float)) return;
    fail(MXQ_STATUS_INVALID_ARGUMENT,
         "%s holds %lld numbers, one for each %s, expected one with MXQ_SCOPE_TENSOR; call mxq_tensor_set_scope with "
         "MXQ_SCOPE_EXPERT",
         name.c_str(), (long long)members, t.groups.set ? "group" : "expert");
}

void add_amax(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers, Access access, const char* setter) {
    if (t.experts == 0 && !t.part(part).amax.pointer) return;  // nothing is relative to it
    add_floats(t, part, name, "amax", t.part(part).amax, buffers, access, setter);
}

void add_global_scale(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers) {
    if (!t.format->is_nvfp4()) return;
    const Part& given = t.part(part);
    if (given.decode_scale.pointer)
        add_floats(t, part, name, "decode_scale", given.decode_scale, buffers, Access::Read, "mxq_tensor_set_decode_scale");
    else
        add_amax(t, part, name, buffers, Access::Read,
                 "mxq_tensor_set_amax, or a decode scale with mxq_tensor_set_decode_scale");
}

}  // namespace mxq
