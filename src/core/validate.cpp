#include "core/validate.h"

#include <string>

#include "core/buffers.h"
#include "core/error.h"

namespace mxq {
namespace {

using Access = Buffers::Access;

std::string shape_text(const mxq_tensor& t) {
    const std::string matrix = std::to_string(t.rows) + " x " + std::to_string(t.cols);
    return t.is_3d ? std::to_string(t.experts) + " x " + matrix : matrix;
}

const mxq_tensor& require(const mxq_tensor* tensor, const char* name) {
    if (!tensor)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is NULL, expected a tensor; create one with mxq_tensor_create_2d", name);
    return *tensor;
}

void require_plain(const mxq_tensor& t, const char* name) {
    if (t.format->quantized)
        fail(MXQ_STATUS_UNSUPPORTED, "%s is %s, expected f32, f16 or bf16; create it with another format", name,
             t.format->name);
}

void require_quantized(const mxq_tensor& t, const char* name) {
    if (!t.format->quantized)
        fail(MXQ_STATUS_UNSUPPORTED, "%s is %s, expected mxfp8_e4m3 or mxfp8_e5m2; quantize it first", name, t.format->name);
}

void require_no_groups(const mxq_tensor& t, const char* name) {
    if (t.groups.set)
        fail(MXQ_STATUS_UNSUPPORTED,
             "%s has groups, which only grouped_gemm's a (and b under (T,N)) takes in this version; use a descriptor without "
             "groups (rowwise codes and compact 1X32 scales are the same bytes)",
             name);
}

void require_same_shape(const mxq_tensor& in, const mxq_tensor& out) {
    if (in.is_3d != out.is_3d || in.experts != out.experts || in.rows != out.rows || in.cols != out.cols)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "out is %s, expected in's shape %s; create it with that", shape_text(out).c_str(),
             shape_text(in).c_str());
}

void refuse_rounding_options(const mxq_quantize_options* options) {
    if (options && options->scale_rounding_set)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets a scale rounding, which only quantize has; use other options");
    if (options && options->nonfinite_set)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "options sets a non-finite policy, which only quantize has; use other options");
}

const char* scaling_text(const mxq_tensor& t) { return t.scaling == MXQ_SCALING_32X32 ? "32x32" : "1x32"; }

const char* part_name(int32_t part) { return part == MXQ_PART_ROWWISE ? "rowwise" : "columnwise"; }

PlainMatrix plain_view(const mxq_tensor& t, const char* name, Buffers& buffers, Access access) {
    const Part& part = t.rowwise;
    const int64_t bytes = t.data_bytes();
    if (bytes < 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is %s with row stride %lld, which is 2^63 bytes or more; use a smaller row stride", name,
             shape_text(t).c_str(), (long long)t.row_stride);
    buffers.add(std::string(name) + ".data", part.codes, part.code_bytes, uint64_t(bytes), uint64_t(t.format->bytes()),
                access, "mxq_tensor_set_data");
    return {part.codes, t.format->id, t.experts, t.rows, t.cols, t.row_stride};
}

// `codes` false: a verb that touches scales only.
QuantizedPart part_view(const mxq_tensor& t, int32_t which, const char* name, Buffers& buffers, Access access, bool codes) {
    const Part& part = t.part(which);
    const Storage s = t.storage(which);
    const std::string prefix = std::string(name) + "." + part_name(which);
    if (codes)
        buffers.add(prefix + ".codes", part.codes, part.code_bytes, uint64_t(s.code_bytes), 1, access, "mxq_tensor_set_part");
    const std::string scales = prefix + (t.swizzled ? ".scales (swizzled)" : ".scales (compact)");
    buffers.add(scales, part.scales, part.scale_bytes, uint64_t(s.scale_bytes), 1, access, "mxq_tensor_set_part");
    return {static_cast<uint8_t*>(part.codes), static_cast<uint8_t*>(part.scales), t.experts, s.lines, s.length, s.scales};
}

bool declares_none(const mxq_tensor& t) { return !t.rowwise.declared && !t.columnwise.declared; }

// Whether the call uses this part: a declared one, or in a query of a tensor that declares none, rowwise.
bool uses_part(const mxq_tensor& t, int32_t which, Check check) {
    return t.part(which).declared || (declares_none(t) && check == Check::Query && which == MXQ_PART_ROWWISE);
}

void require_any_part(const mxq_tensor& t, const char* name, Check check) {
    if (!uses_part(t, MXQ_PART_ROWWISE, check) && !uses_part(t, MXQ_PART_COLUMNWISE, check))
        fail(MXQ_STATUS_MISSING_BUFFER, "%s declares no part, expected rowwise, columnwise or both; call mxq_tensor_set_part",
             name);
}

GemmOperand gemm_operand(const mxq_tensor& t, int32_t which, const char* name, Buffers& buffers, Check check) {
    if (!t.part(which).declared && !(declares_none(t) && check == Check::Query))
        fail(MXQ_STATUS_MISSING_BUFFER,
             "%s declares no %s part, which this transpose reads; quantize one (blocks along the contraction) or set another "
             "transpose",
             name, part_name(which));
    const QuantizedPart p = part_view(t, which, name, buffers, Access::Read, true);
    return {p.codes, p.scales, t.format->id, p.matrices, p.lines, p.length, p.layout};
}

