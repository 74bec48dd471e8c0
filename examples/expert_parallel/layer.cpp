#include "layer.hpp"

#include "routes.hpp"
#include "verbs.hpp"

namespace {

mxq::tensor plain(int64_t rows, int64_t cols, const Buffer& buffer) {
    return mxq::tensor(MXQ_FORMAT_BF16, rows, cols).set_data(buffer.get(), uint64_t(rows * cols) * sizeof(bf16));
}

Recipe possible(Recipe recipe) {
    if (recipe.exchange == Exchange::kChoices && (recipe.quantized() || recipe.capacity > 0))
        throw std::runtime_error("choices travel in BF16 and without a capacity");
    if (recipe.quantized_back && !recipe.quantized()) throw std::runtime_error("rows of BF16 come back in BF16");
    return recipe;
}

}  // namespace

struct Layer::State {
    Verbs verbs;
    Transport& transport;
    const Streams streams;
    const Shape shape;
    const Recipe recipe;
    const int32_t own, first;  // experts of this rank, and the first of them
    const bool tokens_travel;

    Tokens tokens{};
    Routes routes;
    mxq::routing choices, to_ranks, arrived;  // this rank's tokens over experts and over ranks; what arrived over experts
    const int32_t *ends = nullptr, *token_of_place = nullptr;
    const float* row_weights = nullptr;
    Buffer choices_memory, to_ranks_memory, arrived_memory, ranks_of_tokens, counts, all_counts;
    Buffer token_of_place_memory, place_of_row, arrived_ids, arrived_weights, given_ends, given_weights;

    Rows tokens_rows, x, dy, returned_rows;  // as a rank has them, as its experts read them, as they come back
    Buffer sent, received, back, sums, sent_back, returned, returned_sums, weight_gradients, returned_gradients;
    Buffer up_memory, down_memory, z, dh, dz, h_memory, dz_memory, dz_columns, h_columns, x_columns, dy_columns;
    mxq::tensor up, down;
    Event ready, came;
    std::vector<Lane> there, and_back;  // of the last exchanges

    int64_t wire_bytes = 0;

    State(const mxq::context& c, Transport& t, Streams s, const Shape& sh, const Recipe& r)
        : verbs(c, s.compute, r.implementation),
          transport(t),
          streams(s),
          shape(sh),
          recipe(possible(r)),
          own(sh.experts / t.size()),
          first(t.rank() * own),
          tokens_travel(r.exchange == Exchange::kTokens),
          tokens_rows(r, sh.width),
          x(r, sh.width),
          dy(r, sh.width),
          returned_rows(r, sh.width) {}

    // ---- Rows of the experts -------------------------------------------------------------------------------------------

    // Gives a tensor of the experts' rows its groups, one for each expert.
    mxq::tensor grouped(mxq::tensor t) {
        const uint64_t bytes = uint64_t(own) * sizeof(int32_t);
        t.set_groups(ends, bytes, MXQ_TYPE_INT32, own);
        if (!recipe.quantized() && !routes.ends.empty()) t.set_host_ends(routes.ends.data(), bytes);  // for cuBLASLt
        return t;
    }
    // Returns room for the experts' rows in the format of products, in these parts where it is quantized.
    mxq::tensor room_for_rows(int64_t cols, mxq_part parts, Buffer& memory) {
        const int64_t rows = routes.expert_rows;
        if (!recipe.quantized()) {
            memory.reserve<bf16>(uint64_t(rows * cols));
            return grouped(plain(rows, cols, memory));
        }
        const mxq_scaling scaling = parts == MXQ_PART_COLUMNWISE ? recipe.columns : recipe.rows;
        mxq::tensor t = grouped(mxq::tensor(recipe.format, rows, cols).set_scaling(scaling));
        const uint64_t bytes = t.total_bytes(parts);
        t.set_memory(parts, memory.reserve(bytes), bytes);
        return t;
    }
    // Returns arrived rows for a product over them: requantized along the columns, or as they are.
    mxq::tensor columns(const Rows& rows, Buffer& memory) {
        mxq::tensor in = grouped(rows.tensor(routes.expert_rows));
        if (!recipe.quantized()) return in;
        mxq::tensor out = room_for_rows(rows.cols, MXQ_PART_COLUMNWISE, memory);
        verbs.requantize(in, out);
        return out;
    }
    mxq::tensor activated() {
        mxq::tensor out = room_for_rows(shape.hidden, MXQ_PART_ROWWISE, h_memory);
        verbs.silu(plain(routes.expert_rows, shape.hidden, z), out);
        return out;
    }
    // Returns BF16 rows as products read them, in these parts where they are quantized.
    mxq::tensor operand(const Buffer& rows, mxq_part parts, Buffer& memory) {
        mxq::tensor in = grouped(plain(routes.expert_rows, shape.hidden, rows));
        if (!recipe.quantized()) return in;
        mxq::tensor out = room_for_rows(shape.hidden, parts, memory);
        verbs.quantize(in, out);
        return out;
    }

