// Validates gemm and grouped_gemm.
#include <string_view>
#include <utility>

#include "core/groups.h"
#include "core/validate.h"
#include "core/views.h"

namespace mxq {
namespace {

GemmOperand read_across(GemmOperand stored) {
    std::swap(stored.lines, stored.length);
    stored.across = true;
    return stored;
}

GemmOperand plain_rows(const mxq_tensor& t, const char* name, Buffers& buffers, RowIndices& by_index) {
    const PlainMatrix plain = indexed_view(t, name, buffers, by_index);
    GemmOperand operand{};
    operand.codes = static_cast<uint8_t*>(plain.data);
    operand.matrices = plain.matrices;
    operand.lines = t.groups.set ? padded_rows_bound(t.rows, t.groups.count, plain.group_unit) : plain.rows;
    operand.length = plain.cols;
    operand.line_bytes = plain.row_stride * (t.format->bits / 8);
    operand.matrix_bytes = operand.lines * operand.line_bytes;
    operand.units = {plain.group_unit, 1};
    operand.element = t.format->element;
    operand.bits = t.format->bits;
    operand.scale_type = ScaleType::None;
    operand.layout.block = MXQ_MAX_DIM;
    operand.layout.tile_rows = operand.layout.group_rows = 1;
    operand.format = t.format->id;
    operand.addresses = plain.addresses;
    return operand;
}

GemmOperand gemm_operand(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers, Check check,
                         RowIndices& by_index) {
    if (!t.format->quantized()) {
        const GemmOperand rows = plain_rows(t, name, buffers, by_index);
        return part == MXQ_PART_ROWWISE ? rows : read_across(rows);
    }
    if (!t.part(part).declared && !(declares_none(t) && check == Check::Query))
        fail(MXQ_STATUS_MISSING_BUFFER,
             "%s declares no %s part, which this transpose reads; quantize one (blocks along the contraction) or set another "
             "transpose",
             name, part_name(part));
    const QuantizedPart view = part_view(t, part, name, buffers, Access::Read);
    add_global_scale(t, part, name, buffers);
    return {view, t.format->id, t.tile().lines, false};
}

struct Transposes {
    bool a, b;  // true: transposed
};

Transposes transposes(const mxq_gemm_options& options) {
    return {options.transpose_a == MXQ_TRANSPOSE_T, options.transpose_b == MXQ_TRANSPOSE_T};
}

// Returns whether the rowwise part of b is read instead of the columnwise one: in the gradient of a layer's input, where
// weights have no columnwise part.
bool is_read_by_rows(const Transposes& transposed, const mxq_tensor& b) {
    return !transposed.a && !transposed.b && b.format->quantized() && b.rowwise.declared && !b.columnwise.declared;
}

GemmOperand rows_of_weights(const mxq_tensor& b, Buffers& buffers, Check check) {
    if (b.rowwise.transformed)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "b declares no columnwise part, and b.rowwise has %s, which runs across this contraction and does not cancel, "
             "expected none; quantize a columnwise part",
             hadamard_text(true, b.rowwise.hadamard_mask).c_str());
    RowIndices none;
    return read_across(gemm_operand(b, MXQ_PART_ROWWISE, "b", buffers, check, none));
}

void require_2d(const mxq_tensor& t, const char* name, const char* remedy) {
    if (t.is_3d)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "%s is %s, expected 2 dimensions; %s", name, shape_text(t).c_str(), remedy);
}

void require_3d(const mxq_tensor& t, const char* name, int64_t matrices) {
    if (!t.is_3d || t.experts != matrices)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "%s is %s, expected 3 dimensions with a matrix for each of a's %lld groups; %s", name,
             shape_text(t).c_str(), (long long)matrices,
             t.is_3d ? "create it as experts x rows x cols, or check the number of ends" : "use mxq_tensor_create_3d");
}

void require_product_shapes(const mxq_tensor& a, const mxq_tensor& b, const mxq_tensor& d, int64_t a_k, int64_t b_k,
                            int64_t m, int64_t n) {
    if (a_k != b_k)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "op(a) contracts over %lld and op(b) over %lld, expected the same (a is %s, b is %s); check the transposes",
             (long long)a_k, (long long)b_k, shape_text(a).c_str(), shape_text(b).c_str());
    if (d.rows != m || d.cols != n)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "d is %s, expected %lld x %lld; create it so, or check the transposes",
             shape_text(d).c_str(), (long long)m, (long long)n);
}

// Names how many elements along the contraction share a scale, which both operands must agree on. NULL for plain operands,
// which go with any.
const char* blocking(const mxq_tensor& t) {
    if (!t.format->quantized()) return nullptr;
    if (t.format->is_fp8()) return t.tile().length == 0 ? "ROW or TENSOR scales (fp8)" : "blocks of 128 (fp8)";
    return t.format->is_mx() ? "blocks of 32 (MX)" : "blocks of 16 (nvfp4)";
}

