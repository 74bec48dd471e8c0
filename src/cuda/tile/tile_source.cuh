// Loads the tiles of a source into shared memory, however its values are stored (tile/source.cuh).
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/decode.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/source.cuh"

namespace mxq::cuda {

// ---- Plain numbers ---------------------------------------------------------------------------------------------------

// Starts to copy the tile's elements from rows of whole aligned vectors. Missing elements become zero.
template <class T>
__device__ __forceinline__ void copy_plain(ChunkTile<T>& tile, const PlainMatrix& in, const SourceTile& source) {
    using Tile = ChunkTile<T>;
    constexpr int step = kChunkThreads / Tile::line_vectors;  // rows at once
    const int line = threadIdx.x / Tile::line_vectors, vector = threadIdx.x % Tile::line_vectors;
    const int column = vector * Tile::vector_elements;
    const T* at = static_cast<const T*>(in.data) + (source.first_row + line) * in.row_stride + source.col + column;
    const int index = Tile::vector_index(line, vector), existing = column < source.cols ? source.rows - line : 0;
    const auto to = [&](int below) { return &tile.vectors[Tile::below(index, below)]; };
    if (existing + line == kTile) {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += step * in.row_stride) copy_vector(to(i), at, true);
    } else {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += step * in.row_stride)
            copy_vector(to(i), i < existing ? at : static_cast<const T*>(in.data), i < existing);
    }
}

// Fills the tile element by element from unaligned rows. Out of line, since it is rare.
template <class T>
__device__ __noinline__ void fill_narrow(ChunkTile<T>& tile, const StoredBits<T>* from, int64_t row_stride, int rows,
                                         int cols) {
#pragma unroll 8
    for (int i = threadIdx.x; i < kTile * kTile; i += kChunkThreads) {
        const int line = i / kTile, column = i % kTile;
        const bool exists = line < rows && column < cols;
        tile.elements()[ChunkTile<T>::element(line, column)] = exists ? from[line * row_stride + column] : StoredBits<T>(0);
    }
}

template <class T>
__device__ __forceinline__ void fill_narrow(ChunkTile<T>& tile, const PlainMatrix& in, const SourceTile& source) {
    const auto* const from = static_cast<const StoredBits<T>*>(in.data) + source.first_row * in.row_stride + source.col;
    fill_narrow(tile, from, in.row_stride, source.rows, source.cols);
}

// Fills the tile with 16-bit numbers as fp32, four of a row at a time.
__device__ __forceinline__ void fill_halves(ChunkTile<float>& tile, const PlainMatrix& in, const SourceTile& source,
                                            bool wide) {
    using Tile = ChunkTile<float>;
    const auto* from = static_cast<const uint16_t*>(in.data) + source.first_row * in.row_stride + source.col;
#pragma unroll 4
    for (int i = threadIdx.x; i < kTile * Tile::line_vectors; i += kChunkThreads) {
        const int line = i / Tile::line_vectors, vector = i % Tile::line_vectors, column = vector * Tile::vector_elements;
        const int valid = line < source.rows ? min(max(source.cols - column, 0), Tile::vector_elements) : 0;
        const Vector<float> four = load_halves(from + line * in.row_stride + column, in.format, wide, valid);
        tile.vectors[Tile::vector_index(line, vector)] =
            make_uint4(four.words[0], four.words[1], four.words[2], four.words[3]);
    }
}

// ---- Quantized parts -------------------------------------------------------------------------------------------------

constexpr int kDecodedCodes = 8;  // at once; they share a scale

// Loads eight codes of a K-major row from code `first` on, one a byte. `valid` of them exist; all or none where accesses are
// wide.
template <int bits>
__device__ __forceinline__ Codes<kDecodedCodes> load_eight(const uint8_t* line, int first, int valid, bool wide) {
    Packed<bits, kDecodedCodes> packed{};
    if (valid > 0)
        packed = wide ? load_packed_wide<bits, kDecodedCodes>(line, first)
                      : load_packed_narrow<bits, kDecodedCodes>(line, first, valid);
    return unpack<bits, kDecodedCodes>(packed);
}

template <class E>
__device__ __forceinline__ void decode_eight(const Codes<kDecodedCodes>& codes, float (&values)[kDecodedCodes]) {
#pragma unroll
    for (int i = 0; i < kDecodedCodes; i += 2) {
        const float2 pair = decode_pair<E>(codes.words[i / 4] >> (i % 4 * 8) & 0xFFFF);
        values[i] = pair.x, values[i + 1] = pair.y;
    }
}