    mxq::tensor weights(const bf16* values, int64_t rows, int64_t cols, Buffer& memory) {
        mxq::tensor in(MXQ_FORMAT_BF16, own, rows, cols);
        in.set_const_data(values, uint64_t(own * rows * cols) * sizeof(bf16));
        if (!recipe.quantized()) return in;
        mxq::tensor out = mxq::tensor(recipe.format, own, rows, cols).set_scaling(recipe.weights);
        const uint64_t bytes = out.total_bytes(MXQ_PART_BOTH);
        out.set_memory(MXQ_PART_BOTH, memory.reserve(bytes), bytes);
        verbs.quantize(in, out);
        return out;
    }

    // ---- Where each token goes -----------------------------------------------------------------------------------------

    static void give_memory(mxq::routing& routing, Buffer& memory) {
        const uint64_t bytes = routing.required_bytes();
        routing.set_memory(memory.reserve(bytes), bytes);
    }

    // Returns how many ranks a token may go to. A sum over them reads a row for each; places of a capacity count among them.
    int32_t most_ranks() const {
        const int64_t places = int64_t(recipe.capacity) * transport.size();
        return std::max(std::min(shape.top, transport.size()),
                        tokens.count > 0 ? int32_t((places + tokens.count - 1) / tokens.count) : 0);
    }

    void route_own_tokens() {
        const auto slots = uint64_t(tokens.count * shape.top);
        choices = mxq::routing(tokens.count, shape.top, shape.experts)
                      .set_ids(tokens.experts, slots * sizeof(int32_t), MXQ_TYPE_INT32)
                      .set_weights(MXQ_FORMAT_F32, tokens.weights, slots * sizeof(float));
        give_memory(choices, choices_memory);
        if (recipe.capacity == 0) verbs.route(choices);
        if (!tokens_travel) return;
        const int32_t most = most_ranks();
        const auto pairs = uint64_t(tokens.count * most);
        auto* ranks = ranks_of_tokens.reserve<int32_t>(pairs);
        verbs.time(kOther, [&] { find_ranks(tokens.experts, tokens.count, shape.top, own, most, ranks, streams.compute); });
        to_ranks =
            mxq::routing(tokens.count, most, transport.size()).set_ids(ranks, pairs * sizeof(int32_t), MXQ_TYPE_INT32);
        give_memory(to_ranks, to_ranks_memory);
        verbs.route(to_ranks);
        token_of_place = to_ranks.get_row_tokens().data;
        if (recipe.capacity > 0) place_own_tokens(most, pairs);
    }

    // Gives rows their places in messages of the same size, and takes them for the rows of the sum.
    void place_own_tokens(int32_t most, uint64_t pairs) {
        const auto all = uint64_t(transport.size()) * uint64_t(recipe.capacity);
        const Places places{token_of_place_memory.reserve<int32_t>(all), place_of_row.reserve<int32_t>(pairs)};
        const auto ends_of_ranks = to_ranks.get_ends();
        const auto row_tokens = to_ranks.get_row_tokens(), rows = to_ranks.get_choice_rows();
        verbs.time(kOther, [&] {
            find_places(ranks_of_tokens.as<int32_t>(), rows.data, ends_of_ranks.data, tokens.count, most, transport.size(),
                        recipe.capacity, places, streams.compute);
        });
        token_of_place = places.token_of_place;
        to_ranks = mxq::routing(tokens.count, most, transport.size())
                       .set_computed({ends_of_ranks, row_tokens, {places.place_of_row, rows.bytes}, {}});
    }

