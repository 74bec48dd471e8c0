// Refusals of what callers seldom do: shared, misplaced or short buffers of numbers, groups that differ a little, options
// and streams that a verb has no use for. Nothing is written.
#include "../formats.h"
#include "../verbs/product.h"
#include "says.h"

using testing::Buffer;
using testing::ok;

namespace {

constexpr int32_t invalid = MXQ_STATUS_INVALID_ARGUMENT, missing = MXQ_STATUS_MISSING_BUFFER,
                  too_small = MXQ_STATUS_BUFFER_TOO_SMALL, misaligned = MXQ_STATUS_MISALIGNED,
                  shape = MXQ_STATUS_SHAPE_MISMATCH;
const testing::Dims dims{std::nullopt, 32, 64};
constexpr size_t elements = 32 * 64;

uint8_t* byte(const Buffer& buffer, size_t at) { return static_cast<uint8_t*>(buffer.data()) + at; }
float* number(const Buffer& buffer, size_t byte_offset = 0) { return reinterpret_cast<float*>(byte(buffer, byte_offset)); }

mxq_status quantize(testing::Device& device, mxq_quantize_options* options, mxq_tensor* in, mxq_tensor* out) {
    return mxq_quantize(device.context, options, in, out, nullptr, 0, nullptr);
}
mxq_status requantize(testing::Device& device, mxq_tensor* in, mxq_tensor* out) {
    return mxq_requantize(device.context, nullptr, in, out, nullptr, 0, nullptr);
}
mxq_status dequantize(testing::Device& device, mxq_tensor* in, mxq_tensor* out) {
    return mxq_dequantize(device.context, nullptr, in, out, nullptr, 0, nullptr);
}

// Holds an F32 tensor with data, and one of `spec` with both parts.
struct Pair {
    Pair(testing::Device& device, const oracle::Spec& spec)
        : x(device, cases::plain_values(MXQ_FORMAT_F32, cases::Values::normal, elements, 1)),
          plain(testing::make_tensor(MXQ_FORMAT_F32, dims)),
          q(testing::make_tensor(spec, dims, false)),
          row(device, q, MXQ_PART_ROWWISE),
          column(device, q, MXQ_PART_COLUMNWISE) {
        ok(mxq_tensor_set_data(plain, x.data(), x.bytes()));
        ok(mxq_quantize_options_create(options.out()));
    }
    bool untouched() const {
        return row.codes->untouched() && row.scales->untouched() && column.codes->untouched() && column.scales->untouched();
    }

    Buffer x;
    testing::Tensor plain, q;
    testing::PartBuffers row, column;
    testing::QuantizeOptions options;
};

const oracle::Spec mxfp8, nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
                          fp8 = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR),
                          fp8_rows = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW);

}  // namespace

MXQ_EACH_DEVICE("rare refusals: amaxes that share memory with each other or with the input") {
    Pair p(device, nvfp4);
    Buffer amax(device, 8);
    const auto place = [&](float* row, float* column) {
        ok(mxq_tensor_set_amax(p.q, MXQ_PART_ROWWISE, row, 4));
        ok(mxq_tensor_set_amax(p.q, MXQ_PART_COLUMNWISE, column, 4));
    };
    place(number(amax), number(amax));
    MXQ_REFUSED(quantize(device, p.options, p.plain, p.q), invalid, "amax overlaps", "out.rowwise.amax",
                "out.columnwise.amax");
    MXQ_REFUSED(mxq_amax(device.context, nullptr, p.plain, p.q, nullptr, 0, nullptr), invalid, "amax overlaps");
    place(number(amax), number(p.x, 400));
    MXQ_REFUSED(quantize(device, p.options, p.plain, p.q), invalid, "overlaps", "out.columnwise.amax", "in.data");
    MXQ_REFUSED(mxq_amax(device.context, nullptr, p.plain, p.q, nullptr, 0, nullptr), invalid, "overlaps", "in.data");
    CHECK(p.untouched());
    CHECK(amax.untouched());

    Buffer one(device, testing::bytes_of({8.0f}));  // what is only read may be shared
    place(number(one), number(one));
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), invalid, "amax overlaps");
    ok(mxq_quantize_options_set_compute_amax(p.options, 0));
    CHECK(quantize(device, p.options, p.plain, p.q) == MXQ_STATUS_OK);
    CHECK(!p.untouched());
}

