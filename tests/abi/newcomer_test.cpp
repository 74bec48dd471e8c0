// Makes the mistakes of newcomers, and checks that each message names the word that is wrong and says what to do.
#include "../formats.h"
#include "says.h"

#include <array>
#include <cmath>
#include <limits>

using testing::Buffer;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED;
constexpr int32_t rowwise = MXQ_PART_ROWWISE, columnwise = MXQ_PART_COLUMNWISE;

testing::Tensor matrix(int32_t format, int64_t rows = 32, int64_t cols = 64) {
    return testing::make_tensor(format, {std::nullopt, rows, cols});
}

// An F32 matrix, and a quantized one with its rowwise part, in memory of a device.
struct Pair {
    Pair(testing::Device& device, int32_t format)
        : device(device),
          data(device, testing::bytes_of(oracle::Floats(32 * 64, 1.0f))),
          x(matrix(MXQ_FORMAT_F32)),
          q(matrix(format)),
          part(device, q, rowwise) {
        ok(mxq_tensor_set_data(x, data.data(), data.bytes()));
    }
    mxq_status quantize() const { return mxq_quantize(device.context, nullptr, x, q, nullptr, 0, nullptr); }

    testing::Device& device;
    Buffer data;
    testing::Tensor x, q;
    testing::PartBuffers part;
};

}  // namespace

TEST_CASE("newcomers: a quantization scale of 0, Inf, NaN, below 0 or with a reciprocal of Inf is refused on a CPU", "[cpu]") {
    Pair p(testing::cpu(), MXQ_FORMAT_FP8_E4M3);
    float scale = 0;
    ok(mxq_tensor_set_quantization_scale(p.q, &scale, 4));
    for (const float bad : {0.0f, -0.0f, INFINITY, std::numeric_limits<float>::quiet_NaN(), -1.0f, 0x1p-149f, 0x1p-128f}) {
        scale = bad;
        MXQ_REFUSED(p.quantize(), invalid, "out.quantization_scale[0] is ", "a finite number above 0");
        CHECK(p.part.codes->untouched());
    }
    for (const float good : {0x1.00001p-128f, 0x1p-126f, 1.0f, 3e38f}) {
        scale = good;
        CHECK(p.quantize() == MXQ_STATUS_OK);
    }
}

TEST_CASE("newcomers: NULL with bytes is memory that was not allocated, in every setter", "[cpu]") {
    auto x = matrix(MXQ_FORMAT_F32), q = matrix(MXQ_FORMAT_NVFP4), fp8 = matrix(MXQ_FORMAT_FP8_E4M3);
    float number = 0;
    const std::string was = "was it allocated";
    MXQ_REFUSED(mxq_tensor_set_data(x, nullptr, 100), invalid, "data is NULL with 100 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_const_data(x, nullptr, 100), invalid, "data is NULL with 100 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_part(q, rowwise, nullptr, 5, &number, 4), invalid, "codes is NULL with 5 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_part(q, rowwise, &number, 4, nullptr, 5), invalid, "scales is NULL with 5 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_const_part(q, rowwise, &number, 4, nullptr, 5), invalid, "scales is NULL with 5 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_amax(q, rowwise, nullptr, 4), invalid, "amax is NULL with 4 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_decode_scale(q, rowwise, nullptr, 4), invalid, "scale is NULL with 4 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_quantization_scale(fp8, nullptr, 4), invalid, "scale is NULL with 4 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_padded_groups(q, rowwise, nullptr, 4, &number, 4), invalid, "starts is NULL with 4 bytes",
                was);
    MXQ_REFUSED(mxq_tensor_set_padded_groups(q, rowwise, &number, 4, nullptr, 4), invalid, "ends is NULL with 4 bytes", was);
    MXQ_REFUSED(mxq_tensor_set_host_ends(q, nullptr, 8), invalid, "ends is NULL with 8 bytes", was);
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    MXQ_REFUSED(mxq_quantize_options_set_stochastic_rounding(options, nullptr, 16), invalid,
                "seed_offset is NULL with 16 bytes", was);
    int32_t declared = -1;
    ok(mxq_tensor_get_part(q, rowwise, &declared, nullptr, nullptr, nullptr, nullptr, nullptr));
    CHECK(declared == 0);
    CHECK(mxq_tensor_set_data(x, nullptr, 0) == MXQ_STATUS_OK);
}

