// Products: operands, D before the call, and the pieces of D that the call computes.
#include "problem.h"
#include "values.h"

namespace search {
namespace {

// Return which part of an operand the product reads.
int32_t part_of_a(const Call& call) { return call.transpose_a == MXQ_TRANSPOSE_T ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE; }
int32_t part_of_b(const Call& call) {
    return call.transpose_b == MXQ_TRANSPOSE_T || call.reads_b_by_rows() ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
}

// Returns the values of groups along the contraction, one after another: (rows_of_values, cols) each.
oracle::Floats contracted_values(const Call& call, const TensorPlan& tensor, const oracle::Part& stored) {
    const oracle::Shape shape = tensor.dims.shape();
    const oracle::Groups groups = groups_of(call, tensor.side);
    const oracle::GroupLayout layout(tensor.spec, shape.rows, shape.cols, groups, MXQ_PART_COLUMNWISE, tensor.side.swizzled);
    const oracle::Floats scales = oracle::decode_scales(tensor.spec, stored);
    oracle::Floats out;
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        const int64_t rows = rows_of_values(tensor.spec, oracle::group_rows(groups.ends, g));
        const oracle::Floats lines = oracle::decode_matrix(tensor.spec, stored.codes.data(), stored.scales.data(), layout.placement(g),
                                                           shape.cols, rows, scales[scales.size() > 1 ? g : 0]);
        const oracle::Floats one = oracle::transposed(lines.data(), shape.cols, rows);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// Returns each (rows, cols) matrix as (cols, rows).
oracle::Floats each_transposed(const oracle::Floats& x, const oracle::Shape& shape) {
    oracle::Floats out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        const oracle::Floats one = oracle::transposed(x.data() + e * shape.rows * shape.cols, shape.rows, shape.cols);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// Adds an operand and returns its values, transformed ones as they are. Ungrouped they are lines of the contraction,
// (matrices, outer, k); grouped they are its rows, (rows, cols) without padding, but those of contracted_values.
oracle::Floats add_operand(Problem& problem, const TensorPlan& tensor, int32_t part, const Values& values,
                           oracle::Part& read) {
    const oracle::Shape shape = tensor.dims.shape();
    if (tensor.side.plain()) {
        const Bytes dense = draw_plain(values, tensor.spec, tensor.side.format, shape);
        add_plain(problem, tensor, dense);
        if (tensor.side.grouped) return oracle::load(tensor.side.format, dense.data(), shape.count());
        return oracle::operand_lines(tensor.spec, {dense, {}, {}, {}}, shape, part);
    }
    for (int32_t each : both_parts) {
        if (!(tensor.side.parts & each)) continue;
        oracle::Part stored = draw_part(problem.call, tensor, each, values);
        add_part(problem, tensor, each, stored, each == part);
        if (each == part) read = std::move(stored);
    }
    if (!tensor.side.grouped) return oracle::lines(tensor.spec, read, shape, part, tensor.side.swizzled);
    if (part == MXQ_PART_COLUMNWISE) return contracted_values(problem.call, tensor, read);
    return oracle::dequantize_groups(oracle::untransformed(tensor.spec), read, shape.rows, shape.cols,
                                     groups_of(problem.call, tensor.side), part, tensor.side.swizzled);
}

oracle::Floats slice(const oracle::Floats& from, int64_t first, int64_t count) {
    return {from.begin() + first, from.begin() + first + count};
}

// The rows of D as it stores them, padding of groups included.
int64_t stored_rows(const Call& call, const TensorPlan& d) {
    if (d.side.grouped) return oracle::padded_bound(d.dims.rows, call.group_count(), d.side.rowwise);
    return d.dims.shape().experts * d.dims.rows;
}

// Adds D's buffer and returns its values before the call. Where they must not be read they are NaN.
oracle::Floats add_d(Problem& problem, const TensorPlan& d, bool is_read) {
    const Call& call = problem.call;
    const int64_t rows = stored_rows(call, d), n = d.dims.cols;
    const Values values{call.values.kind == "planted" ? "planted" : "normal", call.values.seed + 9, {}};
    Bytes dense = draw_plain(values, {}, d.side.format, {1, rows, n});
    if (!is_read) dense.assign(dense.size(), oracle::untouchable);
    Bytes after = dense;
    if (d.side.grouped && !is_read) {  // the padding of groups becomes +0
        const oracle::Ends ends = call.ends();
        const auto starts = oracle::padded_starts(ends, d.side.rowwise);
        const int64_t row = n * oracle::plain_bytes(d.side.format);
        for (size_t g = 0; g < ends.size(); ++g)
            std::fill(after.begin() + (starts[g] + oracle::group_rows(ends, g)) * row, after.begin() + starts[g + 1] * row,
                      uint8_t{0});
    }
    const Bytes all(dense.size(), 1);
    problem.images["d.data"] = {with_gaps(d, dense, all, oracle::untouchable), with_gaps(d, after, all, oracle::untouchable),
                                oracle::plain_bytes(d.side.format), true};
    return oracle::load(d.side.format, dense.data(), static_cast<size_t>(rows * n));
}

int64_t count_of_biases(const Call& call) { return call.verb == "grouped_gemm" ? call.group_count() : 1; }

// Adds the bias and returns its numbers, zeros without one.
oracle::Floats add_bias(Problem& problem) {
    add_bias_image(problem);
    const auto elements = static_cast<size_t>(count_of_biases(problem.call) * problem.call.n());
    if (!problem.call.bias) return oracle::Floats(elements, 0.0f);
    return oracle::load(problem.call.bias, problem.images.at("bias").before.data(), elements);
}

// Cuts a product into its pieces: one, or one for each group.
std::vector<Piece> pieces_of(const Call& call, const oracle::Spec& spec_of_a, const TensorPlan& d, const oracle::Floats& a,
                             const oracle::Floats& b) {
    const int64_t m = call.m(), n = call.n(), k = call.k();
    int64_t contracted = 0;  // rows of values of the groups before
    if (call.verb == "gemm") return {{0, m, k, {a, m}, {b, n}, {}, {}, {}}};
    const oracle::Ends ends = call.ends();
    const std::vector<int64_t> starts = oracle::padded_starts(ends, d.side.grouped ? d.side.rowwise : 1);
    std::vector<Piece> out;
    for (size_t g = 0; g < ends.size(); ++g) {
        const int64_t rows = oracle::group_rows(ends, g), first = ends[g] - rows, number = static_cast<int64_t>(g);
        const int64_t depth = rows_of_values(spec_of_a, rows);
        if (call.contracts_groups()) {
            out.push_back({number * m,
                           m,
                           depth,
                           {oracle::transposed(a.data() + contracted * m, depth, m), m, g},
                           {oracle::transposed(b.data() + contracted * n, depth, n), n, g},
                           {},
                           {},
                           {}});
            contracted += depth;
        } else {
            out.push_back({starts[g],
                           rows,
                           k,
                           {slice(a, first * k, rows * k), rows, g},
                           {slice(b, number * n * k, n * k), n, g},
                           {},
                           {},
                           {}});
        }
    }
    return out;
}

}  // namespace

std::vector<TensorPlan> product_tensors(const Call& call) {
    const int64_t m = call.m(), n = call.n(), k = call.k();
    const bool a_t = call.transpose_a == MXQ_TRANSPOSE_T, b_t = call.transpose_b == MXQ_TRANSPOSE_T,
               contracts = call.contracts_groups();
    const std::optional<int64_t> none, groups = call.groups ? std::optional(call.group_count()) : none,
                                       of_b = contracts ? none : groups;
    return {
        {"a", call.first, spec_of(call, call.first, false), a_t ? testing::Dims{none, k, m} : testing::Dims{none, m, k}},
        {"b", call.second, spec_of(call, call.second, false), b_t ? testing::Dims{of_b, n, k} : testing::Dims{of_b, k, n}},
        {"d", call.d, spec_of(call, call.d, false), {contracts ? groups : none, m, n}}};
}

oracle::Placement placement_of(const Problem& problem, const Piece& piece, Operand which) {
    const Call& call = problem.call;
    const TensorPlan& tensor = problem.tensors[which == Operand::a ? 0 : 1];
    const int32_t part = which == Operand::a ? part_of_a(call) : part_of_b(call);
    const size_t matrix = which == Operand::a ? piece.a.matrix : piece.b.matrix;
    if (tensor.side.plain()) return {};
    const oracle::Shape shape = tensor.dims.shape(), lines = oracle::line_shape(shape, part);
    if (!tensor.side.grouped)
        return oracle::placement_of(tensor.spec, static_cast<int64_t>(matrix), lines.rows, lines.cols, tensor.side.swizzled);
    return oracle::GroupLayout(tensor.spec, shape.rows, shape.cols, groups_of(call, tensor.side), part, tensor.side.swizzled)
        .placement(matrix);
}

void add_bias_image(Problem& problem) {
    const Call& call = problem.call;
    if (!call.bias) return;
    const Bytes bytes =
        draw_plain({"normal", call.second_values.seed + 5, {}}, {}, call.bias, {1, count_of_biases(call), call.n()});
    problem.images["bias"] = {bytes, bytes, oracle::plain_bytes(call.bias)};
}

void add_product(Problem& problem) {
    const Call& call = problem.call;
    const int64_t n = call.n();
    const TensorPlan &a = problem.tensors[0], &b = problem.tensors[1], &d = problem.tensors[2];
    const oracle::Floats a_values = add_operand(problem, a, part_of_a(call), call.values, problem.stored[0]);
    oracle::Floats b_values = add_operand(problem, b, part_of_b(call), call.second_values, problem.stored[1]);
    if (call.reads_b_by_rows()) b_values = each_transposed(b_values, b.dims.shape());
    const oracle::Floats previous = add_d(problem, d, call.beta != 0 || call.accumulate);
    const oracle::Floats bias = add_bias(problem);
    problem.pieces = pieces_of(call, a.spec, d, a_values, b_values);
    for (Piece& piece : problem.pieces) {
        piece.previous = slice(previous, piece.first_row * n, piece.rows * n);
        piece.bias = slice(bias, call.contracts_groups() ? 0 : static_cast<int64_t>(piece.b.matrix) * n, call.bias ? n : 0);
    }
}

}  // namespace search
