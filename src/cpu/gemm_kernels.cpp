// The product of a block of D, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512bw, avx512bf16).
//
//     rows of A    a pass of the contraction of all rows, decoded once, in tiles of kTileRows
//     panel of B   the same of kPanelColumns rows, in tiles of kTileColumns, decoded while they are multiplied with all of A
//     lanes        sixteen sums of each row of A and of B: of a group of A and a panel, or of the block if there are more
//     passes
//
// A panel stays in L2. A group of kGroupRows of A, a few units of it at a time, stays in L1 while the panel passes by, of
// which each tile is loaded to L1 once for the group (gemm_tile.h).
//
// The order of a sum is that of few_rows_kernels.cpp, whatever the rows and the columns of the block are, and for every
// instruction set. Numbers are pairs of BF16 where the processor has dot products and they fit, else fp32. Scales of MX that
// are far from the ends of fp32's range multiply the codes as they are decoded, since powers of two change no other bit.
// What may not be multiplied so is multiplied again in another way, row by row of A and of B, so that no row depends on
// others. Only the table at the end has external linkage.
#include "cpu/gemm_kernels.h"

#include <cstring>

#include "cpu/gemm_repair.h"
#include "cpu/gemm_tile.h"
#include "cpu/gemm_units.h"
#include "cpu/operand_reader.h"
#include "mxq/mxq.h"

namespace mxq::cpu {
namespace {

// How far apart rows are that are decoded together, so that equal columns of them are not in the same sets of L1.
constexpr int64_t kPitch = kGemmDepth + kLanes;

// The most codes of a group of A that stay in L1, in units of fp32. Lanes in L1 ask for long ones.
constexpr int64_t kChunkUnits = kTileRows == 6 ? 4 : 2;

// Values of B that are multiples of 2^kLastFolded and below 2^kBeyondFolded. Sums of their products with rows in range are
// zero or normal numbers, which flushing subnormals does not change, and sums of a section do not overflow.
constexpr int kLastFolded = -52, kBeyondFolded = 58;

// Returns the factors with which codes have such values.
SafeFactors folded_factors(const QuantizedPart& part) {
    return with_element(part.element, [&]<class E>(E) -> SafeFactors {
        constexpr int smallest = 1 - E::bias - E::mantissa_bits;
        return {bits_float(power_of_two(kLastFolded - smallest)), bits_float(power_of_two(kBeyondFolded - 1 - E::emax))};
    });
}

// Tells whether blocks of codes of a K-major row have scales, so that there are sections.
bool has_sections(const OperandLines& b, int64_t k) {
    constexpr int64_t is_short = 16;  // too short for a bound of K + 1 roundings to have room for those of factors
    const QuantizedPart& part = b.part;
    if (b.part.across || part.scale_type == ScaleType::None || has_line_scale(part)) return false;
    return part.scale_type == ScaleType::E8M0 || k > is_short;
}

// Returns how many significant bits the values of B have. NVFP4's global scale multiplies sums.
int bits_of_values(const QuantizedPart& b) {
    return b.scale_type == ScaleType::E4M3 ? code_bits(b) + E4M3::mantissa_bits + 1 : significant_bits(b);
}

// How the values of A and of B are stored and multiplied.
struct Kind {
    Kind(const GemmBlock& block, Way way) {
        const GemmOperand &a = block.a->part, &b = block.b->part;
        const bool is_fast = way == Way::fast, is_mx = b.scale_type == ScaleType::E8M0;
        const bool sums_sections = has_sections(*block.b, block.k) && way != Way::values;
        order = order_of(b);
        method.sections = !sums_sections ? 0 : is_mx && order == Order::bytes ? 2 : 1;
        method.has_factors = sums_sections && !(is_fast && is_mx);
        unscaled = method.has_factors || (has_line_scale(b) && !b.across);
        const int of_a = significant_bits(a), of_b = unscaled ? code_bits(b) : bits_of_values(b);
        constexpr int of_bf16 = 8, of_fp32 = 24;
        method.packed = kHasDots && is_fast && of_a <= of_bf16 && of_b <= of_bf16;
        method.exact = is_fast && of_a + of_b <= of_fp32;
        const bool is_exact_alone = method.packed || (method.exact && !MXQ_HOST_FUSES);
        checks_values = is_fast && !unscaled && method.sections == 0 && is_exact_alone;
        checks_factors = is_fast && sums_sections && b.scale_type != ScaleType::E4M3;
        safe = is_mx ? folded_factors(b) : safe_factors(b);
        unit_floats = method.packed ? kUnit / 2 : kUnit;
    }

