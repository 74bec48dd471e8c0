#include "layer.hpp"

#include <deque>

#include "batch.hpp"

struct Layer::State {
    const mxq::context& context;
    Transport& transport;
    const Streams streams;
    const Shape shape;
    const Recipe recipe;
    const int32_t own;  // experts of this rank
    std::deque<Batch> batches;
    Buffer up_memory, down_memory, workspace;
    mxq::tensor up, down;
    std::string implementation;
    int64_t wire_bytes = 0;
    bool timed = true;
    struct Span {
        Stage stage;
        Event begin, end;
    };
    std::vector<Span> spans;

    State(const mxq::context& c, Transport& t, Streams s, const Shape& sh, const Recipe& r)
        : context(c), transport(t), streams(s), shape(sh), recipe(r), own(sh.experts / t.size()) {
        for (int32_t i = 0; i < r.parts; ++i) batches.emplace_back(sh, r.quantized);
    }

    // Runs work, which enqueues on the stream, and notes its time.
    template <class Work>
    void time(Stage stage, cudaStream_t stream, Work work) {
        if (!timed) return work();
        Span& span = spans.emplace_back(Span{stage, {}, {}});
        span.begin.record(stream);
        work();
        spans.back().end.record(stream);
    }
    template <class Work>
    void time(Stage stage, Work work) {
        time(stage, streams.compute, work);
    }

    // ---- Verbs of the library ------------------------------------------------------------------------------------------

    mxq::workspace room(const mxq::plan& plan) {
        return {workspace.reserve(plan.workspace_bytes()), plan.workspace_bytes()};
    }

    void quantize(const mxq::tensor& in, const mxq::tensor& out) {
        const mxq::plan plan = mxq::quantize_query(context, {}, in, out);
        time(kQuantize, [&] { mxq::quantize(context, {}, in, out, room(plan), streams.compute); });
    }

    void requantize(const mxq::tensor& in, const mxq::tensor& out) {
        const mxq::plan plan = mxq::requantize_query(context, {}, in, out);
        time(kQuantize, [&] { mxq::requantize(context, {}, in, out, room(plan), streams.compute); });
    }

    void multiply(const mxq::tensor& a, mxq_transpose ta, const mxq::tensor& b, mxq_transpose tb, const mxq::tensor& d,
                  bool accumulate = false) {
        mxq::gemm_options options;
        options.set_transpose(ta, tb).set_sm_count(recipe.sm_count).set_accumulate(accumulate);
        if (recipe.implementation) options.set_implementation(recipe.implementation);
        const mxq::plan plan = mxq::grouped_gemm_query(context, options, a, b, d);
        implementation = plan.implementation();
        time(kProduct, [&] { mxq::grouped_gemm(context, options, a, b, d, room(plan), streams.compute); });
    }

    // Gives a tensor of arrived rows its groups, one for each expert.
    mxq::tensor grouped(const Batch& batch, mxq::tensor t) {
        const uint64_t bytes = uint64_t(own) * sizeof(int32_t);
        t.set_groups(batch.ends.get(), bytes, MXQ_TYPE_INT32, own);
        if (!recipe.quantized && recipe.capacity == 0) t.set_host_ends(batch.routes.ends.data(), bytes);  // for cuBLASLt
        return t;
    }
    // Returns room for arrived rows in MXFP8.
    mxq::tensor mxfp8(const Batch& batch, int64_t cols, mxq_part parts, Buffer& memory) {
        mxq::tensor t = grouped(batch, mxq::tensor(MXQ_FORMAT_MXFP8_E4M3, batch.routes.received, cols));
        const uint64_t bytes = t.total_bytes(parts);
        t.set_memory(parts, memory.reserve(bytes), bytes);
        return t;
    }
    // Returns BF16 rows as products read them: in both directions of MXFP8, or as they are.
    mxq::tensor operand(const Batch& batch, const Buffer& rows, int64_t cols, Buffer& memory) {
        mxq::tensor in = grouped(batch, plain(batch.routes.received, cols, rows));
        if (!recipe.quantized) return in;
        mxq::tensor out = mxfp8(batch, cols, MXQ_PART_BOTH, memory);
        quantize(in, out);
        return out;
    }
    // Returns arrived rows for a product over them: requantized along the columns, or as they are.
    mxq::tensor columns(const Batch& batch, const Rows& rows, Buffer& memory) {
        mxq::tensor in = grouped(batch, rows.tensor(batch.routes.received));
        if (!recipe.quantized) return in;
        mxq::tensor out = mxfp8(batch, rows.cols, MXQ_PART_COLUMNWISE, memory);
        requantize(in, out);
        return out;
    }

