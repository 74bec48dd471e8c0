// NaN, Inf and extreme values change the block that holds them and no other, at every position in a word of packed elements.
//
// Such specials are placed only in rows and columns whose number is a multiple of three, at most one in each block of a
// line. So the lines on both sides of a special are finite, and since three is coprime to the number of elements in a word,
// each special meets every position in one.
#include "../formats.h"

#include <array>

using testing::Buffer;
using testing::ok;

namespace {

constexpr int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};
constexpr int64_t period = 16;  // positions in a row, or in a column, that count as different

// `even` has whole words and several tiles of 128; the lines of `odd` end in the middle of a word.
const testing::Dims even{std::nullopt, 192, 160}, odd{std::nullopt, 67, 131};

// ---- Positions -------------------------------------------------------------------------------------------------------

struct Position {
    int64_t row, col;
};

std::vector<int64_t> multiples_of_three(int64_t first, int64_t end, cases::Random& random) {
    std::vector<int64_t> out;
    for (int64_t i = first; i < end; ++i)
        if (i % 3 == 0) out.push_back(i);
    for (size_t i = out.size(); i > 1; --i)
        std::swap(out[i - 1], out[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    return out;
}

// Returns positions for specials: at most one in each block of a row or a column. With square tiles, every other tile gets
// one special and the rest none.
std::vector<Position> positions(testing::Dims dims, const oracle::Spec& spec, cases::Random& random) {
    const int64_t block = std::min<int64_t>(oracle::tile_of(spec.scaling).width, 128);
    std::vector<Position> out;
    for (int64_t i = 0; i < dims.rows; i += block)
        for (int64_t j = 0; j < dims.cols; j += block) {
            auto rows = multiples_of_three(i, std::min(i + block, dims.rows), random);
            auto cols = multiples_of_three(j, std::min(j + block, dims.cols), random);
            size_t count = std::min(rows.size(), cols.size());
            if (testing::is_square(spec)) count = (i + j) / block % 2 ? 0 : std::min<size_t>(count, 1);
            for (size_t k = 0; k < count; ++k) out.push_back({rows[k], cols[k]});
        }
    return out;
}

// Chooses specials so that each of them meets each position, and counts the pairs that have not met.
class Dealer {
public:
    explicit Dealer(std::vector<uint32_t> specials)
        : specials_(std::move(specials)), in_rows_(specials_.size(), Counts{}), in_cols_(specials_.size(), Counts{}) {}

    uint32_t next(Position at) {
        size_t least = 0;
        for (size_t i = 1; i < specials_.size(); ++i)
            if (seen(i, at) < seen(least, at)) least = i;
        ++in_rows_[least][static_cast<size_t>(at.row % period)];
        ++in_cols_[least][static_cast<size_t>(at.col % period)];
        return specials_[least];
    }
    // Counts the pairs of a special and a position, in a row or in a column, that have not met.
    int64_t missing() const {
        int64_t missing = 0;
        for (const auto* all : {&in_rows_, &in_cols_})
            for (const Counts& counts : *all) missing += std::count(counts.begin(), counts.end(), int64_t{0});
        return missing;
    }

private:
    using Counts = std::array<int64_t, period>;
    // Returns how many of the two positions the special has met, then how often it has met them, for use as a sort key.
    std::pair<int, int64_t> seen(size_t i, Position at) const {
        const int64_t row = in_rows_[i][static_cast<size_t>(at.row % period)],
                      col = in_cols_[i][static_cast<size_t>(at.col % period)];
        return {(row > 0) + (col > 0), row + col};
    }
    std::vector<uint32_t> specials_;
    std::vector<Counts> in_rows_, in_cols_;
};

// ---- Values ----------------------------------------------------------------------------------------------------------

// Returns the bits of zero, of the least and of the largest value of a plain format, and unless `finite` of Inf and NaNs.
std::vector<uint32_t> special_values(int32_t format, bool finite) {
    const uint32_t sign = format == MXQ_FORMAT_F32 ? 0x80000000u : 0x8000u;
    const uint32_t infinity = format == MXQ_FORMAT_F32 ? 0x7F800000u : format == MXQ_FORMAT_F16 ? 0x7C00u : 0x7F80u;
    const uint32_t quiet = format == MXQ_FORMAT_F32 ? 0x7FC00000u : format == MXQ_FORMAT_F16 ? 0x7E00u : 0x7FC0u;
    std::vector<uint32_t> out;
    for (uint32_t magnitude : {0u, 1u, infinity - 1, infinity, infinity + 1, quiet, sign - 1})
        for (uint32_t with : {0u, sign})
            if (!finite || magnitude < infinity) out.push_back(magnitude | with);
    return out;
}

// Returns values of very different size: each row, each column and each 32 x 32 tile has its own power of two. `tiles` is
// the largest exponent of a tile.
oracle::Bytes finite_values(int32_t format, testing::Dims dims, int64_t tiles, cases::Random& random) {
    const auto exponents = [&](int64_t count, int64_t largest) {
        std::vector<int> out;
        for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int>(random.below(2 * largest + 1) - largest));
        return out;
    };
    const auto of_rows = exponents(dims.rows, 4), of_cols = exponents(dims.cols, 4);
    const int64_t tiles_in_row = oracle::ceil_div(dims.cols, 32);
    const auto of_tiles = exponents(oracle::ceil_div(dims.rows, 32) * tiles_in_row, tiles);
    oracle::Floats out;
    for (int64_t i = 0; i < dims.rows; ++i)
        for (int64_t j = 0; j < dims.cols; ++j)
            out.push_back(std::ldexp(random.uniform(), of_rows[static_cast<size_t>(i)] + of_cols[static_cast<size_t>(j)] +
                                                           of_tiles[static_cast<size_t>(i / 32 * tiles_in_row + j / 32)]));
    return oracle::store(format, out);
}

// Stores specials among the values: any of them in the first 128 rows, only finite ones after, since kernels have a faster
// path for finite blocks.
void plant(oracle::Bytes& data, int32_t format, testing::Dims dims, const std::vector<Position>& positions, Dealer& any,
           Dealer& finite) {
    const auto element = static_cast<size_t>(oracle::plain_bytes(format));
    for (Position at : positions) {
        const uint32_t bits = (at.row < 128 ? any : finite).next(at);
        std::memcpy(&data[static_cast<size_t>(at.row * dims.cols + at.col) * element], &bits, element);
    }
}

// ---- Quantize --------------------------------------------------------------------------------------------------------

// Runs a verb for each part alone and for both together. Returns "" or a text that says what differs from the oracle, and
// adds the number of compared codes to `compared`.
std::string compare_parts(testing::Device& device, testing::Verb verb, testing::Query query, const oracle::Spec& spec,
                          const mxq_tensor* in, testing::Dims dims, bool swizzled,
                          const std::map<int32_t, oracle::GroupedPart>& expected, int64_t& compared) {
    for (int32_t parts = 1; parts <= 3; ++parts) {
        auto out = testing::make_tensor(spec, dims, swizzled);
        Buffer scale(device, testing::bytes_of(spec.quantization_scale));
        if (scale.bytes()) ok(mxq_tensor_set_quantization_scale(out, static_cast<float*>(scale.data()), scale.bytes()));
        std::map<int32_t, testing::OutputPart> outputs;
        for (int32_t part : both_parts)
            if (parts & part) outputs.emplace(part, testing::OutputPart(device, out, spec, part, true));
        testing::run(device, verb, query, testing::Options(device, spec), in, out);
        for (const auto& [part, buffers] : outputs) {
            if (auto text = buffers.compare(expected.at(part), spec); !text.empty())
                return "part " + std::to_string(part) + " of " + std::to_string(parts) + ": " + text;
            compared += static_cast<int64_t>(dims.shape().count());
        }
    }
    return "";
}

std::map<int32_t, oracle::GroupedPart> quantized_parts(const oracle::Spec& spec, const oracle::Floats& x, testing::Dims dims,
                                                       bool swizzled) {
    std::map<int32_t, oracle::GroupedPart> out;
    for (int32_t part : both_parts)
        out[part] = testing::all_written(oracle::quantize(spec, x, dims.shape(), part, swizzled));
    return out;
}

// Adds to each E2M1 specification its variants with stochastic rounding, Hadamard transforms and four-over-six.
std::vector<oracle::Spec> with_variants(const std::vector<oracle::Spec>& specs) {
    std::vector<oracle::Spec> out;
    for (const oracle::Spec& spec : specs) {
        out.push_back(spec);
        if (!testing::is_e2m1(spec)) continue;
        out.push_back(spec);
        out.back().stochastic = true, out.back().seed = out.size(), out.back().offset = 5;
        if (!testing::is_square(spec)) out.push_back(spec), out.back().hadamard = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;
        for (int32_t errors : {MXQ_FOUR_OVER_SIX_MAE, MXQ_FOUR_OVER_SIX_MSE})
            if (testing::is_nvfp4(spec)) out.push_back(spec), out.back().four_over_six = errors;
    }
    return out;
}

// Returns a format and scaling with each of its options.
std::vector<oracle::Spec> with_options(const oracle::Spec& base) {
    std::vector<oracle::Spec> out;
    const auto add = [&](auto set) {
        out.push_back(base);
        set(out.back());
    };
    if (oracle::is_mx(base.format))
        for (int32_t rounding : cases::roundings)
            for (int32_t policy : cases::policies)
                add([&](oracle::Spec& spec) { spec.rounding = rounding, spec.nonfinite = policy; });
    if (testing::is_nvfp4(base))
        for (float t : {448.0f, 256.0f})
            for (bool given : {true, false})
                add([&](oracle::Spec& spec) {
                    spec.nvfp4_t = t;
                    if (given) spec.amax = {100};  // a computed amax would be Inf
                });
    if (oracle::is_fp8(base.format))
        for (bool power_of_two : {false, true})
            for (float eps : {0.0f, 0.01f, 0.5f, 40.0f})
                add([&](oracle::Spec& spec) { spec.power_of_two = power_of_two, spec.eps = eps; });
    if (base.scaling == MXQ_SCALING_TENSOR) add([](oracle::Spec& spec) { spec.quantization_scale = {3}; });
    return with_variants(out);
}

}  // namespace

