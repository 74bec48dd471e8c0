// Products: operands, D before the call, and every element of D with the terms of its bound.
#include "problem.h"
#include "values.h"

namespace search {
namespace {

// An operand with its values. Ungrouped they are lines of the contraction, (matrices, outer, k); grouped they are its rows,
// (rows, cols) without padding.
oracle::Floats add_operand(Problem& problem, const TensorPlan& tensor, int32_t part, const Values& values) {
    const oracle::Shape shape = tensor.dims.shape();
    if (tensor.side.plain()) {
        const Bytes dense = draw_plain(values, tensor.spec, tensor.side.format, shape);
        add_plain(problem, tensor, dense);
        return oracle::load(tensor.side.format, dense.data(), shape.count());
    }
    oracle::Floats out;
    for (int32_t each : both_parts) {
        if (!(tensor.side.parts & each)) continue;
        const oracle::Part stored = draw_part(problem.call, tensor, each, values);
        add_part(problem, tensor, each, stored, each == part);
        if (each != part) continue;
        out = tensor.side.grouped ? oracle::dequantize_groups(tensor.spec, stored, shape.rows, shape.cols, groups_of(problem.call, tensor.side), each,
                                                              tensor.side.swizzled)
                                  : oracle::lines(tensor.spec, stored, shape, each, tensor.side.swizzled);
    }
    return out;
}

oracle::Floats slice(const oracle::Floats& from, int64_t first, int64_t count) {
    return {from.begin() + first, from.begin() + first + count};
}

// Cuts a product into its pieces, without their sums.
std::vector<Piece> pieces_of(const Call& call, const TensorPlan& d, const oracle::Floats& a, const oracle::Floats& b) {
    const int64_t m = call.m(), n = call.n(), k = call.k();
    if (call.verb == "gemm") return {{0, m, k, a, b, {}, {}, {}}};
    const oracle::Ends ends = call.ends();
    const std::vector<int64_t> starts = oracle::padded_starts(ends, d.side.grouped ? d.side.rowwise : 1);
    std::vector<Piece> out;
    for (size_t g = 0; g < ends.size(); ++g) {
        const int64_t rows = oracle::group_rows(ends, g), first = ends[g] - rows, number = static_cast<int64_t>(g);
        if (call.contracts_groups())
            out.push_back({number * m, m, rows, oracle::transposed(a.data() + first * m, rows, m), oracle::transposed(b.data() + first * n, rows, n), {}, {}, {}});
        else out.push_back({starts[g], rows, k, slice(a, first * k, rows * k), slice(b, number * n * k, n * k), {}, {}, {}});
    }
    return out;
}

// The rows of D as it stores them, padding of groups included.
int64_t stored_rows(const Call& call, const TensorPlan& d) {
    if (d.side.grouped) return oracle::padded_bound(d.dims.rows, call.group_count(), d.side.rowwise);
    return d.dims.shape().experts * d.dims.rows;
}

// Adds D's buffer and returns its values before the call. Where they must not be read they are NaN.
oracle::Floats add_d(Problem& problem, const TensorPlan& d, const oracle::More& more) {
    const Call& call = problem.call;
    const int64_t rows = stored_rows(call, d), n = d.dims.cols;
    const Values values{call.values.kind == "planted" ? "planted" : "normal", call.values.seed + 9, {}};
    Bytes dense = draw_plain(values, {}, d.side.format, {1, rows, n});
    if (more.beta == 0) dense.assign(dense.size(), oracle::untouchable);
    Bytes after = dense;
    if (d.side.grouped && more.beta == 0) {  // the padding of groups becomes +0
        const oracle::Ends ends = call.ends();
        const auto starts = oracle::padded_starts(ends, d.side.rowwise);
        const int64_t row = n * oracle::plain_bytes(d.side.format);
        for (size_t g = 0; g < ends.size(); ++g)
            std::fill(after.begin() + (starts[g] + oracle::group_rows(ends, g)) * row, after.begin() + starts[g + 1] * row, uint8_t{0});
    }
    const Bytes all(dense.size(), 1);
    problem.images["d.data"] = {with_gaps(d, dense, all, oracle::untouchable), with_gaps(d, after, all, oracle::untouchable),
                                oracle::plain_bytes(d.side.format), true};
    return oracle::load(d.side.format, dense.data(), static_cast<size_t>(rows * n));
}

// Adds the bias and returns its numbers, zeros without one.
oracle::Floats add_bias(Problem& problem) {
    const Call& call = problem.call;
    const int64_t rows = call.verb == "grouped_gemm" ? call.group_count() : 1;
    const auto count = static_cast<size_t>(rows * call.n());
    if (!call.bias) return oracle::Floats(count, 0.0f);
    const Bytes bytes = draw_plain({"normal", call.second_values.seed + 5, {}}, {}, call.bias, {1, rows, call.n()});
    problem.images["bias"] = {bytes, bytes, oracle::plain_bytes(call.bias)};
    return oracle::load(call.bias, bytes.data(), count);
}

void add_sums(const Call& call, Piece& piece, const oracle::More& more, const float* previous, const float* bias) {
    const int64_t n = call.n();
    piece.sums = oracle::product(piece.a.data(), piece.k, piece.b.data(), piece.k, piece.rows, n, piece.k);
    const bool only_adds = more.alpha == 1 && more.beta == 1 && !more.bias && call.d.format == MXQ_FORMAT_F32;
    for (size_t i = 0; i < piece.sums.size(); ++i) {
        oracle::Element& e = piece.sums[i];
        e = oracle::with_more(e, more, previous[i], bias[i % static_cast<size_t>(n)]);
        if (only_adds) e.below = 0;
        if (more.alpha == 0 && e.nan) e.nan = e.promised = false;  // open in the contract
    }
}

}  // namespace

void add_product(Problem& problem) {
    const Call& call = problem.call;
    const int64_t m = call.m(), n = call.n(), k = call.k();
    const bool a_t = call.transpose_a == MXQ_TRANSPOSE_T, b_t = call.transpose_b == MXQ_TRANSPOSE_T;
    const std::optional<int64_t> groups = call.groups ? std::optional(call.group_count()) : std::nullopt, none;
    const bool contracts = call.contracts_groups();
    problem.tensors = {
        {"a", call.first, spec_of(call, call.first, false), a_t ? testing::Dims{none, k, m} : testing::Dims{none, m, k}},
        {"b", call.second, spec_of(call, call.second, false), b_t ? testing::Dims{contracts ? none : groups, n, k} : testing::Dims{contracts ? none : groups, k, n}},
        {"d", call.d, spec_of(call, call.d, false), {contracts ? groups : none, m, n}}};
    const oracle::Floats a = add_operand(problem, problem.tensors[0], a_t ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE, call.values);
    const oracle::Floats b = add_operand(problem, problem.tensors[1], b_t ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, call.second_values);

    const oracle::More more{call.alpha, call.accumulate ? 1.0f : call.beta, call.bias != 0};
    const oracle::Floats previous = add_d(problem, problem.tensors[2], more), bias = add_bias(problem);
    problem.pieces = pieces_of(call, problem.tensors[2], a, b);
    for (size_t g = 0; g < problem.pieces.size(); ++g)
        add_sums(call, problem.pieces[g], more, previous.data() + problem.pieces[g].first_row * n,
                 bias.data() + (contracts ? 0 : static_cast<int64_t>(g) * n));
}

}  // namespace search
