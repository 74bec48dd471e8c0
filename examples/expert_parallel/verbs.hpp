// The library's verbs on a stream. Each asks its query for a plan, has the workspace that the plan needs, and notes its
// time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "layer.hpp"

class Verbs {
public:
    Verbs(const mxq::context& context, cudaStream_t stream, const char* implementation)
        : context_(context), stream_(stream), product_(implementation) {}

    // Runs work, which enqueues on the stream, and notes its time.
    template <class Work>
    void time(Stage stage, cudaStream_t stream, Work work) {
        if (!timed) return work();
        Span& span = spans_.emplace_back(Span{stage, {}, {}});
        span.begin.record(stream);
        work();
        spans_.back().end.record(stream);
    }
    template <class Work>
    void time(Stage stage, Work work) {
        time(stage, stream_, work);
    }

    void quantize(const mxq::tensor& in, const mxq::tensor& out) {
        run(kQuantize, mxq::quantize_query(context_, {}, in, out),
            [&](auto room) { mxq::quantize(context_, {}, in, out, room, stream_); });
    }
    void requantize(const mxq::tensor& in, const mxq::tensor& out) {
        run(kQuantize, mxq::requantize_query(context_, {}, in, out),
            [&](auto room) { mxq::requantize(context_, {}, in, out, room, stream_); });
    }
    void dequantize(const mxq::tensor& in, const mxq::tensor& out) {
        run(kQuantize, mxq::dequantize_query(context_, {}, in, out),
            [&](auto room) { mxq::dequantize(context_, {}, in, out, room, stream_); });
    }
    void silu(const mxq::tensor& in, const mxq::tensor& out) {
        const auto options = mxq::activate_options().set_activation(MXQ_ACTIVATION_SILU);
        run(kQuantize, mxq::activate_query(context_, options, in, out),
            [&](auto room) { mxq::activate(context_, options, in, out, room, stream_); });
    }
    void route(const mxq::routing& routing) {
        run(kOther, mxq::route_query(context_, {}, routing),
            [&](auto room) { mxq::route(context_, {}, routing, room, stream_); });
    }
    void combine(const mxq::routing& routing, const mxq::tensor& in, const mxq::tensor& out) {
        run(kOther, mxq::combine_query(context_, {}, routing, in, {}, out),
            [&](auto room) { mxq::combine(context_, {}, routing, in, {}, out, room, stream_); });
    }
    void multiply(const mxq::tensor& a, mxq_transpose ta, const mxq::tensor& b, mxq_transpose tb, const mxq::tensor& d) {
        auto options = mxq::gemm_options().set_transpose(ta, tb);
        if (product_) options.set_implementation(product_);
        const mxq::plan plan = mxq::grouped_gemm_query(context_, options, a, b, d);
        implementations.insert(plan.implementation());
        run(kProduct, plan, [&](auto room) { mxq::grouped_gemm(context_, options, a, b, d, room, stream_); });
    }

    // Returns the milliseconds of each stage since the last call, after a wait.
    Figures take_figures() {
        Figures figures;
        for (const Span& span : spans_) figures.ms[span.stage] += span.end.ms_since(span.begin);
        spans_.clear();
        return figures;
    }

    std::set<std::string> implementations;  // of the products
    bool timed = true;

private:
    // Runs a verb as its plan says: verb(workspace).
    template <class Verb>
    void run(Stage stage, const mxq::plan& plan, Verb verb) {
        const mxq::workspace room{workspace_.reserve(plan.workspace_bytes()), plan.workspace_bytes()};
        time(stage, [&] { verb(room); });
    }

    struct Span {
        Stage stage;
        Event begin, end;
    };
    const mxq::context& context_;
    const cudaStream_t stream_;
    const char* const product_;  // the implementation of the products; else the best one
    Buffer workspace_;
    std::vector<Span> spans_;
};
