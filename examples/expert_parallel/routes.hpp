// How rows travel: what a row has with it, who sends how many of them to whom, and where they lie.
#pragma once

#include <algorithm>
#include <vector>

#include "layer.hpp"

// Rows of tokens: codes and scales along the row, or BF16.
struct Rows {
    mxq_format format;
    mxq_scaling scaling;
    int64_t cols;
    Buffer values, scales;

    Rows(const Recipe& recipe, int64_t width)
        : format(recipe.format), scaling(recipe.quantized() ? recipe.rows : MXQ_SCALING_NONE), cols(width) {}
    mxq::tensor unset(int64_t rows) const {
        mxq::tensor t(format, rows, cols);
        return scaling == MXQ_SCALING_NONE ? std::move(t) : std::move(t).set_scaling(scaling);
    }
    int64_t value_bytes() const { return scaling == MXQ_SCALING_NONE ? cols * int64_t(sizeof(bf16)) : cols; }
    int64_t scale_bytes() const { return int64_t(unset(1).required_bytes(MXQ_PART_ROWWISE).scales); }
    void reserve(int64_t rows) {
        values.reserve(uint64_t(rows * value_bytes()));
        scales.reserve(uint64_t(rows * scale_bytes()));
    }
    mxq::tensor tensor(int64_t rows) const {
        const auto bytes = uint64_t(rows * value_bytes());
        mxq::tensor t = unset(rows);
        return scaling == MXQ_SCALING_NONE ? std::move(t).set_data(values.get(), bytes)
                                           : std::move(t).set_part(MXQ_PART_ROWWISE, values.get(), bytes, scales.get(),
                                                                   uint64_t(rows * scale_bytes()));
    }
};

// A row as it travels: values with their scales, and a tail of numbers, both at multiples of 16 bytes.
struct Record {
    int64_t values, scales = 0, tail = 0;
    int64_t tail_at() const { return (values + scales + 15) / 16 * 16; }
    int64_t bytes() const { return tail_at() + (tail + 15) / 16 * 16; }
    // Returns the fields of a row's values and scales, from rows to records or back.
    std::vector<Field> to_records(const void* row_values, const void* row_scales, void* records) const {
        auto* to = static_cast<std::byte*>(records);
        std::vector<Field> fields{{row_values, values, to, bytes(), values}};
        if (scales > 0) fields.push_back({row_scales, scales, to + values, bytes(), scales});
        return fields;
    }
    std::vector<Field> from_records(const void* records, const Rows& rows) const {
        const auto* from = static_cast<const std::byte*>(records);
        std::vector<Field> fields{{from, bytes(), rows.values.get(), values, values}};
        if (scales > 0) fields.push_back({from + values, bytes(), rows.scales.get(), scales, scales});
        return fields;
    }
    // Returns numbers that lie in records, `at` bytes from their start.
    mxq::tensor numbers(mxq_format numbers_format, int64_t rows, int64_t cols, const Buffer& records, int64_t at) const {
        const int64_t element = numbers_format == MXQ_FORMAT_F32 ? sizeof(float) : sizeof(bf16);
        return mxq::tensor(numbers_format, rows, cols)
            .set_row_stride(bytes() / element)
            .set_data(records.as<std::byte>() + at, uint64_t(std::max<int64_t>(rows * bytes() - at, 0)));
    }
};

// Who sends which rows where. Row numbers are those of the sender's rows, by receiver, and of the receiver's, by sender.
struct Routes {
    std::vector<Segment> out, in;
    std::vector<int32_t> ends;  // of the rows of the rank's experts, where the host knows them
    int64_t sent = 0, arrived = 0, expert_rows = 0;
};

// Each rank gives one row after another of `counts`: how many tokens go to each rank, then how many choices each expert has,
// both as running sums.
Routes routes_of_tokens(const std::vector<int32_t>& counts, int rank, int ranks, int32_t experts);
// Each rank gives how many choices each expert has, as running sums. A message for each expert and rank.
Routes routes_of_choices(const std::vector<int32_t>& counts, int rank, int ranks, int32_t experts);
// As many rows for each pair of ranks, used or not.
Routes routes_of_capacity(int32_t capacity, int ranks, int32_t top);
