// Validates quantize, requantize, amax and dequantize.
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

const mxq_quantize_options& options_or_default(const mxq_quantize_options* given) {
    static const mxq_quantize_options defaults;
    if (given) require_alive(given, "options");
    return given ? *given : defaults;
}

[[noreturn]] void refuse_option(const char* option, const char* takers, const mxq_tensor& out) {
    fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets %s, which only %s has, and out is %s with %s scales; use other options",
         option, takers, out.format->name, out.tile().name);
}

void require_hadamard(const mxq_quantize_options& options, const mxq_tensor& out, int32_t part) {
    const bool in_lines = !out.tile().is_square() && !out.tile().is_row();
    const bool takes = out.format->element == Element::E2M1 && in_lines;
    if (!takes) refuse_option("a Hadamard transform", "nvfp4 or mxfp4 in blocks of one line", out);
    const int64_t contraction = part == MXQ_PART_ROWWISE ? out.cols : out.groups.set ? out.alignment(part) : out.rows;
    if (contraction % kNvBlock != 0)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "options sets a Hadamard transform of the %s part, whose contraction is %lld, expected a multiple of 16; pad it",
             part_name(part), (long long)contraction);
    if (options.hadamard.mask > 0xFFFF)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "options has the Hadamard mask 0x%X, expected 16 bits", options.hadamard.mask);
}

// Refuses a transform of a part that the call neither writes nor finds declared. In a query, a tensor that declares no part
// may get any.
void require_hadamard_parts(const Hadamard& hadamard, const mxq_tensor& out, bool has_rowwise, bool has_columnwise,
                            Check check) {
    if (declares_none(out) && check == Check::Query) return;
    const bool misses_rowwise = hadamard.rowwise && !has_rowwise && !out.rowwise.declared;
    const bool misses_columnwise = hadamard.columnwise && !has_columnwise && !out.columnwise.declared;
    if (misses_rowwise || misses_columnwise)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets a Hadamard transform of the %s part, which out does not declare, expected one of parts that it "
             "has; "
             "call mxq_tensor_set_part, or use other options",
             part_name(misses_rowwise ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE));
}

// Refuses options that mean nothing to out's format and scaling.
void require_options(const mxq_quantize_options& options, const mxq_tensor& out, bool has_rowwise, bool has_columnwise,
                     Check check) {
    const Format& format = *out.format;
    const bool in_blocks_of_e2m1 = format.element == Element::E2M1 && !out.tile().is_row();
    if (options.scale_rounding_set && !format.is_mx()) refuse_option("a scale rounding", "an MX format", out);
    if (options.nonfinite_set && !format.is_mx()) refuse_option("a non-finite policy", "an MX format", out);
    if (options.four_over_six != FourOverSix::None && !format.is_nvfp4()) refuse_option("four-over-six", "nvfp4", out);
    if (options.compute_amax_set && !format.is_nvfp4())
        refuse_option(options.compute_amax ? "a computed amax" : "a given amax", "nvfp4", out);
    if (options.seed_offset && !in_blocks_of_e2m1) refuse_option("stochastic rounding", "nvfp4 or mxfp4 in blocks", out);
    if (options.seed_offset && options.four_over_six != FourOverSix::None)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets stochastic rounding and four-over-six, expected one of them");
    if (options.power_of_two && !format.is_fp8()) refuse_option("power-of-two scales", "fp8", out);
    if (options.epsilon != 0 && !format.is_fp8()) refuse_option("an amax epsilon", "fp8", out);
    require_hadamard_parts(options.hadamard, out, has_rowwise, has_columnwise, check);
    if (options.hadamard.rowwise && has_rowwise) require_hadamard(options, out, MXQ_PART_ROWWISE);
    if (options.hadamard.columnwise && has_columnwise) require_hadamard(options, out, MXQ_PART_COLUMNWISE);
    if (out.quantization_scale.pointer && (options.epsilon != 0 || options.power_of_two))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets %s and out has a quantization scale, which is taken as it is, expected one of them; use other "
             "options",
             options.epsilon != 0 ? "an amax epsilon" : "power-of-two scales");
    if (out.quantization_scale.pointer && out.scaling != MXQ_SCALING_TENSOR)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "out has a quantization scale, which only fp8 with tensor scales takes, and is %s with %s scales; set it to NULL",
             format.name, out.tile().name);
}

