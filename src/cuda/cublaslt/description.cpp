#include "cuda/cublaslt/description.h"

#include <algorithm>

#include "core/error.h"
#include "core/groups.h"
#include "cuda/cublaslt/group_entry.h"
#include "cuda/cublaslt/releases.h"

namespace mxq::cuda::lt {
namespace {

constexpr int64_t kBytes = 16;  // the alignment of pointers, K-major rows and rows of D
constexpr int64_t kLongest = INT32_MAX;

// ---- Formats ---------------------------------------------------------------------------------------------------------------

struct Kind {
    ScaleMode mode;
    bool known;
};

Kind kind_of(const GemmOperand& operand) {
    switch (operand.scale_type) {
        case ScaleType::None: return {ScaleMode::None, operand.element == Element::Bf16};  // F16 has not been measured
        case ScaleType::E8M0: return {ScaleMode::Vec32, operand.bits == 8};
        case ScaleType::E4M3: return {ScaleMode::Vec16, true};
        case ScaleType::F32: break;
    }
    if (operand.layout.block == kBlock128)
        return {operand.layout.tile_rows == 1 ? ScaleMode::Vec128 : ScaleMode::Block128, true};
    return {operand.layout.line_stride == 0 ? ScaleMode::Scalar : ScaleMode::OuterVec, true};
}

cudaDataType type_of(Element element) {
    switch (element) {
        case Element::F32: return CUDA_R_32F;
        case Element::F16: return CUDA_R_16F;
        case Element::E4M3: return CUDA_R_8F_E4M3;
        case Element::E5M2: return CUDA_R_8F_E5M2;
        case Element::E2M1: return CUDA_R_4F_E2M1;
        case Element::Bf16:
        case Element::E2M3:  // cuBLASLt has no type for codes of six bits, which are declined before
        case Element::E3M2: break;
    }
    return CUDA_R_16BF;
}

cudaDataType d_type_of(int32_t format) {
    return format == MXQ_FORMAT_F32 ? CUDA_R_32F : format == MXQ_FORMAT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

bool has_blocks_of_128(ScaleMode mode) { return mode == ScaleMode::Vec128 || mode == ScaleMode::Block128; }
bool is_scalar(ScaleMode mode) { return mode == ScaleMode::Scalar || mode == ScaleMode::GroupScalar; }

Reason check_kinds(const GemmProblem& p, const Kind& a, const Kind& b) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->across && operand->scale_type != ScaleType::None)
            return [format = operand->format] {
                return format_text("needs K-major codes, found %s MN-major",
                                   find_format(format)->name);
            };
    if (!a.known || !b.known)
        return needs("bf16, mxfp8, nvfp4 or fp8 operands", find_format((a.known ? p.b : p.a).format)->name);
    if (a.mode == ScaleMode::Block128 && b.mode == ScaleMode::Block128)
        return "needs 1X128 scales on one side at least, found 128X128 on both";
    if (a.mode != b.mode && !(has_blocks_of_128(a.mode) && has_blocks_of_128(b.mode)))
        return [a = a.mode, b = b.mode] {
            return format_text("needs the same kind of scales on both sides, found %s and %s", mode_name(a), mode_name(b));
        };
    if (p.a.element == Element::E5M2 && p.b.element == Element::E5M2)
        return "needs e4m3 codes on one side at least, found e5m2 on both";
    if (a.mode == ScaleMode::None && p.d.format != MXQ_FORMAT_F32 && d_type_of(p.d.format) != type_of(p.a.element))
        return needs("d in f32 or in the type of the operands", find_format(p.d.format)->name);
    return {};
}

// ---- Memory ----------------------------------------------------------------------------------------------------------------

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kBytes == 0; }

// `what` and `of` name the number together, such as "rows of " and "a".
Reason check_multiple(const char* what, const char* of, int64_t bytes) {
    if (bytes % kBytes == 0) return {};
    return [what, of, bytes] {
        return format_text("needs %s%s a multiple of %lld bytes, found %lld", what, of, (long long)kBytes, (long long)bytes);
    };
}

Reason check_pointer(const char* what, const char* of, const void* pointer) {
    if (is_aligned(pointer)) return {};
    return [what, of, pointer] {
        return format_text("needs %s%s at a multiple of %lld bytes, found %p", what, of, (long long)kBytes, pointer);
    };
}