TEST_CASE("newcomers: sizes in place of ends, and ends out of order", "[cpu]") {
    Pair p(testing::cpu(), MXQ_FORMAT_MXFP8_E4M3);
    int32_t ends[] = {20, 12};
    ok(mxq_tensor_set_groups(p.q, ends, 8, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(p.quantize(), invalid, "out.ends[1] is 12, expected at least 20, the end before",
                "running sums of the groups' sizes");
    ok(mxq_tensor_set_groups_cover_rows(p.q, 1));
    ends[0] = 12, ends[1] = 20;
    MXQ_REFUSED(p.quantize(), invalid, "out.ends says 20", "expected 32", "no starts or sizes");
    ok(mxq_tensor_set_groups_cover_rows(p.q, 0));

    std::string log;
    const auto keep = [](void* user, mxq_log_level, const char* line) { *static_cast<std::string*>(user) = line; };
    ok(mxq_set_log_callback(keep, MXQ_LOG_INFO, &log));
    ok(p.quantize());
    CHECK(log.find(", 12 rows in no group (the ends add up to the rows, as sizes would)") != std::string::npos);
    ends[1] = 21;
    ok(p.quantize());
    CHECK(log.find(", 11 rows in no group:") != std::string::npos);
    ok(mxq_set_log_callback(nullptr, MXQ_LOG_OFF, nullptr));

    auto experts = testing::make_tensor(MXQ_FORMAT_F32, {2, 4, 32});
    MXQ_REFUSED(mxq_tensor_set_groups_cover_rows(experts, 1), invalid, "3 dimensions", "expected 2");
    CHECK(mxq_tensor_set_groups_cover_rows(experts, 0) == MXQ_STATUS_OK);
}

TEST_CASE("newcomers: a Hadamard transform beside scales of tiles or lines is refused by the setter, in either order",
          "[cpu]") {
    int ran = 0;
    for (const auto& [format, scaling] : {std::pair{MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16},
                                          {MXQ_FORMAT_MXFP4, MXQ_SCALING_ROW},
                                          {MXQ_FORMAT_MXFP4, MXQ_SCALING_32X32},
                                          {MXQ_FORMAT_MXFP4, MXQ_SCALING_128X128}})
        for (const int32_t part : {rowwise, columnwise}) {
            auto first = matrix(format), last = matrix(format);
            ok(mxq_tensor_set_scaling(first, scaling));
            MXQ_REFUSED(mxq_tensor_set_hadamard(first, part, 1, 0xD7E8), invalid, "a Hadamard transform and",
                        "blocks of one line");
            int32_t transformed = -1, mask = -1;
            ok(mxq_tensor_get_hadamard(first, part, &transformed, &mask));
            CHECK(std::pair(transformed, mask) == std::pair(0, 0));
            ok(mxq_tensor_set_hadamard(last, part, 1, 0xD7E8));
            MXQ_REFUSED(mxq_tensor_set_scaling(last, scaling), invalid, "a Hadamard transform and",
                        "mxq_tensor_set_hadamard with 0");
            ok(mxq_tensor_set_hadamard(last, part, 0, 0));
            CHECK(mxq_tensor_set_scaling(last, scaling) == MXQ_STATUS_OK);
            ++ran;
        }
    CHECK(ran == 8);
    auto q = matrix(MXQ_FORMAT_NVFP4);
    MXQ_REFUSED(mxq_tensor_set_hadamard(q, rowwise, 0, 0xD7E8), invalid, "mask is 0xD7E8 without a transform", "expected 0");
}

MXQ_EACH_DEVICE("newcomers: in and out in each other's place, and columnwise codes taken for the matrix") {
    auto x = matrix(MXQ_FORMAT_BF16), q = matrix(MXQ_FORMAT_MXFP8_E4M3), turned = matrix(MXQ_FORMAT_MXFP8_E4M3, 64, 32),
         longer = matrix(MXQ_FORMAT_MXFP8_E4M3, 33, 64);
    mxq_context* const context = device.context;
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, q, x, nullptr), unsupported, "in is mxfp8_e4m3 and out is bf16",
                "swap them", "mxq_dequantize");
    MXQ_REFUSED(mxq_dequantize_query(context, nullptr, x, q, nullptr), unsupported, "in is bf16 and out is mxfp8_e4m3",
                "swap them", "mxq_quantize");
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, x, turned, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "out is 64 x 32",
                "for a columnwise part too");
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, x, longer, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "out is 33 x 64",
                "create it with that");
    MXQ_REFUSED(mxq_convert_query(context, nullptr, x, q, nullptr), unsupported, "in is bf16 and out is mxfp8_e4m3",
                "mxq_quantize");
    MXQ_REFUSED(mxq_convert_query(context, nullptr, q, x, nullptr), unsupported, "call mxq_dequantize");
    MXQ_REFUSED(mxq_convert_query(context, nullptr, q, q, nullptr), unsupported, "call mxq_requantize");
    auto y = matrix(MXQ_FORMAT_BF16, 64, 32);
    MXQ_REFUSED(mxq_convert_query(context, nullptr, x, y, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "out is 64 x 32");
    CHECK(std::string(mxq_last_error()).find("columnwise") == std::string::npos);
}

