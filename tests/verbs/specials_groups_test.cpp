// Groups and experts: NaN, Inf and extreme values change the block that holds them and no other, neither in their own group
// or expert nor in its neighbours, at every position that they can have there.
#include "specials.h"

using namespace specials;
using testing::Buffer;
using testing::ok;

namespace {

// A tensor of several matrices: experts, or groups of rows with these ends, ragged and one of them empty. The rowwise part
// divides groups by its lines, the columnwise part along its contraction.
struct Shape {
    testing::Dims dims;
    oracle::Ends ends = {};

    bool grouped() const { return !ends.empty(); }
    size_t count() const { return grouped() ? ends.size() : static_cast<size_t>(*dims.experts); }
    int64_t all_rows() const { return static_cast<int64_t>(dims.shape().experts) * dims.rows; }
    int64_t end() const { return grouped() ? ends.back() : all_rows(); }  // of the last matrix
    // The matrix's rows, and the first of them among all.
    int64_t rows(size_t i) const { return grouped() ? oracle::group_rows(ends, i) : dims.rows; }
    int64_t first(size_t i) const { return grouped() ? ends[i] - rows(i) : static_cast<int64_t>(i) * dims.rows; }
};
const Shape shapes[] = {{{std::nullopt, 240, 96}, {37, 37, 165, 240}},
                        {{std::nullopt, 240, 99}, {61, 160, 160, 233}},
                        {{3, 80, 96}},
                        {{3, 67, 99}}};
constexpr int64_t elements = 240 * 96 + 240 * 99 + 3 * 80 * 96 + 3 * 67 * 99;  // of all shapes

// Draws alignments for a shape's groups.
oracle::Groups draw_groups(const Shape& shape, const oracle::Spec& spec, cases::Random& random) {
    oracle::Groups groups = testing::draw_groups(random, spec, shape.dims.rows, 1);
    groups.ends = shape.ends;
    return groups;
}

// Returns different amaxes or scales for the matrices, or one for all.
oracle::Floats numbers_of(const oracle::Spec& spec, const Shape& shape, float least) {
    oracle::Floats out;
    for (size_t i = 0; i < (spec.per_matrix ? shape.count() : 1); ++i) out.push_back(least * static_cast<float>(i + 1));
    return out;
}

// Draws the format's options. Half of the specifications with an amax are given one, since a computed one is Inf or NaN.
oracle::Spec draw_spec(const oracle::Spec& base, const Shape& shape, cases::Random& random) {
    oracle::Spec spec = base;
    testing::draw_options(spec, random, shape.dims.cols, shape.grouped() ? 16 : shape.dims.rows);
    if (testing::is_nvfp4(spec) && random.below(2)) spec.amax = numbers_of(spec, shape, 100);
    if (spec.scaling == MXQ_SCALING_TENSOR && random.below(2)) spec.quantization_scale = numbers_of(spec, shape, 3);
    return spec;
}

bool draw_swizzled(const oracle::Spec& spec, const Shape& shape, cases::Random& random) {
    return random.below(2) && testing::can_swizzle(spec, shape.grouped());
}

std::map<int32_t, oracle::GroupedPart> quantized_parts(const oracle::Spec& spec, const oracle::Floats& x, const Shape& shape,
                                                       const oracle::Groups& groups, bool swizzled) {
    std::map<int32_t, oracle::GroupedPart> out;
    const testing::Dims& dims = shape.dims;
    for (int32_t part : both_parts)
        out[part] = shape.grouped() ? oracle::quantize_groups(spec, x, dims.rows, dims.cols, groups, part, swizzled)
                                    : testing::all_written(oracle::quantize(spec, x, dims.shape(), part, swizzled));
    return out;
}

Target target_of(const Shape& shape, bool swizzled, const testing::DeviceEnds& ends, const oracle::Groups& groups) {
    return {shape.dims, swizzled, shape.grouped() ? &ends : nullptr, groups};
}

std::string describe(const oracle::Spec& spec, const Shape& shape, bool swizzled) {
    return testing::describe(spec) + ", " + std::to_string(shape.count()) + (shape.grouped() ? " groups, " : " experts, ") +
           std::to_string(shape.dims.cols) + " columns, swizzled " + std::to_string(swizzled);
}

// Returns values of a plain format with specials among them. Every other matrix has finite specials alone, so that what
// comes to it from its neighbours shows.
oracle::Bytes draw_values(int32_t input, const Shape& shape, const oracle::Spec& spec, Dealer& any, Dealer& finite,
                          cases::Random& random) {
    const int64_t cols = shape.dims.cols;
    oracle::Bytes data = finite_values(input, {std::nullopt, shape.all_rows(), cols}, 0, random);
    for (size_t i = 0; i < shape.count(); ++i) {
        Dealer& dealer = i % 2 ? finite : any;
        plant(data, input, shape.first(i), cols, positions({std::nullopt, shape.rows(i), cols}, spec, random), dealer,
              dealer);
    }
    return data;
}

}  // namespace