    // Enqueues the counts of all ranks: how many tokens go to each rank, and how many choices each expert has.
    int64_t gather_counts() {
        const int64_t of_ranks = tokens_travel ? transport.size() : 0, mine = of_ranks + shape.experts;
        auto* to = counts.reserve<int32_t>(uint64_t(mine));
        const auto bytes = [](int64_t count) { return size_t(count) * sizeof(int32_t); };
        if (tokens_travel)
            check(cudaMemcpyAsync(to, to_ranks.get_ends().data, bytes(of_ranks), cudaMemcpyDeviceToDevice, streams.compute));
        check(cudaMemcpyAsync(to + of_ranks, choices.get_ends().data, bytes(shape.experts), cudaMemcpyDeviceToDevice,
                              streams.compute));
        ready.record(streams.compute);
        ready.hold(streams.travel);
        auto* all = all_counts.reserve<int32_t>(uint64_t(mine * transport.size()));
        verbs.time(kCounts, streams.travel, [&] { transport.gather(to, all, mine, streams.travel); });
        return mine * transport.size();
    }

    // Learns them: NCCL takes sizes from the host. A copy to a vector keeps the host until the stream has come to it,
    // whoever is gone, so it is asked for once the exchange has ended.
    void learn_counts(int64_t count) {
        std::vector<int32_t> numbers(static_cast<size_t>(count));
        transport.wait(streams.travel);
        check(cudaMemcpyAsync(numbers.data(), all_counts.get(), numbers.size() * sizeof(int32_t), cudaMemcpyDeviceToHost,
                              streams.travel));
        transport.wait(streams.travel);
        routes = (tokens_travel ? routes_of_tokens : routes_of_choices)(numbers, transport.rank(), transport.size(),
                                                                        shape.experts);
    }

    // Takes apart what arrived: the experts and weights of each token, and where its rows are.
    void route_arrived(const Record& record) {
        const auto slots = uint64_t(routes.arrived * shape.top), bytes = slots * sizeof(int32_t);
        const int64_t row_bytes = shape.top * int64_t(sizeof(int32_t));
        const auto* tail = received.as<std::byte>() + record.tail_at();
        auto* ids = arrived_ids.reserve<int32_t>(slots);
        auto* of_choices = arrived_weights.reserve<float>(slots);
        verbs.time(kOther, [&] {
            copy_fields({{tail, record.bytes(), ids, row_bytes, row_bytes},
                         {tail + row_bytes, record.bytes(), of_choices, row_bytes, row_bytes}},
                        nullptr, routes.arrived, streams.compute);
        });
        arrived = mxq::routing(routes.arrived, shape.top, shape.experts)
                      .set_local_experts(first, own)
                      .set_ids(ids, bytes, MXQ_TYPE_INT32)
                      .set_weights(MXQ_FORMAT_F32, of_choices, bytes);
        give_memory(arrived, arrived_memory);
        verbs.route(arrived);
        ends = arrived.get_ends().data;
        row_weights = arrived.get_row_weights().data;
    }

    // ---- There and back ------------------------------------------------------------------------------------------------

    Record record_of(const Rows& rows, int64_t tail) const { return {rows.value_bytes(), rows.scale_bytes(), tail}; }
    int64_t tail_bytes(bool forward) const {
        return tokens_travel && forward ? shape.top * int64_t(sizeof(int32_t) + sizeof(float)) : 0;
    }

    // Makes the records that leave: each token is quantized once, and packed for each rank that it goes to.
    void pack(const bf16* values, bool forward) {
        const void *from = values, *scales = nullptr;
        if (recipe.quantized()) {
            tokens_rows.reserve(tokens.count);
            mxq::tensor in(MXQ_FORMAT_BF16, tokens.count, shape.width);
            in.set_const_data(values, uint64_t(tokens.count * shape.width) * sizeof(bf16));
            verbs.quantize(in, tokens_rows.tensor(tokens.count));
            from = tokens_rows.values.get(), scales = tokens_rows.scales.get();
        }
        const Record record = record_of(tokens_rows, tail_bytes(forward));
        const int32_t* index = tokens_travel ? token_of_place : choices.get_row_tokens().data;
        const int64_t rows = recipe.capacity > 0 ? int64_t(recipe.capacity) * transport.size()
                                                 : tokens.count * (tokens_travel ? most_ranks() : shape.top);
        auto* records = static_cast<std::byte*>(sent.reserve(uint64_t(rows * record.bytes())));
        std::vector<Field> fields = record.to_records(from, scales, records);
        const int64_t numbers = shape.top * int64_t(sizeof(int32_t));
        std::byte* ids = records + record.tail_at();
        if (record.tail > 0) {
            fields.push_back({tokens.experts, numbers, ids, record.bytes(), numbers});
            fields.push_back({tokens.weights, numbers, ids + numbers, record.bytes(), numbers});
        }
        verbs.time(kOther, [&] {
            if (recipe.capacity > 0 && forward)  // a place that nobody takes has no experts
                check(cudaMemset2DAsync(ids, size_t(record.bytes()), 0xFF, size_t(numbers), size_t(rows), streams.compute));
            copy_fields(fields, index, rows, streams.compute);
        });
    }

