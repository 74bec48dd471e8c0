// The whole dispatch policy: per verb, implementations in the order in which they are asked.
#include "cpu/implementations.h"
#include "cuda/implementations.h"
#include "dispatch/implementation.h"

namespace mxq {
namespace {

const QuantizeImplementation* const quantize_list[] = {
    &cuda::quantize_rowwise,  // rowwise alone in blocks of a line: streams, no shared memory
    &cuda::quantize_fp4_pairs,  // BF16 to NVFP4 and MXFP4
    &cuda::quantize_tile,     // columnwise, both, square tiles, groups: 128x128 tiles through shared memory
    &cuda::quantize_fp4,      // Hadamard transform, stochastic rounding, four-over-six
    &cpu::quantize,
};

const QuantizeImplementation* const requantize_list[] = {
    &cuda::requantize_tile,
    &cuda::quantize_fp4,
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
    &cpu::dequantize,
};

const SwizzleImplementation* const swizzle_list[] = {
    &cuda::swizzle_scales,
    &cpu::swizzle_scales,
};

const GemmImplementation* const gemm_list[] = {
    &cuda::mma_bf16,
    &cpu::gemm,
};

template <class Problem, size_t count>
constexpr ImplementationList<Problem> as_list(const Implementation<Problem>* const (&list)[count]) {
    return {list, count};
}

}  // namespace

const ImplementationList<QuantizeProblem> quantize_implementations = as_list(quantize_list);
const ImplementationList<QuantizeProblem> requantize_implementations = as_list(requantize_list);
const ImplementationList<AmaxProblem> amax_implementations = as_list(amax_list);
const ImplementationList<PadProblem> pad_implementations = as_list(pad_list);
const ImplementationList<DequantizeProblem> dequantize_implementations = as_list(dequantize_list);
const ImplementationList<SwizzleProblem> swizzle_implementations = as_list(swizzle_list);
const ImplementationList<GemmProblem> gemm_implementations = as_list(gemm_list);

void check_workspace(uint64_t need, const void* workspace, uint64_t bytes) {
    if (need == 0) return;
    if (bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL, "workspace holds %llu bytes, expected at least %llu; ask the verb's query",
             (unsigned long long)bytes, (unsigned long long)need);
    if (!workspace)
        fail(MXQ_STATUS_MISSING_BUFFER, "workspace is NULL, expected %llu bytes; ask the verb's query",
             (unsigned long long)need);
    if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0)
        fail(MXQ_STATUS_MISALIGNED, "workspace is at %p, expected a multiple of %llu bytes", workspace,
             (unsigned long long)kWorkspaceAlignment);
}

}  // namespace mxq
