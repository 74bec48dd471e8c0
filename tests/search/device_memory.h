// Tells how much memory of the device a process has, where the driver's management library says it.
#ifndef MXQ_TESTS_SEARCH_DEVICE_MEMORY_H
#define MXQ_TESTS_SEARCH_DEVICE_MEMORY_H

#ifdef MXQ_TESTS_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <optional>
#include <vector>

namespace search {

// Asks NVML for the memory of this process on the current device, which other processes on it do not change.
class DeviceMemory {
public:
    DeviceMemory() {
        void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) return;
        const auto begin = find<int (*)()>(library, "nvmlInit_v2");
        const auto by_bus = find<int (*)(const char*, void**)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
        processes_ = find<Processes>(library, "nvmlDeviceGetComputeRunningProcesses_v3");
        int ordinal = 0;
        char bus[32] = "";
        if (!begin || !by_bus || !processes_ || begin() != 0 || cudaGetDevice(&ordinal) != cudaSuccess ||
            cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) != cudaSuccess || by_bus(bus, &device_) != 0)
            device_ = nullptr;
    }
    // Returns the bytes of this process, or nothing where they are not told.
    std::optional<long long> of_process() const {
        if (!device_) return std::nullopt;
        std::vector<Process> all(256);
        auto count = static_cast<unsigned>(all.size());
        if (processes_(device_, &count, all.data()) != 0) return std::nullopt;
        for (unsigned i = 0; i < count; ++i)
            if (all[i].pid == static_cast<unsigned>(getpid()) && all[i].bytes != ~0ULL)
                return static_cast<long long>(all[i].bytes);
        return std::nullopt;
    }

private:
    struct Process {  // nvmlProcessInfo_t
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu_instance, compute_instance;
    };
    using Processes = int (*)(void* device, unsigned* count, Process* all);

    template <class Function>
    static Function find(void* library, const char* name) {
        return reinterpret_cast<Function>(dlsym(library, name));
    }

    void* device_ = nullptr;
    Processes processes_ = nullptr;
};

}  // namespace search
#endif

#endif
