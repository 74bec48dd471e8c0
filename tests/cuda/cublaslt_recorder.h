// A stand-in for cuBLASLt's functions that writes down what it is told and does nothing, and tensors whose memory is only
// addresses: what is asked of the library for chips that are not here.
#ifndef MXQ_TESTS_CUBLASLT_RECORDER_H
#define MXQ_TESTS_CUBLASLT_RECORDER_H

#include "../api.h"
#include "../formats.h"
#include "core/validate.h"
#include "cuda/cublaslt/session.h"

#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace recorder {

using Bytes = std::vector<uint8_t>;
using Attributes = std::map<int, Bytes>;

template <class T>
Bytes bytes_of(T value) {
    Bytes bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

// A matrix layout: of one matrix, or of groups with its sizes on the device.
struct Layout {
    int type = -1;
    uint64_t rows = 0, columns = 0;
    int64_t ld = 0;
    int groups = 0;
    const void *rows_array = nullptr, *columns_array = nullptr, *ld_array = nullptr;
    bool operator==(const Layout&) const = default;
};

struct Operation {
    int compute = -1, scale = -1;
    Attributes attributes;
};

// A matmul or a question to the heuristic, with copies of what its descriptors said then.
struct Call {
    Operation operation;
    Layout a, b, c, d;
    Attributes preference;
    const void *alpha = nullptr, *beta = nullptr, *a_data = nullptr, *b_data = nullptr, *c_data = nullptr, *d_data = nullptr;
    const void* workspace = nullptr;
    size_t workspace_bytes = 0;
    cudaStream_t stream = nullptr;
    uint64_t algorithm = 0;
    bool for_stream = false;
};

// What the heuristic answers with: its number goes into the algorithm, its configuration is what config_get tells.
struct Candidate {
    uint64_t number = 1;
    std::map<int, uint32_t> configuration;
    cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
    size_t workspace = 0;
};

struct Recorder {
    int created = 0, live = 0;  // descriptors, preferences and handles: all, and those not destroyed yet
    std::vector<int> sets;      // attributes of operations, in the order in which they were set
    std::vector<Call> heuristics, matmuls;
    std::vector<Candidate> candidates{{}};
    cublasStatus_t heuristic_status = CUBLAS_STATUS_SUCCESS, matmul_status = CUBLAS_STATUS_SUCCESS;
    int layouts_until_failure = -1;       // never
    std::function<void()> during_matmul;  // called by the next one, which then goes on
};

inline Recorder* now = nullptr;

// Makes a fresh recorder the one that all functions write to.
struct Recording : Recorder {
    Recording() { now = this; }
    ~Recording() { now = nullptr; }
};

template <class T, class Handle>
cublasStatus_t create(Handle* out, T value) {
    *out = reinterpret_cast<Handle>(new T(std::move(value)));
    now->created++;
    now->live++;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Handle>
cublasStatus_t destroy(Handle handle) {
    delete reinterpret_cast<T*>(handle);
    now->live--;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Handle>
const T& content(Handle handle) {
    return *reinterpret_cast<const T*>(handle);
}

inline Bytes bytes_at(const void* value, size_t size) {
    auto bytes = static_cast<const uint8_t*>(value);
    return Bytes(bytes, bytes + size);
}

inline void set_preference(Attributes& attributes, int attribute, const void* value, size_t size) {
    REQUIRE(attributes.emplace(attribute, bytes_at(value, size)).second);  // nothing is set twice
}

inline void set_operation(Attributes& attributes, int attribute, const void* value, size_t size) {
    const bool pointer = attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
                         attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER || attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    REQUIRE((pointer || !attributes.count(attribute)));  // nothing but pointers is set twice
    attributes[attribute] = bytes_at(value, size);
    now->sets.push_back(attribute);
}

template <class... Fields>
cublasStatus_t create_layout(cublasLtMatrixLayout_t* out, Fields... fields) {
    if (now->layouts_until_failure >= 0 && now->layouts_until_failure-- == 0) return CUBLAS_STATUS_ALLOC_FAILED;
    return create(out, Layout{fields...});
}

inline cublasStatus_t ask(cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                          cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* results,
                          int* count, cudaStream_t stream) {
    Call call;
    call.operation = content<Operation>(operation);
    call.a = content<Layout>(a), call.b = content<Layout>(b), call.c = content<Layout>(c), call.d = content<Layout>(d);
    call.preference = content<Attributes>(preference);
    call.stream = stream;
    now->heuristics.push_back(call);
    *count = 0;
    for (const Candidate& candidate : now->candidates) {
        if (*count == most || now->heuristic_status != CUBLAS_STATUS_SUCCESS) break;
        cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
        result.algo.data[0] = candidate.number;
        result.state = candidate.state;
        result.workspaceSize = candidate.workspace;
    }
    return now->heuristic_status;
}

inline cublasStatus_t config_get(const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
                                 void* to, size_t size, size_t* written) {
    for (const Candidate& candidate : now->candidates) {
        if (candidate.number != algorithm->data[0] || !candidate.configuration.count(attribute)) continue;
        std::memcpy(to, &candidate.configuration.at(attribute), size);
        *written = size;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

inline cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                             cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                             const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                             const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                             cudaStream_t stream) {
    if (const auto during = std::exchange(now->during_matmul, nullptr)) during();
    now->matmuls.push_back({content<Operation>(operation), content<Layout>(a_layout), content<Layout>(b_layout),
                            content<Layout>(c_layout), content<Layout>(d_layout), {}, alpha, beta, a, b, c, d, workspace,
                            workspace_bytes, stream, algorithm->data[0], false});
    return now->matmul_status;
}

// As cuBLASLt 13.10 has them, or without those that came later than 13.1.
inline mxq::cuda::lt::Api api(bool newest = true) {
    mxq::cuda::lt::Api api{};
    api.version = [] { return size_t(0); };
    api.status_name = [](cublasStatus_t status) {
        return status == CUBLAS_STATUS_NOT_SUPPORTED ? "NOT_SUPPORTED" : "OTHER";
    };
    api.create = [](cublasLtHandle_t* out) { return create(out, 0); };
    api.destroy = [](cublasLtHandle_t handle) { return destroy<int>(handle); };
    api.desc_create = [](cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
        return create(out, Operation{compute, scale, {}});
    };
    api.desc_destroy = [](cublasLtMatmulDesc_t handle) { return destroy<Operation>(handle); };
    api.desc_set = [](cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute, const void* value,
                      size_t size) {
        set_operation(reinterpret_cast<Operation*>(handle)->attributes, attribute, value, size);
        return CUBLAS_STATUS_SUCCESS;
    };
    api.layout_create = [](cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
        return create_layout(out, int(type), rows, columns, ld);
    };
    api.layout_destroy = [](cublasLtMatrixLayout_t handle) { return destroy<Layout>(handle); };
    api.preference_create = [](cublasLtMatmulPreference_t* out) { return create(out, Attributes{}); };
    api.preference_destroy = [](cublasLtMatmulPreference_t handle) { return destroy<Attributes>(handle); };
    api.preference_set = [](cublasLtMatmulPreference_t handle, cublasLtMatmulPreferenceAttributes_t attribute,
                            const void* value, size_t size) {
        set_preference(*reinterpret_cast<Attributes*>(handle), attribute, value, size);
        return CUBLAS_STATUS_SUCCESS;
    };
    api.heuristic = [](cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t p, int most,
                       cublasLtMatmulHeuristicResult_t* results, int* count) {
        return ask(h, o, a, b, c, d, p, most, results, count, nullptr);
    };
    api.config_get = config_get;
    api.matmul = matmul;
    if (!newest) return api;
    api.grouped_layout_create = [](cublasLtMatrixLayout_t* out, cudaDataType type, int groups, const void* rows,
                                   const void* columns, const void* ld) {
        return create_layout(out, int(type), uint64_t(0), uint64_t(0), int64_t(0), groups, rows, columns, ld);
    };
    api.heuristic_for_stream = [](cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                                  cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                  cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t* results,
                                  int* count, cudaStream_t stream) {
        const cublasStatus_t status = ask(h, o, a, b, c, d, p, most, results, count, stream);
        now->heuristics.back().for_stream = true;
        return status;
    };
    return api;
}

// ---- Tensors that are only addresses ---------------------------------------------------------------------------------

// Every buffer is 1 GiB from the next.
enum Address : uintptr_t {
    a_rows = 0x100000000, a_row_scales = 0x140000000, a_columns = 0x180000000, a_column_scales = 0x1C0000000,
    b_rows = 0x200000000, b_row_scales = 0x240000000, b_columns = 0x280000000, b_column_scales = 0x2C0000000,
    d_data = 0x300000000, a_amax = 0x340000000, b_amax = 0x380000000, ends_at = 0x3C0000000,
    arrays = 0x400000000, workspace = 0x500000000,
};
constexpr uint64_t buffer_bytes = 0x40000000;

template <class T = void>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// A tensor with both parts where its rows are `first` and its other buffers follow.
inline testing::Tensor tensor(const oracle::Spec& spec, testing::Dims dims, bool swizzled, uintptr_t first, uintptr_t amax) {
    if (spec.format <= MXQ_FORMAT_BF16) {
        testing::Tensor plain = testing::make_tensor(spec.format, dims);
        testing::ok(mxq_tensor_set_data(plain, at(first), buffer_bytes));
        return plain;
    }
    testing::Tensor made = testing::make_tensor(spec, dims, swizzled);
    const uintptr_t step = buffer_bytes;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        const uintptr_t codes = first + (part == MXQ_PART_COLUMNWISE ? 2 * step : 0);
        testing::ok(mxq_tensor_set_part(made, part, at(codes), buffer_bytes, at(codes + step), buffer_bytes));
        if (spec.format == MXQ_FORMAT_NVFP4) testing::ok(mxq_tensor_set_amax(made, part, at<float>(amax), buffer_bytes));
    }
    return made;
}

inline oracle::Spec plain(int32_t format) {
    oracle::Spec spec;
    spec.format = format;
    return spec;
}

struct Sizes {
    int64_t m = 256, n = 384, k = 512;
};

struct Case {
    oracle::Spec a, b;
    int32_t d = MXQ_FORMAT_BF16;
    bool transpose_a = false, transpose_b = true, swizzled = true, accumulate = false;
    Sizes sizes{};
};

inline testing::GemmOptions options_of(const Case& c) {
    return testing::gemm_options(c.transpose_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                 c.transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, c.accumulate);
}

// The problem of mxq_gemm, as validated.
inline mxq::GemmProblem dense(const Case& c) {
    const auto [m, n, k] = c.sizes;
    const testing::Dims a_dims{{}, c.transpose_a ? k : m, c.transpose_a ? m : k};
    const testing::Dims b_dims{{}, c.transpose_b ? n : k, c.transpose_b ? k : n};
    testing::Tensor a = tensor(c.a, a_dims, c.swizzled, a_rows, a_amax);
    testing::Tensor b = tensor(c.b, b_dims, c.swizzled, b_rows, b_amax);
    testing::Tensor d = tensor(plain(c.d), {{}, m, n}, false, d_data, 0);
    return mxq::validate_gemm(*testing::any_context(), options_of(c), a, b, d, mxq::Check::Execute);
}

struct GroupCase : Case {
    int32_t groups = 4;
    int32_t a_alignment = 1, d_alignment = 0;           // of groups of rows; 0: D has none
    int32_t a_columnwise = 0, b_columnwise = 0;         // along the contraction; 0: the default
    bool per_group = false;                             // amaxes and TENSOR scales
};

inline void set_groups(const testing::Tensor& t, const GroupCase& c, int32_t rowwise, int32_t columnwise) {
    testing::ok(testing::set_ends(t, at(ends_at), MXQ_TYPE_INT32, c.groups));
    testing::ok(mxq_tensor_set_group_alignment(t, rowwise, columnwise));
}

inline oracle::Spec scoped(oracle::Spec spec, bool per_group) {
    spec.per_matrix = per_group;
    return spec;
}

// The problem of mxq_grouped_gemm with groups of the m rows of A.
inline mxq::GemmProblem by_rows(const GroupCase& c) {
    const auto [m, n, k] = c.sizes;
    testing::Tensor a = tensor(scoped(c.a, c.per_group), {{}, m, k}, c.swizzled, a_rows, a_amax);
    const testing::Dims b_dims{c.groups, c.transpose_b ? n : k, c.transpose_b ? k : n};
    testing::Tensor b = tensor(scoped(c.b, c.per_group), b_dims, c.swizzled, b_rows, b_amax);
    testing::Tensor d = tensor(plain(c.d), {{}, m, n}, false, d_data, 0);
    set_groups(a, c, c.a_alignment, 0);
    if (c.d_alignment) set_groups(d, c, c.d_alignment, 0);
    return mxq::validate_grouped_gemm(*testing::any_context(), options_of(c), a, b, d, mxq::Check::Execute);
}

// With groups of the k rows of A and B.
inline mxq::GemmProblem by_contraction(const GroupCase& c) {
    const auto [m, n, k] = c.sizes;
    testing::Tensor a = tensor(scoped(c.a, c.per_group), {{}, k, m}, c.swizzled, a_rows, a_amax);
    testing::Tensor b = tensor(scoped(c.b, c.per_group), {{}, k, n}, c.swizzled, b_rows, b_amax);
    testing::Tensor d = tensor(plain(c.d), {c.groups, m, n}, false, d_data, 0);
    set_groups(a, c, 1, c.a_columnwise);
    set_groups(b, c, 1, c.b_columnwise);
    GroupCase transposed = c;
    transposed.transpose_a = true, transposed.transpose_b = false;
    return mxq::validate_grouped_gemm(*testing::any_context(), options_of(transposed), a, b, d, mxq::Check::Execute);
}

// ---- Formats ---------------------------------------------------------------------------------------------------------

inline oracle::Spec mxfp8() { return testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32); }
inline oracle::Spec mxfp8_e5m2() { return testing::spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32); }
inline oracle::Spec nvfp4() { return testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16); }
inline oracle::Spec fp8(int32_t scaling) { return testing::spec_of(MXQ_FORMAT_FP8_E4M3, scaling); }
inline oracle::Spec bf16() { return plain(MXQ_FORMAT_BF16); }

