// mxq_quantize gives the oracle's bytes on every device.
#include "../formats.h"

#include <array>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

using testing::Buffer;
using testing::ok;

namespace {

struct Case {
    int32_t input = MXQ_FORMAT_F32;
    oracle::Spec spec;
    testing::Dims dims{std::nullopt, 0, 0};
    int64_t row_gap = 0;  // elements between one row and the next
    bool rowwise = true, columnwise = false, swizzled = false;
    size_t offset = 0;  // of every buffer, in elements, so that it is aligned to one element only

    std::string describe() const {
        char text[200];
        std::snprintf(text, sizeof text, "%s to %s, experts %d, %dx%d, scaling %d, rounding %d, policy %d, parts %d%d, %s, gap %d, offset %d",
                      mxq_format_name(input), mxq_format_name(spec.format), static_cast<int>(dims.experts.value_or(-1)),
                      static_cast<int>(dims.rows), static_cast<int>(dims.cols), spec.scaling, spec.rounding, spec.nonfinite,
                      rowwise, columnwise, swizzled ? "swizzled" : "compact", static_cast<int>(row_gap),
                      static_cast<int>(offset));
        return text;
    }
};

// Returns "" if the device writes the oracle's bytes, else a text that says what differs.
std::string compare(testing::Device& device, const Case& c, const oracle::Bytes& dense) {
    oracle::Shape shape = c.dims.shape();
    int64_t element = oracle::plain_bytes(c.input);
    auto in = testing::make_tensor(c.input, c.dims);
    auto out = testing::make_quantized(c.spec, c.dims, c.swizzled);
    Buffer data(device, testing::spread_rows(dense, shape.experts * shape.rows, shape.cols * element, c.row_gap * element),
                c.offset * static_cast<size_t>(element));
    ok(mxq_tensor_set_row_stride(in, shape.cols + c.row_gap));
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));

    std::vector<std::pair<int32_t, testing::PartBuffers>> parts;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (part == MXQ_PART_ROWWISE ? c.rowwise : c.columnwise)
            parts.emplace_back(part, testing::PartBuffers(device, out, part, c.offset));
    ok(mxq_quantize(device.context, testing::quantize_options(c.spec), in, out, nullptr, 0, nullptr));

    oracle::Floats x = oracle::load(c.input, dense.data(), shape.count());
    for (auto& [part, buffers] : parts) {
        oracle::Part expected = oracle::quantize(c.spec, x, shape, part, c.swizzled);
        std::string name = part == MXQ_PART_ROWWISE ? "rowwise " : "columnwise ";
        if (auto text = testing::difference(buffers.scales->read(), expected.scales); !text.empty())
            return name.append("scales: ").append(text);
        if (auto text = testing::difference(buffers.codes->read(), expected.codes); !text.empty())
            return name.append("codes: ").append(text);
    }
    return "";
}

constexpr int64_t combinations = 3 * 2 * 4 * 2 * 2 * 3 * 2 * 3 * 2 * 2;

Case combination(int64_t number, int64_t rows, int64_t cols) {
    cases::Digits digits(number);
    Case c;
    int64_t parts = 1 + digits.next(3);
    c.rowwise = parts & 1, c.columnwise = parts & 2;
    c.input = digits.pick(cases::plain_formats);
    c.swizzled = digits.flag();
    c.spec.scaling = digits.pick(cases::scalings);
    c.spec.rounding = digits.pick(cases::roundings);
    c.spec.format = digits.pick(cases::formats);
    c.spec.nonfinite = digits.pick(cases::policies);
    int64_t experts = digits.next(3);  // stands for a 2-D tensor, 1 or 3 experts
    c.dims = {experts ? std::optional(2 * experts - 1) : std::nullopt, rows, cols};
    c.row_gap = digits.flag() ? 3 : 0;
    c.offset = static_cast<size_t>(digits.next(2));
    return c;
}

}  // namespace

