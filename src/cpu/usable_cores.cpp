// A quota is read where the kernel keeps it. /proc/self/cgroup names the process's cgroup, /proc/self/mountinfo where its
// hierarchy is mounted:
//
//     version 2   a line "0::/path";          cpu.max has "quota period" or "max period"
//     version 1   a line "4:cpu,cpuacct:/path"; cpu.cfs_quota_us has the quota or -1, cpu.cfs_period_us the period
//
// Every cgroup above the process's own, up to the mount point, limits it too. In a container the mount point may show a part of
// the hierarchy alone: the mount's root, which is then taken from the front of the path.
#include "cpu/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace mxq::cpu {
namespace {

// Returns the content of a file, empty where it cannot be read.
std::string read(const std::string& path) {
    std::string text;
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (!file) return text;
    char buffer[4096];
    for (size_t bytes; (bytes = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, bytes);
    std::fclose(file);
    return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

bool has(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the path of the process's cgroup in the hierarchy of the CPU controller.
std::optional<std::string> cgroup_path(const std::string& root, bool version2) {
    for (const std::string& line : split(read(root + "/proc/self/cgroup"), '\n')) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (version2 ? controllers.empty() : has(split(controllers, ','), "cpu")) return line.substr(second + 1);
    }
    return std::nullopt;
}

struct Mount {
    std::string root, point;
};

// Returns where the hierarchy is mounted. A line of mountinfo has "id parent device root point options ... - type source
// options", the last of which name the controllers of version 1.
std::optional<Mount> cgroup_mount(const std::string& root, bool version2) {
    for (const std::string& line : split(read(root + "/proc/self/mountinfo"), '\n')) {
        const size_t dash = line.find(" - ");
        if (dash == line.npos) continue;
        const auto front = split(line.substr(0, dash), ' '), back = split(line.substr(dash + 3), ' ');
        if (front.size() < 5 || back.size() < 3) continue;
        if (version2 ? back[0] == "cgroup2" : back[0] == "cgroup" && has(split(back[2], ','), "cpu"))
            return Mount{front[3], front[4]};
    }
    return std::nullopt;
}

// Returns the folder of the cgroup below the mount point, "" for the mount point itself.
std::string folder_below(const Mount& mount, const std::string& path) {
    const std::string front = mount.root == "/" ? "" : mount.root;
    const bool inside = path.compare(0, front.size(), front) == 0;
    const std::string folder = inside ? path.substr(front.size()) : "";
    return folder == "/" || folder.substr(0, 1) != "/" ? "" : folder;
}

// Returns the cores that the quota of one cgroup allows, 0 for no limit.
int64_t cores_of(const std::string& folder, bool version2) {
    const std::string text = version2 ? read(folder + "/cpu.max")
                                      : read(folder + "/cpu.cfs_quota_us") + " " + read(folder + "/cpu.cfs_period_us");
    long long quota = 0, period = 0;
    if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    return quota / period + (quota % period != 0);
}

// Returns the least of two limits, of which 0 is none.
int64_t least(int64_t a, int64_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

int64_t cores_of_hierarchy(const std::string& root, bool version2) {
    const auto path = cgroup_path(root, version2);
    const auto mount = cgroup_mount(root, version2);
    if (!path || !mount) return 0;
    const std::string point = root + mount->point;
    std::string folder = folder_below(*mount, *path);
    int64_t cores = cores_of(point, version2);
    for (; !folder.empty(); folder.erase(folder.rfind('/'))) cores = least(cores, cores_of(point + folder, version2));
    return cores;
}

int affinity_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

int quota_cores(const std::string& root) {
    const int64_t cores = least(cores_of_hierarchy(root, true), cores_of_hierarchy(root, false));
    return int(std::min<int64_t>(cores, INT32_MAX));
}

int usable_cores() { return int(least(affinity_cores(), quota_cores(""))); }

}  // namespace mxq::cpu