MXQ_EACH_DEVICE("specials of groups and experts: quantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& base : testing::all_formats()) {
        Dealer any(all_specials), finite(finite_specials);
        for (int32_t input : cases::plain_formats)
            for (const Shape& shape : shapes) {
                cases::Random random(static_cast<uint64_t>(ran) + 1);
                const oracle::Spec spec = draw_spec(base, shape, random);
                const bool swizzled = draw_swizzled(spec, shape, random);
                const oracle::Groups groups = draw_groups(shape, spec, random);
                const oracle::Bytes data = draw_values(input, shape, spec, any, finite, random);
                Buffer buffer(device, data);
                auto in = testing::make_tensor(input, shape.dims);
                ok(mxq_tensor_set_data(in, buffer.data(), buffer.bytes()));
                testing::DeviceEnds ends(device, groups.ends);
                const auto x = oracle::load(input, data.data(), shape.dims.shape().count());
                const auto text = compare_parts(device, mxq_quantize, mxq_quantize_query, spec, in,
                                                target_of(shape, swizzled, ends, groups),
                                                quantized_parts(spec, x, shape, groups, swizzled), compared);
                ++ran;
                if (!text.empty())
                    FAIL(describe(spec, shape, swizzled) << " from " << mxq_format_name(input) << ": " << text);
            }
        if (!testing::is_square(base)) missing += any.missing() + finite.missing();
    }
    CHECK(missing == 0);
    CHECK(ran == 35 * 3 * 4);
    CHECK(compared == 35 * 3 * 4 * elements);
}

// ---- Dequantize ------------------------------------------------------------------------------------------------------

namespace {

// Draws a stored part. The padding of groups is zeros, as the contract has it; what nothing may read is NaN.
oracle::Part draw_part(const oracle::Spec& spec, const Shape& shape, const oracle::Groups& groups, int32_t part,
                       bool swizzled, Special special, Dealer& dealer, cases::Random& random) {
    const auto [experts, lines, length] = oracle::line_shape(shape.dims.shape(), part);
    const bool columnwise = part == MXQ_PART_COLUMNWISE;
    std::optional<oracle::GroupLayout> layout;
    if (shape.grouped()) layout.emplace(spec, shape.dims.rows, shape.dims.cols, groups, part, swizzled);
    const int64_t codes = layout ? layout->code_bytes() : experts * lines * oracle::row_bytes(spec.format, length);
    const int64_t scales = layout ? layout->scales() : oracle::scale_count(spec, shape.dims.shape(), part, swizzled);
    oracle::Part out{oracle::Bytes(static_cast<size_t>(codes), 0),
                     oracle::Bytes(static_cast<size_t>(scales * oracle::scale_bytes(spec.format)), 0)};
    if (testing::is_nvfp4(spec)) out.amax = numbers_of(spec, shape, 2688);
    for (size_t i = 0; i < shape.count(); ++i) {
        const int64_t of_lines = columnwise ? shape.dims.cols : shape.rows(i),
                      of_length = columnwise ? shape.rows(i) : shape.dims.cols;
        oracle::put_matrix(
            spec, draw_matrix(spec, of_lines, of_length, special, dealer, random),
            layout ? layout->placement(i) : oracle::placement_of(spec, static_cast<int64_t>(i), lines, length, swizzled),
            out);
    }
    return layout ? oracle::marked(*layout, std::move(out)).on(oracle::untouchable) : out;
}

oracle::Floats dequantized(const oracle::Spec& spec, const oracle::Part& stored, const Shape& shape,
                           const oracle::Groups& groups, int32_t part, bool swizzled) {
    const testing::Dims& dims = shape.dims;
    return shape.grouped() ? oracle::dequantize_groups(spec, stored, dims.rows, dims.cols, groups, part, swizzled)
                           : oracle::dequantize(spec, stored, dims.shape(), part, swizzled);
}

}  // namespace

