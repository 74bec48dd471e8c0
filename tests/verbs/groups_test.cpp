// mxq_pad_groups, mxq_unpad_groups, mxq_amax and the swizzling of scales give the oracle's bytes for every format.
#include "../formats.h"

using testing::Buffer;
using testing::ok;

namespace {

// An array of `count` 32-bit or 64-bit integers that the library writes.
class Integers {
public:
    Integers(testing::Device& device, int64_t count, bool is_int64) : is_int64_(is_int64), buffer_(device, static_cast<size_t>(count) * (is_int64 ? 8 : 4)) {}
    void* data() const { return buffer_.data(); }
    uint64_t bytes() const { return buffer_.bytes(); }
    std::vector<int64_t> read() const {
        std::vector<int64_t> out;
        oracle::Bytes bytes = buffer_.read();
        for (size_t i = 0; i < bytes.size(); i += is_int64_ ? 8 : 4) {
            int32_t narrow = 0;
            int64_t number = 0;
            std::memcpy(is_int64_ ? static_cast<void*>(&number) : &narrow, &bytes[i], is_int64_ ? 8 : 4);
            out.push_back(is_int64_ ? number : narrow);
        }
        return out;
    }

private:
    bool is_int64_;
    Buffer buffer_;
};

std::vector<int64_t> first(const std::vector<int64_t>& starts) { return {starts.begin(), starts.end() - 1}; }
std::vector<int64_t> last(const std::vector<int64_t>& starts) { return {starts.begin() + 1, starts.end()}; }

// Returns a copy with arbitrary codes in the padding of its groups, and arbitrary scales of blocks that are padding alone.
oracle::GroupedPart with_any_padding(oracle::GroupedPart part, const oracle::Spec& spec, const oracle::GroupLayout& layout,
                                     const oracle::Ends& ends, bool rowwise, cases::Random& random) {
    const oracle::Tile tile = oracle::tile_of(spec.scaling);
    const int64_t height = rowwise ? tile.height : tile.width;  // of a block, along the groups
    const int bits = oracle::code_bits(spec.format);
    for (size_t g = 0; g < ends.size(); ++g) {
        const oracle::Placement at = layout.placement(g);
        const int64_t m = oracle::group_rows(ends, g);
        for (int64_t i = 0; i < layout.line_rows(g); ++i)
            for (int64_t j = 0; j < layout.line_cols(g); ++j) {
                if ((rowwise ? i : j) < m) continue;
                oracle::put_code(&part.stored.codes[static_cast<size_t>(at.first_byte + i * at.row_bytes)], bits,
                                 at.first_code + j, static_cast<uint8_t>(random.bits() & ((1u << bits) - 1)));
                const bool alone = height != oracle::whole && (rowwise ? i : j) / height * height >= m;
                if (alone && at.has_scale(i, j))
                    oracle::put_scale(spec.format, part.stored.scales.data(), at.scale(i, j), random.bits());
            }
    }
    return part;
}

}  // namespace

