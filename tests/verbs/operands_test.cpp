// The smallest operands that each show one rule: rows with gaps, a transform across padding, decode scales of experts and
// groups, sums below the normal range.
#include "../formats.h"
#include "../machine.h"
#include "product.h"

using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

const oracle::Spec nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
constexpr uint8_t scale_of_one = 0x38;  // an E4M3 scale of 1

// Returns codes of 1: of lines of 16, or columnwise of lines of one row, which groups pad to 16.
Bytes codes_of_one(size_t bytes, int32_t part, bool grouped) {
    if (part == MXQ_PART_ROWWISE) return Bytes(bytes, 0x22);
    Bytes codes(bytes, 0);
    for (size_t i = 0; i < bytes; i += grouped ? 8 : 1) codes[i] = 0x02;
    return codes;
}

// An NVFP4 part whose values are all 1 times the decode scale of their expert or group.
struct Ones {
    Ones(testing::Device& device, testing::Dims dims, int32_t part, const oracle::Floats& decode_scales,
         const testing::DeviceEnds* ends = nullptr)
        : tensor(testing::make_tensor(MXQ_FORMAT_NVFP4, dims)) {
        ok(mxq_tensor_set_scope(tensor, MXQ_SCOPE_EXPERT));
        if (ends) ends->set(tensor, {});
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes));
        codes = std::make_unique<Buffer>(device, codes_of_one(static_cast<size_t>(code_bytes), part, ends != nullptr));
        scales = std::make_unique<Buffer>(device, Bytes(static_cast<size_t>(scale_bytes), scale_of_one));
        decode = std::make_unique<Buffer>(device, testing::bytes_of(decode_scales));
        ok(mxq_tensor_set_part(tensor, part, codes->data(), codes->bytes(), scales->data(), scales->bytes()));
        ok(mxq_tensor_set_decode_scale(tensor, part, static_cast<const float*>(decode->data()), decode->bytes()));
    }
    testing::Tensor tensor;
    std::unique_ptr<Buffer> codes, scales, decode;
};

oracle::Floats dequantized(testing::Device& device, const Ones& in, testing::Dims dims) {
    auto out = testing::make_tensor(MXQ_FORMAT_F32, dims);
    Buffer data(device, dims.shape().count() * 4);
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in.tensor, out);
    return oracle::load(MXQ_FORMAT_F32, data.read().data(), dims.shape().count());
}

// `first` 16 times, then `second` 16 times.
oracle::Floats sixteen_each(float first, float second) {
    oracle::Floats out(16, first);
    out.resize(32, second);
    return out;
}

// Returns the bytes of D of a product (1, k) by (1, k) on the CPU. `across`: plain ones are (k, 1), under (T,N).
Bytes product_of_lines(const oracle::Spec& spec, const oracle::Part& a, const oracle::Part& b, int64_t k, int32_t format,
                       bool across = false) {
    const bool plain = !oracle::find_quantized(spec.format);
    const testing::Dims dims{std::nullopt, across ? k : 1, across ? 1 : k};
    auto x = testing::make_tensor(spec.format, dims), y = testing::make_tensor(spec.format, dims);
    Buffer x_codes(testing::cpu(), a.codes), y_codes(testing::cpu(), b.codes), x_scales(testing::cpu(), a.scales),
        y_scales(testing::cpu(), b.scales);
    if (plain) {
        ok(mxq_tensor_set_data(x, x_codes.data(), x_codes.bytes()));
        ok(mxq_tensor_set_data(y, y_codes.data(), y_codes.bytes()));
    } else {
        ok(mxq_tensor_set_part(x, MXQ_PART_ROWWISE, x_codes.data(), x_codes.bytes(), x_scales.data(), x_scales.bytes()));
        ok(mxq_tensor_set_part(y, MXQ_PART_ROWWISE, y_codes.data(), y_codes.bytes(), y_scales.data(), y_scales.bytes()));
    }
    testing::Output d(testing::cpu(), format, {std::nullopt, 1, 1}, 0);
    testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query,
                         across ? testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N)
                                : testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T),
                         x, y, d.tensor);
    return d.bytes();
}

