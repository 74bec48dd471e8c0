// weights_sm90 and weights_fp8_sm90 by their names: rows, lines and contractions of many sizes, dense and in groups. Tiles of 16 to
// 128 tokens end anywhere, CTAs take several tiles or share the contraction of one.
#include "../machine.h"
#include "gemm_operands.h"

using namespace products;
using testing::ok;

namespace {

// One product, drawn at random.
struct Product {
    oracle::Spec a, b;
    int64_t groups, m, n, k;  // no groups: 0
    int32_t d_format;
    bool accumulate;
    int32_t sm_count;
    bool swizzled = false;  // the scales of B
    const char* name = "weights_sm90";

    std::string text() const {
        return products::text(a, b) + ", " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + ", groups " +
               std::to_string(groups) + ", D " + std::to_string(d_format) + ", accumulate " + std::to_string(accumulate) + ", SMs " +
               std::to_string(sm_count) + ", swizzled " + std::to_string(swizzled);
    }
};

Product draw_product(cases::Random& random, const std::vector<oracle::Spec>& activations, const std::vector<oracle::Spec>& weights) {
    const int64_t rows[] = {1, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200, 300}, widths[] = {1, 8, 64, 128, 130, 257, 1000},
                  depths[] = {16, 64, 128, 144, 256, 272, 512, 784, 1024, 2064};
    Product p;
    p.a = draw(activations[static_cast<size_t>(random.below(static_cast<int64_t>(activations.size())))], random);
    p.b = draw(weights[static_cast<size_t>(random.below(static_cast<int64_t>(weights.size())))], random);
    p.groups = random.below(2) ? 1 + random.below(6) : 0;
    p.m = rows[random.below(13)], p.n = widths[random.below(7)], p.k = depths[random.below(10)];
    p.d_format = cases::plain_formats[random.below(3)];
    p.accumulate = p.d_format == MXQ_FORMAT_F32 && random.below(3) == 0;
    p.sm_count = random.below(4) == 0 ? 1 + static_cast<int32_t>(random.below(20)) : 0;
    return p;
}

// Draws one whose lines of codes are multiples of 16 bytes, and whose compact scales are whole words.
Product draw_fp4_product(cases::Random& random, const std::vector<oracle::Spec>& activations, const std::vector<oracle::Spec>& weights) {
    const int64_t depths[] = {32, 64, 128, 160, 256, 288, 512, 800, 1024, 2080};
    Product p = draw_product(random, activations, weights);
    p.k = depths[random.below(10)];
    if (!is_plain(p.a)) p.b = weights.front();  // MX goes with MX alone
    const int64_t block = testing::is_nvfp4(p.b) ? 16 : 32;
    p.swizzled = p.n * (p.k / block) % 4 != 0 || random.below(2);
    return p;
}

// Draws one of FP8 or MXFP8 activations with MXFP4 weights.
Product draw_fp8_product(cases::Random& random, const std::vector<oracle::Spec>& activations, const std::vector<oracle::Spec>& weights) {
    Product p = draw_fp4_product(random, activations, weights);
    p.name = "weights_fp8_sm90";
    if (p.a.scaling == MXQ_SCALING_TENSOR) p.groups = 0;  // groups have scales of their own
    return p;
}

// Returns what a product by this name is wrong about, and its implementation.
struct Result {
    std::string complaint;
    oracle::Promise promise;
};

Result check_product(testing::Device& device, const Product& p, cases::Random& random) {
    oracle::Ends all = p.groups ? testing::draw_ends(random, p.m, p.groups) : oracle::Ends{p.m};
    const testing::DeviceEnds ends(device, all);
    const size_t offset = is_plain(p.a) && random.below(2) ? 16 / static_cast<size_t>(oracle::plain_bytes(p.a.format)) : 0;
    Operand a = make_operand(device, p.a, std::nullopt, p.m, p.k, false, false, random, offset);
    Operand b = make_operand(device, p.b, p.groups ? std::optional(p.groups) : std::nullopt, p.n, p.k, false, p.swizzled, random, 0);
    if (p.groups) ends.set(a.tensor, {all, 1});
    const auto previous = cases::values(cases::Values::normal, static_cast<size_t>(p.m * p.n), static_cast<uint64_t>(p.k));
    auto options = testing::exact_gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, p.accumulate, p.name);
    ok(mxq_gemm_options_set_exact_products(options, 0));
    ok(mxq_gemm_options_set_sm_count(options, p.sm_count));
    const int64_t gap = random.below(2) * 8;
    testing::Output d(device, p.d_format, {std::nullopt, p.m, p.n}, gap, p.accumulate ? &previous : nullptr),
        again(device, p.d_format, {std::nullopt, p.m, p.n}, gap, p.accumulate ? &previous : nullptr);
    const auto verb = p.groups ? mxq_grouped_gemm : mxq_gemm;
    const auto query = p.groups ? mxq_grouped_gemm_query : mxq_gemm_query;
    Result result;
    result.promise = testing::run_product(device, verb, query, options, a.tensor, b.tensor, d.tensor);
    testing::run_product(device, verb, query, options, a.tensor, b.tensor, again.tensor);
    if (d.bytes() != again.bytes()) result.complaint = "other bits the second time";

