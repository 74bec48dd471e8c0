// Validates swizzle_scales, unswizzle_scales, pad_groups and unpad_groups, and the arguments that every call has.
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

void require_alike(const mxq_tensor& in, const mxq_tensor& out) {
    if (in.format != out.format || in.scaling != out.scaling)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "out is %s with scaling %s, expected in's %s with scaling %s; make them alike",
             out.format->name, out.tile().name, in.format->name, in.tile().name);
    require_same_shape(in, out);
}

// Returns whether both sides use the part; throws where only one does. In a query, a side without parts takes the other's.
bool both_use(const mxq_tensor& in, const mxq_tensor& out, int32_t part, Check check) {
    const mxq_tensor& in_parts = check == Check::Query && declares_none(in) ? out : in;
    const mxq_tensor& out_parts = check == Check::Query && declares_none(out) ? in : out;
    require_any_part(in_parts, "in", check);
    if (uses_part(in_parts, part, check) != uses_part(out_parts, part, check))
        fail(MXQ_STATUS_MISSING_BUFFER,
             "the %s part is declared on only one of in and out, expected the same parts on both; call mxq_tensor_set_part",
             part_name(part));
    return uses_part(in_parts, part, check);
}

PadProblem::Side side_of(const QuantizedPart& part) {
    return {part.codes, part.line_bytes, part.scales, part.layout, part.units};
}

PadProblem::Side side_of(const PlainMatrix& plain, int64_t element_bytes) {
    return {static_cast<uint8_t*>(plain.data), plain.row_stride * element_bytes, nullptr, {}, {plain.group_unit, 1}};
}

void add_starts(const mxq_tensor& out, int32_t part, Buffers& buffers, PadProblem::Part& padded) {
    const Part& arrays = out.part(part);
    const uint64_t size = out.groups.end_bytes(), need = size * uint64_t(out.groups.count);
    const char* setter = "mxq_tensor_set_padded_groups";
    if (arrays.starts.pointer)
        buffers.add({"out", part_name(part), "starts"}, arrays.starts, need, size, Access::Write, setter);
    if (arrays.ends.pointer) buffers.add({"out", part_name(part), "ends"}, arrays.ends, need, size, Access::Write, setter);
    padded.starts = arrays.starts.pointer;
    padded.ends = arrays.ends.pointer;
}

void require_direction(const mxq_tensor& in, const mxq_tensor& out, int32_t part, bool pads) {
    const int32_t from = in.alignment(part), to = out.alignment(part);
    if (pads ? from > to : from < to)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "in has the %s group alignment %d and out %d, expected out's to be %s; call %s, or "
             "mxq_tensor_set_group_alignment",
             part_name(part), from, to, pads ? "as large or larger" : "as large or smaller",
             pads ? "mxq_unpad_groups" : "mxq_pad_groups");
}

}  // namespace

void validate_call(const mxq_context* context, const void* stream) {
    if (!context)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "context is NULL, expected a context; create one with mxq_context_create");
    require_alive(context, "context");
    if (context->is_cpu() && stream)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "stream is %p on a CPU context, expected NULL; CPU calls are synchronous", stream);
}

SwizzleProblem validate_swizzle(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                                const mxq_tensor* out_tensor, bool to_swizzled, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_options(options, to_swizzled ? "swizzle_scales" : "unswizzle_scales");
    require_quantized(in, "in");
    require_quantized(out, "out");
    require_alike(in, out);
    if (in.swizzled == to_swizzled || out.swizzled != to_swizzled)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "in is %s and out is %s, expected %s; call mxq_tensor_set_swizzled",
             in.swizzled ? "swizzled" : "compact", out.swizzled ? "swizzled" : "compact",
             to_swizzled ? "compact to swizzled" : "swizzled to compact");

    Buffers buffers(context, check);
    SwizzleProblem p{};
    p.grouped = require_groups_alike(in, "in", out, "out", buffers);
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (both_use(in, out, part, Check::Query)) require_without_strides(out, part, "out");
        if (!both_use(in, out, part, check)) continue;
        require_hadamard_alike(in, out, part);
        if (p.grouped.set() && in.alignment(part) != out.alignment(part))
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "in has the %s group alignment %d and out %d, expected the same; call mxq_tensor_set_group_alignment",
                 part_name(part), in.alignment(part), out.alignment(part));
        const QuantizedPart from = part_view(in, part, "in", buffers, Access::Read, Touches::Scales);
        const QuantizedPart to = part_view(out, part, "out", buffers, Access::Write, Touches::Scales);
        p.parts[p.count++] = {from.scales, to.scales,  from.matrices, from.lines,      from.length,   from.layout,
                              to.layout,   from.units, to.units,      from.columnwise, from.addresses};
    }
    buffers.check_overlaps();
    return p;
}

PadProblem validate_pad(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                        const mxq_tensor* out_tensor, bool pads, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_options(options, pads ? "pad_groups" : "unpad_groups");
    require_alike(in, out);
    Buffers buffers(context, check);
    require_groups(in, "in", buffers);
    require_same_groups(in, "in", out, "out", buffers);
    PadProblem p{};
    p.grouped = {in.groups, in.rows};
    p.grouped.groups.cover_rows |= out.groups.cover_rows;
    if (!in.format->quantized()) {
        require_direction(in, out, MXQ_PART_ROWWISE, pads);
        const int64_t element = in.format->bits / 8;
        const PlainMatrix from =
            pads ? indexed_view(in, "in", buffers, p.by_index) : plain_view(in, "in", buffers, Access::Read);
        const PlainMatrix to = plain_view(out, "out", buffers, Access::Write);
        p.parts[p.count++] = {side_of(from, element), side_of(to, element), false,   0,
                              in.cols * element,      in.format->bits,      nullptr, nullptr, 1};
        add_starts(out, MXQ_PART_ROWWISE, buffers, p.parts[0]);
        buffers.check_overlaps();
        return p;
    }
    if (in.swizzled != out.swizzled)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "in is %s and out is %s, expected the same; call mxq_tensor_set_swizzled",
             in.swizzled ? "swizzled" : "compact", out.swizzled ? "swizzled" : "compact");
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!both_use(in, out, part, check)) continue;
        require_hadamard_alike(in, out, part);
        require_direction(in, out, part, pads);
        const QuantizedPart from = part_view(in, part, "in", buffers, Access::Read);  // groups have no strides
        const QuantizedPart to = part_view(out, part, "out", buffers, Access::Write);
        PadProblem::Part& padded = p.parts[p.count++];
        padded = {side_of(from), side_of(to), from.columnwise, from.lines, from.line_bytes, from.bits, nullptr, nullptr,
                in.tile().lines};
        add_starts(out, part, buffers, padded);
    }
    buffers.check_overlaps();
    return p;
}

}  // namespace mxq
