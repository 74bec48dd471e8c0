#include "dispatch_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "json_writer.h"
#include "report.h"

namespace {

constexpr double much = 1.1;       // a loss beyond it counts
constexpr size_t most_worst = 10;  // rows that the end shows once more

std::string pair_of(const Case& c) { return text(c.from) + " x " + text(c.to) + " to " + text(c.d); }

const char* grouping_of(const Case& c) { return c.groups ? "rows" : "dense"; }

// "(8, 1024, 2048, 7168)": groups, M, N, K.
std::string extents_of(const Case& c) {
    const auto [m, n, k] = c.size;
    return "(" + std::to_string(c.groups) + ", " + std::to_string(m) + ", " + std::to_string(n) + ", " + std::to_string(k) +
           ")";
}

void add_quantization(JsonWriter& out, const std::string& operand, const Quantization& q) {
    out.add(operand + "_format", std::string(q.format->name)).add(operand + "_scaling", scaling_text(q.scaling));
}

std::string json_of(const DispatchRow& row, const std::string& program) {
    const Case& c = row.c;
    JsonWriter out("{}"), us("{}"), failed("{}");
    out.add("reproduce", program + " " + c.command).add("pair", pair_of(c));
    add_quantization(out, "a", c.from);
    add_quantization(out, "b", c.to);
    out.add("d_format", std::string(c.d.format->name)).add("grouping", std::string(grouping_of(c))).add("groups", c.groups);
    out.add("m", double(c.size.m)).add("n", double(c.size.n)).add("k", double(c.size.k));
    if (!row.left_out.empty()) return out.add("left_out", row.left_out).done();
    for (const TakerTime& taker : row.takers) {
        if (taker.us > 0)
            us.add(taker.name, taker.us);
        else
            failed.add(taker.name, taker.failed);
    }
    out.add("choice", row.choice().name).add("reason", row.reason).add("times", std::string(row.graph ? "graph" : "turns"));
    return out.add_json("us", us.done()).add_json("failed", failed.done()).done();
}

}  // namespace

const TakerTime& DispatchRow::best() const {
    const auto time = [](const TakerTime& taker) { return taker.us > 0 ? taker.us : HUGE_VAL; };
    return *std::min_element(takers.begin(), takers.end(),
                             [&](const TakerTime& a, const TakerTime& b) { return time(a) < time(b); });
}

void print_dispatch_header() {
    std::printf("%-44s %-5s %-28s %-24s %10s  %-24s %10s %6s\n", "operands", "", "(G, M, N, K)", "choice", "us", "fastest",
                "us", "ratio");
}

void print_dispatch_row(const DispatchRow& row) {
    std::printf("%-44s %-5s %-28s", pair_of(row.c).c_str(), grouping_of(row.c), extents_of(row.c).c_str());
    if (row.timed())
        std::printf(" %-24s %10.2f  %-24s %10.2f %6.2f", row.choice().name.c_str(), row.choice().us, row.best().name.c_str(),
                    row.best().us, row.loss());
    std::printf("\n");
    if (!row.left_out.empty()) std::printf("    %s: %s\n", row.failed ? "FAILED" : "left out", row.left_out.c_str());
    if (!row.no_graph.empty()) std::printf("    in turns, since no graph: %s\n", row.no_graph.c_str());
    for (const TakerTime& taker : row.takers)
        if (!taker.failed.empty()) std::printf("    FAILED: %s: %s\n", taker.name.c_str(), taker.failed.c_str());
    std::fflush(stdout);
}

void print_dispatch_summary(const std::vector<DispatchRow>& rows, const std::string& program) {
    std::vector<const DispatchRow*> timed;
    double logarithms = 0;
    for (const DispatchRow& row : rows) {
        if (!row.timed()) continue;
        timed.push_back(&row);
        logarithms += std::log(row.loss());
    }
    std::stable_sort(timed.begin(), timed.end(),
                     [](const DispatchRow* a, const DispatchRow* b) { return a->loss() > b->loss(); });
    const auto losers = std::count_if(timed.begin(), timed.end(), [](const DispatchRow* row) { return row->loss() > much; });
    std::printf("\n%zu problems, %zu without times; %lld lose more than %.0f%%; geometric mean of the ratios %.3f\n",
                rows.size(), rows.size() - timed.size(), (long long)losers, 100 * (much - 1),
                std::exp(logarithms / double(std::max<size_t>(1, timed.size()))));
    std::printf("the worst\n");
    for (size_t i = 0; i < std::min(most_worst, timed.size()); ++i) {
        print_dispatch_row(*timed[i]);
        std::printf("    %s %s\n", program.c_str(), timed[i]->c.command.c_str());
    }
}

void write_dispatch_json(const std::string& path, const DispatchHead& head, const std::vector<DispatchRow>& rows) {
    JsonWriter out("{}", ",\n "), problems("[]", ",\n  ");
    for (const DispatchRow& row : rows) problems.add(json_of(row, head.program));
    out.add("command", head.command).add("machine", head.machine).add("date", utc_date());
    out.add("settings", settings_of_environment()).add("library", head.path).add("context", head.context);
    out.add("seed", head.seed).add_json("problems", problems.done());
    write_json(path, out);
}
