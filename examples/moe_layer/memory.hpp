// The memory in which the layer keeps its tensors: host memory for a CPU context, device memory for a CUDA one.
#pragma once

#include <cstddef>
#include <memory>

class Memory {
public:
    virtual ~Memory() = default;
    virtual void* allocate(size_t bytes) = 0;
    virtual void release(void* pointer) = 0;
    virtual void upload(void* to, const void* from_host, size_t bytes) = 0;
    virtual void download(void* to_host, const void* from, size_t bytes) = 0;
    virtual void synchronize() = 0;
    virtual void* stream() = 0;  // the stream to pass to the library's calls
};

std::unique_ptr<Memory> host_memory();
std::unique_ptr<Memory> cuda_memory();  // throws in a build without the CUDA toolkit

// A buffer that frees itself.
class Buffer {
public:
    Buffer(Memory& memory, size_t bytes) : memory_(&memory), bytes_(bytes), pointer_(memory.allocate(bytes)) {}
    Buffer(Memory& memory, const void* from_host, size_t bytes) : Buffer(memory, bytes) {
        memory.upload(pointer_, from_host, bytes);
    }
    Buffer(Buffer&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_), pointer_(other.pointer_) {
        other.pointer_ = nullptr;
    }
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
        if (pointer_) memory_->release(pointer_);
    }
    void* get() const { return pointer_; }
    size_t bytes() const { return bytes_; }

private:
    Memory* memory_;
    size_t bytes_;
    void* pointer_;
};
