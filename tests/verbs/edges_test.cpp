// Tests just beyond a limit: buffers that share one byte, a tensor whose bytes a 64-bit number cannot
// count, an instruction set below the machine's, parts of different amaxes, groups without rows, products beyond fp32's
// range, a NaN among numbers.
#include "../cases.h"
#include "../formats.h"
#include "../abi/says.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

constexpr int64_t rows = 32, cols = 64, codes = rows * cols, numbers = codes * 4, scales = codes / 32;

uint8_t* byte(const Buffer& buffer, int64_t at) { return static_cast<uint8_t*>(buffer.data()) + at; }

// Quantizes an F32 input to the rowwise part of `spec`, both in one buffer.
struct SharedBuffer {
    SharedBuffer(testing::Device& device, const oracle::Spec& spec)
        : device(device),
          memory(device, static_cast<size_t>(numbers + codes + 256)),
          scale_memory(device, scales),
          in(testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, cols})),
          out(testing::make_quantized(spec, {std::nullopt, rows, cols}, false)) {}
    mxq_status quantize(int64_t in_at, int64_t codes_at) {
        ok(mxq_tensor_set_data(in, byte(memory, in_at), numbers));
        ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, byte(memory, codes_at), codes, scale_memory.data(),
                               scale_memory.bytes()));
        return mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr);
    }

    testing::Device& device;
    Buffer memory, scale_memory;
    testing::Tensor in, out;
};

// Returns a context as if the machine had nothing better than `isa`.
testing::Context context_under(const char* isa) {
    setenv("MXQ_CPU_ISA", isa, 1);
    testing::Context context = testing::cpu_context(1);
    unsetenv("MXQ_CPU_ISA");
    return context;
}

std::string description_under(const char* isa) { return mxq_context_description(context_under(isa)); }

}  // namespace

MXQ_EACH_DEVICE("edges: buffers may touch, but not share a byte") {
    SharedBuffer shared(device, {});
    MXQ_REFUSED(shared.quantize(0, numbers - 1), MXQ_STATUS_INVALID_ARGUMENT, "out.rowwise.codes overlaps in.data");
    MXQ_REFUSED(shared.quantize(codes, 1), MXQ_STATUS_INVALID_ARGUMENT, "out.rowwise.codes overlaps in.data");
    CHECK(shared.memory.untouched());
    CHECK(shared.scale_memory.untouched());
    CHECK(shared.quantize(0, numbers) == MXQ_STATUS_OK);
    CHECK(shared.quantize(codes, 0) == MXQ_STATUS_OK);
}

// A (8 x 16) and D (8 x 4) are columns of one BF16 buffer with rows of 32 elements; B^T is the identity's first 4 rows.
MXQ_EACH_DEVICE("edges: columns of one buffer beside each other share no byte") {
    constexpr int64_t lines = 8, depth = 16, width = 4, stride = 32;
    Bytes b_bytes(static_cast<size_t>(width * depth * 2), 0);
    for (size_t i = 0; i < width; ++i) b_bytes[2 * (i * depth + i)] = 0x80, b_bytes[2 * (i * depth + i) + 1] = 0x3F;  // 1.0
    Bytes content(static_cast<size_t>((lines + 1) * stride * 2));
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<uint8_t>(i % 2 ? 0x40 : i / 2 % 128);
    const Buffer b_data(device, b_bytes);
    const auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, lines, depth}), b = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, width, depth}),
               d = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, lines, width});
    ok(mxq_tensor_set_data(b, b_data.data(), b_data.bytes()));
    ok(mxq_tensor_set_row_stride(a, stride));
    const auto place = [&](const Buffer& memory, int64_t a_column, int64_t d_column, int64_t d_stride) {
        ok(mxq_tensor_set_row_stride(d, d_stride));
        ok(mxq_tensor_set_data(a, byte(memory, 2 * a_column), uint64_t(2 * ((lines - 1) * stride + depth))));
        ok(mxq_tensor_set_data(d, byte(memory, 2 * d_column), uint64_t(2 * ((lines - 1) * d_stride + width))));
    };
    const auto multiply = [&](const Buffer& memory, int64_t a_column, int64_t d_column) {
        place(memory, a_column, d_column, stride);
        testing::Plan plan;
        ok(mxq_gemm_query(device.context, nullptr, a, b, d, plan.out()));
        Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        return mxq_gemm(device.context, nullptr, a, b, d, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr);
    };
    int ran = 0;
    for (const auto& [a_column, d_column] : {std::pair{0, 16}, {4, 0}, {8, 24}, {16, 12}, {0, 28}, {16, 32}}) {
        Buffer memory(device, content);
        CAPTURE(a_column, d_column);
        REQUIRE(multiply(memory, a_column, d_column) == MXQ_STATUS_OK);
        Bytes expected = content;
        for (int64_t row = 0; row < lines; ++row)
            for (int64_t at = 0; at < 2 * width; ++at)
                expected[static_cast<size_t>(2 * (row * stride + d_column) + at)] = content[static_cast<size_t>(2 * (row * stride + a_column) + at)];
        CHECK(testing::difference(memory.read(), expected) == "");
        ++ran;
    }
    CHECK(ran == 6);
    const Buffer memory(device, content);
    const auto refused = [&](int64_t a_column, int64_t d_column, int64_t d_stride) {
        place(memory, a_column, d_column, d_stride);
        return testing::refusal(mxq_gemm_query(device.context, nullptr, a, b, d, nullptr), MXQ_STATUS_INVALID_ARGUMENT, {"d.data overlaps a.data"});
    };
    CHECK(refused(0, 15, stride) == "");      // D's first column is A's last
    CHECK(refused(4, 1, stride) == "");       // D's last column is A's first
    CHECK(refused(0, 29, stride) == "");      // D's last column lies in the next row of A
    CHECK(refused(16, 47, stride) == "");     // the same, with a gap before A's first column
    CHECK(refused(0, 16, stride - 1) == "");  // rows that move through those of A
    CHECK(memory.read() == content);
}