MXQ_EACH_DEVICE("groups: pad and unpad of plain tensors") {
    int64_t ran = 0;
    for (int32_t format : cases::plain_formats)
        for (int64_t count : {0, 1, 2, 7, 40, 700})
            for (int64_t alignment : {1, 2, 16, 32, 128})
                for (int64_t cols : {1, 31, 64, 128, 1000}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    int64_t rows = random.below(300), row_bytes = cols * oracle::plain_bytes(format);
                    oracle::Ends logical = testing::draw_ends(random, rows, count);
                    bool is_int64 = random.below(2);
                    int64_t gap = random.below(2) * 3;
                    auto offset = static_cast<size_t>(random.below(2) * oracle::plain_bytes(format));
                    auto x = cases::plain_values(format, cases::Values::bits, static_cast<size_t>(rows * cols), static_cast<uint64_t>(ran));
                    auto padded = oracle::pad_rows(x, row_bytes, rows, logical, alignment);
                    auto unpadded = oracle::unpad_rows(padded.bytes, row_bytes, rows, logical, alignment);

                    testing::DeviceEnds ends(device, logical, is_int64);
                    auto plain = testing::make_tensor(format, {std::nullopt, rows, cols}), aligned = testing::make_tensor(format, {std::nullopt, rows, cols});
                    ends.set(plain, {});
                    ends.set(aligned, {{}, alignment});
                    ok(mxq_tensor_set_row_stride(plain, cols + gap));
                    Buffer from(device, testing::spread_rows(x, rows, row_bytes, gap * oracle::plain_bytes(format)), offset);
                    Buffer to(device, padded.bytes.size(), offset);
                    Integers starts(device, count, is_int64), padded_ends(device, count, is_int64);
                    ok(mxq_tensor_set_data(plain, from.data(), from.bytes()));
                    ok(mxq_tensor_set_data(aligned, to.data(), to.bytes()));
                    ok(mxq_tensor_set_padded_groups(aligned, MXQ_PART_ROWWISE, starts.data(), starts.bytes(), padded_ends.data(), padded_ends.bytes()));
                    INFO("format " << format << ", " << count << " groups, " << rows << "x" << cols << ", alignment " << alignment << ", gap " << gap);
                    testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, plain, aligned);
                    if (count) {
                        REQUIRE(testing::difference(to.read(), oracle::on_background(padded.bytes, padded.written, testing::poison)) == "");
                        auto expected = oracle::padded_starts(logical, alignment);
                        REQUIRE(starts.read() == first(expected));
                        REQUIRE(padded_ends.read() == last(expected));
                    }

                    Buffer back(device, x.size(), offset);
                    Integers unpadded_starts(device, count, is_int64), unpadded_ends(device, count, is_int64);
                    ok(mxq_tensor_set_row_stride(plain, cols));
                    ok(mxq_tensor_set_data(plain, back.data(), back.bytes()));
                    ok(mxq_tensor_set_padded_groups(plain, MXQ_PART_ROWWISE, unpadded_starts.data(), unpadded_starts.bytes(),
                                                    unpadded_ends.data(), unpadded_ends.bytes()));
                    testing::run(device, mxq_unpad_groups, mxq_unpad_groups_query, nullptr, aligned, plain);
                    REQUIRE(testing::difference(back.read(), oracle::on_background(unpadded.bytes, unpadded.written, testing::poison)) == "");
                    REQUIRE(unpadded_ends.read() == logical);
                    if (count) REQUIRE(unpadded_starts.read() == first(oracle::padded_starts(logical, 1)));
                    ++ran;
                }
    CHECK(ran == 3 * 6 * 5 * 5);
}