MXQ_EACH_DEVICE("rare refusals: fp32 scales and a seed that are misaligned, numbers that are too few") {
    Pair p(device, fp8), rows(device, fp8_rows), four(device, nvfp4);
    Buffer numbers(device, 256);
    ok(mxq_tensor_set_part(p.q, MXQ_PART_ROWWISE, p.row.codes->data(), p.row.codes->bytes(), byte(numbers, 2), 4));
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), misaligned, "out.rowwise.scales", "multiple of 4");
    MXQ_REFUSED(dequantize(device, p.q, p.plain), misaligned, "in.rowwise.scales", "multiple of 4");
    p.row.set(p.q, MXQ_PART_ROWWISE);

    ok(mxq_quantize_options_set_stochastic_rounding(four.options, reinterpret_cast<const uint64_t*>(byte(numbers, 4)), 16));
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        ok(mxq_tensor_set_amax(four.q, part, number(numbers, 128), 4));
    MXQ_REFUSED(quantize(device, four.options, four.plain, four.q), misaligned, "options.seed_offset", "multiple of 8");

    ok(mxq_tensor_set_quantization_scale(p.q, number(numbers), 3));
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), too_small, "out.quantization_scale holds 3 bytes", "4");
    ok(mxq_tensor_set_quantization_scale(p.q, number(numbers, 2), 4));
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), misaligned, "out.quantization_scale", "multiple of 4");

    ok(mxq_tensor_set_amax(rows.q, MXQ_PART_ROWWISE, number(numbers), 32 * 4 - 1));
    MXQ_REFUSED(quantize(device, nullptr, rows.plain, rows.q), too_small, "out.rowwise.amax holds 127 bytes", "128");
    ok(mxq_tensor_set_amax(rows.q, MXQ_PART_ROWWISE, nullptr, 0));
    ok(mxq_tensor_set_amax(rows.q, MXQ_PART_COLUMNWISE, number(numbers), 64 * 4 - 1));
    MXQ_REFUSED(quantize(device, nullptr, rows.plain, rows.q), too_small, "out.columnwise.amax holds 255 bytes", "256");

    ok(mxq_tensor_set_amax(four.q, MXQ_PART_ROWWISE, nullptr, 0));
    ok(mxq_tensor_set_decode_scale(four.q, MXQ_PART_ROWWISE, number(numbers), 3));
    MXQ_REFUSED(dequantize(device, four.q, four.plain), too_small, "in.rowwise.decode_scale holds 3 bytes", "4");
    ok(mxq_tensor_set_decode_scale(four.q, MXQ_PART_ROWWISE, number(numbers, 2), 4));
    MXQ_REFUSED(dequantize(device, four.q, four.plain), misaligned, "in.rowwise.decode_scale", "multiple of 4");
    CHECK(p.untouched());
    CHECK(rows.untouched());
    CHECK(four.untouched());
    CHECK(numbers.untouched());
}

