// Plain tensors whose rows are by index.
#include "problem.h"

#include <algorithm>

namespace search {

namespace {

Image image_of(const Bytes& bytes, int64_t element) { return {bytes, bytes, element}; }

}  // namespace

int64_t source_rows_of(const TensorPlan& tensor) { return tensor.dims.rows + tensor.side.indexed - 1; }
int32_t index_type_of(const TensorPlan& tensor) { return tensor.side.indexed % 2 ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64; }

// Adds rows by index: they lie in another order, among rows that nobody may read; rows of +0 may have no row of their own.
void add_indexed(Problem& problem, const TensorPlan& tensor, const Bytes& dense) {
    const int64_t rows = tensor.dims.rows, source = source_rows_of(tensor), element = oracle::plain_bytes(tensor.side.format);
    const auto row_bytes = static_cast<size_t>(tensor.dims.cols * element);
    const size_t index_bytes = index_type_of(tensor) == MXQ_TYPE_INT32 ? 4 : 8;
    cases::Random random(problem.call.values.seed + 17);
    std::vector<int64_t> order(static_cast<size_t>(source));
    for (size_t i = 0; i < order.size(); ++i) {
        order[i] = static_cast<int64_t>(i);
        std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    }
    Bytes stored(static_cast<size_t>(source) * row_bytes, oracle::untouchable), indices(static_cast<size_t>(rows) * index_bytes);
    for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
        const auto first = dense.begin() + static_cast<std::ptrdiff_t>(i * row_bytes), last = first + static_cast<std::ptrdiff_t>(row_bytes);
        const bool is_zero = std::all_of(first, last, [](uint8_t byte) { return byte == 0; });
        int64_t index = is_zero && random.below(2) ? -1 : order[i];
        if (index >= 0) std::copy(first, last, stored.begin() + index * static_cast<int64_t>(row_bytes));
        std::memcpy(&indices[i * index_bytes], &index, index_bytes);  // the low half of a number below 2^31, or of -1
    }
    const Bytes all(stored.size(), 1);
    problem.images[tensor.name + ".data"] = image_of(with_gaps(tensor, stored, all, oracle::untouchable), element);
    problem.images[tensor.name + ".row_indices"] = image_of(indices, static_cast<int64_t>(index_bytes));
}

}  // namespace search
