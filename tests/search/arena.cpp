#include "arena.h"

#include <algorithm>

namespace search {
namespace {

constexpr std::align_val_t alignment{256};

#ifdef MXQ_TESTS_CUDA
void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}
cudaStream_t stream_of(const Arena& arena) { return static_cast<cudaStream_t>(arena.stream()); }
#endif

}  // namespace

Arena::Arena(bool is_cpu, bool divided) : is_cpu_(is_cpu), divided_(divided && !is_cpu) {
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = stream;
#endif
}

Arena::~Arena() {
    release_rooms();
    release();
#ifdef MXQ_TESTS_CUDA
    if (stream_) cudaStreamDestroy(stream_of(*this));
#endif
}

void Arena::release() {
    if (is_cpu_) {
        ASAN_UNPOISON_MEMORY_REGION(device_, bytes_);
        ::operator delete(device_, alignment);
    }
#ifdef MXQ_TESTS_CUDA
    if (!is_cpu_) {
        cudaFree(device_);
        cudaFreeHost(host_);
    }
#endif
    device_ = host_ = nullptr;
    bytes_ = 0;
}

void Arena::release_rooms() {
#ifdef MXQ_TESTS_CUDA
    for (const Allocation& allocation : rooms_) cudaFree(allocation.memory);
#endif
    rooms_.clear();
}

void Arena::divide([[maybe_unused]] std::span<const Room> rooms) {
    release_rooms();
#ifdef MXQ_TESTS_CUDA
    for (const Room& room : rooms) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, std::max<size_t>(room.first % 256 + room.bytes, 1)));
        rooms_.push_back({room, static_cast<uint8_t*>(memory)});
    }
#endif
}

uint8_t* Arena::device(size_t at) const {
    if (!divided_) return device_ + at;
    for (const Allocation& allocation : rooms_)
        if (at >= allocation.room.first && at <= allocation.room.end()) return allocation.device(at);
    return rooms_.at(0).memory;  // for those who only need an address
}

template <class Take>
void Arena::each_stretch(Room room, const Take& take) const {
    if (!divided_) return take(host(room.first), device_ + room.first, room.bytes);
    for (const Allocation& allocation : rooms_) {
        const size_t first = std::max(room.first, allocation.room.first), end = std::min(room.end(), allocation.room.end());
        if (first < end) take(host(first), allocation.device(first), end - first);
    }
}

void Arena::reserve(size_t bytes, std::span<const Room> rooms) {
    if (divided_) divide(rooms);
    if (bytes <= bytes_) return;
    bytes = std::max(bytes, bytes_ * 2);
    release();
    if (is_cpu_) device_ = host_ = static_cast<uint8_t*>(::operator new(bytes, alignment));
#ifdef MXQ_TESTS_CUDA
    if (!is_cpu_) {
        void *device = nullptr, *host = nullptr;
        if (!divided_) check(cudaMalloc(&device, bytes));
        device_ = static_cast<uint8_t*>(device);
        check(cudaMallocHost(&host, bytes));
        host_ = static_cast<uint8_t*>(host);
    }
#endif
    bytes_ = bytes;
}

void Arena::send([[maybe_unused]] size_t bytes) const {
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    each_stretch({0, bytes}, [&](const uint8_t* host, uint8_t* device, size_t count) {
        check(cudaMemcpyAsync(device, host, count, cudaMemcpyHostToDevice, stream_of(*this)));
    });
#endif
}

void Arena::receive([[maybe_unused]] Room room) const {
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    each_stretch(room, [&](uint8_t* host, const uint8_t* device, size_t count) {
        check(cudaMemcpyAsync(host, device, count, cudaMemcpyDeviceToHost, stream_of(*this)));
    });
    check(cudaStreamSynchronize(stream_of(*this)));
#endif
}

void Arena::fill(Room room, uint8_t value) const {
    if (is_cpu_ || divided_) std::memset(host(room.first), value, room.bytes);
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    each_stretch(room, [&](uint8_t*, uint8_t* device, size_t count) {
        check(cudaMemsetAsync(device, value, count, stream_of(*this)));
    });
#endif
}

void Arena::forbid(size_t first, size_t end) const {
    if (is_cpu_) ASAN_POISON_MEMORY_REGION(device(first), end - first);
}
void Arena::allow(size_t end) const {
    if (is_cpu_) ASAN_UNPOISON_MEMORY_REGION(device_, end);
}

}  // namespace search
