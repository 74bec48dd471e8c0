// mxq_dequantize and mxq_requantize give the oracle's bytes for every format, scaling and layout.
#include "../formats.h"

#include <array>
#include <sstream>

using testing::Buffer;
using testing::ok;

namespace {

// Draws a part of arbitrary codes. Most scales are of ordinary size, the others are arbitrary.
oracle::Part draw_part(const oracle::Spec& spec, oracle::Shape shape, int32_t part, bool swizzled, cases::Random& random) {
    bool columnwise = part == MXQ_PART_COLUMNWISE;
    int64_t rows = columnwise ? shape.cols : shape.rows, cols = columnwise ? shape.rows : shape.cols;
    oracle::Part out = oracle::quantize(spec, oracle::Floats(shape.count(), 0.0f), shape, part, swizzled);
    const int bits = oracle::code_bits(spec.format);
    for (int64_t line = 0; line < shape.experts * rows; ++line)
        for (int64_t j = 0; j < cols; ++j)
            oracle::put_code(&out.codes[static_cast<size_t>(line * oracle::row_bytes(spec.format, cols))], bits, j,
                             static_cast<uint8_t>(random.bits() & ((1u << bits) - 1)));
    for (size_t i = 0; i < out.scales.size(); i += static_cast<size_t>(oracle::scale_bytes(spec.format))) {
        uint32_t scale = random.below(8) ? 100 + random.bits() % 60 : random.bits() & 0xFF;
        if (oracle::is_fp8(spec.format)) scale = random.below(8) ? oracle::bits_of(random.normal()) : random.bits();
        std::memcpy(&out.scales[i], &scale, static_cast<size_t>(oracle::scale_bytes(spec.format)));
    }
    const float amaxes[] = {0.0f, 1.0f, 3.0e38f, INFINITY, 0x1p-120f, 2688.0f};
    for (float& a : out.amax) a = random.below(2) ? 1 + std::fabs(random.normal()) : amaxes[random.below(6)];
    if (testing::is_nvfp4(spec) && random.below(2)) out.global_scale = out.amax;
    return out;
}

oracle::Spec draw_spec(const oracle::Spec& base, cases::Random& random) {
    oracle::Spec spec = base;
    if (testing::has_amax(spec)) spec.per_matrix = random.below(2);
    if (testing::is_nvfp4(spec)) spec.nvfp4_t = random.below(2) ? 448.0f : 256.0f;
    return spec;
}

int32_t draw_part(cases::Random& random) { return random.below(2) ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE; }

// Draws a part, layout, output type and, where none are given, experts from the seed, and dequantizes. Returns "" or a text
// that says what differs.
std::string dequantize_complaint(testing::Device& device, const oracle::Spec& base, int64_t rows, int64_t cols, uint64_t seed,
                                 int64_t given_experts = 0) {
    cases::Random random(seed);
    oracle::Spec spec = draw_spec(base, random);
    int32_t part = draw_part(random), output = cases::plain_formats[random.below(3)];
    bool swizzled = random.below(2) && testing::can_swizzle(spec);
    auto offset = static_cast<size_t>(random.below(2));
    int64_t experts = rows * cols < 20000 ? random.below(3) : 0;
    testing::Dims dims{experts ? std::optional(2 * experts - 1) : std::nullopt, rows, cols};
    if (given_experts) dims.experts = given_experts;
    oracle::Part stored = draw_part(spec, dims.shape(), part, swizzled, random);
    auto in = testing::make_tensor(spec, dims, swizzled);
    auto out = testing::make_tensor(output, dims);
    testing::InputPart input(device, in, spec, part, stored, offset);
    auto values = oracle::store(output, oracle::dequantize(spec, stored, dims.shape(), part, swizzled));
    Buffer data(device, values.size(), offset * static_cast<size_t>(oracle::plain_bytes(output)));
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
    std::string text = testing::difference(data.read(), values);
    if (text.empty()) return text;
    std::ostringstream what;
    what << testing::describe(spec) << " to " << mxq_format_name(output) << ", " << rows << "x" << cols << " experts " << dims.experts.value_or(-1) << " part " << part
         << " swizzled " << swizzled << " offset " << offset << ": " << text;
    return what.str();
}

}  // namespace

MXQ_EACH_DEVICE("dequantize formats: the oracle's bytes for any codes and scales") {
    int64_t ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int64_t rows : cases::awkward_sizes)
            for (int64_t cols : cases::awkward_sizes) {
                if (auto text = dequantize_complaint(device, base, rows, cols, static_cast<uint64_t>(ran) + 3); !text.empty()) FAIL(text);
                ++ran;
            }
    CHECK(ran == 35 * 100);
}

MXQ_EACH_DEVICE("dequantize formats: up to 64 experts") {
    int64_t ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (auto [experts, rows, cols] : {std::array<int64_t, 3>{64, 64, 32}, {32, 33, 31}, {8, 128, 128}}) {
            if (auto text = dequantize_complaint(device, base, rows, cols, static_cast<uint64_t>(ran) + 5, experts); !text.empty()) FAIL(text);
            ++ran;
        }
    CHECK(ran == 35 * 3);
}

