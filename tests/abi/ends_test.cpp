// Arrays of ends that are not what they are said to be: another integer type, another count, starts in place of ends.
#include "../formats.h"
#include "says.h"

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
const std::string promise = "mxq_tensor_set_groups_cover_rows";

// 4 rows of 32 values and what they become, on the CPU.
struct Rows {
    Rows() {
        ok(mxq_tensor_set_data(x, values, sizeof values));
        ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
        ok(mxq_tensor_set_data(d, sums, sizeof sums));
        ok(mxq_tensor_set_part(b, MXQ_PART_ROWWISE, weights, sizeof weights, weight_scales, sizeof weight_scales));
    }
    mxq_status quantize() { return mxq_quantize(context, nullptr, x, q, nullptr, 0, nullptr); }
    mxq_status dequantize() { return mxq_dequantize(context, nullptr, q, y, nullptr, 0, nullptr); }
    mxq_status multiply() { return mxq_grouped_gemm(context, nullptr, q, b, d, nullptr, 0, nullptr); }

    float values[128] = {1, 2, 3}, sums[8] = {}, decoded[128] = {};
    uint8_t codes[128] = {}, scales[4] = {}, weights[128] = {}, weight_scales[4] = {};
    testing::Context context = testing::cpu_context(1);
    testing::Tensor x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 32});
    testing::Tensor y = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 32});
    testing::Tensor q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 4, 32});
    testing::Tensor b = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {2, 2, 32});
    testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 2});
};

}  // namespace

TEST_CASE("ends: bytes are exactly those of the type and count, and a refused array leaves the groups as they were", "[cpu]") {
    Rows f;
    const int64_t ends[] = {2, 4};
    ok(mxq_tensor_set_groups(f.q, ends, 16, MXQ_TYPE_INT64, 2));
    MXQ_REFUSED(mxq_tensor_set_groups(f.q, ends, 16, MXQ_TYPE_INT32, 2), invalid, "bytes is 16", "exactly 8", "MXQ_TYPE_INT32");
    MXQ_REFUSED(mxq_tensor_set_groups(f.q, ends, 16, MXQ_TYPE_INT64, 1), invalid, "bytes is 16", "exactly 8: 1 ends");
    MXQ_REFUSED(mxq_tensor_set_groups(f.q, ends, 8, MXQ_TYPE_INT64, 2), invalid, "bytes is 8", "exactly 16", "MXQ_TYPE_INT64");
    MXQ_REFUSED(mxq_tensor_set_groups(f.q, ends, 4, MXQ_TYPE_INT64, 0), invalid, "bytes is 4", "exactly 0");
    CHECK(mxq_tensor_set_groups(f.q, nullptr, 99, MXQ_TYPE_INT64, 2) == MXQ_STATUS_OK);  // for sizes and queries
    ok(mxq_tensor_set_groups(f.q, ends, 16, MXQ_TYPE_INT64, 2));
    MXQ_REFUSED(mxq_tensor_set_host_ends(f.q, ends, 8), invalid, "bytes is 8", "exactly 16");
    MXQ_REFUSED(mxq_tensor_set_host_ends(f.q, ends, 24), invalid, "bytes is 24", "exactly 16");
    CHECK(mxq_tensor_set_host_ends(f.q, ends, 16) == MXQ_STATUS_OK);
    CHECK(f.multiply() == MXQ_STATUS_OK);

    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    const uint64_t seed_offset[] = {1, 2};
    for (const uint64_t bytes : {0, 8, 15, 17, 24})
        MXQ_REFUSED(mxq_quantize_options_set_stochastic_rounding(options, seed_offset, bytes), invalid,
                    "bytes is " + std::to_string(bytes), "exactly 16");
    CHECK(mxq_quantize_options_set_stochastic_rounding(options, seed_offset, 16) == MXQ_STATUS_OK);
    CHECK(mxq_quantize_options_set_stochastic_rounding(options, nullptr, 0) == MXQ_STATUS_OK);
}