float f32_product(const oracle::Floats& a, const oracle::Floats& b, bool across) {
    const oracle::Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);
    const Bytes d =
        product_of_lines(bf16, {oracle::store(MXQ_FORMAT_BF16, a), {}, {}, {}},
                         {oracle::store(MXQ_FORMAT_BF16, b), {}, {}, {}}, static_cast<int64_t>(a.size()), MXQ_FORMAT_F32, across);
    return oracle::load(MXQ_FORMAT_F32, d.data(), 1)[0];
}

}  // namespace

// Tensor cores align the product of a subnormal by its exponent field, as that of 2^-14, and lose what is small beside it. The
// first result is that of an H200.
MXQ_EACH_DEVICE("operands: subnormals of F16 count as 2^-14 on tensor cores") {
    const oracle::Floats a(2, -0x1p-23f), b{0x1.AAp-3f, -65504};
    const auto expected = oracle::product(a.data(), 2, b.data(), 2, 1, 1, 2);
    const double factor = oracle::class_factor(MXQ_BOUND_EXACT_PRODUCTS, 2);
    const auto check = [&](const std::string& name, float d) {
        return oracle::check_product(oracle::of_f16(expected, name), {d}, MXQ_FORMAT_F32, factor);
    };
    CHECK(check("mma_bf16", 0x1.FFCp-8f) == "");
    CHECK(check("cpu", 0x1.FFCp-8f) != "");
    CHECK(check("mma_bf16", 0x1.FEp-8f) != "");

    auto x = testing::make_tensor(MXQ_FORMAT_F16, {std::nullopt, 1, 2}), y = testing::make_tensor(MXQ_FORMAT_F16, {std::nullopt, 1, 2});
    Buffer x_data(device, oracle::store(MXQ_FORMAT_F16, a)), y_data(device, oracle::store(MXQ_FORMAT_F16, b));
    ok(mxq_tensor_set_data(x, x_data.data(), x_data.bytes()));
    ok(mxq_tensor_set_data(y, y_data.data(), y_data.bytes()));
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, 1, 1}, 0);
    const auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, x, y, d.tensor);
    CHECK(check(promise.implementation, d.values()[0]) == "");
}

// The contraction runs across the rows, and a group pads its rows with what is no number.
MXQ_EACH_DEVICE("operands: plain rows with gaps, and padding that is never read, contracted over rows") {
    int ran = 0;
    for (int32_t format : {MXQ_FORMAT_BF16, MXQ_FORMAT_F16}) {
        const int64_t rows = 3, m = 2, n = 5, stride = 8, alignment = 4;
        const testing::DeviceEnds ends(device, {1, 1, 3});
        const auto operand = [&](int64_t cols) {  // groups of rows 1, 0 and 2: padded to row 0 and rows 4, 5
            oracle::Floats x(static_cast<size_t>(12 * stride), NAN);
            for (int64_t row : {0, 4, 5})
                for (int64_t i = 0; i < cols; ++i) x[static_cast<size_t>(row * stride + i)] = row == 0 ? 1.0f : 2.0f;
            return std::make_unique<Buffer>(device, oracle::store(format, x));
        };
        const auto a_data = operand(m), b_data = operand(n);
        auto a = testing::make_tensor(format, {std::nullopt, rows, m}), b = testing::make_tensor(format, {std::nullopt, rows, n});
        for (auto [tensor, data] : {std::pair{static_cast<mxq_tensor*>(a), a_data.get()}, {static_cast<mxq_tensor*>(b), b_data.get()}}) {
            ok(mxq_tensor_set_row_stride(tensor, stride));
            ok(mxq_tensor_set_data(tensor, data->data(), data->bytes()));
            ends.set(tensor, {{}, alignment});
        }
        testing::Output d(device, MXQ_FORMAT_F32, {3, m, n}, 0);
        testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query,
                             testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), a, b, d.tensor);
        oracle::Floats expected(static_cast<size_t>(m * n), 1.0f);
        expected.resize(static_cast<size_t>(2 * m * n), 0.0f);
        expected.resize(static_cast<size_t>(3 * m * n), 8.0f);
        CHECK(d.values() == expected);
        ++ran;
    }
    CHECK(ran == 2);
}

