// Groups of rows, from the contract: where each starts, how operands are padded, and how their scales are swizzled.
#ifndef MXQ_TESTS_ORACLE_GROUPS_H
#define MXQ_TESTS_ORACLE_GROUPS_H

#include "oracle.h"

namespace oracle {

using Ends = std::vector<int64_t>;

inline int64_t group_rows(const Ends& ends, size_t g) { return ends[g] - (g ? ends[g - 1] : 0); }

// P[0..G]: where each group starts once every group is padded to a multiple of `alignment`.
inline std::vector<int64_t> padded_starts(const Ends& ends, int64_t alignment) {
    std::vector<int64_t> starts{0};
    for (size_t g = 0; g < ends.size(); ++g)
        starts.push_back(starts.back() + alignment * ceil_div(group_rows(ends, g), alignment));
    return starts;
}

// The most that P[G] can be, known without the ends.
inline int64_t padded_bound(int64_t rows, int64_t groups, int64_t alignment) {
    return alignment * ((rows + (alignment - 1) * std::min(groups, rows)) / alignment);
}

// Rows of x moved to where their padded group stands, in a matrix of `capacity` rows, zero elsewhere.
inline Floats pad_groups(const Floats& x, int64_t cols, const Ends& ends, int64_t alignment, int64_t capacity) {
    Floats out(static_cast<size_t>(capacity * cols), 0.0f);
    auto starts = padded_starts(ends, alignment);
    for (size_t g = 0; g < ends.size(); ++g) {
        auto first = x.begin() + (ends[g] - group_rows(ends, g)) * cols;
        std::copy(first, first + group_rows(ends, g) * cols, out.begin() + starts[g] * cols);
    }
    return out;
}

// (rows, blocks) scale bytes whose rows are grouped: every group starts a fresh 128-row tile.
inline Bytes swizzle_row_groups(const Bytes& scales, int64_t blocks, const Ends& ends) {
    Bytes out;
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t rows = group_rows(ends, g);
        Bytes one = swizzle_positions(scales.data() + (ends[g] - rows) * blocks, rows, blocks);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// (rows, blocks) scale bytes whose columns are grouped, block_ends in blocks: every group starts a fresh 4-column tile.
// Blocks past the last end belong to no group.
inline Bytes swizzle_contraction_groups(const uint8_t* scales, int64_t rows, int64_t blocks, const Ends& block_ends) {
    Bytes out;
    for (size_t g = 0; g < block_ends.size(); ++g) {
        int64_t width = group_rows(block_ends, g), first = block_ends[g] - width;
        Bytes slice;
        for (int64_t i = 0; i < rows; ++i)
            slice.insert(slice.end(), scales + i * blocks + first, scales + i * blocks + first + width);
        Bytes one = swizzle_positions(slice.data(), rows, width);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// ---- Operands of grouped products, as the library stores them --------------------------------------------------------

// A byte that is a NaN as a code and as a scale: what stands where nothing may be read.
inline constexpr uint8_t untouchable = 0xFF;

// Rowwise part of a grouped (rows, cols) matrix: codes unpadded, tiles and swizzled tiles restart at each group.
// Codes and scales are as large as the bound for any ends, the rest untouchable.
inline Part quantize_groups_rowwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                    bool swizzled) {
    Part out{Bytes(static_cast<size_t>(rows * cols), untouchable), {}};
    int64_t blocks = ceil_div(cols, 32), groups = static_cast<int64_t>(ends.size());
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t m = group_rows(ends, g), first = ends[g] - m;
        Part one = quantize_rowwise(spec, x.data() + first * cols, m, cols);
        if (swizzled) one.scales = swizzle(one.scales, spec.scaling, m, cols);
        std::copy(one.codes.begin(), one.codes.end(), out.codes.begin() + first * cols);
        out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
    }
    int64_t bound = swizzled                                ? 4 * ceil_div(blocks, 4) * padded_bound(rows, groups, 128)
                    : spec.scaling == MXQ_SCALING_32X32 ? padded_bound(rows, groups, 32) / 32 * blocks
                                                            : rows * blocks;
    out.scales.resize(static_cast<size_t>(bound), untouchable);
    return out;
}

// Columnwise part of a grouped (rows, cols) matrix: (cols, Mc) codes, every group padded to 32 with zero rows.
inline Part quantize_groups_columnwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                       bool swizzled) {
    int64_t groups = static_cast<int64_t>(ends.size()), capacity = padded_bound(rows, groups, 32);
    auto starts = padded_starts(ends, 32);
    Floats padded = pad_groups(x, cols, ends, 32, capacity);
    Floats turned = transposed(padded.data(), capacity, cols);
    Part out = quantize_rowwise(spec, turned.data(), cols, capacity);
    int64_t height = spec.scaling == MXQ_SCALING_32X32 ? 32 : 1, blocks = capacity / 32;
    for (int64_t j = 0; j < cols; ++j) {
        for (int64_t i = starts.back(); i < capacity; ++i) out.codes[static_cast<size_t>(j * capacity + i)] = untouchable;
        for (int64_t b = starts.back() / 32; b < blocks; ++b)
            out.scales[static_cast<size_t>(j / height * blocks + b)] = untouchable;
    }
    if (!swizzled) return out;

    Bytes positions;
    for (int64_t j = 0; j < cols; ++j)
        for (int64_t b = 0; b < blocks; ++b) positions.push_back(out.scales[static_cast<size_t>(j / height * blocks + b)]);
    Ends block_ends;
    for (size_t g = 0; g < ends.size(); ++g) block_ends.push_back(starts[g + 1] / 32);
    out.scales = swizzle_contraction_groups(positions.data(), cols, blocks, block_ends);
    out.scales.resize(static_cast<size_t>(128 * ceil_div(cols, 128) * padded_bound(rows, groups, 128) / 32), untouchable);
    return out;
}

}  // namespace oracle

#endif
