// What the benchmark needs from a device: memory, three ways to take times, and the peers that a share is told of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// Streams that are read and written at once by a bare pass over memory, all of the same length.
struct Mix {
    int reads, writes;
};
inline constexpr Mix mixes[] = {{1, 0}, {2, 1}, {1, 1}, {2, 2}, {1, 2}};
inline std::string text(Mix mix) { return std::to_string(mix.reads) + ":" + std::to_string(mix.writes); }

using Call = std::function<void()>;

class Device {
public:
    // warmups: turns before the first that counts.
    Device(int repeats, int warmups) : repeats_(repeats), warmups_(warmups) {}
    virtual ~Device() = default;
    virtual std::string machine() = 0;
    virtual void* stream() = 0;  // null on the CPU
    virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
    virtual void upload(void* to, const void* from_host, size_t bytes) = 0;
    virtual void duplicate(void* to, const void* from, size_t bytes) = 0;  // within the device
    virtual void wait() = 0;
    int repeats() const { return repeats_; }

    // Time of each call in microseconds, one after the other. None finds its data in a cache: what runs in between reads or
    // writes far more than the caches hold.
    virtual std::vector<double> turn_us(const std::vector<Call>& calls) = 0;
    // Median over turns, so that a change of clock or a noisy neighbour meets all of the calls.
    std::vector<double> times_us(const std::vector<Call>& calls);

    // Time of one call when a captured graph of a list of calls is replayed; one figure for each list. The calls of a list
    // work on different memory, together more than the caches hold. Throws LeftOut on the CPU.
    virtual std::vector<double> graph_times_us(const std::vector<std::vector<Call>>& lists) = 0;
    virtual size_t rotated_bytes() = 0;  // that a list must touch: twice the L2; on the CPU what copy() reads

    // Least time of one call when those of a list follow one another, again and again; one figure for each list. The lists
    // take turns. With one thread it is its CPU time, which others on the machine do not lengthen by taking its core.
    // Throws LeftOut on a GPU.
    virtual std::vector<double> rotated_times_us(const std::vector<std::vector<Call>>& lists);

    // Time that the host spends in one call, which no synchronisation follows. The calls take turns.
    std::vector<double> host_times_us(const std::vector<Call>& calls);
    virtual int launches(const Call& call) = 0;  // that the call makes: kernels, memsets and copies; 0 on the CPU
    virtual void launch_nothing() = 0;           // an empty kernel; nothing on the CPU

    virtual void copy() = 0;  // copied_bytes() from one place to another
    virtual double copied_bytes() const = 0;
    virtual void stream_pass(Mix mix) = 0;
    // Returns the bytes of one stream. All streams that are read lie in what copy() reads, all that are written in what it writes.
    double streamed_bytes(Mix mix) const { return copied_bytes() / (mix.reads > 1 || mix.writes > 1 ? 2 : 1); }

protected:
    const int repeats_, warmups_;
};

// copied: bytes of the copy and the streams; 0: the device's own.
std::unique_ptr<Device> cpu_device(int threads, int repeats, size_t copied);
std::unique_ptr<Device> cuda_device(int repeats, size_t copied);  // throws in a build without the CUDA toolkit

int usable_cores();
std::vector<uint32_t> random_words(size_t bytes);
double median(std::vector<double> values);
// The median of each of several lists.
std::vector<double> medians(std::vector<std::vector<double>> lists);