MXQ_EACH_DEVICE("operands: rows of BF16 with gaps between them") {
    const int64_t k = 32;
    const Bytes ones = oracle::store(MXQ_FORMAT_BF16, oracle::Floats(static_cast<size_t>(3 * k), 1.0f));
    Buffer a_data(device, testing::spread_rows({ones.begin(), ones.begin() + 2 * k * 2}, 2, k * 2, 8 * 2)),
        b_data(device, testing::spread_rows(ones, 3, k * 2, 16 * 2));
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 2, k}),
         b = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 3, k}),
         experts = testing::make_tensor(MXQ_FORMAT_BF16, {1, 3, k});
    ok(mxq_tensor_set_row_stride(a, k + 8));
    ok(mxq_tensor_set_data(a, a_data.data(), a_data.bytes()));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(b), static_cast<mxq_tensor*>(experts)}) {
        ok(mxq_tensor_set_row_stride(tensor, k + 16));
        ok(mxq_tensor_set_data(tensor, b_data.data(), b_data.bytes()));
    }
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, 2, 3}, 0),
        grouped(device, MXQ_FORMAT_F32, {std::nullopt, 2, 3}, 0);
    testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a, b, d.tensor);
    CHECK(d.values() == oracle::Floats(6, 32.0f));
    testing::DeviceEnds ends(device, {2});
    ends.set(a, {});
    testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, a, experts, grouped.tensor);
    CHECK(grouped.values() == oracle::Floats(6, 32.0f));
}

// A transform of one row and fifteen of padding makes 16 values of 1.5 of a 6; all of them belong to the product.
MXQ_EACH_DEVICE("operands: groups along the contraction with a Hadamard transform") {
    const testing::Dims dims{std::nullopt, 1, 1};
    oracle::Spec spec = nvfp4;
    spec.hadamard = MXQ_PART_COLUMNWISE, spec.columnwise_mask = 0;
    const Bytes six = testing::bytes_of({6.0f});
    Buffer data(device, six);
    testing::DeviceEnds ends(device, {1});
    auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), q = testing::make_tensor(spec, dims, false);
    ok(mxq_tensor_set_data(x, data.data(), data.bytes()));
    ends.set(q, {});
    testing::OutputPart part(device, q, spec, MXQ_PART_COLUMNWISE, true);
    testing::run(device, mxq_quantize, mxq_quantize_query, testing::Options(device, spec), x, q);
    testing::Output d(device, MXQ_FORMAT_F32, {1, 1, 1}, 0);
    const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query,
                                              testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), q, q, d.tensor);
    const oracle::Floats line(16, 1.5f);
    CHECK(oracle::check_product(oracle::product(line.data(), 16, line.data(), 16, 1, 1, 16), d.values(), MXQ_FORMAT_F32,
                                oracle::bound_factor(promise, 16, false)) == "");
}

// Signs that the transform flips would make codes of -0 of padding. A block that is padding alone has code 0 and scale 0.
MXQ_EACH_DEVICE("operands: a Hadamard transform leaves blocks that are padding alone") {
    int ran = 0;
    for (int32_t format : {MXQ_FORMAT_NVFP4, MXQ_FORMAT_MXFP4}) {
        const int64_t cols = 8, block = format == MXQ_FORMAT_NVFP4 ? 16 : 32, alignment = 2 * block;
        const testing::Dims dims{std::nullopt, 1, cols};
        oracle::Spec spec = testing::spec_of(format, oracle::default_scaling(format));
        spec.hadamard = MXQ_PART_COLUMNWISE, spec.columnwise_mask = 0xFFFF;
        const oracle::Floats values(static_cast<size_t>(cols), 6.0f);
        Buffer data(device, testing::bytes_of(values));
        oracle::Groups groups{{1}, 1, alignment};
        testing::DeviceEnds ends(device, groups.ends);
        auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), q = testing::make_tensor(spec, dims, false);
        ok(mxq_tensor_set_data(x, data.data(), data.bytes()));
        ends.set(q, groups);
        testing::OutputPart part(device, q, spec, MXQ_PART_COLUMNWISE, true);
        testing::run(device, mxq_quantize, mxq_quantize_query, testing::Options(device, spec), x, q);
        const auto expected = oracle::quantize_groups(spec, values, 1, cols, groups, MXQ_PART_COLUMNWISE, false);
        CHECK(part.compare(expected, spec) == "");
        const Bytes got = part.bytes();
        for (int64_t line = 0; line < cols; ++line)
            for (int64_t at = block / 2; at < alignment / 2; ++at)
                REQUIRE(got[static_cast<size_t>(line * alignment / 2 + at)] == 0);
        ++ran;
    }
    CHECK(ran == 2);
}