void require_2d(const mxq_tensor& t, const char* name, const char* remedy) {
    if (t.is_3d)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "%s is %s, expected 2 dimensions; %s", name, shape_text(t).c_str(), remedy);
}

void require_3d(const mxq_tensor& t, const char* name, int64_t matrices) {
    if (!t.is_3d || t.experts != matrices)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s is %s, expected 3 dimensions with a matrix for each of a's %lld groups; use mxq_tensor_create_3d", name,
             shape_text(t).c_str(), (long long)matrices);
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

struct Transposes {
    bool a, b;  // true: transposed
};

Transposes transposes(const mxq_gemm_options& options) {
    return {options.transpose_a == MXQ_TRANSPOSE_T, options.transpose_b == MXQ_TRANSPOSE_T};
}

void require_gemm_formats(const mxq_gemm_options& options, const mxq_tensor& a, const mxq_tensor& b, const mxq_tensor& d) {
    require_quantized(a, "a");
    require_quantized(b, "b");
    require_plain(d, "d");
    if (options.accumulate && d.format->id != MXQ_FORMAT_F32)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "d is %s, expected f32, the only one that accumulate adds into; use one, or unset it", d.format->name);
}

// Everything that dense and grouped products share once the shapes are known to fit.
GemmProblem gemm_problem(const mxq_gemm_options& options, const mxq_tensor& a, const mxq_tensor& b, const mxq_tensor& d,
                         Grouping grouping, Buffers& buffers, Check check) {
    const auto [transpose_a, transpose_b] = transposes(options);
    GemmProblem p{};
    p.a = gemm_operand(a, transpose_a ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE, "a", buffers, check);
    p.b = gemm_operand(b, transpose_b ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, "b", buffers, check);
    p.d = plain_view(d, "d", buffers, Access::Write);
    p.grouping = grouping;
    p.groups = a.groups;
    p.group_rows = a.rows;
    p.m = p.a.lines;
    p.n = p.b.lines;
    p.k = p.a.length;
    p.accumulate = options.accumulate;
    buffers.check_overlaps();
    return p;
}

void require_groups(const mxq_tensor& t, const char* name, Buffers& buffers) {
    if (!t.groups.set)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s has no groups, expected some; call mxq_tensor_set_groups", name);
    const uint64_t bytes = t.groups.type == MXQ_TYPE_INT32 ? 4 : 8;
    const uint64_t need = bytes * uint64_t(t.groups.count);
    buffers.add(std::string(name) + ".ends", t.groups.ends, need, need, bytes, Access::Read, "mxq_tensor_set_groups");
}

const mxq_gemm_options default_gemm_options;

}  // namespace

void validate_call(const mxq_context* context, const void* stream) {
    if (!context)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "context is NULL, expected a context; create one with mxq_context_create");
    if (context->is_cpu() && stream)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "stream is %p on a CPU context, expected NULL; CPU calls are synchronous", stream);
}

QuantizeProblem validate_quantize(const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                                  const mxq_tensor* out_tensor, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    require_plain(in, "in");
    require_quantized(out, "out");
    require_same_shape(in, out);
    require_no_groups(out, "out");
    require_any_part(out, "out", check);

    Buffers buffers(check);
    QuantizeProblem p{};
    p.in = plain_view(in, "in", buffers, Access::Read);
    p.format = out.format->id;
    p.square_tiles = out.scaling == MXQ_SCALING_32X32;
    p.has_rowwise = uses_part(out, MXQ_PART_ROWWISE, check);
    p.has_columnwise = uses_part(out, MXQ_PART_COLUMNWISE, check);
    if (p.has_rowwise) p.rowwise = part_view(out, MXQ_PART_ROWWISE, "out", buffers, Access::Write, true);
    if (p.has_columnwise) p.columnwise = part_view(out, MXQ_PART_COLUMNWISE, "out", buffers, Access::Write, true);
    p.scale_rounding = options ? options->scale_rounding : ScaleRounding::Rceil;
    p.nonfinite = options ? options->nonfinite : Nonfinite::Propagate;
    buffers.check_overlaps();
    return p;
}

DequantizeProblem validate_dequantize(const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                                      const mxq_tensor* out_tensor, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_rounding_options(options);
    require_quantized(in, "in");
    require_plain(out, "out");
    require_same_shape(in, out);
    require_no_groups(in, "in");
    require_any_part(in, "in", check);

    Buffers buffers(check);
    DequantizeProblem p{};
    p.format = in.format->id;
    p.columnwise = !uses_part(in, MXQ_PART_ROWWISE, check);
    p.in = part_view(in, p.columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE, "in", buffers, Access::Read, true);
    p.out = plain_view(out, "out", buffers, Access::Write);
    buffers.check_overlaps();
    return p;
}

