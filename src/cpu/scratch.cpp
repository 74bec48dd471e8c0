#include "cpu/scratch.h"

#include <new>

namespace mxq::cpu {
namespace {

constexpr std::align_val_t kAlignment{kScratchAlignment};

}  // namespace

ScratchCache::~ScratchCache() {
    for (std::atomic<void*>& kept : kept_) ::operator delete(kept.load(), kAlignment);
}

void* ScratchCache::take() {
    for (std::atomic<void*>& kept : kept_)
        if (void* const memory = kept.exchange(nullptr)) return memory;
    return ::operator new(size_t(workers_) * kScratchBytes, kAlignment);
}

void ScratchCache::give_back(void* memory) noexcept {
    for (std::atomic<void*>& kept : kept_) {
        void* empty = nullptr;
        if (kept.compare_exchange_strong(empty, memory)) return;
    }
    ::operator delete(memory, kAlignment);
}

}  // namespace mxq::cpu
