// Parts with a Hadamard transform: dequantize undoes it, requantize lets it pass, each part has its own, and products of
// parts that have the same are those of the values.
#include "../formats.h"
#include "product.h"

using testing::Buffer;
using testing::ok;

namespace {

const int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};

// The formats that take a transform.
std::vector<oracle::Spec> transformable() {
    return {testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16), testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),
            testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X128)};
}

oracle::Spec transformed(oracle::Spec spec, int32_t part, cases::Random& random) {
    spec.hadamard = part;
    spec.rowwise_mask = random.bits() & 0xFFFF;
    spec.columnwise_mask = random.bits() & 0xFFFF;
    return spec;
}

testing::QuantizeOptions keeping() {
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_undo_hadamard(options, 0));
    return options;
}

// Returns what dequantize writes to a buffer of `bytes` bytes.
oracle::Bytes dequantized(testing::Device& device, mxq_tensor* in, mxq_tensor* out, size_t bytes, size_t offset, bool keep) {
    Buffer data(device, bytes, offset);
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, keep ? keeping() : testing::QuantizeOptions(), in, out);
    return data.read();
}

}  // namespace

MXQ_EACH_DEVICE("hadamard: dequantize undoes a transform, or keeps it") {
    int64_t ran = 0;
    for (const oracle::Spec& base : transformable())
        for (int32_t part : both_parts)
            for (int32_t output : cases::plain_formats)
                for (int64_t lines : {1, 5, 31, 130})
                    for (int64_t length : {16, 48, 128, 272, 1056}) {
                        cases::Random random(static_cast<uint64_t>(ran) + 1);
                        const oracle::Spec spec = transformed(base, part, random);
                        const bool columnwise = part == MXQ_PART_COLUMNWISE, swizzled = random.below(2);
                        const int64_t experts = random.below(3);
                        const testing::Dims dims{experts ? std::optional(experts) : std::nullopt,
                                                 columnwise ? length : lines, columnwise ? lines : length};
                        const auto offset = static_cast<size_t>(random.below(2));
                        const auto x = cases::values(random.below(2) ? cases::Values::normal : cases::Values::wide,
                                                     dims.shape().count(), static_cast<uint64_t>(ran));
                        const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
                        auto in = testing::make_tensor(spec, dims, swizzled), out = testing::make_tensor(output, dims);
                        testing::InputPart input(device, in, spec, part, stored, offset);
                        for (bool keep : {false, true}) {
                            const oracle::Spec read = keep ? oracle::untransformed(spec) : spec;
                            const auto expected =
                                oracle::store(output, oracle::dequantize(read, stored, dims.shape(), part, swizzled));
                            const size_t at = offset * static_cast<size_t>(oracle::plain_bytes(output));
                            const auto text =
                                testing::difference(dequantized(device, in, out, expected.size(), at, keep), expected);
                            if (!text.empty())
                                FAIL(testing::describe(spec) << " to " << mxq_format_name(output) << ", " << dims.rows << "x"
                                                             << dims.cols << ", keep " << keep << ": " << text);
                            ++ran;
                        }
                    }
    CHECK(ran == 3 * 2 * 3 * 4 * 5 * 2);
}

