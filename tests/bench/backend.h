// What the benchmark needs from a device: memory, timing, and a plain copy to compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mxq/mxq.h>

class Backend {
public:
    virtual ~Backend() = default;
    virtual mxq_context* context() = 0;
    virtual void* stream() = 0;
    virtual std::string machine() = 0;
    virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
    virtual void upload(void* to, const void* from_host, size_t bytes) = 0;
    virtual void wait() = 0;

    // Median time of each call. The calls take turns, so that a change of clock or a noisy neighbour meets all of them,
    // and none finds its data in a cache: repeats write or read far more than the caches hold in between.
    virtual std::vector<double> median_ms(const std::vector<std::function<void()>>& calls) = 0;

    virtual void copy() = 0;                // a plain copy on the same device, the same threads, the same stream
    virtual double copy_bytes() const = 0;  // read + written
};

struct Arguments {
    std::string device = "cpu";
    std::string verb = "all";
    int threads = 0;  // of the CPU backend and what it is compared with; 0: one per core
    int64_t rows = 0, cols = 0;
    int64_t m = 0, n = 0, k = 0;  // of products; 0: the verb's own
    std::string only;  // cases whose name has this in it; empty: all
    std::string json;
};

std::unique_ptr<Backend> cpu_backend(int threads);
std::unique_ptr<Backend> cuda_backend();  // throws in a build without the CUDA toolkit

int usable_cores();
std::vector<uint32_t> random_words(size_t bytes);
double median(std::vector<double> values);
