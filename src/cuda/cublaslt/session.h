// A context's cuBLASLt: one handle, made when the context is, and the algorithms found so far.
//
//     MatmulDescription -> descriptors -> heuristic, asked once for a description -> matmul
//
// Algorithms are taken in the heuristic's order, but for those that add partial sums in 16 bits, and for those of versions
// with known wrong results.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "cuda/cublaslt/library.h"
#include "cuda/cublaslt/description.h"

namespace mxq::cuda::lt {

constexpr uint64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA recommends for 9.0 and later

// Where the device finds the sizes of groups: int32_t, one a group.
struct GroupSizes {
    int32_t *m, *n, *k;
    int32_t *a_ld, *b_ld, *d_ld;
};

// Factors of the sums and of D. On the host for Alpha::Host of a product without groups; else on the device, and with
// Alpha::DevicePerGroup `alpha` is an array of pointers.
struct Factors {
    const void *alpha, *beta;
};

class Session {
public:
    // Takes a fresh handle of the current device; `stream` is for ForStream heuristics alone and may be NULL.
    Session(const Api& api, Machine machine, cudaStream_t stream);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const Machine& machine() const { return machine_; }

    // An algorithm, or why there is none.
    struct Choice {
        Reason declines;
        cublasLtMatmulAlgo_t algorithm{};
    };
    // Asks the library once for a description, and remembers. Of its pointers only the alignment matters, and NULL ones count
    // as aligned.
    Choice choose(const MatmulDescription& matmul);

    // Enqueues the product by an algorithm that `choose` gave for its description. `workspace` has kWorkspaceBytes; `sizes`:
    // NULL without groups.
    void multiply(const MatmulDescription& matmul, const cublasLtMatmulAlgo_t& algorithm, const GroupSizes* sizes,
                  const Factors& factors, void* workspace, cudaStream_t stream);

private:
    // Has everything that an algorithm may depend on.
    using Key = std::array<int64_t, 24>;
    using Known = std::map<Key, Choice>;
    static constexpr size_t kMostKnown = 256;

    static Key key_of(const MatmulDescription& matmul);
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
