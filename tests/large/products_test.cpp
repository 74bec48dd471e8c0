// Products with more than 2^31 and 2^32 elements in A, in D, or along the contraction. Operands are small integers, and sums are
// too, so that each implementation has the same bits.
#include "tensors.h"

#include <set>

using large::Scene;
using testing::ok;
using testing::spec_of;
using Numbers = Scene::Numbers;

namespace {

constexpr int32_t row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE;

oracle::Spec powers_of_two(oracle::Spec spec) {
    spec.power_of_two = true;
    return spec;
}
const oracle::Spec bf16 = spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE), mxfp8 = spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
                   mxfp4 = spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),
                   fp8_rows = powers_of_two(spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128)),
                   fp8_tiles = powers_of_two(spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128));
const std::pair<oracle::Spec, oracle::Spec> pairs[] = {{mxfp8, mxfp8}, {bf16, mxfp4}, {bf16, bf16}, {fp8_rows, fp8_tiles}};

// Returns an operand with the scene's rows, plain or quantized by the library.
mxq_tensor* operand(Scene& s, const oracle::Spec& spec, int64_t width, int32_t part, uint64_t seed) {
    if (spec.scaling == MXQ_SCALING_NONE) return s.plain_in(spec.format, width, Numbers::integers, seed);
    mxq_tensor* x = s.plain_in(MXQ_FORMAT_BF16, width, Numbers::integers, seed);
    mxq_tensor* q = s.quantized("operand", spec, width, part, false);
    const testing::Options options(s.device, spec);
    large::convert(s, mxq_quantize, mxq_quantize_query, options, x, q);
    return q;
}

std::string multiply(Scene& s, decltype(&mxq_gemm) run, decltype(&mxq_gemm_query) query, mxq_gemm_options* options, mxq_tensor* a,
                     mxq_tensor* b, mxq_tensor* d) {
    mxq_context* context = s.device.context;
    return large::call(
        s, [&](mxq_plan** plan) { return query(context, options, a, b, d, plan); },
        [&](void* w, uint64_t bytes) { return run(context, options, a, b, d, w, bytes, nullptr); });
}

std::string describe(const oracle::Spec& spec) {
    return spec.scaling == MXQ_SCALING_NONE ? mxq_format_name(spec.format) : testing::describe(spec);
}

// The product of each pair, dense or with groups whose experts are equal.
void check_products(testing::Device& device, int64_t k, int64_t n, int32_t format, bool grouped) {
    for (const auto& [a_spec, b_spec] : pairs) {
        std::set<std::string> names;
        large::check(describe(a_spec) + " by " + describe(b_spec), device, large::rows_for(device), [&, &a_spec = a_spec, &b_spec = b_spec](Scene& s) {
            mxq_tensor* a = operand(s, a_spec, k, row, 1);
            const std::vector<int64_t> ends{s.rows / 2 + 77, s.rows / 2 + 77, s.rows};
            const testing::DeviceEnds on_device(s.device, ends, true);
            mxq_tensor* b = nullptr;
            if (grouped) {
                on_device.set(a, {ends});
                // The middle expert has no rows, and the two others have the same weights.
                b = s.same(b_spec, {3, n, k}, row, 2);
            } else {
                b = s.same(b_spec, {std::nullopt, n, k}, row, 2);
            }
            const auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
            names.insert(multiply(s, grouped ? mxq_grouped_gemm : mxq_gemm, grouped ? mxq_grouped_gemm_query : mxq_gemm_query,
                                  options, a, b, s.plain_out("D", format, n)));
        });
        CHECK(names.count("cpu") == 1);  // what the CPU makes of one period is expected
        CHECK((device.is_cpu() || names.size() > 1));
    }
}

}  // namespace

MXQ_LARGE("products with many elements in A", uint64_t{60} << 30) { check_products(device, large::cols, 64, MXQ_FORMAT_F32, false); }

MXQ_LARGE("products with many elements in D", uint64_t{60} << 30) {
    check_products(device, 128, large::cols, MXQ_FORMAT_BF16, false);
}

MXQ_LARGE("products of groups with many elements in A and in D", uint64_t{60} << 30) {
    check_products(device, large::cols, 64, MXQ_FORMAT_F32, true);
    check_products(device, 128, large::cols, MXQ_FORMAT_BF16, true);
}

// D is the sum over periods, each of which adds the same integers.
MXQ_LARGE("products that are contracted over many rows", uint64_t{60} << 30) {
    constexpr int64_t m = 64, n = large::cols;
    int compared = 0;
    for (const oracle::Spec& spec : {mxfp8, bf16}) {
        const auto product = [&](testing::Device& on, int64_t rows) {
            Scene s(on, rows);
            mxq_tensor *a = operand(s, spec, m, column, 1), *b = operand(s, spec, n, column, 2);
            auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n});
            const auto memory = s.memory(m * n * 4);
            ok(mxq_tensor_set_data(d, memory->data, memory->bytes));
            multiply(s, mxq_gemm, mxq_gemm_query, testing::exact_gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, 0), a, b, d);
            return oracle::load(MXQ_FORMAT_F32, memory->read().data(), m * n);
        };
        const oracle::Floats one = product(testing::cpu(), large::period);
        for (const int64_t rows : large::rows_for(device)) {
            const oracle::Floats all = product(device, rows);
            size_t wrong = 0;
            for (size_t i = 0; i < all.size(); ++i) wrong += all[i] != one[i] * static_cast<float>(rows / large::period);
            CAPTURE(describe(spec), rows);
            CHECK(wrong == 0);
            ++compared;
        }
    }
    CHECK(compared == 2 * static_cast<int>(large::rows_for(device).size()));
}
