// Validates quantize, requantize, amax, dequantize and convert.
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

[[noreturn]] void refuse_foreign(const char* option, const char* verb) {
    fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets %s, which %s does not have; use other options", option, verb);
}

[[noreturn]] void refuse_option(const char* option, const char* takers, const mxq_tensor& out) {
    fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets %s, which only %s has, and out is %s with %s scales; use other options",
         option, takers, out.format->name, out.tile().name);
}

// Refuses options that mean nothing to out's format and scaling.
void require_options(const mxq_quantize_options& options, const mxq_tensor& out) {
    const Format& format = *out.format;
    const bool in_blocks_of_e2m1 = format.element == Element::E2M1 && !out.tile().is_row();
    if (options.scale_rounding_set && !format.is_mx()) refuse_option("a scale rounding", "an MX format", out);
    if (options.nonfinite_set && !format.is_mx()) refuse_option("a non-finite policy", "an MX format", out);
    if (options.four_over_six != FourOverSix::None && !format.is_nvfp4()) refuse_option("four-over-six", "nvfp4", out);
    if (options.compute_amax_set && !format.is_nvfp4())
        refuse_option(options.compute_amax ? "a computed amax" : "a given amax", "nvfp4", out);
    if (options.seed_offset && !in_blocks_of_e2m1) refuse_option("stochastic rounding", "nvfp4 or mxfp4 in blocks", out);
    if (options.power_of_two && !format.is_fp8()) refuse_option("power-of-two scales", "fp8", out);
    if (!is_zero(options.epsilon) && !format.is_fp8()) refuse_option("an amax epsilon", "fp8", out);
    if (!options.undo_hadamard)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options keeps a Hadamard transform, which only dequantize does; use other options");
    if (out.quantization_scale.pointer && (!is_zero(options.epsilon) || options.power_of_two))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets %s and out has a quantization scale, which is taken as it is, expected one of them; use other "
             "options",
             !is_zero(options.epsilon) ? "an amax epsilon" : "power-of-two scales");
}

void take_options(const mxq_quantize_options& options, const mxq_tensor& out, QuantizeProblem& p) {
    p.scale_rounding = options.scale_rounding;
    p.nonfinite = options.nonfinite;
    p.four_over_six = options.four_over_six;
    p.seed_offset = options.seed_offset;
    p.compute_amax = options.compute_amax && out.format->is_nvfp4();
    p.power_of_two = options.power_of_two;
    p.epsilon = options.epsilon;
}

void add_part(const mxq_tensor& out, int32_t part, const mxq_quantize_options& options, Buffers& buffers,
              QuantizeProblem& p) {
    QuantizedPart& view = part == MXQ_PART_ROWWISE ? p.rowwise : p.columnwise;
    view = part_view(out, part, "out", buffers, Access::Write);
    if (out.format->is_nvfp4() && out.part(part).decode_scale.pointer)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "out.%s has a decode scale, expected an amax, which quantize needs; set it to NULL",
             part_name(part));
    if (out.format->is_nvfp4()) add_amax(out, part, "out", buffers, options.compute_amax ? Access::Write : Access::Read);
    if (out.format->is_fp8() && view.amax) add_amax(out, part, "out", buffers, Access::Write);
}

// Refuses a Hadamard transform of a part that is not written. A query for a tensor that declares no part tells nothing of
// parts.
void require_transforms_declared(const mxq_tensor& out) {
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (out.part(part).transformed && !out.part(part).declared && !declares_none(out))
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "out.%s has a Hadamard transform and is not declared, expected transforms of declared parts alone; call "
                 "mxq_tensor_set_part, or mxq_tensor_set_hadamard with 0",
                 part_name(part));
}

// Returns the part of in that is read. In a query, a tensor that declares no part has the one that is asked for.
int32_t source_part(const mxq_quantize_options* options, const mxq_tensor& in, Check check) {
    require_any_part(in, "in", check);
    const int32_t asked = options ? options->source_part : 0;
    if (asked == 0) return uses_part(in, MXQ_PART_ROWWISE, check) ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
    if (!in.part(asked).declared && !declares_none(in))
        fail(MXQ_STATUS_MISSING_BUFFER,
             "in declares no %s part, which mxq_quantize_options_set_source_part asks for; call mxq_tensor_set_part, or "
             "read the "
             "other part",
             part_name(asked));
    return asked;
}

