// The whole dispatch policy: for each verb, implementations in the order in which they are asked. The first that takes the
// problem runs it. For products order_products, below, changes the order: on Hopper by the costs of product_costs.cpp.
//
// Tables below compare two implementations. "120 | 150" are times in us, of the first and of the second one in the header,
// for B of the given (N,K), unless they say otherwise. docs/performance.md has more of them.
#include <algorithm>

#include "cpu/implementations.h"
#include "cuda/backend.h"
#include "cuda/implementations.h"
#include "cuda/widen/pays_to_widen.h"
#include "dispatch/choice.h"
#include "dispatch/product_costs.h"

namespace mxq {
namespace {

const QuantizeImplementation* const quantize_list[] = {
    &cuda::quantize_rowwise,     // the rowwise part alone of 8 and 4 bits, of aligned rows
    &cuda::quantize_fp4_groups,  // groups of aligned BF16 to NVFP4 and MXFP4, columnwise or both
    &cuda::quantize_fp4_pairs,   // aligned BF16 to NVFP4 and MXFP4
    &cuda::quantize_columns,     // aligned BF16 to columns of 8 bits, without groups
    &cuda::quantize_groups,      // groups of aligned BF16 to columns of MXFP8 1x32 and 32x32
    &cuda::quantize_tile,        // every other format, part and scaling of 8 and 6 bits: tiles of 128x128 in registers
    &cuda::quantize_fp4,  // all other NVFP4 and MXFP4: Hadamard transform, stochastic rounding, four-over-six, any rows
    &cpu::quantize,
};

const QuantizeImplementation* const requantize_list[] = {
    &cuda::requantize_transpose,  // MXFP8 and FP8 to the transposed part in MXFP8 1x32, aligned rows
    &cuda::requantize_codes,      // E4M3 and E2M1 codes, rows of whole aligned 8 codes: any scaling, layout and part
    &cuda::requantize_values,     // any formats, scalings, parts and alignments
    &cuda::quantize_fp4,          // Hadamard transform, stochastic rounding, four-over-six
    &cpu::quantize,
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
    &cuda::cublaslt,          // cuBLASLt's tensor-core kernels, where version, chip and layout allow
    &cuda::cublaslt_swizzle,  // after a pass over compact scales, and over MX of 4 and 6 bits; where FP8 takes E8M0 scales
    &cuda::cublaslt_rebase,   // MX where FP8 takes no E8M0 scales: after a pass over each operand
    &cuda::splitk_sm90,       // up to 128 rows, split-K in one launch, exact
    &cuda::wgmma_fp8_sm90,    // MX rebased by a kernel of our own, and FP8
    &cuda::wgmma_bf16_sm90,   // BF16, NVFP4, and FP8 with ROW scales, with quantized weights
    &cuda::wgmma_plain_sm90,  // BF16 with BF16, F16 with F16
    &cuda::wgmma_fp8_transpose,  // FP8 with MN-major FP8, which a pass transposes
    &cuda::weights_sm90,         // what is BF16, or becomes so, with quantized weights: few rows
    &cuda::weights_fp8_sm90,     // FP8 and MXFP8 with MXFP4 on FP8 tensor cores, few rows
    &cuda::wgmma_blocks_sm90,    // FP8 with scales of 128 with BF16, MX and NVFP4
    &cuda::cublaslt_widen,       // MN-major MX, and weight gradients that are exact or with BF16: after dequantizing to BF16
    &cuda::wgmma_plain_widen,    // the same by a kernel of our own, and exact products of many rows
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_transpose,  // MN-major FP8, which a pass transposes
    &cuda::mma_bf16_rows,       // up to 64 rows (of groups: on average) with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

const GemmImplementation* const grouped_gemm_list[] = {
    &cuda::cublaslt_grouped,  // one call for all groups
    &cuda::cublaslt_grouped_swizzle,
    &cuda::wgmma_plain_sm90,  // one launch; BF16 with BF16, F16 with F16
    &cuda::cublaslt,          // one call for each group, which needs their ends on the host
    &cuda::cublaslt_swizzle,
    &cuda::cublaslt_grouped_rebase,
    &cuda::wgmma_fp8_sm90,  // MX; FP8 with ROW scales, which cuBLASLt does not group
    &cuda::wgmma_bf16_sm90,
    &cuda::wgmma_fp8_transpose,
    &cuda::weights_sm90,       // what is BF16, or becomes so, with quantized weights: few rows
    &cuda::weights_fp8_sm90,   // FP8 and MXFP8 with MXFP4 on FP8 tensor cores, few rows
    &cuda::wgmma_blocks_sm90,  // FP8 with scales of 128 with BF16, MX and NVFP4
    &cuda::wgmma_plain_widen,  // as above, and NVFP4 and FP8 with ROW scales
    &cuda::cublaslt_grouped_widen,
    &cuda::cublaslt_widen,
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_transpose,  // MN-major FP8, which a pass transposes
    &cuda::mma_bf16_rows,       // up to 64 rows a group on average, with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

const RouteImplementation* const route_list[] = {
    &cuda::route,
    &cpu::route,
};

const CombineImplementation* const combine_list[] = {
    &cuda::combine,
    &cpu::combine,
};

const CombineBackwardImplementation* const combine_backward_list[] = {
    &cuda::combine_backward,
    &cpu::combine_backward,
};

// Returns whether each product of two codes must be exact, so that BF16 tensor cores multiply. FP8 tensor cores take the
// other problems: FP8 with FP8, and MX with MX unless the caller asked for exact products.
bool is_exact(const GemmProblem& p) {
    // With such a B, A is plain, for BF16 tensor cores, or FP8, for FP8 tensor cores.
    if (p.b.scale_type == ScaleType::None || p.b.scale_type == ScaleType::F32) return p.a.scale_type == ScaleType::None;
    return p.a.scale_type != ScaleType::E8M0 || p.b.scale_type != ScaleType::E8M0 || p.exact_products;
}

// Returns whether wgmma_plain_sm90 multiplies groups of plain numbers at least as fast as cuBLASLt. An H200, rows in all:
//
//     wgmma_plain_sm90 | cuBLASLt 13.10   1024         4096          16384          32768          131072 rows
//     32 groups of (5760,2880)            272 | 323    318 | 366     793 | 866      1497 | 1494    6233 | 5507
//     8 groups of (2048,7168)             85 | 112     229 | 227     602 | 658      1194 | 1186    4818 | 4675
//     128 groups of (2048,7168)           883 | 898    915 | 1014    1062 | 1134    1634 | 1737    5636 | 5188
bool has_plain_groups(const GemmProblem& p) {
    constexpr int64_t most_rows = int64_t(1) << 15;
    return p.grouping == Grouping::Rows && p.m <= most_rows && p.a.scale_type == ScaleType::None &&
           p.b.scale_type == ScaleType::None;
}

// Returns whether weights_sm90 takes rows that must be invariant: all products with quantized weights on BF16 tensor cores.
bool has_exact_weights(const GemmProblem& p) {
    if (p.a.across || p.b.across || p.b.scale_type == ScaleType::None) return false;
    return is_exact(p) || p.b.scale_type == ScaleType::E8M0 || has_scales_of_128(p.a) != has_scales_of_128(p.b);
}

// Returns whether product_costs.cpp has the costs of such products.
bool has_costs(const Context& context, const GemmProblem& p) {
    return cuda::compute_capability(context) == 90 && p.grouping != Grouping::Contraction && !p.a.across && !p.b.across &&
           !p.row_invariant;
}

// Returns the implementation that is asked first where there are no costs, or null for the order of the list. The first case
// that fits decides:
//
//     rows must be invariant       weights_sm90 on Hopper where has_exact_weights
//     has_plain_groups             wgmma_plain_sm90
//     is_exact                     wgmma_plain_widen where that pays, else wgmma_bf16_sm90 with quantized weights
//     MX, A transposed or F32 D    wgmma_fp8_sm90, since cuBLASLt then needs a scale for every 128 codes, or is slow. An H200:
//
//     TFLOP/s, wgmma_fp8_sm90 | cuBLASLt 13.10         (32768,2048,7168)    (32768,8192,5120), 8 groups
//     groups along K, F32 D                            873 | 736            983 | 805
//     groups along K, BF16 D                           907 | 863            1032 | 962
const GemmImplementation* first_of_products(const Context& context, const GemmProblem& p) {
    if (p.row_invariant)
        return cuda::compute_capability(context) == 90 && has_exact_weights(p) ? &cuda::weights_sm90 : nullptr;
    if (has_plain_groups(p)) return &cuda::wgmma_plain_sm90;
    if (is_exact(p) && cuda::pays_to_widen(p)) return &cuda::wgmma_plain_widen;
    if (is_exact(p) && p.b.scale_type != ScaleType::None) return &cuda::wgmma_bf16_sm90;
    const bool suits = p.a.scale_type == ScaleType::E8M0 && (p.a.columnwise || p.d.format == MXQ_FORMAT_F32);
    return suits ? &cuda::wgmma_fp8_sm90 : nullptr;
}

// Puts those of a list that cost least first; those without a cost keep their places behind them.
void sort_by_costs(const Context& context, const GemmProblem& p, std::span<const GemmImplementation*> list) {
    const int32_t all = std::max(cuda::multiprocessors(context), 1), own = p.sm_count > 0 ? std::min(p.sm_count, all) : all;
    std::array<std::pair<double, const GemmImplementation*>, kMostImplementations> costs;
    const ProductCosts of_product(p, own);
    for (size_t i = 0; i < list.size(); i++) costs[i] = {of_product.of(*list[i]), list[i]};
    std::stable_sort(costs.begin(), costs.begin() + list.size(), [](auto& a, auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < list.size(); i++) list[i] = costs[i].second;
}

void order_products(const Context& context, const GemmProblem& p, std::span<const GemmImplementation*> list) {
    if (has_costs(context, p)) return sort_by_costs(context, p, list);
    const auto found = std::find(list.begin(), list.end(), first_of_products(context, p));
    if (found != list.end()) std::rotate(list.begin(), found, found + 1);
}

const ActivateImplementation* const activate_list[] = {
    &cuda::activate,           // to plain numbers
    &cuda::activate_rowwise,   // of a gate, aligned BF16 to rows of 8 bits with scales of 1x32 and 1x128
    &cuda::activate_tile,      // to codes of 8 and 6 bits with scales of blocks: tiles of 128x128 in registers
    &cuda::activate_quantize,  // to every other format: F32 in the workspace, then quantize
    &cpu::activate,
};

const ActivateImplementation* const activate_backward_list[] = {
    &cuda::activate_backward,           // to plain numbers
    &cuda::activate_backward_tile,      // aligned BF16 in halves to codes of 8 bits with scales of blocks, from one read
    &cuda::activate_backward_quantize,  // to every quantized format: F32 in the workspace, then quantize
    &cpu::activate_backward,
};

// Steps of mxq_expert_layer: the first product, with the routing and the activation, and the second one. Where none takes it,
// single verbs do.
const RoutedProductImplementation* const activated_product_list[] = {&cuda::mma_bf16_rows_activate};
const RoutedProductImplementation* const routed_product_list[] = {&cuda::mma_bf16_rows_routed};
const RoutedCombineImplementation* const routed_combine_list[] = {&cuda::combine_choices};

template <class Problem, size_t count>
constexpr Verb<Problem> as_verb(const char* name, const Implementation<Problem>* const (&list)[count],
                                void (*order)(const Context&, const Problem&,
                                              std::span<const Implementation<Problem>*>) = nullptr) {
    static_assert(count <= kMostImplementations);
    return {name, list, count, order};
}

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
    look(verbs::route);
    look(verbs::combine);
    look(verbs::combine_backward);
    look(verbs::activate);
    look(verbs::activate_backward);
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
constinit const Verb<GemmProblem> gemm = as_verb("gemm", gemm_list, order_products);
constinit const Verb<GemmProblem> grouped_gemm = as_verb("grouped_gemm", grouped_gemm_list, order_products);
constinit const Verb<RouteProblem> route = as_verb("route", route_list);
constinit const Verb<CombineProblem> combine = as_verb("combine", combine_list);
constinit const Verb<CombineBackwardProblem> combine_backward = as_verb("combine_backward", combine_backward_list);
constinit const Verb<ActivateProblem> activate = as_verb("activate", activate_list);
constinit const Verb<ActivateProblem> activate_backward = as_verb("activate_backward", activate_backward_list);
constinit const Verb<RoutedProductProblem> activated_product = as_verb("grouped_gemm", activated_product_list);
constinit const Verb<RoutedProductProblem> routed_product = as_verb("grouped_gemm", routed_product_list);
constinit const Verb<RoutedCombineProblem> routed_combine = as_verb("combine", routed_combine_list);
}  // namespace verbs

void gather_rows(const Context& context, const GatherProblem& problem, const Launch& launch) {
    (context.is_cpu() ? cpu::gather_rows : cuda::gather_rows).run(context, problem, launch);
}

void load_implementations(const Context& context) {
    if (context.is_cuda()) cuda::gather_rows.load(context);
    const auto load = [&](const auto& verb) {
        for (size_t i = 0; i < verb.count; i++)
            if (verb.first[i]->load) verb.first[i]->load(context);
    };
    each_verb(load);
    load(verbs::activated_product);
    load(verbs::routed_product);
    load(verbs::routed_combine);
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
