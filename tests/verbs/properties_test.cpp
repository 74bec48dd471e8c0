// Properties of the verbs that hold for every format and need no oracle.
#include "../formats.h"

#include <array>
#include <random>

using testing::Buffer;
using testing::ok;

namespace {

oracle::Bytes bf16_bytes(const oracle::Floats& x) {
    oracle::Bytes bytes;
    for (float value : x) {
        const uint16_t half = oracle::to_bf16(value);
        bytes.push_back(uint8_t(half));
        bytes.push_back(uint8_t(half >> 8));
    }
    return bytes;
}

// One part that quantize wrote.
struct Written {
    oracle::Bytes codes, scales;
    bool operator==(const Written&) const = default;
};

Written quantize(testing::Device& device, const oracle::Spec& spec, const oracle::Floats& x, testing::Dims dims, int32_t part,
                 bool swizzled = false, int32_t plain = MXQ_FORMAT_F32) {
    auto in = testing::make_tensor(plain, dims), out = testing::make_tensor(spec, dims, swizzled);
    Buffer data(device, plain == MXQ_FORMAT_F32 ? testing::bytes_of(x) : bf16_bytes(x));
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    testing::PartBuffers buffers(device, out, part);
    testing::transform_declared_parts(out, spec);
    std::unique_ptr<Buffer> amax;
    if (testing::is_nvfp4(spec)) {
        amax = std::make_unique<Buffer>(device, testing::bytes_of(spec.amax.empty() ? oracle::Floats{0} : spec.amax));
        ok(mxq_tensor_set_amax(out, part, reinterpret_cast<float*>(amax->data()), amax->bytes()));
    }
    testing::run(device, mxq_quantize, mxq_quantize_query, testing::Options(device, spec), in, out);
    return {buffers.codes->read(), buffers.scales->read()};
}

// Returns the F32 values of a part.
oracle::Bytes dequantize(testing::Device& device, const oracle::Spec& spec, const Written& stored, testing::Dims dims,
                         int32_t part, bool swizzled) {
    auto in = testing::make_tensor(spec, dims, swizzled), out = testing::make_tensor(MXQ_FORMAT_F32, dims);
    Buffer codes(device, stored.codes), scales(device, stored.scales), data(device, dims.shape().count() * 4);
    ok(mxq_tensor_set_part(in, part, codes.data(), codes.bytes(), scales.data(), scales.bytes()));
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
    return data.read();
}

oracle::Floats normal(size_t count, uint64_t seed) { return cases::values(cases::Values::normal, count, seed); }

oracle::Floats times(oracle::Floats x, int shift) {
    for (float& value : x) value = std::ldexp(value, shift);
    return x;
}

}  // namespace

MXQ_EACH_DEVICE("properties: columnwise is rowwise of the transpose, for every format") {
    int ran = 0;
    for (auto [rows, cols] : {std::pair<int64_t, int64_t>{144, 208}, {131, 71}})
        for (const oracle::Spec& base : testing::all_formats())
            for (bool swizzled : {false, true})
                for (int variant = 0; variant < 4; ++variant) {
                    oracle::Spec spec = base;
                    if (swizzled && !testing::can_swizzle(spec)) continue;
                    if (variant && !testing::takes_stochastic(spec)) continue;
                    if (variant >= 2 && (!testing::is_nvfp4(spec) || testing::is_square(spec))) continue;
                    if (variant == 1 && (testing::is_square(spec) || rows % 16)) continue;
                    spec.hadamard = variant == 1 ? MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE : 0;
                    spec.four_over_six = variant >= 2 ? variant - 1 : 0;
                    auto x = normal(static_cast<size_t>(rows * cols), static_cast<uint64_t>(ran));
                    auto transpose = oracle::transposed(x.data(), rows, cols);
                    INFO(testing::describe(spec) << " swizzled " << swizzled << ", " << rows << "x" << cols);
                    CHECK(quantize(device, spec, x, {std::nullopt, rows, cols}, MXQ_PART_COLUMNWISE, swizzled) ==
                          quantize(device, spec, transpose, {std::nullopt, cols, rows}, MXQ_PART_ROWWISE, swizzled));
                    ++ran;
                }
    CHECK(ran == 2 * (35 + 31 + 2 * 2) + 2 * (2 + 1));
}

