#include "layer.hpp"

#include <deque>

namespace {

constexpr int64_t kBlock = 32;  // codes that share a scale

// Rows as they travel and as products read them: MXFP8 codes and scales along the rows, or BF16.
struct Rows {
    bool quantized;
    int64_t cols;
    Buffer values, scales;

    int64_t value_bytes() const { return quantized ? cols : cols * int64_t(sizeof(bf16)); }
    int64_t scale_bytes() const { return quantized ? cols / kBlock : 0; }
    void reserve(int64_t rows) {
        values.reserve(uint64_t(rows * value_bytes()));
        scales.reserve(uint64_t(rows * scale_bytes()));
    }
    mxq::tensor tensor(int64_t rows) const {
        mxq::tensor t(quantized ? MXQ_FORMAT_MXFP8_E4M3 : MXQ_FORMAT_BF16, rows, cols);
        const auto bytes = uint64_t(rows * value_bytes());
        if (quantized)
            t.set_part(MXQ_PART_ROWWISE, values.get(), bytes, scales.get(), uint64_t(rows * scale_bytes()));
        else
            t.set_data(values.get(), bytes);
        return t;
    }
};

void add_lanes(const Rows& from, const Rows& to, std::vector<Lane>& lanes) {
    lanes.push_back({from.values.get(), to.values.get(), from.value_bytes()});
    if (from.quantized) lanes.push_back({from.scales.get(), to.scales.get(), from.scale_bytes()});
}

mxq::tensor plain(int64_t rows, int64_t cols, const Buffer& buffer) {
    mxq::tensor t(MXQ_FORMAT_BF16, rows, cols);
    t.set_data(buffer.get(), uint64_t(rows * cols) * sizeof(bf16));
    return t;
}

// Who sends which rows where. Row numbers are those of the sender's rows in the order of experts, and of the receiver's.
struct Routes {
    std::vector<Segment> out, in;
    std::vector<int32_t> ends;  // of the rows that arrive, by the rank's experts
    int64_t sent = 0, received = 0;

    Routes() = default;
    Routes(const int32_t* counts, int rank, int ranks, int32_t experts) {
        const int32_t own = experts / ranks;
        for (int32_t e = 0; e < experts; ++e) sent += add(out, e / own, sent, counts[rank * experts + e]);
        for (int32_t e = rank * own; e < (rank + 1) * own; ++e) {
            for (int source = 0; source < ranks; ++source)
                received += add(in, source, received, counts[source * experts + e]);
            ends.push_back(int32_t(received));
        }
    }
    static int64_t add(std::vector<Segment>& to, int peer, int64_t row, int32_t rows) {
        to.push_back({peer, row, rows});
        return rows;
    }
};

// A part of the tokens on its way, and what the backward pass needs of it.
struct Batch {
    Tokens tokens{};
    Routes routes;
    Rows x, sent, arrived_x, arrived_dy;  // `x` in the order of tokens; sent in that of experts
    Buffer counts, all_counts, row_of_slot, slot_of_row, ends;
    Buffer sent_weights, weights, z, h, dh, dz, back, returned, weight_gradients, returned_gradients;
    Buffer h_parts, dz_parts, x_columns, dy_columns;  // quantized: what products alone read
    mxq::tensor h_tensor;
    Event ready, arrived, computed, came_back;

    Batch(const Shape& shape, bool quantized)
        : x{quantized, shape.width, {}, {}},
          sent{quantized, shape.width, {}, {}},
          arrived_x{quantized, shape.width, {}, {}},
          arrived_dy{quantized, shape.width, {}, {}} {}
};

}  // namespace

struct Layer::State {
    const mxq::context& context;
    Transport& transport;
    const Streams streams;
    const Shape shape;
    const Recipe recipe;
    const int32_t own;  // experts of this rank
    std::deque<Batch> batches;
    Buffer weight_memory, workspace;
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

    // ---- Verbs of the library ------------------------------------------------------------------------------------------

    void* room(const mxq::plan& plan) { return workspace.reserve(plan.workspace_bytes()); }