Reason check_operand(const GemmOperand& operand, ScaleMode mode, const char* name) {
    if (auto reason = check_pointer("", name, operand.codes); !reason.empty()) return reason;
    if (auto reason = check_multiple("rows of ", name, operand.line_bytes); !reason.empty()) return reason;
    if (operand.across)
        if (auto reason = check_multiple("rows of ", name, operand.lines * operand.bits / 8); !reason.empty()) return reason;
    const bool swizzles = mode == ScaleMode::Vec32 || mode == ScaleMode::Vec16;
    if (swizzles && !operand.layout.swizzled)
        return [name] { return format_text("needs swizzled scales, found compact ones on %s", name); };
    if (mode == ScaleMode::None || is_scalar(mode)) return {};
    return check_pointer("the scales of ", name, operand.scales);
}

// cuBLASLt 13.1 on an H200 has a larger error than one rounding, as if it rounded the product before it adds D. That is so
// of 16-bit operands too (1 x 8 x 32 with a beta of 1), by up to 22 times the bound.
Reason check_added_d(const GemmProblem& p) {
    if (!p.reads_d() || p.d.format == MXQ_FORMAT_F32) return {};
    return needs("an f32 d where beta is set", find_format(p.d.format)->name);
}

Reason check_d(const GemmProblem& p) {
    if (auto reason = check_added_d(p); !reason.empty()) return reason;
    if (auto reason = check_pointer("", "d", p.d.data); !reason.empty()) return reason;
    if (auto reason = check_multiple("rows of ", "d", p.n * p.d.element_bytes()); !reason.empty()) return reason;
    return check_multiple("the row stride of ", "d", p.d.row_stride * p.d.element_bytes());
}

// Tensor cores need 16-byte vectors. Without groups, cuBLASLt has slower kernels for other 16-bit operands.
Reason check_memory(const GemmProblem& p, ScaleMode a, ScaleMode b) {
    if (auto reason = check_operand(p.a, a, "a"); !reason.empty()) return reason;
    if (auto reason = check_operand(p.b, b, "b"); !reason.empty()) return reason;
    return check_d(p);
}

// cuBLASLt's bias has an element for each of its rows, which are our columns. Narrow operands take one in 16 bits alone.
Reason check_bias(const GemmProblem& p, ScaleMode mode) {
    if (!p.bias.set()) return {};
    const int32_t of_narrow = p.d.format == MXQ_FORMAT_F16 ? MXQ_FORMAT_F16 : MXQ_FORMAT_BF16;
    const int32_t wanted = mode == ScaleMode::None ? p.d.format : of_narrow;
    if (p.bias.format != wanted)
        return [wanted, format = p.bias.format] {
            return format_text("needs the bias in %s, found it in %s", find_format(wanted)->name, find_format(format)->name);
        };
    return check_pointer("the ", "bias", p.bias.values);
}

// With an alpha of 0, cuBLASLt 13.1 and 13.10 leave out the bias of 16-bit operands where a row is no multiple of 16 bytes.
// An F32 D loses it, too (1 x 32 x 5).
Reason check_alpha(const GemmProblem& p, const MatmulDescription& matmul) {
    if (matmul.a.mode != ScaleMode::None || !p.bias.set() || !is_zero(p.alpha) || has_whole_lines(matmul)) return {};
    return "needs an alpha other than 0 for a bias where a row is no multiple of 16 bytes, found 0";
}

// Refuses a subnormal alpha. With one, cuBLASLt 13.1 on an H200 gave 0 for FP8, or lost bits. Of BF16 operands, an F32 D
// kept 13 bits of a normal number (6 x 29 x 4, an alpha of 1e-40). Compares bits, since the caller's thread may flush
// subnormals.
Reason check_small_alpha(const GemmProblem& p) {
    const uint32_t magnitude = float_bits(p.alpha) & kMagnitudeMask;
    if (magnitude == 0 || magnitude >= 1u << 23) return {};
    return [alpha = p.alpha] { return format_text("needs an alpha of 0 or a normal number, found %g", double(alpha)); };
}

Reason check_size(const char* what, int64_t size) {
    if (size >= 1 && size <= kLongest) return {};
    return [what, size] { return format_text("needs 1 to 2^31 - 1 %s, found %lld", what, (long long)size); };
}

