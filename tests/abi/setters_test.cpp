// Setters may be called in any order, a part that is cleared takes what was set for it with it, and of two parts a verb
// reads the one that the header names.
#include "../formats.h"
#include "says.h"

#include <sched.h>

using testing::Buffer;
using testing::ok;

namespace {

float* numbers(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }

}  // namespace

MXQ_EACH_DEVICE("setters: data and padded groups in either order") {
    for (bool data_first : {true, false}) {
        testing::DeviceEnds ends(device, {1, 4});
        Buffer from(device, testing::Bytes(4 * 4, 1)), to(device, 8 * 4), starts(device, 8), padded_ends(device, 8);
        auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 1}),
             out = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 1});
        ok(mxq_tensor_set_data(in, from.data(), from.bytes()));
        if (data_first) ok(mxq_tensor_set_data(out, to.data(), to.bytes()));
        ok(mxq_tensor_set_padded_groups(out, MXQ_PART_ROWWISE, starts.data(), starts.bytes(), padded_ends.data(),
                                        padded_ends.bytes()));
        if (!data_first) ok(mxq_tensor_set_data(out, to.data(), to.bytes()));
        ends.set(in, {}), ends.set(out, {{}, 4});
        testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, out);
        CHECK(starts.read() == testing::Bytes{0, 0, 0, 0, 4, 0, 0, 0});
        CHECK(padded_ends.read() == testing::Bytes{4, 0, 0, 0, 8, 0, 0, 0});
    }
}

MXQ_EACH_DEVICE("setters: a part and its amax in either order, and clear_part clears both") {
    const testing::Dims dims{std::nullopt, 1, 16};
    Buffer x(device, testing::bytes_of(oracle::Floats(16, 6.0f))), amax(device, testing::bytes_of({6.0f}));
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims);
    ok(mxq_tensor_set_data(in, x.data(), x.bytes()));
    for (bool amax_first : {true, false}) {
        auto out = testing::make_tensor(MXQ_FORMAT_NVFP4, dims);
        if (amax_first) ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers(amax), amax.bytes()));
        testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
        if (!amax_first) ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers(amax), amax.bytes()));
        CHECK(mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK);
        CHECK(part.codes->read() == testing::Bytes(8, 0x77));

        ok(mxq_tensor_clear_part(out, MXQ_PART_ROWWISE));
        MXQ_REFUSED(mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER,
                    "out declares no part");
        part.set(out, MXQ_PART_ROWWISE);
        MXQ_REFUSED(mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER,
                    "out.rowwise.amax is NULL");
    }
    // A decode scale goes with its part too, so that an amax may take its place.
    auto out = testing::make_tensor(MXQ_FORMAT_NVFP4, dims);
    ok(mxq_tensor_set_decode_scale(out, MXQ_PART_ROWWISE, numbers(amax), amax.bytes()));
    ok(mxq_tensor_clear_part(out, MXQ_PART_ROWWISE));
    ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers(amax), amax.bytes()));
    testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
    CHECK(mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK);
}

// The rowwise part holds ones and the columnwise one twos, which quantize would never make.
MXQ_EACH_DEVICE("setters: of two parts, dequantize and requantize read the rowwise one, products that of their transposes") {
    const testing::Dims dims{std::nullopt, 32, 32};
    const oracle::Spec spec;
    const auto stored = [&](float value, int32_t part) {
        return oracle::quantize(spec, oracle::Floats(32 * 32, value), dims.shape(), part, false);
    };
    auto q = testing::make_tensor(spec, dims, false), again = testing::make_tensor(spec, dims, false),
         values = testing::make_tensor(MXQ_FORMAT_F32, dims);
    testing::InputPart row(device, q, spec, MXQ_PART_ROWWISE, stored(1, MXQ_PART_ROWWISE)),
        column(device, q, spec, MXQ_PART_COLUMNWISE, stored(2, MXQ_PART_COLUMNWISE));
    Buffer data(device, 32 * 32 * 4);
    ok(mxq_tensor_set_data(values, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, q, values);
    CHECK(data.read() == testing::bytes_of(oracle::Floats(32 * 32, 1.0f)));
    testing::OutputPart requantized(device, again, spec, MXQ_PART_COLUMNWISE, false);
    testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, q, again);
    CHECK(requantized.compare(testing::all_written(stored(1, MXQ_PART_COLUMNWISE)), spec) == "");

    int ran = 0;
    for (auto [a, b, sum] : {std::tuple{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 32.0f},
                             {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N, 64.0f},
                             {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, 128.0f},
                             {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_T, 64.0f}}) {
        testing::Plan plan;
        auto options = testing::gemm_options(a, b);
        ok(mxq_gemm_query(device.context, options, q, q, values, plan.out()));
        Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        ok(mxq_gemm(device.context, options, q, q, values, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(),
                    nullptr));
        CHECK(data.read() == testing::bytes_of(oracle::Floats(32 * 32, sum)));
        ++ran;
    }
    CHECK(ran == 4);
}

