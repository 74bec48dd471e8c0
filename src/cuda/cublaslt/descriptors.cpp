#include "cuda/cublaslt/descriptors.h"

#include "core/error.h"

namespace mxq::cuda::lt {
namespace {

// Stands for a pointer that a query does not have.
constexpr uintptr_t kNowhere = 256;

template <class T>
T* somewhere(T* pointer) {
    return pointer ? pointer : reinterpret_cast<T*>(kNowhere);
}

bool is_narrow(const MatmulDescription& p) { return p.a.mode != ScaleMode::None; }

}  // namespace

void check(const Api& api, cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(MXQ_STATUS_CUDA_ERROR, "%s failed: cuBLASLt says %s (status %d)", what, api.status_name(status), int(status));
}

Descriptors::Descriptors(const Api& api, const MatmulDescription& p)
    : api_(api), operation_(api.desc_destroy), a_(api.layout_destroy), b_(api.layout_destroy), d_(api.layout_destroy) {
    describe_operation(p);
    if (p.groups == 0) describe_matrices(p);
}

void Descriptors::point_at(const MatmulDescription& p, const GroupSizes* sizes) {
    if (p.groups > 0) describe_groups(p, sizes ? *sizes : GroupSizes{});
    if (p.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(p.bias));
    if (!is_narrow(p)) return;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, somewhere(p.a.scales));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, somewhere(p.b.scales));
}

template <class T>
void Descriptors::set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(api_, api_.desc_set(operation_.handle(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

void Descriptors::describe_operation(const MatmulDescription& p) {
    check(api_, api_.desc_create(operation_.renew(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(p.a.across ? CUBLAS_OP_N : CUBLAS_OP_T));
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(p.b.across ? CUBLAS_OP_T : CUBLAS_OP_N));
    // Groups take their factors from the device always: from the host they are wrong on 9.0 before 13.8.
    if (p.alpha != Alpha::Host || p.groups > 0)
        set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(CUBLASLT_POINTER_MODE_DEVICE));
    if (p.alpha == Alpha::DevicePerGroup) {
        set(kAlphaBatchStride, int64_t(1));
        set(kBetaBatchStride, int64_t(1));
    }
    if (p.sm_count > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, p.sm_count);
    if (p.has_bias) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t(CUBLASLT_EPILOGUE_BIAS));
        set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(p.bias_type));
    }
    if (!is_narrow(p)) return;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(0));
    if (p.a.mode == ScaleMode::Scalar) return;  // the default; releases before 12.8 do not know the attributes
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t(p.a.mode));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t(p.b.mode));
}

void Descriptors::describe_matrices(const MatmulDescription& p) {
    const auto create = [&](auto& layout, cudaDataType type, int64_t rows, int64_t columns, int64_t ld) {
        check(api_, api_.layout_create(layout.renew(), type, uint64_t(rows), uint64_t(columns), ld),
              "cublasLtMatrixLayoutCreate");
    };
    const auto create_operand = [&](auto& layout, const MatrixDescription& of, int64_t lines) {
        create(layout, of.type, of.across ? lines : p.k, of.across ? p.k : lines, of.ld);
    };
    create_operand(a_, p.a, p.m);
    create_operand(b_, p.b, p.n);
    create(d_, p.d_type, p.m, p.n, p.ldd);
}

// Makes the layouts of groups anew only where their sizes are elsewhere: a caller mostly has the same workspace.
void Descriptors::describe_groups(const MatmulDescription& p, const GroupSizes& sizes) {
    if (d_.handle() && sizes == sizes_) return;
    const auto create = [&](auto& layout, cudaDataType type, int32_t* rows, int32_t* columns, int32_t* ld) {
        check(api_,
              api_.grouped_layout_create(layout.renew(), type, p.groups, somewhere(rows), somewhere(columns), somewhere(ld)),
              "cublasLtGroupedMatrixLayoutCreate");
    };
    const auto create_operand = [&](auto& layout, const MatrixDescription& of, int32_t* lines, int32_t* ld) {
        create(layout, of.type, of.across ? lines : sizes.k, of.across ? sizes.k : lines, ld);
    };
    create_operand(a_, p.a, sizes.m, sizes.a_ld);
    create_operand(b_, p.b, sizes.n, sizes.b_ld);
    create(d_, p.d_type, sizes.m, sizes.n, sizes.d_ld);
    sizes_ = sizes;
}

}  // namespace mxq::cuda::lt
