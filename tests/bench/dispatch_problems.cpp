#include "dispatch_problems.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

namespace {

// Formats of A and B that are used together.
const struct {
    const char *a, *b;
} pairs[] = {
    {"bf16", "mxfp4"},
    {"bf16", "nvfp4"},
    {"bf16", "mxfp8_e4m3"},
    {"bf16", "mxfp6_e2m3"},
    {"bf16", "fp8_e4m3:128x128"},
    {"bf16", "fp8_e4m3:row"},
    {"fp8_e4m3:1x128", "fp8_e4m3:128x128"},
    {"fp8_e4m3:1x128", "mxfp4"},
    {"fp8_e4m3:row", "fp8_e4m3:row"},
    {"mxfp8_e4m3", "mxfp8_e4m3"},
    {"mxfp8_e4m3", "mxfp4"},
    {"mxfp8_e4m3", "mxfp6_e2m3"},
    {"nvfp4", "nvfp4"},
    {"bf16", "bf16"},
    {"f16", "mxfp4"},
};

struct Range {
    double least, most;
};

// Says what is drawn on a device.
struct Limits {
    Range width, rows, groups, rows_of_group;  // rows of a group on average
    double bytes, operations;                  // the most of a problem
};
constexpr Limits limits_of_cuda = {{512, 14336}, {1, 16384}, {8, 256}, {0.25, 2048}, 6.0 * (1 << 30), 4e13};
constexpr Limits limits_of_cpu = {{128, 512}, {1, 128}, {2, 8}, {0.25, 16}, 6.0 * (1 << 30), 4e13};

struct Problem {
    size_t pair;
    bool f32;        // D's format; else BF16
    int64_t groups;  // 0: dense
    Size size;

    // Returns the bytes of the operands, with 16 bits for numbers of A and B: they have these before they are quantized.
    double bytes() const {
        const double weights = double(size.n * size.k * std::max<int64_t>(groups, 1));
        return 2 * (double(size.m * size.k) + weights) + (f32 ? 4 : 2) * double(size.m * size.n);
    }
    double operations() const { return 2.0 * double(size.m) * double(size.n) * double(size.k); }
};

// Draws numbers that depend on the seed alone. Those of the standard's distributions also depend on the compiler.
class Draws {
public:
    explicit Draws(uint32_t seed) : random_(seed) {}
    double uniform() { return double(random_()) / 4294967296.0; }
    size_t below(size_t count) { return size_t(uniform() * double(count)); }
    double log_uniform(Range range) { return range.least * std::pow(range.most / range.least, uniform()); }
    // Returns a multiple of the first number in eight of ten draws, of each other in one.
    int64_t width(Range range, const int64_t (&multiples)[3]) {
        const double share = uniform();
        const int64_t of = multiples[share < 0.8 ? 0 : share < 0.9 ? 1 : 2];
        return of * std::llround(log_uniform(range) / double(of));
    }

private:
    std::mt19937 random_;
};

Problem draw(Draws& draws, const Limits& limits) {
    Problem p{draws.below(std::size(pairs)), draws.uniform() < 0.1, 0, {}};
    p.size.n = draws.width(limits.width, {64, 16, 8});
    p.size.k = draws.width(limits.width, {128, 64, 32});
    double rows = draws.log_uniform(limits.rows);
    if (draws.uniform() < 0.5) {
        p.groups = std::llround(draws.log_uniform(limits.groups));
        rows = double(p.groups) * draws.log_uniform(limits.rows_of_group);
    }
    p.size.m = std::max<int64_t>(1, std::llround(rows));
    return p;
}

Case case_of(const Problem& p, bool cuda) {
    const std::string size = std::to_string(p.size.m) + "x" + std::to_string(p.size.n) + "x" + std::to_string(p.size.k);
    Values values = {{"verb", {p.groups ? "grouped_gemm" : "gemm"}},
                     {"a", {pairs[p.pair].a}},
                     {"b", {pairs[p.pair].b}},
                     {"d", {p.f32 ? "f32" : "bf16"}},
                     {"size", {size}}};
    if (p.groups) values["groups"] = {std::to_string(p.groups)};
    return expand(values, cuda).front();
}

}  // namespace

std::vector<Case> dispatch_problems(int count, uint32_t seed, bool cuda) {
    const Limits& limits = cuda ? limits_of_cuda : limits_of_cpu;
    Draws draws(seed);
    std::vector<Case> cases;
    while (cases.size() < size_t(count)) {
        const Problem p = draw(draws, limits);
        if (p.bytes() <= limits.bytes && p.operations() <= limits.operations) cases.push_back(case_of(p, cuda));
    }
    return cases;
}
