// mxq_dequantize and the scale layouts give the oracle's bytes on every device.
#include "../api.h"
#include "../cases.h"

using testing::Buffer;
using testing::ok;

namespace {

struct Case {
    oracle::Spec spec;
    testing::Dims dims{std::nullopt, 0, 0};
    int32_t output = MXQ_FORMAT_F32, part = MXQ_PART_ROWWISE;
    bool swizzled = false;
    int64_t row_gap = 0;
    size_t offset = 0;
};

// Draws a part with arbitrary bytes as codes and as compact scales.
oracle::Part random_part(const Case& c, uint64_t seed) {
    cases::Random random(seed);
    oracle::Shape s = c.dims.shape();
    bool columnwise = c.part == MXQ_PART_COLUMNWISE;
    int64_t rows = columnwise ? s.cols : s.rows, cols = columnwise ? s.rows : s.cols;
    oracle::Part part;
    for (size_t i = 0; i < s.count(); ++i) part.codes.push_back(static_cast<uint8_t>(random.bits()));
    int64_t scales = s.experts * oracle::compact_scale_rows(c.spec.scaling, rows) * oracle::ceil_div(cols, 32);
    for (int64_t i = 0; i < scales; ++i) part.scales.push_back(static_cast<uint8_t>(random.bits() >> 8));
    return part;
}

oracle::Bytes swizzled_scales(const Case& c, const oracle::Bytes& compact) {
    oracle::Shape s = c.dims.shape();
    bool columnwise = c.part == MXQ_PART_COLUMNWISE;
    int64_t rows = columnwise ? s.cols : s.rows, cols = columnwise ? s.rows : s.cols;
    auto one = static_cast<std::ptrdiff_t>(oracle::compact_scale_rows(c.spec.scaling, rows) * oracle::ceil_div(cols, 32));
    oracle::Bytes out;
    for (int64_t e = 0; e < s.experts; ++e) {
        auto first = compact.begin() + e * one;
        oracle::Bytes swizzled = oracle::swizzle({first, first + one}, c.spec.scaling, rows, cols);
        out.insert(out.end(), swizzled.begin(), swizzled.end());
    }
    return out;
}

std::string compare(testing::Device& device, const Case& c, const oracle::Part& part) {
    oracle::Shape s = c.dims.shape();
    int64_t element = oracle::plain_bytes(c.output), stride = s.cols + c.row_gap, rows = s.experts * s.rows;
    oracle::Part stored = part;
    if (c.swizzled) stored.scales = swizzled_scales(c, part.scales);
    auto in = testing::make_quantized(c.spec, c.dims, c.swizzled);
    auto out = testing::make_tensor(c.output, c.dims);
    testing::PartBuffers buffers(device, in, c.part, stored, c.offset);
    ok(mxq_tensor_set_row_stride(out, stride));
    uint64_t bytes = 0;
    ok(mxq_tensor_required_bytes(out, MXQ_PART_ROWWISE, &bytes, nullptr));
    Buffer data(device, static_cast<size_t>(bytes), c.offset * static_cast<size_t>(element));
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    ok(mxq_dequantize(device.context, nullptr, in, out, nullptr, 0, nullptr));

    oracle::Bytes dense = oracle::store(c.output, oracle::dequantize(c.spec, part, s, c.part));
    oracle::Bytes expected(static_cast<size_t>(bytes), testing::poison);  // the gaps between rows stay as they were
    for (int64_t i = 0; i < rows && s.cols; ++i)
        std::memcpy(&expected[static_cast<size_t>(i * stride * element)], &dense[static_cast<size_t>(i * s.cols * element)],
                    static_cast<size_t>(s.cols * element));
    return testing::difference(data.read(), expected);
}

}  // namespace

MXQ_EACH_DEVICE("dequantize: the oracle's bytes for awkward shapes and all choices") {
    int64_t ran = 0;
    const int64_t combinations = 2 * 3 * 2 * 2 * 2 * 3 * 2 * 2;
    for (int64_t rows : cases::awkward_sizes)
        for (int64_t cols : cases::awkward_sizes) {
            int64_t step = rows * cols < 5000 ? 7 : 61;
            for (int64_t number = ran % step; number < combinations; number += step) {
                cases::Digits digits(number);
                Case c;
                c.output = digits.pick(cases::plain_formats);
                c.swizzled = digits.flag();
                c.part = 1 + static_cast<int32_t>(digits.next(2));
                c.spec.scaling = digits.pick(cases::scalings);
                c.spec.format = digits.pick(cases::formats);
                int64_t experts = digits.next(3);
                c.dims = {experts ? std::optional(2 * experts - 1) : std::nullopt, rows, cols};
                c.row_gap = digits.next(2) * 5;
                c.offset = static_cast<size_t>(digits.next(2));
                ++ran;
                CAPTURE(rows, cols, number);
                if (auto text = compare(device, c, random_part(c, static_cast<uint64_t>(ran))); !text.empty()) FAIL(text);
            }
        }
    CHECK(ran == 6039);
}