MXQ_EACH_DEVICE("specials: quantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int32_t input : cases::plain_formats) {
            Dealer any(special_values(input, false)), finite(special_values(input, true));
            const bool many_exponents =
                oracle::is_mx(base.format) && oracle::tile_of(base.scaling).width == 32 && input != MXQ_FORMAT_F16;
            cases::Random of_values(static_cast<uint64_t>(ran) + 1);
            const auto even_values = finite_values(input, even, many_exponents ? 40 : 0, of_values);
            const auto odd_values = finite_values(input, odd, many_exponents ? 40 : 0, of_values);
            for (const oracle::Spec& spec : with_options(base))
                for (bool is_even : {true, false}) {
                    const testing::Dims& dims = is_even ? even : odd;
                    if (spec.hadamard && !is_even) continue;
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const bool swizzled = random.below(2) && testing::can_swizzle(spec);
                    oracle::Bytes data = is_even ? even_values : odd_values;
                    plant(data, input, dims, positions(dims, spec, random), any, finite);
                    Buffer buffer(device, data);
                    auto in = testing::make_tensor(input, dims);
                    ok(mxq_tensor_set_data(in, buffer.data(), buffer.bytes()));
                    const auto expected =
                        quantized_parts(spec, oracle::load(input, data.data(), dims.shape().count()), dims, swizzled);
                    const auto text = compare_parts(device, mxq_quantize, mxq_quantize_query, spec, in, dims, swizzled,
                                                    expected, compared);
                    ++ran;
                    if (!text.empty())
                        FAIL(testing::describe(spec)
                             << " from " << mxq_format_name(input) << ", " << dims.rows << " rows: " << text);
                }
            if (!testing::is_square(base)) missing += any.missing() + finite.missing();
        }
    CHECK(missing == 0);
    // In this order: the options of MX, the variants of MXFP4, those of NVFP4, and the options of FP8. Hadamard transforms
    // exist only for blocks of one line, and not for odd shapes.
    CHECK(ran == 3 * (16 * 8 * 2 + (2 * 5 + 2 * 4) * 8 + (9 + 8) * 4 + (8 * 8 + 2) * 2));
    CHECK(compared == 3 * 4 * (int64_t{310} * 192 * 160 + 290 * 67 * 131));
}

