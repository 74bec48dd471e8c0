// Special values for tests of what they do to their neighbours: NaN, Inf and extreme values among finite ones.
//
// Such specials are placed only in rows and columns whose number is a multiple of three, at most one in each block of a
// line. So the lines on both sides of a special are finite, and since three is coprime to the number of elements in a word,
// each special meets every position in one.
#ifndef MXQ_TESTS_SPECIALS_H
#define MXQ_TESTS_SPECIALS_H

#include "../formats.h"

#include <array>

namespace specials {

inline constexpr int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};
inline constexpr int64_t period = 16;  // positions in a row, or in a column, that count as different

// ---- Positions -------------------------------------------------------------------------------------------------------

struct Position {
    int64_t row, col;
};

inline std::vector<int64_t> multiples_of_three(int64_t first, int64_t end, cases::Random& random) {
    std::vector<int64_t> out;
    for (int64_t i = first; i < end; ++i)
        if (i % 3 == 0) out.push_back(i);
    for (size_t i = out.size(); i > 1; --i)
        std::swap(out[i - 1], out[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    return out;
}

// Returns positions for specials: at most one in each block of a row or a column, or in each 64 elements of lines without
// blocks. With square tiles, every other tile gets one special and the rest none.
inline std::vector<Position> positions(testing::Dims dims, const oracle::Spec& spec, cases::Random& random) {
    const int64_t width = oracle::tile_of(spec.scaling).width, block = width == oracle::whole ? 64 : width;
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

// Special values of plain formats by number: zero, the least and the largest value, which are finite, then Inf and NaNs,
// each with both signs.
inline const std::vector<uint32_t> finite_specials{0, 1, 2, 3, 4, 5},
    all_specials{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

inline uint32_t special_value(int32_t format, uint32_t number) {
    const uint32_t sign = format == MXQ_FORMAT_F32 ? 0x80000000u : 0x8000u;
    const uint32_t infinity = format == MXQ_FORMAT_F32 ? 0x7F800000u : format == MXQ_FORMAT_F16 ? 0x7C00u : 0x7F80u;
    const uint32_t quiet = format == MXQ_FORMAT_F32 ? 0x7FC00000u : format == MXQ_FORMAT_F16 ? 0x7E00u : 0x7FC0u;
    const uint32_t magnitudes[] = {0, 1, infinity - 1, infinity, infinity + 1, quiet, sign - 1};
    return magnitudes[number / 2] | (number % 2 ? sign : 0);
}

// Returns values of very different size: each row, each column and each 32 x 32 tile has its own power of two. `tiles` is
// the largest exponent of a tile.
inline oracle::Bytes finite_values(int32_t format, testing::Dims dims, int64_t tiles, cases::Random& random) {
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

// Stores specials among the values of a matrix of `cols` columns that starts at row `first`: any of them in the matrix's
// first 128 rows, only finite ones after, since kernels have a faster path for finite blocks.
inline void plant(oracle::Bytes& data, int32_t format, int64_t first, int64_t cols, const std::vector<Position>& positions,
                  Dealer& any, Dealer& finite) {
    const auto element = static_cast<size_t>(oracle::plain_bytes(format));
    for (Position at : positions) {
        const uint32_t bits = special_value(format, (at.row < 128 ? any : finite).next(at));
        std::memcpy(&data[static_cast<size_t>((first + at.row) * cols + at.col) * element], &bits, element);
    }
}

// ---- Stored parts ----------------------------------------------------------------------------------------------------

enum class Special { codes, scales, both };
inline constexpr Special special_places[] = {Special::codes, Special::scales, Special::both};

// Returns zero, the least and the largest code, and every code that is Inf or NaN.
inline std::vector<uint32_t> mark_special_codes(int32_t format) {
    const oracle::Type& type = oracle::element_type(format);
    std::vector<uint32_t> out;
    for (uint32_t magnitude = 0; magnitude < type.magnitudes(); ++magnitude)
        if (magnitude < 2 || magnitude + 1 >= type.finite.size())
            for (uint32_t sign : {0u, type.magnitudes()}) out.push_back(magnitude | sign);
    return out;
}

inline std::vector<uint32_t> special_scales(const oracle::Spec& spec) {
    if (oracle::is_mx(spec.format)) return {255, 0, 255, 254, 255, 1};
    if (testing::is_nvfp4(spec)) return {0x7F, 0xFF, 0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81};
    return {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFFFFFFFu, 0x7F800001u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0u, 0x80000000u, 1u};
}

inline uint32_t ordinary_scale(const oracle::Spec& spec, cases::Random& random) {
    if (oracle::is_mx(spec.format))
        return static_cast<uint32_t>(random.below(8) ? 120 + random.below(15) : 90 + random.below(75));
    if (testing::is_nvfp4(spec)) return static_cast<uint32_t>(0x20 + random.below(0x50));
    return oracle::bits_of(std::ldexp(random.uniform(), static_cast<int>(random.below(20) - 10)));
}

// Draws a matrix of lines: finite codes under ordinary scales, with special codes, special scales or both among them.
inline oracle::Matrix draw_matrix(const oracle::Spec& spec, int64_t lines, int64_t length, Special special, Dealer& dealer,
                                  cases::Random& random) {
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
    return matrix;
}

// ---- Outputs ---------------------------------------------------------------------------------------------------------

// Describes the output of a verb: its shape, the layout of its scales, and its groups where it has them.
struct Target {
    testing::Dims dims;
    bool swizzled;
    const testing::DeviceEnds* ends = nullptr;
    oracle::Groups groups = {};
};

// Runs a verb for each part alone and for both together. Returns "" or a text that says what differs from the oracle, and
// adds the number of compared codes to `compared`.
inline std::string compare_parts(testing::Device& device, testing::Verb verb, testing::Query query, const oracle::Spec& spec,
                                 const mxq_tensor* in, const Target& target,
                                 const std::map<int32_t, oracle::GroupedPart>& expected, int64_t& compared) {
    for (int32_t parts = 1; parts <= 3; ++parts) {
        auto out = testing::make_tensor(spec, target.dims, target.swizzled);
        if (target.ends) target.ends->set(out, target.groups);
        testing::Buffer scale(device, testing::bytes_of(spec.quantization_scale));
        if (scale.bytes())
            testing::ok(mxq_tensor_set_quantization_scale(out, static_cast<float*>(scale.data()), scale.bytes()));
        std::map<int32_t, testing::OutputPart> outputs;
        for (int32_t part : both_parts)
            if (parts & part) outputs.emplace(part, testing::OutputPart(device, out, spec, part, true));
        testing::run(device, verb, query, testing::Options(device, spec), in, out);
        for (const auto& [part, buffers] : outputs) {
            if (auto text = buffers.compare(expected.at(part), spec); !text.empty())
                return "part " + std::to_string(part) + " of " + std::to_string(parts) + ": " + text;
            compared += static_cast<int64_t>(target.dims.shape().count());
        }
    }
    return "";
}

// Returns at least one source of each kind of codes and scales, for requantize.
inline std::vector<oracle::Spec> sources() {
    using testing::spec_of;
    return {spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),  spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32),
            spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32), spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128),
            spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32),  spec_of(MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_32X32),
            spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),       spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
            spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16),      spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128),
            spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_128X128), spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR),
            spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW)};
}

// Returns targets of requantize that differ in how they are made.
inline std::vector<oracle::Spec> targets() {
    using testing::spec_of;
    return {spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),    spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32),
            spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128), spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32),
            spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),         spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_128X128),
            spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),         spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_ROW),
            spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW),     spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_ROW)};
}

}  // namespace specials

#endif