    mxq::tensor weights(const bf16* values, int64_t rows, int64_t cols, Buffer& memory) {
        mxq::tensor in(MXQ_FORMAT_BF16, own, rows, cols);
        in.set_const_data(values, uint64_t(own * rows * cols) * sizeof(bf16));
        if (!recipe.quantized) return in;
        mxq::tensor out(MXQ_FORMAT_MXFP8_E4M3, own, rows, cols);
        const uint64_t bytes = out.total_bytes(MXQ_PART_BOTH);
        out.set_memory(MXQ_PART_BOTH, memory.reserve(bytes), bytes);
        quantize(in, out);
        return out;
    }

    // ---- Where each token goes -----------------------------------------------------------------------------------------

    Choices choices(const Batch& batch) { return {batch.tokens.experts, batch.tokens.count, shape.top, shape.experts}; }

    void split(const Tokens& tokens) {
        int64_t first = 0;
        for (int32_t i = 0; i < recipe.parts; ++i) {
            const int64_t end = tokens.count * (i + 1) / recipe.parts;
            batches[i].tokens = {tokens.x + first * shape.width, tokens.experts + first * shape.top,
                                 tokens.weights + first * shape.top, end - first};
            first = end;
        }
    }

    void count(Batch& batch) {
        time(kOther,
             [&] { count_slots(choices(batch), batch.counts.reserve<int32_t>(uint64_t(shape.experts)), streams.compute); });
        batch.ready.record(streams.compute);
    }

    // Brings the counts of all ranks to all hosts: NCCL takes sizes from the host. A copy to a vector keeps the host until
    // the stream has come to it, whoever is gone, so it is asked for once the exchange has ended.
    void learn_counts() {
        const int64_t all = int64_t(shape.experts) * transport.size();
        std::vector<int32_t> counts(size_t(all * recipe.parts));
        for (Batch& batch : batches) {
            batch.ready.hold(streams.travel);
            auto* on_device = batch.all_counts.reserve<int32_t>(uint64_t(all));
            time(kExchange, streams.travel,
                 [&] { transport.gather(batch.counts.as<int32_t>(), on_device, shape.experts, streams.travel); });
        }
        transport.wait(streams.travel);
        for (size_t i = 0; i < batches.size(); ++i)
            check(cudaMemcpyAsync(&counts[i * size_t(all)], batches[i].all_counts.get(), size_t(all) * sizeof(int32_t),
                                  cudaMemcpyDeviceToHost, streams.travel));
        transport.wait(streams.travel);
        for (size_t i = 0; i < batches.size(); ++i)
            batches[i].routes = Routes(&counts[i * size_t(all)], transport.rank(), transport.size(), shape.experts);
    }

    // Takes the same number of rows for each expert and source. The rows that no slot takes are zeros.
    void take_capacity(Batch& batch) {
        if (!batch.routes.ends.empty()) return;
        const std::vector<int32_t> counts(size_t(shape.experts * transport.size()), recipe.capacity);
        batch.routes = Routes(counts.data(), transport.rank(), transport.size(), shape.experts);
        auto* on_device = batch.all_counts.reserve<int32_t>(counts.size());
        check(cudaMemcpy(on_device, counts.data(), counts.size() * sizeof(int32_t), cudaMemcpyHostToDevice));
    }

    void place(Batch& batch) {
        const auto rows = uint64_t(batch.routes.sent);
        const auto slots = uint64_t(choices(batch).slots());
        time(kOther, [&] {
            place_slots(choices(batch), batch.counts.as<int32_t>(), recipe.capacity, batch.routes.sent,
                        batch.row_of_slot.reserve<int32_t>(slots), batch.slot_of_row.reserve<int32_t>(rows),
                        streams.compute);
            group_ends(batch.all_counts.as<int32_t>(), transport.size(), shape.experts, transport.rank() * own, own,
                       batch.ends.reserve<int32_t>(uint64_t(own)), streams.compute);
            order_rows(batch.tokens.weights, batch.slot_of_row.as<int32_t>(), 1, batch.routes.sent, sizeof(float),
                       batch.sent_weights.reserve<float>(rows), streams.compute);
        });
    }

    // ---- There and back ------------------------------------------------------------------------------------------------