MXQ_EACH_DEVICE("groups: pad and unpad of quantized tensors, codes and scales") {
    int64_t ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int64_t count : {0, 1, 3, 9, 40})
            for (int64_t cols : {1, 31, 64, 160, 256}) {
                cases::Random random(static_cast<uint64_t>(ran) + 23);
                oracle::Spec spec = base;
                if (testing::has_amax(spec)) spec.per_matrix = random.below(2);
                int64_t rows = 1 + random.below(300), parts = 1 + random.below(3);
                bool swizzled = random.below(2) && testing::can_swizzle(spec, parts & 2);
                oracle::Groups small = testing::draw_groups(random, spec, rows, count), large = small;
                large.rowwise = std::min<int64_t>(128, small.rowwise << random.below(4));
                small.columnwise = small.alignment(spec, MXQ_PART_COLUMNWISE);
                large.columnwise = std::min<int64_t>(128, small.columnwise << random.below(3));
                const oracle::Groups& from = ran % 2 ? large : small;
                const oracle::Groups& to = ran % 2 ? small : large;
                auto x = cases::values(cases::Values::normal, static_cast<size_t>(rows * cols), static_cast<uint64_t>(ran));

                testing::Dims dims{std::nullopt, rows, cols};
                auto in = testing::make_tensor(spec, dims, swizzled), out = testing::make_tensor(spec, dims, swizzled);
                testing::DeviceEnds ends(device, small.ends);
                ends.set(in, from), ends.set(out, to);
                std::vector<oracle::Part> stored;
                std::vector<std::unique_ptr<testing::InputPart>> inputs;
                std::vector<std::pair<int32_t, testing::OutputPart>> outputs;
                for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                    if (!(parts & part)) continue;
                    const oracle::GroupLayout layout(spec, rows, cols, from, part, swizzled);
                    stored.push_back(with_any_padding(oracle::quantize_groups(spec, x, rows, cols, from, part, swizzled),
                                                      spec, layout, from.ends, part == MXQ_PART_ROWWISE, random)
                                         .on(oracle::untouchable));
                    inputs.push_back(std::make_unique<testing::InputPart>(device, in, spec, part, stored.back()));
                    outputs.emplace_back(part, testing::OutputPart(device, out, spec, part, false));
                }
                if (ran % 2) testing::run(device, mxq_unpad_groups, mxq_unpad_groups_query, nullptr, in, out);
                else testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, out);
                ++ran;
                size_t number = 0;
                for (auto& [part, buffers] : outputs) {
                    auto expected = oracle::realign_part(spec, stored[number++], rows, cols, from, to, part, swizzled);
                    if (count == 0) expected.scales_written.assign(expected.scales_written.size(), 0);
                    if (auto text = buffers.compare(expected, spec); !text.empty())
                        FAIL(testing::describe(spec) << ", " << rows << "x" << cols << ", " << count << " groups, part " << part << " swizzled " << swizzled
                                                     << ", alignments " << from.rowwise << " " << from.columnwise << " to " << to.rowwise << " "
                                                     << to.columnwise << ": " << text);
                }
            }
    CHECK(ran == 35 * 5 * 5);
}

// The bytes that `in` has in its padding belong to no group and never reach `out`.
MXQ_EACH_DEVICE("groups: pad and unpad of plain tensors write +0 where the input has padding") {
    int ran = 0;
    const oracle::Ends logical{1, 1, 20, 55};
    const int64_t rows = 60, cols = 9, row_bytes = cols * 2;
    for (auto [from, to] : {std::pair<int64_t, int64_t>{4, 32}, {16, 16}, {32, 4}}) {
        auto x = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::bits, static_cast<size_t>(rows * cols), 3);
        auto padded = oracle::pad_rows(x, row_bytes, rows, logical, from),
             expected = oracle::pad_rows(x, row_bytes, rows, logical, to);
        auto of_rows = oracle::pad_rows(oracle::Bytes(x.size(), 1), row_bytes, rows, logical, from).bytes;
        Buffer source(device, oracle::on_background(padded.bytes, of_rows, oracle::untouchable)),
            target(device, expected.bytes.size());
        testing::DeviceEnds ends(device, logical);
        auto in = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols}),
             out = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols});
        ends.set(in, {{}, from}), ends.set(out, {{}, to});
        ok(mxq_tensor_set_data(in, source.data(), source.bytes()));
        ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
        if (from <= to)
            testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, out);
        else
            testing::run(device, mxq_unpad_groups, mxq_unpad_groups_query, nullptr, in, out);
        INFO("from alignment " << from << " to " << to);
        CHECK(testing::difference(target.read(), oracle::on_background(expected.bytes, expected.written, testing::poison)) ==
              "");
        ++ran;
    }
    CHECK(ran == 3);
}

