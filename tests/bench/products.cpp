// gemm and grouped_gemm; on the CPU against OpenBLAS sgemm of the same size on the same threads, where it is installed.
#include <cstring>

#include "product.h"
#include "sgemm.h"
#include "verbs.h"

using namespace mxq_handles;

namespace {

struct Case {
    const char* name;
    int32_t transpose_a, transpose_b;
};

constexpr int32_t N = MXQ_TRANSPOSE_N, T = MXQ_TRANSPOSE_T;
const Case forward = {"(N,T) forward", N, T};
const Case input_gradient = {"(N,N) input gradient", N, N};
const Case weight_gradient = {"(T,N) weight gradient", T, N};

// The part whose contraction is the product's, and the shape as stored: (m, k) or (k, m) for A, (k, n) or (n, k) for B.
int32_t part_of(bool along_rows) { return along_rows ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE; }

Operands plain_operands(Backend& backend, const Case& c, const Size& s) {
    const bool a_t = c.transpose_a == T, b_t = c.transpose_b == T;
    const Shape a = a_t ? Shape{s.k, s.m} : Shape{s.m, s.k}, b = b_t ? Shape{s.n, s.k} : Shape{s.k, s.n};
    return {random_quantized(backend, {.parts = {part_of(a_t)}}, a),
            random_quantized(backend, {.parts = {part_of(!b_t)}}, b),
            empty_plain(backend, MXQ_FORMAT_BF16, {s.m, s.n})};
}

// Sizes as for the forward pass: m tokens, k wide, to n. The weight gradient contracts the tokens.
Operands grouped_operands(Backend& backend, const Case& c, const Size& s) {
    const auto ends = ragged_ends(s.m, s.groups);
    auto device_ends = backend.allocate(ends.size() * sizeof ends[0]);
    backend.upload(device_ends.get(), ends.data(), ends.size() * sizeof ends[0]);
    if (c.transpose_a == T)
        return {random_grouped(backend, {.parts = {MXQ_PART_COLUMNWISE}}, {s.m, s.k}, ends, device_ends),
                random_grouped(backend, {.parts = {MXQ_PART_COLUMNWISE}}, {s.m, s.n}, ends, device_ends),
                empty_plain(backend, MXQ_FORMAT_F32, {s.k, s.n, s.groups})};
    const bool b_t = c.transpose_b == T;
    const Shape b = b_t ? Shape{s.n, s.k, s.groups} : Shape{s.k, s.n, s.groups};
    return {random_grouped(backend, {}, {s.m, s.k}, ends, device_ends),
            random_quantized(backend, {.parts = {part_of(!b_t)}}, b),
            empty_plain(backend, MXQ_FORMAT_BF16, {s.m, s.n})};
}

// Forward products of other formats.
struct Pair {
    const char* name;
    Quantization a, b;
};

const Pair pairs[] = {
    {"MXFP8 x MXFP4", {}, {.format = MXQ_FORMAT_MXFP4}},
    {"BF16 x MXFP4", {.format = MXQ_FORMAT_BF16}, {.format = MXQ_FORMAT_MXFP4}},
    {"BF16 x MXFP8", {.format = MXQ_FORMAT_BF16}, {}},
    {"MXFP4 x MXFP4", {.format = MXQ_FORMAT_MXFP4}, {.format = MXQ_FORMAT_MXFP4}},
    {"MXFP6 E2M3 x MXFP6 E3M2", {.format = MXQ_FORMAT_MXFP6_E2M3}, {.format = MXQ_FORMAT_MXFP6_E3M2}},
    {"NVFP4 x NVFP4", {.format = MXQ_FORMAT_NVFP4}, {.format = MXQ_FORMAT_NVFP4}},
    {"BF16 x NVFP4", {.format = MXQ_FORMAT_BF16}, {.format = MXQ_FORMAT_NVFP4}},
    {"FP8 tensor x FP8 tensor", {.format = MXQ_FORMAT_FP8_E4M3}, {.format = MXQ_FORMAT_FP8_E4M3}},
    {"FP8 1x128 x FP8 128x128",
     {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_1X128},
     {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_128X128}},
    {"BF16 x BF16", {.format = MXQ_FORMAT_BF16}, {.format = MXQ_FORMAT_BF16}},
};

// sgemm of the same m, n, k on random numbers; none where OpenBLAS is missing.
Peer sgemm_peer(Backend& backend, const Sgemm* sgemm, const Size& s) {
    if (!sgemm) return {};
    auto a = std::make_shared<Operand>(random_plain(backend, MXQ_FORMAT_F32, {s.m, s.k}));
    auto b = std::make_shared<Operand>(random_plain(backend, MXQ_FORMAT_F32, {s.n, s.k}));
    auto c = std::make_shared<Operand>(empty_plain(backend, MXQ_FORMAT_F32, {s.m, s.n}));
    const auto data = [](const Operand& o) { return static_cast<float*>(o.memory[0].get()); };
    return {"OpenBLAS sgemm", [=] { (*sgemm)(int(s.m), int(s.n), int(s.k), data(*a), data(*b), data(*c)); }};
}

void measure(Backend& backend, Report& report, const Sgemm* sgemm, const Case& c, const Size& s, const Operands& o) {
    if (!report.wants(c.name)) return;
    const Product product(backend, o, s.groups > 0, {.transpose_a = c.transpose_a, .transpose_b = c.transpose_b});
    measure_product(backend, report, c.name, s, product, sgemm_peer(backend, sgemm, s));
}

}  // namespace

void bench_gemm(Backend& backend, const Arguments& arguments, Report& report) {
    const bool on_cpu = backend.stream() == nullptr;
    std::unique_ptr<Sgemm> sgemm;
    if (on_cpu) {
        sgemm = Sgemm::open(arguments.threads);
        if (!sgemm) report.note("No libopenblas.so.0 here: products stand without a peer.");
    }
    Size whole = on_cpu ? Size{1024, 1024, 1024} : Size{8192, 8192, 8192};
    std::vector<Size> grouped = {{2048, 1024, 1024, 4}};
    if (!on_cpu) grouped = {{32768, 2048, 7168, 8}, {32768, 2048, 7168, 4}, {32768, 8192, 5120, 8}};
    if (arguments.m > 0) {
        whole = {arguments.m, arguments.n, arguments.k};
        grouped = {{arguments.m, arguments.n, arguments.k, 8}};
    }
    for (const Case& c : {forward, input_gradient, weight_gradient})
        measure(backend, report, sgemm.get(), c, whole, plain_operands(backend, c, whole));
    for (const Size& size : grouped)
        for (const Case& c : {forward, input_gradient, weight_gradient})
            measure(backend, report, sgemm.get(), c, size, grouped_operands(backend, c, size));
    for (const Pair& pair : pairs) {
        const Case c = {pair.name, N, T};
        measure(backend, report, sgemm.get(), c, whole, forward_operands(backend, pair.a, pair.b, whole));
    }
}
