// Rows by index for implementations that do not read them: the rows are gathered into memory before the implementation runs.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "core/layer_problem.h"

namespace mxq {

// Returns the gather of rows by index into rows of whole 16-byte vectors at `to`, and clears the indices.
inline GatherProblem take_rows(const void* from, int64_t from_stride, int64_t rows, int64_t row_bytes, RowIndices& by_index,
                               uint8_t* to) {
    return {static_cast<const uint8_t*>(from), to, from_stride, round_up(row_bytes, 16), rows, row_bytes,
            std::exchange(by_index, {})};
}

// Return the gather of an input, and replace it by the rows that are gathered.
inline GatherProblem take_rows(PlainMatrix& matrix, RowIndices& by_index, uint8_t* to) {
    const int64_t element = matrix.element_bytes();
    const GatherProblem gather =
        take_rows(matrix.data, matrix.row_stride * element, matrix.rows, matrix.cols * element, by_index, to);
    matrix.data = to;
    matrix.row_stride = gather.to_stride / element;
    return gather;
}

inline GatherProblem take_rows(GemmOperand& operand, RowIndices& by_index, uint8_t* to) {
    const int64_t rows = operand.across ? operand.length : operand.lines,
                  cols = operand.across ? operand.lines : operand.length;
    const GatherProblem gather = take_rows(operand.codes, operand.line_bytes, rows, cols * operand.bits / 8, by_index, to);
    operand.codes = to;
    operand.line_bytes = gather.to_stride;
    operand.matrix_bytes = rows * gather.to_stride;
    return gather;
}

inline GatherProblem take_rows(PadProblem& problem, uint8_t* to) {
    PadProblem::Part& part = problem.parts[0];
    const GatherProblem gather =
        take_rows(part.in.codes, part.in.line_stride, problem.grouped.rows, part.line_bytes, problem.by_index, to);
    part.in.codes = to;
    part.in.line_stride = gather.to_stride;
    return gather;
}

// Calls take(gather_of) for each input with rows by index, where gather_of(to) gathers it.
template <class Problem, class Take>
void for_each_indexed(Problem&, const Take&) {}
template <class Take>
void for_each_indexed(QuantizeProblem& p, const Take& take) {
    if (p.by_index.set) take([&](uint8_t* to) { return take_rows(p.source.plain, p.by_index, to); });
}
template <class Take>
void for_each_indexed(AmaxProblem& p, const Take& take) {
    for_each_indexed(p.quantize, take);
}
template <class Take>
void for_each_indexed(ConvertProblem& p, const Take& take) {
    if (p.by_index.set) take([&](uint8_t* to) { return take_rows(p.in, p.by_index, to); });
}
template <class Take>
void for_each_indexed(PadProblem& p, const Take& take) {
    if (p.by_index.set) take([&](uint8_t* to) { return take_rows(p, to); });
}
template <class Take>
void for_each_indexed(GemmProblem& p, const Take& take) {
    if (p.a_by_index.set) take([&](uint8_t* to) { return take_rows(p.a, p.a_by_index, to); });
    if (p.b_by_index.set) take([&](uint8_t* to) { return take_rows(p.b, p.b_by_index, to); });
}

// A problem whose rows by index are gathered into memory, and these gathers.
template <class Problem>
class Gathered {
public:
    // The memory may be NULL, for its size and for a query.
    Gathered(const Problem& given, void* memory) {
        Problem problem = given;
        for_each_indexed(problem, [&](const auto& gather_of) {
            const GatherProblem gather = gather_of(memory ? static_cast<uint8_t*>(memory) + bytes_ : nullptr);
            gathers_[count_++] = gather;
            bytes_ += aligned_bytes(gather.bytes());
        });
        if (count_ > 0) problem_ = problem;
    }

    bool any() const { return count_ > 0; }
    const Problem& problem() const { return *problem_; }
    uint64_t bytes() const { return bytes_; }
    std::span<const GatherProblem> gathers() const { return {gathers_.data(), count_}; }

private:
    std::optional<Problem> problem_;
    std::array<GatherProblem, 2> gathers_;
    size_t count_ = 0;
    uint64_t bytes_ = 0;
};

}  // namespace mxq