// These rows are shared by several warps, each of which takes several steps. The last step of a row is not a whole one.
MXQ_EACH_DEVICE("dequantize formats: rows longer than a warp takes") {
    int64_t ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int64_t rows : {1, 9, 40})
            for (int64_t cols : {700, 1040, 2201, 2336}) {
                for (uint64_t draw = 0; draw < 3; ++draw)
                    if (auto text = dequantize_complaint(device, base, rows, cols, 3 * static_cast<uint64_t>(ran) + draw); !text.empty()) FAIL(text);
                ++ran;
            }
    CHECK(ran == 35 * 3 * 4);
}

// Covers every code under every one-byte scale, and under fp32 scales of every exponent.
MXQ_EACH_DEVICE("dequantize formats: every code under every scale") {
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        int64_t block = oracle::tile_of(spec.scaling).width;
        if (oracle::tile_of(spec.scaling).height != 1 || block == oracle::whole) continue;
        const int codes = 1 << oracle::code_bits(spec.format);
        const int64_t rows = 256, cols = std::max<int64_t>(codes, block);  // each row gets one of 256 scales
        oracle::Part stored{oracle::Bytes(static_cast<size_t>(rows * oracle::row_bytes(spec.format, cols))), {}, {2688.0f}, {}};
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j)
                oracle::put_code(&stored.codes[static_cast<size_t>(i * oracle::row_bytes(spec.format, cols))],
                                 oracle::code_bits(spec.format), j, static_cast<uint8_t>(j % codes));
            for (int64_t j = 0; j < oracle::ceil_div(cols, block); ++j) {
                uint32_t scale = oracle::is_fp8(spec.format) ? static_cast<uint32_t>(i) << 23 | 0x155555 : static_cast<uint32_t>(i);
                const auto* bytes = reinterpret_cast<const uint8_t*>(&scale);
                stored.scales.insert(stored.scales.end(), bytes, bytes + oracle::scale_bytes(spec.format));
            }
        }
        testing::Dims dims{std::nullopt, rows, cols};
        for (int32_t output : cases::plain_formats) {
            auto in = testing::make_tensor(spec, dims, false);
            auto out = testing::make_tensor(output, dims);
            testing::InputPart input(device, in, spec, MXQ_PART_ROWWISE, stored);
            auto values = oracle::store(output, oracle::dequantize(spec, stored, dims.shape(), MXQ_PART_ROWWISE));
            Buffer data(device, values.size());
            ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
            testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
            ++ran;
            if (auto text = testing::difference(data.read(), values); !text.empty()) FAIL(testing::describe(spec) << " to " << output << ": " << text);
        }
    }
    CHECK(ran == (5 * 2 + 1 + 2) * 3);
}

MXQ_EACH_DEVICE("dequantize formats: groups, with and without padding in out") {
    int64_t ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int64_t count : {0, 1, 3, 8, 40})
            for (int64_t cols : {1, 32, 67, 160, 256, 704}) {
                cases::Random random(static_cast<uint64_t>(ran) + 11);
                oracle::Spec spec = draw_spec(base, random);
                int64_t rows = 1 + random.below(300), alignment = random.below(2) ? 0 : 32;
                int32_t part = draw_part(random), output = cases::plain_formats[random.below(3)];
                bool swizzled = random.below(2) && testing::can_swizzle(spec, part == MXQ_PART_COLUMNWISE);
                oracle::Groups groups = testing::draw_groups(random, spec, rows, count);
                auto x = cases::values(cases::Values::wide, static_cast<size_t>(rows * cols), static_cast<uint64_t>(ran));
                oracle::Part stored = oracle::quantize_groups(spec, x, rows, cols, groups, part, swizzled).on(oracle::untouchable);

                testing::Dims dims{std::nullopt, rows, cols};
                auto in = testing::make_tensor(spec, dims, swizzled);
                auto out = testing::make_tensor(output, dims);
                testing::DeviceEnds ends(device, groups.ends, random.below(2));
                ends.set(in, groups);
                if (alignment) ends.set(out, {{}, alignment});
                testing::InputPart input(device, in, spec, part, stored);
                int64_t row_bytes = cols * oracle::plain_bytes(output);
                auto values = oracle::store(output, oracle::dequantize_groups(spec, stored, rows, cols, groups, part, swizzled));
                auto padded = oracle::pad_rows(values, row_bytes, rows, groups.ends, alignment ? alignment : 1);
                padded.bytes.resize(static_cast<size_t>(alignment ? padded.bytes.size() : rows * row_bytes), 0);
                padded.written.resize(padded.bytes.size(), 0);
                Buffer data(device, padded.bytes.size());
                ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
                testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
                ++ran;
                auto expected = oracle::on_background(padded.bytes, padded.written, testing::poison);
                if (auto text = testing::difference(data.read(), expected); !text.empty())
                    FAIL(testing::describe(spec) << " to " << mxq_format_name(output) << ", " << rows << "x" << cols << ", " << count << " groups "
                                                 << groups.rowwise << " " << groups.columnwise << " part " << part << " swizzled " << swizzled
                                                 << " out " << alignment << ": " << text);
            }
    CHECK(ran == 35 * 5 * 6);
}