    Order order;
    Method method{};
    bool unscaled;  // codes of B are decoded without their scales
    bool checks_values, checks_factors;
    SafeFactors safe;
    int64_t unit_floats;
};

// Multiplies the rows of a block in one way.
class Multiplication {
public:
    Multiplication(const GemmBlock& block, Way way)
        : block_(block),
          kind_(block, way),
          of_a_(block.a->part),
          of_b_(block.b->part, 1.0f),
          decode_units_(decode_units_of(block.b->part, kind_.method.packed)),
          arrange_a_(arrange_units_of(block.a->part, kind_.order, kind_.method.packed)),
          arrange_b_(arrange_units_of(block.b->part, kind_.order, kind_.method.packed)),
          of_lanes_(kind_.order),
          whole_tile_(tile_of(kind_.method, kTileRows)),
          last_tile_(tile_of(kind_.method, block.row_count % kTileRows ? block.row_count % kTileRows : kTileRows)),
          groups_(ceil_div(block.row_count, kGroupRows)),
          pass_(kind_.method.packed ? 2 * block.depth : block.depth),
          rows_(block.memory),
          panel_(rows_ + groups_ * kGroupRows * block.depth),
          factors_(panel_ + kPanelColumns * block.depth),
          decoded_(factors_ + kPanelColumns * block.depth / 4),
          lanes_(decoded_ + kPanelColumns * kPitch) {}

    void run() {
        for (at_ = 0; at_ < block_.k; at_ += pass_) {
            depth_ = least(pass_, block_.k - at_), units_ = ceil_div(depth_, kUnit);
            for (int64_t row = 0; row < block_.row_count; row += kPanelColumns)
                store_rows(row, least(kPanelColumns, block_.row_count - row));
            for (int64_t column = 0; column < block_.column_count; column += kPanelColumns)
                multiply_panel(column, least(kPanelColumns, block_.column_count - column));
        }
    }

private:
    // Loads up to four codes of rows of an operand that is not K-major, each to 36 neighbours.
    void load_across(const OperandReader& reader, const OperandLines& lines, const int32_t* index, int64_t count, int64_t k,
                     int64_t depth, float (&four)[4][kPanelColumns], uint8_t* extreme) const {
        constexpr int64_t ahead = 16;
        const int32_t first = index[0];
        const OperandLines range = lines.some(first, index[count - 1] + 1 - first);
        const bool is_whole = range.count == count, is_plain = lines.part.scale_type == ScaleType::None;
        for (int64_t l = 0; l < depth; l++) {
            const uint8_t* const codes = line_of(lines.part, 0, k + l, range.first);
            __builtin_prefetch(codes + ahead * lines.part.line_bytes);
            __builtin_prefetch(codes + ahead * lines.part.line_bytes + 64);
            if (is_whole && is_plain) {
                reader.load_numbers(codes, count, four[l]);
                continue;
            }
            int64_t i = 0;
            read_across(reader, range, k + l, extreme + first, [&](int64_t begin, const float* values, int64_t some) {
                for (; i < count && index[i] - first < begin + some; i++) four[l][i] = values[index[i] - first - begin];
            });
        }
        if (!is_whole || !is_plain || !leaves_range(four[0], 4 * kPanelColumns, lowest_of(lines.part))) return;
        for (int64_t l = 0; l < depth; l++) mark_extreme(four[l], count, lowest_of(lines.part), extreme + first);
    }

    // Decodes codes of some rows of an operand that is not K-major to columns of decoded_.
    void decode_across(const OperandReader& reader, const OperandLines& lines, const int32_t* index, int64_t count,
                       int64_t k, int64_t depth, uint8_t* extreme) {
        alignas(64) float four[4][kPanelColumns] = {};
        for (int64_t l = 0; l < depth; l += 4) {
            load_across(reader, lines, index, count, k + l, least(4, depth - l), four, extreme);
            for (int64_t i = 0; i < count; i += 4) transpose(&four[0][i], kPanelColumns, decoded_ + i * kPitch + l, kPitch);
        }
    }

    // Calls store(i, at, depth) for each part of this pass of some rows: K-major ones row by row, else after decoding.
    template <class Store>
    void for_each_part(const OperandReader& reader, const OperandLines& lines, const int32_t* index, int64_t count,
                       int64_t part, uint8_t* extreme, const Store& store) {
        const int64_t at_once = lines.part.across ? count : 1;
        for (int64_t row = 0; row < count; row += at_once)
            for (int64_t at = 0; at < depth_; at += part) {
                const int64_t depth = least(part, depth_ - at);
                if (lines.part.across) decode_across(reader, lines, index, count, at_ + at, depth, extreme);
                for (int64_t i = row; i < row + at_once; i++) store(i, at, depth);
            }
    }

