// A caller that flushes subnormals or rounds in another way gets the same bytes from every verb and format.
#include "verb_bytes.h"

#if defined(__SSE2__)
#include <immintrin.h>

using testing::Bytes, testing::ok;

namespace {

constexpr unsigned odd_modes[] = {0x8040, 0x2000, 0x4000, 0x6000,
                                  0xE040};  // FTZ and DAZ; round down; up; to zero; all of it

// Runs `calls` in the default mode and in each odd one. Returns what differs, or "".
template <class Calls>
std::string difference_of_modes(const Calls& calls) {
    static testing::Device one_thread(MXQ_DEVICE_CPU, std::exchange(*testing::cpu_context(1).out(), nullptr));
    const unsigned before = _mm_getcsr();
    for (testing::Device* device : {&one_thread, &testing::cpu()}) {
        testing::VerbBytes expected(*device);
        calls(expected);
        if (expected.all.empty()) return "nothing was written";
        for (unsigned odd : odd_modes) {
            testing::VerbBytes got(*device);
            _mm_setcsr(before | odd);
            calls(got);
            _mm_setcsr(before);
            if (auto text = testing::difference(got.all, expected.all); !text.empty())
                return "mode " + std::to_string(odd) + ": " + text;
        }
    }
    return "";
}

}  // namespace

TEST_CASE("floating-point environment: the caller's changes no byte of any verb and format", "[cpu]") {
    const testing::Dims dims{std::nullopt, 48, 64};
    const oracle::Spec mxfp8;
    int ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (uint64_t draw = 0; draw < 4; ++draw) {
            cases::Random random(static_cast<uint64_t>(ran) + 1);
            oracle::Spec spec = base;
            testing::draw_options(spec, random, dims.cols, dims.rows);
            const Bytes x = cases::plain_values(MXQ_FORMAT_F32, cases::all_values[draw], dims.shape().count(),
                                                static_cast<uint64_t>(ran));
            const oracle::Part from = testing::any_codes(mxfp8, dims, MXQ_PART_ROWWISE, static_cast<uint64_t>(ran));
            const oracle::Part rows = testing::any_codes(spec, dims, MXQ_PART_ROWWISE, static_cast<uint64_t>(ran)),
                               columns = testing::any_codes(spec, dims, MXQ_PART_COLUMNWISE, static_cast<uint64_t>(ran) + 1);
            const int32_t output = cases::plain_formats[draw % 3];
            INFO(testing::describe(spec));
            CHECK(difference_of_modes([&](testing::VerbBytes& verbs) { verbs.quantize(spec, MXQ_FORMAT_F32, dims, x); }) ==
                  "");
            CHECK(difference_of_modes([&](testing::VerbBytes& verbs) { verbs.requantize(mxfp8, from, spec, dims); }) == "");
            CHECK(difference_of_modes([&](testing::VerbBytes& verbs) {
                      verbs.dequantize(spec, MXQ_PART_ROWWISE, rows, output, dims);
                  }) == "");
            CHECK(difference_of_modes([&](testing::VerbBytes& verbs) {
                      verbs.dequantize(spec, MXQ_PART_COLUMNWISE, columns, output, dims);
                  }) == "");
            CHECK(difference_of_modes([&](testing::VerbBytes& verbs) {
                      verbs.multiply(spec, rows, spec, rows, dims.rows, dims.rows, dims.cols, output);
                  }) == "");
            ++ran;
        }
    CHECK(ran == 35 * 4);

    // The stored scale of one tensor is made after all threads are done: fl(448 / 3) and its reciprocal are not exact.
    const oracle::Spec tensor = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    CHECK(difference_of_modes([&](testing::VerbBytes& verbs) {
              verbs.quantize(tensor, MXQ_FORMAT_F32, {std::nullopt, 1, 1}, testing::bytes_of({3}));
          }) == "");
}

