// The devices of this machine as libmxq sees them, and the driver and environment that they stand on.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "handles.h"

namespace tools {

// The NVIDIA driver; empty where there is none.
struct Driver {
    std::string version;  // "580.159"
    std::string cuda;     // the newest CUDA that it serves, "13.0"
    int devices = 0;
};
Driver find_driver();

struct Device {
    int32_t type, ordinal;  // MXQ_DEVICE_*
    Context context;        // NULL: cannot be used
    std::string reason;     // why not

    bool is_cpu() const { return type == MXQ_DEVICE_CPU; }
    std::string description() const { return mxq_context_description(context.get()); }

    // What stands in the description between the first and the last comma, and behind that: a CPU's threads and instruction
    // set, a GPU's name and architecture.
    std::string middle() const;
    std::string last() const;
};

// The CPU and every CUDA device; where there is none, or the library has no CUDA, one entry that says so.
std::vector<Device> find_devices(const Driver& driver);

// Variables that are called MXQ_*, in order.
std::vector<std::pair<std::string, std::string>> find_environment();

}  // namespace tools
