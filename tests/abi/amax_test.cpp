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

TEST_CASE("amax: FP8 refuses the option, whatever it says, and mxq_amax takes it, whatever it says", "[cpu]") {
    const testing::Dims dims{std::nullopt, 2, 16};
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_tensor(fp8, dims, false);
    const auto options = amax_is_given();
    MXQ_REFUSED(mxq_quantize_query(testing::cpu().context, options, in, out, nullptr), invalid, "options sets a given amax", "nvfp4");
    Nvfp4 f(dims);
    ok(mxq_amax(f.context, options, f.plain, f.q, nullptr, 0, nullptr));
    CHECK(f.amax[0] == 6);
    ok(mxq_quantize_options_set_compute_amax(options, 1));  // its default, which FP8 has not either
    MXQ_REFUSED(mxq_quantize_query(testing::cpu().context, options, in, out, nullptr), invalid, "options sets a computed amax", "nvfp4");
    CHECK(mxq_quantize_query(f.context, options, f.plain, f.q, nullptr) == MXQ_STATUS_OK);
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

MXQ_EACH_DEVICE("amax: a tensor of 0 experts may leave it out, whatever reads or writes it") {
    const testing::Dims dims{0, 32, 64};
    auto x = testing::make_tensor(MXQ_FORMAT_BF16, dims), q = testing::make_tensor(nvfp4, dims, false), to = testing::make_tensor(nvfp4, dims, false),
         mx = testing::make_quantized({}, dims, false), target = testing::make_tensor(fp8, dims, false);
    for (const auto* tensor : {&q, &to, &mx})
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) ok(mxq_tensor_set_part(*tensor, part, nullptr, 0, nullptr, 0));
    Buffer scale(device, 4);
    ok(mxq_tensor_set_part(target, MXQ_PART_ROWWISE, nullptr, 0, scale.data(), 4));
    auto* const context = device.context;
    const auto given = amax_is_given();
    for (mxq_quantize_options* options : {static_cast<mxq_quantize_options*>(nullptr), static_cast<mxq_quantize_options*>(given)}) {
        CHECK(mxq_quantize(context, options, x, q, nullptr, 0, nullptr) == MXQ_STATUS_OK);
        CHECK(mxq_requantize(context, options, mx, q, nullptr, 0, nullptr) == MXQ_STATUS_OK);
        CHECK(mxq_requantize(context, options, q, to, nullptr, 0, nullptr) == MXQ_STATUS_OK);
    }
    CHECK(mxq_dequantize(context, nullptr, q, x, nullptr, 0, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_amax(context, nullptr, x, q, nullptr, 0, nullptr) == MXQ_STATUS_OK);
    testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, q, target);
    CHECK(scale.read() == testing::bytes_of({1.0f}));

    // One that is given is written, also beside one that is not.
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        Buffer amax(device, testing::bytes_of({7.0f}));
        auto one = testing::make_tensor(nvfp4, dims, false);
        for (int32_t each : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) ok(mxq_tensor_set_part(one, each, nullptr, 0, nullptr, 0));
        ok(mxq_tensor_set_amax(one, part, static_cast<float*>(amax.data()), 4));
        testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, x, one);
        CHECK(amax.read() == testing::bytes_of({0.0f}));
    }

    // B of a product with 0 groups.
    auto a = testing::make_tensor(nvfp4, {std::nullopt, 8, 64}, false), d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8, 32});
    ok(mxq_tensor_set_groups(a, nullptr, 0, MXQ_TYPE_INT32, 0));
    Buffer ends(device, 4), a_amax(device, testing::bytes_of({6.0f})), sums(device, 8 * 32 * 4);
    ok(mxq_tensor_set_groups(a, ends.data(), 0, MXQ_TYPE_INT32, 0));
    testing::PartBuffers part(device, a, MXQ_PART_ROWWISE);
    ok(mxq_tensor_set_amax(a, MXQ_PART_ROWWISE, static_cast<float*>(a_amax.data()), 4));
    ok(mxq_tensor_set_data(d, sums.data(), sums.bytes()));
    testing::Plan plan;
    ok(mxq_grouped_gemm_query(context, nullptr, a, q, d, plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    CHECK(mxq_grouped_gemm(context, nullptr, a, q, d, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr) == MXQ_STATUS_OK);
    CHECK(sums.untouched());

    // A tensor of no rows is not one of no experts: products of depth 0 decode it.
    auto rows = testing::make_tensor(nvfp4, {std::nullopt, 0, 64}, false);
    ok(mxq_tensor_set_part(rows, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
    auto none = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 0, 64});
    MXQ_REFUSED(mxq_quantize(context, nullptr, none, rows, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER, "out.rowwise.amax is NULL");
}
