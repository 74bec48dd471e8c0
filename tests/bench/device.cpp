#include "device.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "library.h"

std::vector<double> Device::times_us(const std::vector<Call>& calls) {
    std::vector<std::vector<double>> times(calls.size());
    for (int turn = -warmups_; turn < repeats_; ++turn) {
        const std::vector<double> us = turn_us(calls);
        for (size_t i = 0; turn >= 0 && i < calls.size(); ++i) times[i].push_back(us[i]);
    }
    return medians(std::move(times));
}

std::vector<double> Device::host_times_us(const std::vector<Call>& calls) {
    constexpr int batch = 200;  // fewer launches than a stream's queue holds, beyond which the host would wait
    using clock = std::chrono::steady_clock;
    std::vector<std::vector<double>> times(calls.size());
    for (int repeat = -1; repeat < repeats_; ++repeat)
        for (size_t i = 0; i < calls.size(); ++i) {
            const auto start = clock::now();
            for (int n = 0; n < batch; ++n) calls[i]();
            const double us = std::chrono::duration<double, std::micro>(clock::now() - start).count();
            wait();
            if (repeat >= 0) times[i].push_back(us / batch);
        }
    return medians(std::move(times));
}

std::vector<double> Device::rotated_times_us(const std::vector<std::vector<Call>>&) {
    throw LeftOut("--rotate needs --device cpu; --graph rotates on a GPU");
}

int usable_cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency());
}

std::vector<uint32_t> random_words(size_t bytes) {
    std::mt19937 random(54321);
    std::vector<uint32_t> words(bytes / sizeof(uint32_t));
    std::generate(words.begin(), words.end(), random);
    return words;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<double> medians(std::vector<std::vector<double>> lists) {
    std::vector<double> found;
    found.reserve(lists.size());
    for (auto& list : lists) found.push_back(median(std::move(list)));
    return found;
}
