#include "cuda/cublaslt/session.h"

#include <atomic>

#include "core/error.h"
#include "cuda/cublaslt/releases.h"

namespace mxq::cuda::lt {
namespace {

constexpr int kCandidates = 8;

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
        check(api, api.preference_create(preference.renew()), "cublasLtMatmulPreferenceCreate");
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
        check(api, api.preference_set(preference.handle(), attribute, &value, sizeof value),
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

// Each call takes the descriptors for itself. Where two threads compute the same product concurrently, the second creates
// its own; those that are returned last are kept.
class Algorithm {
public:
    Algorithm(const cublasLtMatmulAlgo_t& algorithm, std::unique_ptr<Descriptors> descriptors)
        : algorithm(algorithm), idle_(descriptors.release()) {}
    ~Algorithm() { delete idle_.load(); }

    std::unique_ptr<Descriptors> take() { return std::unique_ptr<Descriptors>(idle_.exchange(nullptr)); }
    void give_back(std::unique_ptr<Descriptors> descriptors) { delete idle_.exchange(descriptors.release()); }

    const cublasLtMatmulAlgo_t algorithm;

private:
    std::atomic<Descriptors*> idle_;  // NULL: in use, or lost to a failure
};

Session::Session(const Api& api, Machine machine, cudaStream_t stream)
    : api_(api), machine_(std::move(machine)), stream_(stream) {
    check(api_, api_.create(&handle_), "cublasLtCreate");
}

Session::~Session() { api_.destroy(handle_); }

// Returns what an algorithm depends on, the values that differ most often first, since keys are compared from the front.
Session::Key Session::key_of(const MatmulDescription& p) {
    const bool grouped = p.groups > 0;
    return {p.m, p.n, p.k, p.a.type, p.b.type, p.d_type, int64_t(p.a.mode), int64_t(p.b.mode), p.a.ld, p.b.ld, p.ldd,
            p.groups, p.reads_d, int64_t(p.alpha), p.has_bias, p.bias_type, p.sm_count, p.a.across, p.b.across,
            alignment_of(p.a.data, grouped),
            alignment_of(p.b.data, grouped), alignment_of(p.d, grouped), alignment_of(p.bias, grouped)};
}

// Returns whether an algorithm may be taken. Partial sums in D's 16 bits leave the bound.
bool Session::serves(const MatmulDescription& p, const cublasLtMatmulHeuristicResult_t& result) const {
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) return false;
    const auto number = [&](auto attribute) { return config<uint32_t>(api_, result.algo, attribute); };
    const AlgorithmConfig algorithm{number(CUBLASLT_ALGO_CONFIG_ID), number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                                    number(CUBLASLT_ALGO_CONFIG_STAGES_ID)};
    const uint32_t scheme = number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    const bool in_d = scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE || scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    if (algorithm.splits > 1 && in_d && p.d_type != CUDA_R_32F) return false;
    return !is_faulty(algorithm, p, machine_);
}

Session::Choice Session::ask(const MatmulDescription& p, bool& lasting) {
    auto descriptors = std::make_unique<Descriptors>(api_, p);
    descriptors->point_at(p, nullptr);
    const Preference preference(api_, p);
    cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
    int count = 0;
    const auto heuristic = [&](auto function, auto... more) {
        return function(handle_, descriptors->operation(), descriptors->a(), descriptors->b(), descriptors->d(),
                        descriptors->d(), preference.preference.handle(), kCandidates, results, &count, more...);
    };
    const cublasStatus_t status = api_.heuristic_for_stream ? heuristic(api_.heuristic_for_stream, stream_)
                                                            : heuristic(api_.heuristic);
    lasting = status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++)
        if (serves(p, results[i])) return {{}, std::make_shared<Algorithm>(results[i].algo, std::move(descriptors))};
    const char* const found = status != CUBLAS_STATUS_SUCCESS ? api_.status_name(status)
                              : count == 0                    ? "no algorithm"
                                                              : nullptr;
    return {[version = machine_.version, found, count] {
                const std::string answer = found ? found : format_text("%d that do not serve", count);
                return format_text("needs an algorithm of cuBLASLt %s for this product, found %s",
                                   version_text(version).c_str(), answer.c_str());
            }};
}

// The caller holds the lock.
std::optional<Session::Choice> Session::find(const Key& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Session::Choice> Session::known(const MatmulDescription& p) {
    const Key key = key_of(p);
    const std::lock_guard lock(mutex_);
    return find(key);
}

Session::Choice Session::choose(const MatmulDescription& p) {
    if (p.groups > 0 && !api_.grouped_layout_create)
        return {[version = machine_.version, path = machine_.path.c_str()] {
            return format_text("needs a cuBLASLt with grouped layouts, found %s in %s", version_text(version).c_str(), path);
        }};
    const Key key = key_of(p);
    const std::lock_guard lock(mutex_);
    if (auto found = find(key)) return *std::move(found);
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

void Session::multiply(const MatmulDescription& p, Algorithm& algorithm, const GroupSizes* sizes, const Factors& factors,
                       void* workspace, cudaStream_t stream) {
    std::unique_ptr<Descriptors> descriptors = algorithm.take();
    if (!descriptors) descriptors = std::make_unique<Descriptors>(api_, p);
    descriptors->point_at(p, sizes);
    check(api_,
          api_.matmul(handle_, descriptors->operation(), factors.alpha, p.a.data, descriptors->a(), p.b.data,
                      descriptors->b(), factors.beta, p.d, descriptors->d(), p.d, descriptors->d(), &algorithm.algorithm,
                      workspace, kWorkspaceBytes, stream),
          "cublasLtMatmul");
    algorithm.give_back(std::move(descriptors));
}

}  // namespace mxq::cuda::lt
