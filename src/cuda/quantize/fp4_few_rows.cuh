// The way of quantize_fp4_pairs for few elements: aligned BF16 to the columnwise part of NVFP4 1x16 or MXFP4, or to both
// parts, to nearest.
//
// A tile of 128 x 128 is eight chunks of 16 a thread, one after another, while most of the chip has no tile. Here a block of
// threads takes 32 rows x 128 columns, of which a thread has one chunk of a row and one of a column:
//
//     rows       memory --16 elements of a row a lane, eight lanes a row--> maximum -> scale -> codes, 64 bytes of a line
//     columns    the same words through shared memory -> 16 elements of a column a lane, two lanes a column, the same way
//
// Scales leave as bytes, eight or two side by side. Every thread makes what follows from NVFP4's global maximum and its own
// multipliers, any of them, so that neither tables nor kinds of blocks are asked for: short code that runs once.
#pragma once
#include <algorithm>

#include "cuda/quantize/fp4_pair_codes.cuh"

namespace mxq::cuda::fp4_pairs {

constexpr int kFewRows = 32;

struct FewRowsArguments {
    QuantizeProblem problem;
    ScaleSteps steps;      // MXFP4
    int64_t across, down;  // blocks of threads of a matrix
    bool wide[2];          // parts: rowwise, columnwise
};

// The elements of a block of threads. Rows from 16 on begin 32 bytes later, so that the two lanes that read the upper and
// the lower half of a column meet different banks.
struct FewRowsTile {
    alignas(16) uint4 pieces[kFewRows * kTile / 8 + 2];

    static __device__ __forceinline__ int piece(int row) { return row * (kTile / 8) + row / kChunk * 2; }
    // Reads 16 elements of a column, two rows to a word.
    __device__ __forceinline__ void read_column(int column, int half, uint32_t (&words)[kPairs]) const {
        const auto* from = reinterpret_cast<const uint16_t*>(&pieces[piece(half * kChunk)]) + column;
#pragma unroll
        for (int i = 0; i < kPairs; i++) words[i] = from[2 * i * kTile] | uint32_t(from[(2 * i + 1) * kTile]) << 16;
    }
};

// A lane's chunk of a line of a part, and where it lies in its matrix.
struct FewRowsChunk {
    const QuantizedPart& part;
    int64_t matrix, line, position;
    bool wide;

    // Returns how many bytes of codes the line has from the chunk on.
    __device__ __forceinline__ int bytes() const {
        return line < part.lines ? int(min((part.length - position + 1) / 2, int64_t(kChunk / 2))) : 0;
    }
    __device__ __forceinline__ void store_codes(uint2 codes) const {
        if (bytes() > 0) store_chunk_codes(part.line(matrix, line) + position / 2, codes, bytes(), wide);
    }
    // Stores the scale of the block that begins with the chunk. Swizzled tiles are written in full, zeros where nothing is,
    // whatever scale a negative amax of the caller gives to zeros.
    template <uint32_t length>
    __device__ __forceinline__ void store_scale(uint32_t scale) const {
        const ScaleLayout& layout = part.layout;
        const int64_t block = position / length;
        const bool exists = line < part.lines && block < layout.columns;
        if (exists || (layout.swizzled && block < round_up(layout.columns, int64_t(kSwizzleColumns))))
            part.scales[layout.offset(matrix, line, block)] = uint8_t(exists ? scale : 0);
    }
};

// Makes and stores the codes of a chunk, and its scale. All lanes of a warp call it: two neighbours have a block of MXFP4.
template <bool nvfp4>
__device__ __forceinline__ void emit_few(const FewRowsArguments& a, const Nvfp4Global& global, const FewRowsChunk& chunk,
                                         const uint32_t (&words)[kPairs]) {
    if constexpr (nvfp4) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kPairs; i++) values[2 * i] = low_value(words[i]), values[2 * i + 1] = high_value(words[i]);
        const uint32_t scale = nvfp4_scale(larger_magnitude(0, values), global);
        chunk.store_codes({nearest_nvfp4_codes(values, scale, global), nearest_nvfp4_codes(values + kPairs, scale, global)});
        chunk.store_scale<kNvBlock>(scale);
    } else {
        const uint32_t largest = largest_pair(a.problem.nonfinite, words);
        const uint32_t both = larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        const Block block = mx_block(a.steps, larger<Bf16>(both, both >> 16), 0);
        chunk.store_codes(
            {eight_mx_codes<false>(words, block.multiplier), eight_mx_codes<false>(words + 4, block.multiplier)});
        if (threadIdx.x % 2 == 0) chunk.store_scale<kMxBlock>(block.scale);
    }
}

