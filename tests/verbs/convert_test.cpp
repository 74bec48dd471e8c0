// mxq_convert gives the oracle's numbers from every plain format to every other, and refuses what is not plain.
#include "../abi/says.h"
#include "../formats.h"

using testing::Buffer;
using testing::ok;

namespace {

// Returns what convert writes between rows with gaps: `gap` numbers after each row of both tensors.
oracle::Bytes converted(testing::Device& device, int32_t from, int32_t to, const oracle::Bytes& dense, testing::Dims dims,
                        int64_t gap, size_t offset) {
    const int64_t in_bytes = oracle::plain_bytes(from), out_bytes = oracle::plain_bytes(to),
                  rows = dims.shape().experts * dims.rows;
    auto in = testing::make_tensor(from, dims), out = testing::make_tensor(to, dims);
    Buffer source(device, testing::spread_rows(dense, rows, dims.cols * in_bytes, gap * in_bytes),
                  offset * static_cast<size_t>(in_bytes));
    const oracle::Bytes room(static_cast<size_t>(rows * dims.cols * out_bytes), testing::poison);
    Buffer target(device, testing::spread_rows(room, rows, dims.cols * out_bytes, gap * out_bytes),
                  offset * static_cast<size_t>(out_bytes));
    ok(mxq_tensor_set_const_data(in, source.data(), source.bytes()));
    ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(in), static_cast<mxq_tensor*>(out)})
        if (gap) ok(mxq_tensor_set_row_stride(tensor, dims.cols + gap));
    testing::run(device, mxq_convert, mxq_convert_query, nullptr, in, out);
    return target.read();
}

oracle::Bytes expected_of(int32_t from, int32_t to, const oracle::Bytes& dense, testing::Dims dims, int64_t gap) {
    const int64_t bytes = oracle::plain_bytes(to), rows = dims.shape().experts * dims.rows;
    return testing::spread_rows(oracle::store(to, oracle::load(from, dense.data(), dims.shape().count())), rows,
                                dims.cols * bytes, gap * bytes);
}

}  // namespace

MXQ_EACH_DEVICE("convert: every pair of formats, shapes and strides") {
    int64_t ran = 0;
    for (int32_t from : cases::plain_formats)
        for (int32_t to : cases::plain_formats)
            for (int64_t rows : {0, 1, 9, 131})
                for (int64_t cols : {0, 1, 8, 67, 256, 1032})
                    for (int64_t gap : {0, 1, 8}) {
                        cases::Random random(static_cast<uint64_t>(ran) + 1);
                        const int64_t experts = random.below(3);
                        const testing::Dims dims{experts ? std::optional(experts) : std::nullopt, rows, cols};
                        const auto offset = static_cast<size_t>(random.below(2));
                        const auto values = random.below(2) ? cases::Values::bits : cases::Values::wide;
                        const auto dense = cases::plain_values(from, values, dims.shape().count(), static_cast<uint64_t>(ran));
                        if (!rows || !cols) {  // no row has a gap
                            if (gap) continue;
                        }
                        const auto text = testing::difference(converted(device, from, to, dense, dims, gap, offset),
                                                              expected_of(from, to, dense, dims, gap));
                        if (!text.empty())
                            FAIL(mxq_format_name(from) << " to " << mxq_format_name(to) << ", " << rows << "x" << cols << ", gap "
                                                       << gap << ": " << text);
                        ++ran;
                    }
    CHECK(ran == 9 * (3 * 5 * 3 + 9));
}

