// Validates the verbs of the expert layer.
#include <algorithm>

#include "core/groups.h"
#include "core/routing.h"
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

// Returns the weights of choices and adds them to the buffers of the call.
ChoiceWeights weights_view(const mxq_routing_s& routing, Buffers& buffers) {
    const auto& [format, values] = routing.weights;
    if (format == 0) return {};
    const uint64_t element = format == MXQ_FORMAT_F32 ? 4 : 2;
    buffers.add({"routing", nullptr, "weights"}, values, uint64_t(routing.rows()) * element, element, Access::Read,
                "mxq_routing_set_weights");
    return {values.pointer, format};
}

// Returns the rows of choices and adds them to the buffers of the call.
const int32_t* choice_rows_view(const mxq_routing_s& routing, Buffers& buffers) {
    const Buffer rows = routing.arrays().choice_rows;
    buffers.add({"routing", nullptr, "choice_rows"}, rows, routing.row_bytes(), sizeof(int32_t), Access::Read,
                "mxq_routing_set_memory, and call mxq_route");
    return static_cast<const int32_t*>(rows.pointer);
}

// Requires a matrix of `rows` rows; `of` names them.
void require_rows(const mxq_tensor& t, const char* name, int64_t rows, const char* of) {
    require_plain(t, name);
    if (t.is_3d || t.rows != rows)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "%s is %s, expected a matrix of %lld rows, %s; create it so, or check the routing",
             name, shape_text(t).c_str(), (long long)rows, of);
}

void require_cols(const mxq_tensor& t, const char* name, const mxq_tensor& like, const char* like_name) {
    if (t.cols != like.cols)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "%s is %s, expected %lld columns, those of %s (%s); create it so", name,
             shape_text(t).c_str(), (long long)like.cols, like_name, shape_text(like).c_str());
}

// Returns the view of a tensor with a row for each choice, of as many columns as `like`, whose groups have no padding.
PlainMatrix rows_view(const mxq_tensor& tensor, const char* name, const mxq_routing_s& routing, const mxq_tensor& like,
                      Buffers& buffers, Access access) {
    const mxq_tensor& t = require(&tensor, name);
    require_rows(t, name, routing.rows(), "one for each choice of each token");
    require_cols(t, name, like, "d_out");
    if (t.groups.set && t.rowwise_alignment != 1)
        fail(MXQ_STATUS_UNSUPPORTED, "%s has groups padded to multiples of %d rows, expected no padding", name,
             t.rowwise_alignment);
    return plain_view(t, name, buffers, access);
}

// Returns how many rows choices may have: those of its groups, where in has groups, since nothing has written the others.
int64_t rows_with_content(const mxq_tensor& in) {
    if (!in.groups.set || in.groups.count == 0 || !in.groups.ends) return in.rows;
    return std::clamp<int64_t>(read_end(in.groups, in.groups.count - 1), 0, in.rows);
}

// Refuses rows of choices that are none of in, on a CPU context, before anything is written.
void require_choice_rows(const int32_t* rows, int64_t count, int64_t in_rows) {
    for (int64_t i = 0; i < count; i++)
        if (rows[i] < -1 || rows[i] >= in_rows)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "routing.choice_rows[%lld] is %d, expected -1 (dropped) to %lld (the last row of in); call mxq_route first",
                 (long long)i, rows[i], (long long)in_rows - 1);
}

}  // namespace

RouteProblem validate_route(const Context& context, const mxq_quantize_options* options, const mxq_routing* given,
                            Check check) {
    const mxq_routing_s& routing = require_routing(given);
    refuse_options(options, "route");
    if (routing.is_computed)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "routing has arrays that another library computed, expected memory for what mxq_route computes; call "
             "mxq_routing_set_memory");
    Buffers buffers(context, check);
    const uint64_t id_bytes = routing.id_type == MXQ_TYPE_INT64 ? 8 : 4;
    buffers.add({"routing", nullptr, "ids"}, routing.ids, uint64_t(routing.rows()) * id_bytes, id_bytes, Access::Read,
                "mxq_routing_set_ids");
    const ChoiceWeights weights = weights_view(routing, buffers);
    buffers.add({"routing", nullptr, "memory"}, routing.memory, routing.required_bytes(), kMemoryAlignment, Access::Write,
                "mxq_routing_set_memory");
    if (routing.dropped.pointer)
        buffers.add({"routing", nullptr, "dropped"}, routing.dropped, sizeof(int32_t), sizeof(int32_t), Access::Write,
                    "mxq_routing_set_dropped");
    buffers.check_overlaps();
    const RoutingArrays arrays = routing.arrays();
    return {.tokens = routing.tokens,
            .choices = routing.choices,
            .experts = routing.experts,
            .first = routing.first,
            .count = routing.local_experts(),
            .ids = routing.ids.pointer,
            .id_type = routing.id_type,
            .weights = weights,
            .ends = static_cast<int32_t*>(arrays.ends.pointer),
            .row_tokens = static_cast<int32_t*>(arrays.row_tokens.pointer),
            .choice_rows = static_cast<int32_t*>(arrays.choice_rows.pointer),
            .row_weights = weights.set() ? static_cast<float*>(arrays.row_weights.pointer) : nullptr,
            .dropped = static_cast<int32_t*>(routing.dropped.pointer)};
}