TEST_CASE("ends: starts in place of ends are found where every row shall be in a group", "[cpu]") {
    Rows f;
    const int32_t starts[] = {0, 2}, ends[] = {2, 4};
    for (const auto* tensor : {&f.q, &f.y}) ok(mxq_tensor_set_groups(*tensor, starts, 8, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_data(f.y, f.decoded, sizeof f.decoded));
    CHECK(f.quantize() == MXQ_STATUS_OK);

    for (int32_t bad : {-1, 2}) MXQ_REFUSED(mxq_tensor_set_groups_cover_rows(f.q, bad), invalid, "cover", std::to_string(bad));
    MXQ_REFUSED(mxq_tensor_set_groups_cover_rows(nullptr, 1), invalid, "tensor is NULL");
    ok(mxq_tensor_set_groups_cover_rows(f.q, 1));
    const std::vector<uint8_t> codes(f.codes, f.codes + sizeof f.codes);
    f.values[0] = 7;
    MXQ_REFUSED(f.quantize(), invalid, "out.ends says 2", "expected 4", promise, "no starts");
    CHECK(std::equal(codes.begin(), codes.end(), f.codes));
    CHECK(mxq_quantize_query(f.context, nullptr, f.x, f.q, nullptr) == MXQ_STATUS_OK);  // reads no memory
    MXQ_REFUSED(f.dequantize(), invalid, "in.ends says 2", promise);
    MXQ_REFUSED(f.multiply(), invalid, "a.ends says 2", promise);

    // The promise may stand on either tensor of the call, and stays when the groups change.
    ok(mxq_tensor_set_groups_cover_rows(f.q, 0));
    CHECK(f.dequantize() == MXQ_STATUS_OK);
    ok(mxq_tensor_set_groups_cover_rows(f.y, 1));
    MXQ_REFUSED(f.dequantize(), invalid, "in.ends says 2", promise);
    for (const auto* tensor : {&f.q, &f.y}) ok(mxq_tensor_set_groups(*tensor, nullptr, 0, MXQ_TYPE_INT32, 0));
    CHECK(f.dequantize() == MXQ_STATUS_OK);
    for (const auto* tensor : {&f.q, &f.y}) ok(mxq_tensor_set_groups(*tensor, starts, 8, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(f.dequantize(), invalid, "in.ends says 2", promise);
    for (const auto* tensor : {&f.q, &f.y}) ok(mxq_tensor_set_groups(*tensor, ends, 8, MXQ_TYPE_INT32, 2));
    CHECK(f.dequantize() == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("ends: those on the host must end with the rows where every row shall be in a group, also for a query") {
    const int32_t short_ends[] = {2, 3}, ends[] = {2, 4};
    auto a = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 4, 32}),
         b = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {2, 2, 32}), d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 2});
    ok(testing::set_ends(a, nullptr, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_host_ends(a, short_ends, sizeof short_ends));
    CHECK(mxq_grouped_gemm_query(device.context, nullptr, a, b, d, nullptr) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_groups_cover_rows(a, 1));
    MXQ_REFUSED(mxq_grouped_gemm_query(device.context, nullptr, a, b, d, nullptr), invalid, "a.host_ends says 3", "expected 4", promise);
    ok(mxq_tensor_set_host_ends(a, ends, sizeof ends));
    CHECK(mxq_grouped_gemm_query(device.context, nullptr, a, b, d, nullptr) == MXQ_STATUS_OK);
}

// Ends at two addresses are the same groups on a CPU context where they are equal; on a CUDA context the host cannot tell.
TEST_CASE("ends: equal ones at another address, for every verb on a CPU context", "[cpu]") {
    const int32_t ends[] = {2, 4}, equal[] = {2, 4}, other[] = {2, 3};
    const auto groups = [](mxq_tensor* tensor, const int32_t* of) { ok(mxq_tensor_set_groups(tensor, of, 8, MXQ_TYPE_INT32, 2)); };
    testing::Context context = testing::cpu_context(1);
    const testing::Dims dims{std::nullopt, 4, 32};
    const auto f32 = [&] { return testing::make_tensor(MXQ_FORMAT_F32, dims); };
    const auto mx = [&](bool swizzled = false) { return testing::make_quantized({}, dims, swizzled); };
    auto x = f32(), y = f32(), q = mx(), again = mx(), swizzled = mx(true), padded = mx(), fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, dims);
    auto gradient = testing::make_tensor(MXQ_FORMAT_F32, {2, 32, 32});
    auto weights = testing::make_quantized({}, {2, 8, 32}, false), d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 8});
    alignas(256) static uint8_t memory[1 << 18];
    uint64_t used = 0;
    for (mxq_tensor* tensor : {(mxq_tensor*)x, (mxq_tensor*)y, (mxq_tensor*)q, (mxq_tensor*)again, (mxq_tensor*)swizzled, (mxq_tensor*)padded, (mxq_tensor*)fp8,
                               (mxq_tensor*)gradient, (mxq_tensor*)weights, (mxq_tensor*)d}) {
        int32_t format = 0, dimensions = 0;
        uint64_t bytes = 0;
        ok(mxq_tensor_get_format(tensor, &format));
        ok(mxq_tensor_get_shape(tensor, &dimensions, nullptr, nullptr, nullptr));
        const bool plain = format == MXQ_FORMAT_F32;
        if (tensor != gradient && tensor != weights) groups(tensor, equal);
        const int32_t parts = plain ? MXQ_PART_ROWWISE : MXQ_PART_BOTH;
        ok(mxq_tensor_total_bytes(tensor, parts, &bytes));
        ok(mxq_tensor_set_memory(tensor, parts, memory + used, bytes));
        used += bytes;
        REQUIRE(used <= sizeof memory);
    }
    float amax = 0;
    ok(mxq_tensor_set_amax(fp8, MXQ_PART_ROWWISE, &amax, 4));
    groups(q, ends);
    using Verb = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, void*, uint64_t, void*);
    struct Pair {
        Verb verb;
        mxq_tensor *in, *out;
        mxq_tensor* second;  // whose ends differ
    };
    const Pair pairs[] = {
        {mxq_quantize, x, q, x},         {mxq_dequantize, q, y, y},           {mxq_requantize, q, again, again},
        {mxq_swizzle_scales, q, swizzled, swizzled}, {mxq_unswizzle_scales, swizzled, q, swizzled},
        {mxq_pad_groups, q, padded, padded}, {mxq_unpad_groups, q, padded, padded}, {mxq_amax, x, fp8, x}};
    int ran = 0;
    for (const Pair& pair : pairs) {
        CAPTURE(ran);
        CHECK(pair.verb(context, nullptr, pair.in, pair.out, nullptr, 0, nullptr) == MXQ_STATUS_OK);
        groups(pair.second, other);
        MXQ_REFUSED(pair.verb(context, nullptr, pair.in, pair.out, nullptr, 0, nullptr), MXQ_STATUS_SHAPE_MISMATCH,
                    "out has other groups than in", "equal ends", "end 1 is");
        groups(pair.second, nullptr);
        MXQ_REFUSED(pair.verb(context, nullptr, pair.in, pair.out, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER, "ends is NULL");
        groups(pair.second, equal);
        ++ran;
    }
    CHECK(ran == 8);

    auto options = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N);
    const auto weight_gradient = [&] { return mxq_grouped_gemm(context, options, q, again, gradient, nullptr, 0, nullptr); };
    const auto forward = [&] { return mxq_grouped_gemm(context, nullptr, q, weights, d, nullptr, 0, nullptr); };
    CHECK(weight_gradient() == MXQ_STATUS_OK);
    CHECK(forward() == MXQ_STATUS_OK);
    groups(again, other), groups(d, other);
    CHECK(mxq_grouped_gemm_query(context, options, q, again, gradient, nullptr) == MXQ_STATUS_OK);  // reads no memory
    MXQ_REFUSED(weight_gradient(), MXQ_STATUS_SHAPE_MISMATCH, "b has other groups than a", "end 1 is 3 and 4");
    MXQ_REFUSED(forward(), MXQ_STATUS_SHAPE_MISMATCH, "d has other groups than a", "end 1 is 3 and 4");
    const int64_t wide[] = {2, 4};
    ok(mxq_tensor_set_groups(again, wide, 16, MXQ_TYPE_INT64, 2));
    MXQ_REFUSED(weight_gradient(), MXQ_STATUS_SHAPE_MISMATCH, "same type and count");
}

TEST_CASE("ends: equal ones at another address are refused on a CUDA context", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA");
    const int32_t ends[] = {2, 4}, equal[] = {2, 4};
    auto x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 32}), q = testing::make_quantized({}, {std::nullopt, 4, 32}, false);
    ok(mxq_tensor_set_groups(x, ends, 8, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_groups(q, equal, 8, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(mxq_quantize_query(testing::cuda()->context, nullptr, x, q, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "out has other groups than in",
                "same array of ends");
}
