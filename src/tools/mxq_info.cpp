// mxq-info [--json] prints what libmxq can do on this machine: its version and build, the devices and cuBLASLt. For every
// device a table of verbs and formats has the implementation that runs, or the reason why none does.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "json.h"
#include "machine.h"
#include "support.h"

namespace tools {
namespace {

constexpr const char* usage =
    "usage: mxq-info [--json]\n"
    "Tells libmxq's version, build and devices, and which implementation does which verb with which format.\n";

struct Machine {
    Driver driver;
    std::vector<Device> devices;
    std::vector<std::vector<Answer>> answers;  // one list for each device; empty where it cannot be used
};

Machine inspect() {
    Machine machine{find_driver(), {}, {}};
    machine.devices = find_devices(machine.driver);
    for (const Device& device : machine.devices)
        machine.answers.push_back(device.context ? ask_all(device.context.get()) : std::vector<Answer>());
    return machine;
}

// ---- Text ----------------------------------------------------------------------------------------------------------------

std::string driver_text(const Driver& driver) {
    if (driver.cuda.empty()) return "none";
    return (driver.version.empty() ? "" : driver.version + ", ") + "for CUDA " + driver.cuda;
}

void print_machine(const Machine& machine) {
    std::printf("libmxq         %s\nbuild          %s\nNVIDIA driver  %s\n", mxq_version_string(), mxq_build_string(),
                driver_text(machine.driver).c_str());
    for (const auto& [name, value] : find_environment()) std::printf("environment    %s=%s\n", name.c_str(), value.c_str());
    for (const Device& device : machine.devices) {
        if (device.context)
            std::printf("device         %s\n  cuBLASLt     %s\n", device.description().c_str(),
                        mxq_context_cublaslt(device.context.get()));
        else
            std::printf("%-14s %s\n", device.is_cpu() ? "no CPU" : "no CUDA", device.reason.c_str());
    }
}

// The answers of one verb with one format. Their outcome is the name of an implementation, or "" for a refusal.
using Row = std::span<const Answer>;

// Returns whether all answers of the row that have the same `field` as `other` have this outcome.
bool all_have(Row row, std::string Answer::*field, const Answer& other, const std::string& outcome) {
    for (const Answer& answer : row)
        if (answer.*field == other.*field && answer.implementation != outcome) return false;
    return true;
}

void add_once(std::vector<std::string>& words, const std::string& word) {
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

// Names the cases with this outcome: by use ("rowwise") if every case of those uses has it; else by scaling, with the use
// added where only some uses of that scaling have it.
std::vector<std::string> cases_of(Row row, const std::string& outcome) {
    std::vector<std::string> uses, scalings;
    bool uses_say_it = true;
    for (const Answer& answer : row) {
        if (answer.implementation != outcome) continue;
        uses_say_it &= all_have(row, &Answer::use, answer, outcome);
        add_once(uses, answer.use);
        const bool every_use = all_have(row, &Answer::scaling, answer, outcome);
        add_once(scalings, every_use ? answer.scaling : answer.scaling + " " + answer.use);
    }
    return uses_say_it ? uses : scalings;
}

// Prints one line for each outcome. Several refusals share a line, which gives the reason of the first.
void print_row(Row row) {
    std::vector<std::string> outcomes;
    for (const Answer& answer : row) add_once(outcomes, answer.implementation);
    for (const std::string& outcome : outcomes) {
        std::string cases;
        for (const std::string& one : cases_of(row, outcome)) cases += (cases.empty() ? "" : ", ") + one;
        const auto has_it = [&](const Answer& answer) { return answer.implementation == outcome; };
        const std::string why = outcome.empty() ? ": " + std::find_if(row.begin(), row.end(), has_it)->reason : "";
        std::printf("%-17s %-11s %s%s%s\n", row[0].verb.c_str(), row[0].format.c_str(),
                    outcome.empty() ? "no" : outcome.c_str(), outcomes.size() == 1 ? "" : (" (" + cases + ")").c_str(),
                    why.c_str());
    }
}

void print_table(Row answers) {
    while (!answers.empty()) {
        size_t count = 1;
        while (count < answers.size() && answers[count].verb == answers[0].verb && answers[count].format == answers[0].format)
            count++;
        print_row(answers.first(count));
        answers = answers.subspan(count);
    }
}

void print_text(const Machine& machine) {
    print_machine(machine);
    for (size_t i = 0; i < machine.devices.size(); i++) {
        if (!machine.devices[i].context) continue;
        const std::string device = machine.devices[i].description();
        std::printf("\n%s, %lld x %lld, %d groups:\n", device.c_str(), (long long)kRows, (long long)kCols, kGroups);
        if (i > 0 && machine.answers[i] == machine.answers[i - 1]) std::puts("as the device above");
        else print_table(machine.answers[i]);
    }
}

// ---- JSON ----------------------------------------------------------------------------------------------------------------

std::string device_json(const Device& device) {
    json::Object object;
    object.field("type", json::text(device.is_cpu() ? "cpu" : "cuda")).field("ordinal", std::to_string(device.ordinal));
    if (!device.context) return object.field("unavailable", json::text(device.reason)).on_one_line();
    object.field("description", json::text(device.description()));
    if (device.is_cpu())
        object.field("threads", std::to_string(std::stoi(device.middle())))
            .field("instruction_set", json::text(device.last()));
    else
        object.field("name", json::text(device.middle())).field("architecture", json::text(device.last()));
    return object.field("cublaslt", json::text(mxq_context_cublaslt(device.context.get()))).on_one_line();
}

std::string answer_json(size_t device, const Answer& answer) {
    return json::Object()
        .field("device", std::to_string(device))
        .field("verb", json::text(answer.verb))
        .field("format", json::text(answer.format))
        .field("scaling", json::text(answer.scaling))
        .field("use", json::text(answer.use))
        .field("implementation", json::text(answer.implementation))
        .field("reason", json::text(answer.reason))
        .field("bound", json::text(answer.bound))
        .field("workspace_bytes", std::to_string(answer.workspace_bytes))
        .on_one_line();
}

std::string driver_json(const Driver& driver) {
    return json::Object().field("version", json::text(driver.version)).field("cuda", json::text(driver.cuda)).on_one_line();
}

std::string environment_json() {
    json::Object object;
    for (const auto& [name, value] : find_environment()) object.field(name, json::text(value));
    return object.on_one_line();
}

void print_json(const Machine& machine) {
    std::vector<std::string> devices, support;
    for (size_t i = 0; i < machine.devices.size(); i++) {
        devices.push_back(device_json(machine.devices[i]));
        for (const Answer& answer : machine.answers[i]) support.push_back(answer_json(i, answer));
    }
    const std::string all = json::Object()
                                .field("version", json::text(mxq_version_string()))
                                .field("build", json::text(mxq_build_string()))
                                .field("driver", driver_json(machine.driver))
                                .field("environment", environment_json())
                                .field("rows", std::to_string(kRows))
                                .field("cols", std::to_string(kCols))
                                .field("groups", std::to_string(kGroups))
                                .field("devices", json::list(devices))
                                .field("support", json::list(support))
                                .on_lines();
    std::puts(all.c_str());
}

int run(int count, char** arguments) {
    if (count == 2 && !std::strcmp(arguments[1], "--help")) return std::fputs(usage, stdout), 0;
    const bool as_json = count == 2 && !std::strcmp(arguments[1], "--json");
    if (count > 1 && !as_json) return std::fputs(usage, stderr), 2;
    const Machine machine = inspect();
    if (as_json) print_json(machine);
    else print_text(machine);
    return 0;
}

}  // namespace
}  // namespace tools

int main(int count, char** arguments) { return tools::run(count, arguments); }
