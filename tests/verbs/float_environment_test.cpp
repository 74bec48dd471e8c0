// A caller that flushes subnormals or rounds in another way gets the same bytes from every verb and format.
#include "verb_bytes.h"

#if defined(__SSE2__)
#include <immintrin.h>

using testing::Bytes;

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
#endif