    void quantize(const mxq::tensor& in, const mxq::tensor& out) {
        const mxq::plan plan = mxq::quantize_query(context, {}, in, out);
        mxq::quantize(context, {}, in, out, {room(plan), plan.workspace_bytes()}, streams.compute);
    }

    void multiply(const mxq::tensor& a, mxq_transpose ta, const mxq::tensor& b, mxq_transpose tb, const mxq::tensor& d,
                  bool accumulate = false) {
        mxq::gemm_options options;
        options.set_transpose(ta, tb).set_sm_count(recipe.sm_count).set_accumulate(accumulate);
        if (recipe.implementation) options.set_implementation(recipe.implementation);
        const mxq::plan plan = mxq::grouped_gemm_query(context, options, a, b, d);
        implementation = plan.implementation();
        mxq::grouped_gemm(context, options, a, b, d, {room(plan), plan.workspace_bytes()}, streams.compute);
    }

    // Gives a tensor of arrived rows its groups, one for each expert.
    void set_groups(const Batch& batch, mxq::tensor& t) {
        const uint64_t bytes = uint64_t(own) * sizeof(int32_t);
        t.set_groups(batch.ends.get(), bytes, MXQ_TYPE_INT32, own);
        if (!recipe.quantized && recipe.capacity == 0) t.set_host_ends(batch.routes.ends.data(), bytes);  // for cuBLASLt
    }
    mxq::tensor grouped(const Batch& batch, const Rows& rows) {
        mxq::tensor t = rows.tensor(batch.routes.received);
        set_groups(batch, t);
        return t;
    }
    // Returns BF16 rows as products read them: in both directions of MXFP8, or as they are.
    mxq::tensor operand(const Batch& batch, const Buffer& rows, int64_t cols, Buffer& memory) {
        mxq::tensor in = plain(batch.routes.received, cols, rows);
        set_groups(batch, in);
        if (!recipe.quantized) return in;
        mxq::tensor out(MXQ_FORMAT_MXFP8_E4M3, batch.routes.received, cols);
        set_groups(batch, out);
        const uint64_t bytes = out.total_bytes(MXQ_PART_BOTH);
        out.set_memory(MXQ_PART_BOTH, memory.reserve(bytes), bytes);
        time(kQuantize, streams.compute, [&] { quantize(in, out); });
        return out;
    }
    // Returns arrived rows for a product over them: requantized along the columns, or as they are.
    mxq::tensor columns(const Batch& batch, const Rows& rows, Buffer& memory) {
        mxq::tensor in = grouped(batch, rows);
        if (!recipe.quantized) return in;
        mxq::tensor out(MXQ_FORMAT_MXFP8_E4M3, batch.routes.received, rows.cols);
        set_groups(batch, out);
        const uint64_t bytes = out.total_bytes(MXQ_PART_COLUMNWISE);
        out.set_memory(MXQ_PART_COLUMNWISE, memory.reserve(bytes), bytes);
        time(kQuantize, streams.compute, [&] {
            const mxq::plan plan = mxq::requantize_query(context, {}, in, out);
            mxq::requantize(context, {}, in, out, {room(plan), plan.workspace_bytes()}, streams.compute);
        });
        return out;
    }

    mxq::tensor weights(const bf16* values, int64_t rows, int64_t cols, void* memory) {
        mxq::tensor in(MXQ_FORMAT_BF16, own, rows, cols);
        in.set_const_data(values, uint64_t(own * rows * cols) * sizeof(bf16));
        if (!recipe.quantized) return in;
        mxq::tensor out(MXQ_FORMAT_MXFP8_E4M3, own, rows, cols);
        out.set_memory(MXQ_PART_BOTH, memory, out.total_bytes(MXQ_PART_BOTH));
        quantize(in, out);
        return out;
    }
    void set_weights(const bf16* up_values, const bf16* down_values) {
        const mxq::tensor like(MXQ_FORMAT_MXFP8_E4M3, own, shape.hidden, shape.width);
        const uint64_t bytes = recipe.quantized ? like.total_bytes(MXQ_PART_BOTH) : 0;
        auto* memory = weight_memory.reserve<std::byte>(2 * bytes);
        up = weights(up_values, shape.hidden, shape.width, memory);
        down = weights(down_values, shape.width, shape.hidden, memory + bytes);
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
        time(kOther, streams.compute,
             [&] { count_slots(choices(batch), batch.counts.reserve<int32_t>(uint64_t(shape.experts)), streams.compute); });
        batch.ready.record(streams.compute);
    }

