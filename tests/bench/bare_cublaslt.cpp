#include "bare_cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

namespace {

constexpr uint64_t kWorkspaceBytes = 32 << 20;  // as the library has

// Names that older headers lack: of cublasLtMatmulMatrixScale_t and cublasLtMatmulPreferenceAttributes_t.
constexpr int32_t kOneScale = 0, kScale1x128 = 4, kScale128x128 = 5, kScalePerGroup = 6;
constexpr auto kAverageDepth = static_cast<cublasLtMatmulPreferenceAttributes_t>(13);
constexpr auto kAverageRows = static_cast<cublasLtMatmulPreferenceAttributes_t>(14);
constexpr auto kAverageColumns = static_cast<cublasLtMatmulPreferenceAttributes_t>(15);
using GroupedLayoutCreate = cublasStatus_t(cublasLtMatrixLayout_t*, cudaDataType, int, const void*, const void*,
                                           const void*);

// The functions of cuBLASLt, looked up here and not by the library's own table: a peer shares nothing with what it is compared
// with.
struct Functions {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmul) matmul;
    GroupedLayoutCreate* grouped_layout_create;
};

// The path in "cuBLASLt 13.1.0, /usr/lib/libcublasLt.so.13".
void* open(const std::string& line) {
    const size_t comma = line.find(", ");
    if (!line.starts_with("cuBLASLt ") || comma == std::string::npos) throw LeftOut(line);
    void* const handle = dlopen(line.substr(comma + 2).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!handle) throw LeftOut(dlerror());
    return handle;
}

Functions functions(const std::string& line, bool grouped) {
    void* const library = open(line);
    const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        if (!function) throw LeftOut(line + " has no " + name);
    };
    Functions f{};
    find(f.create, "cublasLtCreate");
    find(f.destroy, "cublasLtDestroy");
    find(f.desc_create, "cublasLtMatmulDescCreate");
    find(f.desc_destroy, "cublasLtMatmulDescDestroy");
    find(f.desc_set, "cublasLtMatmulDescSetAttribute");
    find(f.layout_create, "cublasLtMatrixLayoutCreate");
    find(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(f.preference_create, "cublasLtMatmulPreferenceCreate");
    find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(f.matmul, "cublasLtMatmul");
    if (grouped) find(f.grouped_layout_create, "cublasLtGroupedMatrixLayoutCreate");
    return f;
}

void check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS) throw LeftOut(std::string(what) + " gives status " + std::to_string(status));
}

// One of cuBLASLt's handles, which destroys itself.
template <class Handle>
using Owned = std::shared_ptr<std::remove_pointer_t<Handle>>;

template <class Handle, class Create, class Destroy, class... Arguments>
Owned<Handle> make(Create create, Destroy destroy, Arguments... arguments) {
    Handle handle = nullptr;
    check(create(&handle, arguments...), "making a descriptor");
    return {handle, [destroy](Handle made) { destroy(made); }};
}

// D (n, m), column-major = w (k, n)^T x (k, m): the same bytes as ours, row-major.
class BareCall {
public:
    BareCall(Device& device, const Library& library, const Operands& operands, Scales scales, const Size& size)
        : device_(device),
          scales_(scales),
          size_(size),
          type_(scales == Scales::None ? CUDA_R_16BF : CUDA_R_8F_E4M3),
          groups_(operands.groups.get()),
          lt_(functions(library->context_cublaslt(library.context()), groups_)),
          handle_(::make<cublasLtHandle_t>(lt_.create, lt_.destroy)),
          workspace_(device.allocate(kWorkspaceBytes)),
          d_(device.allocate(size_t(bytes_written(library, operands.d->description()).all()))) {
        w_ = {operands.second.codes(MXQ_PART_ROWWISE), operands.second.scales(MXQ_PART_ROWWISE)};
        x_ = {operands.first.codes(MXQ_PART_ROWWISE), operands.first.scales(MXQ_PART_ROWWISE)};
        out_ = d_.get();
        if (groups_)
            describe_groups();
        else
            describe_matrices();
        describe_operation();
        choose();
    }

    void enqueue() const {
        static const float one = 1, zero = 0;
        const void* const alpha = groups_ ? factors_ : &one;
        const void* const beta = groups_ ? factors_ + 1 : &zero;
        check(lt_.matmul(handle_.get(), operation_.get(), alpha, w_.codes, w_layout_.get(), x_.codes, x_layout_.get(), beta,
                         out_, d_layout_.get(), out_, d_layout_.get(), &algorithm_, workspace_.get(), kWorkspaceBytes,
                         static_cast<cudaStream_t>(device_.stream())),
              "cublasLtMatmul");
    }

private:
    // Arrays of pointers on the device, one entry a group.
    struct Places {
        void *codes, *scales;
    };

    void describe_matrices() {
        const auto layout = [&](cudaDataType type, int64_t rows, int64_t columns) {
            return ::make<cublasLtMatrixLayout_t>(lt_.layout_create, lt_.layout_destroy, type, uint64_t(rows),
                                                  uint64_t(columns), rows);
        };
        w_layout_ = layout(type_, size_.k, size_.n);
        x_layout_ = layout(type_, size_.k, size_.m);
        d_layout_ = layout(CUDA_R_16BF, size_.n, size_.m);
    }

