#include "bounds.h"

#include "sums.h"

namespace search {

using oracle::Element;

namespace {

// An operand of a piece with the part that it is read from.
struct Stored {
    Stored(const Problem& problem, const Piece& piece, Operand which)
        : spec(problem.tensors[which == Operand::a ? 0 : 1].spec),
          part(problem.stored[which == Operand::a ? 0 : 1]),
          operand(which == Operand::a ? piece.a : piece.b),
          placement(placement_of(problem, piece, which)),
          across(which == Operand::b && problem.call.reads_b_by_rows()) {}

    // Where lines run across those that are stored, the placement has them the other way round.
    bool has_scale(int64_t line, int64_t at) const {
        return across ? placement.has_scale(at, line) : placement.has_scale(line, at);
    }
    uint32_t scale(int64_t line, int64_t at) const {
        const int64_t place = across ? placement.scale(at, line) : placement.scale(line, at);
        return oracle::get_scale(spec.format, part.scales.data(), place);
    }

    const oracle::Spec& spec;
    const oracle::Part& part;
    const PieceOperand& operand;
    const oracle::Placement placement;
    const bool across;
};

bool is_mx(const oracle::Spec& spec) { return spec.format > MXQ_FORMAT_BF16 && oracle::is_mx(spec.format); }
bool is_fp8(const oracle::Spec& spec) { return spec.format > MXQ_FORMAT_BF16 && oracle::is_fp8(spec.format); }
bool is_scaled(const oracle::Spec& spec) { return spec.format > MXQ_FORMAT_BF16; }
bool is_exact(const oracle::Spec& spec) { return !is_scaled(spec) || is_mx(spec); }

// The sum of an element may be off by this much before it is rounded to D's type.
double error_of_sum(const Element& e, double factor) {
    return factor * 0x1p-24 * e.magnitude + 0x1p-134 * e.operands + e.below + e.rebased;
}

// Returns how much alignment on tensor cores adds to the error of two F16 operands.
double error_of_alignment(const Element& e, double factor) { return factor * 0x1p-24 * e.aligned; }

// Numbers from here on may round to Inf in fp32.
constexpr double largest_sum = 0x1.FFFFFFp127 * (1 - 0x1p-40);

// ---- FP8 tensor cores: fp32 scales must be neither too large nor too small ---------------------------------------------

// The least and the largest fp32 scale of a line.
struct Scales {
    double least = 1, largest = 1;
    void add(double scale) {
        if (!(scale >= least)) least = scale;  // NaN too
        if (!(scale <= largest)) largest = scale;
    }
};
bool is_normal(double scale) { return scale >= 0x1p-126 && scale < largest_sum; }

// Returns the scales of each line that multiply sums: fp32 ones, and beside those of FP8 the references of MX.
std::vector<Scales> fp32_scales(const Stored& stored, int64_t k, bool beside_fp8 = false) {
    std::vector<Scales> out(static_cast<size_t>(stored.operand.lines));
    if (testing::is_nvfp4(stored.spec)) {
        const oracle::Floats decode = oracle::decode_scales(stored.spec, stored.part);
        for (Scales& line : out) line.least = line.largest = decode[decode.size() > 1 ? stored.operand.matrix : 0];
    }
    if (is_mx(stored.spec) && beside_fp8) {
        const auto references =
            oracle::guarded_references(stored.spec, stored.part.scales, stored.placement, stored.operand.lines, k);
        for (size_t i = 0; i < out.size(); ++i) out[i].least = out[i].largest = std::ldexp(1.0, references[i] - 127);
    }
    if (!is_fp8(stored.spec)) return out;
    for (int64_t i = 0; i < stored.operand.lines; ++i)
        for (int64_t j = 0; j < k; j += 128) {
            if (!stored.has_scale(i, j)) continue;
            const double scale = oracle::float_of(stored.scale(i, j));
            Scales& line = out[static_cast<size_t>(i)];
            if (j == 0)
                line.least = line.largest = scale;
            else
                line.add(scale);
        }
    return out;
}

// Takes the promise from elements whose scales leave the range that the class asks for.
void require_scales(const Problem& problem, const Piece& piece, std::vector<Element>& sums) {
    const auto of_a = fp32_scales({problem, piece, Operand::a}, piece.k),
               of_b = fp32_scales({problem, piece, Operand::b}, piece.k, is_fp8(problem.tensors[0].spec));
    const double alpha = std::max(1.0, std::fabs(static_cast<double>(problem.call.alpha)));
    for (size_t i = 0; i < sums.size(); ++i) {
        const Scales &left = of_a[i / of_b.size()], &right = of_b[i % of_b.size()];
        Element& e = sums[i];
        bool good = true;
        for (double scale : {1.0, left.least, left.largest, right.least, right.largest, left.least * right.least,
                             left.largest * right.largest}) {
            good &= is_normal(scale);
            if (problem.call.alpha != 0) good &= is_normal(scale * std::fabs(static_cast<double>(problem.call.alpha)));
        }
        // The sum of the codes' products times either scale.
        good &= e.magnitude / right.least * alpha < 0x1p128 && e.magnitude / left.least * alpha < 0x1p128;
        if (!good) e.promised = e.nan = false;
    }
}

// ---- Rebased: a tile of MX blocks gets one scale -----------------------------------------------------------------------

// The scale that each tile of tile_lines x 128 values gets, line by line; 0 where the values are all zero.
struct Tiles {
    int64_t across = 0, height = 1;
    std::vector<int> scales;
    std::vector<bool> zero;
    size_t at(int64_t line, int64_t block) const { return static_cast<size_t>(line / height * across + block); }
};

Tiles tiles_of(const Stored& stored, int64_t k, int64_t height) {
    const PieceOperand& operand = stored.operand;
    const bool mx = is_mx(stored.spec);
    Tiles out{oracle::ceil_div(k, 128), height, {}, {}};
    const auto count = static_cast<size_t>(oracle::ceil_div(operand.lines, height) * out.across);
    out.scales.assign(count, mx ? 0 : 127);
    out.zero.assign(count, true);
    for (int64_t i = 0; i < operand.lines; ++i)
        for (int64_t j = 0; j < k; ++j) {
            const size_t tile = out.at(i, j / 128);
            if (operand.values[static_cast<size_t>(i * k + j)] != 0) out.zero[tile] = false;
            if (!mx || !stored.has_scale(i, j)) continue;
            const auto scale = static_cast<int>(stored.scale(i, j));
            if (scale != 255) out.scales[tile] = std::max(out.scales[tile], scale);
        }
    if (mx)
        for (int& scale : out.scales) scale = std::max(scale - oracle::rebase_headroom(stored.spec.format), 1);
    return out;
}

// Returns the least scale of the tiles of a line that are not all zeros.
int least_scale(const Tiles& tiles, int64_t line) {
    int least = 254;
    for (int64_t block = 0; block < tiles.across; ++block)
        if (!tiles.zero[tiles.at(line, block)]) least = std::min(least, tiles.scales[tiles.at(line, block)]);
    return least;
}

// Takes the promise from elements where scales of tiles leave the range that the class asks for, or the codes' products
// times one of the two.
void require_tiles(const Tiles& a, const Tiles& b, int64_t n, double alpha, std::vector<Element>& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / n, column = static_cast<int64_t>(i) % n;
        bool good = true;
        for (int64_t block = 0; block < a.across; ++block) {
            const size_t left = a.at(row, block), right = b.at(column, block);
            const int sum = a.scales[left] + b.scales[right];
            good &= sum <= 381 && (sum >= 128 || a.zero[left] || b.zero[right]);
        }
        for (int least : {least_scale(a, row), least_scale(b, column)})
            good &= std::ldexp(sums[i].magnitude, 127 - least) * std::max(1.0, std::fabs(alpha)) < 0x1p128;
        if (!good) sums[i].promised = sums[i].nan = false;
    }
}

void add_rebase(const Problem& problem, const Piece& piece, std::vector<Element>& sums) {
    const Stored a(problem, piece, Operand::a), b(problem, piece, Operand::b);
    const int64_t b_height = problem.call.transpose_a == MXQ_TRANSPOSE_T ? 1 : 128;
    const auto errors = [&](const Stored& stored, int64_t height) {
        const PieceOperand& operand = stored.operand;
        if (!is_mx(stored.spec)) return oracle::Floats(operand.values.size(), 0.0f);
        return oracle::rebase_errors(stored.spec, stored.part.scales, stored.placement, operand.values, operand.lines,
                                     piece.k, height);
    };
    add_rebase_errors(sums, piece.a, errors(a, 1), piece.b, errors(b, b_height), piece.k);
    if (piece.b.lines)
        require_tiles(tiles_of(a, piece.k, 1), tiles_of(b, piece.k, b_height), piece.b.lines,
                      static_cast<double>(problem.call.alpha), sums);
}

void add_guarded(const Problem& problem, const Piece& piece, std::vector<Element>& sums) {
    const Stored a(problem, piece, Operand::a), b(problem, piece, Operand::b);
    const auto errors = [&](const Stored& stored, bool by_line) {
        if (!is_mx(stored.spec)) return oracle::Floats(stored.operand.values.size(), 0.0f);
        return oracle::guarded_errors(stored.spec, stored.part.scales, stored.placement, stored.operand.values,
                                      stored.operand.lines, piece.k, by_line);
    };
    const auto references = [&](const Stored& stored) {
        if (!is_mx(stored.spec)) return std::vector<int>(static_cast<size_t>(stored.operand.lines), 127);
        return oracle::guarded_references(stored.spec, stored.part.scales, stored.placement, stored.operand.lines, piece.k);
    };
    add_rebase_errors(sums, piece.a, errors(a, false), piece.b, errors(b, true), piece.k);
    add_guarded_roundings(sums, references(a), references(b), piece.k);
}

// Takes the promise from elements whose sum may be infinite before alpha, beta and bias, or whose operands times alpha may
// be.
void require_sums(const Problem& problem, const Piece& piece, int32_t bound, std::vector<Element>& sums) {
    const double factor = oracle::class_factor(bound, piece.k);
    const double alpha = std::fabs(static_cast<double>(problem.call.alpha));
    const bool plain = !is_scaled(problem.tensors[0].spec) || !is_scaled(problem.tensors[1].spec);
    for (Element& e : sums) {
        const bool sum = std::fabs(e.value) + error_of_sum(e, factor) < largest_sum;
        if (!sum || (plain && alpha * e.operands >= largest_sum)) e.promised = e.nan = false;
    }
}

oracle::More more_of_call(const Call& call) { return {call.alpha, call.accumulate ? 1.0f : call.beta, call.bias != 0}; }

// Returns every element of a piece with the terms of its bound.
const std::vector<Element>& sums_of(const Problem& problem, const Piece& piece, int32_t bound) {
    auto [found, is_new] = piece.sums.try_emplace(bound);
    std::vector<Element>& sums = found->second;
    if (!is_new) return sums;
    sums = product(piece.a, piece.b, piece.k);
    const bool f16 = problem.call.first.format == MXQ_FORMAT_F16 && problem.call.second.format == MXQ_FORMAT_F16;
    if (f16) add_aligned(sums, piece.a, piece.b, piece.k);
    if (bound == MXQ_BOUND_FP8_TENSOR_CORES || bound == MXQ_BOUND_BLACKWELL_TENSOR_CORES)
        require_scales(problem, piece, sums);
    if (bound == MXQ_BOUND_REBASED) add_rebase(problem, piece, sums);
    if (bound == MXQ_BOUND_REBASED_GUARDED) {
        if (is_fp8(problem.tensors[0].spec)) require_scales(problem, piece, sums);  // before they have errors
        add_guarded(problem, piece, sums);
    }
    const oracle::More more = more_of_call(problem.call);
    if (oracle::more_of(more) > 0) require_sums(problem, piece, bound, sums);
    const bool only_adds = more.alpha == 1 && more.beta == 1 && !more.bias && problem.call.d.format == MXQ_FORMAT_F32;
    for (size_t i = 0; i < sums.size(); ++i) {
        Element& e = sums[i];
        e = oracle::with_more(e, more, piece.previous[i], piece.bias.empty() ? 0 : piece.bias[i % piece.bias.size()]);
        if (only_adds) e.below = 0;
        if (more.alpha == 0 && e.nan) e.nan = e.promised = false;  // open in the contract
    }
    return sums;
}

// How a type of D rounds: the unit of its error, the smallest normal number, and the least magnitude that becomes infinite,
// half a unit in the last place above the largest number.
struct Rounding {
    double unit, smallest_normal, infinite;
};
Rounding rounding_of(int32_t format) {
    if (format == MXQ_FORMAT_F16) return {0x1p-11, 0x1p-14, 65520.0};
    if (format == MXQ_FORMAT_BF16) return {0x1p-8, 0x1p-126, 0x1.FFp127};
    return {0x1p-24, 0x1p-126, 0x1.FFFFFFp127};
}

// Returns whether D may have this value. Infinity is right where the sum, with its error, may lie beyond the range of D's
// type on that side: sums that cancel may do so on both.
bool keeps_bound(const Element& e, double got, const Rounding& rounding, double error) {
    if (e.nan) return std::isnan(got);
    if (!e.promised) return true;
    // The sums in double precision have errors too, of which 2^-40 is more than enough.
    if (std::isinf(got)) return (got > 0 ? e.value : -e.value) + error >= rounding.infinite * (1 - 0x1p-40);
    return std::fabs(got - e.value) <= error + rounding.unit * std::max(std::fabs(got), rounding.smallest_normal);
}

}  // namespace