MXQ_EACH_DEVICE("newcomers: a plain operand beside a transformed one") {
    auto x = matrix(MXQ_FORMAT_BF16), w = matrix(MXQ_FORMAT_NVFP4), d = matrix(MXQ_FORMAT_F32, 32, 32);
    ok(mxq_tensor_set_part(w, rowwise, nullptr, 0, nullptr, 0));
    ok(mxq_tensor_set_hadamard(w, rowwise, 1, 0xD7E8));
    MXQ_REFUSED(mxq_gemm_query(device.context, nullptr, x, w, d, nullptr), invalid,
                "a is bf16, and b has a Hadamard transform with the mask 0xD7E8", "quantize a with it", "take b without");
    MXQ_REFUSED(mxq_gemm_query(device.context, nullptr, w, x, d, nullptr), invalid,
                "b is bf16, and a has a Hadamard transform");
}

MXQ_EACH_DEVICE("newcomers: pad for unpad, an unknown implementation, a workspace that is not there") {
    auto in = matrix(MXQ_FORMAT_BF16), out = matrix(MXQ_FORMAT_BF16);
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(in), static_cast<mxq_tensor*>(out)})
        ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_group_alignment(in, 32, 0));
    MXQ_REFUSED(mxq_pad_groups_query(device.context, nullptr, in, out, nullptr), invalid, "alignment 32 and out 1",
                "mxq_unpad_groups");
    MXQ_REFUSED(mxq_unpad_groups_query(device.context, nullptr, out, in, nullptr), invalid, "alignment 1 and out 32",
                "call mxq_pad_groups");

    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_implementation(options, "fastest"));
    auto x = matrix(MXQ_FORMAT_F32), q = matrix(MXQ_FORMAT_MXFP8_E4M3);
    const std::string names = device.is_cpu() ? "expected one of: cpu; or" : "quantize_tile";
    MXQ_REFUSED(mxq_quantize_query(device.context, options, x, q, nullptr), unsupported, "\"fastest\"", names);
    CHECK((std::string(mxq_last_error()).find("cpu") != std::string::npos) == device.is_cpu());

    Pair p(device, MXQ_FORMAT_MXFP8_E4M3);
    MXQ_REFUSED(mxq_quantize(device.context, nullptr, p.x, p.q, nullptr, 64, nullptr), MXQ_STATUS_MISSING_BUFFER,
                "workspace is NULL with 64 bytes, expected NULL with 0: this call needs none");
}

TEST_CASE("newcomers: mxq_constant without a name, MXQ_IMPL with a name that no CPU has", "[cpu]") {
    int64_t value = 5;
    MXQ_REFUSED(mxq_constant(nullptr, &value), invalid, "name is NULL", "MXQ_FORMAT_BF16");
    CHECK(value == 5);
    setenv("MXQ_IMPL", "gemm:fastest", 1);
    mxq_context* context = nullptr;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, &context);
    unsetenv("MXQ_IMPL");
    MXQ_REFUSED(status, invalid, "gemm:fastest", "one of cpu;");
    CHECK(context == nullptr);
}