MXQ_EACH_DEVICE("rare refusals: nvfp4 without an amax, and requantize in place") {
    Pair p(device, nvfp4), target(device, mxfp8);
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, 32, 32}, 0);
    const auto gemm = [&] { return mxq_gemm(device.context, nullptr, p.q, p.q, d.tensor, nullptr, 0, nullptr); };
    MXQ_REFUSED(dequantize(device, p.q, p.plain), missing, "in.rowwise.amax is NULL", "mxq_tensor_set_amax");
    MXQ_REFUSED(requantize(device, p.q, target.q), missing, "in.rowwise.amax is NULL", "mxq_tensor_set_amax");
    MXQ_REFUSED(gemm(), missing, "a.rowwise.amax is NULL", "mxq_tensor_set_amax");
    Buffer amax(device, testing::bytes_of({6.0f}));
    auto second = testing::make_tensor(nvfp4, dims, false);
    p.row.set(second, MXQ_PART_ROWWISE);
    ok(mxq_tensor_set_amax(p.q, MXQ_PART_ROWWISE, number(amax), 4));
    MXQ_REFUSED(mxq_gemm(device.context, nullptr, p.q, second, d.tensor, nullptr, 0, nullptr), missing,
                "b.rowwise.amax is NULL");
    MXQ_REFUSED(requantize(device, target.q, p.q), missing, "out.columnwise.amax is NULL");

    MXQ_REFUSED(requantize(device, target.q, target.q), invalid, "overlaps", "in.rowwise.codes");
    auto in_place = testing::make_tensor(mxfp8, dims, false);
    ok(mxq_tensor_set_part(in_place, MXQ_PART_COLUMNWISE, target.row.codes->data(), target.row.codes->bytes(),
                           target.column.scales->data(), target.column.scales->bytes()));
    MXQ_REFUSED(requantize(device, target.q, in_place), invalid, "out.columnwise.codes overlaps in.rowwise.codes");
    CHECK(p.untouched());
    CHECK(target.untouched());
    CHECK(d.bytes() == testing::Bytes(32 * 32 * 4, testing::poison));
}

