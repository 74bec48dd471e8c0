// Strides of a part and lists of experts: what setters and verbs refuse, what getters and sizes say.
#include "../formats.h"
#include "says.h"

#include <cstring>

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED,
               missing = MXQ_STATUS_MISSING_BUFFER;
constexpr int32_t rowwise = MXQ_PART_ROWWISE, columnwise = MXQ_PART_COLUMNWISE;

testing::Tensor experts_of(int32_t format) { return testing::make_tensor(format, {3, 8, 64}); }
testing::Tensor matrix_of(int32_t format) { return testing::make_tensor(format, {std::nullopt, 8, 64}); }

using Four = std::tuple<int64_t, int64_t, int64_t, int64_t>;

Four strides_of(const mxq_tensor* tensor, int32_t part) {
    int64_t code_line = -1, code_expert = -1, scale_line = -1, scale_expert = -1;
    ok(mxq_tensor_get_strides(tensor, part, &code_line, &code_expert, &scale_line, &scale_expert));
    return {code_line, code_expert, scale_line, scale_expert};
}

std::pair<uint64_t, uint64_t> sizes_of(const mxq_tensor* tensor, int32_t part) {
    uint64_t codes = 0, scales = 0;
    ok(mxq_tensor_required_bytes(tensor, part, &codes, &scales));
    return {codes, scales};
}

std::string described(const mxq_tensor* tensor) {
    char text[200];
    mxq_tensor_describe(tensor, text, sizeof text);
    return text;
}

}  // namespace

TEST_CASE("apart: strides, of each part its own, and the bytes that they span", "[cpu]") {
    auto q =
        experts_of(MXQ_FORMAT_MXFP8_E4M3);  // an expert: 8 lines of 64 codes and 2 scales; 64 lines of 8 codes and a scale
    CHECK(strides_of(q, rowwise) == Four{0, 0, 0, 0});
    ok(mxq_tensor_set_strides(q, rowwise, 100, 1000, 5, 50));
    ok(mxq_tensor_set_strides(q, columnwise, 9, 0, 0, 70));
    CHECK(strides_of(q, rowwise) == Four{100, 1000, 5, 50});
    CHECK(strides_of(q, columnwise) == Four{9, 0, 0, 70});
    CHECK(sizes_of(q, rowwise) == std::pair<uint64_t, uint64_t>(2 * 1000 + 7 * 100 + 64, 2 * 50 + 7 * 5 + 2));
    CHECK(sizes_of(q, columnwise) == std::pair<uint64_t, uint64_t>(2 * 64 * 9 + 63 * 9 + 8, 2 * 70 + 64));
    ok(mxq_tensor_set_strides(q, rowwise, 3 * 64, 64, 0, 0));  // the experts' lines alternate
    CHECK(sizes_of(q, rowwise) == std::pair<uint64_t, uint64_t>(3 * 8 * 64, 3 * 8 * 2));
    ok(mxq_tensor_set_part(q, rowwise, nullptr, 0, nullptr, 0));
    CHECK(strides_of(q, rowwise) == Four{192, 64, 0, 0});
    CHECK(described(q) == "mxfp8_e4m3 3 x 8 x 64 1x32 rowwise strides (192, 64, 0, 0)");
    ok(mxq_tensor_clear_part(q, rowwise));
    CHECK(strides_of(q, rowwise) == Four{0, 0, 0, 0});
    ok(mxq_tensor_set_strides(q, columnwise, 0, 0, 0, 0));
    CHECK(sizes_of(q, columnwise) == std::pair<uint64_t, uint64_t>(3 * 64 * 8, 3 * 64));
    CHECK(mxq_tensor_get_strides(q, rowwise, nullptr, nullptr, nullptr, nullptr) == MXQ_STATUS_OK);

    auto swizzled = experts_of(MXQ_FORMAT_MXFP4);
    ok(mxq_tensor_set_swizzled(swizzled, 1));
    ok(mxq_tensor_set_strides(swizzled, rowwise, 0, 0, 0, 600));
    CHECK(sizes_of(swizzled, rowwise).second == 2 * 600 + 512);
    auto rows = experts_of(MXQ_FORMAT_FP8_E4M3);
    ok(mxq_tensor_set_scaling(rows, MXQ_SCALING_ROW));
    ok(mxq_tensor_set_strides(rows, rowwise, 0, 0, 8, 0));  // every other scale: gate and up alternate
    CHECK(sizes_of(rows, rowwise).second == 2 * 64 + 7 * 8 + 4);
}