// Lets values of a transformed part pass as they are, to parts of out that have the same transform in the same direction.
void pass_transformed(const QuantizedPart& from, int32_t part, bool grouped, QuantizeProblem& p) {
    if (!from.transformed) return;
    const QuantizedPart& to = from.columnwise ? p.columnwise : p.rowwise;
    const bool alone = from.columnwise ? !p.has_rowwise : !p.has_columnwise;
    const char* name = part_name(part);
    if (!alone || !to.transformed || to.hadamard_mask != from.hadamard_mask)
        fail(MXQ_STATUS_UNSUPPORTED,
             "in.%s has %s, expected out to have the same in its %s part, and no other part; dequantize in, and quantize that",
             name, hadamard_text(true, from.hadamard_mask).c_str(), name);
    if (from.columnwise && grouped)
        fail(MXQ_STATUS_UNSUPPORTED,
             "in.columnwise has a Hadamard transform and groups, in whose padding it has values, expected no groups; "
             "dequantize in, and quantize that");
    p.source.quantized.transformed = p.rowwise.transformed = p.columnwise.transformed = false;
}

// Refuses to keep what is not transformed, and what has values in the padding of groups.
void require_keepable(const mxq_tensor& in, int32_t part) {
    if (in.format->element != Element::E2M1)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options keeps a Hadamard transform, which only nvfp4 and mxfp4 have, and in is %s; use other options",
             in.format->name);
    if (in.part(part).transformed && part == MXQ_PART_COLUMNWISE && in.groups.set)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options keeps the Hadamard transform of in.columnwise, whose groups have values in their padding; undo it with "
             "mxq_quantize_options_set_undo_hadamard");
}

}  // namespace
QuantizeProblem output_problem(const mxq_quantize_options& options, const mxq_tensor& out, Buffers& buffers, Check check) {
    require_any_written_part(out, "out", check);
    QuantizeProblem p{};
    p.format = out.format;
    p.tile = out.tile();
    p.square_tiles = p.tile.is_square();
    p.has_rowwise = uses_part(out, MXQ_PART_ROWWISE, check);
    p.has_columnwise = uses_part(out, MXQ_PART_COLUMNWISE, check);
    require_options(options, out);
    require_transforms_declared(out);
    if (p.has_rowwise) add_part(out, MXQ_PART_ROWWISE, options, buffers, p);
    if (p.has_columnwise) add_part(out, MXQ_PART_COLUMNWISE, options, buffers, p);
    if (out.quantization_scale.pointer) {
        require_scope(out, "out.quantization_scale", out.quantization_scale);
        buffers.add({"out", nullptr, "quantization_scale"}, out.quantization_scale,
                    uint64_t(out.scope_count()) * sizeof(float), sizeof(float), Access::Read,
                    "mxq_tensor_set_quantization_scale");
        p.quantization_scale = static_cast<const float*>(out.quantization_scale.pointer);
    }
    if (options.seed_offset)
        buffers.add_read({"options", nullptr, "seed_offset"}, options.seed_offset, 16, 8,
                         "mxq_quantize_options_set_stochastic_rounding");
    take_options(options, out, p);
    return p;
}

void refuse_making(const mxq_quantize_options& options, const char* verb) {
    require_alive(&options, "options");
    const char* set = options.scale_rounding_set                         ? "a scale rounding"
                      : options.nonfinite_set                            ? "a non-finite policy"
                      : options.four_over_six != FourOverSix::None       ? "four-over-six"
                      : options.seed_offset                              ? "stochastic rounding"
                      : options.compute_amax_set && options.compute_amax ? "a computed amax"
                      : options.compute_amax_set                         ? "a given amax"
                      : options.power_of_two                             ? "power-of-two scales"
                      : !is_zero(options.epsilon)                        ? "an amax epsilon"
                                                                         : nullptr;
    if (set) refuse_foreign(set, verb);
}

void refuse_source_part(const mxq_quantize_options& options, const char* verb) {
    if (options.source_part != 0) refuse_foreign("a source part", verb);
}

void refuse_options(const mxq_quantize_options* options, const char* verb) {
    if (!options) return;
    refuse_making(*options, verb);
    refuse_source_part(*options, verb);
    if (!options->undo_hadamard) refuse_foreign("a Hadamard transform that is kept", verb);
}

QuantizeProblem validate_quantize(const Context& context, const mxq_quantize_options* given, const mxq_tensor* in_tensor,
                                  const mxq_tensor* out_tensor, Check check) {
    const mxq_quantize_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_source_part(options, "quantize");
    require_order(in, out, true);
    require_plain(in, "in", "call mxq_requantize");
    require_quantized(out, "out", "call mxq_convert");
    require_same_shape(in, out);
    Buffers buffers(context, check);
    const GroupedRows grouped = require_groups_alike(in, "in", out, "out", buffers);
    RowIndices by_index;
    const PlainMatrix plain = indexed_view(in, "in", buffers, by_index);
    QuantizeProblem p = output_problem(options, out, buffers, check);
    p.source = plain_source(plain);
    p.by_index = by_index;
    p.grouped = grouped;
    buffers.check_overlaps();
    return p;
}

