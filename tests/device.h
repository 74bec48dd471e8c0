// The devices that a test runs on, and buffers in their memory that detect writes outside their bounds.
#ifndef MXQ_TESTS_DEVICE_H
#define MXQ_TESTS_DEVICE_H

#include "catch.h"

#include <mxq/mxq.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef MXQ_TESTS_CUDA
#include <cuda_runtime_api.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace testing {

using Bytes = std::vector<uint8_t>;

inline constexpr uint8_t poison = 0xCC, canary = 0xA5;
inline constexpr size_t guard_bytes = 512;

class Device {
public:
    Device(int32_t type, mxq_context* context) : type(type), context(context) {}
    ~Device() {
        mxq_context_destroy(context);
        for (auto& [bytes, blocks] : free_)
            for (void* block : blocks) release_block(block);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    bool is_cpu() const { return type == MXQ_DEVICE_CPU; }

    // Blocks are kept and reused by size: cudaMalloc would dominate the tests.
    uint8_t* allocate(size_t bytes) {
        auto& blocks = free_[bytes];
        if (blocks.empty()) return static_cast<uint8_t*>(new_block(bytes));
        auto* block = static_cast<uint8_t*>(blocks.back());
        blocks.pop_back();
        return block;
    }
    void release(void* block, size_t bytes) { free_[bytes].push_back(block); }

    // All streams find the bytes there: a copy of pageable memory may return before it has ended, and a stream that does not
    // wait for the default one would overtake it.
    void to_device(void* to, const void* from, size_t bytes) const {
        if (is_cpu()) std::memcpy(to, from, bytes);
#ifdef MXQ_TESTS_CUDA
        else {
            check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
            check(cudaStreamSynchronize(cudaStreamLegacy));
        }
#endif
    }
    void to_host(void* to, const void* from, size_t bytes) const {
        if (is_cpu()) std::memcpy(to, from, bytes);
#ifdef MXQ_TESTS_CUDA
        else check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
#endif
    }

    const int32_t type;
    mxq_context* const context;

private:
#ifdef MXQ_TESTS_CUDA
    static void check(cudaError_t error) {
        if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
    }
#endif
    void* new_block(size_t bytes) const {
#ifdef MXQ_TESTS_CUDA
        if (!is_cpu()) {
            void* block = nullptr;
            check(cudaMalloc(&block, bytes));
            return block;
        }
#endif
        return ::operator new(bytes, std::align_val_t(256));
    }
    void release_block(void* block) const {
#ifdef MXQ_TESTS_CUDA
        if (!is_cpu()) {
            cudaFree(block);
            return;
        }
#endif
        ::operator delete(block, std::align_val_t(256));
    }

    std::map<size_t, std::vector<void*>> free_;
};

// A buffer in a device's memory: poison or given content between canaries. `offset` moves its start away from a 256-byte
// boundary, since callers need not align buffers to more than an element.
class Buffer {
public:
    Buffer(Device& device, size_t bytes, size_t offset = 0) : Buffer(device, Bytes(bytes, poison), offset) {}
    Buffer(Device& device, const Bytes& content, size_t offset = 0)
        : device_(device), bytes_(content.size()), start_(guard_bytes + offset), total_(start_ + bytes_ + guard_bytes) {
        total_ = (total_ + 255) / 256 * 256;
        block_ = device_.allocate(total_);
        Bytes image(total_, canary);
        if (bytes_) std::memcpy(&image[start_], content.data(), bytes_);
        device_.to_device(block_, image.data(), total_);
        protect(true);
    }
    ~Buffer() {
        protect(false);
        device_.release(block_, total_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* data() const { return block_ + start_; }
    uint64_t bytes() const { return bytes_; }

    // Returns the content. Throws if a canary was overwritten.
    Bytes read() const {
        Bytes image(total_);
        protect(false);
        device_.to_host(image.data(), block_, total_);
        protect(true);
        for (size_t i = 0; i < total_; ++i)
            if ((i < start_ || i >= start_ + bytes_) && image[i] != canary)
                throw std::runtime_error("a write outside a buffer of " + std::to_string(bytes_) + " bytes, at byte " +
                                         std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(start_)));
        auto first = image.begin() + static_cast<std::ptrdiff_t>(start_);
        return {first, first + static_cast<std::ptrdiff_t>(bytes_)};
    }
    bool untouched() const { return read() == Bytes(bytes_, poison); }

private:
    void protect(bool on) const {  // lets AddressSanitizer find reads outside the buffer too
        if (!device_.is_cpu()) return;
        if (on) {
            ASAN_POISON_MEMORY_REGION(block_, start_);
            ASAN_POISON_MEMORY_REGION(block_ + start_ + bytes_, total_ - start_ - bytes_);
        } else {
            ASAN_UNPOISON_MEMORY_REGION(block_, total_);
        }
    }

    Device& device_;
    size_t bytes_, start_, total_;
    uint8_t* block_;
};

inline Device& cpu() {
    static Device device = [] {
        mxq_context* context = nullptr;
        if (mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, &context) != MXQ_STATUS_OK)
            throw std::runtime_error(std::string("no CPU context: ") + mxq_last_error());
        return Device(MXQ_DEVICE_CPU, context);
    }();
    return device;
}

// Returns the CUDA device, or NULL where there is none or the build has no CUDA. Throws on every other failure.
inline Device* cuda() {
    static mxq_context* const context = [] {
        mxq_context* made = nullptr;
        const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &made);
        if (status != MXQ_STATUS_OK && status != MXQ_STATUS_NO_DEVICE)
            throw std::runtime_error(std::string("no CUDA context: ") + mxq_last_error());
        return made;
    }();
    if (!context) return nullptr;
    static Device device(MXQ_DEVICE_CUDA, context);
    return &device;
}

}  // namespace testing

// Defines a test of the CUDA device, with `device` in scope. It is skipped where there is no CUDA device.
#define MXQ_CUDA_DEVICE_(function, name)                                           \
    static void function(testing::Device& device);                                 \
    TEST_CASE(name " · cuda", "[cuda]") {                                          \
        if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA"); \
        function(*testing::cuda());                                                \
    }                                                                              \
    static void function([[maybe_unused]] testing::Device& device)

// Defines a test for every device: one case for each, with `device` in scope.
#define MXQ_EACH_DEVICE_(function, name)                            \
    static void function(testing::Device& device);                  \
    TEST_CASE(name " · cpu", "[cpu]") { function(testing::cpu()); } \
    MXQ_CUDA_DEVICE_(function, name)

#define MXQ_JOIN_(a, b) a##b
#define MXQ_JOIN(a, b) MXQ_JOIN_(a, b)
#define MXQ_CUDA_DEVICE(name) MXQ_CUDA_DEVICE_(MXQ_JOIN(cuda_device_, __LINE__), name)
#define MXQ_EACH_DEVICE(name) MXQ_EACH_DEVICE_(MXQ_JOIN(each_device_, __LINE__), name)

#endif