std::string check_piece(const Problem& problem, const Piece& piece, const oracle::Floats& values,
                        const oracle::Promise& promise) {
    if (oracle::class_factor(promise.bound, piece.k) < 0) return "no class of bound";
    const bool splits = problem.call.first.format == MXQ_FORMAT_F16 && problem.call.second.format != MXQ_FORMAT_F16;
    const bool exact = is_exact(problem.tensors[0].spec) && is_exact(problem.tensors[1].spec) && !splits;
    const double factor = oracle::bound_factor(promise, piece.k, exact) + oracle::more_of(more_of_call(problem.call));
    const std::vector<Element>& sums = sums_of(problem, piece, promise.bound);
    const Rounding rounding = rounding_of(problem.call.d.format);
    const bool aligns = promise.implementation != "cpu";
    const double roundings = oracle::rounding_of_sums(promise, problem.tensors[1].spec.format, piece.k) *
                             std::fabs(static_cast<double>(problem.call.alpha));
    if (values.size() != sums.size()) return "the search lost elements";
    for (size_t i = 0; i < sums.size(); ++i) {
        const Element& e = sums[i];
        const double error = error_of_sum(e, factor) + (aligns ? error_of_alignment(e, factor) : 0) + roundings;
        if (keeps_bound(e, values[i], rounding, error)) continue;
        char text[200];
        std::snprintf(text, sizeof text, "element %zu: %.9g, expected %.17g%s, error %.3g, of the sum at most %.3g", i,
                      static_cast<double>(values[i]), e.value, e.nan ? " (NaN)" : "",
                      static_cast<double>(values[i]) - e.value, error);
        return text;
    }
    return "";
}

}  // namespace search