MXQ_EACH_DEVICE("hadamard: dequantize undoes the transform of groups, with and without padding in out") {
    int64_t ran = 0;
    for (const oracle::Spec& base : transformable())
        for (int32_t part : both_parts)
            for (int64_t count : {0, 1, 3, 40})
                for (int64_t cols : {16, 176, 272})
                    for (int64_t alignment : {0, 1, 32, 128}) {
                        cases::Random random(static_cast<uint64_t>(ran) + 5);
                        const oracle::Spec spec = transformed(base, part, random);
                        const bool swizzled = random.below(2);
                        const int64_t rows = 1 + random.below(300);
                        const int32_t output = cases::plain_formats[random.below(3)];
                        const testing::Dims dims{std::nullopt, rows, cols};
                        const oracle::Groups groups = testing::draw_groups(random, spec, rows, count);
                        const auto x =
                            cases::values(cases::Values::normal, dims.shape().count(), static_cast<uint64_t>(ran));
                        const auto stored = oracle::quantize_groups(spec, x, rows, cols, groups, part, swizzled);
                        auto in = testing::make_tensor(spec, dims, swizzled), out = testing::make_tensor(output, dims);
                        testing::DeviceEnds ends(device, groups.ends, random.below(2));
                        ends.set(in, groups);
                        if (alignment) ends.set(out, {{}, alignment});
                        testing::InputPart input(device, in, spec, part, stored.on(oracle::untouchable));
                        const int64_t row_bytes = cols * oracle::plain_bytes(output);
                        const auto values = oracle::store(
                            output, oracle::dequantize_groups(spec, stored.stored, rows, cols, groups, part, swizzled));
                        auto padded = oracle::pad_rows(values, row_bytes, rows, groups.ends, alignment ? alignment : 1);
                        padded.bytes.resize(static_cast<size_t>(alignment ? padded.bytes.size() : rows * row_bytes), 0);
                        padded.written.resize(padded.bytes.size(), 0);
                        const auto expected = oracle::on_background(padded.bytes, padded.written, testing::poison);
                        const auto text =
                            testing::difference(dequantized(device, in, out, expected.size(), 0, false), expected);
                        if (!text.empty())
                            FAIL(testing::describe(spec) << " to " << mxq_format_name(output) << ", " << rows << "x" << cols
                                                         << ", " << count << " groups, out " << alignment << ": " << text);
                        ++ran;
                    }
    CHECK(ran == 3 * 2 * 4 * 3 * 4);
}

// Ones become a single 4 of sixteen, which every format here has exactly; a NaN of sixteen makes all of them NaN.
MXQ_EACH_DEVICE("hadamard: the values come back, signs of zeros and NaN too") {
    const testing::Dims dims{std::nullopt, 1, 32};
    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    spec.hadamard = MXQ_PART_ROWWISE, spec.rowwise_mask = 0x8001;
    auto in = testing::make_tensor(spec, dims, false), out = testing::make_tensor(MXQ_FORMAT_F32, dims);
    oracle::Bytes codes(16, 0);
    codes[0] = 0x06;  // 4 at element 0, the others +0
    oracle::Floats expected(32, 0.0f);
    std::fill(expected.begin(), expected.begin() + 16, 1.0f);
    for (size_t i : {0, 15, 16, 31}) expected[i] = -expected[i];
    testing::InputPart ones(device, in, spec, MXQ_PART_ROWWISE, {codes, {127}});
    CHECK(dequantized(device, in, out, 128, 0, false) == testing::bytes_of(expected));
    testing::InputPart lost(device, in, spec, MXQ_PART_ROWWISE, {codes, {255}});
    CHECK(dequantized(device, in, out, 128, 0, false) ==
          oracle::store(MXQ_FORMAT_F32, oracle::Floats(32, std::numeric_limits<float>::quiet_NaN())));
}

MXQ_EACH_DEVICE("hadamard: each part has its own transform") {
    int ran = 0;
    for (const oracle::Spec& base : transformable())
        for (int32_t transforms : {1, 2, 3}) {
            cases::Random random(static_cast<uint64_t>(ran) + 9);
            const oracle::Spec spec = transformed(base, transforms, random);
            const testing::Dims dims{std::nullopt, 144, 272};
            const auto x = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, dims.shape().count(), 3);
            const auto values = oracle::load(MXQ_FORMAT_BF16, x.data(), dims.shape().count());
            Buffer data(device, x);
            auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims), out = testing::make_tensor(spec, dims, false);
            ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
            testing::OutputPart rowwise(device, out, spec, MXQ_PART_ROWWISE, true),
                columnwise(device, out, spec, MXQ_PART_COLUMNWISE, true);
            testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, out);
            const auto expected = [&](int32_t part) {
                return testing::all_written(oracle::quantize(spec, values, dims.shape(), part, false));
            };
            INFO(testing::describe(spec));
            CHECK(rowwise.compare(expected(MXQ_PART_ROWWISE), spec) == "");
            CHECK(columnwise.compare(expected(MXQ_PART_COLUMNWISE), spec) == "");
            ++ran;
        }
    CHECK(ran == 3 * 3);
}

