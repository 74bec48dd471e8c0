// The class of bound that each product of the CUDA backend names, by its operands. No GPU is needed.
#include "../catch.h"
#include "dispatch/choice.h"
#include "cublaslt_recorder.h"
#include "cuda/cublaslt/products.h"
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

TEST_CASE("bound: cublaslt has exact products of 16-bit numbers, and the class of the chip's FP8 tensor cores for all else") {
    for (const int32_t chip : {89, 90, 100, 103, 110, 120}) {
        INFO(chip);
        const int32_t narrow = chip < 100 ? MXQ_BOUND_FP8_TENSOR_CORES : MXQ_BOUND_BLACKWELL_TENSOR_CORES;
        CHECK(cuda::lt::bound_on(chip, of(bf16(), false)) == MXQ_BOUND_EXACT_PRODUCTS);
        for (const int32_t scaling : {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128})
            CHECK(cuda::lt::bound_on(chip, of(fp8(scaling), false)) == narrow);
        CHECK(cuda::lt::bound_on(chip, of(mxfp8(), true)) == narrow);
        CHECK(cuda::lt::bound_on(chip, of(nvfp4(), true)) == narrow);
    }
    for (const GemmImplementation* of_library :
         {&cuda::cublaslt, &cuda::cublaslt_grouped, &cuda::cublaslt_swizzle, &cuda::cublaslt_grouped_swizzle})
        CHECK(of_library->bound == cuda::lt::product_bound);
}

TEST_CASE("bound: rebased products and products in BF16 have one class each") {
    const GemmProblem p = of(mxfp8(), true);
    CHECK(bound_of(cuda::cublaslt_rebase, *testing::any_context(), p) == MXQ_BOUND_REBASED);
    CHECK(bound_of(cuda::cublaslt_grouped_rebase, *testing::any_context(), p) == MXQ_BOUND_REBASED);
    CHECK(bound_of(cuda::mma_bf16, *testing::any_context(), p) == MXQ_BOUND_EXACT_PRODUCTS);
}
