// The numbers above NVFP4's block scales and those of delayed FP8: computed unless they are said to be given, and on the CPU
// refused where they cannot be.
#include "../formats.h"
#include "says.h"

#include <limits>

using testing::Buffer;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
const oracle::Spec nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
const oracle::Spec fp8 = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
const float unset = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

testing::QuantizeOptions amax_is_given() {
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_compute_amax(options, 0));
    return options;
}

// Two rows of a tensor, or two of them, on the CPU.
struct Nvfp4 {
    explicit Nvfp4(testing::Dims dims) : q(testing::make_tensor(nvfp4, dims, false)), plain(testing::make_tensor(MXQ_FORMAT_F32, dims)) {
        ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, 16, scales, 2));
        ok(mxq_tensor_set_amax(q, MXQ_PART_ROWWISE, amax, sizeof amax));
        ok(mxq_tensor_set_data(plain, values, sizeof values));
    }
    mxq_status quantize(mxq_quantize_options* options) { return mxq_quantize(context, options, plain, q, nullptr, 0, nullptr); }
    mxq_status dequantize() { return mxq_dequantize(context, nullptr, q, plain, nullptr, 0, nullptr); }

    mxq_context* context = testing::cpu().context;
    float values[32] = {6, -3}, amax[2] = {};
    uint8_t codes[16] = {}, scales[2] = {};
    testing::Tensor q, plain;
};

}  // namespace

// Memory that nobody wrote is what a forgotten option leaves.
MXQ_EACH_DEVICE("amax: quantize and requantize compute that of NVFP4 by default, and read it where it is given") {
    const testing::Dims dims{std::nullopt, 1, 16};
    Buffer x(device, testing::bytes_of(oracle::Floats(16, 6.0f)));
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), mx = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, dims);
    ok(mxq_tensor_set_data(in, x.data(), x.bytes()));
    testing::PartBuffers mx_part(device, mx, MXQ_PART_ROWWISE);
    testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, mx);
    int ran = 0;
    for (const bool requantizes : {false, true})
        for (const float before : {0.0f, unset, 96.0f}) {
            const auto given = amax_is_given();
            for (mxq_quantize_options* options : {static_cast<mxq_quantize_options*>(nullptr), static_cast<mxq_quantize_options*>(given)}) {
                if (options && before != 96.0f) continue;
                Buffer amax(device, testing::bytes_of({before}));
                auto out = testing::make_tensor(nvfp4, dims, false);
                testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
                ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, static_cast<float*>(amax.data()), 4));
                if (requantizes) testing::run(device, mxq_requantize, mxq_requantize_query, options, mx, out);
                else testing::run(device, mxq_quantize, mxq_quantize_query, options, in, out);
                CAPTURE(requantizes, before, options != nullptr);
                CHECK(part.codes->read() == testing::Bytes(8, 0x77));
                CHECK(amax.read() == testing::bytes_of({options ? 96.0f : 6.0f}));
                CHECK(part.scales->read() == testing::Bytes(1, options ? 0x5E : 0x7E));  // 448 of 6, 28 of 96
                ++ran;
            }
        }
    CHECK(ran == 8);
}

TEST_CASE("amax: the option means nothing to FP8 when it says that an amax is given, and nothing to mxq_amax", "[cpu]") {
    const testing::Dims dims{std::nullopt, 2, 16};
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_tensor(fp8, dims, false);
    const auto options = amax_is_given();
    MXQ_REFUSED(mxq_quantize_query(testing::cpu().context, options, in, out, nullptr), invalid, "options sets a given amax", "nvfp4");
    Nvfp4 f(dims);
    ok(mxq_amax(f.context, options, f.plain, f.q, nullptr, 0, nullptr));
    CHECK(f.amax[0] == 6);
    ok(mxq_quantize_options_set_compute_amax(options, 1));
    CHECK(mxq_quantize_query(testing::cpu().context, options, in, out, nullptr) == MXQ_STATUS_OK);
}

TEST_CASE("amax: a given one that is NaN or negative is refused on the CPU, of every verb that reads it", "[cpu]") {
    int ran = 0;
    for (const float bad : {unset, -1.0f, -infinity}) {
        Nvfp4 f({std::nullopt, 2, 16});
        f.amax[0] = bad;
        MXQ_REFUSED(f.quantize(amax_is_given()), invalid, "out.rowwise.amax[0] is", "expected 0 or more");
        CHECK(mxq_quantize_query(f.context, amax_is_given(), f.plain, f.q, nullptr) == MXQ_STATUS_OK);  // reads no memory
        CHECK(std::count(f.codes, f.codes + 16, 0) == 16);
        MXQ_REFUSED(f.dequantize(), invalid, "in.rowwise.amax[0] is");
        CHECK(f.values[0] == 6);

        Nvfp4 good({std::nullopt, 2, 16});
        ok(good.quantize(nullptr));
        MXQ_REFUSED(mxq_requantize(f.context, nullptr, f.q, good.q, nullptr, 0, nullptr), invalid, "in.rowwise.amax[0]");
        float sums[4];
        auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 2});
        ok(mxq_tensor_set_data(d, sums, sizeof sums));
        MXQ_REFUSED(mxq_gemm(f.context, nullptr, f.q, good.q, d, nullptr, 0, nullptr), invalid, "a.rowwise.amax[0]");
        MXQ_REFUSED(mxq_gemm(f.context, nullptr, good.q, f.q, d, nullptr, 0, nullptr), invalid, "b.rowwise.amax[0]");
        ok(mxq_tensor_set_amax(f.q, MXQ_PART_ROWWISE, nullptr, 0));
        ok(mxq_tensor_set_decode_scale(f.q, MXQ_PART_ROWWISE, f.amax, 4));
        MXQ_REFUSED(f.dequantize(), invalid, "in.rowwise.decode_scale[0]");

        auto q = testing::make_tensor(fp8, {std::nullopt, 2, 16}, false);
        uint8_t codes[32] = {};
        float scale = 0;
        ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 4));
        ok(mxq_tensor_set_quantization_scale(q, &bad, 4));
        MXQ_REFUSED(mxq_quantize(f.context, nullptr, good.plain, q, nullptr, 0, nullptr), invalid, "out.quantization_scale[0]");
        ++ran;
    }
    CHECK(ran == 3);
}

TEST_CASE("amax: of experts each is checked, of groups those that have rows", "[cpu]") {
    Nvfp4 experts({2, 1, 16});
    ok(mxq_tensor_set_scope(experts.q, MXQ_SCOPE_EXPERT));
    experts.amax[0] = 6, experts.amax[1] = unset;
    MXQ_REFUSED(experts.quantize(amax_is_given()), invalid, "out.rowwise.amax[1] is");

    Nvfp4 groups({std::nullopt, 2, 16});
    ok(mxq_tensor_set_scope(groups.q, MXQ_SCOPE_EXPERT));
    for (const auto& [ends, empty] : {std::pair{std::array{0, 2}, 0}, {std::array{2, 2}, 1}}) {
        ok(testing::set_ends(groups.q, ends.data(), MXQ_TYPE_INT32, 2));
        groups.amax[empty] = unset, groups.amax[1 - empty] = 6;
        CHECK(groups.quantize(amax_is_given()) == MXQ_STATUS_OK);
        CHECK(groups.dequantize() == MXQ_STATUS_OK);
        groups.amax[1 - empty] = -6;
        MXQ_REFUSED(groups.quantize(amax_is_given()), invalid, "out.rowwise.amax[" + std::to_string(1 - empty) + "] is -6");
    }
}