    void store_rows(int64_t row, int64_t count) {
        const OperandLines& a = *block_.a;
        const int32_t* const index = block_.rows + row;
        for_each_part(of_a_, a, index, count, kGemmDepth, block_.extreme, [&](int64_t i, int64_t at, int64_t depth) {
            const int64_t tile = (row + i) / kTileRows, in_tile = least(kTileRows, block_.row_count - tile * kTileRows);
            const int64_t first = tile * kTileRows * units_ + at / kUnit * in_tile + (row + i) % kTileRows;
            store_line(index[i], at_ + at, depth, decoded_ + i * kPitch, rows_ + first * kind_.unit_floats,
                       in_tile * kind_.unit_floats);
        });
    }

    // Stores a part of a row of A, by way of `values`, which has it where the row is not K-major.
    void store_line(int32_t i, int64_t k, int64_t depth, float* values, float* to, int64_t stride) const {
        const OperandLines& a = *block_.a;
        const int64_t line = a.first + i, units = arrange_a_ && depth % kUnit == 0 ? depth / kUnit : 0;
        Found found{};
        if (units > 0) {
            found = arrange_a_(line_of(a.part, 0, line, k), units, {lowest_of(a.part), 64}, of_lanes_, to, stride);
        } else {
            found.leaving = !a.part.across && of_a_.read(line, k, depth, values), found.nonzero = has_nonzero(values, depth);
            store_units(kind_.order, kind_.method.packed, values, depth, to, stride);
        }
        if (found.leaving) block_.extreme[i] = 1;
        if (found.nonzero) block_.nonzero[i] = 1;
    }

    // Loads the factors of a part of a K-major row of B. Returns whether they are safe, if that is asked.
    bool load_factors_of(int64_t line, int64_t k, int64_t depth, float* factors) const {
        if (kind_.method.has_factors || !kind_.unscaled) load_sixteenths(block_.b->part, 0, line, k, depth, factors);
        return !kind_.checks_factors || are_safe(factors, ceil_div(depth, kSixteen), kind_.safe);
    }

    bool has_units() const { return decode_units_ || arrange_b_; }

    // Stores a part of a row of B in the panel: whole units of codes as they are decoded, others by way of `values`, which
    // has them where the row is not K-major. Returns whether it may be multiplied so.
    bool store_column(int64_t line, int64_t k, int64_t depth, float* factors, float* values, float* to,
                      int64_t stride) const {
        const GemmOperand& part = block_.b->part;
        const bool is_plain = part.scale_type == ScaleType::None;
        bool is_right = part.across || is_plain || load_factors_of(line, k, depth, factors);
        const bool has_factors = !is_plain && !kind_.unscaled;
        const int64_t units = has_units() ? depth / kUnit : 0, begin = units * kUnit, rest = depth - begin;
        const uint8_t* const codes = part.across ? nullptr : line_of(part, 0, line, k);
        Found found{};
        if (arrange_b_) found = arrange_b_(codes, units, {kLastFolded + 7, kBeyondFolded}, of_lanes_, to, stride);
        if (decode_units_) decode_units_(codes, units, has_factors ? factors : nullptr, of_lanes_, to, stride);
        is_right &= !kind_.checks_values || !found.leaving;
        if (rest == 0) return is_right;
        if (!part.across && is_plain) of_b_.load_numbers(line_of(part, 0, line, k + begin), rest, values);
        if (!part.across && !is_plain) {
            float ones[kGemmDepth / kSixteen];
            for (float& one : ones) one = 1;
            of_b_.decode(line_of(part, 0, line, k + begin), rest, has_factors ? factors + begin / kSixteen : ones, 1.0f,
                         values);
        }
        is_right &= !kind_.checks_values || !leaves_range(values, rest, kLastFolded + 7, kBeyondFolded);
        store_units(kind_.order, kind_.method.packed, values, rest, to + units * stride, stride);
        return is_right;
    }

