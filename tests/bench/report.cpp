#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

std::string utc_date() {
    char text[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
    return text;
}

std::string settings_of_environment() {
    std::string out;
    for (char** variable = environ; *variable; ++variable)
        if (std::strncmp(*variable, "MXQ_", 4) == 0) out += std::string(out.empty() ? "" : " ") + *variable;
    return out;
}

namespace {

std::string beside(const Row& row) {
    char text[160] = "";
    if (row.c.mode == Mode::Host) {
        const Figure& f = row.last();
        int length = std::snprintf(text, sizeof text, "with query %.2f us", f.us_with_query);
        if (row.launch_us > 0)
            std::snprintf(text + length, sizeof text - size_t(length),
                          "; %d launches, bare %.2f us each, beyond them %.2f us", f.launches, row.launch_us,
                          f.us - f.launches * row.launch_us);
    } else if (row.peer_us > 0) {
        std::snprintf(text, sizeof text, "%5.1f%% of %s (%.1f us)", 100 * row.peer_us / row.last().us, row.peer.c_str(),
                      row.peer_us);
    } else {
        return row.peer;
    }
    return text;
}

// Prints a row's rate and its shares of the copy and of the stream.
void print_rate(const Row& row) {
    if (row.c.product() && row.rate() < 1)
        std::printf(" %9.1f GFLOP/s", 1e3 * row.rate());
    else
        std::printf(" %9.*f %-7s", row.c.product() ? 3 : 1, row.rate(), row.unit());
    std::printf(" %5.1f%% %5.1f%% %s", 100 * row.gigabytes_per_second() / row.copy_rate,
                100 * row.gigabytes_per_second() / row.stream_rate, row.mix.c_str());
}

}  // namespace

Report::Report(std::string program, std::string command, const std::string& machine, const Rates& rates,
               const std::vector<Library>& libraries)
    : program_(std::move(program)),
      command_(std::move(command)),
      date_(utc_date()),
      settings_(settings_of_environment()),
      machine_(machine),
      rates_(rates) {
    for (const Library& library : libraries)
        libraries_.push_back({library.name(), library->version_string(), library->build_string(),
                              std::string(library->context_description(library.context())) + "; " +
                                  library->context_cublaslt(library.context())});
    print_header();
}

void Report::print_header() const {
    std::printf("command  %s\n", command_.c_str());
    std::printf("machine  %s\n", machine_.c_str());
    std::printf("date     %s\n", date_.c_str());
    if (!settings_.empty()) std::printf("settings %s\n", settings_.c_str());
    for (const LibraryText& l : libraries_)
        std::printf("libmxq   %s: %s, %s; %s\n", l.name.c_str(), l.version.c_str(), l.build.c_str(), l.context.c_str());
    std::printf("copy     %.1f GB/s\nstreams ", rates_.copy);
    for (const auto& [mix, rate] : rates_.streams) std::printf(" %s %.1f GB/s;", mix.c_str(), rate);
    if (rates_.launch_us > 0) std::printf("\nlaunch   %.2f us of the host, of an empty kernel", rates_.launch_us);
    std::printf("\n\n%-16s %-52s %-26s %-24s", "verb", "case", "shape", "implementation");
    for (size_t i = 0; i < libraries_.size(); ++i)
        std::printf(" %12s", libraries_.size() == 1 ? "us" : ("us of " + std::to_string(i + 1)).c_str());
    if (libraries_.size() > 1) std::printf(" %7s", ("1/" + std::to_string(libraries_.size())).c_str());
    std::printf(" %17s %6s %10s\n", "rate", "copy", "stream");
}

void Report::print_figures(const Row& row) const {
    std::printf(" %-24s", row.last().implementation.c_str());
    for (const Figure& figure : row.figures)
        if (figure.us > 0)
            std::printf(" %12.2f", figure.us);
        else
            std::printf(" %12s", "-");
    if (row.figures.size() > 1) {
        if (row.figures[0].us > 0)
            std::printf(" %7.3f", row.figures[0].us / row.last().us);
        else
            std::printf(" %7s", "-");
    }
    if (row.c.mode == Mode::Host)
        std::printf("%37s", "");
    else
        print_rate(row);
    std::printf("  %s", beside(row).c_str());
}

void Report::add(const Row& row) {
    std::printf("%-16s %-52s %-26s", row.c.verb.c_str(), row.c.name.c_str(), row.c.shape_text.c_str());
    if (row.last().us > 0) print_figures(row);
    std::printf("\n");
    for (const Figure& figure : row.figures)
        if (!figure.left_out.empty())
            std::printf("    %s: %s: %s\n", figure.failed ? "FAILED" : "left out", figure.libmxq.c_str(),
                        figure.left_out.c_str());
    if (print_commands_) std::printf("    %s\n", command_of(row).c_str());
    std::fflush(stdout);
    rows_.push_back(row);
}

bool Report::failed() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) {
        return std::any_of(row.figures.begin(), row.figures.end(), [](const Figure& figure) { return figure.failed; });
    });
}
