// Validates activate and activate_backward.
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

// Refuses options that mean nothing to the activation.
void require_options(const mxq_activate_options& options) {
    if (options.gate_layout_set && !is_gated(Activation(options.activation)))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets a gate layout, and activation %d has no gate; call mxq_activate_options_set_gate_layout with "
             "MXQ_GATE_LAYOUT_GATE_UP",
             options.activation);
    if (options.numbers_set && options.activation != MXQ_ACTIVATION_SWIGLU_CLAMPED)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets a clamp, which only MXQ_ACTIVATION_SWIGLU_CLAMPED (4) has, and activation is %d; use other options",
             options.activation);
}

// Requires in to have out's rows, and its columns, twice where there are gates.
void require_shapes(const mxq_activate_options& options, const mxq_tensor& in, const mxq_tensor& out) {
    const int64_t times = is_gated(Activation(options.activation)) ? 2 : 1;
    if (in.is_3d == out.is_3d && in.experts == out.experts && in.rows == out.rows && in.cols == times * out.cols) return;
    fail(MXQ_STATUS_SHAPE_MISMATCH, "in is %s and out is %s, expected the same rows and in to have %s columns; create out with %s",
         shape_text(in).c_str(), shape_text(out).c_str(), times == 2 ? "twice out's" : "out's",
         times == 2 ? "half of in's columns" : "in's shape");
}

void require_unpadded(const mxq_tensor& t, const char* name) {
    if (t.groups.set && t.rowwise_alignment != 1)
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s has groups padded to %d rows, expected rows without padding; call mxq_unpad_groups, or "
             "mxq_tensor_set_group_alignment with 1",
             name, t.rowwise_alignment);
}

void lay_out_gates(int32_t layout, int64_t cols, ActivatedMatrix& matrix) {
    const bool interleaved = layout >= MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP;
    const bool up_first = layout == MXQ_GATE_LAYOUT_UP_GATE || layout == MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE;
    const int64_t second = interleaved ? 1 : cols;
    matrix.step = interleaved ? 2 : 1;
    matrix.gate = up_first ? second : 0;
    matrix.up = up_first ? 0 : second;
}

// `groups` are those of the call, `cols` is the width of the result.
ActivatedMatrix activated_view(const mxq_activate_options& options, const mxq_tensor& in, const Groups& groups, int64_t cols,
                               Buffers& buffers) {
    ActivatedMatrix matrix{};
    matrix.in = plain_view(in, "in", buffers, Access::Read);
    matrix.kind = Activation(options.activation);
    matrix.numbers = options.numbers;
    lay_out_gates(is_gated(matrix.kind) ? options.gate_layout : MXQ_GATE_LAYOUT_GATE_UP, cols, matrix);
    const int64_t biases = groups.set ? groups.count : in.experts;
    matrix.bias = numbers_view(options.bias, biases, in.cols, "bias", "mxq_activate_options_set_bias", buffers);
    matrix.row_weights = numbers_view(options.row_weights, in.experts, in.rows, "row_weights",
                                      "mxq_activate_options_set_row_weights", buffers);
    return matrix;
}

// Adds where to write gradients to the buffers of the call. NULL: not wanted.
float* view_of_gradients(const Buffer& buffer, int64_t rows, int64_t cols, const char* name, const char* setter,
                         Buffers& buffers) {
    if (buffer.pointer) numbers_view({MXQ_FORMAT_F32, buffer}, rows, cols, name, setter, buffers, Access::Write);
    return static_cast<float*>(buffer.pointer);
}

void add_output(const mxq_activate_options& options, const mxq_tensor& out, const char* verb, Buffers& buffers, Check check,
                ActivateProblem& p) {
    p.quantizes = out.format->quantized();
    if (p.quantizes) {
        p.quantize = output_problem(options.quantize, out, buffers, check);
    } else {
        refuse_making(options.quantize, verb);
        require_unpadded(out, "out");
        p.out = plain_view(out, "out", buffers, Access::Write);
    }
}

void refuse_gradients(const mxq_activate_options& options) {
    if (options.bias_gradient.pointer || options.row_weight_gradient.pointer)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options sets the gradient of %s, which only activate_backward writes; call %s with NULL",
             options.bias_gradient.pointer ? "a bias" : "weights of rows",
             options.bias_gradient.pointer ? "mxq_activate_options_set_bias_gradient"
                                           : "mxq_activate_options_set_row_weight_gradient");
}

