// Compiled alone: the side of TransformerEngine in docs/transformer-engine.md. Where its headers are not found, the declarations
// of the functions that the page names stand here, as in release 2.20.
#if __has_include(<transformer_engine/cast.h>)
#include <transformer_engine/cast.h>
#include <transformer_engine/gemm.h>
#include <transformer_engine/hadamard_transform.h>
#include <transformer_engine/padding.h>
#include <transformer_engine/recipe.h>
#include <transformer_engine/swizzle.h>
#else
#include <stddef.h>
#include <stdint.h>
typedef struct CUstream_st* cudaStream_t;
typedef void *NVTETensor, *NVTEGroupedTensor, *NVTEQuantizationConfig, *NVTEMatmulConfig;
enum NVTEDType {
    kNVTEByte = 0,
    kNVTEInt64 = 3,
    kNVTEFloat32 = 4,
    kNVTEBFloat16 = 6,
    kNVTEFloat8E4M3 = 7,
    kNVTEFloat8E8M0 = 9
};
enum NVTETensorParam {
    kNVTERowwiseData = 0,
    kNVTEColumnwiseData = 1,
    kNVTEScale = 2,
    kNVTEAmax = 3,
    kNVTERowwiseScaleInv = 4,
    kNVTEColumnwiseScaleInv = 5
};
enum NVTEScalingMode {
    NVTE_DELAYED_TENSOR_SCALING = 0,
    NVTE_MXFP8_1D_SCALING = 1,
    NVTE_BLOCK_SCALING_1D = 2,
    NVTE_BLOCK_SCALING_2D = 3,
    NVTE_NVFP4_1D_SCALING = 4
};
enum NVTEQuantizationConfigAttribute {
    kNVTEQuantizationConfigForcePow2Scales = 0,
    kNVTEQuantizationConfigAmaxEpsilon = 1,
    kNVTEQuantizationConfigRNGState = 4,
    kNVTEQuantizationConfigNVFP42DQuantization = 5,
    kNVTEQuantizationConfigStochasticRounding = 6,
    kNVTEQuantizationConfigNVFP44Over6Mode = 8
};
enum NVTEMatmulConfigAttribute { kNVTEMatmulConfigBiasTensor = 0, kNVTEMatmulConfigSMCount = 6 };
struct NVTEShape {
    size_t data[15];
    size_t ndim;
};
struct NVTEBasicTensor {
    void* data_ptr;
    NVTEDType dtype;
    NVTEShape shape;
};
extern "C" {
NVTETensor nvte_create_tensor(NVTEScalingMode);
void nvte_destroy_tensor(NVTETensor);
void nvte_set_tensor_param(NVTETensor*, NVTETensorParam, const NVTEBasicTensor*);
NVTEQuantizationConfig nvte_create_quantization_config();
void nvte_set_quantization_config_attribute(NVTEQuantizationConfig, NVTEQuantizationConfigAttribute, const void*, size_t);
void nvte_quantize(const NVTETensor, NVTETensor, cudaStream_t);
void nvte_quantize_v2(const NVTETensor, NVTETensor, const NVTEQuantizationConfig, cudaStream_t);
void nvte_multi_tensor_quantize(const NVTETensor*, NVTETensor*, const NVTEQuantizationConfig, const size_t, cudaStream_t);
void nvte_group_quantize(const NVTEGroupedTensor, NVTEGroupedTensor, const NVTEQuantizationConfig, cudaStream_t);
void nvte_dequantize(const NVTETensor, NVTETensor, cudaStream_t);
void nvte_compute_amax(const NVTETensor, NVTETensor, cudaStream_t);
void nvte_compute_scale_from_amax(NVTETensor, const NVTEQuantizationConfig, cudaStream_t);
void nvte_hadamard_transform_amax(const NVTETensor, NVTETensor, int, int, cudaStream_t);
void nvte_quantize_with_hadamard_transform(const NVTETensor, NVTETensor, const NVTETensor, const NVTEQuantizationConfig,
                                           cudaStream_t);
void nvte_swizzle_scaling_factors(const NVTETensor, NVTETensor, cudaStream_t);
void nvte_multi_padding(size_t, const NVTETensor*, NVTETensor*, const int*, cudaStream_t);
NVTEMatmulConfig nvte_create_matmul_config();
void nvte_set_matmul_config_attribute(NVTEMatmulConfig, NVTEMatmulConfigAttribute, const void*, size_t);
void nvte_cublas_gemm(const NVTETensor, const NVTETensor, NVTETensor, const NVTETensor, NVTETensor, bool, bool, bool,
                      NVTETensor, bool, bool, int, cudaStream_t);
void nvte_cublas_gemm_v2(int, int, const float*, const NVTETensor, const NVTETensor, const float*, const NVTETensor,
                         NVTETensor, NVTETensor, NVTEMatmulConfig, cudaStream_t);
void nvte_multi_tensor_gemm(const NVTETensor*, const NVTETensor*, NVTETensor*, const NVTETensor*, NVTETensor*, const int,
                            bool, bool, bool, NVTETensor*, bool, bool, int, cudaStream_t);
}
#endif

void caller(size_t M, size_t K, void* x_data, void* row_data, void* row_scales, void* column_data, void* column_scales,
            float* scale, float* amax, float* scale_inv, NVTETensor x, NVTETensor xq, NVTETensor wq, NVTETensor dyq,
            NVTETensor y, NVTETensor dx, NVTETensor dw, NVTETensor empty, NVTETensor workspace, NVTETensor rng_state,
            NVTETensor hadamard_matrix, NVTETensor* xs, NVTETensor* xqs, NVTETensor* wqs, NVTETensor* ys,
            NVTETensor* workspaces, NVTETensor* padded, const int* padded_rows, int experts, NVTETensor bias,
            NVTETensor swizzled, cudaStream_t stream) {
    // page
}