// ---- Dequantize ------------------------------------------------------------------------------------------------------

namespace {

enum class Special { codes, scales, both };
constexpr Special special_places[] = {Special::codes, Special::scales, Special::both};

// Returns zero, the least and the largest code, and every code that is Inf or NaN.
std::vector<uint32_t> mark_special_codes(int32_t format) {
    const oracle::Type& type = oracle::element_type(format);
    std::vector<uint32_t> out;
    for (uint32_t magnitude = 0; magnitude < type.magnitudes(); ++magnitude)
        if (magnitude < 2 || magnitude + 1 >= type.finite.size())
            for (uint32_t sign : {0u, type.magnitudes()}) out.push_back(magnitude | sign);
    return out;
}

std::vector<uint32_t> special_scales(const oracle::Spec& spec) {
    if (oracle::is_mx(spec.format)) return {255, 0, 255, 254, 255, 1};
    if (testing::is_nvfp4(spec)) return {0x7F, 0xFF, 0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81};
    return {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFFFFFFFu, 0x7F800001u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0u, 0x80000000u, 1u};
}

uint32_t ordinary_scale(const oracle::Spec& spec, cases::Random& random) {
    if (oracle::is_mx(spec.format))
        return static_cast<uint32_t>(random.below(8) ? 120 + random.below(15) : 90 + random.below(75));
    if (testing::is_nvfp4(spec)) return static_cast<uint32_t>(0x20 + random.below(0x50));
    return oracle::bits_of(std::ldexp(random.uniform(), static_cast<int>(random.below(20) - 10)));
}

// Draws a stored part: finite codes under ordinary scales, with special codes, special scales or both among them.
oracle::Part draw_part(const oracle::Spec& spec, testing::Dims dims, int32_t part, bool swizzled, Special special,
                       Dealer& dealer, cases::Random& random) {
    const auto [experts, lines, length] = oracle::line_shape(dims.shape(), part);
    const oracle::Type& type = oracle::element_type(spec.format);
    oracle::Matrix matrix{lines, length, {}, {}, {}};
    for (int64_t i = 0; i < lines * length; ++i)
        matrix.codes.push_back(static_cast<uint8_t>(random.below(static_cast<int64_t>(type.finite.size())) |
                                                    (random.below(2) ? static_cast<int64_t>(type.magnitudes()) : 0)));
    if (special != Special::scales)
        for (Position at : positions({std::nullopt, lines, length}, spec, random))
            matrix.codes[static_cast<size_t>(at.row * length + at.col)] = static_cast<uint8_t>(dealer.next(at));

    const auto specials = special_scales(spec);
    const oracle::Tile tile = oracle::tile_of(spec.scaling);
    const oracle::Grid grid = oracle::grid_of(tile, lines, length);
    const int64_t first = random.below(3);  // gives a tensor with a single scale a special one in one draw of three
    for (int64_t r = 0; r < grid.rows; ++r)
        for (int64_t c = 0; c < grid.cols; ++c) {
            const bool spared = tile.height == 1 && (r / 32 + c) % 2;  // keeps some blocks across lines finite
            const bool planted = special != Special::codes && !spared && (r + c + first) % 3 == 0;
            const auto pick = static_cast<size_t>(random.below(static_cast<int64_t>(specials.size())));
            matrix.scales.push_back(planted ? specials[pick] : ordinary_scale(spec, random));
        }

    const auto codes = static_cast<size_t>(lines * oracle::row_bytes(spec.format, length));
    const auto scales =
        static_cast<size_t>(oracle::scale_count(spec, dims.shape(), part, swizzled) * oracle::scale_bytes(spec.format));
    oracle::Part out{oracle::Bytes(codes, 0), oracle::Bytes(scales, 0)};
    if (testing::is_nvfp4(spec)) out.amax = {2688.0f};
    oracle::put_matrix(spec, matrix, oracle::placement_of(spec, 0, lines, length, swizzled), out);
    return out;
}

}  // namespace