Reason check_sizes(const GemmProblem& p) {
    if (auto reason = check_size("rows of d", p.m); !reason.empty()) return reason;
    if (auto reason = check_size("columns of d", p.n); !reason.empty()) return reason;
    return check_size("codes along the contraction", p.k);
}

// Checks that `k` codes are a whole number of blocks and of 16 bytes.
Reason check_depth(int64_t k, const GemmOperand& operand, ScaleMode mode) {
    const int64_t unit = std::max(kBytes * 8 / operand.bits, mode == ScaleMode::Vec32 ? kMxBlock : 1);
    if (k % unit == 0) return {};
    return [unit, k] {
        return format_text("needs a multiple of %lld codes along the contraction, found %lld", (long long)unit, (long long)k);
    };
}

// Refuses a number of rows that is no multiple of four, with which cuBLASLt 13.10 accepts a single product with scales of
// 1x128 and does not write D. Groups of rows may have any number: the scales of each are padded.
Reason check_lines_of_128(const char* what, int64_t lines) {
    if (lines % kPackedRows == 0) return {};
    return [what, lines] {
        return format_text("needs a multiple of %d %s for scales of 128, found %lld", kPackedRows, what, (long long)lines);
    };
}

// ---- The description -------------------------------------------------------------------------------------------------------

// Returns whether fp32 scales of one matrix have another layout than (ceil(k / 128), K-major rows) or (tile rows, ceil(k /
// 128) rounded up to 4).
bool must_pack(const GemmOperand& operand, ScaleMode mode) {
    const ScaleLayout& layout = operand.layout;
    if (mode == ScaleMode::Vec128)
        return layout.line_stride != 1 || (layout.columns > 1 && layout.column_stride != operand.lines);
    return mode == ScaleMode::Block128 &&
           (layout.column_stride != 1 || layout.line_stride != round_up(layout.columns, kPackedColumns));
}

// Returns whether a kernel must copy the scales: only those of whole matrices, of experts or of one product, can stay.
bool must_pack_groups(const GemmProblem& p, Side side, ScaleMode mode) {
    return p.grouping_of(side) != Grouping::None ? has_blocks_of_128(mode) : must_pack(p.operand(side), mode);
}

MatrixDescription describe_operand(const GemmOperand& operand, ScaleMode mode, bool packs) {
    return {type_of(operand.element), mode, operand.codes, operand.scales, operand.lines,
            operand.line_bytes * 8 / operand.bits, packs, operand.across};
}

void fill_rest(const GemmProblem& p, MatmulDescription& out) {
    out.d_type = d_type_of(p.d.format);
    out.d = p.d.data;
    out.ldd = p.d.row_stride;
    out.m = p.n;
    out.n = p.m;
    out.k = p.k;
    out.reads_d = p.reads_d();
    out.has_bias = p.bias.set();
    out.sm_count = p.sm_count;
    out.bias = p.bias.values;
    out.bias_type = d_type_of(p.bias.format);
    // The library takes a factor for each group, by a pointer, where there is more than one.
    const bool same_factor = out.groups <= 1 || p.a.scope_stride + p.b.scope_stride == 0;
    out.alpha = !is_nvfp4(p.a) ? Alpha::Host : same_factor ? Alpha::Device : Alpha::DevicePerGroup;
}

// ---- Groups ----------------------------------------------------------------------------------------------------------------

// The arrays of groups hold leading dimensions of 32 bits.
Reason check_strides(const GemmProblem& p) {
    const int64_t codes = std::max(p.a.line_bytes, p.b.line_bytes) * 8 / p.a.bits;
    if (auto reason = check_size("codes from line to line", codes); !reason.empty()) return reason;
    return check_size("numbers from row to row of d", p.d.row_stride);
}

Reason check_row_groups(const GemmProblem& p, ScaleMode a) {
    if (auto reason = check_depth(p.k, p.a, a); !reason.empty()) return reason;
    return a == ScaleMode::Block128 ? "needs 1X128 scales on the grouped side, found 128X128" : "";
}

// Checks that both sides are padded alike, where padding is multiplied, and that D of an empty group becomes zeros or stays.
Reason check_group_units(const GemmProblem& p) {
    if (p.grouping != Grouping::Contraction) return {};
    if (p.reads_d() && p.beta != 1)
        return [beta = p.beta] {
            return format_text("needs a beta of 0 or 1 for groups along the contraction, found %g", double(beta));
        };
    if (reads_across(p) || p.a.units.codes == p.b.units.codes) return {};
    return [a = p.a.units.codes, b = p.b.units.codes] {
        return format_text("needs the same columnwise group alignment on both sides, found %d and %d", a, b);
    };
}