// Values of 8 significant bits often lie halfway between two codes. Each amax puts others of them there, so that many are tried.
MXQ_EACH_DEVICE("properties: four bits of BF16 numbers are those of the same numbers in F32, whatever the global maximum") {
    int ran = 0;
    const int64_t rows = 144, cols = 208;
    std::mt19937 random(31);
    for (int g = 128; g < 256; ++g)
        for (const oracle::Spec& base : testing::all_formats()) {
            oracle::Spec spec = base;
            if (!testing::is_e2m1(spec) || (!testing::is_nvfp4(spec) && g % 32 != 0)) continue;
            spec.amax = {std::ldexp(float(g), -4)};
            spec.nvfp4_t = g % 2 ? 256 : 448;
            oracle::Floats x(static_cast<size_t>(rows * cols));
            for (float& value : x) {
                value = std::ldexp(float(128 + random() % 128), -4 - static_cast<int>(random() % 7));
                value = random() % 2 ? std::min(value, spec.amax[0]) : -std::min(value, spec.amax[0]);
            }
            for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                INFO(testing::describe(spec) << " part " << part << " amax " << spec.amax[0]);
                const testing::Dims dims{std::nullopt, rows, cols};
                CHECK(quantize(device, spec, x, dims, part, false, MXQ_FORMAT_BF16) == quantize(device, spec, x, dims, part));
                ++ran;
            }
        }
    CHECK(ran == 2 * (128 * 2 + 5 * 4));
}

// Hundreds of thousands of blocks are tried for each option, since four-over-six chooses between two scales by errors that
// are close in only one block of a thousand.
MXQ_EACH_DEVICE("properties: four bits of BF16 numbers are those of F32 under stochastic rounding and four over six") {
    int ran = 0;
    const int64_t rows = 272, cols = 400;
    std::mt19937 random(37);
    std::student_t_distribution<float> heavy(3);
    for (int g = 0; g < 24; ++g)
        for (const oracle::Spec& base : testing::all_formats())
            for (int option = 0; option < 3; ++option) {
                oracle::Spec spec = base;
                const bool choice = option > 0;
                if (!testing::takes_stochastic(spec) || (!testing::is_nvfp4(spec) && g % 8 != 0)) continue;
                if (choice && (!testing::is_nvfp4(spec) || testing::is_square(spec))) continue;
                spec.stochastic = !choice;
                spec.seed = random();
                spec.four_over_six = choice ? option : MXQ_FOUR_OVER_SIX_NONE;
                spec.nvfp4_t = g % 2 ? 256 : 448;
                oracle::Floats x(static_cast<size_t>(rows * cols));
                const float unit = std::ldexp(1.0f + float(random() % 1000) / 1000, int(random() % 40) - 20);
                for (float& value : x) value = oracle::from_bf16(oracle::to_bf16(unit * heavy(random)));
                if (g % 4 == 3)  // NaNs and values far below the others, for which no estimate of the error is good enough
                    for (int i = 0; i < 50; ++i) x[random() % x.size()] = i % 2 ? NAN : 0x1p-100f * unit;
                spec.amax = {0};
                for (float value : x) spec.amax[0] = std::fmax(spec.amax[0], std::abs(value));
                for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                    INFO(testing::describe(spec) << " part " << part << " amax " << spec.amax[0]);
                    const testing::Dims dims{std::nullopt, rows, cols};
                    CHECK(quantize(device, spec, x, dims, part, false, MXQ_FORMAT_BF16) == quantize(device, spec, x, dims, part));
                    ++ran;
                }
            }
    CHECK(ran == 2 * (24 * (2 + 2) + 3 * 4));
}

