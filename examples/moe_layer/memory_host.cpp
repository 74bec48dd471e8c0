#include "memory.hpp"

#include <cstring>
#include <new>

namespace {

constexpr std::align_val_t alignment{256};

class HostMemory final : public Memory {
public:
    void* allocate(size_t bytes) override { return ::operator new(bytes, alignment); }
    void release(void* pointer) override { ::operator delete(pointer, alignment); }
    void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void synchronize() override {}
    void* stream() override { return nullptr; }
};

}  // namespace

std::unique_ptr<Memory> host_memory() { return std::make_unique<HostMemory>(); }