// Swizzle must give the oracle's bytes, padding included, and unswizzle must restore the compact scales. Neither needs codes.
MXQ_EACH_DEVICE("swizzle: the oracle's bytes, and unswizzle takes them back") {
    int64_t ran = 0;
    for (int64_t rows : cases::awkward_sizes)
        for (int64_t cols : {0, 1, 32, 33, 128, 129, 257, 1021})
            for (int32_t scaling : cases::scalings)
                for (int64_t experts : {-1, 1, 3, 64}) {
                    if (experts > 3 && rows * cols > 5000) continue;
                    Case c;
                    c.spec.scaling = scaling;
                    c.dims = {experts < 0 ? std::nullopt : std::optional(experts), rows, cols};
                    auto compact = testing::make_quantized(c.spec, c.dims, false), swizzled = testing::make_quantized(c.spec, c.dims, true);
                    std::vector<std::unique_ptr<Buffer>> from, to, back;
                    std::vector<oracle::Bytes> scales, expected;
                    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                        if (part == MXQ_PART_COLUMNWISE && ran % 2) continue;
                        c.part = part;
                        scales.push_back(random_part(c, static_cast<uint64_t>(ran)).scales);
                        expected.push_back(swizzled_scales(c, scales.back()));
                        from.push_back(std::make_unique<Buffer>(device, scales.back(), static_cast<size_t>(ran % 3)));
                        to.push_back(std::make_unique<Buffer>(device, expected.back().size()));
                        back.push_back(std::make_unique<Buffer>(device, scales.back().size()));
                        ok(mxq_tensor_set_part(compact, part, nullptr, 0, from.back()->data(), from.back()->bytes()));
                        ok(mxq_tensor_set_part(swizzled, part, nullptr, 0, to.back()->data(), to.back()->bytes()));
                    }
                    CAPTURE(rows, cols, scaling, experts);
                    ok(mxq_swizzle_scales(device.context, nullptr, compact, swizzled, nullptr, 0, nullptr));
                    for (size_t i = 0; i < to.size(); ++i) {
                        CHECK(testing::difference(to[i]->read(), expected[i]) == "");
                        ok(mxq_tensor_set_part(compact, 1 + static_cast<int32_t>(i), nullptr, 0, back[i]->data(), back[i]->bytes()));
                    }
                    ok(mxq_unswizzle_scales(device.context, nullptr, swizzled, compact, nullptr, 0, nullptr));
                    for (size_t i = 0; i < to.size(); ++i) CHECK(testing::difference(back[i]->read(), scales[i]) == "");
                    ++ran;
                }
    CHECK(ran == 10 * 8 * 2 * 3 + 2 * 52);
}

// Returns bytes that differ from their neighbours on all sides.
oracle::Bytes many_bytes(int64_t count) {
    oracle::Bytes bytes(static_cast<size_t>(count));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
    return bytes;
}

// Moves enough scales for the CUDA kernel that takes many through shared memory. In both parts the last row of tiles is not
// full, and one part has more rows of tiles than the other.
MXQ_EACH_DEVICE("swizzle: millions of scales of both parts, and back") {
    const int64_t rows = 10235, cols = 40955;
    const oracle::Spec spec;
    auto compact = testing::make_quantized(spec, {std::nullopt, rows, cols}, false);
    auto swizzled = testing::make_quantized(spec, {std::nullopt, rows, cols}, true);
    std::vector<std::unique_ptr<Buffer>> from, to, back;
    std::vector<oracle::Bytes> scales, expected;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        const int64_t lines = part == MXQ_PART_ROWWISE ? rows : cols, blocks = (rows + cols - lines + 31) / 32;
        scales.push_back(many_bytes(lines * blocks));
        expected.emplace_back(static_cast<size_t>(oracle::swizzled_bytes(lines, rows + cols - lines)));
        for (int64_t i = 0; i < lines * blocks; ++i)
            expected.back()[static_cast<size_t>(oracle::swizzle_position(i / blocks, i % blocks, blocks))] =
                scales.back()[static_cast<size_t>(i)];
        from.push_back(std::make_unique<Buffer>(device, scales.back()));
        to.push_back(std::make_unique<Buffer>(device, expected.back().size()));
        back.push_back(std::make_unique<Buffer>(device, scales.back().size()));
        ok(mxq_tensor_set_part(compact, part, nullptr, 0, from.back()->data(), from.back()->bytes()));
        ok(mxq_tensor_set_part(swizzled, part, nullptr, 0, to.back()->data(), to.back()->bytes()));
    }
    ok(mxq_swizzle_scales(device.context, nullptr, compact, swizzled, nullptr, 0, nullptr));
    for (size_t i = 0; i < to.size(); ++i) {
        CHECK(testing::difference(to[i]->read(), expected[i]) == "");
        ok(mxq_tensor_set_part(compact, 1 + static_cast<int32_t>(i), nullptr, 0, back[i]->data(), back[i]->bytes()));
    }
    ok(mxq_unswizzle_scales(device.context, nullptr, swizzled, compact, nullptr, 0, nullptr));
    for (size_t i = 0; i < to.size(); ++i) CHECK(testing::difference(back[i]->read(), scales[i]) == "");
}
