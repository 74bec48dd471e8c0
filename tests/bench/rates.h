// What the device can do: a plain copy, and bare streams of each mix of reads and writes.
#pragma once

#include "device.h"

struct Rates {
    double copy = 0;                                      // GB/s, read and written
    std::vector<std::pair<std::string, double>> streams;  // GB/s of each mix
    double launch_us = 0;                                 // of the host, for an empty kernel; 0 on the CPU
};
Rates measure_rates(Device& device);

// GB/s of a copy, or of the streams, that took this long.
double copy_rate(const Device& device, double us);
double stream_rate(const Device& device, Mix mix, double us);

// The mix with the part of reads that is nearest; of two such, that with as many streams written.
Mix nearest_mix(double bytes_read, double bytes_written, int streams_written);
