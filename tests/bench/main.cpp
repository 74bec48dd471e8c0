// mxq_bench [--device cpu|cuda] [--verb quantize|dequantize|swizzle|formats|groups|gemm|rebase|cublaslt|all] [--threads N]
//           [--rows R --cols C] [--size M,N,K] [--case TEXT] [--json FILE]
//
// --rows and --cols are the tensor's, --size the product's. mxq_bench_rebase has the verb pass instead.
//
// Rates count bytes read and written, or 2 m n k operations. Each figure is a median, taken in turns with the copy or
// product that it is compared with, on random numbers, with caches that have seen other data in between.
#include <cstdio>
#include <stdexcept>

#include "report.h"
#include "verbs.h"

namespace {

void check_verb(const std::string& wanted) {
    if (wanted == "all") return;
    std::string names;
    for (const Verb& verb : verbs()) {
        if (wanted == verb.name) return;
        names += std::string(verb.name) + ", ";
    }
    throw std::runtime_error("--verb takes " + names + "all, got " + wanted);
}

void parse_size(const std::string& value, Arguments& a) {
    long long m = 0, n = 0, k = 0;
    int read = 0;
    const int count = std::sscanf(value.c_str(), "%lld,%lld,%lld%n", &m, &n, &k, &read);
    if (count != 3 || size_t(read) != value.size() || m <= 0 || n <= 0 || k <= 0)
        throw std::runtime_error("--size takes M,N,K such as 8192,8192,8192, got " + value);
    a.m = m, a.n = n, a.k = k;
}

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
        else if (flag == "--size") parse_size(value, a);
        else if (flag == "--case") a.only = value;
        else if (flag == "--json") a.json = value;
        else throw std::runtime_error("unknown argument " + flag);
    }
    if (a.device != "cpu" && a.device != "cuda")
        throw std::runtime_error("--device takes cpu or cuda, got " + a.device);
    check_verb(a.verb);
    if (a.threads < 0) throw std::runtime_error("--threads takes 0 (one per core) or more");
    if ((a.rows > 0) != (a.cols > 0)) throw std::runtime_error("--rows and --cols come together");
    if (a.threads == 0) a.threads = usable_cores();
    return a;
}

int run(int argc, char** argv) {
    const Arguments arguments = parse(argc, argv);
    std::string command = program_name();
    for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];

    auto backend = arguments.device == "cuda" ? cuda_backend() : cpu_backend(arguments.threads);
    Report report(command, backend->machine(), arguments.only);
    for (const Verb& verb : verbs())
        if (arguments.verb == "all" || arguments.verb == verb.name) verb.bench(*backend, arguments, report);
    if (!arguments.json.empty()) report.write_json(arguments.json);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", program_name(), error.what());
        return 2;
    }
}