    // Prefetches the scales of K-major rows of B.
    void prefetch_scales(int64_t column, int64_t count) const {
        const QuantizedPart& part = block_.b->part;
        if (part.scale_type == ScaleType::None) return;
        const int64_t begin = at_ >> block_shift(part.layout), end = (at_ + depth_) >> block_shift(part.layout);
        const int64_t scale_bytes = part.scale_type == ScaleType::F32 ? 4 : 1;
        for (int64_t i = 0; i < count; i++)
            for (int64_t at = begin; at < end; at += 64 / scale_bytes)
                __builtin_prefetch(part.scales +
                                   part.layout.offset(0, block_.b->first + block_.columns[column + i], at) * scale_bytes);
    }

    void store_columns(int64_t column, int64_t count) {
        const OperandLines& b = *block_.b;
        const int32_t* const index = block_.columns + column;
        if (!b.part.across) prefetch_scales(column + count, least(kPanelColumns, block_.column_count - column - count));
        const int64_t unit = kind_.unit_floats, tile_floats = kTileColumns * units_ * unit;
        uint8_t unused[kMostRowsOfBlock];
        if (count % kTileColumns)
            memset(panel_ + count / kTileColumns * tile_floats, 0, size_t(tile_floats) * sizeof(float));
        const int64_t part = has_units() ? kLineCodes : kGemmDepth;
        for_each_part(of_b_, b, index, count, part, unused, [&](int64_t i, int64_t at, int64_t depth) {
            const int64_t first = (i / kTileColumns * units_ + at / kUnit) * kTileColumns, in_tile = i % kTileColumns;
            float factors[kLineSixteens + kLanes] = {};
            if (!store_column(b.first + index[i], at_ + at, depth, factors, decoded_ + i * kPitch,
                              panel_ + (first + in_tile) * unit, kTileColumns * unit))
                block_.again[index[i]] = 1;
            if (kind_.method.has_factors)
                store_lane_factors(factors, ceil_div(depth, kUnit), kind_.method.sections, of_lanes_,
                                   factors_ + (first * kind_.method.sections + in_tile) * kLanes, kTileColumns * kLanes);
        });
        for (int64_t i = 0; i < count; i++)
            line_factor_[i] = b.part.across ? global_scale(b.part, 0) : factor_of_sums(b.part, b.first + index[i]);
    }

    // Returns how many rows the tile of A has that begins with a row.
    int64_t rows_of_tile(int64_t row) const { return least(kTileRows, block_.row_count - row); }

    void multiply_panel(int64_t column, int64_t count) {
        constexpr int64_t group_lanes = kGroupRows * kPanelColumns * kLanes;
        store_columns(column, count);
        const bool is_whole = pass_ >= block_.k;
        for (int64_t group = 0; group < groups_; group++) {
            float* const lanes = lanes_ + (is_whole ? 0 : (column / kPanelColumns * groups_ + group) * group_lanes);
            const int64_t row = group * kGroupRows, end = least(row + kGroupRows, block_.row_count);
            multiply_rows(row, end, ceil_div(count, kTileColumns), lanes);
            for (int64_t i = row; at_ + depth_ == block_.k && i < end; i += kTileRows)
                finish(i, column, count, lanes + (i - row) * kPanelColumns * kLanes);
        }
    }

    // Multiplies a group of A with the panel, as many units at a time as stay in L1.
    void multiply_rows(int64_t first_row, int64_t end, int64_t tiles, float* lanes) {
        const int64_t unit = kind_.unit_floats, of_section = kind_.method.sections * kLanes,
                      chunk = kChunkUnits * kUnit / unit;
        for (int64_t begin = 0; begin < units_; begin += chunk) {
            const int64_t units = least(chunk, units_ - begin);
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t first = (tile * units_ + begin) * kTileColumns;
                for (int64_t row = first_row; row < end; row += kTileRows) {
                    const int64_t rows = rows_of_tile(row);
                    float* const to = lanes + ((row - first_row) * kPanelColumns + tile * rows * kTileColumns) * kLanes;
                    const float* const of_a = rows_ + (row * units_ + begin * rows) * unit;
                    (rows == kTileRows ? whole_tile_ : last_tile_)(
                        of_a, panel_ + first * unit, factors_ + first * of_section, units, at_ + begin == 0, to);
                }
            }
        }
    }

