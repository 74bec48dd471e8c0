#include "cuda/cublaslt/session.h"

#include "core/error.h"

namespace mxq::cuda::lt {
namespace {

constexpr int kCandidates = 8;

void check(const Api& api, cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(MXQ_STATUS_CUDA_ERROR, "%s failed: cuBLASLt says %s (status %d)", what, api.status_name(status), int(status));
}

// A descriptor of the library's own making: their sizes differ between versions.
template <class Handle>
class Descriptor {
public:
    explicit Descriptor(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
    ~Descriptor() {
        if (handle) destroy_(handle);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    Handle handle = nullptr;

private:
    cublasStatus_t (*destroy_)(Handle);
};

// Stands for a pointer that a query does not have.
constexpr uintptr_t kNowhere = 256;

template <class T>
T* somewhere(T* pointer) {
    return pointer ? pointer : reinterpret_cast<T*>(kNowhere);
}

bool is_narrow(const MatmulDescription& p) { return p.a.mode != ScaleMode::None; }

// Holds the operation and its matrices. C is D itself, with D's layout, as in-place products must have it.
struct Descriptors {
    const Api& api;
    Descriptor<cublasLtMatmulDesc_t> operation;
    Descriptor<cublasLtMatrixLayout_t> a, b, d;

    Descriptors(const Api& table, const MatmulDescription& p, const GroupSizes* sizes)
        : api(table), operation(table.desc_destroy), a(table.layout_destroy), b(table.layout_destroy), d(table.layout_destroy) {
        describe_operation(p);
        if (p.groups == 0) describe_matrices(p);
        else describe_groups(p, sizes);
    }

private:
    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value) {
        check(api, api.desc_set(operation.handle, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    }

    void describe_operation(const MatmulDescription& p) {
        check(api, api.desc_create(&operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
        set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(CUBLAS_OP_T));
        set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(CUBLAS_OP_N));
        // Groups take their factors from the device always: from the host they are wrong on 9.0 before 13.8.
        if (p.alpha != Alpha::Host || p.groups > 0)
            set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(CUBLASLT_POINTER_MODE_DEVICE));
        if (p.alpha == Alpha::DevicePerGroup) set(kAlphaBatchStride, int64_t(1));
        if (p.has_bias) {
            set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t(CUBLASLT_EPILOGUE_BIAS));
            set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(p.bias));
            set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(p.bias_type));
        }
        if (!is_narrow(p)) return;
        set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(0));
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t(p.a.mode));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t(p.b.mode));
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, somewhere(p.a.scales));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, somewhere(p.b.scales));
    }

    void describe_matrices(const MatmulDescription& p) {
        const auto create = [&](auto& layout, cudaDataType type, int64_t rows, int64_t columns, int64_t ld) {
            check(api, api.layout_create(&layout.handle, type, uint64_t(rows), uint64_t(columns), ld),
                  "cublasLtMatrixLayoutCreate");
        };
        create(a, p.a.type, p.k, p.m, p.a.ld);
        create(b, p.b.type, p.k, p.n, p.b.ld);
        create(d, p.d_type, p.m, p.n, p.ldd);
    }

    void describe_groups(const MatmulDescription& p, const GroupSizes* given) {
        const GroupSizes sizes = given ? *given : GroupSizes{};
        const auto create = [&](auto& layout, cudaDataType type, int32_t* rows, int32_t* columns, int32_t* ld) {
            check(api, api.grouped_layout_create(&layout.handle, type, p.groups, somewhere(rows), somewhere(columns),
                                                 somewhere(ld)),
                  "cublasLtGroupedMatrixLayoutCreate");
        };
        create(a, p.a.type, sizes.k, sizes.m, sizes.a_ld);
        create(b, p.b.type, sizes.k, sizes.n, sizes.b_ld);
        create(d, p.d_type, sizes.m, sizes.n, sizes.d_ld);
    }
};

// Returns the largest power of two up to 256 that the pointer is a multiple of. Arrays of pointers are described by what the
// pointers in them have, 16.
uint32_t alignment_of(const void* pointer, bool grouped) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    if (grouped) return 16;
    return address % 256 == 0 ? 256 : uint32_t(address & -address) % 256;
}

struct Preference {
    const Api& api;
    Descriptor<cublasLtMatmulPreference_t> preference;

    Preference(const Api& table, const MatmulDescription& p) : api(table), preference(table.preference_destroy) {
        check(api, api.preference_create(&preference.handle), "cublasLtMatmulPreferenceCreate");
        const bool grouped = p.groups > 0;
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a.data, grouped));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b.data, grouped));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d, grouped));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d, grouped));
        if (!grouped) return;
        set(kAverageRows, p.m);
        set(kAverageColumns, p.n);
        set(kAverageDepth, p.k);
    }