// Returns whether a is FP8, whose fp32 scales multiply sums, and b has scales of blocks, which multiply codes: their blocks do
// not meet.
bool is_fp8_with_blocks(const mxq_tensor& a, const mxq_tensor& b) {
    return a.format->is_fp8() && (b.format->is_mx() || b.format->is_nvfp4());
}

void require_gemm_formats(const mxq_gemm_options& options, const mxq_tensor& a, const mxq_tensor& b, const mxq_tensor& d) {
    const char *of_a = blocking(a), *of_b = blocking(b);
    if (of_a && of_b && std::string_view(of_a) != of_b && !is_fp8_with_blocks(a, b))
        fail(MXQ_STATUS_UNSUPPORTED,
             "a is %s with %s and b is %s with %s, expected the same blocks along the contraction, or fp8 for a with an MX "
             "or nvfp4 b; requantize one of them",
             a.format->name, of_a, b.format->name, of_b);
    require_plain(d, "d");
    if (options.accumulate && d.format->id != MXQ_FORMAT_F32)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "d is %s, expected f32, the only one that accumulate adds into; use one, or set a beta of 1 instead",
             d.format->name);
}

// Refuses operands with different Hadamard transforms. The same orthogonal transform of both cancels in their product; any
// other pair multiplies to noise.
void require_hadamard_of_both(const GemmProblem& p) {
    if (p.a.transformed == p.b.transformed && p.a.hadamard_mask == p.b.hadamard_mask) return;
    const auto is_plain = [](const GemmOperand& operand) { return operand.scale_type == ScaleType::None; };
    if (is_plain(p.a) || is_plain(p.b)) {
        const bool a = is_plain(p.a);
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %s, and %s has %s, which cancels only where both have it; quantize %s with it "
             "(mxq_tensor_set_hadamard), or take "
             "%s without",
             a ? "a" : "b", find_format(a ? p.a.format : p.b.format)->name, a ? "b" : "a",
             hadamard_text(true, a ? p.b.hadamard_mask : p.a.hadamard_mask).c_str(), a ? "a" : "b", a ? "b" : "a");
    }
    const auto name = [](const GemmOperand& operand) {
        return part_name(operand.columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE);
    };
    fail(MXQ_STATUS_INVALID_ARGUMENT,
         "a.%s has %s and b.%s %s, expected the same, which cancels along the contraction; quantize both so, and call "
         "mxq_tensor_set_hadamard",
         name(p.a), hadamard_text(p.a.transformed, p.a.hadamard_mask).c_str(), name(p.b),
         hadamard_text(p.b.transformed, p.b.hadamard_mask).c_str());
}

Bias bias_view(const mxq_gemm_options& options, const GemmProblem& p, Buffers& buffers) {
    if (options.bias.format == 0) return {};
    if (p.grouping == Grouping::Contraction)
        fail(MXQ_STATUS_UNSUPPORTED,
             "options has a bias and the groups run along the contraction, expected none there, where D is a gradient; take "
             "it back with mxq_gemm_options_set_bias");
    const int64_t rows = p.grouping == Grouping::Rows ? p.groups.count : 1;
    return numbers_view(options.bias, rows, p.n, "bias", "mxq_gemm_options_set_bias", buffers);
}

// Returns the ends of a's groups in host memory, or NULL where a has none. Their values are checked, since the ends on the
// device are never read by the host.
const void* host_ends(const mxq_tensor& a, const Groups& groups, Buffers& buffers) {
    if (!a.host_ends) return nullptr;
    const uint64_t element = groups.end_bytes();
    Groups on_host = groups;
    on_host.ends = a.host_ends;
    buffers.add_read({"a", nullptr, "host_ends"}, a.host_ends, element * uint64_t(groups.count), element,
                     "mxq_tensor_set_host_ends");
    int64_t before = 0;
    for (int64_t g = 0; g < groups.count; g++) {
        const int64_t end = read_end(on_host, g);
        if (end < before || end > a.rows)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "a.host_ends[%lld] is %lld, expected %lld (the end before) to %lld (the rows of a); give those of a.ends, or "
                 "none",
                 (long long)g, (long long)end, (long long)before, (long long)a.rows);
        before = end;
    }
    require_covered({on_host, a.rows}, before, "a.host_ends");
    return a.host_ends;
}