MXQ_EACH_DEVICE("operands: each expert and each group has its decode scale") {
    testing::DeviceEnds ends(device, {1, 2});
    const testing::Dims experts{2, 1, 16}, rows{std::nullopt, 2, 16};
    CHECK(dequantized(device, Ones(device, experts, MXQ_PART_ROWWISE, {1, 2}), experts) == sixteen_each(1, 2));
    CHECK(dequantized(device, Ones(device, experts, MXQ_PART_COLUMNWISE, {1, 2}), experts) == sixteen_each(1, 2));
    CHECK(dequantized(device, Ones(device, rows, MXQ_PART_ROWWISE, {1, 2}, &ends), rows) == sixteen_each(1, 2));
    CHECK(dequantized(device, Ones(device, rows, MXQ_PART_COLUMNWISE, {1, 2}, &ends), rows) == sixteen_each(1, 2));

    testing::Output forward(device, MXQ_FORMAT_F32, {std::nullopt, 2, 1}, 0), gradient(device, MXQ_FORMAT_F32, {2, 1, 1}, 0);
    testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr,
                         Ones(device, rows, MXQ_PART_ROWWISE, {1, 2}, &ends).tensor,
                         Ones(device, experts, MXQ_PART_ROWWISE, {1, 4}).tensor, forward.tensor);
    CHECK(forward.values() == oracle::Floats{16, 128});
    const Ones a(device, {std::nullopt, 2, 1}, MXQ_PART_COLUMNWISE, {1, 2}, &ends),
        b(device, {std::nullopt, 2, 1}, MXQ_PART_COLUMNWISE, {1, 4}, &ends);
    testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query,
                         testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), a.tensor, b.tensor, gradient.tensor);
    CHECK(gradient.values() == oracle::Floats{1, 8});
}

// Products below the normal range are rounded once, with the sum, whichever operand has the extreme values.
TEST_CASE("operands: sums of products below the normal range are rounded once", "[cpu]") {
    const oracle::Floats ordinary(32, 0x1.8p-22f), tiny(32, 0x1p-127f);
    // 2^-125 and 31 products of 1.375 2^-149, each of which alone would be rounded to 2^-149 and lost.
    oracle::Floats a(32, 0x1.6p-49f), b(32, 0x1p-100f);
    a[0] = 0x1p-25f;
    for (bool across : {false, true}) {
        CHECK(f32_product(ordinary, tiny, across) == 48 * 0x1p-149f);
        CHECK(f32_product(tiny, ordinary, across) == 48 * 0x1p-149f);
        CHECK(f32_product(a, b, across) == 0x1p-125f + 21 * 0x1p-148f);
        CHECK(f32_product(b, a, across) == 0x1p-125f + 21 * 0x1p-148f);
    }
}

