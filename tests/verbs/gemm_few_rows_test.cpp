// mxq_gemm and mxq_grouped_gemm keep the bound for few rows, which have kernels of their own on the CPU, and for rows that the CPU
// cuts into few.
#include "gemm_operands.h"

using namespace products;
using testing::Buffer;
using testing::ok;

// The CPU has other kernels for products of few rows. Contractions end in the middle of a block, of a byte's codes and of what
// a kernel takes at a time, and are longer than what it keeps of A.
TEST_CASE("gemm formats: the bound for 1 to 33 rows of plain numbers and every format", "[cpu]") {
    const int64_t depths[] = {1, 15, 31, 33, 100, 144, 257, 1056}, widths[] = {1, 3, 6, 37, 66};
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int64_t ran = 0;
    for (const oracle::Spec& base : weights)
        for (int32_t activations : cases::plain_formats)
            for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33}) {
                cases::Random random(static_cast<uint64_t>(ran) + 7000);
                const oracle::Spec spec = draw(base, random);
                const bool is_long = random.below(24) == 0;
                const int64_t k = is_long ? 4100 + random.below(300) : depths[random.below(8)],
                              n = is_long ? 9 : widths[random.below(5)];
                const bool swizzled = draw_swizzled(spec, random);
                const int32_t d_format = cases::plain_formats[random.below(3)];
                Operand a = make_operand(testing::cpu(), plain_spec(activations), std::nullopt, m, k, false, false, random, random.below(2));
                Operand b = make_operand(testing::cpu(), spec, std::nullopt, n, k, false, swizzled, random, random.below(2));
                testing::Output d(testing::cpu(), d_format, {std::nullopt, m, n}, random.below(2) * 3);
                auto promise = testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
                auto expected = oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k, nullptr);
                ++ran;
                if (auto complaint = check(promise, {plain_spec(activations), spec}, expected, d.values(), d_format, k, false); !complaint.empty())
                    FAIL(text(plain_spec(activations), spec) << ", " << m << "x" << n << "x" << k << ", swizzled " << swizzled << ", D " << d_format << ": " << complaint);
            }
    CHECK(ran == (35 + 3) * 3 * 20);
}

namespace {

// Weights, and rows of BF16 that products take some of.
struct RowsAndWeights {
    RowsAndWeights(const oracle::Spec& spec, std::optional<int64_t> experts, int64_t m, int64_t n, int64_t k, cases::Random& random)
        : n(n), k(k), values(draw_values(random, static_cast<size_t>(m * k))), rows(testing::cpu(), oracle::store(MXQ_FORMAT_BF16, values)),
          b(make_operand(testing::cpu(), spec, experts, n, k, false, draw_swizzled(spec, random), random, 0)) {}

    testing::Tensor tensor_of(int64_t first, int64_t count) const {
        testing::Tensor a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, count, k});
        ok(mxq_tensor_set_data(a, static_cast<uint8_t*>(rows.data()) + first * k * 2, static_cast<uint64_t>(count * k * 2)));
        return a;
    }

    // Returns the F32 bytes of rows [first, first + count) times the weights of one matrix.
    oracle::Bytes product(int64_t first, int64_t count) const {
        testing::Output d(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, count, n}, 0);
        testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, tensor_of(first, count), b.tensor, d.tensor);
        return d.bytes();
    }

    int64_t n, k;
    oracle::Floats values;
    Buffer rows;
    Operand b;
};

void append(oracle::Bytes& to, const oracle::Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

}  // namespace

// Products of more than 32 rows are cut where that is faster, into passes of up to 16 rows, two at a time.
TEST_CASE("gemm formats: rows of a product that is cut have the bits of products of few rows", "[cpu]") {
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int ran = 0, cut = 0;
    for (const oracle::Spec& base : weights)
        for (int64_t m : {33, 64, 65, 97}) {
            cases::Random random(static_cast<uint64_t>(++ran) + 9900);
            const oracle::Spec spec = draw(base, random);
            const int64_t n = 5 + random.below(30), k = 512 + 16 * random.below(20);
            const RowsAndWeights of(spec, std::nullopt, m, n, k, random);
            const oracle::Bytes all = of.product(0, m);
            INFO(testing::describe(spec) << ", " << m << "x" << n << "x" << k);
            const auto a = oracle::load(MXQ_FORMAT_BF16, oracle::store(MXQ_FORMAT_BF16, of.values).data(), of.values.size());
            CHECK(check({"cpu", MXQ_BOUND_EXACT_PRODUCTS}, {plain, spec}, oracle::product(a.data(), k, of.b.lines.data(), k, m, n, k),
                        oracle::load(MXQ_FORMAT_F32, all.data(), static_cast<size_t>(m * n)), MXQ_FORMAT_F32, k, false) == "");

            const bool is_fast = is_plain(spec) ? spec.format == MXQ_FORMAT_BF16 : spec.format == MXQ_FORMAT_MXFP4 || !oracle::is_mx(spec.format);
            if (m > 64 && !is_fast) continue;
            oracle::Bytes parts;
            const int64_t count = 2 * oracle::ceil_div(m, oracle::ceil_div(m, 16));
            for (int64_t first = 0; first < m; first += count) append(parts, of.product(first, std::min(count, m - first)));
            CHECK(testing::difference(all, parts) == "");
            ++cut;
        }
    CHECK(ran == (35 + 3) * 4);
    CHECK(cut == (35 + 3) * 2 + (5 + 2 + 8 + 1) * 2);
}

TEST_CASE("grouped gemm formats: the bound for groups whose rows are cut", "[cpu]") {
    const oracle::Ends ends{40, 40, 73, 90, 187, 187};
    const int64_t m = ends.back(), count = static_cast<int64_t>(ends.size());
    int ran = 0;
    for (const oracle::Spec& base : testing::all_formats()) {
        cases::Random random(static_cast<uint64_t>(++ran) + 9950);
        oracle::Spec spec = draw(base, random);
        spec.per_matrix = false;
        const int64_t n = 5 + random.below(30), k = 512 + 16 * random.below(20);
        const RowsAndWeights of(spec, count, m, n, k, random);
        const testing::DeviceEnds of_groups(testing::cpu(), ends, random.below(2));
        const testing::Tensor a = of.tensor_of(0, m);
        of_groups.set(a, {ends, 1});
        testing::Output d(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
        testing::run_product(testing::cpu(), mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, a, of.b.tensor, d.tensor);
        const auto rows = oracle::load(MXQ_FORMAT_BF16, oracle::store(MXQ_FORMAT_BF16, of.values).data(), of.values.size());
        std::vector<oracle::Element> expected;
        for (size_t g = 0; g < ends.size(); ++g) {
            const int64_t of_group = oracle::group_rows(ends, g), first = ends[g] - of_group;
            const auto one = oracle::product(rows.data() + first * k, k, of.b.lines.data() + static_cast<int64_t>(g) * n * k, k, of_group, n, k);
            expected.insert(expected.end(), one.begin(), one.end());
        }
        INFO(testing::describe(spec) << ", " << n << "x" << k);
        CHECK(check({"cpu", MXQ_BOUND_EXACT_PRODUCTS}, {plain, spec}, expected, d.values(), MXQ_FORMAT_F32, k, false) == "");
    }
    CHECK(ran == 35);
}
