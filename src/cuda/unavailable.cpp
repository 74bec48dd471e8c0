// The CUDA backend of a build without CUDA: no context can be opened, every implementation declines.
#include "cuda/backend.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

template <class Problem>
std::string declines(const Context&, const Problem&) {
    return "this library was built without CUDA";
}

template <class Problem>
constexpr Implementation<Problem> unavailable(const char* name) {
    return {name, declines<Problem>, nullptr, nullptr};
}

}  // namespace

constinit const QuantizeImplementation quantize_rowwise = unavailable<QuantizeProblem>("quantize_rowwise");
constinit const QuantizeImplementation quantize_tile = unavailable<QuantizeProblem>("quantize_tile");
constinit const QuantizeImplementation quantize_fp4 = unavailable<QuantizeProblem>("quantize_fp4");
constinit const QuantizeImplementation quantize_fp4_pairs = unavailable<QuantizeProblem>("quantize_fp4_pairs");
constinit const QuantizeImplementation requantize_tile = unavailable<QuantizeProblem>("requantize_tile");
constinit const AmaxImplementation amax = unavailable<AmaxProblem>("amax");
constinit const PadImplementation pad_groups = unavailable<PadProblem>("pad_groups");
constinit const DequantizeImplementation dequantize_rowwise = unavailable<DequantizeProblem>("dequantize_rowwise");
constinit const DequantizeImplementation dequantize_columnwise = unavailable<DequantizeProblem>("dequantize_columnwise");
constinit const SwizzleImplementation swizzle_scales = unavailable<SwizzleProblem>("swizzle_scales");
constinit const GemmImplementation cublaslt_grouped = unavailable<GemmProblem>("cublaslt_grouped");
constinit const GemmImplementation cublaslt = unavailable<GemmProblem>("cublaslt");
constinit const GemmImplementation cublaslt_grouped_rebase = unavailable<GemmProblem>("cublaslt_grouped_rebase");
constinit const GemmImplementation cublaslt_rebase = unavailable<GemmProblem>("cublaslt_rebase");
constinit const GemmImplementation mma_bf16 = unavailable<GemmProblem>("mma_bf16");

void open(Context&, int, const std::string&) {
    fail(MXQ_STATUS_NO_DEVICE,
         "this libmxq was built without CUDA; use MXQ_DEVICE_CPU, or build it where a CUDA compiler is found (MXQ_CUDA=ON)");
}

bool is_capturing(const Context&, void*) { return false; }

}  // namespace mxq::cuda