MXQ_EACH_DEVICE("edges: the amax of fp8 lies in the input") {
    SharedBuffer shared(device, testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR));
    ok(mxq_tensor_set_amax(shared.out, MXQ_PART_ROWWISE, reinterpret_cast<float*>(byte(shared.memory, numbers - 4)), 4));
    MXQ_REFUSED(shared.quantize(0, numbers), MXQ_STATUS_INVALID_ARGUMENT, "out.rowwise.amax overlaps in.data");
    CHECK(shared.memory.untouched());
}

MXQ_EACH_DEVICE("edges: two experts need two quantization scales") {
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    const testing::Dims dims{2, rows, cols};
    Buffer data(device, Bytes(2 * numbers, 0)), factors(device, testing::bytes_of({1.0f, 2.0f}));
    const auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_quantized(spec, dims, false);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    ok(mxq_tensor_set_scope(out, MXQ_SCOPE_EXPERT));
    const testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
    const auto quantize = [&](uint64_t bytes) {
        ok(mxq_tensor_set_quantization_scale(out, static_cast<const float*>(factors.data()), bytes));
        return mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr);
    };
    MXQ_REFUSED(quantize(4), MXQ_STATUS_BUFFER_TOO_SMALL, "out.quantization_scale holds 4 bytes, expected at least 8");
    CHECK(part.codes->untouched());
    CHECK(quantize(8) == MXQ_STATUS_OK);
}

TEST_CASE("edges: scales stay swizzled, whichever is set last, that or the scaling") {
    const auto first = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, rows, cols});
    const auto last = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, rows, cols});
    ok(mxq_tensor_set_swizzled(first, 1));
    ok(mxq_tensor_set_scaling(first, MXQ_SCALING_32X32));
    ok(mxq_tensor_set_scaling(last, MXQ_SCALING_32X32));
    ok(mxq_tensor_set_swizzled(last, 1));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(first), static_cast<mxq_tensor*>(last)}) {
        uint64_t bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, nullptr, &bytes));
        CHECK(bytes == 512);
    }
}

TEST_CASE("edges: the bytes of a plain tensor are fewer than 2^63") {
    const auto tensor = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 16385, 1});  // 2^64 + 4 bytes
    ok(mxq_tensor_set_row_stride(tensor, int64_t(1) << 48));
    uint64_t bytes = 0;
    MXQ_REFUSED(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "2^63");
    ok(mxq_tensor_set_row_stride(tensor, int64_t(1) << 46));
    ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
    CHECK(bytes == (uint64_t(1) << 62) + 4);
}