    template <class T>
    T* on_device(const std::vector<T>& values) {
        if (values.empty()) return nullptr;
        memory_.push_back(device_.allocate(values.size() * sizeof(T)));
        device_.upload(memory_.back().get(), values.data(), values.size() * sizeof(T));
        return static_cast<T*>(memory_.back().get());
    }

    void describe_groups() {
        const size_t count = groups_->ends.size();
        const int64_t unit = scales_ == Scales::Wide ? 4 : 1;
        std::vector<int64_t> starts;
        std::vector<int32_t> rows;
        int64_t start = 0, before = 0;
        for (int32_t end : groups_->ends) {
            starts.push_back(start);
            rows.push_back(int32_t((end - before + unit - 1) / unit * unit));
            start += rows.back(), before = end;
        }
        place_groups(starts);
        const auto all = [&](int64_t value) { return on_device(std::vector<int32_t>(count, int32_t(value))); };
        int32_t *const m = on_device(rows), *const n = all(size_.n), *const k = all(size_.k);
        const auto layout = [&](cudaDataType type, int32_t* of_rows, int32_t* of_columns) {
            return ::make<cublasLtMatrixLayout_t>(lt_.grouped_layout_create, lt_.layout_destroy, type, int(count), of_rows,
                                                  of_columns, of_rows);
        };
        w_layout_ = layout(type_, k, n);
        x_layout_ = layout(type_, k, m);
        d_layout_ = layout(CUDA_R_16BF, n, m);
        factors_ = on_device(std::vector<float>{1, 0});
    }

    // Where each group's operands are. Wide scales of x: (ceil(k / 128), rows), group after group.
    void place_groups(const std::vector<int64_t>& starts) {
        const bool wide = scales_ == Scales::Wide;
        const int64_t bytes = scales_ == Scales::None ? 2 : 1, columns = (size_.k + 127) / 128;
        const int64_t of_expert = wide ? (size_.n + 127) / 128 * ((columns + 3) / 4 * 4) : 1;
        std::vector<void*> w, x, d, w_scales, x_scales;
        for (int64_t g = 0; g < int64_t(starts.size()); ++g) {
            w.push_back(static_cast<char*>(w_.codes) + g * size_.n * size_.k * bytes);
            x.push_back(static_cast<char*>(x_.codes) + starts[g] * size_.k * bytes);
            d.push_back(static_cast<char*>(out_) + starts[g] * size_.n * 2);
            if (scales_ == Scales::None) continue;
            w_scales.push_back(static_cast<float*>(w_.scales) + g * of_expert);
            x_scales.push_back(static_cast<float*>(x_.scales) + (wide ? starts[g] * columns : g));
        }
        w_ = {on_device(w), on_device(w_scales)};
        x_ = {on_device(x), on_device(x_scales)};
        out_ = on_device(d);
    }

    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value) {
        check(lt_.desc_set(operation_.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    }

    void describe_operation() {
        operation_ = ::make<cublasLtMatmulDesc_t>(lt_.desc_create, lt_.desc_destroy, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(CUBLAS_OP_T));
        if (groups_) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(CUBLASLT_POINTER_MODE_DEVICE));
        if (scales_ == Scales::None) return;
        const bool wide = scales_ == Scales::Wide;
        const int32_t one = groups_ ? kScalePerGroup : kOneScale;
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, wide ? kScale128x128 : one);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, wide ? kScale1x128 : one);
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w_.scales);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, x_.scales);
    }

    void choose() {
        const auto preference = ::make<cublasLtMatmulPreference_t>(lt_.preference_create, lt_.preference_destroy);
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
            check(lt_.preference_set(preference.get(), attribute, &value, sizeof value),
                  "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
        if (groups_) {
            for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
                prefer(attribute, uint32_t(16));
            prefer(kAverageRows, size_.n);
            prefer(kAverageColumns, size_.m / int64_t(groups_->ends.size()));
            prefer(kAverageDepth, size_.k);
        }
        cublasLtMatmulHeuristicResult_t result{};
        int count = 0;
        check(lt_.heuristic(handle_.get(), operation_.get(), w_layout_.get(), x_layout_.get(), d_layout_.get(),
                            d_layout_.get(), preference.get(), 1, &result, &count),
              "cublasLtMatmulAlgoGetHeuristic");
        if (count == 0) throw LeftOut("cuBLASLt has no algorithm for it");
        algorithm_ = result.algo;
    }

    Device& device_;
    Scales scales_;
    Size size_;
    cudaDataType type_;
    const Groups* groups_;
    Functions lt_;
    Owned<cublasLtHandle_t> handle_;
    std::shared_ptr<void> workspace_, d_;
    std::vector<std::shared_ptr<void>> memory_;
    Places w_, x_;
    void* out_;
    float* factors_ = nullptr;
    Owned<cublasLtMatmulDesc_t> operation_;
    Owned<cublasLtMatrixLayout_t> w_layout_, x_layout_, d_layout_;
    cublasLtMatmulAlgo_t algorithm_;
};

}  // namespace

Call bare_cublaslt(Device& device, const Library& library, const Operands& operands, Scales scales, const Size& size) {
    auto call = std::make_shared<BareCall>(device, library, operands, scales, size);
    return [call] { call->enqueue(); };
}
