// A tile of 128 x 128 elements in shared memory, for kernels whose unit is a chunk: 16 neighbours along a contraction, which
// one thread holds as fp32. Rows and columns of the tile both have 8 chunks, and both are read without a bank conflict:
//
//     lane % 8   the chunk of a line          so that a warp's eight lanes of a line hold all of it: maxima over more than
//     lane / 8   one of four lines            a chunk are shuffles, and the codes of a line leave as 64 contiguous bytes
//
//     line    pieces of 16 bytes, moved so that eight lanes that read piece j of eight chunks meet eight bank groups
//     band    16 lines; each starts 16 bytes later than the one before would have it, so that eight lanes that read the
//             same columns of eight bands do, too
#pragma once
#include "cuda/memory/codes.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/memory/decode.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kChunk = 16;
constexpr int kSideChunks = kTile / kChunk;
constexpr int kChunkThreads = 256;
constexpr int kChunkSteps = kTile * kSideChunks / kChunkThreads;  // chunks of a thread in each direction

// ---- Which tiles there are -------------------------------------------------------------------------------------------

struct ChunkTiles {
    Tiles tiles;
    GroupSumUnits units;

    explicit ChunkTiles(const QuantizeProblem& p) : tiles(p.in), units{} {
        if (!p.grouped.set()) return;
        tiles.down = slabs_bound(p.grouped);
        const GroupUnits source = p.requantizes ? p.from.units : GroupUnits{p.in.group_unit, 1};
        const GroupUnits all[] = {source, p.rowwise.units, p.columnwise.units};
        for (int i = 0; i < 3; i++) {
            units.at[2 * i] = uint32_t(all[i].codes);
            units.at[2 * i + 1] = uint32_t(all[i].scales);
        }
    }
    int64_t count() const { return tiles.count(); }
};

// A tile in a part: its codes and scales, and line 0 and position 0 of it among all that the part stores.
struct PartPlace {
    CodeTile codes;
    ScaleTile scales;
    int64_t line, position;
    // The scale of line 0, and what leads to that of the next in compact layouts; whether all lines have whole aligned words.
    uint8_t* scale_bytes;
    int64_t scale_step;
    bool whole_words;

    __device__ __forceinline__ PartPlace(const QuantizedPart& part, const TilePlace& place, const GroupStart& start,
                                         int64_t cols, bool grouped)
        : codes(part, place, start, cols), scales(part, place, start, cols, grouped) {
        const int64_t row = start.codes + place.row;
        line = place.matrix * part.lines + (part.columnwise ? place.col : row);
        position = part.columnwise ? row : place.col;
        scale_bytes = part.scales + scales.offset(0, scales.column);
        scale_step = part.layout.line_stride;
        const uint32_t columns = kTile / uint32_t(part.layout.block);
        const bool aligned = (reinterpret_cast<uintptr_t>(scale_bytes) | (part.layout.swizzled ? 0 : scale_step)) % 4 == 0;
        whole_words = part.layout.tile_rows == 1 && columns >= 4 && scales.lines >= kTile && aligned &&
                      scales.column + columns <= uint32_t(scales.layout.columns);
    }
};

// What all threads of a block know of their tile, in shared memory.
struct ChunkPlace {
    TileGroup group;
    int64_t scope;       // expert or group
    int64_t first_row;   // row 0 among those of a plain input
    int64_t col;
    int rows, cols;      // of the tile that exist
    PartPlace parts[2];  // rowwise, columnwise
    PartPlace from;      // of a quantized input
};

// Where the elements of a plain tile are, as every thread can tell by itself.
struct PlainPlace {
    int64_t first_row, col;
    int rows, cols;

    __device__ __forceinline__ PlainPlace(const QuantizeProblem& p, const TilePlace& place, const TileGroup& group)
        : first_row((p.grouped.groups.set ? group.starts[kSourceCodes] : place.matrix * p.in.rows) + place.row),
          col(place.col), rows(int(min(place.rows - place.row, int64_t(kTile)))),
          cols(int(min(p.in.cols - place.col, int64_t(kTile)))) {}
    __device__ __forceinline__ explicit PlainPlace(const ChunkPlace& found)
        : first_row(found.first_row), col(found.col), rows(found.rows), cols(found.cols) {}
};