TEST_CASE("apart: strides that cannot be are refused by the setter", "[cpu]") {
    auto q = experts_of(MXQ_FORMAT_MXFP8_E4M3), two = matrix_of(MXQ_FORMAT_MXFP8_E4M3), plain = matrix_of(MXQ_FORMAT_BF16),
         fp8 = experts_of(MXQ_FORMAT_FP8_E4M3);
    const auto set = [&](mxq_tensor* t, int64_t a, int64_t b, int64_t c, int64_t d) {
        return mxq_tensor_set_strides(t, rowwise, a, b, c, d);
    };
    MXQ_REFUSED(set(nullptr, 0, 0, 0, 0), invalid, "mxq_tensor_set_strides", "tensor is NULL");
    MXQ_REFUSED(set(plain, 64, 0, 0, 0), invalid, "bf16", "mxq_tensor_set_row_stride");
    MXQ_REFUSED(mxq_tensor_set_strides(q, MXQ_PART_BOTH, 64, 0, 0, 0), invalid, "part is 3");
    MXQ_REFUSED(set(q, -64, 0, 0, 0), invalid, "code_line is -64");
    MXQ_REFUSED(set(q, 0, -1, 0, 0), invalid, "code_expert is -1");
    MXQ_REFUSED(set(q, 0, 0, -1, 0), invalid, "scale_line is -1");
    MXQ_REFUSED(set(q, 0, 0, 0, -1), invalid, "scale_expert is -1");
    MXQ_REFUSED(set(q, int64_t(1) << 50, 0, 0, 0), invalid, "code_line", "2^52 bytes for all 8");
    MXQ_REFUSED(set(q, 0, 0, 0, INT64_MAX), invalid, "scale_expert", "2^52");
    MXQ_REFUSED(set(q, 63, 0, 0, 0), invalid, "tensor.rowwise", "code line stride of 63 bytes", "at least 64");
    MXQ_REFUSED(set(q, 0, 63, 0, 0), invalid, "code expert stride of 63 bytes", "at least 64");
    MXQ_REFUSED(set(two, 0, 512, 0, 0), invalid, "code_expert is 512", "2 dimensions", "mxq_tensor_create_3d");
    MXQ_REFUSED(set(two, 0, 0, 0, 16), invalid, "scale_expert is 16", "2 dimensions");
    CHECK(strides_of(q, rowwise) == Four{0, 0, 0, 0});

    // Scales are those of the scaling that the tensor has, before or after.
    MXQ_REFUSED(set(q, 0, 0, 1, 0), invalid, "scale line stride of 1 bytes", "at least 2", "mxq_tensor_set_strides");
    ok(mxq_tensor_set_scaling(q, MXQ_SCALING_1X128));
    ok(set(q, 0, 0, 1, 0));
    MXQ_REFUSED(mxq_tensor_set_scaling(q, MXQ_SCALING_1X32), invalid, "scale line stride of 1 bytes", "at least 2");
    MXQ_REFUSED(mxq_tensor_set_swizzled(q, 1), invalid, "scale line stride of 1 bytes", "swizzled scales do not have");
    ok(set(q, 0, 0, 0, 0));
    ok(mxq_tensor_set_swizzled(q, 1));
    MXQ_REFUSED(set(q, 0, 0, 4, 0), invalid, "swizzled scales do not have", "expected 0");
    MXQ_REFUSED(set(q, 0, 0, 0, 511), invalid, "scale expert stride of 511 bytes", "at least 512");

    MXQ_REFUSED(set(fp8, 0, 0, 32, 0), invalid, "tensor scales do not have", "mxq_tensor_set_scaling");
    ok(mxq_tensor_set_scaling(fp8, MXQ_SCALING_ROW));
    MXQ_REFUSED(set(fp8, 0, 0, 6, 0), invalid, "scale line stride of 6 bytes", "multiple of 4");
    ok(mxq_tensor_set_scaling(fp8, MXQ_SCALING_TENSOR));
    MXQ_REFUSED(set(fp8, 0, 0, 8, 0), invalid, "tensor scales do not have");
    MXQ_REFUSED(set(fp8, 0, 0, 0, 8), invalid, "one scale for all experts and an expert stride", "MXQ_SCOPE_EXPERT first");
    ok(mxq_tensor_set_scope(fp8, MXQ_SCOPE_EXPERT));
    ok(set(fp8, 0, 0, 0, 8));
    MXQ_REFUSED(mxq_tensor_set_scope(fp8, MXQ_SCOPE_TENSOR), invalid, "one scale for all experts and an expert stride");
    CHECK(sizes_of(fp8, rowwise).second == 2 * 8 + 4);

    // Groups, in either order.
    ok(set(two, 70, 0, 0, 0));
    MXQ_REFUSED(testing::set_ends(two, nullptr, MXQ_TYPE_INT32, 2), invalid, "groups and strides of its rowwise part",
                "mxq_tensor_set_strides");
    ok(set(two, 0, 0, 0, 0));
    ok(testing::set_ends(two, nullptr, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(set(two, 70, 0, 0, 0), invalid, "groups and strides");
}

TEST_CASE("apart: a list of experts, its getter, and what replaces it", "[cpu]") {
    auto q = experts_of(MXQ_FORMAT_MXFP8_E4M3), two = matrix_of(MXQ_FORMAT_MXFP8_E4M3), plain = experts_of(MXQ_FORMAT_BF16);
    const void *codes[3] = {}, *scales[3] = {};
    const auto list = [&](mxq_tensor* t, int64_t count) {
        return mxq_tensor_set_part_list(t, rowwise, count, codes, 512, scales, 16);
    };
    const auto got = [&](int32_t part) {
        int64_t count = -1;
        const void *const *of_codes = codes, *const *of_scales = codes;
        uint64_t code_bytes = 1, scale_bytes = 1;
        ok(mxq_tensor_get_part_list(q, part, &count, &of_codes, &code_bytes, &of_scales, &scale_bytes));
        return std::tuple(count, of_codes, code_bytes, of_scales, scale_bytes);
    };
    const std::tuple<int64_t, const void* const*, uint64_t, const void* const*, uint64_t> none{0, nullptr, 0, nullptr, 0};
    const auto is_listed = [&] { return got(rowwise) != none; };
    CHECK(got(rowwise) == none);
    MXQ_REFUSED(list(nullptr, 3), invalid, "mxq_tensor_set_part_list", "tensor is NULL");
    MXQ_REFUSED(list(plain, 3), invalid, "bf16", "mxq_tensor_set_data_list");
    MXQ_REFUSED(list(two, 1), invalid, "2 dimensions", "mxq_tensor_set_part");
    MXQ_REFUSED(list(q, 2), invalid, "count is 2, expected 3", "an address for each");
    MXQ_REFUSED(mxq_tensor_set_part_list(q, rowwise, 3, nullptr, 512, scales, 16), invalid, "codes is NULL with 512 bytes",
                "was it allocated");
    MXQ_REFUSED(mxq_tensor_set_part_list(q, rowwise, 3, codes, 512, nullptr, 16), invalid, "scales is NULL with 16 bytes");
    CHECK(got(rowwise) == none);
    MXQ_REFUSED(mxq_tensor_set_part_list(q, MXQ_PART_BOTH, 3, codes, 512, scales, 16), invalid, "part is 3");
    MXQ_REFUSED(mxq_tensor_get_part_list(plain, rowwise, nullptr, nullptr, nullptr, nullptr, nullptr), invalid, "bf16");

    ok(list(q, 3));
    CHECK(got(rowwise) ==
          std::tuple<int64_t, const void* const*, uint64_t, const void* const*, uint64_t>(3, codes, 512, scales, 16));
    CHECK(got(columnwise) == none);
    CHECK(sizes_of(q, rowwise) == std::pair<uint64_t, uint64_t>(512, 16));
    CHECK(sizes_of(q, columnwise) == std::pair<uint64_t, uint64_t>(3 * 512, 3 * 64));
    CHECK(described(q) == "mxfp8_e4m3 3 x 8 x 64 1x32 rowwise listed");
    int32_t declared = 0, is_const = 0;
    void* pointer = codes;
    ok(mxq_tensor_get_part(q, rowwise, &declared, &pointer, nullptr, nullptr, nullptr, &is_const));
    CHECK(std::tuple(declared, pointer, is_const) == std::tuple<int32_t, void*, int32_t>(1, nullptr, 1));
    ok(mxq_tensor_set_strides(q, rowwise, 80, 0, 3, 0));
    CHECK(sizes_of(q, rowwise) == std::pair<uint64_t, uint64_t>(7 * 80 + 64, 7 * 3 + 2));
    MXQ_REFUSED(mxq_tensor_set_strides(q, rowwise, 0, 1000, 0, 0), invalid, "a list of experts and an expert stride");
    ok(mxq_tensor_set_strides(q, columnwise, 0, 1000, 0, 0));
    MXQ_REFUSED(mxq_tensor_set_part_list(q, columnwise, 3, codes, 512, scales, 64), invalid,
                "a list of experts and an expert stride");

    uint64_t total = 0;
    ok(mxq_tensor_set_strides(q, rowwise, 0, 0, 0, 0));
    ok(mxq_tensor_total_bytes(q, rowwise, &total));
    CHECK(total == 1536 + 256);  // of all experts, which a block of memory has in one piece
    alignas(256) static uint8_t memory[1536 + 256];
    ok(mxq_tensor_set_memory(q, rowwise, memory, sizeof memory));
    CHECK_FALSE(is_listed());
    CHECK(sizes_of(q, rowwise).first == 3 * 512);
    for (const auto replace : {+[](mxq_tensor* t) { return mxq_tensor_set_part(t, rowwise, nullptr, 0, nullptr, 0); },
                               +[](mxq_tensor* t) { return mxq_tensor_set_const_part(t, rowwise, nullptr, 0, nullptr, 0); },
                               +[](mxq_tensor* t) { return mxq_tensor_clear_part(t, rowwise); }}) {
        ok(list(q, 3));
        CHECK(is_listed());
        ok(replace(q));
        CHECK_FALSE(is_listed());
    }
}

namespace {

// A product of groups of 8 rows with experts of weights in one piece, on a CPU. `b` has no memory yet.
struct Product {
    Product() : values(4096, 0), ends{4, 6, 8} {
        ok(testing::set_ends(a, ends, MXQ_TYPE_INT32, 3));
        ok(mxq_tensor_set_part(a, rowwise, &values[0], 512, &values[512], 16));
        ok(mxq_tensor_set_data(d, &values[1024], 8 * 8 * 4));
    }
    mxq_status run() const { return mxq_grouped_gemm(testing::cpu().context, nullptr, a, b, d, nullptr, 0, nullptr); }
    mxq_status query() const { return mxq_grouped_gemm_query(testing::cpu().context, nullptr, a, b, d, nullptr); }

    testing::Bytes values;
    int32_t ends[3];
    testing::Tensor a = matrix_of(MXQ_FORMAT_MXFP8_E4M3), b = experts_of(MXQ_FORMAT_MXFP8_E4M3),
                    d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8, 8});
};

}  // namespace