// Checks that each group along the contraction has a multiple of 16 bytes of plain numbers. Only the ends tell, since the
// padding of plain numbers is not multiplied.
Reason check_rows_of_groups(const GemmProblem& p) {
    const int64_t unit = kBytes * 8 / p.a.bits;
    if (!p.host_ends)
        return [unit] {
            return format_text("needs the ends of the groups on the host, to know of %lld rows each or a multiple, found them "
                               "on the device alone",
                               (long long)unit);
        };
    Groups on_host = p.groups;
    on_host.ends = p.host_ends;
    for (int64_t g = 0, before = 0; g < p.groups.count; g++) {
        const int64_t end = read_end(on_host, g), rows = end - before;
        if (rows % unit != 0)
            return [unit, g, rows] {
                return format_text("needs a multiple of %lld rows in each group, found %lld in group %lld", (long long)unit,
                                   (long long)rows, (long long)g);
            };
        before = end;
    }
    return {};
}

Reason check_depth_groups(const GemmProblem& p, ScaleMode a, ScaleMode b) {
    if (auto reason = check_group_units(p); !reason.empty()) return reason;
    if (reads_across(p)) return check_rows_of_groups(p);
    const int32_t least = int32_t(kBytes * 8 / p.a.bits);
    if (p.a.units.codes % least != 0)
        return [least, found = p.a.units.codes] {
            return format_text("needs a columnwise group alignment of %d or more, found %d", least, found);
        };
    if (a == ScaleMode::Block128 || b == ScaleMode::Block128)
        return "needs 1X128 scales for groups along the contraction, found 128X128";
    return has_blocks_of_128(a) ? check_lines_of_128("rows of d", p.m) : Reason();
}

// Returns whether every group of an operand has the same scale.
bool shares_scale(const GemmProblem& p, Side side) {
    const ScaleLayout& layout = p.operand(side).layout;
    return (p.grouping_of(side) != Grouping::None ? layout.group_index_stride : layout.matrix_scales) == 0;
}

}  // namespace

const char* mode_name(ScaleMode mode) {
    switch (mode) {
        case ScaleMode::Scalar:
        case ScaleMode::GroupScalar: return "fp8 TENSOR";
        case ScaleMode::OuterVec: return "fp8 ROW";
        case ScaleMode::Vec128: return "fp8 1X128";
        case ScaleMode::Block128: return "fp8 128X128";
        case ScaleMode::Vec32: return "mxfp8";
        case ScaleMode::Vec16: return "nvfp4";
        case ScaleMode::None: break;
    }
    return "16-bit numbers";
}

bool is_nvfp4(const GemmOperand& operand) { return operand.scale_type == ScaleType::E4M3; }

Reason describe(const GemmProblem& p, const Machine& machine, MatmulDescription& out) {
    const Kind a = kind_of(p.a), b = kind_of(p.b);
    if (p.grouping != Grouping::None) return "needs a product without groups, found groups";
    if (auto reason = check_kinds(p, a, b); !reason.empty()) return reason;
    if (auto reason = check_offer(a.mode, false, machine); !reason.empty()) return reason;
    if (auto reason = check_sizes(p); !reason.empty()) return reason;
    if (auto reason = check_added_d(p); !reason.empty()) return reason;
    if (auto reason = check_small_alpha(p); !reason.empty()) return reason;
    if (a.mode != ScaleMode::None) {
        if (auto reason = check_depth(p.k, p.a, a.mode); !reason.empty()) return reason;
        if (auto reason = check_memory(p, a.mode, b.mode); !reason.empty()) return reason;
    }
    if (has_blocks_of_128(a.mode))
        if (auto reason = check_lines_of_128("rows of d", p.m); !reason.empty()) return reason;
    if (auto reason = check_bias(p, a.mode); !reason.empty()) return reason;
    out = {};
    out.a = describe_operand(p.b, b.mode, must_pack(p.b, b.mode));
    out.b = describe_operand(p.a, a.mode, must_pack(p.a, a.mode));
    fill_rest(p, out);
    if (auto reason = check_alpha(p, out); !reason.empty()) return reason;
    return check_faults(out, machine);
}