TEST_CASE("edges: a context tells the instruction set that it uses", "[cpu]") {
    const auto ends_with = [](const std::string& text, const std::string& end) {
        return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
    };
    CHECK(ends_with(description_under("scalar"), ", scalar"));
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
    CHECK(ends_with(description_under("avx2"), avx2 ? ", avx2" : ", scalar"));
    const bool avx512bw = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    const bool avx512 = avx512bw && __builtin_cpu_supports("avx512vbmi");
    const bool avx512bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
    const std::string below = avx2 ? ", avx2" : ", scalar", with_bw = avx512bw ? ", avx512bw" : below;
    const std::string with_vbmi = avx512 ? ", avx512" : with_bw;
    CHECK(ends_with(description_under("avx512bw"), with_bw));
    CHECK(ends_with(description_under("avx512"), with_vbmi));
    CHECK(ends_with(description_under("avx512bf16"), avx512bf16 ? ", avx512bf16" : with_vbmi));
    const bool has_slow_dots = __builtin_cpu_is("intel");
    CHECK(ends_with(description_under(""), avx512bf16 && !has_slow_dots ? ", avx512bf16" : with_vbmi));
#endif
}

MXQ_EACH_DEVICE("edges: parts of different amaxes have codes of their own") {
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16);
    const testing::Dims dims{std::nullopt, rows, cols};
    Buffer data(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, codes, 7));
    Buffer amaxes(device, testing::bytes_of({8.0f, 3.0f}));
    const auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_compute_amax(options, 0));
    std::vector<Bytes> columnwise;
    for (bool with_rowwise : {false, true}) {
        const auto out = testing::make_quantized(spec, dims, false);
        const testing::PartBuffers column(device, out, MXQ_PART_COLUMNWISE), row(device, out, MXQ_PART_ROWWISE);
        ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, static_cast<float*>(amaxes.data()), 4));
        ok(mxq_tensor_set_amax(out, MXQ_PART_COLUMNWISE, static_cast<float*>(amaxes.data()) + 1, 4));
        if (!with_rowwise) ok(mxq_tensor_clear_part(out, MXQ_PART_ROWWISE));
        ok(mxq_quantize(device.context, options, in, out, nullptr, 0, nullptr));
        columnwise.push_back(column.codes->read());
    }
    CHECK(testing::difference(columnwise[1], columnwise[0]) == "");
}

MXQ_EACH_DEVICE("edges: groups without rows have the scale of their tensor") {
    Buffer ends(device, Bytes(8, 0));
    Buffer in_scale(device, testing::bytes_of({0.5f})), out_scale(device, 4);
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    const auto in = testing::make_quantized(spec, {std::nullopt, 0, cols}, false);
    const auto out = testing::make_quantized(spec, {std::nullopt, 0, cols}, false);
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(in), static_cast<mxq_tensor*>(out)})
        ok(testing::set_ends(tensor, ends.data(), MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_group_alignment(out, 16, 0));
    ok(mxq_tensor_set_part(in, MXQ_PART_ROWWISE, nullptr, 0, in_scale.data(), 4));
    ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, nullptr, 0, out_scale.data(), 4));
    ok(mxq_pad_groups(device.context, nullptr, in, out, nullptr, 0, nullptr));
    CHECK(testing::difference(out_scale.read(), in_scale.read()) == "");
}

namespace {

// Checks every sum of `count` rows of A and one of B under each instruction set. Returns how many of these ran.
int check_sums(mxq_tensor* a, mxq_tensor* b, size_t count, float expected) {
    const auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, static_cast<int64_t>(count), 1});
    int ran = 0;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"}) {
        INFO(isa << ", " << count << " rows");
        oracle::Floats sums(count, 0.0f);
        ok(mxq_tensor_set_data(d, sums.data(), 4 * count));
        ok(mxq_gemm(context_under(isa), nullptr, a, b, d, nullptr, 0, nullptr));
        CHECK(sums == oracle::Floats(count, expected));
        ++ran;
    }
    return ran;
}

}  // namespace

