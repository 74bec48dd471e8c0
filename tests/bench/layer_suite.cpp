#include "layer_suite.h"

#include <cstdio>
#include <span>

#include "layer_steps.h"

namespace {

constexpr LayerModel models[] = {
    {"gpt-oss-20b", 2880, 2880, 32, 4, "bf16", "mxfp4"},
    {"gpt-oss-20b", 2880, 2880, 32, 4, "bf16", "nvfp4"},
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, "bf16", "mxfp4"},
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, "bf16", "fp8_e4m3:128x128"},
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, "fp8_e4m3:1x128", "fp8_e4m3:128x128"},
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, "mxfp8_e4m3", "mxfp8_e4m3"},
};
constexpr int64_t tokens_of_cuda[] = {1, 2, 4, 8, 16, 128, 1024, 8192}, tokens_of_cpu[] = {1, 512};
constexpr int64_t most_decoded = 16;  // tokens of "decode" rows; others are "prefill" rows
constexpr int64_t choices[] = {4, 64, 512, 4096, 8192, 32768, 65536, 262144};
constexpr int32_t experts_of_routings[] = {32, 128, 1024};

// Times of each list of calls: on CUDA in graphs, on the CPU in turns.
std::vector<double> times_us(Device& device, const std::vector<std::vector<Call>>& lists) {
    if (device.stream()) return device.graph_times_us(lists);
    std::vector<Call> calls;
    for (const std::vector<Call>& list : lists) calls.push_back(list.front());
    return device.times_us(calls);
}

// The calls of as many variants, repeated until a launch of the graph counts for little.
template <class Variant, class CallOf>
std::vector<Call> repeated(const std::vector<Variant>& variants, size_t least, const CallOf& call_of) {
    std::vector<Call> calls;
    do {
        for (const Variant& variant : variants) calls.push_back(call_of(*variant));
    } while (calls.size() < least);
    return calls;
}

using Variants = std::vector<std::unique_ptr<LayerSteps>>;

// The lists of one library: the layer, all verbs, then each verb.
void add_lists(std::vector<std::vector<Call>>& lists, const Variants& variants, size_t least) {
    lists.push_back(repeated(variants, least, [](const LayerSteps& v) { return v.layer().call; }));
    lists.push_back(repeated(variants, least, [](const LayerSteps& v) -> Call {
        return [&v] {
            for (const LayerStep& step : v.forward()) step.call();
        };
    }));
    for (const auto part : {&LayerSteps::forward, &LayerSteps::backward})
        for (size_t i = 0; i < (variants[0].get()->*part)().size(); ++i)
            lists.push_back(repeated(variants, least, [&](const LayerSteps& v) { return (v.*part)()[i].call; }));
}

void print_layer_row(int64_t tokens, const Library& library, const LayerSteps& steps, const double* us, double copy_rate) {
    std::printf("%7lld %12.1f %10.1f %6.2f ", (long long)tokens, us[0], us[1], us[1] / us[0]);
    const double* at = us + 2;
    for (const auto* part : {&steps.forward(), &steps.backward()})
        for (const LayerStep& step : *part) {
            std::printf("  %s %.1f", step.verb.c_str(), *at);
            if (step.bytes > 0) std::printf(" (%.2f)", step.bytes * 1e-3 / *at / copy_rate);
            ++at;
        }
    std::printf("  %s\n", library.name().c_str());
}

void measure_layer(Device& device, const std::vector<Library>& libraries, const LayerModel& model,
                   const LayerWeights& weights, int64_t tokens, double copy_rate) {
    const int variants = !device.stream() ? 1 : tokens <= 128 ? 8 : tokens <= 1024 ? 4 : 2;
    std::vector<Variants> of_libraries;
    std::vector<std::vector<Call>> lists;
    for (const Library& library : libraries) {
        Variants& made = of_libraries.emplace_back();
        for (int v = 0; v < variants; ++v)
            made.push_back(std::make_unique<LayerSteps>(device, library, model, weights, tokens, uint32_t(v + 1)));
        device.wait();
        add_lists(lists, made, tokens <= 128 ? 32 : size_t(variants));
    }
    const std::vector<double> us = times_us(device, lists);
    for (size_t i = 0; i < libraries.size(); ++i)
        print_layer_row(tokens, libraries[i], *of_libraries[i][0], &us[i * lists.size() / libraries.size()], copy_rate);
    std::fflush(stdout);
}