RoutedProductProblem validate_routed_product(const Context& context, const mxq_gemm_options* product,
                                             const mxq_activate_options* activation, const mxq_routing* given,
                                             const RoutedProductTensors& tensors, Check check) {
    RoutedProductProblem p{};
    p.computed = require_routing(given).is_computed;
    if (!p.computed) p.route = validate_route(context, nullptr, given, check);
    p.product = validate_grouped_gemm(context, product, tensors.a, tensors.b, tensors.d, check);
    p.activates = tensors.activated;
    if (!p.activates) return p;
    const ActivateProblem activated = validate_activate(context, activation, tensors.d, tensors.activated, check);
    p.from = activated.quantize.source.activated;
    p.out = activated.out;
    return p;
}

CombineProblem validate_combine(const Context& context, const mxq_quantize_options* options, const mxq_routing* given,
                                const mxq_tensor* in_tensor, const mxq_tensor* out_tensor, const mxq_tensor* residual_tensor,
                                Check check) {
    const mxq_routing_s& routing = require_routing(given);
    const mxq_tensor &in = require(in_tensor, "in"), &out = require(out_tensor, "out");
    refuse_options(options, "combine");
    require_rows(in, "in", routing.rows(), "one for each choice of each token");
    require_rows(out, "out", routing.tokens, "one for each token");
    require_cols(out, "out", in, "in");
    require_no_groups(out, "out", "its rows are tokens; clear them");
    if (in.groups.set && in.rowwise_alignment != 1)
        fail(MXQ_STATUS_UNSUPPORTED,
             "in has groups padded to multiples of %d rows, expected no padding; call mxq_unpad_groups",
             in.rowwise_alignment);
    Buffers buffers(context, check);
    CombineProblem p{};
    p.tokens = routing.tokens;
    p.choices = routing.choices;
    p.choice_rows = choice_rows_view(routing, buffers);
    p.weights = weights_view(routing, buffers);
    p.in = plain_view(in, "in", buffers, Access::Read);
    p.out = plain_view(out, "out", buffers, Access::Write);
    if (residual_tensor) {
        const mxq_tensor& residual = require(residual_tensor, "residual");
        require_rows(residual, "residual", routing.tokens, "one for each token");
        require_cols(residual, "residual", in, "in");
        require_no_groups(residual, "residual", "its rows are tokens; clear them");
        p.residual = plain_view(residual, "residual", buffers, Access::Read);
        p.has_residual = true;
    }
    buffers.check_overlaps();
    if (buffers.can_read()) require_choice_rows(p.choice_rows, routing.rows(), rows_with_content(in));
    return p;
}

CombineBackwardProblem validate_combine_backward(const Context& context, const mxq_quantize_options* options,
                                                 const mxq_routing* given, const mxq_tensor* d_out_tensor,
                                                 const mxq_tensor* in, const mxq_tensor* d_in,
                                                 const mxq_tensor* d_weights_tensor, Check check) {
    const mxq_routing_s& routing = require_routing(given);
    const mxq_tensor& d_out = require(d_out_tensor, "d_out");
    refuse_options(options, "combine_backward");
    require_rows(d_out, "d_out", routing.tokens, "one for each token");
    require_no_groups(d_out, "d_out", "its rows are tokens; clear them");
    Buffers buffers(context, check);
    CombineBackwardProblem p{};
    p.tokens = routing.tokens;
    p.choices = routing.choices;
    p.rows = routing.rows();
    p.choice_rows = choice_rows_view(routing, buffers);
    p.d_out = plain_view(d_out, "d_out", buffers, Access::Read);
    if (d_in) {
        p.weights = weights_view(routing, buffers);
        p.d_in = rows_view(*d_in, "d_in", routing, d_out, buffers, Access::Write);
        p.has_d_in = true;
    }
    if (d_weights_tensor) {
        p.in = rows_view(require(in, "in"), "in", routing, d_out, buffers, Access::Read);
        const mxq_tensor& d_weights = require(d_weights_tensor, "d_weights");
        if (d_weights.is_3d || d_weights.format->id != MXQ_FORMAT_F32 || d_weights.rows != p.tokens ||
            d_weights.cols != p.choices)
            fail(MXQ_STATUS_SHAPE_MISMATCH, "d_weights is %s %s, expected f32 %lld x %d, one for each choice of each token",
                 d_weights.format->name, shape_text(d_weights).c_str(), (long long)p.tokens, p.choices);
        require_no_groups(d_weights, "d_weights", "its rows are tokens; clear them");
        p.d_weights = plain_view(d_weights, "d_weights", buffers, Access::Write);
        p.has_d_weights = true;
    }
    buffers.check_overlaps();
    if (buffers.can_read()) require_choice_rows(p.choice_rows, p.rows, p.rows);
    return p;
}

}  // namespace mxq