MXQ_EACH_DEVICE("rare refusals: groups that differ in the type of the ends, in an alignment, or in D") {
    const testing::Bytes two_ends{16, 0, 0, 0, 32, 0, 0, 0};
    Buffer ends(device, two_ends), same_ends(device, two_ends);
    const auto grouped = [&](testing::Tensor tensor, int32_t type, int32_t count, int32_t rowwise, int32_t columnwise) {
        ok(testing::set_ends(tensor, ends.data(), type, count));
        ok(mxq_tensor_set_group_alignment(tensor, rowwise, columnwise));
        return tensor;
    };
    const auto plain = [&](int32_t type, int32_t count, int32_t alignment) {
        return grouped(testing::make_tensor(MXQ_FORMAT_F32, dims), type, count, alignment, 0);
    };
    const auto quantized = [&](bool swizzled, int32_t rowwise, int32_t columnwise) {
        auto tensor = grouped(testing::make_tensor(mxfp8, dims, swizzled), MXQ_TYPE_INT32, 1, rowwise, columnwise);
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
            ok(mxq_tensor_set_part(tensor, part, nullptr, 0, nullptr, 0));
        return tensor;
    };
    auto* context = device.context;
    MXQ_REFUSED(mxq_pad_groups_query(context, nullptr, plain(MXQ_TYPE_INT32, 1, 1), plain(MXQ_TYPE_INT64, 1, 1), nullptr),
                shape, "out has other groups than in", "type");
    MXQ_REFUSED(mxq_pad_groups_query(context, nullptr, plain(MXQ_TYPE_INT32, 1, 1), plain(MXQ_TYPE_INT32, 2, 1), nullptr),
                shape, "out has other groups than in", "count");
    CHECK(mxq_pad_groups_query(context, nullptr, plain(MXQ_TYPE_INT64, 1, 1), plain(MXQ_TYPE_INT64, 1, 4), nullptr) ==
          MXQ_STATUS_OK);

    MXQ_REFUSED(mxq_pad_groups_query(context, nullptr, quantized(false, 1, 64), quantized(false, 2, 32), nullptr), invalid,
                "columnwise group alignment 64 and out 32", "larger");
    MXQ_REFUSED(mxq_unpad_groups_query(context, nullptr, quantized(false, 2, 32), quantized(false, 1, 64), nullptr), invalid,
                "columnwise group alignment 32 and out 64", "smaller");
    CHECK(mxq_pad_groups_query(context, nullptr, quantized(false, 1, 32), quantized(false, 1, 64), nullptr) ==
          MXQ_STATUS_OK);

    MXQ_REFUSED(mxq_swizzle_scales_query(context, nullptr, quantized(false, 1, 32), quantized(true, 2, 32), nullptr),
                invalid, "rowwise group alignment 1 and out 2", "the same");
    MXQ_REFUSED(mxq_unswizzle_scales_query(context, nullptr, quantized(true, 1, 64), quantized(false, 1, 32), nullptr),
                invalid, "columnwise group alignment 64 and out 32");
    CHECK(mxq_swizzle_scales_query(context, nullptr, quantized(false, 2, 64), quantized(true, 2, 64), nullptr) ==
          MXQ_STATUS_OK);

    auto a = grouped(testing::make_tensor(mxfp8, dims, false), MXQ_TYPE_INT32, 2, 1, 0),
         b = testing::make_quantized(mxfp8, {2, 8, 64}, false);
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 32, 8});
    ok(testing::set_ends(d, same_ends.data(), MXQ_TYPE_INT32, 2));
    if (device.is_cpu())  // the query does not read that they are equal
        CHECK(mxq_grouped_gemm_query(context, nullptr, a, b, d, nullptr) == MXQ_STATUS_OK);
    else
        MXQ_REFUSED(mxq_grouped_gemm_query(context, nullptr, a, b, d, nullptr), shape, "d has other groups than a",
                    "same array of ends");
    ok(testing::set_ends(d, ends.data(), MXQ_TYPE_INT32, 2));
    CHECK(mxq_grouped_gemm_query(context, nullptr, a, b, d, nullptr) == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("rare refusals: options of quantize in verbs that only move, and a stream on a CPU context") {
    Pair p(device, mxfp8);
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_nonfinite(options, MXQ_NONFINITE_SATURATE));
    const std::pair<testing::Verb, const char*> all[] = {{mxq_quantize, ""},
                                                         {mxq_requantize, ""},
                                                         {mxq_dequantize, "dequantize does not have"},
                                                         {mxq_amax, ""},
                                                         {mxq_swizzle_scales, "swizzle_scales does not have"},
                                                         {mxq_unswizzle_scales, "unswizzle_scales does not have"},
                                                         {mxq_pad_groups, "pad_groups does not have"},
                                                         {mxq_unpad_groups, "unpad_groups does not have"}};
    int ran = 0;
    for (auto [verb, words] : all) {
        const bool makes_plain = verb == mxq_dequantize;
        mxq_tensor *in = makes_plain ? p.q : p.plain, *out = makes_plain ? p.plain : p.q;
        if (*words)
            MXQ_REFUSED(verb(device.context, options, in, out, nullptr, 0, nullptr), invalid, "a non-finite policy", words);
        if (device.is_cpu())
            MXQ_REFUSED(verb(device.context, nullptr, in, out, nullptr, 0, &ran), invalid, "stream is", "CPU context",
                        "NULL");
        ++ran;
    }
    CHECK(ran == 8);
    if (device.is_cpu())
        for (auto verb : {mxq_gemm, mxq_grouped_gemm})
            MXQ_REFUSED(verb(device.context, nullptr, p.q, p.q, p.plain, nullptr, 0, &ran), invalid, "stream is",
                        "CPU context", "NULL");
    CHECK(p.untouched());
}