// What all threads need to know of a tile, by four of them. A barrier must follow before `found` is read.
__device__ __forceinline__ void describe_tile(const QuantizeProblem& p, const TilePlace& place, ChunkPlace& found) {
    const bool grouped = p.grouped.groups.set;
    if (threadIdx.x == 0) {
        const PlainPlace plain(p, place, found.group);
        found.scope = place.scope;
        found.first_row = plain.first_row;
        found.col = plain.col;
        found.rows = plain.rows;
        found.cols = plain.cols;
    }
    if (threadIdx.x == 96 && p.requantizes) {
        const uint32_t* starts = &found.group.starts[kSourceCodes];
        const GroupStart start = grouped ? GroupStart{place.scope, 0, starts[0], starts[1]} : GroupStart{};
        found.from = PartPlace(p.from, place, start, p.in.cols, grouped);
    }
    if (threadIdx.x == 224 && p.has_rowwise)
        found.parts[0] = PartPlace(p.rowwise, place, part_start(p.grouped, found.group, false), p.in.cols, grouped);
    if (threadIdx.x == 64 && p.has_columnwise)
        found.parts[1] = PartPlace(p.columnwise, place, part_start(p.grouped, found.group, true), p.in.cols, grouped);
}

// Finds the tile of the block; false where there is none. A barrier must follow before `found` is read.
__device__ __forceinline__ bool find_chunk_tile(const QuantizeProblem& p, const ChunkTiles& all, ChunkPlace& found) {
    TilePlace place;
    if (!find_tile(all.tiles, p.grouped, all.units, found.group, place)) return false;
    describe_tile(p, place, found);
    return true;
}

// ---- The tile in shared memory ---------------------------------------------------------------------------------------

template <class T>
struct ChunkTile {
    static constexpr int in_piece = 16 / sizeof(T);
    static constexpr int line_pieces = kTile / in_piece;
    static constexpr int chunk_pieces = kChunk / in_piece;

    uint4 pieces[kTile * line_pieces + kSideChunks];

    static __device__ __forceinline__ int slot(int line, int piece) {
        const int chunk = piece / chunk_pieces, moved = piece % chunk_pieces ^ chunk / (8 / chunk_pieces);
        return line * line_pieces + line / kChunk + chunk * chunk_pieces + moved;
    }
    // Place of an element among all.
    static __device__ __forceinline__ int element(int line, int column) {
        return slot(line, column / in_piece) * in_piece + column % in_piece;
    }
    __device__ __forceinline__ StoredBits<T>* elements() { return reinterpret_cast<StoredBits<T>*>(pieces); }
    __device__ __forceinline__ const StoredBits<T>* elements() const {
        return reinterpret_cast<const StoredBits<T>*>(pieces);
    }
    static __device__ __forceinline__ float value(StoredBits<T> bits) {
        if constexpr (sizeof(T) == 4) return bits_float(bits);
        else return to_float(T{bits});
    }

    // Chunk `chunk` of a column: rows 16 * chunk on.
    __device__ __forceinline__ void read_column(int column, int chunk, float (&values)[kChunk]) const {
        const StoredBits<T>* from = elements() + element(chunk * kChunk, column);
#pragma unroll
        for (int i = 0; i < kChunk; i++) values[i] = value(from[i * kTile]);
    }
};

// A chunk of a row of a tile, and of the rows below it in the same band.
template <class T>
struct RowReader {
    static constexpr int pieces = ChunkTile<T>::chunk_pieces, words = 4 * pieces;
    const ChunkTile<T>& tile;
    int at[pieces];

    __device__ __forceinline__ RowReader(const ChunkTile<T>& of, int line, int chunk) : tile(of) {
#pragma unroll
        for (int j = 0; j < pieces; j++) {
            at[j] = of.slot(line, chunk * pieces + j);
            asm("" : "+r"(at[j]));  // kept: else it is made again for every row
        }
    }
    __device__ __forceinline__ void read_words(int below, uint32_t (&to)[words]) const {
#pragma unroll
        for (int j = 0; j < pieces; j++) {
            const uint4 v = tile.pieces[at[j] + below * tile.line_pieces];
            to[4 * j] = v.x, to[4 * j + 1] = v.y, to[4 * j + 2] = v.z, to[4 * j + 3] = v.w;
        }
    }
    __device__ __forceinline__ void read(int below, float (&values)[kChunk]) const {
        uint32_t bits[words];
        read_words(below, bits);
#pragma unroll
        for (int j = 0; j < pieces; j++) {
            const Chunk<T> piece{{bits[4 * j], bits[4 * j + 1], bits[4 * j + 2], bits[4 * j + 3]}};
#pragma unroll
            for (int i = 0; i < Chunk<T>::count; i++) values[j * Chunk<T>::count + i] = piece[i];
        }
    }
};

