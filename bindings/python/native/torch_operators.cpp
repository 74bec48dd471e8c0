// The verbs as operators of torch, over its stable ABI: torch.ops.mxq_native. _torch_native.py writes what they take.
//
// One binary serves every torch from 2.10 on. It loads libmxq from its own folder, or uses the one that the process has
// loaded.
#include "layer.h"
#include "torch_flat.h"

namespace {

using namespace mxq_python;

// ---- Operators ---------------------------------------------------------------------------------------------------------

// word: that of the result, with the way that scales are rounded.
std::vector<Tensor> quantize_tensor(Tensor x, int64_t word, std::optional<Tensor> ends) {
    return guarded([&] {
        Call call(x);
        Word given(word);
        mxq::quantize_options options;
        if (given.rounding) options.set_scale_rounding(given.rounding);
        if (ends) given.groups.ends = view_on(*ends, call.device, "groups.ends");
        const View view = view_of(x);
        const Operand source = plain_operand(view, "x", Order::rows);
        const Groups* groups = ends ? &given.groups : nullptr;
        mxq::tensor target = given.spec.describe(view.shape.data(), view.dims, groups);
        std::vector<Tensor> out = new_parts(call.device, target, given.spec, view, given.parts, groups);
        quantize(call.place(), options, source.tensor, target);
        return out;
    });
}

// words: the head, then the operand. tensors: those of the operand, then the ends of its groups.
Tensor dequantize_tensor(std::vector<Tensor> tensors, Integers words) {
    return guarded([&] {
        if (tensors.empty()) refuse("mxq_native::dequantize got no tensors, expected those of a quantized tensor");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const Head head(from.word());
        const Operand source = next_operand(from, "q", Order::rows, head.has_ends ? &views.back() : nullptr);
        mxq::tensor target;
        const Tensor out = new_result(call, source.shape, head.dtype, head.has_ends && !head.cover_rows, target);
        dequantize(call.place(), source.tensor, target);
        return out;
    });
}

// words: the head, then the operands a and b. tensors: those of a, of b, the bias, the ends of the groups of a.
Tensor multiply_tensors(bool grouped, const std::vector<Tensor>& tensors, const Integers& words, double alpha) {
    return guarded([&] {
        if (tensors.empty()) refuse("a product got no tensors, expected those of two operands");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const Head head(from.word());
        const View* ends = head.has_ends ? &views.back() : nullptr;
        Operand a = next_operand(from, "a", Order::a, ends);
        const Operand b = next_operand(from, "b", Order::b, nullptr);
        if (ends && !a.tensor.get_groups().count) Groups{*ends, head.cover_rows}.set(a.tensor);
        const int64_t groups = ends ? ends->count() : 0;
        const Shape shape = product_shape(a, b, grouped ? groups : 0);
        Product how{grouped, head.exact, head.row_invariant, head.sm_count, static_cast<float>(alpha), {}};
        if (head.has_bias) {
            how.bias = from.array();
            check_bias(*how.bias, groups ? Shape{groups, shape.back()} : Shape{shape.back()});
        }
        mxq::tensor target;
        const Tensor out = new_result(call, shape, head.dtype, grouped && !a.transposed && !head.cover_rows, target);
        multiply(call.place(), how, a, b, target);
        return out;
    });
}

Tensor matmul(std::vector<Tensor> tensors, Integers words, double alpha) {
    return multiply_tensors(false, tensors, words, alpha);
}

Tensor grouped_matmul(std::vector<Tensor> tensors, Integers words, double alpha) {
    return multiply_tensors(true, tensors, words, alpha);
}

// words: as run_layer says. clamp: three numbers, or none.
Tensor run_expert_layer(std::vector<Tensor> tensors, Integers words, std::vector<double> clamp) {
    return guarded([&] {
        if (tensors.size() < 4) refuse("mxq_native::expert_layer got too few tensors, expected x, ids, gate_up and down");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const std::vector<float> numbers(clamp.begin(), clamp.end());
        mxq::tensor described;
        const Tensor out = new_result(call, Shape(views[0].shape.begin(), views[0].shape.begin() + views[0].dims),
                                      plain_format(views[0], "x"), false, described);
        run_layer(call.place(), from, numbers.data(), numbers.size(), view_of(out));
        return out;
    });
}

}  // namespace

// Say that a `with` block of a context begins on this thread, and that one ends.
extern "C" __attribute__((visibility("default"))) void mxq_torch_enter(int32_t type, int32_t ordinal, mxq_context* context) {
    const std::lock_guard<std::mutex> guard(blocks().lock);
    blocks().contexts.insert(context);
    entered.push_back({type, ordinal, context});
}
extern "C" __attribute__((visibility("default"))) void mxq_torch_exit(mxq_context* context) {
    const std::lock_guard<std::mutex> guard(blocks().lock);
    auto& contexts = blocks().contexts;
    if (const auto found = contexts.find(context); found != contexts.end()) contexts.erase(found);
    const auto last =
        std::find_if(entered.rbegin(), entered.rend(), [&](const Entered& each) { return each.context == context; });
    if (last != entered.rend()) entered.erase(std::next(last).base());
}

STABLE_TORCH_LIBRARY(mxq_native, m) {
    m.def("quantize(Tensor x, int word, Tensor? ends) -> Tensor[]");
    m.def("dequantize(Tensor[] tensors, SymInt[] words) -> Tensor");
    m.def("matmul(Tensor[] tensors, SymInt[] words, float alpha) -> Tensor");
    m.def("grouped_matmul(Tensor[] tensors, SymInt[] words, float alpha) -> Tensor");
    m.def("expert_layer(Tensor[] tensors, SymInt[] words, float[] clamp) -> Tensor");
    m.def("quantize_part(Tensor x, int word) -> (Tensor, Tensor)");
    m.def("quantize_part_with_amaxes(Tensor x, int word) -> (Tensor, Tensor, Tensor)");
    m.def("dequantize_part(Tensor codes, Tensor scales, str call, Tensor? number=None, Tensor? ends=None) -> Tensor");
    m.def("product(Tensor a, Tensor? a_scales, Tensor b, Tensor? b_scales, str call) -> Tensor");
    m.def(
        "product_with(Tensor a, Tensor? a_scales, Tensor b, Tensor? b_scales, str call, Tensor? bias, Tensor? ends, "
        "Tensor? a_number, Tensor? b_number) -> Tensor");
}

// Names the functions of the operators, which are the same on both devices.
template <class Library>
void implement(Library& m) {
    m.impl("quantize", TORCH_BOX(&quantize_tensor));
    m.impl("dequantize", TORCH_BOX(&dequantize_tensor));
    m.impl("matmul", TORCH_BOX(&matmul));
    m.impl("grouped_matmul", TORCH_BOX(&grouped_matmul));
    m.impl("expert_layer", TORCH_BOX(&run_expert_layer));
    m.impl("quantize_part", TORCH_BOX(&quantize_part));
    m.impl("quantize_part_with_amaxes", TORCH_BOX(&quantize_part_with_amaxes));
    m.impl("dequantize_part", TORCH_BOX(&dequantize_part));
    m.impl("product", TORCH_BOX(&product));
    m.impl("product_with", TORCH_BOX(&product_with));
}
STABLE_TORCH_LIBRARY_IMPL(mxq_native, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(mxq_native, CUDA, m) { implement(m); }
