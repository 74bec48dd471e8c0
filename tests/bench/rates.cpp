#include "rates.h"

#include <algorithm>
#include <cmath>

Rates measure_rates(Device& device) {
    std::vector<Call> calls = {[&] { device.copy(); }};
    for (Mix mix : mixes) calls.push_back([&device, mix] { device.stream_pass(mix); });
    const std::vector<double> us = device.times_us(calls);
    Rates rates;
    rates.copy = copy_rate(device, us[0]);
    for (size_t i = 0; i < std::size(mixes); ++i)
        rates.streams.emplace_back(text(mixes[i]), stream_rate(device, mixes[i], us[1 + i]));
    if (device.stream()) rates.launch_us = device.host_times_us({[&] { device.launch_nothing(); }})[0];
    return rates;
}

double copy_rate(const Device& device, double us) { return 2 * device.copied_bytes() / us * 1e-3; }

double stream_rate(const Device& device, Mix mix, double us) {
    return (mix.reads + mix.writes) * device.streamed_bytes(mix) / us * 1e-3;
}

Mix nearest_mix(double bytes_read, double bytes_written, int streams_written) {
    const double part = bytes_read / std::max(1.0, bytes_read + bytes_written);
    const auto distance = [&](Mix mix) {
        return std::pair(std::abs(part - double(mix.reads) / (mix.reads + mix.writes)),
                         std::abs(mix.writes - streams_written));
    };
    return *std::min_element(std::begin(mixes), std::end(mixes), [&](Mix a, Mix b) { return distance(a) < distance(b); });
}
