// Takes the times of a case: all libraries in turns, with what they are compared with.
#pragma once

#include "call.h"

// What the device can do, measured once at the start of a run.
struct Rates {
    double copy = 0;                               // GB/s, read and written
    std::vector<std::pair<std::string, double>> streams;  // of each mix
    double launch_us = 0;                          // of the host, for an empty kernel; 0 on the CPU
};
Rates measure_rates(Device& device);

// One library's part of a row.
struct Figure {
    std::string library, implementation = {};
    double us = 0;             // a call
    double us_with_query = 0;  // host rows: a query, then the call
    int launches = 0;          // host rows: what a call puts on the stream
    std::string left_out = {}; // why there are no figures
    bool failed = false;       // left out by an error that is no answer to a question of support
};

struct Row {
    Case c;
    Work work;
    std::vector<Figure> figures;  // in the order of the libraries
    std::string mix;              // of the bare streams that it is compared with
    double copy_rate = 0, stream_rate = 0;
    std::string peer;  // of a product; "": none
    double peer_us = 0;
    double launch_us = 0;  // host rows: of an empty kernel, in turns with the calls

    const Figure& last() const { return figures.back(); }
    double gigabytes_per_second() const { return work.bytes() / last().us * 1e-3; }
    // What takes the time of a product are operations, of all else bytes.
    double rate() const { return c.product() ? work.operations / last().us * 1e-6 : gigabytes_per_second(); }
    const char* unit() const { return c.product() ? "TFLOP/s" : "GB/s"; }
};

Row measure(Device& device, const std::vector<Library>& libraries, const Rates& rates, const Case& c, int threads);