// Returns what --only looks for in a row.
std::string row_text(const LayerModel& model, int64_t tokens) {
    return std::string(model.name) + " " + model.rows + " " + model.weights + (tokens <= most_decoded ? " decode" : " prefill");
}

void print_layers(Device& device, const std::vector<Library>& libraries, const LayerModel& model,
                  const std::vector<int64_t>& tokens, double copy_rate) {
    std::printf("\n%s: K %lld, I %lld, %d experts, top %d; %s rows, %s weights\n", model.name, (long long)model.width,
                (long long)model.hidden, model.experts, model.top, model.rows, model.weights);
    std::printf("%7s %12s %10s %6s   of it us (share of the copy)\n", "tokens", "one call us", "verbs us", "ratio");
    const LayerWeights weights = layer_weights(device, libraries[0], model);
    for (const int64_t count : tokens) measure_layer(device, libraries, model, weights, count, copy_rate);
}

void print_routes(Device& device, const std::vector<Library>& libraries) {
    constexpr int32_t top = 4;
    std::printf("\nroute, us in a graph, of %d choices a token\n%10s", top, "choices");
    for (const int32_t experts : experts_of_routings)
        for (const Library& library : libraries) std::printf(" %6d experts %s", experts, library.name().c_str());
    std::printf("\n");
    for (const int64_t count : choices) {
        std::vector<std::unique_ptr<BenchRouting>> routings;
        std::vector<std::vector<Call>> lists;
        for (const int32_t experts : experts_of_routings)
            for (const Library& library : libraries) {
                std::vector<Call>& calls = lists.emplace_back();
                for (uint32_t seed = 1; seed <= 4; ++seed) {
                    routings.push_back(std::make_unique<BenchRouting>(device, library, count / top, top, experts, seed));
                    calls.push_back(routings.back()->route(device, library).call);
                }
                while (device.stream() && calls.size() < 64) calls.push_back(calls[calls.size() % 4]);
            }
        std::printf("%10lld", (long long)count);
        for (const double us : times_us(device, lists)) std::printf(" %14.2f", us);
        std::printf("\n");
        std::fflush(stdout);
    }
}

// Runs a table, and says why where it cannot.
template <class Table>
bool print_table(const Table& table) {
    try {
        table();
        return true;
    } catch (const LeftOut& reason) {
        std::printf("left out: %s\n", reason.what());
        return true;
    } catch (const std::exception& error) {
        std::printf("FAILED: %s\n", error.what());
        return false;
    }
}

}  // namespace

bool print_layer_suite(Device& device, const std::vector<Library>& libraries, const Settings& settings) {
    const double rate = copy_rate(device, device.times_us({[&] { device.copy(); }})[0]);
    std::printf("machine  %s\ncopy     %.1f GB/s\n", device.machine().c_str(), rate);
    for (const Library& library : libraries)
        std::printf("libmxq   %s: %s, %s; %s\n", library.name().c_str(), library->version_string(), library->build_string(),
                    library->context_description(library.context()));
    const auto wanted = [&](const std::string& text) { return text.find(settings.only) != std::string::npos; };
    bool kept = true;
    if (wanted("route")) kept &= print_table([&] { print_routes(device, libraries); });
    const bool cuda = device.stream();
    for (const LayerModel& model : models) {
        std::vector<int64_t> tokens;
        for (const int64_t count : cuda ? std::span<const int64_t>(tokens_of_cuda) : std::span<const int64_t>(tokens_of_cpu))
            if ((cuda || &model == models) && wanted(row_text(model, count))) tokens.push_back(count);
        if (!tokens.empty()) kept &= print_table([&] { print_layers(device, libraries, model, tokens, rate); });
    }
    return kept;
}
