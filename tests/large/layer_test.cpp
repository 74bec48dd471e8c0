// The steps around an expert layer's products on more than 2^31 and 2^32 elements.
#include "tensors.h"

using large::cols;
using large::Scene;
using testing::ok;
using Numbers = Scene::Numbers;

namespace {

const oracle::Spec mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
constexpr int32_t choices = 2;

// A routing in which choice j of token t is row j * tokens + t.
struct Routing {
    explicit Routing(Scene& s) {
        ok(mxq_routing_create(s.rows, choices, choices, handle.out()));
        const auto ids = s.memory(static_cast<uint64_t>(s.rows * choices) * 4), weights = s.memory(ids->bytes);
        large::repeat(*ids, {0, 0, 0, 0, 1, 0, 0, 0}, 1);
        large::repeat(*weights, testing::bytes_of({0.75f, 0.3f}), 1);
        ok(mxq_routing_set_ids(handle, ids->data, ids->bytes, MXQ_TYPE_INT32));
        ok(mxq_routing_set_weights(handle, MXQ_FORMAT_F32, weights->data, weights->bytes));
        uint64_t bytes = 0;
        ok(mxq_routing_required_bytes(handle, &bytes));
        const auto memory = s.memory(bytes);
        ok(mxq_routing_set_memory(handle, memory->data, bytes));
        large::call(
            s, [&](mxq_plan** plan) { return mxq_route_query(s.device.context, nullptr, handle, plan); },
            [&](void* workspace, uint64_t n) { return mxq_route(s.device.context, nullptr, handle, workspace, n, nullptr); });
    }
    testing::Handle<mxq_routing, mxq_routing_destroy> handle;
};

}  // namespace

MXQ_LARGE("activate, to plain and quantized rows", uint64_t{60} << 30) {
    for (const bool quantizes : {false, true})
        large::check("activate", device, large::rows_for(device), [&](Scene& s) {
            mxq_tensor* in = s.plain_in(MXQ_FORMAT_BF16, 2 * cols, Numbers::normal);
            mxq_tensor* out = quantizes ? s.quantized("activated", mxfp8, cols, MXQ_PART_BOTH, true)
                                        : s.plain_out("activated", MXQ_FORMAT_BF16, cols);
            mxq_context* context = s.device.context;
            large::call(
                s, [&](mxq_plan** plan) { return mxq_activate_query(context, nullptr, in, out, plan); },
                [&](void* w, uint64_t bytes) { return mxq_activate(context, nullptr, in, out, w, bytes, nullptr); });
        });
}

MXQ_LARGE("the gradient of activate", uint64_t{80} << 30) {
    large::check("activate_backward", device, large::rows_for(device), [&](Scene& s) {
        mxq_tensor* gradient = s.plain_in(MXQ_FORMAT_BF16, cols, Numbers::normal, 2);
        mxq_tensor* in = s.plain_in(MXQ_FORMAT_BF16, 2 * cols, Numbers::normal);
        mxq_tensor* out = s.plain_out("gradient", MXQ_FORMAT_BF16, 2 * cols);
        mxq_context* context = s.device.context;
        large::call(
            s, [&](mxq_plan** plan) { return mxq_activate_backward_query(context, nullptr, gradient, in, out, plan); },
            [&](void* w, uint64_t bytes) { return mxq_activate_backward(context, nullptr, gradient, in, out, w, bytes, nullptr); });
    });
}

MXQ_LARGE("tokens by their routing, and sums of their rows", uint64_t{90} << 30) {
    large::check("combine", device, large::rows_for(device), [&](Scene& s) {
        const Routing routing(s);
        mxq_context* context = s.device.context;
        mxq_tensor* tokens = s.plain_in(MXQ_FORMAT_BF16, cols, Numbers::normal);
        testing::Tensor gathered = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, s.rows * choices, cols});
        void* data = nullptr;
        uint64_t bytes = 0;
        ok(mxq_tensor_get_data(tokens, &data, &bytes, nullptr));
        ok(mxq_tensor_set_routing_rows(gathered, routing.handle));
        ok(mxq_tensor_set_data(gathered, data, bytes));
        mxq_tensor* q = s.quantized("tokens", mxfp8, cols, MXQ_PART_ROWWISE, false, choices);
        ok(mxq_tensor_set_routing_groups(q, routing.handle));
        large::convert(s, mxq_quantize, mxq_quantize_query, nullptr, gathered, q);

        mxq_tensor* in = s.plain_in(MXQ_FORMAT_BF16, cols, Numbers::normal, 3, choices);
        mxq_tensor* out = s.plain_out("sums", MXQ_FORMAT_BF16, cols);
        large::call(
            s, [&](mxq_plan** plan) { return mxq_combine_query(context, nullptr, routing.handle, in, nullptr, out, plan); },
            [&](void* w, uint64_t n) { return mxq_combine(context, nullptr, routing.handle, in, nullptr, out, w, n, nullptr); });
        mxq_tensor* d_in = s.plain_out("gradient of rows", MXQ_FORMAT_BF16, cols, choices, choices);
        mxq_tensor* d_weights = s.plain_out("gradient of weights", MXQ_FORMAT_F32, choices);
        large::call(
            s,
            [&](mxq_plan** plan) {
                return mxq_combine_backward_query(context, nullptr, routing.handle, tokens, in, d_in, d_weights, plan);
            },
            [&](void* w, uint64_t n) {
                return mxq_combine_backward(context, nullptr, routing.handle, tokens, in, d_in, d_weights, w, n, nullptr);
            });
    });
}
