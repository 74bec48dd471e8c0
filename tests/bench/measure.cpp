#include "measure.h"

#include <algorithm>
#include <cmath>

#include "peers.h"

namespace {

Mix mix_of(const Work& work) { return nearest_mix(work.bytes_read, work.bytes_written, work.streams_written); }

// Runs the step; where it throws, the figure says why.
template <class Step>
void with_reason(Figure& figure, const Step& step) {
    try {
        step();
    } catch (const LeftOut& reason) {
        figure.left_out = reason.what();
    } catch (const std::exception& error) {
        figure.left_out = error.what();
        figure.failed = true;
    }
}

// The figures whose library takes the case, and its calls: one for each set of operands.
struct Ready {
    Figure* figure;
    std::vector<Prepared> prepared;
};

std::vector<Ready> prepare_all(Device& device, const std::vector<Library>& libraries, Row& row,
                               const std::vector<Operands>& sets) {
    std::vector<Ready> ready;
    for (size_t i = 0; i < libraries.size(); ++i) {
        std::vector<Prepared> prepared;
        with_reason(row.figures[i], [&] {
            for (const Operands& operands : sets) prepared.push_back(prepare(device, libraries[i], row.c, operands));
            prepared[0].call();  // what fails, fails here
            device.wait();
            row.figures[i].implementation = prepared[0].implementation;
        });
        if (row.figures[i].left_out.empty()) ready.push_back({&row.figures[i], std::move(prepared)});
    }
    return ready;
}

void measure_in_turns(Device& device, Row& row, const std::vector<Ready>& ready, const Peer& peer) {
    std::vector<Call> calls;
    calls.reserve(ready.size() + 1);
    for (const Ready& r : ready) calls.push_back(r.prepared[0].call);
    const Mix mix = mix_of(row.work);
    if (peer.call) calls.push_back(peer.call);
    if (!row.c.product()) calls.insert(calls.end(), {[&] { device.copy(); }, [&] { device.stream_pass(mix); }});
    const std::vector<double> us = device.times_us(calls);
    size_t at = 0;
    for (const Ready& r : ready) r.figure->us = us[at++];
    if (peer.call) row.peer_us = us[at++];
    if (row.c.product()) return;
    row.copy_rate = copy_rate(device, us[at]);
    row.stream_rate = stream_rate(device, mix, us[at + 1]);
}

void measure_graphs(Device& device, const std::vector<Ready>& ready) {
    constexpr size_t least = 64;  // calls, so that the launch of the graph itself counts for little
    std::vector<std::vector<Call>> lists;
    for (const Ready& r : ready) {
        std::vector<Call>& list = lists.emplace_back();
        do {
            for (const Prepared& prepared : r.prepared) list.push_back(prepared.call);
        } while (list.size() < least);
    }
    const std::vector<double> us = device.graph_times_us(lists);
    for (size_t i = 0; i < ready.size(); ++i) ready[i].figure->us = us[i];
}

// In turns with a pass that reads as much as rotates, which is what a share of the stream is of.
void measure_rotating(Device& device, Row& row, const std::vector<Ready>& ready) {
    constexpr Mix reads = {1, 0};
    std::vector<std::vector<Call>> lists;
    for (const Ready& r : ready)
        for (std::vector<Call>& list = lists.emplace_back(); const Prepared& prepared : r.prepared)
            list.push_back(prepared.call);
    lists.push_back({[&] { device.stream_pass(reads); }});
    const std::vector<double> us = device.rotated_times_us(lists);
    for (size_t i = 0; i < ready.size(); ++i) ready[i].figure->us = us[i];
    row.mix = text(reads);
    row.stream_rate = stream_rate(device, reads, us.back());
}

void measure_host(Device& device, Row& row, const std::vector<Ready>& ready) {
    std::vector<Call> calls = {[&] { device.launch_nothing(); }};
    for (const Ready& r : ready) calls.insert(calls.end(), {r.prepared[0].call, r.prepared[0].query_and_call});
    const std::vector<double> us = device.host_times_us(calls);
    if (device.stream()) row.launch_us = us[0];
    for (size_t i = 0; i < ready.size(); ++i) {
        ready[i].figure->us = us[1 + 2 * i];
        ready[i].figure->us_with_query = us[2 + 2 * i];
        ready[i].figure->launches = device.launches(ready[i].prepared[0].call);
    }
}

// Returns as many sets of operands as rotate through more than the caches hold; one where nothing rotates. With --rotate
// weights rotate alone: activations and the output were just used by what comes before a product and after it.
std::vector<Operands> operand_sets(Device& device, const Library& library, const Case& c) {
    constexpr double most = 4096;  // beyond it operands are so small that they never were what takes the time
    std::vector<Operands> sets;
    sets.push_back(Operands::make(device, library, c));
    if (c.mode != Mode::Graph && c.mode != Mode::Rotate) return sets;
    const double bytes = c.mode == Mode::Graph ? work_of(library, c, sets[0]).bytes_touched
                                               : bytes_read(library, sets[0].second.description()).all();
    const double count = std::ceil(double(device.rotated_bytes()) / std::max(1.0, bytes)) + 1;
    while (double(sets.size()) < std::min(count, most)) {
        if (c.mode == Mode::Graph)
            sets.push_back(Operands::make(device, library, c));
        else
            sets.push_back(sets[0].with_second(random_operand(device, library, sets[0].second.description())));
    }
    return sets;
}

void measure_row(Device& device, const std::vector<Library>& libraries, Row& row, int threads) {
    const std::vector<Operands> sets = operand_sets(device, libraries[0], row.c);
    row.work = work_of(libraries[0], row.c, sets[0]);
    row.mix = text(mix_of(row.work));
    const std::vector<Ready> ready = prepare_all(device, libraries, row, sets);
    if (ready.empty()) return;
    if (row.c.mode == Mode::Graph) return measure_graphs(device, ready);
    if (row.c.mode == Mode::Host) return measure_host(device, row, ready);
    if (row.c.mode == Mode::Rotate) return measure_rotating(device, row, ready);
    Peer peer;
    try {
        peer = peer_of(device, libraries.back(), row.c, sets[0], threads);
        row.peer = peer.name;
    } catch (const LeftOut& reason) {
        row.peer = std::string("no peer: ") + reason.what();
    }
    measure_in_turns(device, row, ready, peer);
}

}  // namespace

Row measure(Device& device, const std::vector<Library>& libraries, const Rates& rates, const Case& c, int threads) {
    Row row;
    row.c = c;
    for (const Library& library : libraries) row.figures.push_back({.libmxq = library.name()});
    Figure whole;
    with_reason(whole, [&] { measure_row(device, libraries, row, threads); });
    if (!whole.left_out.empty())
        for (Figure& figure : row.figures) figure.us = 0, figure.left_out = whole.left_out, figure.failed = whole.failed;
    if (row.copy_rate == 0) row.copy_rate = rates.copy;  // of products, graphs and host rows
    if (row.stream_rate > 0) return row;
    for (const auto& [mix, rate] : rates.streams)
        if (mix == row.mix) row.stream_rate = rate;
    return row;
}
