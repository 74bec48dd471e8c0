// What the library declares of cuBLASLt itself, because older headers lack it, is what a header that has it says. Compiled
// alone, by tests/other_toolkits.sh, with the newest header.
#include <type_traits>

#include "cuda/cublaslt/library.h"
#include "cuda/cublaslt/description.h"

namespace lt = mxq::cuda::lt;

constexpr bool is(lt::ScaleMode ours, cublasLtMatmulMatrixScale_t theirs) { return int32_t(ours) == int32_t(theirs); }

static_assert(is(lt::ScaleMode::Scalar, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F));
static_assert(is(lt::ScaleMode::Vec16, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3));
static_assert(is(lt::ScaleMode::Vec32, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0));
static_assert(is(lt::ScaleMode::OuterVec, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
static_assert(is(lt::ScaleMode::Vec128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
static_assert(is(lt::ScaleMode::Block128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
static_assert(is(lt::ScaleMode::GroupScalar, CUBLASLT_MATMUL_MATRIX_SCALE_PER_BATCH_SCALAR_32F));

static_assert(lt::kAlphaBatchStride == CUBLASLT_MATMUL_DESC_ALPHA_BATCH_STRIDE);
static_assert(lt::kBetaBatchStride == CUBLASLT_MATMUL_DESC_BETA_BATCH_STRIDE);
static_assert(lt::kAverageDepth == CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM);
static_assert(lt::kAverageRows == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS);
static_assert(lt::kAverageColumns == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS);
static_assert(lt::kDeepStages == CUBLASLT_MATMUL_STAGES_768xAUTO);

static_assert(std::is_same_v<lt::GroupedLayoutCreate*, decltype(&cublasLtGroupedMatrixLayoutCreate)>);
static_assert(std::is_same_v<lt::HeuristicForStream*, decltype(&cublasLtMatmulAlgoGetHeuristicForStream)>);
