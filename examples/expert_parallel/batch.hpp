// Holds what a part of the tokens needs on its way: rows as they travel, who sends which of them where, and buffers.
#pragma once

#include <vector>

#include "layer.hpp"

inline constexpr int64_t kBlock = 32;  // codes that share a scale

// Rows as they travel and as products read them: MXFP8 codes and scales along the rows, or BF16.
struct Rows {
    bool quantized;
    int64_t cols;
    Buffer values, scales;

    Rows(bool is_quantized, int64_t width) : quantized(is_quantized), cols(width) {}
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

inline void add_lanes(const Rows& from, const Rows& to, std::vector<Lane>& lanes) {
    lanes.push_back({from.values.get(), to.values.get(), from.value_bytes()});
    if (from.quantized) lanes.push_back({from.scales.get(), to.scales.get(), from.scale_bytes()});
}

inline mxq::tensor plain(int64_t rows, int64_t cols, const Buffer& buffer) {
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
        : x(quantized, shape.width),
          sent(quantized, shape.width),
          arrived_x(quantized, shape.width),
          arrived_dy(quantized, shape.width) {}
};
