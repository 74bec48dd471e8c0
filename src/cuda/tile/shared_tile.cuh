// A tile of 128 x 128 elements in shared memory, for kernels whose unit is a chunk: 16 neighbours along a contraction, which
// one thread holds as fp32. Rows and columns of the tile both have 8 chunks, and both are read without a bank conflict:
//
//     lane % 8   the chunk of a line          so that a warp's eight lanes of a line hold all of it: maxima over more than
//     lane / 8   one of four lines            a chunk are shuffles, and the codes of a line leave as 64 contiguous bytes
//
//     line    pieces of 16 bytes, changed about so that eight lanes that read piece j of eight chunks meet eight bank groups
//     band    16 lines; each changes its pieces about in a way of its own, so that eight lanes that read the same columns of
//             eight bands do, too
//
// Pieces stay in their 128 bytes, which begin at multiples of 128: copies that move lines by a piece a band take longer.
#pragma once
#include "cuda/memory/elements.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kChunk = 16;
constexpr int kSideChunks = kTile / kChunk;
constexpr int kChunkThreads = 256;
constexpr int kChunkSteps = kTile * kSideChunks / kChunkThreads;  // chunks of a thread in each direction

// ---- Where the tile lies ---------------------------------------------------------------------------------------------

// What all threads of a block know of their tile, in shared memory.
struct SharedPlace {
    Group group;
    int64_t scope;       // expert or group
    SourcePlace source;
    PartPlace parts[3];  // by PartIndex
};

// Describes the tile for all threads, by four of them in four warps. A barrier must follow before `found` is read.
__device__ __forceinline__ void describe_tile(const QuantizeProblem& p, const TilePlace& place, SharedPlace& found) {
    if (threadIdx.x == 0) {
        found.scope = place.scope;
        found.source = SourcePlace(p, place, found.group);
    }
    if (threadIdx.x == 96) describe_part(p, place, found.group, kSourcePart, found.parts);
    if (threadIdx.x == 224) describe_part(p, place, found.group, kRowwisePart, found.parts);
    if (threadIdx.x == 64) describe_part(p, place, found.group, kColumnwisePart, found.parts);
}

// ---- The tile in shared memory ---------------------------------------------------------------------------------------

template <class T>
struct ChunkTile {
    static constexpr int in_piece = 16 / sizeof(T);
    static constexpr int line_pieces = kTile / in_piece;
    static constexpr int chunk_pieces = kChunk / in_piece;

    alignas(128) uint4 pieces[kTile * line_pieces];

    static __device__ __forceinline__ int slot(int line, int piece) {
        return line * line_pieces + (piece ^ piece / 8 % chunk_pieces ^ line / kChunk);
    }
    // Returns the slot so many lines below that of a line of the first band, at the same place in its own band.
    static __device__ __forceinline__ int below(int slot, int lines) {
        return (slot ^ lines / kChunk) + lines * line_pieces;
    }
    // Returns the place of an element among all.
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

    // Reads chunk `chunk` of a column: rows 16 * chunk on.
    __device__ __forceinline__ void read_column(int column, int chunk, float (&values)[kChunk]) const {
        const StoredBits<T>* from = elements() + element(chunk * kChunk, column);
#pragma unroll
        for (int i = 0; i < kChunk; i++) values[i] = value(from[i * kTile]);
    }
};

// Reads a chunk of a row of a tile, and of the rows below it in the same band.
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
            const Vector<T> piece{{bits[4 * j], bits[4 * j + 1], bits[4 * j + 2], bits[4 * j + 3]}};
#pragma unroll
            for (int i = 0; i < Vector<T>::count; i++) values[j * Vector<T>::count + i] = piece[i];
        }
    }
};

// Returns where chunks of two neighbouring columns begin, the first of them even, of elements of 16 bits.
template <class T>
__device__ __forceinline__ int column_pair_word(int column, int chunk) {
    int at = ChunkTile<T>::element(chunk * kChunk, column) / 2;
    asm("" : "+r"(at));  // kept, as above
    return at;
}

// Reads chunks of two neighbouring columns: a word for each row.
template <class T>
__device__ __forceinline__ void read_column_pair(const ChunkTile<T>& tile, int at, uint32_t (&pairs)[kChunk]) {
    const auto* from = reinterpret_cast<const uint32_t*>(tile.elements()) + at;
#pragma unroll
    for (int i = 0; i < kChunk; i++) pairs[i] = from[i * (kTile / 2)];
}

// Blocks that share an SM: what their tiles, and the registers of a chunk, leave room for.
template <class T>
constexpr int kChunkBlocks = sizeof(T) == 4 ? 3 : 4;

// Returns the row of step i, for a lane that reads rows: a warp takes a band.
__device__ __forceinline__ int row_of_step(int i) { return threadIdx.x / 32 * kChunk + i * 4 + threadIdx.x % 32 / 8; }

// Returns the column of step i, for a lane that reads columns: a warp takes 16 neighbours, in the order of banks.
template <class T>
__device__ __forceinline__ int column_of_step(int i) {
    const int first = threadIdx.x / 32 * kChunk, lane = threadIdx.x % 32 / 8;
    return sizeof(T) == 4 ? first + i * 4 + lane : first + i / 2 * 8 + lane * 2 + i % 2;
}

__device__ __forceinline__ int chunk_of_lane() { return threadIdx.x % 8; }

// ---- Values ----------------------------------------------------------------------------------------------------------

// Returns the larger of a maximum and the magnitudes of a chunk, NaN ignored.
__device__ __forceinline__ float larger_magnitude(float largest, const float (&values)[kChunk]) {
    float second = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        largest = fmaxf(largest, fabsf(values[i]));
        second = fmaxf(second, fabsf(values[i + 1]));
    }
    return fmaxf(largest, second);
}

// Returns the bits of the largest magnitude of a chunk, where NaN is above all.
__device__ __forceinline__ uint32_t largest_magnitude_bits(const float (&values)[kChunk]) {
    uint32_t largest = 0;
#pragma unroll
    for (const float value : values) largest = max(largest, float_bits(value) & kMagnitudeMask);
    return largest;
}

}  // namespace mxq::cuda