    // Makes the rows that leave: each token is quantized once, and its codes and scales are copied for each of its choices.
    void order(Batch& batch, const bf16* values) {
        const int64_t tokens = batch.tokens.count, rows = batch.routes.sent;
        const int32_t* slots = batch.slot_of_row.as<int32_t>();
        batch.sent.reserve(rows);
        if (!recipe.quantized) {
            time(kOther, [&] {
                order_rows(values, slots, shape.top, rows, batch.sent.value_bytes(), batch.sent.values.get(),
                           streams.compute);
            });
        } else {
            batch.x.reserve(tokens);
            mxq::tensor in(MXQ_FORMAT_BF16, tokens, shape.width);
            in.set_const_data(values, uint64_t(tokens * shape.width) * sizeof(bf16));
            quantize(in, batch.x.tensor(tokens));
            time(kOther, [&] {
                order_rows(batch.x.values.get(), slots, shape.top, rows, batch.x.value_bytes(), batch.sent.values.get(),
                           streams.compute);
                order_rows(batch.x.scales.get(), slots, shape.top, rows, batch.x.scale_bytes(), batch.sent.scales.get(),
                           streams.compute);
            });
        }
        batch.ready.record(streams.compute);
    }

    void travel(const std::vector<Segment>& out, const std::vector<Segment>& in, const std::vector<Lane>& lanes,
                const Event& after, Event& done) {
        after.hold(streams.travel);
        time(kExchange, streams.travel, [&] { transport.exchange(out, in, lanes, streams.travel); });
        done.record(streams.travel);
        for (const Segment& s : out)
            for (const Lane& lane : lanes) wire_bytes += s.peer == transport.rank() ? 0 : s.rows * lane.row_bytes;
    }

    void to_experts(Batch& batch, Rows& arrived, bool with_weights) {
        arrived.reserve(batch.routes.received);
        std::vector<Lane> lanes;
        add_lanes(batch.sent, arrived, lanes);
        if (with_weights) {
            void* weights = batch.weights.reserve<float>(uint64_t(batch.routes.received));
            lanes.push_back({batch.sent_weights.get(), weights, sizeof(float)});
        }
        travel(batch.routes.out, batch.routes.in, lanes, batch.ready, batch.arrived);
    }

    void to_tokens(Batch& batch, bool with_gradients) {
        const auto rows = uint64_t(batch.routes.sent);
        const auto row_bytes = shape.width * int64_t(sizeof(bf16));
        std::vector<Lane> lanes{{batch.back.get(), batch.returned.reserve(rows * uint64_t(row_bytes)), row_bytes}};
        if (with_gradients)
            lanes.push_back({batch.weight_gradients.get(), batch.returned_gradients.reserve<float>(rows), sizeof(float)});
        travel(batch.routes.in, batch.routes.out, lanes, batch.computed, batch.came_back);
    }

    void sum(Batch& batch, bf16* out) {
        batch.came_back.hold(streams.compute);
        time(kOther, [&] {
            combine(batch.returned.as<bf16>(), batch.row_of_slot.as<int32_t>(), batch.tokens.count, shape.top, shape.width,
                    out, streams.compute);
        });
    }

    // ---- The experts ---------------------------------------------------------------------------------------------------

    void run_experts(Batch& batch) {
        const int64_t rows = batch.routes.received;
        batch.arrived.hold(streams.compute);
        const auto hidden = uint64_t(rows * shape.hidden);
        batch.z.reserve<bf16>(hidden), batch.h.reserve<bf16>(hidden);
        batch.back.reserve<bf16>(uint64_t(rows * shape.width));
        if (rows > 0) {
            multiply(grouped(batch, batch.arrived_x.tensor(rows)), MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_T,
                     plain(rows, shape.hidden, batch.z));
            time(kOther, [&] {
                activate(batch.z.as<bf16>(), batch.weights.as<float>(), rows, shape.hidden, batch.h.as<bf16>(),
                         streams.compute);
            });
            batch.h_tensor = operand(batch, batch.h, shape.hidden, batch.h_parts);
            multiply(batch.h_tensor, MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_T, plain(rows, shape.width, batch.back));
        }
        batch.computed.record(streams.compute);
    }