Reason describe_grouped(const GemmProblem& p, const Machine& machine, const Sides& packed, MatmulDescription& out) {
    const Kind a = kind_of(p.a), b = kind_of(p.b);
    if (p.grouping == Grouping::None) return "needs a grouped product, found one without groups";
    if (p.groups.count == 0) return "needs a group, found none";
    if (p.bias.set()) return "needs no bias, found one";
    if (auto reason = check_kinds(p, a, b); !reason.empty()) return reason;
    if (a.mode == ScaleMode::OuterVec) return "needs scales other than ROW for groups, found fp8 ROW";
    if (auto reason = check_offer(a.mode, false, machine); !reason.empty()) return reason;
    if (auto reason = check_offer(a.mode, true, machine); !reason.empty()) return reason;
    if (is_nvfp4(p.a) && p.d.format == MXQ_FORMAT_F16) return "needs d in bf16 or f32 for groups of nvfp4, found f16";
    if (auto reason = check_small_alpha(p); !reason.empty()) return reason;
    if (auto reason = check_sizes(p); !reason.empty()) return reason;
    if (auto reason = check_memory(p, a.mode, b.mode); !reason.empty()) return reason;
    if (auto reason = check_strides(p); !reason.empty()) return reason;
    const bool by_rows = p.grouping == Grouping::Rows;
    auto reason = by_rows ? check_row_groups(p, a.mode) : check_depth_groups(p, a.mode, b.mode);
    if (!reason.empty()) return reason;

    out = {};
    out.groups = p.groups.count;
    out.a = describe_operand(p.b, b.mode, !packed.b && must_pack_groups(p, Side::B, b.mode));
    out.b = describe_operand(p.a, a.mode, !packed.a && must_pack_groups(p, Side::A, a.mode));
    if (a.mode == ScaleMode::Scalar && !(shares_scale(p, Side::A) && shares_scale(p, Side::B)))
        out.a.mode = out.b.mode = ScaleMode::GroupScalar;
    fill_rest(p, out);
    int64_t& divided = by_rows ? out.n : out.k;
    divided = std::max(ceil_div(p.group_rows, p.groups.count), int64_t(1));
    return check_faults(out, machine);
}

Reason check_groups(const GemmProblem& p) {
    if (auto reason = check_kinds(p, kind_of(p.a), kind_of(p.b)); !reason.empty()) return reason;
    if (auto reason = check_group_units(p); !reason.empty()) return reason;
    return check_d(p);
}

void point_at(const GemmProblem& p, MatmulDescription& out) {
    out.a.data = p.b.codes;
    out.a.scales = p.b.scales;
    out.b.data = p.a.codes;
    out.b.scales = p.a.scales;
    out.d = p.d.data;
    out.bias = p.bias.values;
}

GemmProblem product_of_group(const GemmProblem& p, const GroupStart& a, const GroupStart& b, int64_t d_row, int64_t rows) {
    GemmProblem one = p;
    one.grouping = Grouping::None;
    one.groups = {};
    one.d.matrices = 1;
    one.d.group_unit = 1;
    if (p.grouping == Grouping::Rows) {
        one.m = one.d.rows = rows;
        one.a = part_of_group(p.a, a, rows);
        one.b = part_of_matrix(p.b, a.index);
    } else {
        one.k = depth_of_group(p, rows);
        one.a = contraction_of_group(p.a, a, one.k);
        one.b = contraction_of_group(p.b, b, one.k);
    }
    if (p.bias.values)
        one.bias.values = static_cast<const uint8_t*>(p.bias.values) + a.index * p.n * (find_format(p.bias.format)->bits / 8);
    one.d.data = static_cast<uint8_t*>(p.d.data) + d_row * p.d.row_stride * p.d.element_bytes();
    return one;
}

int64_t packed_floats(const GemmProblem& p, Side side) {
    const GemmOperand& operand = p.operand(side);
    const ScaleLayout& layout = operand.layout;
    const Grouping grouping = p.grouping_of(side);
    if (grouping == Grouping::Contraction) return operand.length / kBlock128 * operand.lines;
    if (grouping == Grouping::Rows)
        return layout.columns * padded_rows_bound(p.group_rows, p.groups.count, kPackedRows);
    return operand.matrices * packed_matrix(operand);
}

}  // namespace mxq::cuda::lt