MXQ_EACH_DEVICE("properties: swizzled ROW tensors of MX are ordinary ones in blocks of 32") {
    int ran = 0;
    const testing::Dims dims{std::nullopt, 150, 99};
    for (int32_t format : testing::mx_formats)
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            const oracle::Spec row = testing::spec_of(format, MXQ_SCALING_ROW), blocks = testing::spec_of(format, MXQ_SCALING_1X32);
            const auto x = normal(dims.shape().count(), static_cast<uint64_t>(ran));
            const Written compact = quantize(device, row, x, dims, part), swizzled = quantize(device, row, x, dims, part, true);
            INFO(mxq_format_name(format) << " part " << part);
            CHECK(compact.scales.size() == static_cast<size_t>(part == MXQ_PART_ROWWISE ? dims.rows : dims.cols));
            CHECK(swizzled.scales.size() == quantize(device, blocks, x, dims, part, true).scales.size());
            CHECK(dequantize(device, blocks, swizzled, dims, part, true) == dequantize(device, row, compact, dims, part, false));
            ++ran;
        }
    CHECK(ran == 5 * 2);
}

// Rows are quantized independently of each other if the amax that they share is given.
MXQ_EACH_DEVICE("properties: quantize of a concatenation is the concatenation") {
    int ran = 0;
    const int64_t rows = 128, cols = 300;
    for (const oracle::Spec& base : testing::all_formats()) {
        oracle::Spec spec = base;
        if (spec.scaling == MXQ_SCALING_TENSOR) continue;
        if (testing::is_nvfp4(spec)) spec.amax = {6.0f};
        auto x = normal(static_cast<size_t>(2 * rows * cols), static_cast<uint64_t>(ran));
        auto middle = x.begin() + rows * cols;
        Written whole = quantize(device, spec, x, {std::nullopt, 2 * rows, cols}, MXQ_PART_ROWWISE);
        Written first = quantize(device, spec, {x.begin(), middle}, {std::nullopt, rows, cols}, MXQ_PART_ROWWISE);
        Written second = quantize(device, spec, {middle, x.end()}, {std::nullopt, rows, cols}, MXQ_PART_ROWWISE);
        first.codes.insert(first.codes.end(), second.codes.begin(), second.codes.end());
        first.scales.insert(first.scales.end(), second.scales.begin(), second.scales.end());
        INFO(testing::describe(spec));
        CHECK(whole == first);
        ++ran;
    }
    CHECK(ran == 33);
}

MXQ_EACH_DEVICE("properties: a power of two moves only what scales, for every format and rounding of scales") {
    int ran = 0;
    testing::Dims dims{std::nullopt, 65, 288};
    for (oracle::Spec spec : testing::all_formats())
        for (int32_t rounding : cases::roundings)
            for (int shift : {-60, -20, -1, 3, 30, 80}) {
                const bool mx = oracle::is_mx(spec.format), is_default = rounding == oracle::Spec{}.rounding;
                if (!mx && (!is_default || shift == -60 || shift == 80)) continue;
                spec.rounding = rounding;
                auto x = normal(dims.shape().count(), 5);
                Written before = quantize(device, spec, x, dims, MXQ_PART_ROWWISE);
                Written after = quantize(device, spec, times(x, shift), dims, MXQ_PART_ROWWISE);
                INFO(testing::describe(spec) << " by 2^" << shift);
                CHECK(before.codes == after.codes);
                for (size_t i = 0; i < before.scales.size(); i += static_cast<size_t>(oracle::scale_bytes(spec.format))) {
                    if (mx) {
                        before.scales[i] = static_cast<uint8_t>(before.scales[i] + shift);
                    } else if (oracle::is_fp8(spec.format)) {
                        float scale;
                        std::memcpy(&scale, &before.scales[i], 4);
                        scale = std::ldexp(scale, shift);
                        std::memcpy(&before.scales[i], &scale, 4);
                    }
                }
                CHECK(before.scales == after.scales);  // in NVFP4 the amax takes the power of two
                ++ran;
            }
    CHECK(ran == 25 * 4 * 6 + 10 * 4);
}