    void run_experts_backward(Batch& batch, const Gradients& gradients, bool accumulate) {
        const int64_t rows = batch.routes.received;
        batch.arrived.hold(streams.compute);
        const auto hidden = uint64_t(rows * shape.hidden);
        batch.dh.reserve<bf16>(hidden), batch.dz.reserve<bf16>(hidden);
        batch.weight_gradients.reserve<float>(uint64_t(rows));
        const auto bytes = uint64_t(own * shape.hidden * shape.width) * sizeof(float);
        mxq::tensor d_up(MXQ_FORMAT_F32, own, shape.hidden, shape.width),
            d_down(MXQ_FORMAT_F32, own, shape.width, shape.hidden);
        d_up.set_data(gradients.up, bytes), d_down.set_data(gradients.down, bytes);
        if (rows > 0) {
            multiply(grouped(batch, batch.arrived_dy.tensor(rows)), MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_N,
                     plain(rows, shape.hidden, batch.dh));
            time(kOther, [&] {
                activate_backward(batch.z.as<bf16>(), batch.dh.as<bf16>(), batch.weights.as<float>(), rows, shape.hidden,
                                  batch.dz.as<bf16>(), batch.weight_gradients.as<float>(), streams.compute);
            });
            const mxq::tensor dz = operand(batch, batch.dz, shape.hidden, batch.dz_parts);
            multiply(dz, MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_N, plain(rows, shape.width, batch.back));
            batch.computed.record(streams.compute);  // what returns need not wait for the gradients of the weights
            const mxq::tensor x = columns(batch, batch.arrived_x, batch.x_columns);
            const mxq::tensor dy = columns(batch, batch.arrived_dy, batch.dy_columns);
            multiply(dz, MXQ_TRANSPOSE_T, x, MXQ_TRANSPOSE_N, d_up, accumulate);
            multiply(dy, MXQ_TRANSPOSE_T, batch.h_tensor, MXQ_TRANSPOSE_N, d_down, accumulate);
        } else {
            batch.computed.record(streams.compute);
            if (accumulate) return;
            check(cudaMemsetAsync(gradients.up, 0, bytes, streams.compute));
            check(cudaMemsetAsync(gradients.down, 0, bytes, streams.compute));
        }
    }
};

Layer::Layer(const mxq::context& context, Transport& transport, Streams streams, const Shape& shape, const Recipe& recipe,
             const bf16* up, const bf16* down)
    : state_(std::make_unique<State>(context, transport, streams, shape, recipe)) {
    state_->up = state_->weights(up, shape.hidden, shape.width, state_->up_memory);
    state_->down = state_->weights(down, shape.width, shape.hidden, state_->down_memory);
}

Layer::~Layer() = default;

void Layer::forward(const Tokens& tokens, bf16* y) {
    State& s = *state_;
    s.split(tokens);
    for (Batch& batch : s.batches) s.count(batch);
    if (s.recipe.capacity == 0) s.learn_counts();
    for (Batch& batch : s.batches) {
        if (s.recipe.capacity > 0) s.take_capacity(batch);
        s.place(batch);
        s.order(batch, batch.tokens.x);
        s.to_experts(batch, batch.arrived_x, true);
    }
    for (Batch& batch : s.batches) {
        s.run_experts(batch);
        s.to_tokens(batch, false);
    }
    for (Batch& batch : s.batches) s.sum(batch, y + (batch.tokens.x - tokens.x));
}

void Layer::backward(const bf16* dy, const Gradients& gradients) {
    State& s = *state_;
    const Tokens& first = s.batches.front().tokens;
    for (Batch& batch : s.batches) {
        s.order(batch, dy + (batch.tokens.x - first.x));
        s.to_experts(batch, batch.arrived_dy, false);
    }
    for (Batch& batch : s.batches) {
        s.run_experts_backward(batch, gradients, &batch != &s.batches.front());
        s.to_tokens(batch, true);
    }
    for (Batch& batch : s.batches) {
        s.sum(batch, gradients.x + (batch.tokens.x - first.x));
        s.time(kOther, [&] {
            return_numbers(batch.returned_gradients.as<float>(), batch.row_of_slot.as<int32_t>(), s.choices(batch).slots(),
                           gradients.weights + (batch.tokens.weights - first.weights), s.streams.compute);
        });
    }
}

void Layer::set_timed(bool timed) { state_->timed = timed; }

Figures Layer::take_figures() {
    Figures figures;
    figures.wire_bytes = std::exchange(state_->wire_bytes, 0);
    for (const State::Span& span : state_->spans) figures.ms[span.stage] += span.end.ms_since(span.begin);
    state_->spans.clear();
    return figures;
}

const std::string& Layer::implementation() const { return state_->implementation; }

int64_t Layer::dropped() const {
    int64_t dropped = 0;
    std::vector<int32_t> counts(size_t(state_->shape.experts));
    for (const Batch& batch : state_->batches) {
        check(cudaMemcpy(counts.data(), batch.counts.get(), counts.size() * sizeof(int32_t), cudaMemcpyDeviceToHost));
        for (const int32_t count : counts) dropped += std::max(count - state_->recipe.capacity, 0);
    }
    return state_->recipe.capacity > 0 ? dropped : 0;
}