// 2^64 * 2^64 is Inf before it is added to -1.875 * 2^127, in another lane beside few rows; one rounding of both would give
// 2^124. One row, a few and many have kernels of their own.
TEST_CASE("edges: a product beyond fp32's range is Inf on every instruction set", "[cpu]") {
    int ran = 0;
    for (const int64_t rows : {1, 5, 33}) {
        const auto count = static_cast<size_t>(rows);
        Bytes a_codes(32 * count, 0), b_codes(32, 0), scales(count, 127 + 64);
        for (size_t row = 0; row < count; ++row) a_codes[32 * row] = 0x3F, a_codes[32 * row + 1] = 0x38;  // 1.875, 1
        b_codes[0] = 0xB0, b_codes[1] = 0x38;                                                          // -0.5, 1
        const auto a = testing::make_quantized({}, {std::nullopt, rows, 32}, false),
                   b = testing::make_quantized({}, {std::nullopt, 1, 32}, false);
        ok(mxq_tensor_set_part(a, MXQ_PART_ROWWISE, a_codes.data(), a_codes.size(), scales.data(), count));
        ok(mxq_tensor_set_part(b, MXQ_PART_ROWWISE, b_codes.data(), 32, scales.data(), 1));
        ran += check_sums(a, b, count, std::numeric_limits<float>::infinity());
    }
    CHECK(ran == 15);
}

namespace {

constexpr int64_t kInexactDepth = 128;

// Multiplies 1.125 + 2^-23 by -1 and 1 + 2^-23 by 1.125 with `b`, whose first number is 1 and whose others are 1.125: 2^-26
// is left where the second product is added with one rounding, nothing where it has one of its own. Returns beside how many
// of the places of the second product the former is so, or -1 where anything else is left.
int count_fused(const char* isa, mxq_tensor* b, size_t rows) {
    const auto dims = static_cast<int64_t>(rows);
    const oracle::Floats one_rounding(rows, 0x1p-26f), two_roundings(rows, 0.0f);
    int fused = 0;
    for (size_t second = 1; second < kInexactDepth; ++second) {
        oracle::Floats numbers(rows * kInexactDepth, 0.0f), sums(rows, -1.0f);
        for (size_t row = 0; row < rows; ++row) {
            numbers[row * kInexactDepth] = -1.125f - 0x1p-23f;
            numbers[row * kInexactDepth + second] = 1 + 0x1p-23f;
        }
        const auto a = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, dims, kInexactDepth}),
                   d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, dims, 1});
        ok(mxq_tensor_set_data(a, numbers.data(), 4 * numbers.size()));
        ok(mxq_tensor_set_data(d, sums.data(), 4 * sums.size()));
        ok(mxq_gemm(context_under(isa), nullptr, a, b, d, nullptr, 0, nullptr));
        if (sums != one_rounding && sums != two_roundings) return -1;
        fused += sums == one_rounding;
    }
    return fused;
}

}  // namespace

// One rounding needs a lane that sums both products, the first one first: of numbers 0 to 127 seven follow number 0 in its
// lane, of BF16 ones and codes of eight bits six, since number 1 comes before number 0, and of codes in a block of 32 two.
TEST_CASE("edges: an inexact product of few rows is added with one rounding on every instruction set", "[cpu]") {
    Bytes codes(kInexactDepth, 0x39), scales(kInexactDepth / 32, 127);
    oracle::Floats weights(kInexactDepth, 1.125f), scale(1, 1.0f);
    codes[0] = 0x38, weights[0] = 1;
    std::vector<uint16_t> halves(kInexactDepth, 0x3C80), brains(kInexactDepth, 0x3F90);
    halves[0] = 0x3C00, brains[0] = 0x3F80;
    const auto f32 = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, kInexactDepth}),
               f16 = testing::make_tensor(MXQ_FORMAT_F16, {std::nullopt, 1, kInexactDepth}),
               bf16 = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 1, kInexactDepth});
    const auto fp8 = testing::make_quantized(testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR),
                                             {std::nullopt, 1, kInexactDepth}, false);
    const auto mxfp8 = testing::make_quantized({}, {std::nullopt, 1, kInexactDepth}, false);
    ok(mxq_tensor_set_data(f32, weights.data(), 4 * weights.size()));
    ok(mxq_tensor_set_data(f16, halves.data(), 2 * halves.size()));
    ok(mxq_tensor_set_data(bf16, brains.data(), 2 * brains.size()));
    ok(mxq_tensor_set_part(fp8, MXQ_PART_ROWWISE, codes.data(), codes.size(), scale.data(), 4));
    ok(mxq_tensor_set_part(mxfp8, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(), scales.size()));
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"})
        for (const size_t rows : {1, 2, 4, 5, 9, 32}) {
            INFO(isa << ", " << rows << " rows");
            CHECK(count_fused(isa, f32, rows) == 7);
            CHECK(count_fused(isa, f16, rows) == 7);
            CHECK(count_fused(isa, bf16, rows) == 6);
            CHECK(count_fused(isa, fp8, rows) == 6);
            CHECK(count_fused(isa, mxfp8, rows) == 2);
        }
}