TEST_CASE("newcomers: a verb that was meant for other formats names the one that takes these", "[cpu]") {
    const auto context = testing::cpu().context;
    const auto f32 = matrix(MXQ_FORMAT_F32), bf16 = matrix(MXQ_FORMAT_BF16), fp8 = matrix(MXQ_FORMAT_MXFP8_E4M3), fp4 = matrix(MXQ_FORMAT_MXFP4);
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, f32, bf16, nullptr), unsupported, "out is bf16", "call mxq_convert");
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, fp8, fp4, nullptr), unsupported, "in is mxfp8_e4m3", "call mxq_requantize");
    MXQ_REFUSED(mxq_dequantize_query(context, nullptr, f32, bf16, nullptr), unsupported, "in is f32", "call mxq_convert");
    MXQ_REFUSED(mxq_dequantize_query(context, nullptr, fp8, fp4, nullptr), unsupported, "out is mxfp4", "call mxq_requantize");
}

TEST_CASE("newcomers: weights with another number of experts, and groups on one of two tensors", "[cpu]") {
    const auto context = testing::cpu().context;
    const std::array<int32_t, 3> ends = {0, 16, 32};
    auto a = matrix(MXQ_FORMAT_F32), d = matrix(MXQ_FORMAT_F32, 32, 8);
    const auto b = testing::make_tensor(MXQ_FORMAT_F32, {2, 8, 64});
    ok(mxq_tensor_set_groups(a, ends.data(), sizeof ends, MXQ_TYPE_INT32, 3));
    MXQ_REFUSED(mxq_grouped_gemm_query(context, nullptr, a, b, d, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "b is 2 x 8 x 64", "a's 3 groups",
                "experts x rows x cols, or check the number of ends");
    const auto out = matrix(MXQ_FORMAT_MXFP8_E4M3);
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, a, out, nullptr), MXQ_STATUS_SHAPE_MISMATCH,
                "out has other groups than in (none and 3 with int32 ends)");
}

TEST_CASE("newcomers: a number for each expert or group, and the scope that was forgotten", "[cpu]") {
    const auto context = testing::cpu().context;
    std::array<float, 2> numbers = {1, 2};
    const auto x = testing::make_tensor(MXQ_FORMAT_F32, {2, 32, 64}), q = testing::make_tensor(MXQ_FORMAT_NVFP4, {2, 32, 64});
    const testing::PartBuffers part(testing::cpu(), q, rowwise);
    ok(mxq_tensor_set_decode_scale(q, rowwise, numbers.data(), sizeof numbers));
    MXQ_REFUSED(mxq_dequantize_query(context, nullptr, q, x, nullptr), invalid, "in.rowwise.decode_scale holds 2 numbers, one for each expert",
                "mxq_tensor_set_scope with MXQ_SCOPE_EXPERT");
    ok(mxq_tensor_set_scope(q, MXQ_SCOPE_EXPERT));
    CHECK(mxq_dequantize_query(context, nullptr, q, x, nullptr) == MXQ_STATUS_OK);

    const std::array<int32_t, 2> ends = {16, 32};
    auto rows = matrix(MXQ_FORMAT_F32), fp8 = matrix(MXQ_FORMAT_FP8_E4M3);
    const testing::PartBuffers codes(testing::cpu(), fp8, rowwise);
    ok(mxq_tensor_set_groups(rows, ends.data(), sizeof ends, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_groups(fp8, ends.data(), sizeof ends, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_quantization_scale(fp8, numbers.data(), sizeof numbers));
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, rows, fp8, nullptr), invalid, "out.quantization_scale holds 2 numbers, one for each group");
    ok(mxq_tensor_set_quantization_scale(fp8, numbers.data(), 4));
    CHECK(mxq_quantize_query(context, nullptr, rows, fp8, nullptr) == MXQ_STATUS_OK);
}
