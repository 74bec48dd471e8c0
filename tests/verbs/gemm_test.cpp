// mxq_gemm keeps the contract's bound against a product in double precision, on every device.
#include "../machine.h"
#include "product.h"

using testing::Spread;

namespace {

struct Case {
    int64_t m, n, k;
    oracle::Spec a, b;
    bool a_swizzled = false, b_swizzled = false;
    testing::Transposes transposes{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T};
    int32_t d_format = MXQ_FORMAT_F32;
    bool accumulate = false;
    int64_t gap = 0;
    size_t offset = 0;
    Spread a_spread = Spread::normal, b_spread = Spread::normal;
    const char* implementation = nullptr;
};

// Makes the descriptor of an operand. The part that a product reads always has (outer, k) codes; a transpose changes only the
// shape and the part.
testing::Tensor describe(const oracle::Spec& spec, int64_t outer, int64_t k, bool rowwise, bool swizzled) {
    return testing::make_quantized(spec, rowwise ? testing::Dims{std::nullopt, outer, k} : testing::Dims{std::nullopt, k, outer}, swizzled);
}

struct Run {
    std::string complaint;  // empty if every element keeps the bound
    oracle::Promise promise;
    testing::Bytes d;
};

Run run(testing::Device& device, const Case& c, uint64_t seed) {
    auto a = testing::make_operand(c.a, c.m, c.k, c.a_spread, seed), b = testing::make_operand(c.b, c.n, c.k, c.b_spread, seed + 1);
    bool a_rowwise = c.transposes.a == MXQ_TRANSPOSE_N, b_rowwise = c.transposes.b == MXQ_TRANSPOSE_T;
    auto a_tensor = describe(c.a, c.m, c.k, a_rowwise, c.a_swizzled), b_tensor = describe(c.b, c.n, c.k, b_rowwise, c.b_swizzled);
    oracle::Part a_stored = a.compact, b_stored = b.compact;
    if (c.a_swizzled) a_stored.scales = oracle::swizzle(a.compact.scales, c.a.scaling, c.m, c.k);
    if (c.b_swizzled) b_stored.scales = oracle::swizzle(b.compact.scales, c.b.scaling, c.n, c.k);
    testing::PartBuffers a_buffers(device, a_tensor, a_rowwise ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, a_stored, c.offset);
    testing::PartBuffers b_buffers(device, b_tensor, b_rowwise ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, b_stored, c.offset);

    oracle::Floats previous = cases::values(cases::Values::normal, static_cast<size_t>(c.m * c.n), seed + 2);
    testing::Output d(device, c.d_format, {std::nullopt, c.m, c.n}, c.gap, c.accumulate ? &previous : nullptr, c.offset);
    auto options = testing::exact_gemm_options(c.transposes.a, c.transposes.b, c.accumulate, c.implementation);
    Run out;
    out.promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a_tensor, b_tensor, d.tensor);
    auto expected = oracle::product(a.values.data(), c.k, b.values.data(), c.k, c.m, c.n, c.k, c.accumulate ? previous.data() : nullptr);
    double factor = oracle::bound_factor(out.promise, c.k) + c.accumulate;
    out.complaint = factor < 0 ? "no class of bound from " + out.promise.implementation
                               : oracle::check_product(expected, d.values(), c.d_format, factor);
    out.d = d.bytes();
    return out;
}

Case combination(int64_t number, int64_t m, int64_t n, int64_t k) {
    cases::Digits digits(number);
    Case c{m, n, k, {}, {}};
    c.transposes = digits.pick(testing::all_transposes);
    c.a.format = digits.pick(cases::formats);
    c.b.format = digits.pick(cases::formats);
    c.a_swizzled = digits.flag();
    c.b_swizzled = digits.flag();
    c.a.scaling = digits.pick(cases::scalings);
    c.b.scaling = digits.pick(cases::scalings);
    c.d_format = digits.pick(cases::plain_formats);
    c.accumulate = digits.flag() && c.d_format == MXQ_FORMAT_F32;
    c.gap = digits.next(2) * 3;
    c.offset = static_cast<size_t>(digits.next(2));
    c.a_spread = c.b_spread = static_cast<Spread>(digits.next(3));
    return c;
}
constexpr int64_t combinations = 4 * 2 * 2 * 2 * 2 * 2 * 2 * 3 * 2 * 2 * 2 * 3;

std::string text(const Case& c, int64_t number) {
    return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + ", combination " + std::to_string(number);
}

}  // namespace