// The third block's sum of three products, 3 * 1.984375 * 2^63 * 448, is beyond fp32's range times its factor of 2^54, and
// within it when -1.984375 * 2^63 * 448 * 2^54 is there already. All four are products of one lane.
TEST_CASE("edges: a sum times its factor beyond fp32's range is added with one rounding on every instruction set", "[cpu]") {
    constexpr int64_t depth = 128;
    for (const mxq_format format : {MXQ_FORMAT_BF16, MXQ_FORMAT_F32})
        for (const int64_t rows : {1, 4, 9}) {
            const auto count = static_cast<size_t>(rows);
            Bytes codes(depth, 0x7E), scales(depth / 32, 127 + 54);
            std::vector<uint16_t> brains(count * depth);
            oracle::Floats numbers(count * depth);
            for (size_t row = 0; row < count; ++row)
                for (const size_t at : {0, 64, 72, 73}) {
                    brains[row * depth + at] = at == 0 ? 0xDF7E : 0x5F7E;
                    numbers[row * depth + at] = at == 0 ? -0x1.fcp63f : 0x1.fcp63f;
                }
            const auto a = testing::make_tensor(format, {std::nullopt, rows, depth});
            const auto b = testing::make_quantized({}, {std::nullopt, 1, depth}, false);
            if (format == MXQ_FORMAT_F32)
                ok(mxq_tensor_set_data(a, numbers.data(), 4 * numbers.size()));
            else
                ok(mxq_tensor_set_data(a, brains.data(), 2 * brains.size()));
            ok(mxq_tensor_set_part(b, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(), scales.size()));
            check_sums(a, b, count, 0x1.bc8p127f);
        }
}

// AVX2 decodes E4M3 to numbers that have no NaN, and looks for it: in the first unit of 128 codes before the others.
TEST_CASE("edges: a NaN code anywhere in a line of weights is found on every instruction set", "[cpu]") {
    constexpr int64_t lines = 5, depth = 384;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"})
        for (const int64_t rows : {1, 4, 9})
            for (const int64_t nan_line : {0, 3, 4})
                for (const int64_t position : {0, 130, 383}) {
                    INFO(isa << ", " << rows << " rows, line " << nan_line << ", code " << position);
                    Bytes codes(lines * depth, 0x38), scales(lines * depth / 32, 127);
                    codes[static_cast<size_t>(nan_line * depth + position)] = 0xFF;
                    std::vector<uint16_t> numbers(static_cast<size_t>(rows * depth), 0x3F80);  // 1
                    oracle::Floats sums(static_cast<size_t>(rows * lines), 0.0f);
                    const auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, depth}),
                               d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, lines});
                    const auto b = testing::make_quantized({}, {std::nullopt, lines, depth}, false);
                    ok(mxq_tensor_set_data(a, numbers.data(), 2 * numbers.size()));
                    ok(mxq_tensor_set_part(b, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(), scales.size()));
                    ok(mxq_tensor_set_data(d, sums.data(), 4 * sums.size()));
                    ok(mxq_gemm(context_under(isa), nullptr, a, b, d, nullptr, 0, nullptr));
                    size_t wrong = 0;
                    for (size_t i = 0; i < sums.size(); ++i)
                        wrong += static_cast<int64_t>(i) % lines == nan_line ? !std::isnan(sums[i]) : sums[i] != depth;
                    CHECK(wrong == 0);
                }
}

// -1.875 * 2^127 comes first, then 2^63 * 2^65, which is beyond fp32's range, is added with one rounding. Six rows and more
// take BF16 dot products where products stay in range.
TEST_CASE("edges: products of BF16 numbers beyond fp32's range are the same on every instruction set", "[cpu]") {
    int ran = 0;
    for (const int64_t rows : {1, 6}) {
        const auto count = static_cast<size_t>(rows);
        std::vector<uint16_t> a_numbers(2 * count, 0x5F00), b_numbers{0x6000, 0xDFF0};  // 2^63; 2^65, -1.875 * 2^64
        const auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, 2}),
                   b = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 1, 2});
        ok(mxq_tensor_set_data(a, a_numbers.data(), 4 * count));
        ok(mxq_tensor_set_data(b, b_numbers.data(), 4));
        ran += check_sums(a, b, count, 0x1p124f);
    }
    CHECK(ran == 10);
}