// Checks that of two setters that contradict each other the later one is refused, in either order, and leaves the tensor as it
// was.
TEST_CASE("setters: a scaling and a layout or an alignment that it cannot have, in either order", "[cpu]") {
    const auto fp8 = [] { return testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 256, 256}); };
    const auto mx = [] { return testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 256, 256}); };
    constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED;
    const auto scaling_of = [](const mxq_tensor* tensor) {
        int32_t scaling = 0;
        ok(mxq_tensor_get_scaling(tensor, &scaling));
        return scaling;
    };
    const auto columnwise_of = [](const mxq_tensor* tensor) {
        int32_t columnwise = 0;
        ok(mxq_tensor_get_group_alignment(tensor, nullptr, &columnwise));
        return columnwise;
    };
    for (int32_t scaling : {MXQ_SCALING_ROW, MXQ_SCALING_TENSOR}) {
        auto first = fp8(), last = fp8();
        ok(mxq_tensor_set_scaling(first, scaling));
        MXQ_REFUSED(mxq_tensor_set_swizzled(first, 1), unsupported, "mxq_tensor_set_swizzled: tensor with", "compact");
        int32_t swizzled = -1;
        ok(mxq_tensor_get_swizzled(first, &swizzled));
        CHECK(swizzled == 0);
        ok(mxq_tensor_set_swizzled(last, 1));
        MXQ_REFUSED(mxq_tensor_set_scaling(last, scaling), unsupported, "mxq_tensor_set_scaling: tensor with", "compact");
        CHECK(scaling_of(last) == MXQ_SCALING_TENSOR);  // the default still
        ok(mxq_tensor_set_scaling(last, MXQ_SCALING_1X128));
        CHECK(mxq_tensor_required_bytes(last, MXQ_PART_ROWWISE, nullptr, nullptr) == MXQ_STATUS_OK);
        ok(mxq_tensor_set_swizzled(last, 0));
        CHECK(mxq_tensor_set_scaling(last, scaling) == MXQ_STATUS_OK);
    }
    auto first = mx(), last = mx(), any = fp8(), nvfp4 = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 256, 256});
    MXQ_REFUSED(mxq_tensor_set_group_alignment(first, 64, 16), invalid, "columnwise group alignment 16", "multiple of 32", "0 for the default");
    ok(mxq_tensor_set_group_alignment(first, 64, 32));
    MXQ_REFUSED(mxq_tensor_set_scaling(first, MXQ_SCALING_128X128), invalid, "columnwise group alignment 32", "multiple of 128", "128x128");
    CHECK(scaling_of(first) == MXQ_SCALING_1X32);
    ok(mxq_tensor_set_scaling(last, MXQ_SCALING_1X128));
    MXQ_REFUSED(mxq_tensor_set_group_alignment(last, 64, 32), invalid, "columnwise group alignment 32", "multiple of 128");
    CHECK(columnwise_of(last) == 128);
    CHECK(mxq_tensor_set_group_alignment(last, 64, 0) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_tensor_set_group_alignment(any, 1, 8), invalid, "columnwise group alignment 8", "multiple of 16");
    ok(mxq_tensor_set_group_alignment(any, 1, 16));  // for ROW, which may follow
    CHECK(mxq_tensor_set_scaling(any, MXQ_SCALING_ROW) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_tensor_set_scaling(any, MXQ_SCALING_1X128), invalid, "columnwise group alignment 16", "multiple of 128");
    MXQ_REFUSED(mxq_tensor_set_group_alignment(nvfp4, 1, 8), invalid, "columnwise group alignment 8", "multiple of 16");
    CHECK(mxq_tensor_set_group_alignment(nvfp4, 1, 16) == MXQ_STATUS_OK);
    auto plain = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 256, 256});  // has no blocks
    CHECK(mxq_tensor_set_group_alignment(plain, 4, 1) == MXQ_STATUS_OK);
}

TEST_CASE("setters: 0 threads are one for each core that the process may use", "[cpu]") {
    const auto description = [](int32_t threads) {
        return std::string(mxq_context_description(testing::cpu_context(threads)));
    };
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    const int usable = CPU_COUNT(&before);
    CHECK(description(0).find("CPU, " + std::to_string(usable) + " thread" + (usable == 1 ? "," : "s,")) == 0);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
        if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    const std::string on_one_core = description(0), three = description(3);
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
    CHECK(on_one_core.find("CPU, 1 thread,") == 0);
    CHECK(three.find("CPU, 3 threads,") == 0);
}