inline mxq::cuda::lt::Machine machine(int32_t capability, int32_t version) {
    return {capability, version, "/usr/lib/libcublasLt.so.13"};
}

// ---- Algorithms ------------------------------------------------------------------------------------------------------

// A product, dense or grouped, as the newest release would be asked for it on a chip where it has no known fault.
inline mxq::cuda::lt::MatmulDescription matmul_of(const mxq::GemmProblem& p, int32_t capability, int32_t version = 131000) {
    mxq::cuda::lt::MatmulDescription matmul{};
    const bool grouped = p.grouping != mxq::Grouping::None;
    const mxq::cuda::lt::Machine where = machine(capability, version);
    REQUIRE((grouped ? describe_grouped(p, where, {}, matmul) : describe(p, where, matmul)).text() == "");
    return matmul;
}
inline mxq::cuda::lt::MatmulDescription matmul_of(const Case& c, int32_t capability) { return matmul_of(dense(c), capability); }

// Returns the number of the candidate that a product is made with; 0: none serves.
inline uint64_t taken(Recording& recording, const mxq::cuda::lt::MatmulDescription& matmul, int32_t capability, int32_t version,
                      std::vector<Candidate> candidates) {
    recording.candidates = std::move(candidates);
    mxq::cuda::lt::Session session(api(), machine(capability, version), nullptr);
    const mxq::cuda::lt::Session::Choice choice = session.choose(matmul);
    if (!choice.declines.empty()) return 0;
    const mxq::cuda::lt::GroupSizes sizes{};
    session.multiply(matmul, *choice.algorithm, matmul.groups > 0 ? &sizes : nullptr, {}, nullptr, nullptr);
    return recording.matmuls.back().algorithm;
}

}  // namespace recorder

#endif