TEST_CASE("apart: verbs check every address of a list", "[cpu]") {
    Product p;
    alignas(256) static uint8_t weights[3 * 512], scale_bytes[3 * 16];
    const void *codes[] = {weights, weights + 512, weights + 1024},
               *scales[] = {scale_bytes, scale_bytes + 16, scale_bytes + 32};
    const auto list = [&](uint64_t code_bytes, uint64_t bytes_of_scales) {
        ok(mxq_tensor_set_part_list(p.b, rowwise, 3, codes, code_bytes, scales, bytes_of_scales));
    };
    ok(mxq_tensor_set_part_list(p.b, rowwise, 3, nullptr, 0, nullptr, 0));
    CHECK(p.query() == MXQ_STATUS_OK);
    MXQ_REFUSED(p.run(), missing, "the array of addresses of b.rowwise.codes is NULL, expected 24 bytes",
                "mxq_tensor_set_part_list");
    list(512, 16);
    CHECK(p.run() == MXQ_STATUS_OK);
    list(511, 16);
    MXQ_REFUSED(p.run(), MXQ_STATUS_BUFFER_TOO_SMALL,
                "b.rowwise.codes holds 511 bytes at each address, expected at least 512");
    MXQ_REFUSED(p.query(), MXQ_STATUS_BUFFER_TOO_SMALL, "511");
    list(512, 15);
    MXQ_REFUSED(p.run(), MXQ_STATUS_BUFFER_TOO_SMALL, "b.rowwise.scales (compact) holds 15 bytes");
    list(512, 16);
    codes[1] = nullptr;
    MXQ_REFUSED(p.run(), missing, "b.rowwise.codes[1] is NULL, expected the address of 512 bytes",
                "the array that mxq_tensor_set_part_list got");
    CHECK(p.query() == MXQ_STATUS_OK);  // which reads no memory
    codes[1] = weights;                 // experts may share memory, which is only read
    CHECK(p.run() == MXQ_STATUS_OK);
    codes[2] = &p.values[1023];
    MXQ_REFUSED(p.run(), invalid, "d.data overlaps b.rowwise.codes[2]", "memory of their own");
    codes[2] = &p.values[1024 - 512];
    CHECK(p.run() == MXQ_STATUS_OK);  // beside a's scales
    scales[0] = &p.values[1024 + 255];
    MXQ_REFUSED(p.run(), invalid, "d.data overlaps b.rowwise.scales (compact)[0]");
    scales[0] = scale_bytes;
    ok(mxq_tensor_set_part_list(p.b, rowwise, 3, reinterpret_cast<const void* const*>(&p.values[1]), 512, scales, 16));
    MXQ_REFUSED(p.run(), MXQ_STATUS_MISALIGNED, "the array of addresses of b.rowwise.codes is at",
                "multiple of 8 bytes, the size of an address; move it");
    ok(mxq_tensor_set_part_list(p.b, rowwise, 3, reinterpret_cast<const void* const*>(&p.values[1024]), 512, scales, 16));
    std::memcpy(&p.values[1024], codes, sizeof codes);
    MXQ_REFUSED(p.run(), invalid, "d.data overlaps the array of addresses of b.rowwise.codes");
    list(512, 16);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there.
    codes[2] = reinterpret_cast<const void*>(UINTPTR_MAX - 255);
    MXQ_REFUSED(p.run(), invalid, "b.rowwise.codes[2] is at", "past the end of the address space");

    Product fp8;
    fp8.a = matrix_of(MXQ_FORMAT_FP8_E4M3), fp8.b = experts_of(MXQ_FORMAT_FP8_E4M3);
    ok(testing::set_ends(fp8.a, fp8.ends, MXQ_TYPE_INT32, 3));
    ok(mxq_tensor_set_part(fp8.a, rowwise, &fp8.values[0], 512, &fp8.values[512], 4));
    codes[2] = weights;
    const void* floats[] = {scale_bytes, scale_bytes + 4, scale_bytes + 2};
    MXQ_REFUSED(mxq_tensor_set_part_list(fp8.b, rowwise, 3, codes, 512, floats, 4), invalid,
                "tensor.rowwise has one scale for all experts and a list of experts", "MXQ_SCOPE_EXPERT first");
    ok(mxq_tensor_set_scope(fp8.b, MXQ_SCOPE_EXPERT));
    ok(mxq_tensor_set_part_list(fp8.b, rowwise, 3, codes, 512, floats, 4));
    MXQ_REFUSED(fp8.run(), MXQ_STATUS_MISALIGNED, "b.rowwise.scales (compact)[2]", "multiple of 4");
    floats[2] = scale_bytes + 8;
    CHECK(fp8.run() == MXQ_STATUS_OK);
}

