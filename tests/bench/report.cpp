#include "report.h"

#include <mxq/mxq.h>

#include <cstdio>
#include <ctime>
#include <stdexcept>

namespace {

std::string utc_date() {
    char text[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
    return text;
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + "\"";
}

}  // namespace

Report::Report(std::string command, std::string machine, std::string only)
    : command_(std::move(command)), machine_(std::move(machine)), only_(std::move(only)), date_(utc_date()) {
    std::printf("command  %s\nmachine  %s\ndate     %s\nlibmxq   %s\n\n", command_.c_str(), machine_.c_str(),
                date_.c_str(), mxq_version_string());
    std::printf("%-11s %-38s %-22s %-22s %10s %18s  %s\n", "verb", "case", "shape", "implementation", "ms", "rate",
                "to its peer");
}

void Report::add(const Measurement& m) {
    std::printf("%-11s %-38s %-22s %-22s %10.4f %10.1f %-7s", m.verb.c_str(), m.name.c_str(), m.shape.c_str(),
                m.implementation.c_str(), m.ms, m.rate, m.unit.c_str());
    if (m.ratio > 0) std::printf("  %5.1f%% of %s (%.1f)", 100 * m.ratio, m.peer.c_str(), m.peer_rate);
    std::printf("\n");
    std::fflush(stdout);
    measurements_.push_back(m);
}

void Report::note(const std::string& text) { std::printf("%s\n", text.c_str()); }

void Report::write_json(const std::string& path) const {
    std::FILE* out = std::fopen(path.c_str(), "w");
    if (!out) throw std::runtime_error("cannot write " + path);
    std::fprintf(out, "{\"command\": %s, \"machine\": %s, \"date\": %s, \"libmxq\": %s,\n \"measurements\": [",
                 quoted(command_).c_str(), quoted(machine_).c_str(), quoted(date_).c_str(),
                 quoted(mxq_version_string()).c_str());
    const char* separator = "\n";
    for (const Measurement& m : measurements_) {
        std::fprintf(out,
                     "%s  {\"verb\": %s, \"case\": %s, \"shape\": %s, \"implementation\": %s, \"ms\": %.6g, "
                     "\"rate\": %.6g, \"unit\": %s",
                     separator, quoted(m.verb).c_str(), quoted(m.name).c_str(), quoted(m.shape).c_str(),
                     quoted(m.implementation).c_str(), m.ms, m.rate, quoted(m.unit).c_str());
        if (m.ratio > 0)
            std::fprintf(out, ", \"peer\": %s, \"peer_rate\": %.6g, \"ratio\": %.4g", quoted(m.peer).c_str(),
                         m.peer_rate, m.ratio);
        std::fprintf(out, "}");
        separator = ",\n";
    }
    std::fprintf(out, "\n]}\n");
    if (std::fclose(out) != 0) throw std::runtime_error("cannot write " + path);
}