SwizzleProblem validate_swizzle(const mxq_quantize_options* options, const mxq_tensor* in_tensor,
                                const mxq_tensor* out_tensor, bool to_swizzled, Check check) {
    const mxq_tensor& in = require(in_tensor, "in");
    const mxq_tensor& out = require(out_tensor, "out");
    refuse_rounding_options(options);
    require_quantized(in, "in");
    require_quantized(out, "out");
    if (in.format != out.format || in.scaling != out.scaling)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "out is %s with scaling %s, expected in's %s with scaling %s; make them alike",
             out.format->name, scaling_text(out), in.format->name, scaling_text(in));
    require_same_shape(in, out);
    require_no_groups(in, "in");
    require_no_groups(out, "out");
    if (in.swizzled == to_swizzled || out.swizzled != to_swizzled)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "in is %s and out is %s, expected %s; call mxq_tensor_set_swizzled",
             in.swizzled ? "swizzled" : "compact", out.swizzled ? "swizzled" : "compact",
             to_swizzled ? "compact to swizzled" : "swizzled to compact");
    // In a query, a side that declares no part takes the other's.
    const mxq_tensor& in_parts = check == Check::Query && declares_none(in) ? out : in;
    const mxq_tensor& out_parts = check == Check::Query && declares_none(out) ? in : out;
    require_any_part(in_parts, "in", check);

    Buffers buffers(check);
    SwizzleProblem p{};
    for (const int32_t which : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (uses_part(in_parts, which, check) != uses_part(out_parts, which, check))
            fail(MXQ_STATUS_MISSING_BUFFER,
                 "the %s part is declared on only one of in and out, expected the same parts on both; call "
                 "mxq_tensor_set_part",
                 part_name(which));
        if (!uses_part(in_parts, which, check)) continue;
        const QuantizedPart from = part_view(in, which, "in", buffers, Access::Read, false);
        const QuantizedPart to = part_view(out, which, "out", buffers, Access::Write, false);
        p.parts[p.count++] = {from.scales, to.scales, from.matrices, from.lines, from.layout, to.layout};
    }
    buffers.check_overlaps();
    return p;
}

GemmProblem validate_gemm(const mxq_gemm_options* given, const mxq_tensor* a_tensor, const mxq_tensor* b_tensor,
                          const mxq_tensor* d_tensor, Check check) {
    const mxq_gemm_options& options = given ? *given : default_gemm_options;
    const mxq_tensor& a = require(a_tensor, "a");
    const mxq_tensor& b = require(b_tensor, "b");
    const mxq_tensor& d = require(d_tensor, "d");
    require_gemm_formats(options, a, b, d);
    require_2d(a, "a", "use mxq_grouped_gemm");
    require_2d(b, "b", "use mxq_grouped_gemm");
    require_2d(d, "d", "use mxq_grouped_gemm");
    require_no_groups(a, "a");
    require_no_groups(b, "b");
    const auto [transpose_a, transpose_b] = transposes(options);
    require_product_shapes(a, b, d, transpose_a ? a.rows : a.cols, transpose_b ? b.cols : b.rows,
                           transpose_a ? a.cols : a.rows, transpose_b ? b.rows : b.cols);
    Buffers buffers(check);
    return gemm_problem(options, a, b, d, Grouping::None, buffers, check);
}

GemmProblem validate_grouped_gemm(const mxq_gemm_options* given, const mxq_tensor* a_tensor, const mxq_tensor* b_tensor,
                                  const mxq_tensor* d_tensor, Check check) {
    const mxq_gemm_options& options = given ? *given : default_gemm_options;
    const mxq_tensor& a = require(a_tensor, "a");
    const mxq_tensor& b = require(b_tensor, "b");
    const mxq_tensor& d = require(d_tensor, "d");
    require_gemm_formats(options, a, b, d);
    Buffers buffers(check);
    require_groups(a, "a", buffers);

    const auto [transpose_a, transpose_b] = transposes(options);
    if (!transpose_a) {
        require_no_groups(b, "b");
        require_3d(b, "b", a.groups.count);
        require_2d(d, "d", "its rows are the rows of a");
        require_product_shapes(a, b, d, a.cols, transpose_b ? b.cols : b.rows, a.rows, transpose_b ? b.rows : b.cols);
        return gemm_problem(options, a, b, d, Grouping::Rows, buffers, check);
    }
    if (transpose_b)
        fail(MXQ_STATUS_UNSUPPORTED,
             "options sets the transposes (T,T), expected (N,T), (N,N) or (T,N); groups along the contraction need b as it is");
    require_groups(b, "b", buffers);
    if (b.groups.ends != a.groups.ends || b.groups.type != a.groups.type || b.groups.count != a.groups.count)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "b has other groups than a, expected the same array of ends, type and count; set a's groups on b too");
    require_3d(d, "d", a.groups.count);
    require_product_shapes(a, b, d, a.rows, b.rows, a.cols, b.cols);
    return gemm_problem(options, a, b, d, Grouping::Contraction, buffers, check);
}

}  // namespace mxq