TEST_CASE("apart: an output may lie in the gaps of an operand, and not in its lines", "[cpu]") {
    testing::Bytes memory(8 * 256);
    auto a = matrix_of(MXQ_FORMAT_MXFP8_E4M3), d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8, 8});
    testing::Bytes scales(16);
    const auto run = [&](int64_t code_line, int64_t offset) {
        ok(mxq_tensor_set_strides(a, rowwise, code_line, 0, 0, 0));
        ok(mxq_tensor_set_part(a, rowwise, memory.data(), static_cast<uint64_t>(7 * code_line + 64), scales.data(),
                               scales.size()));
        ok(mxq_tensor_set_row_stride(d, 64));  // 256 bytes
        ok(mxq_tensor_set_data(d, memory.data() + offset, 7 * 256 + 32));
        return mxq_gemm(testing::cpu().context, nullptr, a, a, d, nullptr, 0, nullptr);
    };
    CHECK(run(256, 64) == MXQ_STATUS_OK);
    CHECK(run(256, 224) == MXQ_STATUS_OK);
    MXQ_REFUSED(run(256, 60), invalid, "d.data overlaps a.rowwise.codes");
    MXQ_REFUSED(run(128, 64), invalid, "d.data overlaps a.rowwise.codes");

    ok(mxq_tensor_set_strides(a, rowwise, 1000, 0, 0, 0));  // 100 was meant
    MXQ_REFUSED(mxq_gemm_query(testing::cpu().context, nullptr, a, a, d, nullptr), MXQ_STATUS_BUFFER_TOO_SMALL,
                "expected at least 7064 for rows of 64 bytes every 1000");

    // Experts with a gap between them.
    Product p;
    testing::Bytes experts(3 * 1024), of_scales(48);
    ok(mxq_tensor_set_strides(p.b, rowwise, 0, 1024, 0, 0));
    ok(mxq_tensor_set_part(p.b, rowwise, experts.data(), 2 * 1024 + 512, of_scales.data(), of_scales.size()));
    ok(mxq_tensor_set_data(p.d, experts.data() + 512, 256));
    MXQ_REFUSED(p.run(), invalid, "d.data overlaps b.rowwise.codes");  // rows of other strides are not told apart
    ok(mxq_tensor_set_data(p.d, experts.data() + 2 * 1024 + 512, 256));
    CHECK(p.run() == MXQ_STATUS_OK);
}