MXQ_EACH_DEVICE("specials: dequantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int32_t part : both_parts) {
            Dealer dealer(mark_special_codes(spec.format));
            for (int32_t output : cases::plain_formats)
                for (Special special : special_places)
                    for (const testing::Dims& dims : {even, odd}) {
                        cases::Random random(static_cast<uint64_t>(ran) + 1);
                        const bool swizzled = random.below(2) && testing::can_swizzle(spec);
                        const oracle::Part stored = draw_part(spec, dims, part, swizzled, special, dealer, random);
                        auto in = testing::make_tensor(spec, dims, swizzled);
                        auto out = testing::make_tensor(output, dims);
                        testing::InputPart input(device, in, spec, part, stored);
                        const auto values =
                            oracle::store(output, oracle::dequantize(spec, stored, dims.shape(), part, swizzled));
                        Buffer data(device, values.size());
                        ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
                        testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
                        ++ran, compared += static_cast<int64_t>(values.size());
                        if (auto text = testing::difference(data.read(), values); !text.empty())
                            FAIL(testing::describe(spec) << " part " << part << " to " << mxq_format_name(output) << ", "
                                                         << dims.rows << " rows: " << text);
                    }
            if (!testing::is_square(spec)) missing += dealer.missing();
        }
    CHECK(missing == 0);
    CHECK(ran == 30 * 2 * 3 * 3 * 2);
    CHECK(compared == 30 * 2 * 3 * (4 + 2 + 2) * (192 * 160 + 67 * 131));
}