// Returns the problem of a dense or grouped product whose shapes are known to fit.
GemmProblem gemm_problem(const mxq_gemm_options& options, const mxq_tensor& a, const mxq_tensor& b, const mxq_tensor& d,
                         Grouping grouping, Buffers& buffers, Check check) {
    const auto [transpose_a, transpose_b] = transposes(options);
    GemmProblem p{};
    p.a = gemm_operand(a, transpose_a ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE, "a", buffers, check,
                       p.a_by_index);
    p.b = is_read_by_rows(transposes(options), b)
              ? rows_of_weights(b, buffers, check)
              : gemm_operand(b, transpose_b ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, "b", buffers, check, p.b_by_index);
    require_hadamard_of_both(p);
    p.d = plain_view(d, "d", buffers, Access::Write);
    p.grouping = grouping;
    p.groups = a.groups;
    p.groups.cover_rows |= b.groups.cover_rows || d.groups.cover_rows;
    p.group_rows = a.rows;
    p.m = transpose_a ? a.cols : a.rows;
    p.n = p.b.lines;
    p.k = p.a.length;
    p.alpha = options.alpha;
    p.beta = options.accumulate ? 1.0f : options.beta;
    p.bias = bias_view(options, p, buffers);
    p.exact_products = options.exact_products;
    p.sm_count = options.sm_count;
    p.row_invariant = options.row_invariant;
    if (p.row_invariant && grouping == Grouping::Contraction)
        fail(MXQ_STATUS_UNSUPPORTED,
             "options asks for rows that are invariant and the groups run along the contraction, expected groups of rows or "
             "none, since these sums run over rows; take it back with mxq_gemm_options_set_row_invariant");
    p.host_ends = host_ends(a, p.groups, buffers);
    buffers.check_overlaps();
    return p;
}

// Holds the arguments of gemm or grouped_gemm, none of which is NULL.
struct GemmCall {
    const mxq_gemm_options& options;
    const mxq_tensor &a, &b, &d;
};

GemmCall require_call(const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b, const mxq_tensor* d) {
    const GemmCall call{options_or_default(options), require(a, "a"), require(b, "b"), require(d, "d")};
    require_gemm_formats(call.options, call.a, call.b, call.d);
    return call;
}

}  // namespace

GemmProblem validate_gemm(const Context& context, const mxq_gemm_options* given, const mxq_tensor* a_tensor,
                          const mxq_tensor* b_tensor, const mxq_tensor* d_tensor, Check check) {
    const auto [options, a, b, d] = require_call(given, a_tensor, b_tensor, d_tensor);
    require_2d(a, "a", "use mxq_grouped_gemm");
    require_2d(b, "b", "use mxq_grouped_gemm");
    require_2d(d, "d", "use mxq_grouped_gemm");
    require_no_groups(a, "a", "use mxq_grouped_gemm");
    require_no_groups(b, "b", "use mxq_grouped_gemm");
    require_no_groups(d, "d", "use mxq_grouped_gemm");
    const auto [transpose_a, transpose_b] = transposes(options);
    require_product_shapes(a, b, d, transpose_a ? a.rows : a.cols, transpose_b ? b.cols : b.rows,
                           transpose_a ? a.cols : a.rows, transpose_b ? b.rows : b.cols);
    Buffers buffers(context, check);
    return gemm_problem(options, a, b, d, Grouping::None, buffers, check);
}

GemmProblem validate_grouped_gemm(const Context& context, const mxq_gemm_options* given, const mxq_tensor* a_tensor,
                                  const mxq_tensor* b_tensor, const mxq_tensor* d_tensor, Check check) {
    const auto [options, a, b, d] = require_call(given, a_tensor, b_tensor, d_tensor);
    Buffers buffers(context, check);
    require_groups(a, "a", buffers);

    const auto [transpose_a, transpose_b] = transposes(options);
    if (!transpose_a) {
        require_no_groups(b, "b", "it has a matrix for each group");
        if (d.groups.set) require_same_groups(a, "a", d, "d", buffers);
        require_3d(b, "b", a.groups.count);
        require_2d(d, "d", "its rows are the rows of a");
        require_product_shapes(a, b, d, a.cols, transpose_b ? b.cols : b.rows, a.rows, transpose_b ? b.rows : b.cols);
        return gemm_problem(options, a, b, d, Grouping::Rows, buffers, check);
    }
    if (transpose_b)
        fail(MXQ_STATUS_UNSUPPORTED,
             "options sets the transposes (T,T), expected (N,T), (N,N) or (T,N); groups along the contraction need b as it is");
    require_groups(b, "b", buffers);
    require_same_groups(a, "a", b, "b", buffers);
    require_3d(d, "d", a.groups.count);
    require_product_shapes(a, b, d, a.rows, b.rows, a.cols, b.cols);
    return gemm_problem(options, a, b, d, Grouping::Contraction, buffers, check);
}

}  // namespace mxq
