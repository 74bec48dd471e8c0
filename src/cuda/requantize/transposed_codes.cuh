// A tile of 128 x 128 codes in shared memory, and the transposed codes and scales that a lane makes of its share.
//
//     swizzle    every 16 rows permute their 16-byte vectors by another XOR: eight lanes that read the same columns of eight
//                chunks of 16 rows touch eight bank groups
//     lane       chunk of 16 rows = lane % 8, word of 4 columns = lane / 8; two columns at a time
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/tile/scales.cuh"
#include "cuda/tile/source_scales.cuh"
#include "numerics/f16_pairs.h"

namespace mxq::cuda {

constexpr int kTransposeThreads = 128, kTransposeChunks = kTile / kChunk;
constexpr int kRowVectors = kTile / 16;

// Thread blocks that share an SM: 64 registers a thread.
constexpr int kTransposeBlocks = kConvertsInSoftware ? 4 : 8;

struct TransposeArguments {
    Tiles tiles;
    ScaleSteps steps;
    QuantizeProblem problem;
};

// The tile's scales as fp32, by block and row. Every 16 rows, and every block, are shifted by 16 bytes against bank conflicts.
struct TransposeScales {
    static constexpr int blocks = kTile / kMxBlock, skew = 4;
    alignas(16) float values[blocks][kTile + skew * (kTransposeChunks + 1)];

    static __device__ __forceinline__ int index(int row) { return row + row / kChunk * skew; }
    __device__ __forceinline__ float& at(int block, int row) { return values[block][index(row)]; }
};

struct TransposeShared {
    alignas(128) uint4 codes[kTile * kRowVectors];
    TransposeScales scales;
    uint32_t words[kTile];  // scale bytes of the output, by its K-major row
    Group group;
    PartTile parts[3];   // by PartIndex
    int rows, length;    // of the source that exist in the tile

    static __device__ __forceinline__ uint32_t vector_index(uint32_t row, uint32_t vector) {
        return (row * kRowVectors + vector) ^ row / kChunk % 8;
    }
};

// ---- The tile --------------------------------------------------------------------------------------------------------

// Starts to copy the tile's codes; what does not exist becomes zero.
__device__ __forceinline__ void start_code_copy(const QuantizeProblem& p, const TileCoord& coord, TransposeShared& shared) {
    constexpr int step = kTransposeThreads / kRowVectors;
    const QuantizedPart& from = p.source.quantized;
    const int rows = min(int(coord.rows) - int(coord.row), kTile), cols = min(int(p.source.cols) - int(coord.col), kTile);
    const int existing_rows = from.columnwise ? cols : rows, length = from.columnwise ? rows : cols;
    if (threadIdx.x == 64) shared.rows = existing_rows, shared.length = length;
    const uint32_t first_row = uint32_t(coord.row) + (p.grouped.groups.set ? shared.group.starts[kSourceCodes] : 0);
    const int row = threadIdx.x / kRowVectors, vector = threadIdx.x % kRowVectors;
    const int64_t number =
        uint64_t(uint32_t(coord.matrix)) * uint32_t(from.lines) + (from.columnwise ? coord.col : first_row) + row;
    const uint8_t* at = from.codes + number * from.line_bytes + (from.columnwise ? first_row : coord.col) + vector * 16;
    const int existing = vector * 16 < length ? existing_rows - row : 0;
#pragma unroll 4
    for (int i = 0; i < kTile; i += step, at += step * from.line_bytes)
        copy_vector(&shared.codes[shared.vector_index(row + i, vector)], i < existing ? at : from.codes, i < existing);
}

// Loads the scales of a row one by one, for ragged rows and for layouts without aligned words.
__device__ __noinline__ void load_row_scales(const QuantizedPart& part, int row, TransposeShared& shared) {
    const ScaleTile& tile = shared.parts[kSourcePart].scales;
    const int shift = source_shift(part.layout), blocks = kTile >> shift;
    const int existing = row < shared.rows ? (shared.length + (1 << shift) - 1) >> shift : 0;
    float scales[TransposeScales::blocks] = {};
#pragma unroll
    for (int block = 0; block < TransposeScales::blocks; block++) {
        if (block >= existing) continue;
        const int64_t at = tile.offset(row, tile.column + block);
        scales[block] = part.scale_type == ScaleType::F32 ? reinterpret_cast<const float*>(part.scales)[at]
                                                          : scale_value(part.scales[at]);
    }
#pragma unroll
    for (int block = 0; block < TransposeScales::blocks; block++)
        if (block < blocks) shared.scales.at(block, row) = scales[block];
}

// Loads the scale table, a row a thread. A barrier must follow.
__device__ __forceinline__ void load_scale_table(const QuantizedPart& part, TransposeShared& shared) {
    static_assert(kTransposeThreads == kTile);
    const PartTile& from = shared.parts[kSourcePart];
    const int row = line_of_word(part.layout, int(threadIdx.x));
    if (!from.line_words || shared.length < kTile) return load_row_scales(part, row, shared);
    const int64_t offset = part.layout.swizzled ? int64_t(threadIdx.x * 4) : row * from.scale_step;
    const uint32_t word = row < shared.rows ? __ldg(reinterpret_cast<const uint32_t*>(from.scale_bytes + offset)) : 0;
#pragma unroll
    for (int i = 0; i < TransposeScales::blocks; i++) shared.scales.at(i, row) = scale_value(word >> (i * 8) & 0xFF);
}

// ---- Two columns -----------------------------------------------------------------------------------------------------

// The values of two columns over 16 rows.
template <class E>
struct TwoColumns {
    float first[kChunk], second[kChunk];