void take_options(const mxq_quantize_options& options, const mxq_tensor& out, QuantizeProblem& p) {
    p.scale_rounding = options.scale_rounding;
    p.nonfinite = options.nonfinite;
    p.hadamard = options.hadamard;
    p.hadamard.rowwise &= p.has_rowwise;
    p.hadamard.columnwise &= p.has_columnwise;
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

// Returns the problem of a quantize or requantize, without its input.
QuantizeProblem output_problem(const mxq_quantize_options& options, const mxq_tensor& out, Buffers& buffers, Check check) {
    require_any_part(out, "out", check);
    QuantizeProblem p{};
    p.format = out.format;
    p.tile = out.tile();
    p.square_tiles = p.tile.is_square();
    p.has_rowwise = uses_part(out, MXQ_PART_ROWWISE, check);
    p.has_columnwise = uses_part(out, MXQ_PART_COLUMNWISE, check);
    require_options(options, out, p.has_rowwise, p.has_columnwise, check);
    if (p.has_rowwise) add_part(out, MXQ_PART_ROWWISE, options, buffers, p);
    if (p.has_columnwise) add_part(out, MXQ_PART_COLUMNWISE, options, buffers, p);
    if (out.quantization_scale.pointer) {
        buffers.add({"out", nullptr, "quantization_scale"}, out.quantization_scale.pointer, out.quantization_scale.bytes,
                    uint64_t(out.scope_count()) * sizeof(float), sizeof(float), Access::Read,
                    "mxq_tensor_set_quantization_scale");
        p.quantization_scale = static_cast<const float*>(out.quantization_scale.pointer);
    }
    if (options.seed_offset)
        buffers.add({"options", nullptr, "seed_offset"}, options.seed_offset, 16, 16, 8, Access::Read,
                    "mxq_quantize_options_set_stochastic_rounding");
    take_options(options, out, p);
    return p;
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

[[noreturn]] void refuse_foreign(const char* option, const char* verb) {
    fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets %s, which %s does not have; use other options", option, verb);
}

// Refuses every option that says how codes and scales are made.
void refuse_making(const mxq_quantize_options& options, const char* verb) {
    require_alive(&options, "options");
    const char* set = options.scale_rounding_set                                ? "a scale rounding"
                      : options.nonfinite_set                                   ? "a non-finite policy"
                      : options.four_over_six != FourOverSix::None              ? "four-over-six"
                      : options.hadamard.rowwise || options.hadamard.columnwise ? "a Hadamard transform"
                      : options.seed_offset                                     ? "stochastic rounding"
                      : options.compute_amax_set && options.compute_amax        ? "a computed amax"
                      : options.compute_amax_set                                ? "a given amax"
                      : options.power_of_two                                    ? "power-of-two scales"
                      : options.epsilon != 0                                    ? "an amax epsilon"
                                                                                : nullptr;
    if (set) refuse_foreign(set, verb);
}

// Refuses the option in verbs that read no quantized tensor.
void refuse_source_part(const mxq_quantize_options& options, const char* verb) {
    if (options.source_part != 0) refuse_foreign("a source part", verb);
}

}  // namespace

void refuse_options(const mxq_quantize_options* options, const char* verb) {
    if (!options) return;
    refuse_making(*options, verb);
    refuse_source_part(*options, verb);
}

QuantizeProblem validate_quantize(const Context& context, const mxq_quantize_options* given, const mxq_tensor* in_tensor,
                                  const mxq_tensor* out_tensor, Check check) {
    const mxq_quantize_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_source_part(options, "quantize");
    require_plain(in, "in");
    require_quantized(out, "out");
    require_same_shape(in, out);
    Buffers buffers(context, check);
    const GroupedRows grouped = require_groups_alike(in, "in", out, "out", buffers);
    const PlainMatrix plain = plain_view(in, "in", buffers, Access::Read);
    QuantizeProblem p = output_problem(options, out, buffers, check);
    p.source = plain_source(plain);
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
    QuantizeProblem p = output_problem(options, out, buffers, check);
    p.source = quantized_source(from, in.rows, in.cols);
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
    p.source = plain_source(plain_view(in, "in", buffers, Access::Read));
    p.format = out.format;
    p.tile = out.tile();
    p.square_tiles = p.tile.is_square();
    const bool none = !out.rowwise.amax.pointer && !out.columnwise.amax.pointer;
    p.has_rowwise = out.rowwise.amax.pointer || (none && check == Check::Query);
    p.has_columnwise = out.columnwise.amax.pointer;
    if (none && check == Check::Execute && out.experts > 0)
        fail(MXQ_STATUS_MISSING_BUFFER, "out has no place for an amax, expected one for a part; call mxq_tensor_set_amax");
    require_options(options, out, p.has_rowwise, p.has_columnwise, check);
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

DequantizeProblem validate_dequantize(const Context& context, const mxq_quantize_options* options,
                                      const mxq_tensor* in_tensor, const mxq_tensor* out_tensor, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    if (options) refuse_making(*options, "dequantize");
    require_quantized(in, "in");
    require_plain(out, "out");
    require_same_shape(in, out);
    const int32_t part = source_part(options, in, check);

    Buffers buffers(context, check);
    DequantizeProblem p{};
    p.grouped = require_groups_alike(in, "in", out, "out", buffers);
    p.format = in.format;
    p.columnwise = part == MXQ_PART_COLUMNWISE;
    p.in = part_view(in, part, "in", buffers, Access::Read);
    add_global_scale(in, part, "in", buffers);
    p.out = plain_view(out, "out", buffers, Access::Write);
    buffers.check_overlaps();
    return p;
}

}  // namespace mxq
