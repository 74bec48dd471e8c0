// mxq_bench [--device cpu|cuda] [--verb quantize|dequantize|swizzle|formats|groups|gemm|all] [--threads N]
//           [--rows R --cols C] [--case TEXT] [--json FILE]
//
// Rates count bytes read and written, or 2 m n k operations. Each figure is a median, taken in turns with the copy or
// product that it is compared with, on random numbers, with caches that have seen other data in between.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <stdexcept>

#include "report.h"
#include "verbs.h"

namespace {

const struct {
    const char* name;
    void (*bench)(Backend&, const Arguments&, Report&);
} verbs[] = {
    {"quantize", bench_quantize}, {"dequantize", bench_dequantize}, {"swizzle", bench_swizzle},
    {"formats", bench_formats},   {"groups", bench_groups},         {"gemm", bench_gemm}};

Arguments parse(int argc, char** argv) {
    Arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string flag = argv[i];
        if (i + 1 == argc) throw std::runtime_error(flag + " needs a value, or is unknown");
        const std::string value = argv[++i];
        if (flag == "--device") a.device = value;
        else if (flag == "--verb") a.verb = value;
        else if (flag == "--threads") a.threads = std::stoi(value);
        else if (flag == "--rows") a.rows = std::stoll(value);
        else if (flag == "--cols") a.cols = std::stoll(value);
        else if (flag == "--case") a.only = value;
        else if (flag == "--json") a.json = value;
        else throw std::runtime_error("unknown argument " + flag);
    }
    if (a.device != "cpu" && a.device != "cuda")
        throw std::runtime_error("--device takes cpu or cuda, got " + a.device);
    const auto named = [&](const auto& verb) { return a.verb == verb.name; };
    if (a.verb != "all" && std::none_of(std::begin(verbs), std::end(verbs), named))
        throw std::runtime_error("--verb takes quantize, dequantize, swizzle, formats, groups, gemm or all, got " + a.verb);
    if (a.threads < 0) throw std::runtime_error("--threads takes 0 (one per core) or more");
    if ((a.rows > 0) != (a.cols > 0)) throw std::runtime_error("--rows and --cols come together");
    if (a.threads == 0) a.threads = usable_cores();
    return a;
}

int run(int argc, char** argv) {
    const Arguments arguments = parse(argc, argv);
    std::string command = "mxq_bench";
    for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];

    auto backend = arguments.device == "cuda" ? cuda_backend() : cpu_backend(arguments.threads);
    Report report(command, backend->machine(), arguments.only);
    for (const auto& verb : verbs)
        if (arguments.verb == "all" || arguments.verb == verb.name) verb.bench(*backend, arguments, report);
    if (!arguments.json.empty()) report.write_json(arguments.json);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mxq_bench: %s\n", error.what());
        return 2;
    }
}