// Only rowwise parts have swizzled fp32 scales of groups, and that is the part that a query assumes.
MXQ_EACH_DEVICE("rare refusals: none in a query of swizzled fp32 scales of groups that declares no part") {
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128);
    auto plain = testing::make_tensor(MXQ_FORMAT_F32, dims), q = testing::make_tensor(spec, dims, true),
         compact = testing::make_tensor(spec, dims, false);
    for (const auto* tensor : {&plain, &q, &compact}) ok(testing::set_ends(*tensor, nullptr, MXQ_TYPE_INT32, 2));
    CHECK(mxq_quantize_query(device.context, nullptr, plain, q, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_dequantize_query(device.context, nullptr, q, plain, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_requantize_query(device.context, nullptr, compact, q, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_swizzle_scales_query(device.context, nullptr, compact, q, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_pad_groups_query(device.context, nullptr, q, q, nullptr) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_part(q, MXQ_PART_COLUMNWISE, nullptr, 0, nullptr, 0));
    MXQ_REFUSED(mxq_quantize_query(device.context, nullptr, plain, q, nullptr), MXQ_STATUS_UNSUPPORTED,
                "out.columnwise has groups");
}

MXQ_EACH_DEVICE("rare refusals: data that may only be read is no output, and a workspace that is not needed is checked") {
    Pair p(device, mxfp8);
    ok(mxq_tensor_set_const_data(p.plain, p.x.data(), p.x.bytes()));
    CHECK(quantize(device, nullptr, p.plain, p.q) == MXQ_STATUS_OK);
    MXQ_REFUSED(dequantize(device, p.q, p.plain), invalid, "out has data that may only be read", "mxq_tensor_set_data");
    MXQ_REFUSED(mxq_tensor_set_const_data(p.q, p.x.data(), p.x.bytes()), invalid, "single data buffer");
    ok(mxq_tensor_set_data(p.plain, p.x.data(), p.x.bytes()));
    CHECK(dequantize(device, p.q, p.plain) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_dequantize(device.context, nullptr, p.q, p.plain, nullptr, 100, nullptr), MXQ_STATUS_MISSING_BUFFER,
                "workspace is NULL with 100 bytes");
    MXQ_REFUSED(mxq_dequantize(device.context, nullptr, p.q, p.plain, static_cast<uint8_t*>(p.x.data()) + 1, 100, nullptr),
                MXQ_STATUS_MISALIGNED, "workspace is at", "multiple of 256");
}

MXQ_EACH_DEVICE("rare refusals: a part that may only be read is no output of any verb") {
    Pair p(device, mxfp8);
    CHECK(quantize(device, nullptr, p.plain, p.q) == MXQ_STATUS_OK);
    const auto make_const = [&](mxq_tensor* tensor, const testing::PartBuffers& part) {
        ok(mxq_tensor_set_const_part(tensor, MXQ_PART_COLUMNWISE, part.codes->data(), part.codes->bytes(),
                                     part.scales->data(), part.scales->bytes()));
    };
    make_const(p.q, p.column);
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), invalid, "out.columnwise may only be read", "mxq_tensor_set_part");
    CHECK(dequantize(device, p.q, p.plain) == MXQ_STATUS_OK);
    auto swizzled = testing::make_tensor(mxfp8, dims, true), padded = testing::make_tensor(mxfp8, dims, false);
    testing::PartBuffers of_swizzled(device, swizzled, MXQ_PART_COLUMNWISE), of_padded(device, padded, MXQ_PART_COLUMNWISE);
    ok(mxq_tensor_clear_part(p.q, MXQ_PART_ROWWISE));
    make_const(p.q, p.column);
    const auto swizzle = [&] { return mxq_swizzle_scales(device.context, nullptr, p.q, swizzled, nullptr, 0, nullptr); };
    CHECK(swizzle() == MXQ_STATUS_OK);
    make_const(swizzled, of_swizzled);
    MXQ_REFUSED(swizzle(), invalid, "out.columnwise may only be read");
    MXQ_REFUSED(mxq_requantize_query(device.context, nullptr, p.q, swizzled, nullptr), invalid,
                "out.columnwise may only be read");
    make_const(padded, of_padded);
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(p.q), static_cast<mxq_tensor*>(padded)})
        ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 1));
    MXQ_REFUSED(mxq_pad_groups_query(device.context, nullptr, p.q, padded, nullptr), invalid,
                "out.columnwise may only be read");
}