private:
    template <class T>
    void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
        check(api, api.preference_set(preference.handle, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    }
};

template <class T>
T config(const Api& api, const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    T value{};
    size_t written = 0;
    return api.config_get(&algorithm, attribute, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS ? value : T{};
}

}  // namespace

Session::Session(const Api& api, Machine machine, cudaStream_t stream)
    : api_(api), machine_(std::move(machine)), stream_(stream) {
    check(api_, api_.create(&handle_), "cublasLtCreate");
}

Session::~Session() { api_.destroy(handle_); }

// Returns what an algorithm depends on, the values that differ most often first, since keys are compared from the front.
Session::Key Session::key_of(const MatmulDescription& p) {
    const bool grouped = p.groups > 0;
    return {p.m, p.n, p.k, p.a.type, p.b.type, p.d_type, int64_t(p.a.mode), int64_t(p.b.mode), p.a.ld, p.b.ld, p.ldd,
            p.groups, p.reads_d, int64_t(p.alpha), p.has_bias, p.bias_type, alignment_of(p.a.data, grouped),
            alignment_of(p.b.data, grouped), alignment_of(p.d, grouped), alignment_of(p.bias, grouped)};
}

// Returns whether an algorithm may be taken. Partial sums in D's 16 bits leave the bound. Of algorithm 66, up to 13.9: parts of
// K that are not equal may be summed wrongly, and 768-deep stages of NVFP4 on 10.3 and later may be wrong.
bool Session::serves(const MatmulDescription& p, const cublasLtMatmulHeuristicResult_t& result) const {
    constexpr int32_t kMended = 131000, kFaulty = 66;
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) return false;
    const auto number = [&](auto attribute) { return config<uint32_t>(api_, result.algo, attribute); };
    const uint32_t splits = number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    const uint32_t scheme = number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    const bool in_d = scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE || scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    if (splits > 1 && in_d && p.d_type != CUDA_R_32F) return false;
    if (machine_.version >= kMended || number(CUBLASLT_ALGO_CONFIG_ID) != kFaulty) return true;
    if (splits > 1 && p.k % splits != 0) return false;
    return !(p.a.mode == ScaleMode::Vec16 && machine_.capability >= 103 &&
             number(CUBLASLT_ALGO_CONFIG_STAGES_ID) == kDeepStages);
}

Session::Choice Session::ask(const MatmulDescription& p, bool& lasting) {
    const Descriptors descriptors(api_, p, nullptr);
    const Preference preference(api_, p);
    cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
    int count = 0;
    const auto heuristic = [&](auto function, auto... more) {
        return function(handle_, descriptors.operation.handle, descriptors.a.handle, descriptors.b.handle,
                        descriptors.d.handle, descriptors.d.handle, preference.preference.handle, kCandidates, results, &count,
                        more...);
    };
    const cublasStatus_t status = api_.heuristic_for_stream ? heuristic(api_.heuristic_for_stream, stream_)
                                                            : heuristic(api_.heuristic);
    lasting = status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++)
        if (serves(p, results[i])) return {{}, results[i].algo};
    const char* const found = status != CUBLAS_STATUS_SUCCESS ? api_.status_name(status)
                              : count == 0                    ? "no algorithm"
                                                              : nullptr;
    return {[version = machine_.version, found, count] {
                const std::string answer = found ? found : format_text("%d that do not serve", count);
                return format_text("needs an algorithm of cuBLASLt %s for this product, found %s",
                                   version_text(version).c_str(), answer.c_str());
            }};
}

Session::Choice Session::choose(const MatmulDescription& p) {
    if (p.groups > 0 && !api_.grouped_layout_create)
        return {[version = machine_.version, path = machine_.path.c_str()] {
            return format_text("needs a cuBLASLt with grouped layouts, found %s in %s", version_text(version).c_str(), path);
        }};
    const Key key = key_of(p);
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    bool lasting = false;
    const Choice choice = ask(p, lasting);
    if (!lasting) return choice;
    if (known_.size() == kMostKnown) {
        known_.erase(by_age_.front());
        by_age_.pop_front();
    }
    by_age_.push_back(known_.emplace(key, choice).first);
    return choice;
}

void Session::multiply(const MatmulDescription& p, const cublasLtMatmulAlgo_t& algorithm, const GroupSizes* sizes,
                       const Factors& factors, void* workspace, cudaStream_t stream) {
    const Descriptors descriptors(api_, p, sizes);
    check(api_,
          api_.matmul(handle_, descriptors.operation.handle, factors.alpha, p.a.data, descriptors.a.handle, p.b.data,
                      descriptors.b.handle, factors.beta, p.d, descriptors.d.handle, p.d, descriptors.d.handle, &algorithm,
                      workspace, kWorkspaceBytes, stream),
          "cublasLtMatmul");
}

}  // namespace mxq::cuda::lt