// All numbers of 16 bits; and F32 numbers just below, at and above the middle of every two neighbours of 16 bits.
MXQ_EACH_DEVICE("convert: every number of 16 bits, and every tie") {
    const testing::Dims dims{std::nullopt, 256, 256};
    oracle::Bytes all;
    for (uint32_t i = 0; i < 65536; ++i) all.push_back(static_cast<uint8_t>(i)), all.push_back(static_cast<uint8_t>(i >> 8));
    int ran = 0;
    for (int32_t from : {MXQ_FORMAT_F16, MXQ_FORMAT_BF16}) {
        for (int32_t to : cases::plain_formats) {
            CHECK(testing::difference(converted(device, from, to, all, dims, 0, 0), expected_of(from, to, all, dims, 0)) == "");
            ++ran;
        }
        oracle::Floats numbers = oracle::load(from, all.data(), 65536);
        for (int step : {-1, 0, 1}) {
            oracle::Floats ties(numbers.size());
            for (size_t i = 0; i < numbers.size(); ++i) {
                const float next = numbers[(i & 0x8000) | ((i + 1) & 0x7FFF)], middle = numbers[i] / 2 + next / 2;
                ties[i] = oracle::float_of(oracle::bits_of(middle) + static_cast<uint32_t>(step));
            }
            const auto dense = testing::bytes_of(ties);
            CHECK(testing::difference(converted(device, MXQ_FORMAT_F32, from, dense, dims, 0, 0),
                                      expected_of(MXQ_FORMAT_F32, from, dense, dims, 0)) == "");
            ++ran;
        }
    }
    CHECK(ran == 2 * (3 + 3));
}

MXQ_EACH_DEVICE("convert: refusals") {
    const testing::Dims dims{std::nullopt, 4, 32};
    auto f32 = testing::make_tensor(MXQ_FORMAT_F32, dims), f16 = testing::make_tensor(MXQ_FORMAT_F16, dims),
         wide = testing::make_tensor(MXQ_FORMAT_F16, {std::nullopt, 4, 33}), q = testing::make_tensor(MXQ_FORMAT_MXFP4, dims);
    const auto query = [&](mxq_tensor* in, mxq_tensor* out, mxq_quantize_options* options = nullptr) {
        return mxq_convert_query(device.context, options, in, out, nullptr);
    };
    CHECK(query(f32, f16) == MXQ_STATUS_OK);
    MXQ_REFUSED(query(q, f16), MXQ_STATUS_UNSUPPORTED, "mxq_convert_query", "in is mxfp4", "expected f32, f16 or bf16");
    MXQ_REFUSED(query(f32, q), MXQ_STATUS_UNSUPPORTED, "out is mxfp4");
    MXQ_REFUSED(query(f32, wide), MXQ_STATUS_SHAPE_MISMATCH, "out is 4 x 33", "4 x 32");
    MXQ_REFUSED(query(nullptr, f16), MXQ_STATUS_INVALID_ARGUMENT, "in is NULL");
    MXQ_REFUSED(query(f32, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "out is NULL");

    Buffer from(device, 512), to(device, 256);
    ok(mxq_tensor_set_data(f32, from.data(), 512));
    const auto convert = [&] { return mxq_convert(device.context, nullptr, f32, f16, nullptr, 0, nullptr); };
    MXQ_REFUSED(convert(), MXQ_STATUS_MISSING_BUFFER, "out.data");
    ok(mxq_tensor_set_data(f16, to.data(), 255));
    MXQ_REFUSED(convert(), MXQ_STATUS_BUFFER_TOO_SMALL, "out.data", "255", "256");
    ok(mxq_tensor_set_const_data(f16, to.data(), 256));
    MXQ_REFUSED(convert(), MXQ_STATUS_INVALID_ARGUMENT, "out has data that may only be read");
    ok(mxq_tensor_set_data(f16, static_cast<uint8_t*>(from.data()) + 256, 256));
    MXQ_REFUSED(convert(), MXQ_STATUS_INVALID_ARGUMENT, "overlaps");
    ok(mxq_tensor_set_data(f16, to.data(), 256));

    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_nonfinite(options, MXQ_NONFINITE_SATURATE));
    MXQ_REFUSED(query(f32, f16, options), MXQ_STATUS_INVALID_ARGUMENT, "a non-finite policy", "convert does not have");
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(f32), static_cast<mxq_tensor*>(f16)}) {
        ok(testing::set_ends(tensor, to.data(), MXQ_TYPE_INT32, 2));
        MXQ_REFUSED(query(f32, f16), MXQ_STATUS_UNSUPPORTED, "has groups, expected none", "as they are stored");
        ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 0));
    }
    CHECK(to.untouched());
    CHECK(convert() == MXQ_STATUS_OK);
    CHECK(!to.untouched());
}
