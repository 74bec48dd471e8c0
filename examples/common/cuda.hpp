// CUDA's objects that free themselves, and its errors as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

inline void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

// Device memory that grows to what was asked for last, and loses its content when it does.
class Buffer {
public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() { cudaFree(data_); }

    void* reserve(uint64_t bytes) {
        constexpr uint64_t least = 256;  // no buffer is NULL, not even for nothing
        bytes = std::max(bytes, least);
        if (bytes <= bytes_) return data_;
        check(cudaFree(std::exchange(data_, nullptr)));
        bytes_ = 0;
        check(cudaMalloc(&data_, bytes));
        bytes_ = bytes;
        return data_;
    }
    template <class T>
    T* reserve(uint64_t count) {
        return static_cast<T*>(reserve(count * sizeof(T)));
    }
    void* get() const { return data_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }

private:
    void* data_ = nullptr;
    uint64_t bytes_ = 0;
};

class Stream {
public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    Stream(const Stream&) = delete;
    ~Stream() { cudaStreamDestroy(stream_); }
    operator cudaStream_t() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

class Event {
public:
    Event() { check(cudaEventCreate(&event_)); }
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    ~Event() {
        if (event_) cudaEventDestroy(event_);
    }
    void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream)); }
    void hold(cudaStream_t stream) const {
        check(cudaStreamWaitEvent(stream, event_, 0));
    }  // until what was recorded is done
    float ms_since(const Event& start) const {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, start.event_, event_));
        return ms;
    }

private:
    cudaEvent_t event_ = nullptr;
};

// The streams of a layer. One stream given twice: nothing overlaps.
struct Streams {
    cudaStream_t compute, travel;
};
