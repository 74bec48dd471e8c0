// How many cores the process may use.
#pragma once
#include <string>

namespace mxq::cpu {

// Returns how many cores the CPU quotas of the process's cgroups (version 1 and 2) allow, rounded up; 0 where they set no
// limit. `root` stands before every path that is read, "" for the system's own.
int quota_cores(const std::string& root);

// Returns how many cores the process may use: those of the calling thread's affinity, but no more than the quota allows.
int usable_cores();

}  // namespace mxq::cpu