QuantizeProblem validate_requantize(const Context& context, const mxq_quantize_options* given, const mxq_tensor* in_tensor,
                                    const mxq_tensor* out_tensor, Check check) {
    const mxq_quantize_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    require_quantized(in, "in");
    require_quantized(out, "out");
    require_same_shape(in, out);
    const int32_t part = source_part(&options, in, check);
    Buffers buffers(context, check);
    const GroupedRows grouped = require_groups_alike(in, "in", out, "out", buffers);
    const QuantizedPart from = part_view(in, part, "in", buffers, Access::Read);
    add_global_scale(in, part, "in", buffers);
    mxq_tensor to = out;  // a query of an out without parts assumes the one that a transform passes to
    if (check == Check::Query && declares_none(out) && from.transformed) to.part(part).declared = true;
    QuantizeProblem p = output_problem(options, to, buffers, check);
    p.source = quantized_source(from, in.rows, in.cols);
    pass_transformed(from, part, grouped.set(), p);
    p.grouped = grouped;
    buffers.check_overlaps();
    return p;
}

AmaxProblem validate_amax(const Context& context, const mxq_quantize_options* given, const mxq_tensor* in_tensor,
                          const mxq_tensor* out_tensor, Check check) {
    const mxq_quantize_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_source_part(options, "amax");
    require_plain(in, "in");
    require_quantized(out, "out");
    if (!out.format->is_nvfp4() && out.scaling != MXQ_SCALING_TENSOR)
        fail(MXQ_STATUS_UNSUPPORTED, "out is %s with %s scales, expected nvfp4, or fp8 with tensor scales; quantize alone does",
             out.format->name, out.tile().name);
    require_same_shape(in, out);
    Buffers buffers(context, check);
    QuantizeProblem p{};
    p.grouped = require_groups_alike(in, "in", out, "out", buffers);
    p.source = plain_source(indexed_view(in, "in", buffers, p.by_index));
    p.format = out.format;
    p.tile = out.tile();
    p.square_tiles = p.tile.is_square();
    const bool none = !out.rowwise.amax.pointer && !out.columnwise.amax.pointer;
    p.has_rowwise = out.rowwise.amax.pointer || (none && check == Check::Query);
    p.has_columnwise = out.columnwise.amax.pointer;
    if (none && check == Check::Execute && out.experts > 0)
        fail(MXQ_STATUS_MISSING_BUFFER, "out has no place for an amax, expected one for a part; call mxq_tensor_set_amax");
    require_options(options, out);
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(part == MXQ_PART_ROWWISE ? p.has_rowwise : p.has_columnwise)) continue;
        Buffers unchecked(context, Check::Query);  // codes and scales are not touched
        mxq_tensor bare = out;
        bare.part(part).codes = bare.part(part).scales = {};
        (part == MXQ_PART_ROWWISE ? p.rowwise : p.columnwise) = part_view(bare, part, "out", unchecked, Access::Read);
        add_amax(out, part, "out", buffers, Access::Write);
    }
    take_options(options, out, p);
    buffers.check_overlaps();
    return {p};
}

DequantizeProblem validate_dequantize(const Context& context, const mxq_quantize_options* given,
                                      const mxq_tensor* in_tensor, const mxq_tensor* out_tensor, Check check) {
    const mxq_quantize_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_making(options, "dequantize");
    require_order(in, out, false);
    require_quantized(in, "in", "call mxq_convert");
    require_plain(out, "out", "call mxq_requantize");
    require_same_shape(in, out);
    const int32_t part = source_part(&options, in, check);

    Buffers buffers(context, check);
    DequantizeProblem p{};
    p.grouped = require_groups_alike(in, "in", out, "out", buffers);
    p.format = in.format;
    p.columnwise = part == MXQ_PART_COLUMNWISE;
    p.in = part_view(in, part, "in", buffers, Access::Read);
    if (!options.undo_hadamard) require_keepable(in, part);
    p.in.transformed &= options.undo_hadamard;
    add_global_scale(in, part, "in", buffers);
    p.out = plain_view(out, "out", buffers, Access::Write);
    buffers.check_overlaps();
    return p;
}

ConvertProblem validate_convert(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                                const mxq_tensor* out_tensor, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_options(options, "convert");
    const bool from_codes = in.format->quantized(), to_codes = out.format->quantized();
    if (from_codes || to_codes)
        fail(MXQ_STATUS_UNSUPPORTED, "in is %s and out is %s, expected f32, f16 or bf16 on both sides; call %s",
             in.format->name, out.format->name,
             !from_codes ? "mxq_quantize"
             : to_codes  ? "mxq_requantize"
                         : "mxq_dequantize");
    require_same_shape(in, out);
    require_no_groups(in, "in", "clear them, and convert the rows as they are stored");
    require_no_groups(out, "out", "clear them, and convert the rows as they are stored");
    Buffers buffers(context, check);
    RowIndices by_index;
    const PlainMatrix from = indexed_view(in, "in", buffers, by_index);
    const PlainMatrix to = plain_view(out, "out", buffers, Access::Write);
    buffers.check_overlaps();
    return {from, to, by_index};
}

}  // namespace mxq