namespace {

// Returns the statuses and messages of calls that look at numbers which fp32 has below its normal range.
std::string answers(mxq_context* context) {
    constexpr float least = 0x1p-149f;
    const testing::Dims dims{std::nullopt, 1, 16};
    std::string all;
    const auto note = [&](mxq_status status) { all += std::to_string(status) + (status ? mxq_last_error() : "") + std::string("; "); };

    testing::GemmOptions gemm;
    ok(mxq_gemm_options_create(gemm.out()));
    ok(mxq_gemm_options_set_accumulate(gemm, 1));
    note(mxq_gemm_options_set_beta(gemm, least));
    testing::QuantizeOptions quantize;
    ok(mxq_quantize_options_create(quantize.out()));
    note(mxq_quantize_options_set_amax_epsilon(quantize, -least));
    ok(mxq_quantize_options_set_amax_epsilon(quantize, least));

    float values[16] = {3, 2, 1}, scale = 0x1p-127f, amax = -least;
    uint8_t codes[16], scales[4];
    auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), fp8 = testing::make_tensor(testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR), dims, false),
         nvfp4 = testing::make_tensor(MXQ_FORMAT_NVFP4, dims);
    ok(mxq_tensor_set_data(x, values, sizeof values));
    ok(mxq_tensor_set_part(fp8, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
    ok(mxq_tensor_set_part(nvfp4, MXQ_PART_ROWWISE, codes, 8, scales, 1));
    ok(mxq_tensor_set_amax(nvfp4, MXQ_PART_ROWWISE, &amax, sizeof amax));
    note(mxq_quantize(context, quantize, x, nvfp4, nullptr, 0, nullptr));
    ok(mxq_quantize_options_set_amax_epsilon(quantize, 0));
    ok(mxq_quantize_options_set_compute_amax(quantize, 0));
    note(mxq_quantize(context, quantize, x, nvfp4, nullptr, 0, nullptr));
    ok(mxq_tensor_set_quantization_scale(fp8, &scale, sizeof scale));
    note(mxq_quantize(context, nullptr, x, fp8, nullptr, 0, nullptr));
    scale = least;
    note(mxq_quantize(context, nullptr, x, fp8, nullptr, 0, nullptr));
    return all;
}

}  // namespace

TEST_CASE("floating-point environment: a number below fp32's normal range is what it is, whatever the caller's mode", "[cpu]") {
    mxq_context* const context = testing::cpu().context;
    const std::string expected = answers(context);
    for (const char* part : {"a beta of 1.4013e-45", "epsilon is -1.4013e-45", "options sets an amax epsilon", "out.rowwise.amax[0] is -1.4013e-45",
                             "; 0; ", "out.quantization_scale[0] is 1.4013e-45"})
        CHECK(expected.find(part) != std::string::npos);
    const unsigned before = _mm_getcsr();
    for (unsigned odd : odd_modes) {
        _mm_setcsr(before | odd);
        const std::string got = answers(context);
        _mm_setcsr(before);
        CHECK(got == expected);
    }
}

// Under DAZ a beta of 2^-149 was taken for 0: padding of groups became zeros, and D was not added.
TEST_CASE("floating-point environment: the least beta is no beta of 0", "[cpu]") {
    const testing::Dims dims{std::nullopt, 1, 1};
    testing::GemmOptions options;
    ok(mxq_gemm_options_create(options.out()));
    ok(mxq_gemm_options_set_beta(options, 0x1p-149f));
    const int32_t end = 1;
    uint16_t one = 0x3F80;
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, dims), b = testing::make_tensor(MXQ_FORMAT_BF16, {1, 1, 1}), d = testing::make_tensor(MXQ_FORMAT_F32, dims);
    ok(mxq_tensor_set_data(a, &one, sizeof one));
    ok(mxq_tensor_set_data(b, &one, sizeof one));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(a), static_cast<mxq_tensor*>(d)})
        ok(mxq_tensor_set_groups(tensor, &end, sizeof end, MXQ_TYPE_INT32, 1));
    ok(mxq_tensor_set_group_alignment(d, 4, 0));
    const unsigned before = _mm_getcsr();
    for (unsigned odd : {0u, 0x8040u}) {
        float sums[4] = {0x1p127f, 5, 6, 7};
        ok(mxq_tensor_set_data(d, sums, sizeof sums));
        _mm_setcsr(before | odd);
        const mxq_status status = mxq_grouped_gemm(testing::cpu().context, options, a, b, d, nullptr, 0, nullptr);
        _mm_setcsr(before);
        CHECK(status == MXQ_STATUS_OK);
        CHECK(sums[0] == 1 + 0x1p-22f);
        CHECK(sums[3] == 7);
    }
}
#endif