// ---- Requantize ------------------------------------------------------------------------------------------------------

namespace {

// Returns at least one source of each kind of codes and scales.
std::vector<oracle::Spec> sources() {
    using testing::spec_of;
    return {spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),  spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32),
            spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32), spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128),
            spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32),  spec_of(MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_32X32),
            spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),       spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
            spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16),      spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128),
            spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_128X128), spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)};
}

std::vector<oracle::Spec> targets() {
    using testing::spec_of;
    return with_variants({spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32), spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32),
                          spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128),
                          spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32), spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),
                          spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_128X128), spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
                          spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_ROW)});
}

}  // namespace

MXQ_EACH_DEVICE("specials: requantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& from : sources()) {
        Dealer dealer(mark_special_codes(from.format));
        for (oracle::Spec to : targets())
            for (int32_t part : both_parts)
                for (int32_t policy : cases::policies) {
                    if (policy == MXQ_NONFINITE_SATURATE && !oracle::is_mx(to.format)) continue;
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    if (oracle::is_mx(to.format)) to.nonfinite = policy, to.rounding = cases::roundings[random.below(4)];
                    const Special special = special_places[random.below(3)];
                    const bool from_swizzled = random.below(2) && testing::can_swizzle(from);
                    const bool swizzled = random.below(2) && testing::can_swizzle(to);
                    const testing::Dims& dims = even;
                    const oracle::Part stored = draw_part(from, dims, part, from_swizzled, special, dealer, random);
                    auto in = testing::make_tensor(from, dims, from_swizzled);
                    testing::InputPart input(device, in, from, part, stored);
                    const auto x = oracle::dequantize(from, stored, dims.shape(), part, from_swizzled);
                    const auto expected = quantized_parts(to, x, dims, swizzled);
                    const auto text = compare_parts(device, mxq_requantize, mxq_requantize_query, to, in, dims, swizzled,
                                                    expected, compared);
                    ++ran;
                    if (!text.empty())
                        FAIL(testing::describe(from) << " part " << part << " to " << testing::describe(to) << ": " << text);
                }
        if (!testing::is_square(from)) missing += dealer.missing();
    }
    CHECK(missing == 0);
    CHECK(ran == 12 * 2 * (9 * 2 + 6));  // 12 sources, 2 parts, 9 MX targets with 2 policies each, 6 other targets
    CHECK(compared == ran * 4 * 192 * 160);
}