namespace {

struct Requantize {
    oracle::Spec from, to;
    std::vector<int64_t> sizes;
    bool aligned, any_bytes;
    uint64_t seed;
};

// Draws a shape, groups, parts and layouts, and requantizes. Returns "" or a text that says what differs.
std::string requantize_complaint(testing::Device& device, const Requantize& c) {
    cases::Random random(c.seed + 17);
    bool grouped = random.below(3) == 0;
    oracle::Spec from = draw_spec(c.from, random), to = c.to;
    const auto size = [&] { return c.sizes[random.below(c.sizes.size())]; };
    const int64_t rows = size(), cols = size(), most = rows * cols < 3000 ? 64 : 2;
    const std::optional<int64_t> experts = grouped || random.below(3) ? std::nullopt : std::optional(random.below(8) ? 2 : most);
    testing::Dims dims{experts, rows, cols};
    testing::draw_options(to, random, dims.cols, grouped ? 16 : dims.rows);
    int32_t from_part = draw_part(random);
    int64_t parts = 1 + random.below(3);
    bool from_swizzled = random.below(2) && testing::can_swizzle(from, grouped && from_part == MXQ_PART_COLUMNWISE);
    bool to_swizzled = random.below(2) && testing::can_swizzle(to, grouped && (parts & 2));
    auto offset = static_cast<size_t>(c.aligned ? 0 : random.below(2));
    oracle::Groups from_groups, to_groups;
    if (grouped) {
        from_groups = testing::draw_groups(random, from, dims.rows, 1 + random.below(6));
        to_groups = testing::draw_groups(random, to, dims.rows, 1);
        to_groups.ends = from_groups.ends;
    }
    auto x = cases::values(c.seed % 2 ? cases::Values::normal : cases::Values::wide, dims.shape().count(), c.seed);
    oracle::Part stored = grouped       ? oracle::quantize_groups(from, x, rows, cols, from_groups, from_part, from_swizzled).on(oracle::untouchable)
                          : c.any_bytes ? draw_part(from, dims.shape(), from_part, from_swizzled, random)
                                        : oracle::quantize(from, x, dims.shape(), from_part, from_swizzled);
    auto in = testing::make_tensor(from, dims, from_swizzled), out = testing::make_tensor(to, dims, to_swizzled);
    testing::DeviceEnds ends(device, from_groups.ends);
    if (grouped) ends.set(in, from_groups), ends.set(out, to_groups);
    testing::InputPart input(device, in, from, from_part, stored, offset);
    std::vector<std::pair<int32_t, testing::OutputPart>> outputs;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) outputs.emplace_back(part, testing::OutputPart(device, out, to, part, true, offset));
    testing::run(device, mxq_requantize, mxq_requantize_query, testing::Options(device, to), in, out);
    for (auto& [part, buffers] : outputs) {
        auto expected = grouped ? oracle::requantize_groups(from, stored, from_part, from_swizzled, from_groups, to, rows, cols,
                                                            to_groups, part, to_swizzled)
                                : testing::all_written(oracle::requantize(from, stored, from_part, from_swizzled, to, dims.shape(), part, to_swizzled));
        if (auto text = buffers.compare(expected, to); !text.empty()) {
            std::ostringstream all;
            all << testing::describe(from) << " part " << from_part << " swizzled " << from_swizzled << " to " << testing::describe(to) << " part "
                << part << " swizzled " << to_swizzled << ", " << rows << "x" << cols << " experts " << experts.value_or(-1) << " grouped "
                << grouped << " any bytes " << c.any_bytes << ": " << text;
            return all.str();
        }
    }
    return "";
}

}  // namespace

// Covers every pair of a source and a target, each a format with a scaling.
MXQ_EACH_DEVICE("requantize: the bytes of dequantize, then quantize") {
    uint64_t ran = 0;
    for (const oracle::Spec& from : testing::all_formats())
        for (const oracle::Spec& to : testing::all_formats()) {
            if (auto text = requantize_complaint(device, {from, to, {1, 33, 64, 129, 160}, false, false, ran++}); !text.empty()) FAIL(text);
        }
    CHECK(ran == 35 * 35);
}

// CUDA has kernels of its own for whole tiles of aligned lines.
MXQ_EACH_DEVICE("requantize: the bytes of dequantize, then quantize, of whole tiles, and of any codes and scales") {
    uint64_t ran = 0;
    const auto is_left_out = [](const oracle::Spec& spec) { return oracle::is_fp8(spec.format) || oracle::code_bits(spec.format) == 6; };
    for (const oracle::Spec& from : testing::all_formats())
        for (const oracle::Spec& to : testing::all_formats())
            for (bool any_bytes : {false, true}) {
                if (is_left_out(to) || oracle::code_bits(from.format) == 6) continue;
                if (auto text = requantize_complaint(device, {from, to, {128, 256, 272, 384}, true, any_bytes, ran++}); !text.empty()) FAIL(text);
            }
    CHECK(ran == 2 * 25 * 17);
}