TEST_CASE("rare refusals: the hint after too few bytes names what tells their number", "[cpu]") {
    testing::Device& device = testing::cpu();
    Pair p(device, nvfp4);
    float number[2] = {};
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) ok(mxq_tensor_set_amax(p.q, part, number, 3));
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), MXQ_STATUS_BUFFER_TOO_SMALL, "amax holds 3 bytes", "mxq_tensor_required_amax_bytes");
    auto q = testing::make_tensor(fp8, dims, false), mx = testing::make_tensor(mxfp8, dims, false);
    ok(mxq_tensor_set_quantization_scale(q, number, 3));
    MXQ_REFUSED(mxq_quantize_query(device.context, nullptr, p.plain, q, nullptr), MXQ_STATUS_BUFFER_TOO_SMALL, "quantization_scale holds 3", "MXQ_SCOPE_EXPERT");
    auto d = testing::make_tensor(MXQ_FORMAT_F32, dims);
    MXQ_REFUSED(mxq_gemm_query(device.context, nullptr, mx, q, d, nullptr), MXQ_STATUS_UNSUPPORTED, "mxfp8_e4m3 with blocks of 32 (MX)",
                "fp8_e4m3 with ROW or TENSOR scales (fp8)");
}

TEST_CASE("rare refusals: 2^48 elements are the most") {
    const int64_t side = int64_t{1} << 24;
    uint64_t codes = 0, scales = 0;
    auto largest = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, side, side});
    ok(mxq_tensor_required_bytes(largest, MXQ_PART_ROWWISE, &codes, &scales));
    CHECK(codes == uint64_t{1} << 48);
    CHECK(scales == uint64_t{1} << 43);
    testing::Tensor none;
    MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, side, side + 1, none.out()), invalid, "16777216 x 16777217",
                "2^48");
    MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, side + 1, side, none.out()), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_F32, 2, side, side, none.out()), invalid, "2 x 16777216 x 16777216", "2^48");
    CHECK(mxq_tensor_create_3d(MXQ_FORMAT_F32, 1, side, side, none.out()) == MXQ_STATUS_OK);
}

// A row has a scale, with or without columns, so that rows without columns count like those of one.
TEST_CASE("rare refusals: 2^48 rows are the most, and columns, of a tensor without elements") {
    const int64_t most = MXQ_MAX_DIM, side = int64_t{1} << 24;
    testing::Tensor none;
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_FP8_E4M3, most, most, 0, none.out()), invalid, "2147483647 x 2147483647 x 0",
                "2^48 elements, where a size of 0 counts as 1");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_FP8_E4M3, most, 0, most, none.out()), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_FP8_E4M3, 0, most, most, none.out()), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_FP8_E4M3, side, side + 1, 0, none.out()), invalid, "2^48");
    testing::Tensor rows;
    ok(mxq_tensor_create_3d(MXQ_FORMAT_FP8_E4M3, side, side, 0, rows.out()));
    ok(mxq_tensor_set_scaling(rows, MXQ_SCALING_ROW));
    uint64_t codes = 1, scales = 0, amax = 0;
    ok(mxq_tensor_required_bytes(rows, MXQ_PART_ROWWISE, &codes, &scales));
    ok(mxq_tensor_required_amax_bytes(rows, MXQ_PART_ROWWISE, &amax));
    CHECK(codes == 0);
    CHECK(scales == uint64_t{4} << 48);
    CHECK(amax == scales);
    for (const int64_t size : {int64_t{0}, int64_t{1}, most}) {
        testing::Tensor empty;
        CHECK(mxq_tensor_create_2d(MXQ_FORMAT_F32, size, 0, empty.out()) == MXQ_STATUS_OK);
    }
}

// A query reads no memory, so that ends out of order are the call's to find; a call with nothing to write need not look.
TEST_CASE("rare refusals: ends out of order are refused by the call and not by its query", "[cpu]") {
    testing::Device& device = testing::cpu();
    Pair p(device, mxfp8);
    const int32_t wrong[] = {20, 10};
    ok(testing::set_ends(p.q, wrong, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_clear_part(p.q, MXQ_PART_COLUMNWISE));
    CHECK(mxq_quantize_query(device.context, nullptr, p.plain, p.q, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(quantize(device, nullptr, p.plain, p.q), invalid, "out.ends[1] is 10", "at least 20");
    CHECK(mxq_dequantize_query(device.context, nullptr, p.q, p.plain, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(dequantize(device, p.q, p.plain), invalid, "in.ends[1] is 10");
    CHECK(p.untouched());
}