// The transform is neither undone nor applied again: the bytes are those of the values as they are.
MXQ_EACH_DEVICE("hadamard: requantize lets a transform pass") {
    int ran = 0;
    for (const oracle::Spec& from_base : transformable())
        for (const oracle::Spec& to_base : transformable())
            for (int32_t part : both_parts)
                for (bool grouped : {false, true}) {
                    if (grouped && part == MXQ_PART_COLUMNWISE) continue;
                    cases::Random random(static_cast<uint64_t>(ran) + 21);
                    const oracle::Spec from = transformed(from_base, part, random);
                    oracle::Spec to = to_base;
                    to.hadamard = part, to.rowwise_mask = from.rowwise_mask, to.columnwise_mask = from.columnwise_mask;
                    const testing::Dims dims{std::nullopt, 144, 272};
                    const oracle::Groups groups{grouped ? oracle::Ends{10, 100, 144} : oracle::Ends{}};
                    const auto x = cases::values(cases::Values::normal, dims.shape().count(), 8);
                    const oracle::Part stored =
                        grouped ? oracle::quantize_groups(from, x, dims.rows, dims.cols, groups, part, false)
                                      .on(oracle::untouchable)
                                : oracle::quantize(from, x, dims.shape(), part, false);
                    auto in = testing::make_tensor(from, dims, false), out = testing::make_tensor(to, dims, false);
                    testing::DeviceEnds ends(device, groups.ends);
                    if (grouped) ends.set(in, groups), ends.set(out, groups);
                    testing::InputPart input(device, in, from, part, stored);
                    testing::OutputPart output(device, out, to, part, true);
                    testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, in, out);
                    const auto expected = grouped ? oracle::requantize_groups(from, stored, part, false, groups, to,
                                                                              dims.rows, dims.cols, groups, part, false)
                                                  : testing::all_written(oracle::requantize(from, stored, part, false, to,
                                                                                            dims.shape(), part, false));
                    INFO(testing::describe(from) << " to " << testing::describe(to) << " grouped " << grouped);
                    CHECK(output.compare(expected, to) == "");
                    ++ran;
                }
    CHECK(ran == 3 * 3 * 3);
}

// Rows of ones are transformed to one value of sixteen; under the same signs on both sides the product is that of the ones.
MXQ_EACH_DEVICE("hadamard: the same transform on both sides of a product cancels") {
    int ran = 0;
    for (const oracle::Spec& base : transformable())
        for (bool transposed : {false, true}) {
            const int64_t m = 16, n = 32, k = 64;
            oracle::Spec spec = base;
            spec.hadamard = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;
            spec.rowwise_mask = spec.columnwise_mask = 0xD7E8;
            const int32_t part = transposed ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
            const auto dims = [&](int64_t outer) {
                return transposed ? testing::Dims{std::nullopt, k, outer} : testing::Dims{std::nullopt, outer, k};
            };
            // The transform of this line is 4 at element 0 of every sixteen.
            oracle::Floats line(static_cast<size_t>(k));
            for (size_t i = 0; i < line.size(); ++i) line[i] = spec.rowwise_mask >> (i % 16) & 1 ? -1.0f : 1.0f;
            const auto operand = [&](int64_t outer) {
                oracle::Floats x;
                for (int64_t i = 0; i < outer; ++i) x.insert(x.end(), line.begin(), line.end());
                return transposed ? oracle::transposed(x.data(), outer, k) : x;
            };
            auto a = testing::make_tensor(spec, dims(m), false), b = testing::make_tensor(spec, dims(n), false);
            const auto a_stored = oracle::quantize(spec, operand(m), dims(m).shape(), part, false),
                       b_stored = oracle::quantize(spec, operand(n), dims(n).shape(), part, false);
            testing::InputPart a_part(device, a, spec, part, a_stored), b_part(device, b, spec, part, b_stored);
            testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
            const auto options = testing::gemm_options(transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                       transposed ? MXQ_TRANSPOSE_N : MXQ_TRANSPOSE_T);
            testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a, b, d.tensor);
            CHECK(d.values() == oracle::Floats(static_cast<size_t>(m * n), static_cast<float>(k)));
            ++ran;
        }
    CHECK(ran == 3 * 2);
}
