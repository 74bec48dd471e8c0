// The verbs that the operators of torch and the handlers of XLA call, over arrays of either.
#ifndef MXQ_PYTHON_VERBS_H
#define MXQ_PYTHON_VERBS_H

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "arrays.h"

namespace mxq_python {

// Where a call runs. allocate(bytes) gives memory of the device at a multiple of 256 bytes that lives until the call has
// run.
template <class Allocate>
struct Place {
    mxq_context* context;
    bool cuda;
    void* stream;
    Allocate allocate;
};

// The context of a device, which is made when it is first needed and stays until the process ends.
inline mxq_context* context_of(mxq_device type, int32_t ordinal) {
    static std::mutex lock;
    static auto& contexts = *new std::vector<std::unique_ptr<mxq::context>>(1 + 64);
    const size_t index = type == MXQ_DEVICE_CPU ? 0 : 1 + static_cast<size_t>(ordinal);
    if (index >= contexts.size())
        refuse("an array is on CUDA device " + std::to_string(ordinal) + ", expected one below 64");
    const std::lock_guard<std::mutex> guard(lock);
    if (!contexts[index]) contexts[index] = std::make_unique<mxq::context>(type, ordinal);
    return contexts[index]->get();
}

// Calls a verb with the workspace that it needs. It is asked only where it, or the last call of the verb, needed some.
// known: the bytes that the last call of this kind needed, which are then given without asking.
template <class Allocate, class Call, class Query>
void run(const Place<Allocate>& place, std::atomic<bool>& needs_workspace, const Call& call, const Query& query,
         uint64_t* known = nullptr) {
    if (!place.cuda || known || !needs_workspace.load(std::memory_order_relaxed)) {
        const uint64_t bytes = place.cuda && known ? *known : 0;
        const mxq_status status = call(bytes ? place.allocate(bytes) : nullptr, bytes);
        if (!place.cuda || status != MXQ_STATUS_BUFFER_TOO_SMALL) return mxq::check(status);
    }
    mxq_plan* raw = nullptr;
    mxq::check(query(&raw));
    const uint64_t bytes = mxq_plan_workspace_bytes(raw);
    mxq_plan_destroy(raw);
    needs_workspace.store(bytes != 0, std::memory_order_relaxed);
    if (known) *known = bytes;
    mxq::check(call(bytes ? place.allocate(bytes) : nullptr, bytes));
}

template <class Allocate>
void quantize(const Place<Allocate>& place, const mxq::quantize_options& options, const mxq::tensor& in,
              const mxq::tensor& out, uint64_t* known = nullptr) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_quantize(on, options.get(), in.get(), out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) { return mxq_quantize_query(on, options.get(), in.get(), out.get(), plan); }, known);
}

template <class Allocate>
void dequantize(const Place<Allocate>& place, const mxq::tensor& in, const mxq::tensor& out, uint64_t* known = nullptr) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_dequantize(on, nullptr, in.get(), out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) { return mxq_dequantize_query(on, nullptr, in.get(), out.get(), plan); }, known);
}

// How operands are multiplied.
struct Product {
    bool grouped = false, exact = false, row_invariant = false;
    int32_t sm_count = 0;
    float alpha = 1;
    std::optional<View> bias;
};

inline mxq::gemm_options options_of(const Product& how, const Operand& a, const Operand& b) {
    mxq::gemm_options options;
    if (a.transposed || !b.transposed)
        options.set_transpose(a.transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                              b.transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N);
    if (how.alpha != 1) options.set_alpha(how.alpha);
    if (how.bias) options.set_bias(plain_format(*how.bias, "bias"), how.bias->address(), how.bias->bytes());
    if (how.exact) options.set_exact_products(true);
    if (how.row_invariant) options.set_row_invariant(true);
    if (how.sm_count) options.set_sm_count(how.sm_count);
    return options;
}