MXQ_EACH_DEVICE("gemm: the bound holds for awkward shapes and all choices") {
    int64_t ran = 0;
    for (int64_t m : {0, 1, 31, 33, 129})
        for (int64_t n : {0, 1, 32, 67, 128})
            for (int64_t k : {0, 1, 31, 32, 33, 96, 127, 257})
                for (int64_t number = ran % 1231; number < combinations; number += m * n * k < 100000 ? 1231 : 6007) {
                    Case c = combination(number, m, n, k);
                    Run result = run(device, c, static_cast<uint64_t>(ran++));
                    if (!result.complaint.empty()) FAIL(text(c, number) << ": " << result.complaint);
                }
    CHECK(ran == 2514);
}

MXQ_EACH_DEVICE("gemm: the bound holds for long contractions and larger matrices") {
    int ran = 0;
    for (auto [m, n, k] : {std::array<int64_t, 3>{5, 7, 4133}, {40, 300, 1000}, {300, 40, 515}, {130, 131, 640}, {1, 513, 2048}})
        for (auto transposes : testing::all_transposes) {
            Case c = combination(ran * 1237, m, n, k);
            c.transposes = transposes;
            Run result = run(device, c, static_cast<uint64_t>(ran++));
            if (!result.complaint.empty()) FAIL(text(c, ran) << ": " << result.complaint);
        }
    CHECK(ran == 20);
}

// Pairs scales up to 254 with small ones, and subnormal values with each other: nothing may overflow or be flushed to zero.
MXQ_EACH_DEVICE("gemm: the bound holds at the ends of the range") {
    const std::pair<Spread, Spread> spreads[] = {{Spread::huge, Spread::tiny}, {Spread::tiny, Spread::huge}, {Spread::tiny, Spread::raw}, {Spread::tiny, Spread::tiny}, {Spread::raw, Spread::raw}};
    int ran = 0;
    for (auto [a, b] : spreads)
        for (int32_t format : cases::formats)
            for (int32_t scaling : cases::scalings)
                for (int32_t d_format : cases::plain_formats) {
                    Case c = combination(ran, 37, 45, 200);
                    c.a.format = format;
                    c.a.scaling = scaling;
                    c.d_format = d_format;
                    c.accumulate = false;
                    c.a_spread = a, c.b_spread = b;
                    Run result = run(device, c, static_cast<uint64_t>(ran++));
                    if (!result.complaint.empty()) FAIL(text(c, ran) << ": " << result.complaint);
                }
    CHECK(ran == 60);
}

// One NaN code, or one scale of 255, must make its row or column of D NaN, and nothing else.
MXQ_EACH_DEVICE("gemm: NaN stays in its row and column") {
    int ran = 0;
    for (auto transposes : testing::all_transposes)
        for (int32_t scaling : cases::scalings)
            for (int64_t k : {1, 40, 128}) {
                Case c{50, 70, k, {}, {}};
                c.transposes = transposes;
                c.a.scaling = scaling;
                c.a_spread = c.b_spread = Spread::nan;
                Run result = run(device, c, static_cast<uint64_t>(ran++));
                CHECK(result.complaint == "");
            }
    CHECK(ran == 24);
}

// A NaN code that one block of a cluster meets concerns the lines of D that another writes. Under ordinary scales codes are decoded
// in a way of its own.
MXQ_EACH_DEVICE("gemm: NaN stays in its row and column where blocks share a contraction") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    for (uint64_t seed = 0; seed < 30; ++seed) {
        Case c{150, 250, 2048, {}, {}};
        c.a_spread = c.b_spread = Spread::nan_codes;
        c.implementation = "wgmma_bf16_sm90";
        Run result = run(device, c, seed);
        INFO("seed " << seed);
        CHECK(result.complaint == "");
        CHECK(result.promise.implementation == "wgmma_bf16_sm90");
    }
}

MXQ_EACH_DEVICE("gemm: every implementation by name gives the bound, and the same bits each time") {
    int ran = 0;
    for (const std::string& name : testing::product_implementations(device)) {
        for (int64_t number = 0; number < combinations; number += 997) {
            Case c = combination(number, 65, 99, 333);
            c.implementation = name.c_str();
            Run first = run(device, c, 5), second = run(device, c, 5);
            CHECK(first.promise.implementation == name);
            CHECK(first.complaint == "");
            CHECK(first.d == second.d);
            ++ran;
        }
    }
    CHECK(ran == (combinations + 996) / 997);
}

TEST_CASE("gemm: the same bits for any number of threads", "[cpu]") {
    int ran = 0;
    for (int64_t number : {0, 3001, 7777, 11111}) {
        Case c = combination(number, 150, 170, 401);
        testing::Bytes first;
        for (int32_t threads : {1, 2, 3}) {
            testing::Device device(MXQ_DEVICE_CPU, std::exchange(*testing::cpu_context(threads).out(), nullptr));
            Run result = run(device, c, 9);
            CHECK(result.complaint == "");
            if (first.empty()) first = result.d;
            CHECK(result.d == first);
            ++ran;
        }
    }
    CHECK(ran == 12);
}