    // `word` is a word of four columns, `pair` its first or last two, `block` the block of the columns.
    __device__ __forceinline__ TwoColumns(const TransposeShared& shared, uint32_t chunk, uint32_t word, int pair, int block) {
        const uint32_t index = shared.vector_index(chunk * kChunk, word / 4);
        const auto* even = reinterpret_cast<const uint32_t*>(&shared.codes[index]) + word % 4;
        const auto* odd = reinterpret_cast<const uint32_t*>(&shared.codes[index + kRowVectors]) + word % 4;
        const float* scales = &shared.scales.values[block][TransposeScales::index(chunk * kChunk)];
        const uint32_t select = pair == 0 ? 0x5140 : 0x7362;
#pragma unroll
        for (int i = 0; i < kChunk; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(scales + i);
            const float of_row[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const int at = (i + j) * (4 * kRowVectors);
                uint32_t of_first, of_second;
                decode_word_to_f16<E>(__byte_perm(even[at], odd[at], select), of_first, of_second);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    first[i + j + k] = multiply_rn(to_float(F16{uint16_t(of_first >> (16 * k))}), of_row[j + k]);
                    second[i + j + k] = multiply_rn(to_float(F16{uint16_t(of_second >> (16 * k))}), of_row[j + k]);
                }
            }
        }
    }
};

// Returns the bits of the largest magnitude of a chunk.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_chunk(const float (&values)[kChunk]) {
    uint32_t even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        even = larger_magnitudes<float, policy>(even, float_bits(values[i]));
        odd = larger_magnitudes<float, policy>(odd, float_bits(values[i + 1]));
    }
    return larger_magnitudes<float, policy>(even, odd);
}

// Makes the scales of two columns and returns their factors. Two neighbouring lanes hold the 32 rows of a block: each makes the
// scale of one column.
__device__ __forceinline__ float2 put_block_scales(const ScaleSteps& steps, uint32_t first, uint32_t second, int column,
                                                   int chunk, uint32_t (&words)[kTile]) {
    const bool odd = chunk & 1;
    const uint32_t mine = odd ? second : first, other = odd ? first : second;
    const uint32_t scale = scale_of(max(mine, __shfl_xor_sync(kAllLanes, other, 1)), steps);
    reinterpret_cast<uint8_t*>(&words[column + odd])[chunk / 2] = uint8_t(scale);
    const float factor = scale_reciprocal(scale), others = __shfl_xor_sync(kAllLanes, factor, 1);
    return odd ? make_float2(others, factor) : make_float2(factor, others);
}

// Stores 16 codes of a column.
template <class E>
__device__ __forceinline__ void store_column(uint8_t* to, const float (&values)[kChunk], float factor) {
    uint32_t words[4];
    const auto product = [&](int i) { return multiply_rn(values[i], factor); };
#pragma unroll
    for (int w = 0; w < 4; w++)
        words[w] = encode_pair<E>(product(4 * w), product(4 * w + 1)) |
                   encode_pair<E>(product(4 * w + 2), product(4 * w + 3)) << 16;
    __stwb(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

// Makes codes and scales of the output part: 0 rowwise, 1 columnwise.
template <class From, class To, Nonfinite policy>
__device__ __forceinline__ void emit_transposed(const TransposeArguments& a, int part, TransposeShared& shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = lane % kTransposeChunks;
    const CodeTile& to = shared.parts[kRowwisePart + part].codes;
    const int shift = source_shift(a.problem.source.quantized.layout);
    const int columns = chunk * kChunk < to.length ? to.lines : 0;
#pragma unroll 1
    for (int step = 0; step < 4; step++) {
        const int word = (warp + step / 2 * 4) * 4 + lane / kTransposeChunks, pair = step % 2, column = word * 4 + pair * 2;
        const TwoColumns<From> values(shared, chunk, word, pair, column >> shift);
        const float2 factors = put_block_scales(a.steps, largest_of_chunk<policy>(values.first),
                                                largest_of_chunk<policy>(values.second), column, chunk, shared.words);
        uint8_t* const at = to.codes + uint64_t(uint32_t(column)) * to.line_bytes + chunk * kChunk;
        if (column < columns) store_column<To>(at, values.first, factors.x);
        if (column + 1 < columns) store_column<To>(at + to.line_bytes, values.second, factors.y);
    }
}

}  // namespace mxq::cuda