    // Stores the sums of a tile's rows of A. Lanes that follow those of its last tile are summed in vain.
    void finish(int64_t row, int64_t column, int64_t count, const float* lanes) {
        const int64_t rows = rows_of_tile(row);
        const int32_t* const index = block_.columns + column;
        const bool is_whole = index[count - 1] - index[0] == count - 1;
        alignas(64) float all[kTileRows][kPanelColumns];
        for (int64_t begin = 0; begin < count; begin += kTileColumns, lanes += rows * kTileColumns * kLanes) {
            alignas(16) float sums[kTileRows][kTileColumns];
            for (int64_t i = 0; i < rows * kTileColumns; i += 4) sum_lanes(lanes + i * kLanes, &sums[0][0] + i);
            for (int64_t r = 0; r < rows; r++) memcpy(&all[r][begin], sums[r], sizeof sums[r]);
        }
        for (int64_t r = 0; r < rows; r++) {
            float* const to = block_.sums + block_.rows[row + r] * block_.stride;
            for (int64_t i = 0; i < count; i++) all[r][i] = multiply_rn(all[r][i], line_factor_[i]);
            if (is_whole)
                memcpy(to + index[0], all[r], size_t(count) * sizeof(float));
            else
                for (int64_t i = 0; i < count; i++) to[index[i]] = all[r][i];
        }
    }

    const GemmBlock& block_;
    const Kind kind_;
    const OperandReader of_a_, of_b_;
    const DecodeUnits decode_units_;
    const ArrangeUnits arrange_a_, arrange_b_;
    const Arrangement of_lanes_;
    const MultiplyTile whole_tile_, last_tile_;
    const int64_t groups_, pass_;  // codes of a pass
    float *const rows_, *const panel_, *const factors_, *const decoded_, *const lanes_;
    int64_t at_ = 0, depth_ = 0, units_ = 0;  // of this pass
    float line_factor_[kPanelColumns];        // what sums are multiplied by
};

void multiply(const GemmBlock& block, Way way) {
    if (block.row_count > 0 && block.column_count > 0) Multiplication(block, way).run();
}

bool read(const OperandLines& line, int64_t k, int64_t depth, float* out) {
    const OperandReader reader(line.part);
    if (!line.part.across) return reader.read(line.first, k, depth, out);
    uint8_t extreme = 0;
    for (int64_t l = 0; l < depth; l++)
        read_across(reader, line, k + l, &extreme, [&](int64_t, const float* value, int64_t) { out[l] = *value; });
    return extreme != 0;
}

bool is_safe(const OperandLines& line, int64_t k) {
    const QuantizedPart& part = line.part;
    const bool has_factors = part.scale_type == ScaleType::E8M0 || part.scale_type == ScaleType::F32;
    if (line.part.across || !has_factors || has_line_scale(part)) return true;
    const SafeFactors safe = safe_factors(part);
    bool is = true;
    for (int64_t at = 0; at < k; at += kGemmDepth) {
        float factors[kGemmDepth / kSixteen] = {};
        const int64_t depth = least(kGemmDepth, k - at);
        load_sixteenths(part, 0, line.first, at, depth, factors);
        is &= are_safe(factors, ceil_div(depth, kSixteen), safe);
    }
    return is;
}

// Rounds sums to D's type.
template <class T>
void store_row(const float* sums, int64_t count, T* d) {
    for (int64_t i = 0; i < count; i++) d[i] = from_float<T>(sums[i]);
}

// Returns element i of the bias.
float bias_at(const Finish& finish, const void* bias, int64_t i) {
    return with_plain(finish.bias_format, [&]<class T>(T) { return to_float(static_cast<const T*>(bias)[i]); });
}

// Applies alpha, beta and the bias to sums, and rounds to D's type.
template <class T>
void finish_row(const float* sums, int64_t count, const Finish& finish, const void* bias, T* d) {
    for (int64_t i = 0; i < count; i++) {
        float value = multiply_rn(finish.alpha, sums[i]);
        if (finish.beta != 0) value = add_rn(value, multiply_rn(finish.beta, to_float(d[i])));
        if (finish.bias_format != 0) value = add_rn(value, bias_at(finish, bias, i));
        d[i] = from_float<T>(value);
    }
}

template <class T>
void store_as(const float* sums, int64_t count, const Finish& finish, const void* bias, T* d) {
    const bool alone = finish.alpha == 1 && finish.beta == 0 && finish.bias_format == 0;
    alone ? store_row(sums, count, d) : finish_row(sums, count, finish, bias, d);
}

void store(const float* sums, int64_t count, const Finish& finish, const void* bias, void* d) {
    with_plain(finish.d_format, [&]<class T>(T) { store_as(sums, count, finish, bias, static_cast<T*>(d)); });
}

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _gemm_kernels)

const GemmKernels MXQ_TABLE(MXQ_ISA) = {
    multiply,
    read,
    is_safe,
    store,
};

}  // namespace mxq::cpu
