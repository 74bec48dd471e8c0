#include "dispatch_suite.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "call.h"
#include "dispatch_problems.h"
#include "dispatch_report.h"

namespace {

// README.md says what these do.
constexpr double far_off = 20, graph_far_off = 4;  // times the least
constexpr double graph_below_us = 50;
constexpr size_t graph_calls = 64;  // and the most sets of operands

// Returns the names of all implementations on this device. The library lists them for whoever asks for one that it has not.
std::vector<std::string> implementation_names(Device& device, const Library& library, Case c, const Operands& operands) {
    const std::string before = "expected one of: ";
    std::string message = "it took the name unknown";
    c.implementation = "unknown";
    try {
        prepare(device, library, c, operands);
    } catch (const LeftOut& refusal) {
        message = refusal.what();
    }
    const size_t at = message.find(before);
    if (at == std::string::npos) throw LeftOut("the library does not list its implementations: " + message);
    std::string names = message.substr(at + before.size());
    names = names.substr(0, names.find(';'));
    std::erase(names, ' ');
    return split(names, ',');
}

// An implementation that takes the problem, and its time in the row.
struct Taker {
    Case c;
    TakerTime* time;
    Call call;
};

// Returns the choice, then all others that take the problem. The operands must outlive them.
std::vector<Taker> find_takers(Device& device, const Library& library, DispatchRow& row, const Operands& operands) {
    const Prepared choice = prepare(device, library, row.c, operands);
    const std::vector<std::string> names = implementation_names(device, library, row.c, operands);
    row.reason = choice.reason;
    row.takers.reserve(1 + names.size());  // times stay where they are
    std::vector<Taker> takers;
    const auto add = [&](const Case& c, const std::string& name, const Call& call) {
        row.takers.push_back({name});
        takers.push_back({c, &row.takers.back(), call});
    };
    add(row.c, choice.implementation, choice.call);
    for (const std::string& name : names) {
        if (name == choice.implementation) continue;
        Case c = row.c;
        c.implementation = name;
        try {
            add(c, name, prepare(device, library, c, operands).call);
        } catch (const LeftOut&) {  // declines
        } catch (const std::exception& error) {
            row.takers.push_back({.name = name, .failed = error.what()});
        }
    }
    return takers;
}

// Calls each once, untimed: what loads, loads here. Drops those that fail, and tells why.
void warm_up(Device& device, std::vector<Taker>& takers) {
    std::erase_if(takers, [&](const Taker& taker) {
        try {
            taker.call();
            device.wait();
            return false;
        } catch (const std::exception& error) {
            taker.time->failed = error.what();
            return true;
        }
    });
}

// Takes one time of each of the takers.
void take_turn(Device& device, const std::vector<Taker>& takers, std::vector<std::vector<double>>& times) {
    std::vector<Call> calls;
    calls.reserve(takers.size());
    for (const Taker& taker : takers) calls.push_back(taker.call);
    const std::vector<double> us = device.turn_us(calls);
    for (size_t i = 0; i < us.size(); ++i) times[i].push_back(us[i]);
}

double least_us(const std::vector<Taker>& takers) {
    double least = HUGE_VAL;
    for (const Taker& taker : takers) least = std::min(least, taker.time->us);
    return least;
}

std::vector<Taker> within(const std::vector<Taker>& takers, double factor) {
    std::vector<Taker> near;
    const double most = factor * least_us(takers);
    std::copy_if(takers.begin(), takers.end(), std::back_inserter(near), [&](const Taker& t) { return t.time->us <= most; });
    return near;
}

void set_times(const std::vector<Taker>& takers, const std::vector<double>& us) {
    for (size_t i = 0; i < takers.size(); ++i) takers[i].time->us = us[i];
}

// Takes one turn of all takers, then more of those that are not far off.
void time_in_turns(Device& device, const std::vector<Taker>& takers) {
    std::vector<std::vector<double>> first(takers.size());
    take_turn(device, takers, first);
    set_times(takers, medians(first));
    const std::vector<Taker> near = within(takers, far_off);
    std::vector<std::vector<double>> times(near.size());
    for (int turn = 0; turn < device.repeats(); ++turn) take_turn(device, near, times);
    set_times(near, medians(times));
}

// Returns as many sets of operands as rotate through more than the caches hold, if a graph has that many calls.
std::vector<Operands> rotating_sets(Device& device, const Library& library, const Case& c, const Operands& first) {
    std::vector<Operands> sets = {first};
    const double bytes = std::max(1.0, work_of(library, c, first).bytes_touched);
    const size_t count = size_t(std::ceil(double(device.rotated_bytes()) / bytes)) + 1;
    while (sets.size() < std::min(count, graph_calls)) sets.push_back(Operands::make(device, library, c));
    return sets;
}

void time_by_graphs(Device& device, const Library& library, const std::vector<Taker>& takers, const Operands& first) {
    const std::vector<Operands> sets = rotating_sets(device, library, takers.front().c, first);
    std::vector<std::vector<Call>> lists;
    for (const Taker& taker : takers) {
        std::vector<Call>& list = lists.emplace_back();
        for (const Operands& operands : sets) list.push_back(prepare(device, library, taker.c, operands).call);
        for (size_t i = 0; list.size() < graph_calls; ++i) list.push_back(list[i]);
    }
    set_times(takers, device.graph_times_us(lists));
}

void measure_row(Device& device, const Library& library, DispatchRow& row) {
    const Operands operands = Operands::make(device, library, row.c);
    std::vector<Taker> takers = find_takers(device, library, row, operands);
    warm_up(device, takers);
    if (takers.empty()) return;
    time_in_turns(device, takers);
    if (!device.stream() || least_us(takers) >= graph_below_us) return;
    try {
        time_by_graphs(device, library, within(takers, graph_far_off), operands);
        row.graph = true;
    } catch (const std::exception& error) {
        row.no_graph = error.what();  // and all keep the times of their turns
    }
}

DispatchRow measure_dispatch(Device& device, const Library& library, const Case& c) {
    DispatchRow row;
    row.c = c;
    try {
        measure_row(device, library, row);
    } catch (const LeftOut& reason) {
        row.left_out = reason.what();
    } catch (const std::exception& error) {
        row.left_out = error.what();
        row.failed = true;
    }
    return row;
}

bool failed(const DispatchRow& row) {
    return row.failed ||
           std::any_of(row.takers.begin(), row.takers.end(), [](const TakerTime& t) { return !t.failed.empty(); });
}

}  // namespace

bool print_dispatch_suite(Device& device, const Library& library, const Settings& settings, const std::string& command) {
    std::printf("machine  %s\nlibmxq   %s: %s, %s; %s\n\n", device.machine().c_str(), library.name().c_str(),
                library->version_string(), library->build_string(), library->context_description(library.context()));
    print_dispatch_header();
    std::vector<DispatchRow> rows;
    for (const Case& c : dispatch_problems(settings.count, settings.seed, settings.cuda())) {
        if (!has_text(c, settings.only)) continue;
        rows.push_back(measure_dispatch(device, library, c));
        print_dispatch_row(rows.back());
        if (settings.print_commands) std::printf("    %s %s\n", settings.program().c_str(), c.command.c_str());
    }
    print_dispatch_summary(rows, settings.program());
    if (!settings.json.empty())
        write_dispatch_json(settings.json,
                            {settings.program(), command, device.machine(), library->build_string(),
                             library->context_description(library.context()), settings.seed},
                            rows);
    return std::none_of(rows.begin(), rows.end(), failed);
}
