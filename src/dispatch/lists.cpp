// The whole dispatch policy: per verb, implementations in the order in which they are asked.
#include <algorithm>

#include "cpu/implementations.h"
#include "cuda/backend.h"
#include "cuda/implementations.h"
#include "cuda/widen/pays_to_widen.h"
#include "dispatch/choice.h"

namespace mxq {
namespace {

const QuantizeImplementation* const quantize_list[] = {
    &cuda::quantize_rowwise,     // the rowwise part alone of 8 and 4 bits, of aligned rows
    &cuda::quantize_fp4_groups,  // groups of aligned BF16 to NVFP4 and MXFP4, columnwise or both
    &cuda::quantize_fp4_pairs,   // aligned BF16 to NVFP4 and MXFP4
    &cuda::quantize_columns,     // aligned BF16 to columns of 8 bits, without groups
    &cuda::quantize_groups,      // groups of aligned BF16 to columns of MXFP8 1x32 and 32x32
    &cuda::quantize_tile,        // every other format, part and scaling of 8 and 6 bits: tiles of 128x128 in registers
    &cuda::quantize_fp4,         // all other NVFP4 and MXFP4: Hadamard transform, stochastic rounding, four-over-six, any rows
    &cpu::quantize,
};

const QuantizeImplementation* const requantize_list[] = {
    &cuda::requantize_transpose,  // MXFP8 and FP8 to the transposed part in MXFP8 1x32, aligned rows
    &cuda::requantize_values,     // any formats, scalings, parts and alignments
    &cuda::quantize_fp4,          // Hadamard transform, stochastic rounding, four-over-six
    &cpu::requantize,
};

const AmaxImplementation* const amax_list[] = {
    &cuda::amax,
    &cpu::amax,
};

const PadImplementation* const pad_list[] = {
    &cuda::pad_groups,
    &cpu::pad_groups,
};

const DequantizeImplementation* const dequantize_list[] = {
    &cuda::dequantize_rowwise,
    &cuda::dequantize_columnwise,
    &cuda::dequantize_hadamard,  // undoes a Hadamard transform
    &cpu::dequantize,
};

const ConvertImplementation* const convert_list[] = {
    &cuda::convert,
    &cpu::convert,
};

const SwizzleImplementation* const swizzle_list[] = {
    &cuda::swizzle_scales,
    &cpu::swizzle_scales,
};

const GemmImplementation* const gemm_list[] = {
    &cuda::cublaslt,          // the library's tensor-core kernels, where version, chip and layout allow
    &cuda::cublaslt_swizzle,  // compact scales, and MX of 4 and 6 bits, where FP8 has E8M0 scales: a pass over what needs it
    &cuda::cublaslt_rebase,   // MX where FP8 has no E8M0 scales: a pass over each operand first
    &cuda::skinny_sm90,       // up to 128 rows: reads quantized weights once, and multiplies exactly
    &cuda::splitk_sm90,       // the same, in one launch, the contraction split: see below
    &cuda::wgmma_fp8_sm90,    // MX by a kernel of our own, with a guard: 0.94 to 0.96 of its speed, see also below; FP8 too
    &cuda::wgmma_bf16_sm90,   // BF16, NVFP4, and FP8 with scales of lines, with quantized weights
    &cuda::wgmma_plain_sm90,  // BF16 with BF16, F16 with F16
    &cuda::wgmma_fp8_turn,    // FP8 read across its lines, beside FP8: a pass that turns it first
    &cuda::wgmma_blocks_sm90,  // FP8 with scales of 128 beside BF16, MX and NVFP4
    &cuda::cublaslt_widen,    // MX read across its lines, and weight gradients, exact or beside BF16: a pass over it first
    &cuda::wgmma_plain_widen,  // the same by a kernel of our own, and exact products of many rows
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_turn,  // FP8 read across its lines
    &cuda::mma_bf16_rows,  // up to 64 rows, of a group on average, with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

const GemmImplementation* const grouped_gemm_list[] = {
    &cuda::cublaslt_grouped,  // one call for all groups
    &cuda::cublaslt_grouped_swizzle,
    &cuda::wgmma_plain_sm90,  // one launch; BF16 with BF16, F16 with F16
    &cuda::cublaslt,          // a call each, which needs their ends on the host
    &cuda::cublaslt_swizzle,
    &cuda::cublaslt_grouped_rebase,
    &cuda::skinny_sm90,     // up to 128 rows a group
    &cuda::wgmma_fp8_sm90,  // MX: see below; FP8 with ROW scales, which cuBLASLt does not group
    &cuda::wgmma_bf16_sm90,
    &cuda::wgmma_fp8_turn,
    &cuda::wgmma_blocks_sm90,  // FP8 with scales of 128 beside BF16, MX and NVFP4
    &cuda::wgmma_plain_widen,  // as above, and NVFP4 and FP8 with one scale a line
    &cuda::cublaslt_grouped_widen,
    &cuda::cublaslt_widen,
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_turn,  // FP8 read across its lines
    &cuda::mma_bf16_rows,  // up to 64 rows, of a group on average, with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

// Returns whether MXFP8 lines have one scale each, so that no codes need to be moved.
bool has_kept_lines(const GemmOperand& operand) { return operand.bits == 8 && operand.layout.has_one_of_line(); }

// Returns whether only BF16 tensor cores multiply these operands as the call wants it: exactly.
bool is_exact(const GemmProblem& p) {
    if (p.b.scale_type == ScaleType::None || p.b.scale_type == ScaleType::F32) return p.a.scale_type == ScaleType::None;
    return p.a.scale_type != ScaleType::E8M0 || p.b.scale_type != ScaleType::E8M0 || p.exact_products;
}

// Columns up to which splitk_sm90 has no more tiles than there are multiprocessors, see has_split_rows.
constexpr int64_t kMostSplitColumns = 1 << 14;

// Returns how many rows, of a product or of a group on average, skinny_sm90 multiplies faster than whatever is asked behind it,
// by times on an H200 (docs/performance.md has the tables), in us.
//
// Beside wgmma_bf16_sm90, BF16 with MXFP4: 32 groups of (2048,7168), 64 rows each 219 and 288; of gpt-oss' (5760,2880) 239
// and 332; 128 each took 396 and 353. Without groups, 64 rows of (7168,2048), (4096,4096), (2048,7168) and (8192,8192) 20, 22,
// 25, 40 and 20, 23, 23, 52; 128 rows 27, 33, 40, 47 and 21, 24, 24, 47.
//
// Beside cuBLASLt 13.10's product of rebased operands, where the pass over weights counts, MXFP8 with MXFP8: 16 rows of
// (7168,2048) and (4096,4096) 15, 17 and 19, 26; 32 rows 21, 23 and 19, 26; 64 rows of the second 27 and 26, 128 of (8192,8192)
// 57 and 63. Weights kept in one scale a line need no pass: one row of (7168,2048) 15 and 12, 8 and 16 rows of (8192,8192)
// 28, 32 and 30; 8 groups of (2048,7168), 8, 32 and 64 rows each 58, 75, 97 and 74, 78, 83.
int64_t most_few_rows(const GemmProblem& p) {
    const bool is_large = p.n * p.k >= int64_t(1) << 25, grouped = p.grouping == Grouping::Rows;
    const bool rounds = p.a.scale_type == ScaleType::E8M0 && p.b.scale_type == ScaleType::E8M0 && !p.exact_products;
    const bool kept = rounds && has_kept_lines(p.b);
    const bool for_cublaslt = rounds && p.d.format != MXQ_FORMAT_F32 && !p.a.columnwise;  // see preferred_gemm
    if (grouped) return kept ? 32 : 96;
    if (for_cublaslt && kept) return is_large ? 8 : 0;
    if (for_cublaslt) return is_large ? 128 : 16;
    if (kept) return 32;
    if (is_exact(p)) return p.n > kMostSplitColumns ? 128 : is_large ? 96 : 64;
    return is_large ? 128 : 64;
}

// Returns the rows of A as exact products take them, those of F16 as two BF16 numbers each.
int64_t bf16_rows(const GemmProblem& p) { return p.a.format == MXQ_FORMAT_F16 ? 2 * p.m : p.m; }

bool has_few_rows(const GemmProblem& p) {
    const bool is_block_scaled = p.b.scale_type == ScaleType::E8M0 || p.b.scale_type == ScaleType::E4M3;
    const bool is_plain = p.a.scale_type == ScaleType::None && p.b.scale_type != ScaleType::None;
    if ((!is_block_scaled && !is_plain) || p.grouping == Grouping::Contraction) return false;
    return bf16_rows(p) <= most_few_rows(p) * (p.grouping == Grouping::Rows ? p.groups.count : 1);
}

// Returns whether blocks that ask at once for all that they need of the weights are faster than those of skinny_sm90, which
// begin with a look at what all blocks have to do. An H100, us of skinny_sm90 and mma_bf16_rows, BF16 with MXFP4: one row of
// (4096,4096), (7168,2048), (2048,7168) and (8192,8192) 11.4 7.7, 10.4 7.3, 11.8 7.2 and 24.4 19.8, eight rows 11.5 8.1, 10.5 7.6,
// 11.9 8.1 and 24.6 21.1; of (28672,8192) 56.7 56.4, and eight rows 57.1 62.8. 1, 4, 8 and 16 rows in 32 groups of (5760,2880)
// 12.0 8.7, 22.0 18.8, 25.2 22.1 and 35.7 37.1; 16 rows in 32 groups of (2048,7168) 43 44, in 8 groups 33 28, of (8192,5120) 72 72.
bool has_fewest_rows(const GemmProblem& p) {
    const int64_t most_rows = p.grouping == Grouping::Rows && p.groups.count <= 8 ? 16 : 8;
    return bf16_rows(p) <= most_rows && p.n <= kMostSplitColumns;
}

// Returns whether clusters that split the contraction multiply quantized weights fastest, and exactly. An H200, us of
// splitk_sm90, skinny_sm90, wgmma_bf16_sm90 and cuBLASLt 13.1's product of rebased operands:
//
//     BF16 with MXFP4     (7168,2048) 16, 64 and 128 rows 9.9 11.1 20.3, 11.3 20.2 19.3 and 13.9 26.5 20.5; (2048,7168)
//                         64 rows 14.1 25.3 21.6; (8192,8192) 16, 64 and 128 rows 23 25 66, 27 37 51 and 35 47 44
//     with NVFP4          16 rows of (4096,4096) and (8192,8192) 14.2 13.6 and 29.7 27.5, 32 rows 14.2 19.1 and 29.9 34.5
//     MXFP8 with MXFP8    64 rows of (7168,2048) and (4096,4096) 15.3 25.3 and 18.3 27.4, rebased 19.7 and 26.1
//
// An H100, BF16 with MXFP4 of (5760,2880), whose scales begin anywhere in words: 16, 32, 64 and 128 rows 13.3 14.5, 13.2 18.7,
// 15.0 22.3 and 17.9 24.1.
//
// Where there are more tiles of 128 columns than multiprocessors, blocks that stay are better: (28672,8192), BF16 with MXFP4,
// 32, 64 and 128 rows 79 67 186, 90 80 156 and 126 119 233. Eight rows of (4096,4096) take 11.9 and 10.5.
bool has_split_rows(const GemmProblem& p) {
    constexpr int64_t most_rows = 128;
    const bool is_block_scaled = p.b.scale_type == ScaleType::E8M0 || p.b.scale_type == ScaleType::E4M3;
    const bool is_plain = p.a.scale_type == ScaleType::None && p.b.scale_type != ScaleType::None;
    if ((!is_block_scaled && !is_plain) || p.grouping != Grouping::None) return false;
    if (is_block_scaled && (!p.b.layout.has_adjacent_fours() || (has_kept_lines(p.b) && !is_exact(p)))) return false;
    const int64_t least_rows = p.b.scale_type == ScaleType::E4M3 ? 17 : 9, rows = bf16_rows(p);
    return rows >= least_rows && rows <= most_rows && p.n <= kMostSplitColumns;
}

// Returns whether wgmma_plain_sm90 multiplies groups of plain numbers faster than cuBLASLt 13.10, or as fast. An H200, us of
// both: 32 groups of (5760,2880), 1024, 4096, 16384 and 32768 rows in all 272, 318, 793, 1497 and 323, 366, 866, 1494; 8 of
// (2048,7168) 85, 229, 602, 1194 and 112, 227, 658, 1186; 128 of these 883, 915, 1062, 1634 and 898, 1014, 1134, 1737. Of 131072
// rows 6233, 4818, 5636 and 5507, 4675, 5188.
bool has_plain_groups(const GemmProblem& p) {
    constexpr int64_t most_rows = int64_t(1) << 15;
    return p.grouping == Grouping::Rows && p.m <= most_rows && p.a.scale_type == ScaleType::None &&
           p.b.scale_type == ScaleType::None;
}

// Returns whether FP8 with scales of 128 stands beside something else.
bool mixes_scales_of_128(const GemmProblem& p) { return has_scales_of_128(p.a) != has_scales_of_128(p.b); }

// Returns whether wgmma_blocks_sm90, which makes BF16 of weights once for all rows, multiplies these faster than mma_bf16_rows,
// which decodes them for every eight. An H100, us of the latter and of the former: BF16 with FP8 128x128, 32 and 64 rows of
// (4096,4096) 33 57 and 62 58, 64 of (2048,7168) and (7168,2048) 51 79 and 60 40; FP8 1x128 with MXFP4 26 63, 48 63, 37 82 and
// 46 44. In 32 groups of (2048,7168), BF16 with FP8 128x128, 4, 64, 256, 1024 and 2048 rows in all 32 551, 151 708, 291 814,
// 875 821 and 1620 827.
bool has_rows_for_blocks(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? p.m > 24 * int64_t(std::max(p.groups.count, 1)) : p.m > 48;
}

// Where A is transposed, cuBLASLt needs a scale for every 128 codes of a line of both operands; that and an F32 D make it
// slow. Beside cuBLASLt 13.10, an H200, TFLOP/s: A transposed 8192^3 1173 and 985; in 8 groups (32768,2048,7168) and
// (32768,8192,5120) to F32 972 and 782, 1098 and 861; along the contraction to F32 873 and 736, 983 and 805, to BF16 907 and
// 863, 1032 and 962. Groups of rows to BF16 1001 and 1063, 1139 and 1186: cuBLASLt first.
//
// But codes with one scale a line, such as those of weights that are kept, need no pass there alone: 1071 and 1230 with such
// a B. That holds from two tiles of 128 x 192 for each multiprocessor on; with 88 tiles it takes 103 us and cuBLASLt 97, with
// 352 177 and 198 (docs/performance.md has the table). Where both sides have them, and there are no groups, cuBLASLt
// multiplies sums by the scales of lines as well: FP8 of 8192^3, 4096^3 and (32768,2048,7168) 1441, 1340 and 1425, here 1373,
// 1051 and 1314.
const GemmImplementation* preferred_gemm(const Context& context, const GemmProblem& p) {
    constexpr int64_t tile_rows = 128, tile_columns = 192, enough_tiles = 256;
    const bool is_hopper = cuda::compute_capability(context) == 90;  // Blackwell's few rows of MX and NVFP4 are cuBLASLt's
    if (mixes_scales_of_128(p)) return is_hopper && has_rows_for_blocks(p) ? &cuda::wgmma_blocks_sm90 : &cuda::mma_bf16_rows;
    if (has_split_rows(p)) return &cuda::splitk_sm90;
    if (has_few_rows(p)) return is_hopper && has_fewest_rows(p) ? &cuda::mma_bf16_rows : &cuda::skinny_sm90;
    if (has_plain_groups(p)) return &cuda::wgmma_plain_sm90;
    if (is_exact(p) && cuda::pays_to_widen(p)) return &cuda::wgmma_plain_widen;
    if (is_exact(p) && p.b.scale_type != ScaleType::None) return &cuda::wgmma_bf16_sm90;
    if (p.a.scale_type != ScaleType::E8M0) return nullptr;
    if (p.a.columnwise || p.d.format == MXQ_FORMAT_F32) return &cuda::wgmma_fp8_sm90;
    const int64_t groups = p.grouping == Grouping::Rows ? std::max(p.groups.count, 1) : 1;
    const int64_t tiles = groups * ceil_div(ceil_div(p.m, groups), tile_rows) * ceil_div(p.n, tile_columns);
    if (!has_kept_lines(p.b) || (has_kept_lines(p.a) && p.grouping == Grouping::None)) return nullptr;
    return tiles >= enough_tiles ? &cuda::wgmma_fp8_sm90 : nullptr;
}

template <class Problem, size_t count>
constexpr Verb<Problem> as_verb(const char* name, const Implementation<Problem>* const (&list)[count],
                                const Implementation<Problem>* (*preferred)(const Context&, const Problem&) = nullptr) {
    static_assert(count <= kMostImplementations);
    return {name, list, count, preferred};
}

}  // namespace

namespace verbs {
constinit const Verb<QuantizeProblem> quantize = as_verb("quantize", quantize_list);
constinit const Verb<QuantizeProblem> requantize = as_verb("requantize", requantize_list);
constinit const Verb<AmaxProblem> amax = as_verb("amax", amax_list);
constinit const Verb<DequantizeProblem> dequantize = as_verb("dequantize", dequantize_list);
constinit const Verb<ConvertProblem> convert = as_verb("convert", convert_list);
constinit const Verb<PadProblem> pad_groups = as_verb("pad_groups", pad_list);
constinit const Verb<PadProblem> unpad_groups = as_verb("unpad_groups", pad_list);
constinit const Verb<SwizzleProblem> swizzle_scales = as_verb("swizzle_scales", swizzle_list);
constinit const Verb<SwizzleProblem> unswizzle_scales = as_verb("unswizzle_scales", swizzle_list);
constinit const Verb<GemmProblem> gemm = as_verb("gemm", gemm_list, preferred_gemm);
constinit const Verb<GemmProblem> grouped_gemm = as_verb("grouped_gemm", grouped_gemm_list, preferred_gemm);
}  // namespace verbs

namespace {

// Calls `look` with every verb.
template <class Look>
void each_verb(const Look& look) {
    look(verbs::quantize);
    look(verbs::requantize);
    look(verbs::dequantize);
    look(verbs::convert);
    look(verbs::amax);
    look(verbs::swizzle_scales);
    look(verbs::unswizzle_scales);
    look(verbs::pad_groups);
    look(verbs::unpad_groups);
    look(verbs::gemm);
    look(verbs::grouped_gemm);
}

}  // namespace

void load_implementations(const Context& context) {
    each_verb([&](const auto& verb) {
        for (size_t i = 0; i < verb.count; i++)
            if (verb.first[i]->load) verb.first[i]->load(context);
    });
}

std::vector<VerbNames> verb_table() {
    std::vector<VerbNames> table;
    each_verb([&](const auto& verb) { table.push_back(names_of(verb)); });
    return table;
}

void check_workspace(uint64_t need, const void* workspace, uint64_t bytes) {
    if (need == 0 && bytes == 0) return;
    if (bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL,
             "workspace holds %llu bytes, expected at least %llu; ask the verb's query and mxq_plan_workspace_bytes",
             (unsigned long long)bytes, (unsigned long long)need);
    if (!workspace && need == 0)
        fail(MXQ_STATUS_MISSING_BUFFER, "workspace is NULL with %llu bytes, expected NULL with 0: this call needs none",
             (unsigned long long)bytes);
    if (!workspace)
        fail(MXQ_STATUS_MISSING_BUFFER,
             "workspace is NULL with %llu bytes, expected the address of at least %llu; allocate it",
             (unsigned long long)bytes, (unsigned long long)need);
    if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0)
        fail(MXQ_STATUS_MISALIGNED, "workspace is at %p, expected a multiple of %llu bytes", workspace,
             (unsigned long long)kWorkspaceAlignment);
}

}  // namespace mxq