template <bool nvfp4>
__device__ __forceinline__ Nvfp4Global few_rows_global(const QuantizedPart& part, int64_t matrix) {
    if constexpr (nvfp4)
        return nvfp4_global(part.amax[matrix * part.scope_stride], part.scale_max);
    else
        return {};
}

template <bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, 4)
    quantize_fp4_few_rows_kernel(const __grid_constant__ FewRowsArguments a) {
    __shared__ FewRowsTile tile;
    const QuantizeProblem& p = a.problem;
    const uint32_t number = row_of_blocks(), down = uint32_t(a.down), matrix = p.source.matrices == 1 ? 0 : number / down;
    if (matrix >= p.source.matrices) return wait_for_previous_kernel();
    const int row = threadIdx.x / kSideChunks, chunk = chunk_of_lane();
    const int64_t first_row = int64_t(number - matrix * down) * kFewRows, first_col = int64_t(blockIdx.x) * kTile;
    const int64_t line = first_row + row, position = first_col + chunk * kChunk;
    const auto* const from = static_cast<const Bf16*>(p.source.plain.data) +
                             (matrix * p.source.rows + line) * p.source.plain.row_stride + position;
    const int existing = line < p.source.rows ? int(min(p.source.cols - position, int64_t(kChunk))) : 0;
    const Vector<Bf16> low = load_vector_wide(from, existing > 0), high = load_vector_wide(from + 8, existing > 8);
    if (nvfp4 && p.compute_amax) wait_for_previous_kernel();  // which computes it
    const uint32_t words[kPairs] = {low.words[0],  low.words[1],  low.words[2],  low.words[3],
                                    high.words[0], high.words[1], high.words[2], high.words[3]};
    uint4* const to = &tile.pieces[tile.piece(row) + 2 * chunk];
    to[0] = {words[0], words[1], words[2], words[3]}, to[1] = {words[4], words[5], words[6], words[7]};
    if (p.has_rowwise)
        emit_few<nvfp4>(a, few_rows_global<nvfp4>(p.rowwise, matrix), {p.rowwise, matrix, line, position, a.wide[0]}, words);
    __syncthreads();
    const int column = threadIdx.x / 2, half = threadIdx.x % 2;
    uint32_t of_column[kPairs];
    tile.read_column(column, half, of_column);
    emit_few<nvfp4>(a, few_rows_global<nvfp4>(p.columnwise, matrix),
                    {p.columnwise, matrix, first_col + column, first_row + half * kChunk, a.wide[1]}, of_column);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Elements, half as many where codes leave byte by byte, and blocks of threads up to which this way was mostly the faster one
// (docs/performance.md, "Few elements to FP4"). Blocks of narrow matrices and of padding count as much as full ones; as many
// blocks as there would be tiles are never too many.
constexpr int64_t kMostOfFewRows = int64_t(1) << 20, kMostFewRowsBlocks = 1024;

// Returns what the kernel is launched with. Where scales are swizzled, blocks stand for all rows of the tiles of scales.
inline FewRowsArguments few_rows_arguments(const QuantizeProblem& p, const ScaleSteps& steps) {
    FewRowsArguments a{p, steps, ceil_div(p.source.cols, int64_t(kTile)), ceil_div(p.source.rows, int64_t(kFewRows)), {}};
    if ((p.has_rowwise && p.rowwise.layout.swizzled) || p.columnwise.layout.swizzled) a.down = round_up(a.down, int64_t(4));
    a.wide[0] = is_wide_part(p.rowwise), a.wide[1] = is_wide_part(p.columnwise);
    return a;
}

inline bool fits_few_rows(const FewRowsArguments& a, Rounding rounding) {
    const QuantizeProblem& p = a.problem;
    const bool wide = a.wide[1] && (a.wide[0] || !p.has_rowwise);
    const int64_t tiles = p.source.matrices * ceil_div(p.source.rows, int64_t(kTile)) * a.across;
    return rounding == Rounding::Nearest && !p.grouped.set() && !p.square_tiles && p.has_columnwise &&
           p.tile.length == (p.format->is_nvfp4() ? kNvBlock : kMxBlock) && is_wide_tile_source(p) &&
           p.source.matrices * p.source.rows * p.source.cols <= (wide ? kMostOfFewRows : kMostOfFewRows / 2) &&
           p.source.matrices * a.down * a.across <= std::max(kMostFewRowsBlocks, tiles);
}

}  // namespace mxq::cuda::fp4_pairs
