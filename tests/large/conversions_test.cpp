// Conversions of more than 2^31 and 2^32 elements: the rows of a tensor repeat, so those of the result must.
#include "tensors.h"

using large::cols;
using large::Scene;
using testing::ok;
using testing::spec_of;
using Numbers = Scene::Numbers;

namespace {

constexpr int32_t row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE, both = MXQ_PART_BOTH;

const oracle::Spec formats[] = {
    spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32), spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32),
    spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32), spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),
    spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),      spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128),
    spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128), spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)};

}  // namespace

MXQ_LARGE("quantize both parts, and dequantize each", uint64_t{40} << 30) {
    int compared = 0;
    for (const oracle::Spec& spec : formats)
        for (const bool swizzled : {false, true}) {
            // Rows of 128x128 tiles are padded to four when they are swizzled, which one period is not.
            if (swizzled && (!testing::can_swizzle(spec) || (oracle::is_fp8(spec.format) && testing::is_square(spec)))) continue;
            compared += large::check("quantize", device, large::rows_for(device), [&](Scene& s) {
                const testing::Options options(s.device, spec);
                mxq_tensor* x = s.plain_in(swizzled ? MXQ_FORMAT_F16 : MXQ_FORMAT_BF16, cols, Numbers::normal);
                mxq_tensor* q = s.quantized("q", spec, cols, both, swizzled);
                large::convert(s, mxq_quantize, mxq_quantize_query, options, x, q);
                for (const int32_t part : {row, column})
                    large::convert(s, mxq_dequantize, mxq_dequantize_query, nullptr, s.part_of(q, spec, cols, part, swizzled),
                                   s.plain_out(part == row ? "values of rows" : "values of columns", MXQ_FORMAT_BF16, cols));
            });
        }
    CHECK(compared == static_cast<int>(large::rows_for(device).size()) * (6 * 14 + 2 * 2));
}

MXQ_LARGE("quantize one part", uint64_t{40} << 30) {
    for (const int32_t part : {row, column})
        large::check("quantize one part", device, large::rows_for(device), [&](Scene& s) {
            mxq_tensor* x = s.plain_in(MXQ_FORMAT_F32, cols, Numbers::normal);
            large::convert(s, mxq_quantize, mxq_quantize_query, nullptr, x,
                           s.quantized("q", formats[0], cols, part, part == column));
        });
}

MXQ_LARGE("requantize rows to columns and columns to rows", uint64_t{60} << 30) {
    for (const oracle::Spec& to : {formats[0], formats[3], formats[6]})
        large::check("requantize", device, large::rows_for(device), [&](Scene& s) {
            mxq_tensor* x = s.plain_in(MXQ_FORMAT_BF16, cols, Numbers::normal);
            for (const int32_t part : {row, column}) {
                mxq_tensor* q = s.quantized("q", formats[0], cols, part, false);
                large::convert(s, mxq_quantize, mxq_quantize_query, nullptr, x, q);
                const testing::Options options(s.device, to);
                large::convert(s, mxq_requantize, mxq_requantize_query, options, q,
                               s.quantized("requantized", to, cols, part == row ? column : row, false));
            }
        });
}

MXQ_LARGE("swizzle scales, and unswizzle them", uint64_t{40} << 30) {
    large::check("swizzle", device, large::rows_for(device), [&](Scene& s) {
        mxq_tensor* x = s.plain_in(MXQ_FORMAT_BF16, cols, Numbers::normal);
        mxq_tensor* q = s.quantized("q", formats[0], cols, both, false);
        large::convert(s, mxq_quantize, mxq_quantize_query, nullptr, x, q);
        // Codes stay where they are: what is compared of them is poison.
        mxq_tensor* swizzled = s.quantized("swizzled", formats[0], cols, both, true);
        large::convert(s, mxq_swizzle_scales, mxq_swizzle_scales_query, nullptr, q, swizzled);
        large::convert(s, mxq_unswizzle_scales, mxq_unswizzle_scales_query, nullptr, swizzled,
                       s.quantized("unswizzled", formats[0], cols, both, false));
    });
}