// Chunks of two neighbouring columns, the first of them even, of elements of 16 bits: a word for each row. `at` says where.
template <class T>
__device__ __forceinline__ int column_pair_place(int column, int chunk) {
    int at = ChunkTile<T>::element(chunk * kChunk, column) / 2;
    asm("" : "+r"(at));  // kept, as above
    return at;
}

template <class T>
__device__ __forceinline__ void read_column_pair(const ChunkTile<T>& tile, int at, uint32_t (&pairs)[kChunk]) {
    const auto* from = reinterpret_cast<const uint32_t*>(tile.elements()) + at;
#pragma unroll
    for (int i = 0; i < kChunk; i++) pairs[i] = from[i * (kTile / 2)];
}

// Blocks that share an SM: what their tiles, and the registers of a chunk, leave room for.
template <class T>
constexpr int kChunkBlocks = sizeof(T) == 4 ? 3 : 4;

// Row of step i, for a lane that reads rows: a warp takes a band.
__device__ __forceinline__ int row_of_step(int i) { return threadIdx.x / 32 * kChunk + i * 4 + threadIdx.x % 32 / 8; }

// Column of step i, for a lane that reads columns: a warp takes 16 neighbours, in the order of banks.
template <class T>
__device__ __forceinline__ int column_of_step(int i) {
    const int first = threadIdx.x / 32 * kChunk, lane = threadIdx.x % 32 / 8;
    return sizeof(T) == 4 ? first + i * 4 + lane : first + i / 2 * 8 + lane * 2 + i % 2;
}

__device__ __forceinline__ int chunk_of_lane() { return threadIdx.x % 8; }

// ---- Filling it ------------------------------------------------------------------------------------------------------

// 16 bytes to shared memory behind the threads' back; zeros where `exists` is false.
__device__ __forceinline__ void copy_piece(uint4* to, const void* from, bool exists) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

__device__ __forceinline__ void wait_for_pieces() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What a tile is filled from: a plain type, or Decoded, the fp32 values of a quantized part.
struct Decoded {};

template <class Source>
using TileElement = std::conditional_t<std::is_same_v<Source, Decoded>, float, Source>;

// The tile's elements, zeros where there are none, from rows of whole aligned pieces: on their way when this returns.
template <class T>
__device__ __forceinline__ void copy_plain(ChunkTile<T>& tile, const PlainMatrix& in, const PlainPlace& place) {
    using Tile = ChunkTile<T>;
    constexpr int step = kChunkThreads / Tile::line_pieces;  // lines at once
    const int line = threadIdx.x / Tile::line_pieces, piece = threadIdx.x % Tile::line_pieces;
    const int column = piece * Tile::in_piece;
    const T* at = static_cast<const T*>(in.data) + (place.first_row + line) * in.row_stride + place.col + column;
    uint4* const to = &tile.pieces[Tile::slot(line, piece)];
    const int existing = column < place.cols ? place.rows - line : 0;
    const auto slots = [](int lines) { return lines * Tile::line_pieces + lines / kChunk; };
    if (existing + line == kTile) {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += step * in.row_stride) copy_piece(to + slots(i), at, true);
    } else {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += step * in.row_stride)
            copy_piece(to + slots(i), i < existing ? at : static_cast<const T*>(in.data), i < existing);
    }
}

// The same of any. A barrier must follow.
template <class T>
__device__ __forceinline__ void fill_plain(ChunkTile<T>& tile, const PlainMatrix& in, const PlainPlace& place, bool wide) {
    using Tile = ChunkTile<T>;
    if (wide) {
        copy_plain(tile, in, place);
        wait_for_pieces();
        return;
    }
    const T* from = static_cast<const T*>(in.data) + place.first_row * in.row_stride + place.col;
    const auto* bits = reinterpret_cast<const StoredBits<T>*>(from);
#pragma unroll 8
    for (int i = threadIdx.x; i < kTile * kTile; i += kChunkThreads) {
        const int line = i / kTile, column = i % kTile;
        const bool exists = line < place.rows && column < place.cols;
        tile.elements()[Tile::element(line, column)] = exists ? bits[line * in.row_stride + column] : StoredBits<T>(0);
    }
}

constexpr int kDecodedCodes = 8;  // at once; they share a scale