    std::vector<oracle::Element> expected;
    std::vector<bool> written(static_cast<size_t>(p.m), false);
    for (size_t g = 0; g < all.size(); ++g) {
        const int64_t rows = oracle::group_rows(all, g), first = all[g] - rows;
        const auto one = oracle::product(a.lines.data() + first * p.k, p.k, b.lines.data() + static_cast<int64_t>(g) * p.n * p.k, p.k, rows, p.n,
                                         p.k, p.accumulate ? previous.data() + first * p.n : nullptr);
        expected.insert(expected.end(), one.begin(), one.end());
        std::fill(written.begin() + first, written.begin() + all[g], true);
    }
    const oracle::Floats values = d.values(&written);
    oracle::Floats of_groups;
    for (size_t i = 0; i < written.size(); ++i)
        if (written[i])
            of_groups.insert(of_groups.end(), values.begin() + static_cast<int64_t>(i) * p.n, values.begin() + static_cast<int64_t>(i + 1) * p.n);
    if (result.complaint.empty()) result.complaint = check(result.promise, {p.a, p.b}, expected, of_groups, p.d_format, p.k, p.accumulate);
    return result;
}

void check_products(testing::Device& device, int count, uint64_t seed, const std::vector<oracle::Spec>& activations,
                    const std::vector<oracle::Spec>& weights, int32_t bound, decltype(draw_product)* draw_one = draw_product) {
    for (int i = 0; i < count; ++i) {
        cases::Random random(seed + static_cast<uint64_t>(i));
        const Product p = draw_one(random, activations, weights);
        const Result result = check_product(device, p, random);
        INFO(p.text());
        CHECK(result.complaint == "");
        CHECK(result.promise.implementation == p.name);
        CHECK(result.promise.bound == bound);
    }
}

}  // namespace

MXQ_EACH_DEVICE("weights: FP8 weights with scales of 128 keep the bound of exact products") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    const auto fp8 = [](int32_t scaling) { return testing::spec_of(MXQ_FORMAT_FP8_E4M3, scaling); };
    check_products(device, 160, 61000,
                   {plain, plain_spec(MXQ_FORMAT_F16)}, {fp8(MXQ_SCALING_128X128), fp8(MXQ_SCALING_1X128)}, MXQ_BOUND_EXACT_PRODUCTS);
}

MXQ_EACH_DEVICE("weights: FP4 weights with scales of blocks keep the bound of exact products") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    const oracle::Spec mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
                       mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    check_products(device, 120, 63000, {plain, plain, plain_spec(MXQ_FORMAT_F16), mxfp8}, {mxfp4, nvfp4}, MXQ_BOUND_EXACT_PRODUCTS,
                   draw_fp4_product);
}

MXQ_EACH_DEVICE("weights: FP8 activations with MXFP4 weights keep the bound of FP8 tensor cores") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    const oracle::Spec mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    std::vector<oracle::Spec> activations{testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32)};
    for (int32_t scaling : {MXQ_SCALING_1X128, MXQ_SCALING_ROW, MXQ_SCALING_TENSOR})
        activations.push_back(testing::spec_of(MXQ_FORMAT_FP8_E4M3, scaling));
    check_products(device, 240, 65000, activations, {mxfp4}, MXQ_BOUND_FP8_TENSOR_CORES, draw_fp8_product);
}

// Tiles of 256 lines and 128 tokens, where an SM gets many: lines end in either half.
MXQ_EACH_DEVICE("weights: many tiles of FP4 weights") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    const oracle::Spec mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    for (const oracle::Spec& weights : {mxfp4, nvfp4})
        for (int64_t groups : {0, 6})
            for (int64_t n : {900, 1000}) {
                const int64_t m = groups ? 330 : 600;
                cases::Random random(static_cast<uint64_t>(64000 + n + groups));
                const Product p{plain, weights, groups, m, n, 288, MXQ_FORMAT_BF16, false, 1, groups != 0};
                const Result result = check_product(device, p, random);
                INFO(p.text());
                CHECK(result.complaint == "");
                CHECK(result.promise.implementation == p.name);
            }
}

// The CTAs of a cluster share the contraction: NaN that one meets concerns the lines that another writes.
MXQ_EACH_DEVICE("weights: NaN stays in its row and column where CTAs share a contraction") {
    if (!testing::Machine(device).is_hopper()) MXQ_SKIP("needs a device of compute capability 9.0");
    const oracle::Spec fp8 = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128);
    for (int64_t m : {16, 64, 128, 150})
        for (uint64_t seed = 0; seed < 6; ++seed) {
            cases::Random random(62000 + seed);
            const Result result = check_product(device, {plain, fp8, 0, m, 250, 2048, MXQ_FORMAT_BF16, false, 0}, random);
            INFO(m << " rows, seed " << seed);
            CHECK(result.complaint == "");
        }
}
