// mxq_bench: see its --help, and README.md beside this file.
#include <cstdio>

#include "check.h"
#include "measure.h"
#include "options.h"

namespace {

std::vector<Library> open_libraries(const Settings& settings) {
    // Without a name, the library of this build: the loader finds it beside this program, as its run path says.
    const std::vector<std::string> files =
        settings.libraries.empty() ? std::vector<std::string>{"libmxq.so.0"} : settings.libraries;
    std::vector<Library> libraries;
    for (const std::string& file : files) libraries.push_back(Library::open(file, settings.device_type(), settings.threads));
    return libraries;
}

int run(const std::vector<std::string>& arguments) {
    Settings settings = parse_settings(arguments);
    if (settings.help) return std::fputs(usage().c_str(), stdout), 0;
    if (settings.threads == 0) settings.threads = usable_cores();
    const std::vector<Case> cases = cases_of(settings);
    if (cases.empty()) throw std::runtime_error("these options make no case");

    const auto device = settings.cuda() ? cuda_device(settings.repeats, settings.copied)
                                        : cpu_device(settings.threads, settings.repeats, settings.copied);
    const std::vector<Library> libraries = open_libraries(settings);
    const Rates rates = measure_rates(*device);
    std::string command = "mxq_bench";
    for (const std::string& argument : arguments) command += " " + argument;
    Report report(settings.program(), command, device->machine(), rates, libraries);
    if (settings.print_commands) report.print_commands();
    for (const Case& c : cases) report.add(measure(*device, libraries, rates, c, settings.threads));
    if (!settings.json.empty()) report.write_json(settings.json);
    const bool kept = settings.check.empty() || check_against(settings.check, report, settings.tolerance);
    return kept && !report.failed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mxq_bench: %s\n", error.what());
        return 2;
    }
}