    // Brings the counts of all ranks to all hosts: NCCL takes sizes from the host.
    void learn_counts() {
        const int64_t all = int64_t(shape.experts) * transport.size();
        std::vector<int32_t> counts(size_t(all * recipe.parts));
        for (size_t i = 0; i < batches.size(); ++i) {
            batches[i].ready.hold(streams.travel);
            auto* on_device = batches[i].all_counts.reserve<int32_t>(uint64_t(all));
            time(kExchange, streams.travel,
                 [&] { transport.gather(batches[i].counts.as<int32_t>(), on_device, shape.experts, streams.travel); });
            check(cudaMemcpyAsync(&counts[i * size_t(all)], on_device, size_t(all) * sizeof(int32_t), cudaMemcpyDeviceToHost,
                                  streams.travel));
        }
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
        time(kOther, streams.compute, [&] {
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
            time(kOther, streams.compute, [&] {
                order_rows(values, slots, shape.top, rows, batch.sent.value_bytes(), batch.sent.values.get(),
                           streams.compute);
            });
        } else {
            batch.x.reserve(tokens);
            mxq::tensor in(MXQ_FORMAT_BF16, tokens, shape.width);
            in.set_const_data(values, uint64_t(tokens * shape.width) * sizeof(bf16));
            time(kQuantize, streams.compute, [&] { quantize(in, batch.x.tensor(tokens)); });
            time(kOther, streams.compute, [&] {
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
        time(kOther, streams.compute, [&] {
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
            time(kProduct, streams.compute, [&] {
                multiply(grouped(batch, batch.arrived_x), MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_T,
                         plain(rows, shape.hidden, batch.z));
            });
            time(kOther, streams.compute, [&] {
                activate(batch.z.as<bf16>(), batch.weights.as<float>(), rows, shape.hidden, batch.h.as<bf16>(),
                         streams.compute);
            });
            batch.h_tensor = operand(batch, batch.h, shape.hidden, batch.h_parts);
            time(kProduct, streams.compute, [&] {
                multiply(batch.h_tensor, MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_T, plain(rows, shape.width, batch.back));
            });
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
            time(kProduct, streams.compute, [&] {
                multiply(grouped(batch, batch.arrived_dy), MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_N,
                         plain(rows, shape.hidden, batch.dh));
            });
            time(kOther, streams.compute, [&] {
                activate_backward(batch.z.as<bf16>(), batch.dh.as<bf16>(), batch.weights.as<float>(), rows, shape.hidden,
                                  batch.dz.as<bf16>(), batch.weight_gradients.as<float>(), streams.compute);
            });
            const mxq::tensor dz = operand(batch, batch.dz, shape.hidden, batch.dz_parts);
            time(kProduct, streams.compute,
                 [&] { multiply(dz, MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_N, plain(rows, shape.width, batch.back)); });
            batch.computed.record(streams.compute);  // what returns need not wait for the gradients of the weights
            const mxq::tensor x = columns(batch, batch.arrived_x, batch.x_columns);
            const mxq::tensor dy = columns(batch, batch.arrived_dy, batch.dy_columns);
            time(kProduct, streams.compute, [&] {
                multiply(dz, MXQ_TRANSPOSE_T, x, MXQ_TRANSPOSE_N, d_up, accumulate);
                multiply(dy, MXQ_TRANSPOSE_T, batch.h_tensor, MXQ_TRANSPOSE_N, d_down, accumulate);
            });
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
    state_->set_weights(up, down);
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
        s.time(kOther, s.streams.compute, [&] {
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