    // Sends once more what the last passes sent, with the same messages.
    void exchange_again() {
        travel(routes.out, routes.in, there);
        travel(routes.in, routes.out, and_back);
        hold();
    }

    // Sends once the compute stream has come here. Nobody waits yet: see hold().
    void travel(const std::vector<Segment>& out, const std::vector<Segment>& in, const std::vector<Lane>& lanes) {
        ready.record(streams.compute);
        ready.hold(streams.travel);
        verbs.time(kExchange, streams.travel, [&] { transport.exchange(out, in, lanes, streams.travel); });
        came.record(streams.travel);
        for (const Segment& s : out)
            for (const Lane& lane : lanes) wire_bytes += s.peer == transport.rank() ? 0 : s.rows * lane.row_bytes;
    }
    void hold() { came.hold(streams.compute); }

    void send_to_experts(Rows& rows, bool forward) {
        const Record record = record_of(rows, tail_bytes(forward));
        rows.reserve(std::max(routes.expert_rows, routes.arrived));
        void* to = tokens_travel ? received.reserve(uint64_t(routes.arrived * record.bytes())) : rows.values.get();
        std::vector<Lane> lanes{{sent.get(), to, record.bytes()}};
        if (!tokens_travel && forward) {
            row_weights = given_weights.reserve<float>(uint64_t(routes.arrived));
            lanes.push_back({choices.get_row_weights().data, given_weights.get(), sizeof(float)});
            ends = given_ends.reserve<int32_t>(uint64_t(own));
            check(cudaMemcpyAsync(given_ends.get(), routes.ends.data(), size_t(own) * sizeof(int32_t),
                                  cudaMemcpyHostToDevice, streams.compute));
        }
        travel(routes.out, routes.in, lanes);
        there = std::move(lanes);
    }

    // Makes the experts' rows of what arrived, one behind the other: products read no quantized rows by index.
    void take_arrived(Rows& rows, bool forward) {
        hold();
        if (!tokens_travel) return;
        const Record record = record_of(rows, tail_bytes(forward));
        if (forward) route_arrived(record);
        verbs.time(kOther, [&] {
            copy_fields(record.from_records(received.get(), rows), arrived.get_row_tokens().data, routes.expert_rows,
                        streams.compute);
        });
    }

    // The rows that return: sums of a token's experts here, or the row of each choice.
    Record returning(bool forward) const {
        const int64_t tail = forward ? 0 : shape.top * int64_t(sizeof(float));
        return recipe.quantized_back ? record_of(returned_rows, tail) : Record{shape.width * int64_t(sizeof(bf16)), 0, tail};
    }

    void send_back(bool forward) {
        std::vector<Lane> lanes;
        if (tokens_travel) {
            const Record record = returning(forward);
            const auto bytes = uint64_t(routes.arrived * record.bytes());
            sent_back.reserve(bytes);
            // A sum over ranks reads a row for each rank of a token, whether it went there or not.
            returned.reserve(uint64_t(std::max(tokens.count * most_ranks(), routes.sent) * record.bytes()));
            if (routes.arrived > 0) sum_choices(record, forward);
            lanes.push_back({sent_back.get(), returned.get(), record.bytes()});
        } else {
            const int64_t row_bytes = shape.width * int64_t(sizeof(bf16));
            lanes.push_back({back.get(), returned.reserve(uint64_t(tokens.count * shape.top * row_bytes)), row_bytes});
            if (!forward)
                lanes.push_back(
                    {weight_gradients.get(), returned_gradients.reserve<float>(uint64_t(routes.sent)), sizeof(float)});
        }
        travel(routes.in, routes.out, lanes);
        and_back = std::move(lanes);
    }

