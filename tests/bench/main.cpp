// mxq_bench: see its --help, and README.md beside this file.
#include <cstdio>
#include <filesystem>

#include "check.h"
#include "dispatch_suite.h"
#include "layer_suite.h"
#include "measure.h"
#include "options.h"
#include "suites.h"

namespace {

// The library of this build, which lies where the build put it beside this program; else the one that the loader finds.
std::string library_of_build() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path file = program.parent_path() / MXQ_BENCH_LIBRARY;
    return std::filesystem::exists(file) ? file : file.filename();
}

std::vector<Library> open_libraries(const Settings& settings) {
    std::vector<Library> libraries;
    const auto open = [&](const std::string& name, const std::string& file) {
        libraries.push_back(Library::open(name, file, settings.device_type(), settings.threads));
    };
    if (settings.libraries.empty()) open("this build", library_of_build());
    for (const std::string& file : settings.libraries) open(file, file);
    return libraries;
}

int run(const std::vector<std::string>& arguments) {
    Settings settings = parse_settings(arguments);
    if (settings.help) return std::fputs(usage().c_str(), stdout), 0;
    if (settings.threads == 0) settings.threads = usable_cores();
    const std::string suite = settings.suites.size() == 1 ? settings.suites[0] : "";
    const bool own_tables = suite == layer_suite || suite == dispatch_suite;
    const std::vector<Case> cases = own_tables ? std::vector<Case>{} : cases_of(settings);
    if (cases.empty() && !own_tables) throw std::runtime_error("these options make no case");

    const auto device = settings.cuda() ? cuda_device(settings.repeats, settings.copied)
                                        : cpu_device(settings.threads, settings.repeats, settings.copied);
    const std::vector<Library> libraries = open_libraries(settings);
    std::string command = "mxq_bench";
    for (const std::string& argument : arguments) command += " " + argument;
    if (suite == layer_suite) return print_layer_suite(*device, libraries, settings) ? 0 : 1;
    if (suite == dispatch_suite) return print_dispatch_suite(*device, libraries[0], settings, command) ? 0 : 1;
    const Rates rates = measure_rates(*device);
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