// The same of a part: eight codes of a line at a time, lines being columns of the tile where the part is columnwise.
template <class E>
__device__ __forceinline__ void fill_decoded(ChunkTile<float>& tile, const QuantizedPart& part, const ChunkPlace& place,
                                             bool wide) {
    constexpr int units = kTile / kDecodedCodes;
    const int lines = part.columnwise ? place.cols : place.rows, length = part.columnwise ? place.rows : place.cols;
    const ScaleTile& scales = place.from.scales;
    const float global = global_scale(part, place.scope);
#pragma unroll 2
    for (int i = threadIdx.x; i < kTile * units; i += kChunkThreads) {
        const int line = part.columnwise ? i % kTile : i / units;
        const int first = (part.columnwise ? i / kTile : i % units) * kDecodedCodes;
        const int valid = line < lines ? min(max(length - first, 0), kDecodedCodes) : 0;
        Packed<E::bits, kDecodedCodes> packed{};
        float scale = 0;
        if (valid > 0) {
            const uint8_t* codes = place.from.codes.codes + line * part.line_bytes;
            packed = wide ? load_packed_wide<E::bits, kDecodedCodes>(codes, first)
                          : load_packed_narrow<E::bits, kDecodedCodes>(codes, first, valid);
            const int64_t at = scales.offset(line, scales.column + uint32_t(first) / uint32_t(part.layout.block));
            scale = part.scale_type == ScaleType::F32 ? reinterpret_cast<const float*>(part.scales)[at]
                                                      : scale_of_byte(part.scale_type, part.scales[at]);
        }
        const Codes<kDecodedCodes> unpacked = unpack<E::bits, kDecodedCodes>(packed);
#pragma unroll
        for (int j = 0; j < kDecodedCodes; j += 2) {
            const float2 pair =
                decode_scaled_pair<E>(unpacked.words[j / 4] >> (j % 4 * 8) & 0xFFFF, scale, scale, global);
#pragma unroll
            for (int k = j; k < j + 2; k++) {
                const float value = k < valid ? from_float<float>(k == j ? pair.x : pair.y) : 0.0f;
                const int row = part.columnwise ? first + k : line, column = part.columnwise ? line : first + k;
                tile.elements()[ChunkTile<float>::element(row, column)] = float_bits(value);
            }
        }
    }
}

template <class Source>
__device__ __forceinline__ void fill_tile(ChunkTile<TileElement<Source>>& tile, const QuantizeProblem& p,
                                          const ChunkPlace& place, bool wide) {
    if constexpr (!std::is_same_v<Source, Decoded>) {
        fill_plain<Source>(tile, p.in, PlainPlace(place), wide);
    } else {
        static_assert(kElementCount == 5, "the elements are listed below");
        switch (p.from.element) {
            case Element::E4M3: return fill_decoded<E4M3>(tile, p.from, place, wide);
            case Element::E5M2: return fill_decoded<E5M2>(tile, p.from, place, wide);
            case Element::E2M3: return fill_decoded<E2M3>(tile, p.from, place, wide);
            case Element::E3M2: return fill_decoded<E3M2>(tile, p.from, place, wide);
            case Element::E2M1: return fill_decoded<E2M1>(tile, p.from, place, wide);
            case Element::F32:
            case Element::F16:
            case Element::Bf16: return;
        }
    }
}

// On the host: calls body(source) with a value of what the problem's tiles are filled from.
template <class Body>
void with_source(bool requantizes, int32_t plain_format, const Body& body) {
    if (requantizes) return body(Decoded{});
    if (plain_format == MXQ_FORMAT_F32) body(float{});
    if (plain_format == MXQ_FORMAT_F16) body(F16{});
    if (plain_format == MXQ_FORMAT_BF16) body(Bf16{});
}

template <class Body>
void with_all_sources(const Body& body) {
    with_source(true, 0, body);
    for (const int32_t plain : {MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16}) with_source(false, plain, body);
}

template <class Source>
bool is_wide_source(const QuantizeProblem& p) {
    if constexpr (std::is_same_v<Source, Decoded>) return is_word_wise(p.from);
    else return is_wide<Source>(p.in);
}

// ---- Values ----------------------------------------------------------------------------------------------------------

// The larger of a maximum and the magnitudes of a chunk, NaN ignored.
__device__ __forceinline__ float larger_magnitude(float largest, const float (&values)[kChunk]) {
    float second = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        largest = fmaxf(largest, fabsf(values[i]));
        second = fmaxf(second, fabsf(values[i + 1]));
    }
    return fmaxf(largest, second);
}

}  // namespace mxq::cuda
