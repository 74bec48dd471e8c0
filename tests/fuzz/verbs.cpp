// Verbs and products: tensors that mostly fit together, and one call.
#include "check.h"
#include "targets.h"

namespace fuzz {

namespace {

using Run = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, void*, uint64_t,
                           void*);
using Query = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, mxq_plan**);

// Which tensor of two that are alike has swizzled scales.
enum class Pair { any, alike, swizzled_in, swizzled_out };

void check_pair(Input& in, const char* name, Run run, Query query, Role from, Role to, Pair pair = Pair::any) {
    Scene scene(in);
    Shape shape;
    if (in.seldom(4)) shape.experts = in.below(4);
    shape.rows = scene.size();
    shape.cols = scene.size();
    if (in.below(2) || pair == Pair::alike) scene.draw_groups(shape.rows);
    const QuantizeOptions options = pair == Pair::any || in.seldom(8) ? make_quantize_options(scene) : nullptr;
    Like like;
    if (pair != Pair::any)
        like = {draw_format(in, from), in.seldom(3) ? in.below(9) : 0, pair == Pair::swizzled_in, 1 + in.below(3)};
    const Tensor x = make_tensor(scene, from, Use::read, shape, like);
    like.swizzled = pair == Pair::swizzled_out;
    const Tensor y = make_tensor(scene, to, Use::written, shape, like);
    check_call(
        scene,
        {name, [&](mxq_context* context, mxq_plan** plan) { return query(context, options.get(), x.get(), y.get(), plan); },
         [&](mxq_context* context, void* workspace, uint64_t bytes) {
             return run(context, options.get(), x.get(), y.get(), workspace, bytes, nullptr);
         }});
}

using Product = mxq_status (*)(mxq_context*, const mxq_gemm_options*, const mxq_tensor*, const mxq_tensor*,
                               const mxq_tensor*, void*, uint64_t, void*);
using ProductQuery = mxq_status (*)(mxq_context*, const mxq_gemm_options*, const mxq_tensor*, const mxq_tensor*,
                                    const mxq_tensor*, mxq_plan**);

Shape turned(Shape shape, bool transposed) {
    if (transposed) std::swap(shape.rows, shape.cols);
    return shape;
}

void check_product(Input& in, const char* name, Product run, ProductQuery query, bool grouped) {
    Scene scene(in);
    const int64_t m = scene.size(), n = scene.size(), k = scene.size();
    if (grouped || in.seldom(8)) scene.draw_groups(m);
    const GemmOptions options = make_gemm_options(scene, n);
    mxq_transpose of_a = MXQ_TRANSPOSE_N, of_b = MXQ_TRANSPOSE_T;
    if (options) mxq_gemm_options_get_transpose(options.get(), &of_a, &of_b);
    // A weight gradient sums over the rows of groups.
    const bool sums_rows = grouped && of_a == MXQ_TRANSPOSE_T;
    const int64_t experts = grouped ? scene.groups : 0;
    const Shape a = sums_rows ? Shape{0, m, k} : turned({0, m, k}, of_a == MXQ_TRANSPOSE_T);
    const Shape b = sums_rows ? Shape{0, m, n} : turned({experts, k, n}, of_b == MXQ_TRANSPOSE_T);
    const Shape d = sums_rows ? Shape{experts, k, n} : Shape{0, m, n};
    const int32_t groups = scene.groups;
    const auto make = [&](Role role, Use use, const Shape& shape, bool has_groups) {
        scene.groups = has_groups || in.seldom(16) ? groups : 0;
        Tensor tensor = make_tensor(scene, role, use, shape);
        scene.groups = groups;
        return tensor;
    };
    const Tensor ta = make(Role::any, Use::read, a, grouped), tb = make(Role::any, Use::read, b, sums_rows),
                 td = make(Role::plain, Use::written, d, in.below(2) && !sums_rows);
    check_call(scene, {name,
                       [&](mxq_context* context, mxq_plan** plan) {
                           return query(context, options.get(), ta.get(), tb.get(), td.get(), plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return run(context, options.get(), ta.get(), tb.get(), td.get(), workspace, bytes, nullptr);
                       }});
}

}  // namespace

void quantize(Input& in) { check_pair(in, "mxq_quantize", mxq_quantize, mxq_quantize_query, Role::plain, Role::quantized); }
void requantize(Input& in) {
    check_pair(in, "mxq_requantize", mxq_requantize, mxq_requantize_query, Role::quantized, Role::quantized);
}
void dequantize(Input& in) {
    check_pair(in, "mxq_dequantize", mxq_dequantize, mxq_dequantize_query, Role::quantized, Role::plain);
}
void amax(Input& in) { check_pair(in, "mxq_amax", mxq_amax, mxq_amax_query, Role::plain, Role::quantized); }
void convert(Input& in) { check_pair(in, "mxq_convert", mxq_convert, mxq_convert_query, Role::plain, Role::plain); }
void groups(Input& in) {
    const Role role = in.below(2) ? Role::plain : Role::quantized;
    if (in.below(2))
        check_pair(in, "mxq_pad_groups", mxq_pad_groups, mxq_pad_groups_query, role, role, Pair::alike);
    else
        check_pair(in, "mxq_unpad_groups", mxq_unpad_groups, mxq_unpad_groups_query, role, role, Pair::alike);
}
void scales(Input& in) {
    if (in.below(2))
        check_pair(in, "mxq_swizzle_scales", mxq_swizzle_scales, mxq_swizzle_scales_query, Role::quantized, Role::quantized,
                   Pair::swizzled_out);
    else
        check_pair(in, "mxq_unswizzle_scales", mxq_unswizzle_scales, mxq_unswizzle_scales_query, Role::quantized,
                   Role::quantized, Pair::swizzled_in);
}
void gemm(Input& in) { check_product(in, "mxq_gemm", mxq_gemm, mxq_gemm_query, false); }
void grouped_gemm(Input& in) { check_product(in, "mxq_grouped_gemm", mxq_grouped_gemm, mxq_grouped_gemm_query, true); }

}  // namespace fuzz