MXQ_EACH_DEVICE("properties: stochastic rounding is reproducible from its seed and its offset") {
    int ran = 0;
    testing::Dims dims{std::nullopt, 64, 256};
    for (int32_t format : {MXQ_FORMAT_NVFP4, MXQ_FORMAT_MXFP4})
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            oracle::Spec spec = testing::spec_of(format, oracle::default_scaling(format));
            spec.stochastic = true, spec.seed = 1, spec.offset = 2;
            auto x = normal(dims.shape().count(), 9);
            Written first = quantize(device, spec, x, dims, part);
            CHECK(first == quantize(device, spec, x, dims, part));
            spec.seed = 3;
            CHECK(first.codes != quantize(device, spec, x, dims, part).codes);
            spec.seed = 1, spec.offset = uint64_t{1} << 40;
            CHECK(first.codes != quantize(device, spec, x, dims, part).codes);
            ++ran;
        }
    CHECK(ran == 4);
}

// The 6 at the head of each block makes its scale 1, so that the other values are their own scaled values. A value at 5/16 of
// the way between two codes rounds up for round-half-down(80) = 80 of 256 random bytes, by the contract.
MXQ_EACH_DEVICE("properties: stochastic rounding hits fixed values as often as the contract says") {
    int ran = 0;
    const std::pair<float, float> neighbours[] = {{0, 0.5f}, {0.5f, 1}, {1, 1.5f}, {1.5f, 2}, {2, 3}, {3, 4}, {4, 6}};
    const int64_t rows = 4096;
    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    spec.stochastic = true, spec.seed = 77;
    for (auto [low, high] : neighbours)
        for (int sixteenths : {1, 5, 8, 15}) {
            oracle::Floats x(static_cast<size_t>(rows * 32), low + (high - low) * static_cast<float>(sixteenths) / 16);
            for (size_t i = 0; i < x.size(); i += 32) x[i] = 6;
            spec.offset = static_cast<uint64_t>(ran);
            Written out = quantize(device, spec, x, {std::nullopt, rows, 32}, MXQ_PART_ROWWISE);
            REQUIRE(out.scales == oracle::Bytes(static_cast<size_t>(rows), 127));
            int64_t up = 0, other = 0;
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 1; j < 32; ++j) {
                    double value = oracle::decode_element(spec.format, oracle::get_code(&out.codes[static_cast<size_t>(i * 16)], 4, j));
                    up += value == high, other += value != high && value != low;
                }
            const double count = static_cast<double>(rows * 31), p = sixteenths / 16.0;
            CHECK(other == 0);
            CHECK(std::fabs(static_cast<double>(up) - count * p) < 5 * std::sqrt(count * p * (1 - p)));
            ++ran;
        }
    CHECK(ran == 28);
}

MXQ_EACH_DEVICE("properties: stochastic rounding is unbiased over uniform values") {
    const int64_t rows = 8192;
    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    spec.stochastic = true, spec.seed = 4242, spec.offset = 1;
    cases::Random random(3);
    oracle::Floats x(static_cast<size_t>(rows * 32));
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 32 ? 6 * random.uniform() : 6;
    Written out = quantize(device, spec, x, {std::nullopt, rows, 32}, MXQ_PART_ROWWISE);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        double error = oracle::decode_element(spec.format, oracle::get_code(&out.codes[i / 32 * 16], 4, static_cast<int64_t>(i % 32))) - static_cast<double>(x[i]);
        sum += error, squares += error * error;
    }
    CHECK(std::fabs(sum) < 5 * std::sqrt(squares));
}
