// A tile of 128 x 128 elements in shared memory, for kernels whose unit is a chunk: 16 neighbours along K, which one thread
// holds as fp32. Rows and columns of the tile both have 8 chunks. Both are read without bank conflicts:
//
//     lane % 8   the chunk of a K-major row: a warp's eight lanes of a row hold all of it, so that maxima over more than
//                a chunk are shuffles, and the codes of a row leave as 64 contiguous bytes
//     lane / 8   one of four K-major rows
//
//     XOR 1      within a row: eight lanes that read vector j of eight chunks use eight bank groups
//     XOR 2      by 16 rows: eight lanes that read the same columns of eight chunks of rows do, too
//
// The swizzle keeps a vector within its aligned 128 bytes. Padding every 16 rows instead makes the copies slower.
#pragma once
#include "cuda/memory/elements.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kSideChunks = kTile / kChunk;
constexpr int kChunkThreads = 256;
constexpr int kChunkSteps = kTile * kSideChunks / kChunkThreads;  // chunks of a thread in each direction

// ---- Position of the tile ---------------------------------------------------------------------------------------------

// The position of the tile in the source and the parts, in shared memory.
struct TileInfo {
    Group group;
    int64_t scope;       // expert or group
    SourceTile source;
    PartTile parts[3];  // by PartIndex
};

// Describes the tile for all threads, by four of them in four warps. A barrier must follow before `found` is read.
__device__ __forceinline__ void describe_tile(const QuantizeProblem& p, const TileCoord& coord, TileInfo& found) {
    if (threadIdx.x == 0) {
        found.scope = coord.scope;
        found.source = SourceTile(p, coord, found.group);
    }
    if (threadIdx.x == 96) describe_part(p, coord, found.group, kSourcePart, found.parts);
    if (threadIdx.x == 224) describe_part(p, coord, found.group, kRowwisePart, found.parts);
    if (threadIdx.x == 64) describe_part(p, coord, found.group, kColumnwisePart, found.parts);
}

// ---- The tile in shared memory ---------------------------------------------------------------------------------------

template <class T>
struct ChunkTile {
    static constexpr int vector_elements = 16 / sizeof(T);
    static constexpr int line_vectors = kTile / vector_elements;
    static constexpr int chunk_vectors = kChunk / vector_elements;

    alignas(128) uint4 vectors[kTile * line_vectors];

    static __device__ __forceinline__ int vector_index(int line, int vector) {
        return line * line_vectors + (vector ^ vector / 8 % chunk_vectors ^ line / kChunk);
    }
    // Returns the index of the vector `lines` rows below that at `index`, which is of the first 16 rows. Both are at the
    // same row of their 16.
    static __device__ __forceinline__ int below(int index, int lines) {
        return (index ^ lines / kChunk) + lines * line_vectors;
    }
    // Returns the index of an element.
    static __device__ __forceinline__ int element(int line, int column) {
        return vector_index(line, column / vector_elements) * vector_elements + column % vector_elements;
    }
    __device__ __forceinline__ StoredBits<T>* elements() { return reinterpret_cast<StoredBits<T>*>(vectors); }
    __device__ __forceinline__ const StoredBits<T>* elements() const {
        return reinterpret_cast<const StoredBits<T>*>(vectors);
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

// Reads a chunk of a row of a tile, and of the rows below it in the same 16.
template <class T>
struct RowReader {
    static constexpr int vectors = ChunkTile<T>::chunk_vectors, words = 4 * vectors;
    const ChunkTile<T>& tile;
    int at[vectors];

    __device__ __forceinline__ RowReader(const ChunkTile<T>& of, int line, int chunk) : tile(of) {
#pragma unroll
        for (int j = 0; j < vectors; j++) {
            at[j] = of.vector_index(line, chunk * vectors + j);
            asm("" : "+r"(at[j]));  // keeps it in a register: the compiler would compute it again for every row
        }
    }
    __device__ __forceinline__ void read_words(int below, uint32_t (&to)[words]) const {
#pragma unroll
        for (int j = 0; j < vectors; j++) {
            const uint4 v = tile.vectors[at[j] + below * tile.line_vectors];
            to[4 * j] = v.x, to[4 * j + 1] = v.y, to[4 * j + 2] = v.z, to[4 * j + 3] = v.w;
        }
    }
    __device__ __forceinline__ void read(int below, float (&values)[kChunk]) const {
        uint32_t bits[words];
        read_words(below, bits);
#pragma unroll
        for (int j = 0; j < vectors; j++) {
            const Vector<T> vector{{bits[4 * j], bits[4 * j + 1], bits[4 * j + 2], bits[4 * j + 3]}};
#pragma unroll
            for (int i = 0; i < Vector<T>::count; i++) values[j * Vector<T>::count + i] = vector[i];
        }
    }
};

// Returns the first word of chunks of two neighbouring columns of 16-bit elements, the first of them even.
template <class T>
__device__ __forceinline__ int column_pair_word(int column, int chunk) {
    int at = ChunkTile<T>::element(chunk * kChunk, column) / 2;
    asm("" : "+r"(at));  // keeps it in a register
    return at;
}

// Reads chunks of two neighbouring columns: a word for each row.
template <class T>
__device__ __forceinline__ void read_column_pair(const ChunkTile<T>& tile, int at, uint32_t (&pairs)[kChunk]) {
    const auto* from = reinterpret_cast<const uint32_t*>(tile.elements()) + at;
#pragma unroll
    for (int i = 0; i < kChunk; i++) pairs[i] = from[i * (kTile / 2)];
}

// Thread blocks of an SM: what their tiles, and the registers of a chunk, leave room for.
template <class T>
constexpr int kChunkBlocks = sizeof(T) == 4 ? 3 : 4;

// Returns the row of step i of a lane that reads rows: a warp takes 16 rows.
__device__ __forceinline__ int row_of_step(int i) { return threadIdx.x / 32 * kChunk + i * 4 + threadIdx.x % 32 / 8; }

// Returns the column of step i of a lane that reads columns: a warp takes 16 columns, in the order of banks.
template <class T>
__device__ __forceinline__ int column_of_step(int i) {
    const int first = threadIdx.x / 32 * kChunk, lane = threadIdx.x % 32 / 8;
    return sizeof(T) == 4 ? first + i * 4 + lane : first + i / 2 * 8 + lane * 2 + i % 2;
}

__device__ __forceinline__ int chunk_of_lane() { return threadIdx.x % 8; }

// ---- Values ----------------------------------------------------------------------------------------------------------

// Returns the larger of a maximum and the magnitudes of a chunk. NaN is ignored.
__device__ __forceinline__ float larger_magnitude(float largest, const float (&values)[kChunk]) {
    float second = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        largest = fmaxf(largest, fabsf(values[i]));
        second = fmaxf(second, fabsf(values[i + 1]));
    }
    return fmaxf(largest, second);
}

// Returns the bits of the largest magnitude of a chunk, where NaN is the largest of all.
__device__ __forceinline__ uint32_t largest_magnitude_bits(const float (&values)[kChunk]) {
    uint32_t largest = 0;
#pragma unroll
    for (const float value : values) largest = max(largest, float_bits(value) & kMagnitudeMask);
    return largest;
}

}  // namespace mxq::cuda