// Requires an activation that has a gradient, and the shapes of the three tensors.
void require_backward(const mxq_activate_options& options, const mxq_tensor& gradient, const mxq_tensor& in,
                      const mxq_tensor& out) {
    if (!is_gated(Activation(options.activation)))
        fail(MXQ_STATUS_UNSUPPORTED,
             "options has activation %d, expected one with a gate: MXQ_ACTIVATION_SWIGLU (1) to SWIGLU_CLAMPED (4)",
             options.activation);
    require_plain(gradient, "gradient", "call mxq_dequantize first");
    require_plain(in, "in", "call mxq_dequantize first");
    require_same_shape(in, out);
    if (gradient.is_3d != in.is_3d || gradient.experts != in.experts || gradient.rows != in.rows ||
        in.cols != 2 * gradient.cols)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "gradient is %s and in is %s, expected the same rows and in to have twice gradient's columns; create gradient "
             "with half of in's columns",
             shape_text(gradient).c_str(), shape_text(in).c_str());
    require_unpadded(gradient, "gradient");
    require_unpadded(in, "in");
}

// Returns the groups of the call, which any of its tensors may have.
GroupedRows groups_of_three(const mxq_tensor& gradient, const mxq_tensor& in, const mxq_tensor& out, Buffers& buffers) {
    const bool both = in.groups.set || out.groups.set;
    GroupedRows grouped = require_groups_alike(in, "in", out, "out", buffers);
    if (!gradient.groups.set) return grouped;
    const GroupedRows others = require_groups_alike(gradient, "gradient", both && in.groups.set ? in : out,
                                                    in.groups.set ? "in" : "out", buffers);
    if (!both) return others;
    grouped.groups.cover_rows |= others.groups.cover_rows;
    return grouped;
}

}  // namespace

ActivateProblem validate_activate_backward(const Context& context, const mxq_activate_options* given,
                                           const mxq_tensor* gradient_tensor, const mxq_tensor* in_tensor,
                                           const mxq_tensor* out_tensor, Check check) {
    const mxq_activate_options& options = options_or_default(given);
    const mxq_tensor& gradient = require(gradient_tensor, "gradient");
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    require_options(options);
    require_backward(options, gradient, in, out);
    refuse_source_part(options.quantize, "activate_backward");
    Buffers buffers(context, check);
    const GroupedRows grouped = groups_of_three(gradient, in, out, buffers);
    const PlainMatrix result = plain_view(gradient, "gradient", buffers, Access::Read);
    const ActivatedMatrix from = activated_view(options, in, grouped.groups, gradient.cols, buffers);
    ActivateProblem p{};
    add_output(options, out, "activate_backward to plain numbers", buffers, check, p);
    const int64_t biases = grouped.set() ? grouped.groups.count : in.experts;
    p.bias_gradient = view_of_gradients(options.bias_gradient, biases, in.cols, "bias_gradient",
                                        "mxq_activate_options_set_bias_gradient", buffers);
    p.weight_gradient = view_of_gradients(options.row_weight_gradient, in.experts, in.rows, "row_weight_gradient",
                                          "mxq_activate_options_set_row_weight_gradient", buffers);
    p.quantize.source = gradient_source({from, result});
    p.quantize.grouped = grouped;
    buffers.check_overlaps();
    return p;
}

ActivateProblem validate_activate(const Context& context, const mxq_activate_options* given, const mxq_tensor* in_tensor,
                                  const mxq_tensor* out_tensor, Check check) {
    const mxq_activate_options& options = options_or_default(given);
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    require_options(options);
    require_plain(in, "in", "call mxq_dequantize first");
    require_shapes(options, in, out);
    require_unpadded(in, "in");
    refuse_source_part(options.quantize, "activate");
    refuse_gradients(options);
    Buffers buffers(context, check);
    const GroupedRows grouped = require_groups_alike(in, "in", out, "out", buffers);
    const Source source = activated_source(activated_view(options, in, grouped.groups, out.cols, buffers), out.cols);
    ActivateProblem p{};
    add_output(options, out, "activate to plain numbers", buffers, check, p);
    p.quantize.source = source;
    p.quantize.grouped = grouped;
    buffers.check_overlaps();
    return p;
}

}  // namespace mxq