MXQ_EACH_DEVICE("specials of groups and experts: dequantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int32_t part : both_parts) {
            Dealer dealer(mark_special_codes(base.format));
            for (const Shape& shape : shapes)
                for (bool both : {true, false}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const Special special = both ? Special::both : random.below(2) ? Special::codes : Special::scales;
                    oracle::Spec spec = base;
                    if (testing::has_amax(spec)) spec.per_matrix = random.below(2);
                    const int32_t output = cases::plain_formats[random.below(3)];
                    const bool swizzled = draw_swizzled(spec, shape, random);
                    const oracle::Groups groups = draw_groups(shape, spec, random);
                    const oracle::Part stored = draw_part(spec, shape, groups, part, swizzled, special, dealer, random);
                    auto in = testing::make_tensor(spec, shape.dims, swizzled),
                         out = testing::make_tensor(output, shape.dims);
                    testing::DeviceEnds ends(device, groups.ends);
                    if (shape.grouped()) ends.set(in, groups);
                    testing::InputPart input(device, in, spec, part, stored);
                    auto values = oracle::store(output, dequantized(spec, stored, shape, groups, part, swizzled));
                    const int64_t written = shape.end() * shape.dims.cols * oracle::plain_bytes(output);
                    std::fill(values.begin() + written, values.end(), testing::poison);  // rows of no group
                    Buffer data(device, values.size());
                    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
                    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
                    ++ran, compared += static_cast<int64_t>(shape.dims.shape().count());
                    if (auto text = testing::difference(data.read(), values); !text.empty())
                        FAIL(describe(spec, shape, swizzled)
                             << " part " << part << " to " << mxq_format_name(output) << ": " << text);
                }
            if (!testing::is_square(base)) missing += dealer.missing();
        }
    CHECK(missing == 0);
    CHECK(ran == 35 * 2 * 4 * 2);
    CHECK(compared == 35 * 2 * 2 * elements);
}

// ---- Requantize ------------------------------------------------------------------------------------------------------

MXQ_EACH_DEVICE("specials of groups and experts: requantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& source : sources()) {
        Dealer dealer(mark_special_codes(source.format));
        for (const oracle::Spec& target : targets())
            for (bool grouped : {false, true}) {
                cases::Random random(static_cast<uint64_t>(ran) + 1);
                const Shape& shape = shapes[2 * !grouped + random.below(2)];
                const int32_t part = both_parts[random.below(2)];
                const Special special = special_places[random.below(3)];
                oracle::Spec from = source;
                if (testing::has_amax(from)) from.per_matrix = random.below(2);
                const oracle::Spec to = draw_spec(target, shape, random);
                const bool from_swizzled = draw_swizzled(from, shape, random), swizzled = draw_swizzled(to, shape, random);
                const oracle::Groups from_groups = draw_groups(shape, from, random), groups = draw_groups(shape, to, random);
                const oracle::Part stored =
                    draw_part(from, shape, from_groups, part, from_swizzled, special, dealer, random);
                auto in = testing::make_tensor(from, shape.dims, from_swizzled);
                testing::DeviceEnds ends(device, from_groups.ends);
                if (shape.grouped()) ends.set(in, from_groups);
                testing::InputPart input(device, in, from, part, stored);
                const auto x = dequantized(from, stored, shape, from_groups, part, from_swizzled);
                const auto text = compare_parts(device, mxq_requantize, mxq_requantize_query, to, in,
                                                target_of(shape, swizzled, ends, groups),
                                                quantized_parts(to, x, shape, groups, swizzled), compared);
                ++ran;
                if (!text.empty())
                    FAIL(testing::describe(from)
                         << " part " << part << " to " << describe(to, shape, swizzled) << ": " << text);
            }
        if (!testing::is_square(source)) missing += dealer.missing();
    }
    CHECK(missing == 0);
    CHECK(ran == 13 * 10 * 2);
}