// The last sum of a whole tile, and it alone, is 2^-134 (1 + 2^-17): above the middle of 0 and the smallest BF16, and fp32 has no
// room for what is above.
MXQ_EACH_DEVICE("operands: a BF16 sum of products below the normal range is rounded once") {
    struct Codes {
        int32_t format;
        uint8_t one, a, b;  // a b is 2^-17
    };
    constexpr int64_t m = 128, n = 256, k = 32;
    for (const Codes& codes : {Codes{MXQ_FORMAT_MXFP8_E4M3, 0x38, 0x01, 0x02}, Codes{MXQ_FORMAT_MXFP8_E5M2, 0x3C, 0x18, 0x1C}}) {
        const oracle::Spec spec = testing::spec_of(codes.format, MXQ_SCALING_1X32);
        // Lines of 1 and zeros, of which the last has another number and a scale of 2^-67.
        const auto lines = [&](int64_t count, uint8_t other) {
            oracle::Part part{Bytes(static_cast<size_t>(count * k), 0), Bytes(static_cast<size_t>(count), 127), {}, {}};
            for (int64_t line = 0; line < count; ++line) part.codes[static_cast<size_t>(line * k)] = codes.one;
            part.codes[static_cast<size_t>((count - 1) * k + 1)] = other;
            part.scales.back() = 60;
            return part;
        };
        auto a = testing::make_tensor(spec, {std::nullopt, m, k}, false), b = testing::make_tensor(spec, {std::nullopt, n, k}, false);
        const testing::InputPart of_a(device, a, spec, MXQ_PART_ROWWISE, lines(m, codes.a)),
            of_b(device, b, spec, MXQ_PART_ROWWISE, lines(n, codes.b));
        for (int32_t row_invariant : {0, 1}) {
            testing::Output d(device, MXQ_FORMAT_BF16, {std::nullopt, m, n}, 0);
            auto options = testing::exact_gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, device.is_cpu() ? "cpu" : "mma_bf16");
            ok(mxq_gemm_options_set_row_invariant(options, row_invariant));
            testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a, b, d.tensor);
            CHECK(d.values().front() == 1);
            CHECK(d.values().back() == 0x1p-133f);
        }
    }
}

// 1 + 2^-17 times factors of 2^-67 each, which no fp32 number is: it lies above the middle of 0 and the smallest BF16.
MXQ_EACH_DEVICE("operands: a sum that its factors take below the normal range is rounded once") {
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW);
    const testing::Dims dims{std::nullopt, 1, 32};
    oracle::Part a{Bytes(32, 0), testing::bytes_of({0x1p-67f}), {}, {}}, b = a;
    a.codes[0] = b.codes[0] = 0x38;        // 1
    a.codes[1] = 0x01, b.codes[1] = 0x02;  // 2^-9, 2^-8
    auto x = testing::make_tensor(spec, dims, false), y = testing::make_tensor(spec, dims, false);
    const testing::InputPart of_x(device, x, spec, MXQ_PART_ROWWISE, a), of_y(device, y, spec, MXQ_PART_ROWWISE, b);
    const std::string chip = mxq_context_description(device.context);
    std::vector<std::string> names = testing::product_implementations(device);
    if (chip.find("sm_90") != std::string::npos) names.insert(names.end(), {"weights_sm90", "splitk_sm90", "wgmma_bf16_sm90"});
    for (const std::string& name : names) {
        INFO(name);
        testing::Output d(device, MXQ_FORMAT_BF16, {std::nullopt, 1, 1}, 0);
        testing::run_product(device, mxq_gemm, mxq_gemm_query,
                             testing::exact_gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, name.c_str()), x, y, d.tensor);
        CHECK(d.bytes() == Bytes{0x01, 0x00});
    }
}

