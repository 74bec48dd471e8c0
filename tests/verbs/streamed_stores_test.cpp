// The CPU writes outputs of 16 MiB and more past its caches, whole cache lines at a time. The bytes before the first and
// after the last whole line of each row are written in another way.
#include "../formats.h"

using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

const oracle::Spec mxfp8;

// `lines` lines, of which line i is line i % 7 of `few`, which has 7 or fewer.
Bytes repeated(const Bytes& few, int64_t lines, int64_t line_bytes) {
    const auto count = static_cast<int64_t>(few.size()) / line_bytes;
    Bytes out;
    for (int64_t i = 0; i < lines; ++i) {
        const auto first = few.begin() + i % count * line_bytes;
        out.insert(out.end(), first, first + line_bytes);
    }
    return out;
}

// Dequantizes to F32 at `offset` bytes past a cache line. Returns what differs from the oracle.
std::string dequantized(int64_t rows, int64_t cols, size_t offset) {
    const testing::Dims dims{std::nullopt, rows, cols};
    const int64_t few = std::min<int64_t>(rows, 7), blocks = oracle::ceil_div(cols, 32);
    cases::Random random(1);
    oracle::Part part{Bytes(static_cast<size_t>(few * cols)), Bytes(static_cast<size_t>(few * blocks)), {}, {}};
    for (uint8_t& code : part.codes) code = static_cast<uint8_t>(random.bits());
    for (uint8_t& scale : part.scales) scale = static_cast<uint8_t>(120 + random.below(16));
    const auto values =
        oracle::store(MXQ_FORMAT_F32, oracle::dequantize_rowwise(mxfp8, part.codes.data(), part.scales.data(), few, cols));

    auto in = testing::make_tensor(mxfp8, dims, false), out = testing::make_tensor(MXQ_FORMAT_F32, dims);
    const testing::InputPart input(testing::cpu(), in, mxfp8, MXQ_PART_ROWWISE,
                                   {repeated(part.codes, rows, cols), repeated(part.scales, rows, blocks), {}, {}});
    Buffer data(testing::cpu(), static_cast<size_t>(rows * cols * 4), offset);
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    ok(mxq_dequantize(testing::cpu().context, nullptr, in, out, nullptr, 0, nullptr));
    return testing::difference(data.read(), repeated(values, rows, cols * 4));
}

// Quantizes lines of 1025 BF16 values, which are rows or columns. Returns what differs from the oracle.
std::string quantized(int32_t part, int64_t lines, size_t offset) {
    const int64_t length = 1025, blocks = 33;
    const Bytes few = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, static_cast<size_t>(7 * length), 2);
    const oracle::Part expected = oracle::quantize_rowwise(
        mxfp8, oracle::load(MXQ_FORMAT_BF16, few.data(), static_cast<size_t>(7 * length)).data(), 7, length);
    Bytes x = repeated(few, lines, length * 2);
    const bool columnwise = part == MXQ_PART_COLUMNWISE;
    if (columnwise) {
        Bytes transposed(x.size());
        for (int64_t i = 0; i < lines; ++i)
            for (int64_t j = 0; j < length; ++j)
                std::memcpy(&transposed[static_cast<size_t>((j * lines + i) * 2)],
                            &x[static_cast<size_t>((i * length + j) * 2)], 2);
        x = std::move(transposed);
    }
    const testing::Dims dims{std::nullopt, columnwise ? length : lines, columnwise ? lines : length};
    auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims), out = testing::make_tensor(mxfp8, dims, false);
    Buffer data(testing::cpu(), x);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    const testing::PartBuffers buffers(testing::cpu(), out, part, offset);
    ok(mxq_quantize(testing::cpu().context, nullptr, in, out, nullptr, 0, nullptr));
    if (auto text = testing::difference(buffers.scales->read(), repeated(expected.scales, lines, blocks)); !text.empty())
        return "scales: " + text;
    return testing::difference(buffers.codes->read(), repeated(expected.codes, lines, length));
}

}  // namespace

TEST_CASE("streamed stores: dequantize, with a head and a tail that are no whole cache lines", "[cpu]") {
    for (size_t offset : {0, 4}) {
        CHECK(dequantized(1, 4194305, offset) == "");
        CHECK(dequantized(4100, 1025, offset) == "");
    }
}

TEST_CASE("streamed stores: quantize, with heads and tails that are no whole cache lines", "[cpu]") {
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        for (size_t offset : {0, 1}) CHECK(quantized(part, 16400, offset) == "");
}
