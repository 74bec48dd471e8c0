// Named lists of cases.
#pragma once

#include <span>
#include <string>

struct SuiteLine {
    const char* suite;
    const char* device;   // "cpu" or "cuda" alone; "": both
    const char* options;  // as on the command line
};

// The suites that have tables of their own (layer_suite.h, dispatch_suite.h), and so stand alone.
inline constexpr const char *layer_suite = "layer", *dispatch_suite = "dispatch";

std::span<const SuiteLine> suite_lines();
// The names, "all" at the end.
std::string suite_names();
bool is_suite(const std::string& name);
