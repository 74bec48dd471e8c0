// The cuBLASLt of a context: one handle, which the context creates, and the algorithms found so far. Threads may share it.
//
//     MatmulDescription -> descriptors -> heuristic, asked once for a description -> matmul, with the same descriptors
//
// Takes algorithms in the heuristic's order. Skips those that add partial sums in 16 bits, and those that releases.h lists
// as faulty.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cuda/cublaslt/descriptors.h"

namespace mxq::cuda::lt {

constexpr uint64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA recommends for 9.0 and later

// Factors of the sums and of D. On the host for Alpha::Host of a product without groups; else on the device, and with
// Alpha::DevicePerGroup arrays of pointers.
struct Factors {
    const void *alpha, *beta;
};

class Algorithm;  // of cuBLASLt for one description, with the descriptors that its calls reuse

class Session {
public:
    // Creates a handle on the current device. `stream` serves ForStream heuristics alone and may be NULL.
    Session(const Api& api, Machine machine, cudaStream_t stream);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const Machine& machine() const { return machine_; }

    // An algorithm, or why there is none.
    struct Choice {
        Reason declines;
        std::shared_ptr<Algorithm> algorithm{};  // NULL: there is none
    };
    // Asks cuBLASLt once for a description, and remembers. Of its pointers only the alignment matters; NULL counts as
    // aligned.
    Choice choose(const MatmulDescription& matmul);

    // Returns what `choose` answers if it remembers, and nothing where it would have to ask. Needs no current device.
    std::optional<Choice> known(const MatmulDescription& matmul);

    // Enqueues the product by an algorithm that `choose` gave for its description. `workspace` has kWorkspaceBytes; `sizes`:
    // NULL without groups.
    void multiply(const MatmulDescription& matmul, Algorithm& algorithm, const GroupSizes* sizes, const Factors& factors,
                  void* workspace, cudaStream_t stream);

private:
    // All that an algorithm and its descriptors depend on, except pointers.
    using Key = std::array<int64_t, 24>;
    using Known = std::map<Key, Choice>;
    static constexpr size_t kMostKnown = 256;

    static Key key_of(const MatmulDescription& matmul);
    std::optional<Choice> find(const Key& key) const;
    Choice ask(const MatmulDescription& matmul, bool& lasting);
    bool serves(const MatmulDescription& matmul, const cublasLtMatmulHeuristicResult_t& result) const;

    Api api_;
    Machine machine_;
    cudaStream_t stream_;
    cublasLtHandle_t handle_ = nullptr;
    std::mutex mutex_;
    Known known_;
    std::deque<Known::iterator> by_age_;  // oldest first
};

}  // namespace mxq::cuda::lt