    // Sums the rows of each token that arrived, with its weights on the way forward, to what travels back.
    void sum_choices(const Record& record, bool forward) {
        if (!forward) arrived.set_weights(0, nullptr, 0);
        const mxq::tensor rows = plain(routes.arrived * shape.top, shape.width, back);
        if (!recipe.quantized_back) {
            verbs.combine(arrived, rows, record.numbers(MXQ_FORMAT_BF16, routes.arrived, shape.width, sent_back, 0));
        } else {
            sums.reserve<bf16>(uint64_t(routes.arrived * shape.width));
            returned_rows.reserve(routes.arrived);
            const mxq::tensor of_tokens = plain(routes.arrived, shape.width, sums);
            verbs.combine(arrived, rows, of_tokens);
            verbs.quantize(of_tokens, returned_rows.tensor(routes.arrived));
            verbs.time(kOther, [&] {
                copy_fields(record.to_records(returned_rows.values.get(), returned_rows.scales.get(), sent_back.get()),
                            nullptr, routes.arrived, streams.compute);
            });
        }
        if (forward) return;
        verbs.time(kOther, [&] {
            number_choices(weight_gradients.as<float>(), arrived.get_choice_rows().data, routes.arrived, shape.top,
                           sent_back.as<std::byte>() + record.tail_at(), record.bytes(), streams.compute);
        });
    }

    // Adds what the ranks gave for each token, in their order.
    void sum_ranks(bf16* out, float* gradients) {
        hold();
        if (tokens.count == 0) return;
        mxq::tensor to(MXQ_FORMAT_BF16, tokens.count, shape.width);
        to.set_data(out, uint64_t(tokens.count * shape.width) * sizeof(bf16));
        const auto slots = tokens.count * shape.top;
        if (!tokens_travel) {
            if (gradients) choices.set_weights(0, nullptr, 0);
            verbs.combine(choices, plain(slots, shape.width, returned), to);
            if (gradients)
                verbs.time(kOther, [&] {
                    number_choices(returned_gradients.as<float>(), choices.get_choice_rows().data, tokens.count, shape.top,
                                   gradients, shape.top * int64_t(sizeof(float)), streams.compute);
                });
            return;
        }
        const Record record = returning(gradients == nullptr);
        const int64_t rows = tokens.count * most_ranks();
        verbs.combine(to_ranks, returned_values(record, rows), to);
        if (!gradients) return;
        mxq::tensor of_choices(MXQ_FORMAT_F32, tokens.count, shape.top);
        of_choices.set_data(gradients, uint64_t(slots) * sizeof(float));
        verbs.combine(to_ranks, record.numbers(MXQ_FORMAT_F32, rows, shape.top, returned, record.tail_at()), of_choices);
    }
    mxq::tensor returned_values(const Record& record, int64_t rows) {
        if (!recipe.quantized_back) return record.numbers(MXQ_FORMAT_BF16, rows, shape.width, returned, 0);
        returned_rows.reserve(routes.sent);
        returned_sums.reserve<bf16>(uint64_t(std::max(rows, routes.sent) * shape.width));
        verbs.time(kOther, [&] {
            copy_fields(record.from_records(returned.get(), returned_rows), nullptr, routes.sent, streams.compute);
        });
        verbs.dequantize(returned_rows.tensor(routes.sent), plain(routes.sent, shape.width, returned_sums));
        return plain(rows, shape.width, returned_sums);
    }

    // ---- The experts ---------------------------------------------------------------------------------------------------

    void run_experts() {
        const int64_t rows = routes.expert_rows;
        z.reserve<bf16>(uint64_t(rows * shape.hidden));
        // A sum over choices reads a row for each choice of a token, whether its expert is here or not.
        back.reserve<bf16>(uint64_t(std::max(rows, tokens_travel ? routes.arrived * shape.top : 0) * shape.width));
        if (rows == 0) return;
        verbs.multiply(grouped(x.tensor(rows)), MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_T, plain(rows, shape.hidden, z));
        const mxq::tensor h = activated();
        verbs.multiply(h, MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_T, plain(rows, shape.width, back));
    }