// Sums of 128 products that leave fp32's range before a scale takes them back, or because a scale is very large and the decode
// scale of the other side small; totals that are subnormal on their way; and blocks under scale 0.
MXQ_EACH_DEVICE("operands: scales of 128 multiply sums that fp32 has no room for") {
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128);
    const testing::Dims dims{std::nullopt, 1, 256};
    std::vector<std::string> names{"cpu"};
    if (!device.is_cpu()) names = {"mma_bf16", "mma_bf16_rows"};
    if (testing::Machine(device).is_hopper()) names.push_back("wgmma_blocks_sm90");
    if (testing::Machine(device).is_hopper()) names.push_back("weights_sm90");
    const auto product = [&](const std::string& name, mxq_tensor* a, mxq_tensor* b, int32_t format) {
        testing::Output d(device, format, {std::nullopt, 1, 1}, 0);
        testing::run_product(device, mxq_gemm, mxq_gemm_query,
                             testing::exact_gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, name.c_str()), a, b, d.tensor);
        return d.values()[0];
    };
    const auto codes_under = [](float first, float second) {
        return oracle::Part{Bytes(256, 0x7E), testing::bytes_of({first, second}), {}, {}};  // 448 each
    };
    const auto numbers_of = [](uint16_t all, uint16_t first_of_128) {
        Bytes out(512);
        for (size_t i = 0; i < 256; i++) {
            const uint16_t number = i % 128 == 0 ? first_of_128 : all;
            out[2 * i] = static_cast<uint8_t>(number), out[2 * i + 1] = static_cast<uint8_t>(number >> 8);
        }
        return out;
    };
    for (const std::string& name : names) {
        INFO(name);
        auto large = testing::make_tensor(spec, dims, false), small = testing::make_tensor(spec, dims, false),
             zero = testing::make_tensor(spec, dims, false), numbers = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        const testing::InputPart of_large(device, large, spec, MXQ_PART_ROWWISE, codes_under(0x1p119f, 0x1p119f)),
            of_small(device, small, spec, MXQ_PART_ROWWISE, codes_under(0x1p-120f, 0x1p-120f)),
            of_zero(device, zero, spec, MXQ_PART_ROWWISE, codes_under(0, 1));
        auto tiny = testing::make_tensor(spec, dims, false), two = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        const testing::InputPart of_tiny(device, tiny, spec, MXQ_PART_ROWWISE,
                                         {Bytes(256, 0x38), testing::bytes_of({0x1p-49f, 0x1p-49f}), {}, {}});
        Buffer data(device, numbers_of(0x7B80, 0x7B80)), two_of_256(device, numbers_of(0, 0x0DC0));  // 2^120, 1.5 2^-100
        ok(mxq_tensor_set_data(numbers, data.data(), data.bytes()));
        ok(mxq_tensor_set_data(two, two_of_256.data(), two_of_256.bytes()));
        const Ones ones(device, dims, MXQ_PART_ROWWISE, {0x1p-100f}), plain_ones(device, dims, MXQ_PART_ROWWISE, {1});
        const bool takes_activations = name != "weights_sm90";
        if (takes_activations) CHECK(product(name, large, ones.tensor, MXQ_FORMAT_F32) == 448 * 256 * 0x1p19f);
        CHECK(product(name, numbers, small, MXQ_FORMAT_BF16) == 448 * 256);
        CHECK(product(name, numbers, small, MXQ_FORMAT_F32) == 448 * 256);
        CHECK(product(name, two, tiny, MXQ_FORMAT_F32) == 3 * 0x1p-149f);
        if (takes_activations) CHECK(product(name, zero, plain_ones.tensor, MXQ_FORMAT_F32) == 448 * 128);
    }
}

// 32 products of 2^-71 and 2^-63 (1 + 2^-17), each of which alone would lose its last bits below the normal range.
TEST_CASE("operands: sums of products of F32, or FP8, and MX below the normal range are rounded once", "[cpu]") {
    const testing::Dims dims{std::nullopt, 1, 32};
    auto f32 = testing::make_tensor(MXQ_FORMAT_F32, dims), mx = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, dims),
         fp8 = testing::make_tensor(testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW), dims, false);
    Buffer numbers(testing::cpu(), testing::bytes_of(oracle::Floats(32, 0x1.00008p-63f))), codes(testing::cpu(), Bytes(32, 0x38)),
        scale(testing::cpu(), Bytes{127 - 71}), line_scale(testing::cpu(), testing::bytes_of({0x1.00008p-63f}));
    ok(mxq_tensor_set_data(f32, numbers.data(), numbers.bytes()));
    ok(mxq_tensor_set_part(mx, MXQ_PART_ROWWISE, codes.data(), codes.bytes(), scale.data(), scale.bytes()));
    ok(mxq_tensor_set_part(fp8, MXQ_PART_ROWWISE, codes.data(), codes.bytes(), line_scale.data(), line_scale.bytes()));
    testing::Output of_fp8(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, 1, 1}, 0);
    testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, fp8, mx, of_fp8.tensor);
    CHECK(of_fp8.values()[0] == 0x1.00008p-129f);
    for (bool swapped : {false, true}) {
        testing::Output d(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, 1, 1}, 0);
        testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, swapped ? mx : f32, swapped ? f32 : mx, d.tensor);
        CHECK(d.values()[0] == 0x1.00008p-129f);
    }
}