// The transform of one row makes sixteen codes of it, all but one of them in what rows call padding.
MXQ_EACH_DEVICE(
    "groups: padding keeps what a Hadamard transform made of the rows, and a block of scale 255 is followed by code 0") {
    const int64_t cols = 8;
    const testing::Dims dims{std::nullopt, 1, cols};
    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    spec.hadamard = MXQ_PART_COLUMNWISE, spec.columnwise_mask = 0;
    oracle::Groups narrow{{1}, 1, 16}, wide{{1}, 1, 64};
    const oracle::Floats x(static_cast<size_t>(cols), 6.0f);
    testing::DeviceEnds ends(device, narrow.ends);
    auto in = testing::make_tensor(spec, dims, false), out = testing::make_tensor(spec, dims, false);
    ends.set(in, narrow), ends.set(out, wide);
    auto stored = oracle::quantize_groups(spec, x, 1, cols, narrow, MXQ_PART_COLUMNWISE, false);
    auto expected = oracle::quantize_groups(spec, x, 1, cols, wide, MXQ_PART_COLUMNWISE, false);
    CHECK(stored.stored.codes == oracle::Bytes(8 * cols, 0x77));
    testing::InputPart input(device, in, spec, MXQ_PART_COLUMNWISE, stored.on(oracle::untouchable));
    testing::OutputPart output(device, out, spec, MXQ_PART_COLUMNWISE, false);
    testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, out);
    CHECK(output.compare(expected, spec) == "");

    oracle::Spec tiles = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32);
    oracle::Groups one{{1}, 1, 0}, two{{1}, 2, 0};
    auto lost = testing::make_tensor(tiles, dims, false), padded = testing::make_tensor(tiles, dims, false);
    ends.set(lost, one), ends.set(padded, two);
    auto nan = oracle::quantize_groups(tiles, oracle::Floats(static_cast<size_t>(cols), NAN), 1, cols, one, MXQ_PART_ROWWISE,
                                       false);
    testing::InputPart nan_input(device, lost, tiles, MXQ_PART_ROWWISE, nan.on(oracle::untouchable));
    testing::PartBuffers nan_output(device, padded, MXQ_PART_ROWWISE);
    testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, lost, padded);
    oracle::Bytes codes(static_cast<size_t>(cols), 0x7F);
    codes.resize(static_cast<size_t>(2 * cols), 0);
    CHECK(nan_output.codes->read() == codes);
    CHECK(nan_output.scales->read() == oracle::Bytes{255});
}

MXQ_EACH_DEVICE("swizzle formats: there and back, grouped and not") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int64_t rows : {1, 33, 128, 257})
            for (int64_t cols : {1, 33, 128, 640})
                for (int64_t count : {-1, 1, 4, 50}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 31);
                    bool grouped = count >= 0;
                    int64_t parts = 1 + random.below(3);
                    if (!testing::can_swizzle(spec, grouped && (parts & 2))) continue;
                    oracle::Groups groups;
                    if (grouped) groups = testing::draw_groups(random, spec, rows, count);
                    testing::Dims dims{grouped ? std::nullopt : random.below(2) ? std::optional<int64_t>(3) : std::nullopt, rows, cols};
                    auto x = cases::values(cases::Values::wide, dims.shape().count(), static_cast<uint64_t>(ran));
                    auto compact = testing::make_tensor(spec, dims, false), swizzled = testing::make_tensor(spec, dims, true);
                    testing::DeviceEnds ends(device, groups.ends);
                    if (grouped) ends.set(compact, groups), ends.set(swizzled, groups);
                    std::vector<int32_t> declared;
                    std::vector<oracle::GroupedPart> stored[2];  // with compact scales, with swizzled scales
                    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                        if (!(parts & part)) continue;
                        declared.push_back(part);
                        for (bool in_tiles : {false, true})
                            stored[in_tiles].push_back(grouped ? oracle::quantize_groups(spec, x, rows, cols, groups, part, in_tiles)
                                                               : testing::all_written(oracle::quantize(spec, x, dims.shape(), part, in_tiles)));
                    }
                    for (bool to_swizzled : {true, false}) {
                        std::vector<std::unique_ptr<Buffer>> inputs, outputs;
                        std::vector<oracle::Bytes> expected;
                        for (size_t i = 0; i < declared.size(); ++i) {
                            inputs.push_back(std::make_unique<Buffer>(device, stored[!to_swizzled][i].on(oracle::untouchable).scales));
                            oracle::GroupedPart& whole = stored[to_swizzled][i];
                            if (grouped)
                                whole.scales_written =
                                    oracle::GroupLayout(spec, rows, cols, groups, declared[i], to_swizzled).scales_moved();
                            expected.push_back(whole.on(testing::poison).scales);
                            outputs.push_back(std::make_unique<Buffer>(device, expected.back().size()));
                            ok(mxq_tensor_set_part(to_swizzled ? compact : swizzled, declared[i], nullptr, 0, inputs.back()->data(), inputs.back()->bytes()));
                            ok(mxq_tensor_set_part(to_swizzled ? swizzled : compact, declared[i], nullptr, 0, outputs.back()->data(), outputs.back()->bytes()));
                        }
                        if (to_swizzled) testing::run(device, mxq_swizzle_scales, mxq_swizzle_scales_query, nullptr, compact, swizzled);
                        else testing::run(device, mxq_unswizzle_scales, mxq_unswizzle_scales_query, nullptr, swizzled, compact);
                        for (size_t i = 0; i < outputs.size(); ++i)
                            if (auto text = testing::difference(outputs[i]->read(), expected[i]); !text.empty())
                                FAIL(testing::describe(spec) << ", " << rows << "x" << cols << ", " << count << " groups, parts " << parts << ", to swizzled "
                                                             << to_swizzled << ", alignments " << groups.rowwise << " " << groups.columnwise << ": " << text);
                    }
                    ++ran;
                }
    CHECK(ran == 1826);
}