template <class Allocate>
void multiply(const Place<Allocate>& place, const Product& how, const Operand& a, const Operand& b, const mxq::tensor& out,
              uint64_t* known = nullptr) {
    static std::atomic<bool> needs[2];
    const mxq::gemm_options options = options_of(how, a, b);
    const auto verb = how.grouped ? mxq_grouped_gemm : mxq_gemm;
    const auto query = how.grouped ? mxq_grouped_gemm_query : mxq_gemm_query;
    mxq_context* on = place.context;
    run(
        place, needs[how.grouped],
        [&](void* work, uint64_t bytes) {
            return verb(on, options.get(), a.tensor.get(), b.tensor.get(), out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) { return query(on, options.get(), a.tensor.get(), b.tensor.get(), out.get(), plan); }, known);
}

// ---- Experts -----------------------------------------------------------------------------------------------------------

template <class Allocate>
void route(const Place<Allocate>& place, const mxq::routing& routing) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) { return mxq_route(on, nullptr, routing.get(), work, bytes, place.stream); },
        [&](mxq_plan** plan) { return mxq_route_query(on, nullptr, routing.get(), plan); });
}

template <class Allocate>
void combine(const Place<Allocate>& place, const mxq::routing& routing, const mxq::tensor& in, const mxq::tensor& out) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_combine(on, nullptr, routing.get(), in.get(), nullptr, out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) { return mxq_combine_query(on, nullptr, routing.get(), in.get(), nullptr, out.get(), plan); });
}

// The gradients of rows and, where they are wanted, of weights, for which `in` is read.
template <class Allocate>
void combine_backward(const Place<Allocate>& place, const mxq::routing& routing, const mxq::tensor& of_out,
                      const mxq::tensor& in, const mxq::tensor& of_in, const mxq::tensor& of_weights) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_combine_backward(on, nullptr, routing.get(), of_out.get(), in.get(), of_in.get(), of_weights.get(),
                                        work, bytes, place.stream);
        },
        [&](mxq_plan** plan) {
            return mxq_combine_backward_query(on, nullptr, routing.get(), of_out.get(), in.get(), of_in.get(),
                                              of_weights.get(), plan);
        });
}

template <class Allocate>
void activate(const Place<Allocate>& place, const mxq::activate_options& options, const mxq::tensor& in,
              const mxq::tensor& out) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_activate(on, options.get(), in.get(), out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) { return mxq_activate_query(on, options.get(), in.get(), out.get(), plan); });
}

template <class Allocate>
void activate_backward(const Place<Allocate>& place, const mxq::activate_options& options, const mxq::tensor& gradient,
                       const mxq::tensor& in, const mxq::tensor& out) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_activate_backward(on, options.get(), gradient.get(), in.get(), out.get(), work, bytes, place.stream);
        },
        [&](mxq_plan** plan) {
            return mxq_activate_backward_query(on, options.get(), gradient.get(), in.get(), out.get(), plan);
        });
}

template <class Allocate>
void expert_layer(const Place<Allocate>& place, const mxq::expert_layer_options& options, const mxq::tensor& x,
                  const mxq::routing& routing, const mxq::tensor& gate_up, const mxq::tensor& down, const mxq::tensor& out) {
    static std::atomic<bool> needs{false};
    mxq_context* on = place.context;
    run(
        place, needs,
        [&](void* work, uint64_t bytes) {
            return mxq_expert_layer(on, options.get(), x.get(), routing.get(), gate_up.get(), down.get(), out.get(), work,
                                    bytes, place.stream);
        },
        [&](mxq_plan** plan) {
            return mxq_expert_layer_query(on, options.get(), x.get(), routing.get(), gate_up.get(), down.get(), out.get(),
                                          plan);
        });
}

// The bias of a product: contiguous, and of this shape.
inline void check_bias(const View& bias, const Shape& shape) {
    const bool same =
        bias.dims == static_cast<int>(shape.size()) && std::equal(shape.begin(), shape.end(), bias.shape.begin());
    if (!same || !bias.gapless())
        refuse("bias has shape " + text_of(bias.shape.data(), bias.dims) + ", expected " +
               text_of(shape.data(), static_cast<int>(shape.size())) + " without gaps");
}

// The shape of the product of two operands. groups: how many, or 0.
inline Shape product_shape(const Operand& a, const Operand& b, int64_t groups) {
    const int64_t rows = a.shape[a.shape.size() - 2], cols = b.shape.back();
    if (groups && !a.transposed && b.shape.size() != 3)
        refuse("b has shape " + text_of(b.shape.data(), static_cast<int>(b.shape.size())) +
               ", expected (groups, inputs, outputs): one matrix for each group");
    if (groups && a.transposed) return {groups, rows, cols};
    return {rows, cols};
}

}  // namespace mxq_python

#endif
