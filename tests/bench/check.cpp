#include "check.h"

#include <cstdio>

#include "json.h"

namespace {

std::map<std::string, double> times_of(const Json& report) {
    std::map<std::string, double> times;
    for (const Json& row : report["rows"].list)
        if (row["us"].number > 0) times[row["reproduce"].text] = row["us"].number;
    return times;
}

// Rates are compared: a fall of 5% is a time that is longer by a nineteenth.
bool fell(double before_us, double now_us, double percent) { return now_us <= 0 || before_us / now_us < 1 - percent / 100; }

}  // namespace

bool check_against(const std::string& path, const Report& report, double percent) {
    const Json earlier = read_json(path);
    const auto times = times_of(earlier);
    int compared = 0, fallen = 0;
    std::printf("\ncheck    against %s, falls of more than %g%%\n", path.c_str(), percent);
    if (const std::string& machine = earlier["machine"].text; machine != report.machine())
        std::printf("check    that is of another machine: %s\n", machine.c_str());
    for (const Row& row : report.rows()) {
        const auto before = times.find(report.command_of(row));
        if (before == times.end()) continue;
        ++compared;
        const double now = row.last().us;
        if (!fell(before->second, now, percent)) continue;
        ++fallen;
        std::printf("fell     %s\n", before->first.c_str());
        if (now > 0)
            std::printf("         from %.2f us to %.2f us: %+.1f%%\n", before->second, now,
                        100 * (before->second / now - 1));
        else
            std::printf("         from %.2f us to nothing: %s\n", before->second, row.last().left_out.c_str());
    }
    std::printf("check    %d rows compared, %d fell\n", compared, fallen);
    return compared > 0 && fallen == 0;
}
