#include "arena.h"

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

Arena::Arena(bool is_cpu) : is_cpu_(is_cpu) {
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = stream;
#endif
}

Arena::~Arena() {
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

void Arena::reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    bytes = std::max(bytes, bytes_ * 2);
    release();
    if (is_cpu_) device_ = host_ = static_cast<uint8_t*>(::operator new(bytes, alignment));
#ifdef MXQ_TESTS_CUDA
    if (!is_cpu_) {
        void *device = nullptr, *host = nullptr;
        check(cudaMalloc(&device, bytes));
        device_ = static_cast<uint8_t*>(device);
        check(cudaMallocHost(&host, bytes));
        host_ = static_cast<uint8_t*>(host);
    }
#endif
    bytes_ = bytes;
}

void Arena::send([[maybe_unused]] size_t bytes) const {
#ifdef MXQ_TESTS_CUDA
    if (!is_cpu_) check(cudaMemcpyAsync(device_, host_, bytes, cudaMemcpyHostToDevice, stream_of(*this)));
#endif
}

void Arena::receive([[maybe_unused]] Room room) const {
#ifdef MXQ_TESTS_CUDA
    if (is_cpu_) return;
    check(cudaMemcpyAsync(host(room.first), device(room.first), room.bytes, cudaMemcpyDeviceToHost, stream_of(*this)));
    check(cudaStreamSynchronize(stream_of(*this)));
#endif
}

void Arena::fill(Room room, uint8_t value) const {
    if (is_cpu_) std::memset(device(room.first), value, room.bytes);
#ifdef MXQ_TESTS_CUDA
    if (!is_cpu_) check(cudaMemsetAsync(device(room.first), value, room.bytes, stream_of(*this)));
#endif
}

void Arena::forbid(size_t first, size_t end) const {
    if (is_cpu_) ASAN_POISON_MEMORY_REGION(device(first), end - first);
}
void Arena::allow(size_t end) const {
    if (is_cpu_) ASAN_UNPOISON_MEMORY_REGION(device_, end);
}

}  // namespace search
