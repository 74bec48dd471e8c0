// Named lists of cases.
#pragma once

#include <span>
#include <string>

struct SuiteLine {
    const char* suite;
    const char* device;   // "cpu" or "cuda" alone; "": both
    const char* options;  // as on the command line
};

std::span<const SuiteLine> suite_lines();
// The names, "all" at the end.
std::string suite_names();
bool is_suite(const std::string& name);
