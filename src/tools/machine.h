// Finds the devices of this machine as libmxq sees them, and the driver and environment variables that they depend on.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "handles.h"

namespace tools {

// The NVIDIA driver; empty where there is none.
struct Driver {
    std::string version;  // "580.159"
    std::string cuda;     // the newest CUDA version that it supports, "13.0"
    int devices = 0;
};
Driver find_driver();

struct Device {
    int32_t type, ordinal;  // MXQ_DEVICE_*
    Context context;        // NULL: the device cannot be used
    std::string reason;     // why the device cannot be used

    bool is_cpu() const { return type == MXQ_DEVICE_CPU; }
    std::string description() const { return mxq_context_description(context.get()); }

    // Returns what the description has between its first and its last comma: a CPU's threads, a GPU's name.
    std::string middle() const;

    // Returns what the description has after its last comma: a CPU's instruction set, a GPU's architecture.
    std::string last() const;
};

// Returns the CPU and every CUDA device. Where there is no CUDA device, or none can be used, an entry holds the reason.
std::vector<Device> find_devices(const Driver& driver);

// Returns the environment variables named MXQ_*, sorted by name.
std::vector<std::pair<std::string, std::string>> find_environment();

}  // namespace tools