// Loads eight elements of a K-major row. The branches are the same for all threads and serve eight codes: a loop for each
// element type would be five times as much code.
__device__ __forceinline__ void load_elements(const QuantizedPart& part, const uint8_t* line, int first, int valid, bool wide,
                                              float (&values)[kDecodedCodes]) {
    const Codes<kDecodedCodes> codes = part.bits == 8   ? load_eight<8>(line, first, valid, wide)
                                       : part.bits == 6 ? load_eight<6>(line, first, valid, wide)
                                                        : load_eight<4>(line, first, valid, wide);
    with_codes(part.element, [&]<class E>(E) { decode_eight<E>(codes, values); });
}

// Fills the tile with a part's values, eight of a K-major row at a time. K-major rows are columns of the tile where the part
// is columnwise.
__device__ __forceinline__ void fill_quantized(ChunkTile<float>& tile, const QuantizedPart& part, const TileInfo& info,
                                               bool wide) {
    constexpr int units = kTile / kDecodedCodes;
    const PartTile& from = info.parts[kSourcePart];
    const int lines = part.columnwise ? info.source.cols : info.source.rows;
    const int length = part.columnwise ? info.source.rows : info.source.cols;
    const float global = global_scale(part, info.scope);
#pragma unroll 1
    for (int i = threadIdx.x; i < kTile * units; i += kChunkThreads) {
        const int line = part.columnwise ? i % kTile : i / units;
        const int first = (part.columnwise ? i / kTile : i % units) * kDecodedCodes;
        const int valid = line < lines ? min(max(length - first, 0), kDecodedCodes) : 0;
        float scale = 0, values[kDecodedCodes];
        if (valid > 0) {
            const int64_t at = from.scales.offset(line, from.scales.column + uint32_t(first) / uint32_t(part.layout.block));
            scale = part.scale_type == ScaleType::F32 ? reinterpret_cast<const float*>(part.scales)[at]
                                                      : scale_of_byte(part.scale_type, part.scales[at]);
        }
        load_elements(part, from.codes.codes + line * part.line_bytes, first, valid, wide, values);
#pragma unroll
        for (int j = 0; j < kDecodedCodes; j++) {
            // A global scale of 1 changes nothing; NaN gets the library's bits.
            const float value = j < valid ? from_float<float>(nvfp4_product(values[j], scale, global)) : 0.0f;
            const int row = part.columnwise ? first + j : line, column = part.columnwise ? line : first + j;
            tile.elements()[ChunkTile<float>::element(row, column)] = float_bits(value);
        }
    }
}

// ---- Sources ---------------------------------------------------------------------------------------------------------

// Starts to copy a tile as it is stored; false: the source cannot, fill_tile is for it.
__device__ __forceinline__ bool start_copy(Bf16Source, ChunkTile<Bf16>& tile, const QuantizeProblem& p,
                                           const SourceTile& source, bool wide) {
    if (wide) copy_plain(tile, p.source.plain, source);
    return wide;
}

__device__ __forceinline__ bool start_copy(FloatSource, ChunkTile<float>& tile, const QuantizeProblem& p,
                                           const SourceTile& source, bool wide) {
    const bool copies = wide && !p.source.is_quantized() && p.source.plain.format == MXQ_FORMAT_F32;
    if (copies) copy_plain(tile, p.source.plain, source);
    return copies;
}

// Fills a tile that start_copy did not take. A barrier must stand before and must follow.
__device__ __forceinline__ void fill_tile(Bf16Source, ChunkTile<Bf16>& tile, const QuantizeProblem& p, const TileInfo& info,
                                          bool) {
    fill_narrow(tile, p.source.plain, info.source);
}

__device__ __forceinline__ void fill_tile(FloatSource, ChunkTile<float>& tile, const QuantizeProblem& p,
                                          const TileInfo& info, bool wide) {
    if (p.source.is_quantized()) return fill_quantized(tile, p.source.quantized, info, wide);
    if (p.source.plain.format == MXQ_FORMAT_F32)
        fill_narrow(tile, p.source.plain, info.source);
    else
        fill_halves(tile, p.source.plain, info.source, wide);
}

// Returns, on the host, whether tiles can be loaded by the widest accesses.
inline bool is_wide_tile_source(const QuantizeProblem& p) {
    return p.source.is_quantized() ? is_word_wise(p.source.quantized) : is_wide(p.source.plain);
}

}  // namespace mxq::cuda
