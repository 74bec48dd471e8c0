#include "machine.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tools {
namespace {

// Returns the version of NVIDIA's kernel module, or "" where it is unknown.
std::string module_version() {
    std::FILE* file = std::fopen("/sys/module/nvidia/version", "r");
    if (!file) return "";
    char text[64] = "";
    if (!std::fgets(text, sizeof text, file)) text[0] = 0;
    std::fclose(file);
    const std::string version = text;
    return version.substr(0, version.find('\n'));
}

// Calls a driver function that writes one number and returns that number, or 0 where the call fails.
int driver_number(void* library, const char* symbol) {
    int number = 0;
    const auto function = reinterpret_cast<int (*)(int*)>(dlsym(library, symbol));
    return function && function(&number) == 0 ? number : 0;
}

Device open_device(int32_t type, int32_t ordinal) {
    mxq_context* context = nullptr;
    const mxq_status status = mxq_context_create(type, ordinal, nullptr, &context);
    return {type, ordinal, Context(context), status == MXQ_STATUS_OK ? "" : last_reason()};
}

}  // namespace

Driver find_driver() {
    Driver driver;
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return driver;
    const int version = driver_number(library, "cuDriverGetVersion");
    if (version) driver.cuda = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    const auto initialize = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    if (initialize && initialize(0) == 0) driver.devices = driver_number(library, "cuDeviceGetCount");
    driver.version = module_version();
    return driver;
}

std::string Device::middle() const {
    const std::string text = description();
    const size_t begin = text.find(", "), end = text.rfind(", ");
    return begin == end ? "" : text.substr(begin + 2, end - begin - 2);
}

std::string Device::last() const {
    const std::string text = description();
    const size_t end = text.rfind(", ");
    return end == text.npos ? "" : text.substr(end + 2);
}

std::vector<Device> find_devices(const Driver& driver) {
    std::vector<Device> devices;
    devices.push_back(open_device(MXQ_DEVICE_CPU, 0));
    for (int32_t ordinal = 0; ordinal < std::max(driver.devices, 1); ordinal++) {
        Device device = open_device(MXQ_DEVICE_CUDA, ordinal);
        const bool same_refusal = !device.context && device.reason == devices.back().reason;
        if (!same_refusal) devices.push_back(std::move(device));
    }
    return devices;
}

std::vector<std::pair<std::string, std::string>> find_environment() {
    std::vector<std::pair<std::string, std::string>> variables;
    for (char** entry = environ; *entry; entry++) {
        const std::string text = *entry;
        const size_t equals = text.find('=');
        if (text.rfind("MXQ_", 0) == 0 && equals != text.npos)
            variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    std::sort(variables.begin(), variables.end());
    return variables;
}

}  // namespace tools