TEST_CASE("apart: no verb writes a part that lies apart", "[cpu]") {
    mxq_context* const context = testing::cpu().context;
    auto x = experts_of(MXQ_FORMAT_F32), q = experts_of(MXQ_FORMAT_MXFP8_E4M3), from = experts_of(MXQ_FORMAT_MXFP8_E4M3),
         swizzled = experts_of(MXQ_FORMAT_MXFP8_E4M3);
    ok(mxq_tensor_set_swizzled(swizzled, 1));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(q), static_cast<mxq_tensor*>(swizzled)}) {
        ok(mxq_tensor_set_strides(tensor, rowwise, 100, 0, 0, 0));
        ok(mxq_tensor_set_part(tensor, rowwise, nullptr, 0, nullptr, 0));
    }
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, x, q, nullptr), unsupported, "out.rowwise has strides",
                "mxq_tensor_set_strides");
    MXQ_REFUSED(mxq_requantize_query(context, nullptr, from, q, nullptr), unsupported, "out.rowwise has strides");
    MXQ_REFUSED(mxq_swizzle_scales_query(context, nullptr, from, swizzled, nullptr), unsupported, "out.rowwise has strides");
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(q), static_cast<mxq_tensor*>(swizzled)}) {  // what a query assumes
        ok(mxq_tensor_clear_part(tensor, rowwise));
        ok(mxq_tensor_set_strides(tensor, rowwise, 100, 0, 0, 0));
    }
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, x, q, nullptr), unsupported, "out.rowwise has strides");
    testing::Bytes values(3 * 8 * 64 * 4);
    ok(mxq_tensor_set_data(x, values.data(), values.size()));
    MXQ_REFUSED(mxq_quantize(context, nullptr, x, q, nullptr, 0, nullptr), unsupported, "out.rowwise has strides");
    MXQ_REFUSED(mxq_swizzle_scales_query(context, nullptr, from, swizzled, nullptr), unsupported, "out.rowwise has strides");
    MXQ_REFUSED(mxq_swizzle_scales(context, nullptr, from, swizzled, nullptr, 0, nullptr), unsupported,
                "out.rowwise has strides");
    CHECK(mxq_dequantize_query(context, nullptr, q, x, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_unswizzle_scales_query(context, nullptr, swizzled, from, nullptr) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_strides(q, rowwise, 0, 0, 0, 0));
    ok(mxq_tensor_set_part_list(q, rowwise, 3, nullptr, 0, nullptr, 0));
    MXQ_REFUSED(mxq_quantize_query(context, nullptr, x, q, nullptr), invalid, "out.rowwise is a list of experts",
                "mxq_tensor_set_part");
    ok(mxq_tensor_set_strides(swizzled, rowwise, 0, 0, 0, 0));
    MXQ_REFUSED(mxq_swizzle_scales_query(context, nullptr, q, swizzled, nullptr), unsupported,
                "in.rowwise is a list of experts", "mxq_tensor_set_part");
    ok(mxq_tensor_set_part(swizzled, rowwise, nullptr, 0, nullptr, 0));
    MXQ_REFUSED(mxq_swizzle_scales(context, nullptr, q, swizzled, nullptr, 0, nullptr), unsupported,
                "in.rowwise is a list of experts");
}

MXQ_EACH_DEVICE("apart: implementations that need one piece decline by name") {
    if (device.is_cpu()) return;
    auto x = experts_of(MXQ_FORMAT_F32), q = experts_of(MXQ_FORMAT_MXFP8_E4M3);
    ok(mxq_tensor_set_part_list(q, rowwise, 3, nullptr, 0, nullptr, 0));
    MXQ_REFUSED(mxq_dequantize_query(device.context, nullptr, q, x, nullptr), unsupported, "dequantize_rowwise",
                "needs contiguous experts");
    ok(mxq_tensor_set_part(q, rowwise, nullptr, 0, nullptr, 0));
    ok(mxq_tensor_set_strides(q, rowwise, 100, 0, 0, 0));
    MXQ_REFUSED(mxq_dequantize_query(device.context, nullptr, q, x, nullptr), unsupported, "dequantize_rowwise",
                "found strides");
}
