// Memory that the kernels of one call work in: kScratchBytes for each worker. A context keeps what its calls used, so that most
// calls allocate nothing.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>

#include "cpu/kernels.h"

namespace mxq::cpu {

// Keeps memory of calls that ended for those that come. Free of locks: a child that was forked while another thread held one
// would wait for it for ever.
class ScratchCache {
public:
    // `workers` of one call have memory of their own at a time.
    explicit ScratchCache(int workers) : workers_(workers) {}
    ~ScratchCache();
    ScratchCache(const ScratchCache&) = delete;
    ScratchCache& operator=(const ScratchCache&) = delete;

private:
    friend class Scratch;
    void* take();
    void give_back(void* memory) noexcept;

    const int workers_;
    std::array<std::atomic<void*>, 8> kept_{};
};

// Takes the memory of one call from the cache, and gives it back.
class Scratch {
public:
    explicit Scratch(ScratchCache& cache) : cache_(cache), memory_(cache.take()) {}
    ~Scratch() { cache_.give_back(memory_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    void* of(int worker) const { return static_cast<std::byte*>(memory_) + size_t(worker) * kScratchBytes; }

private:
    ScratchCache& cache_;
    void* const memory_;
};

}  // namespace mxq::cpu