MXQ_LARGE("convert, and the amax", uint64_t{60} << 30) {
    large::check("convert", device, large::rows_for(device), [&](Scene& s) {
        mxq_tensor* x = s.plain_in(MXQ_FORMAT_F32, cols, Numbers::normal);
        for (const int32_t format : {MXQ_FORMAT_BF16, MXQ_FORMAT_F16})
            large::convert(s, mxq_convert, mxq_convert_query, nullptr, x, s.plain_out("converted", format, cols));
        mxq_tensor* q = s.quantized("amax of", formats[4], cols, both, false);
        large::convert(s, mxq_amax, mxq_amax_query, nullptr, x, q);
    });
}

// Two and three lines of nearly 2^31 columns.
TEST_CASE("large: rows as long as can be · cuda", "[.large][cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA");
    testing::Device& device = *testing::cuda();
    if (const auto why = large::lacks_memory(device, uint64_t{40} << 30); !why.empty()) MXQ_SKIP(why);
    constexpr int64_t rows = 3, length = MXQ_MAX_DIM - 127, small_length = 4096;
    const testing::Bytes x = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, rows * small_length, 1);
    std::vector<std::unique_ptr<large::Memory>> of_small, of_big;
    for (auto& [width, made] : {std::pair{small_length, &of_small}, {length, &of_big}}) {
        const testing::Dims dims{std::nullopt, rows, width};
        auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims), out = testing::make_tensor(MXQ_FORMAT_BF16, dims),
             q = testing::make_tensor(formats[0], dims, false);
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(q, row, &code_bytes, &scale_bytes));
        const auto plain_bytes = static_cast<uint64_t>(rows * width * 2);
        for (const uint64_t bytes : {plain_bytes, code_bytes, scale_bytes, plain_bytes})
            made->push_back(std::make_unique<large::Memory>(device, bytes));
        large::repeat(*made->at(0), x, rows);
        ok(mxq_tensor_set_data(in, made->at(0)->data, plain_bytes));
        ok(mxq_tensor_set_part(q, row, made->at(1)->data, code_bytes, made->at(2)->data, scale_bytes));
        ok(mxq_tensor_set_data(out, made->at(3)->data, plain_bytes));
        testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, q);
        testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, q, out);
    }
    for (size_t i = 0; i < of_big.size(); ++i) CHECK(large::differences(*of_big[i], *of_small[i], rows) == 0);
}

// ---- Groups --------------------------------------------------------------------------------------------------------------

// Groups that begin at no multiple of anything: each is where padding puts it, rows of zeros follow it, and it comes back.
MXQ_LARGE("pad groups, and take the padding away", uint64_t{60} << 30) {
    for (const int64_t rows : large::rows_for(device)) {
        Scene s(device, rows);
        const std::vector<int64_t> ends{rows / 3 + 1, rows / 3 + 1, rows - 100, rows};
        const testing::DeviceEnds on_device(device, ends, true);
        const auto grouped = [&](int64_t alignment) {
            testing::Tensor tensor = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols});
            on_device.set(tensor, {ends, alignment});
            uint64_t bytes = 0;
            ok(mxq_tensor_required_bytes(tensor, row, &bytes, nullptr));
            auto memory = s.memory(bytes);
            ok(mxq_tensor_set_data(tensor, memory->data, memory->bytes));
            return std::pair{std::move(tensor), memory};
        };
        const auto [in, in_memory] = grouped(1);
        const auto [padded, padded_memory] = grouped(128);
        const auto [back, back_memory] = grouped(1);
        large::repeat(*in_memory, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, large::period * cols, 1), 1);
        large::convert(s, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, padded);
        large::convert(s, mxq_unpad_groups, mxq_unpad_groups_query, nullptr, padded, back);

        const large::Memory zeros(device, 128 * cols * 2);
        large::repeat(zeros, testing::Bytes(1, 0), 1);
        const auto row_bytes = static_cast<uint64_t>(cols * 2);
        CHECK(large::differences(*back_memory, 0, *in_memory, 0, in_memory->bytes) == 0);
        uint64_t begin = 0, at = 0;
        for (const int64_t end : ends) {
            const uint64_t count = static_cast<uint64_t>(end) - begin, padding = (128 - count % 128) % 128;
            CAPTURE(rows, begin, end, at);
            CHECK(large::differences(*padded_memory, at * row_bytes, *in_memory, begin * row_bytes, count * row_bytes) == 0);
            CHECK(large::differences(*padded_memory, (at + count) * row_bytes, zeros, 0, padding * row_bytes) == 0);
            at += count + padding, begin = static_cast<uint64_t>(end);
        }
    }
}