// Covers every pair of awkward sizes. Each walks through the combinations of choices in steps that are coprime to their
// number, so that every choice meets every other. Larger shapes take longer steps.
MXQ_EACH_DEVICE("quantize: the oracle's bytes for awkward shapes and all choices") {
    int64_t ran = 0, offset = 0;
    for (int64_t rows : cases::awkward_sizes)
        for (int64_t cols : cases::awkward_sizes) {
            int64_t step = rows * cols < 200 ? 17 : rows * cols < 5000 ? 53 : rows * cols < 20000 ? 151 : 455;
            for (int64_t number = offset++ % step; number < combinations; number += step) {
                Case c = combination(number, rows, cols);
                auto kind = cases::all_values[ran % 4];
                auto dense = cases::plain_values(c.input, kind, c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
        }
    CHECK(ran == 19680);
}

// These sizes are long enough for every loop of an implementation to repeat, and exceed 2^16 once in each direction.
MXQ_EACH_DEVICE("quantize: the oracle's bytes for long rows and columns") {
    const std::pair<int64_t, int64_t> sizes[] = {{3, 4133}, {4133, 3}, {1, 70001}, {70001, 1}, {300, 1030}, {515, 643}};
    int ran = 0;
    for (auto [rows, cols] : sizes)
        for (int32_t scaling : cases::scalings)
            for (bool swizzled : {false, true}) {
                Case c = combination(ran * 37, rows, cols);
                c.dims.experts.reset();
                c.rowwise = c.columnwise = true;
                c.spec.scaling = scaling;
                c.swizzled = swizzled;
                auto dense = cases::plain_values(c.input, cases::Values::wide, c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
    CHECK(ran == 24);
}

// Every special value gets 65 rows of one block each: one of nothing but the special, and two for each lane, with the special
// in that lane among ordinary values and among small ones.
MXQ_EACH_DEVICE("quantize: every special value in every lane") {
    int ran = 0;
    for (int32_t input : cases::plain_formats) {
        oracle::Bytes dense;
        int64_t rows = 0;
        auto element = static_cast<size_t>(oracle::plain_bytes(input));
        cases::Random random(7);
        for (uint32_t special : cases::special_bits()) {
            uint32_t bits = special;
            if (input != MXQ_FORMAT_F32) {  // BF16 takes the upper half of the bits, F16 the converted number
                uint16_t half = input == MXQ_FORMAT_BF16 ? static_cast<uint16_t>(special >> 16) : oracle::to_f16(oracle::float_of(special));
                bits = half;
            }
            for (int lane = -1; lane < 64; ++lane, ++rows)
                for (int j = 0; j < 32; ++j) {
                    float other = lane < 32 ? random.normal() : random.normal() * 0x1p-10f;
                    uint32_t word = oracle::bits_of(other);
                    if (input != MXQ_FORMAT_F32) word = input == MXQ_FORMAT_BF16 ? word >> 16 : oracle::to_f16(other);
                    if (lane < 0 || lane % 32 == j) word = bits;
                    auto* bytes = reinterpret_cast<const uint8_t*>(&word);
                    dense.insert(dense.end(), bytes, bytes + element);
                }
        }
        for (int32_t format : cases::formats)
            for (int32_t rounding : cases::roundings)
                for (int32_t policy : cases::policies) {
                    Case c;
                    c.input = input;
                    c.spec = {format, MXQ_SCALING_1X32, rounding, policy};
                    c.dims = {std::nullopt, rows, 32};
                    ++ran;
                    if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
                }
    }
    CHECK(cases::special_bits().size() == 90);
    CHECK(ran == 3 * 2 * 4 * 2);
}

// Checks the table of the contract, which gives scale and codes of 32 equal elements in E4M3.
MXQ_EACH_DEVICE("quantize: the contract's check cases") {
    struct Check {
        uint32_t x;
        int floor_scale, floor_code, rceil_scale, rceil_code;
    };
    const Check checks[] = {
        {0x00000000, 0, 0x00, 0, 0x00},     {0x00800000, 0, 0x40, 0, 0x40},     {0x43E00000, 127, 0x7E, 127, 0x7E},
        {0xC3E00000, 127, 0xFE, 127, 0xFE}, {0x7F7FFFFF, 246, 0x7E, 247, 0x78}, {0xFF7FFFFF, 246, 0xFE, 247, 0xF8},
        {0x40600001, 120, 0x7E, 121, 0x76}, {0x43FFFFFF, 127, 0x7E, 128, 0x78}, {0x43F00000, 127, 0x7E, 128, 0x77},
        {0x00010000, 0, 0x08, 0, 0x08},     {0x00000001, 0, 0x00, 0, 0x00},     {0x80000000, 0, 0x80, 0, 0x80},
        {0xC3F00000, 127, 0xFE, 128, 0xF7},
    };
    auto quantize = [&](int32_t rounding, const oracle::Floats& x) {
        auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, 32});
        auto out = testing::make_quantized({}, {std::nullopt, 1, 32}, false);
        oracle::Bytes raw(128);
        std::memcpy(raw.data(), x.data(), 128);
        Buffer data(device, raw);
        testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
        ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
        oracle::Spec spec;
        spec.rounding = rounding;
        ok(mxq_quantize(device.context, testing::quantize_options(spec), in, out, nullptr, 0, nullptr));
        return std::pair(part.scales->read(), part.codes->read());
    };
    using Expected = std::pair<oracle::Bytes, oracle::Bytes>;
    auto all = [](int scale, int code) {
        return Expected{{static_cast<uint8_t>(scale)}, oracle::Bytes(32, static_cast<uint8_t>(code))};
    };
    for (const Check& check : checks) {
        oracle::Floats x(32, oracle::float_of(check.x));
        CAPTURE(check.x);
        CHECK(quantize(MXQ_SCALE_ROUNDING_FLOOR, x) == all(check.floor_scale, check.floor_code));
        CHECK(quantize(MXQ_SCALE_ROUNDING_RCEIL, x) == all(check.rceil_scale, check.rceil_code));
    }
    oracle::Floats one_large(32, 1.0f);
    one_large[5] = std::numeric_limits<float>::max();
    Expected floor = all(246, 0), rceil = all(247, 0);
    floor.second[5] = 0x7E, rceil.second[5] = 0x78;
    CHECK(quantize(MXQ_SCALE_ROUNDING_FLOOR, one_large) == floor);
    CHECK(quantize(MXQ_SCALE_ROUNDING_RCEIL, one_large) == rceil);

    const std::pair<uint32_t, int> rceil_of_d[] = {{0x400000, 0},     {0x400001, 1},     {0x7FFFFF, 1},     {0x800000, 1},
                                                   {0x1F800000, 63},  {0x1F800001, 64},  {0x3F800000, 127}, {0x3F800001, 128},
                                                   {0x7F000000, 254}, {0x7F000001, 255}, {0x7F800000, 255}, {0x7FC00000, 255}};
    for (auto [d, byte] : rceil_of_d) CHECK(oracle::rceil_byte(oracle::float_of(d)) == byte);
}

// Covers all 65536 inputs of a 16-bit type, 31 per block, behind a first element: a 0 leaves the scale to them; a 1 or the
// largest number sets it for all that are smaller. Inf and NaN saturate, so that the rest of their block stays finite.
MXQ_EACH_DEVICE("quantize: every 16-bit input, rowwise and columnwise") {
    const int64_t blocks = (65536 + 30) / 31;
    int ran = 0;
    for (int32_t input : {MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
        for (uint16_t leader : input == MXQ_FORMAT_F16 ? std::array<uint16_t, 3>{0, 0x3C00, 0x7BFF} : std::array<uint16_t, 3>{0, 0x3F80, 0x7F7F}) {
            std::vector<uint16_t> down, across(static_cast<size_t>(blocks * 32));  // a block in each row; in each column
            for (int64_t block = 0; block < blocks; ++block)
                for (int64_t i = 0; i < 32; ++i) {
                    down.push_back(i == 0 ? leader : static_cast<uint16_t>(std::min<int64_t>(block * 31 + i - 1, 65535)));
                    across[static_cast<size_t>(i * blocks + block)] = down.back();
                }
            for (int32_t format : cases::formats)
                for (int32_t rounding : cases::roundings)
                    for (bool columnwise : {false, true}) {
                        Case c;
                        c.input = input;
                        c.spec = {format, MXQ_SCALING_1X32, rounding, MXQ_NONFINITE_SATURATE};
                        c.rowwise = !columnwise, c.columnwise = columnwise;
                        c.dims = {std::nullopt, columnwise ? 32 : blocks, columnwise ? blocks : 32};
                        auto* first = reinterpret_cast<const uint8_t*>((columnwise ? across : down).data());
                        ++ran;
                        if (auto text = compare(device, c, {first, first + blocks * 64}); !text.empty()) FAIL(c.describe() << ", leader " << leader << ": " << text);
                    }
        }
    CHECK(ran == 2 * 3 * 2 * 4 * 2);
}

#if defined(__SSE2__)
// A caller that flushes subnormals or rounds in another way must get the same bytes, and keep its own settings.
TEST_CASE("quantize: the caller's floating-point environment changes nothing", "[cpu]") {
    Case c;
    c.dims = {std::nullopt, 200, 300};
    c.columnwise = true;
    auto dense = cases::plain_values(MXQ_FORMAT_F32, cases::Values::bits, c.dims.shape().count(), 1);
    auto in = testing::make_tensor(MXQ_FORMAT_F32, c.dims), back = testing::make_tensor(MXQ_FORMAT_F16, c.dims);
    auto out = testing::make_quantized(c.spec, c.dims, false);
    Buffer data(testing::cpu(), dense), half(testing::cpu(), c.dims.shape().count() * 2);
    testing::PartBuffers row(testing::cpu(), out, MXQ_PART_ROWWISE), column(testing::cpu(), out, MXQ_PART_COLUMNWISE);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    ok(mxq_tensor_set_data(back, half.data(), half.bytes()));
    auto x = oracle::load(MXQ_FORMAT_F32, dense.data(), c.dims.shape().count());
    auto expected = oracle::quantize(c.spec, x, c.dims.shape(), MXQ_PART_ROWWISE, false);
    auto values = oracle::store(MXQ_FORMAT_F16, oracle::dequantize(c.spec, expected, c.dims.shape(), MXQ_PART_ROWWISE));

    const unsigned before = _mm_getcsr();
    int ran = 0;
    for (unsigned odd : {0x8040u, 0x2000u, 0x4000u, 0x6000u, 0xE040u}) {  // FTZ and DAZ; round down; up; to zero; all of it
        _mm_setcsr(before | odd);
        mxq_status quantized = mxq_quantize(testing::cpu().context, nullptr, in, out, nullptr, 0, nullptr);
        mxq_status dequantized = mxq_dequantize(testing::cpu().context, nullptr, out, back, nullptr, 0, nullptr);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK(quantized == MXQ_STATUS_OK);
        CHECK(dequantized == MXQ_STATUS_OK);
        CHECK((after & 0xE040) == ((before | odd) & 0xE040));
        CHECK(testing::difference(row.codes->read(), expected.codes) == "");
        CHECK(testing::difference(row.scales->read(), expected.scales) == "");
        CHECK(testing::difference(half.read(), values) == "");
        ++ran;
    }
    CHECK(ran == 5);
}
#endif
