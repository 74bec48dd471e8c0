// The class of bound that each product of the CUDA backend names, by its operands. No GPU is needed.
#include "../catch.h"
#include "dispatch/choice.h"
#include "cublaslt_recorder.h"
#include "cuda/implementations.h"

using namespace mxq;
using namespace recorder;

namespace {

GemmProblem of(const oracle::Spec& spec, bool swizzled) {
    Case c{spec, spec};
    c.swizzled = swizzled;
    return dense(c);
}

}  // namespace

TEST_CASE("bound: cublaslt has exact products of 16-bit numbers, and FP8 tensor cores for all else") {
    for (const GemmImplementation* cublaslt : {&cuda::cublaslt, &cuda::cublaslt_grouped}) {
        INFO(cublaslt->name);
        CHECK(bound_of(*cublaslt, of(bf16(), false)) == MXQ_BOUND_EXACT_PRODUCTS);
        for (const int32_t scaling : {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128})
            CHECK(bound_of(*cublaslt, of(fp8(scaling), false)) == MXQ_BOUND_FP8_TENSOR_CORES);
        CHECK(bound_of(*cublaslt, of(mxfp8(), true)) == MXQ_BOUND_FP8_TENSOR_CORES);
        CHECK(bound_of(*cublaslt, of(nvfp4(), true)) == MXQ_BOUND_FP8_TENSOR_CORES);
    }
}

TEST_CASE("bound: rebased products and products in BF16 have one class each") {
    const GemmProblem p = of(mxfp8(), true);
    CHECK(bound_of(cuda::cublaslt_rebase, p) == MXQ_BOUND_REBASED);
    CHECK(bound_of(cuda::cublaslt_grouped_rebase, p) == MXQ_BOUND_REBASED);
    CHECK(bound_of(cuda::mma_bf16, p) == MXQ_BOUND_EXACT_PRODUCTS);
}