    // Returns dz, in both directions where one read gives them, and leaves dx, and h with its weights in the place of dh.
    mxq::tensor run_experts_backward() {
        const int64_t rows = routes.expert_rows;
        const auto hidden = uint64_t(rows * shape.hidden);
        dh.reserve<bf16>(hidden), dz.reserve<bf16>(hidden), weight_gradients.reserve<float>(uint64_t(rows));
        if (rows == 0) return {};
        verbs.multiply(grouped(dy.tensor(rows)), MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_N, plain(rows, shape.hidden, dh));
        verbs.time(kOther, [&] {
            activate_backward(z.as<bf16>(), dh.as<bf16>(), row_weights, rows, shape.hidden, dz.as<bf16>(), dh.as<bf16>(),
                              weight_gradients.as<float>(), streams.compute);
        });
        mxq::tensor gradient = operand(dz, has_both_from_one_read() ? MXQ_PART_BOTH : MXQ_PART_ROWWISE, dz_memory);
        verbs.multiply(gradient, MXQ_TRANSPOSE_N, up, MXQ_TRANSPOSE_N, plain(rows, shape.width, back));
        return gradient;
    }

    bool has_both_from_one_read() const { return recipe.rows == recipe.columns; }

    void run_weight_gradients(const mxq::tensor& x_rows, mxq::tensor dz_rows, const Gradients& gradients) {
        const auto bytes = uint64_t(own * shape.hidden * shape.width) * sizeof(float);
        if (routes.expert_rows == 0) {
            check(cudaMemsetAsync(gradients.up, 0, bytes, streams.compute));
            check(cudaMemsetAsync(gradients.down, 0, bytes, streams.compute));
            return;
        }
        mxq::tensor d_up(MXQ_FORMAT_F32, own, shape.hidden, shape.width),
            d_down(MXQ_FORMAT_F32, own, shape.width, shape.hidden);
        d_up.set_data(gradients.up, bytes), d_down.set_data(gradients.down, bytes);
        if (!has_both_from_one_read()) dz_rows = operand(dz, MXQ_PART_COLUMNWISE, dz_columns);
        const mxq::tensor dy_rows = columns(dy, dy_columns), h = operand(dh, MXQ_PART_COLUMNWISE, h_columns);
        verbs.multiply(dz_rows, MXQ_TRANSPOSE_T, x_rows, MXQ_TRANSPOSE_N, d_up);
        verbs.multiply(dy_rows, MXQ_TRANSPOSE_T, h, MXQ_TRANSPOSE_N, d_down);
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
    s.tokens = tokens;
    s.route_own_tokens();
    const bool has_counts = s.recipe.capacity == 0;
    const int64_t counts = has_counts ? s.gather_counts() : 0;
    s.pack(tokens.x, true);
    if (has_counts)
        s.learn_counts(counts);
    else
        s.routes = routes_of_capacity(s.recipe.capacity, s.transport.size(), s.shape.top);
    s.send_to_experts(s.x, true);
    s.take_arrived(s.x, true);
    s.run_experts();
    s.send_back(true);
    s.sum_ranks(y, nullptr);
}

void Layer::backward(const bf16* dy, const Gradients& gradients) {
    State& s = *state_;
    s.pack(dy, false);
    s.send_to_experts(s.dy, false);
    const mxq::tensor x = s.routes.expert_rows > 0 ? s.columns(s.x, s.x_columns) : mxq::tensor();  // while dy travels
    s.take_arrived(s.dy, false);
    mxq::tensor dz = s.run_experts_backward();
    s.send_back(false);
    if (!s.recipe.overlap) s.hold();
    s.run_weight_gradients(x, std::move(dz), gradients);
    s.sum_ranks(gradients.x, gradients.weights);
}

void Layer::exchange_again() { state_->exchange_again(); }

void Layer::set_timed(bool timed) { state_->verbs.timed = timed; }

Figures Layer::take_figures() {
    Figures figures = state_->verbs.take_figures();
    figures.wire_bytes = std::exchange(state_->wire_bytes, 0);
    return figures;
}

std::string Layer::implementations() const {
    std::string all;
    for (const std::string& name : state_->verbs.implementations) all += (all.empty() ? "" : ", ") + name;
    return all;
}

int64_t Layer::dropped() const {
    const State& s = *state_;
    if (s.recipe.capacity == 0) return 0;
    const size_t pairs = size_t(s.tokens.count) * size_t(s.most_ranks());
    std::vector<int32_t> ranks(pairs), places(pairs);
    check(cudaMemcpy(ranks.data(), s.ranks_of_tokens.get(), pairs * sizeof(int32_t), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(places.data(), s.place_of_row.get(), pairs * sizeof(int32_t), cudaMemcpyDeviceToHost));
    int64_t dropped = 0;
    for (size_t i = 0; i < pairs; ++i) dropped += ranks[i] >= 0 && places[i] < 0;
    return dropped;
}
