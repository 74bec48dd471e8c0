// Routings in memory of a device, and what mxq_route must compute of them, written from its comment in mxq.h.
#ifndef MXQ_TESTS_ROUTING_H
#define MXQ_TESTS_ROUTING_H

#include "../formats.h"

#include <algorithm>

namespace testing {

using RoutingHandle = Handle<mxq_routing, mxq_routing_destroy>;

// The choices of all tokens. A local count of 0: all experts are of this rank.
struct Choices {
    int64_t tokens;
    int32_t choices, experts;
    std::vector<int64_t> ids;
    oracle::Floats weights;  // empty: none
    int32_t first = 0, count = 0;

    int64_t rows() const { return tokens * choices; }
    int32_t local() const { return count ? count : experts; }
    bool is_kept(int64_t id) const { return id >= 0 && id < experts && id >= first && id < first + local(); }
};

struct Routed {
    std::vector<int32_t> ends, row_tokens, choice_rows;
    oracle::Floats row_weights;
    int32_t dropped;
    bool operator==(const Routed&) const = default;
};

// Finds the rows of each expert by looking for its choices in order.
inline Routed expected_routing(const Choices& c) {
    const auto rows = static_cast<size_t>(c.rows());
    Routed out{{}, std::vector<int32_t>(rows, -1), std::vector<int32_t>(rows, -1), oracle::Floats(c.weights.size(), 0.0f), 0};
    int32_t row = 0;
    for (int32_t expert = c.first; expert < c.first + c.local(); ++expert) {
        for (size_t i = 0; i < rows; ++i) {
            if (c.ids[i] != expert) continue;
            out.choice_rows[i] = row;
            out.row_tokens[static_cast<size_t>(row)] = static_cast<int32_t>(i / static_cast<size_t>(c.choices));
            if (!c.weights.empty()) out.row_weights[static_cast<size_t>(row)] = c.weights[i];
            ++row;
        }
        out.ends.push_back(row);
    }
    for (const int64_t id : c.ids) out.dropped += id < -1 || id >= c.experts;
    return out;
}

template <class T>
Bytes integer_bytes(const std::vector<int64_t>& values) {
    Bytes out(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
        const T value = static_cast<T>(values[i]);
        std::memcpy(&out[i * sizeof(T)], &value, sizeof(T));
    }
    return out;
}

template <class T>
std::vector<T> array_of(const Bytes& bytes, size_t first, size_t count) {
    std::vector<T> out(count);
    if (count) std::memcpy(out.data(), &bytes.at(first), count * sizeof(T));
    return out;
}

// A routing with its arrays in memory of a device.
class DeviceRouting {
public:
    DeviceRouting(Device& device, const Choices& c, int32_t id_type = MXQ_TYPE_INT32, int32_t weight_format = MXQ_FORMAT_F32)
        : choices(c), device_(device), dropped_(device, sizeof(int32_t)) {
        ok(mxq_routing_create(c.tokens, c.choices, c.experts, handle.out()));
        ids_ = std::make_unique<Buffer>(device, ids_of(c, id_type));
        if (c.rows()) ok(mxq_routing_set_ids(handle, ids_->data(), ids_->bytes(), id_type));
        if (!c.weights.empty()) {
            weights_ = std::make_unique<Buffer>(device, oracle::store(weight_format, c.weights));
            ok(mxq_routing_set_weights(handle, weight_format, weights_->data(), weights_->bytes()));
        }
        if (c.count) ok(mxq_routing_set_local_experts(handle, c.first, c.count));
        uint64_t bytes = 0;
        ok(mxq_routing_required_bytes(handle, &bytes));
        memory_ = std::make_unique<Buffer>(device, static_cast<size_t>(bytes));
        ok(mxq_routing_set_memory(handle, memory_->data(), memory_->bytes()));
        ok(mxq_routing_set_dropped(handle, static_cast<int32_t*>(dropped_.data()), dropped_.bytes()));
    }

    static Bytes ids_of(const Choices& c, int32_t type) {
        return type == MXQ_TYPE_INT32 ? integer_bytes<int32_t>(c.ids) : integer_bytes<int64_t>(c.ids);
    }
    // Replaces the ids, as a replay of a graph finds others.
    void write_ids(const std::vector<int64_t>& ids, int32_t type) {
        choices.ids = ids;
        const Bytes bytes = ids_of(choices, type);
        device_.to_device(ids_->data(), bytes.data(), bytes.size());
    }
    mxq_status route(void* stream = nullptr) const {
        return mxq_route(device_.context, nullptr, handle, nullptr, 0, stream);
    }
    Routed read() const {
        const Bytes memory = memory_->read();
        const auto at = [&](const void* array) {
            return static_cast<size_t>(static_cast<const uint8_t*>(array) - static_cast<const uint8_t*>(memory_->data()));
        };
        const int32_t *ends = nullptr, *tokens = nullptr, *rows = nullptr;
        const float* weights = nullptr;
        uint64_t end_bytes = 0, row_bytes = 0;
        ok(mxq_routing_get_ends(handle, &ends, &end_bytes));
        ok(mxq_routing_get_row_tokens(handle, &tokens, &row_bytes));
        ok(mxq_routing_get_choice_rows(handle, &rows, &row_bytes));
        ok(mxq_routing_get_row_weights(handle, &weights, &row_bytes));
        const size_t count = row_bytes / 4;
        Routed out;
        out.ends = array_of<int32_t>(memory, at(ends), end_bytes / 4);
        if (count) out.row_tokens = array_of<int32_t>(memory, at(tokens), count);
        if (count) out.choice_rows = array_of<int32_t>(memory, at(rows), count);
        if (count && !choices.weights.empty()) out.row_weights = array_of<float>(memory, at(weights), count);
        out.dropped = array_of<int32_t>(dropped_.read(), 0, 1)[0];
        return out;
    }
    // Returns all that a route may write.
    Bytes written() const {
        Bytes all = memory_->read();
        const Bytes word = dropped_.read();
        all.insert(all.end(), word.begin(), word.end());
        return all;
    }
    bool untouched() const { return memory_->untouched() && dropped_.untouched(); }

    RoutingHandle handle;
    Choices choices;

private:
    Device& device_;
    std::unique_ptr<Buffer> ids_, weights_, memory_;
    Buffer dropped_;
};

// How the experts of choices are drawn.
enum class Draw { uniform, one_expert, few_experts, with_dropped };

inline Choices draw_choices(int64_t tokens, int32_t choices, int32_t experts, Draw draw, uint64_t seed) {
    cases::Random random(seed);
    Choices c{tokens, choices, experts, {}, {}};
    for (int64_t i = 0; i < c.rows(); ++i) {
        int64_t id = random.below(experts);
        if (draw == Draw::one_expert) id = experts - 1;
        if (draw == Draw::few_experts) id = id % 3 * (experts / 3);
        if (draw == Draw::with_dropped && random.below(4) == 0) id = -1;
        c.ids.push_back(id);
        c.weights.push_back(random.uniform());
    }
    return c;
}

}  // namespace testing

#endif
