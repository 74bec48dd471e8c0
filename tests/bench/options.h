// The command line of mxq_bench.
#pragma once

#include "case.h"

struct Settings {
    bool help = false;
    std::string device = "cpu";
    int threads = 0;  // of the CPU backend and what it is compared with
    std::vector<std::string> libraries;
    std::vector<std::string> suites;
    Values values;     // of the options that make cases
    std::string only;  // rows whose text has this in it; "": all
    std::string json, check;
    double tolerance = 5;  // percent
    int repeats = 0;       // 0: the device's own
    size_t copied = 0;     // bytes of the copy and the streams; 0: the device's own
    int count = 0;         // problems of the suite dispatch; 0: the usual number
    uint32_t seed = 0;
    bool print_commands = false;

    bool cuda() const { return device == "cuda"; }
    int32_t device_type() const { return cuda() ? MXQ_DEVICE_CUDA : MXQ_DEVICE_CPU; }
    std::string program() const;  // what each row's command begins with
};

// Throws std::runtime_error where an option is unknown or has no sense.
Settings parse_settings(const std::vector<std::string>& arguments);

// Every case of the suites, or of the options alone; none twice.
std::vector<Case> cases_of(const Settings& settings);

std::string usage();