MXQ_EACH_DEVICE("amax: of the tensor, of each expert or group, of transformed parts") {
    int64_t ran = 0;
    std::vector<oracle::Spec> specs = {testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16),
                                       testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)};
    for (const oracle::Spec& base : specs)
        for (int64_t count : {-1, 0, 1, 5, 300})
            for (int64_t cols : {0, 1, 33, 64, 272})
                for (int64_t rows : {0, 1, 160, 331}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 5);
                    oracle::Spec spec = base;
                    bool grouped = count >= 0;
                    testing::Dims dims{!grouped && random.below(2) ? std::optional<int64_t>(3) : std::nullopt, rows, cols};
                    testing::draw_options(spec, random, cols, grouped ? 16 : rows);
                    spec.stochastic = false;
                    spec.four_over_six = MXQ_FOUR_OVER_SIX_NONE;
                    oracle::Groups groups;
                    if (grouped) groups = testing::draw_groups(random, spec, rows, count);
                    int32_t input = cases::plain_formats[random.below(3)];
                    auto dense = cases::plain_values(input, cases::all_values[ran % 4], dims.shape().count(), static_cast<uint64_t>(ran));
                    auto x = oracle::load(input, dense.data(), dims.shape().count());
                    auto in = testing::make_tensor(input, dims), out = testing::make_tensor(spec, dims, false);
                    testing::DeviceEnds ends(device, groups.ends);
                    if (grouped) ends.set(out, groups);
                    Buffer data(device, dense);
                    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
                    std::vector<std::unique_ptr<Buffer>> amaxes;
                    std::vector<oracle::Bytes> expected;
                    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                        auto amax = grouped ? oracle::group_amax(spec, x, rows, cols, groups, part) : oracle::amax(spec, x, dims.shape(), part);
                        expected.push_back(testing::bytes_of(amax));
                        amaxes.push_back(std::make_unique<Buffer>(device, expected.back().size()));
                        ok(mxq_tensor_set_amax(out, part, reinterpret_cast<float*>(amaxes.back()->data()), amaxes.back()->bytes()));
                    }
                    testing::run(device, mxq_amax, mxq_amax_query, nullptr, in, out);
                    ++ran;
                    for (size_t i = 0; i < 2; ++i)
                        if (auto text = testing::difference(amaxes[i]->read(), expected[i]); !text.empty())
                            FAIL(testing::describe(spec) << ", " << mxq_format_name(input) << " " << rows << "x" << cols << ", " << count << " groups, part " << i
                                                         << ": " << text);
                }
    CHECK(ran == 3 * 5 * 5 * 4);
}
