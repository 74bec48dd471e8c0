// What all kernels share that quantize a tile in shared memory to E2M1: NVFP4's global maximum and tables, rounding of any
// values to nearest, and the stores of codes and scales.
//
//     tile in shared memory --a chunk of 16 a lane, eight lanes a row--> maximum --> scale byte --> words --> layout
//             |                                                             |
//             +--------------------> values x multiplier --> 16 codes, 8 bytes --> eight lanes store 64 bytes of a row
//
// NVFP4 scales have no sign: a table of 128 entries for each part maps scale bytes to multipliers.
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/quantize/amax.h"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/types.cuh"
#include "numerics/encode_sub_byte.h"
#include "numerics/nvfp4.h"
#include "numerics/packing.h"

namespace mxq::cuda {

constexpr int kScaleBytes = 128;  // E4M3, without a sign

// ---- Scales ----------------------------------------------------------------------------------------------------------

// The multipliers of NVFP4 scale bytes in each part. Divisions for every block would be a tenth of all work.
struct Nvfp4Tables {
    Nvfp4Global globals[2];
    float multipliers[2][kScaleBytes];
};

// Returns the global maximum of the part whose table the thread helps to make. Its load is issued early, to hide its
// latency.
__device__ __forceinline__ float table_amax(const QuantizeProblem& p, int64_t scope) {
    static_assert(kChunkThreads == 2 * kScaleBytes);
    const bool columnwise = threadIdx.x >= kScaleBytes, exists = columnwise ? p.has_columnwise : p.has_rowwise;
    const QuantizedPart& part = columnwise ? p.columnwise : p.rowwise;
    return exists ? part.amax[scope * part.scope_stride] : 0;
}

// Returns the same where this call computes it. It follows everything that does not need the maximum.
__device__ __forceinline__ float computed_table_amax(const QuantizeProblem& p, int64_t scope) {
    wait_for_previous_kernel();  // which computes it
    return table_amax(p, scope);
}

// Returns the byte of the lane's scale in the scale words of its row; -1 where another lane stores it.
__device__ __forceinline__ int scale_byte(const QuantizedPart& part) {
    const int shift = log2_of(uint32_t(part.layout.block) / kChunk), chunk = chunk_of_lane(), column = chunk >> shift;
    return column << shift == chunk ? column : -1;
}

__device__ __forceinline__ void put_scale(uint32_t (&words)[kTile][2], int line, int byte, uint32_t scale) {
    if (byte >= 0) reinterpret_cast<uint8_t*>(words[line])[byte] = uint8_t(scale);
}

// Stores the scale words of a part, two a row.
__device__ __forceinline__ void store_scales(const QuantizedPart& part, const PartTile& tile,
                                             const uint32_t (&words)[kTile][2]) {
    store_scale_words<kChunkThreads, 2>(part, tile, [&](int line, int i) { return words[line][i]; });
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// What all chunks of a part share: its scales, and the destination of the lane's chunks.
struct PartRule {
    Nvfp4Global global;
    const float* multipliers;  // by scale bytes
    uint8_t* codes;            // of the lane's chunk of row 0
    uint32_t line_bytes;
    int lines, bytes;  // rows that have the lane's chunk; bytes of a row from it on
    int scale_byte;
    bool columnwise;

    __device__ __forceinline__ PartRule(const QuantizeProblem& p, bool columnwise, const Nvfp4Tables& tables,
                                        const CodeTile& to)
        : global(tables.globals[columnwise]), multipliers(tables.multipliers[columnwise]),
          line_bytes(uint32_t(to.line_bytes)), scale_byte(mxq::cuda::scale_byte(part_of(p, columnwise))),
          columnwise(columnwise) {
        const int byte = chunk_of_lane() * (kChunk / 2);
        codes = to.codes + byte;
        bytes = (to.length + 1) / 2 - byte;
        lines = bytes > 0 ? to.lines : 0;
    }
    __device__ __forceinline__ uint8_t* codes_of(int line) const { return codes + uint64_t(uint32_t(line)) * line_bytes; }
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Returns eight codes of any values, packed, without a mask.
__device__ __forceinline__ uint32_t nearest_codes(const float* values, float multiplier) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = encode_e2m1_floats(multiply_rn(values[2 * i], multiplier), multiply_rn(values[2 * i + 1], multiplier));
    return pack_nibble_pairs(pairs);
}

// Returns eight codes of any values under an NVFP4 scale, packed.
__device__ __forceinline__ uint32_t nearest_nvfp4_codes(const float* values, uint32_t scale, const Nvfp4Global& global) {
    return nearest_codes(values, nvfp4_multiplier(scale, global)) & nvfp4_code_mask(scale);
}

// Stores the first `bytes` of the eight of a chunk.
__device__ __forceinline__ void store_chunk_codes(uint8_t* to, uint2 codes, int bytes, bool wide) {
    if (wide && bytes >= 8) {
        __stwb(reinterpret_cast<uint2*>(to), codes);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < bytes) to[i] = uint8_t((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Enqueues the pass that computes maxima, if the call asks for it. Returns how the next kernel starts.
inline Start start_with_amax(const Context& context, const QuantizeProblem& p, const Launch& call) {
    return p.compute_amax ? launch_amax(context, p, p.rowwise.amax, p.columnwise.amax, call) : Start::AfterAll;
}

// Returns whether every K-major row of an output consists of whole chunks at multiples of 8 bytes.
inline bool is_wide_part(const QuantizedPart& part) {
    return is_aligned(part.codes, 8) && part.length % kChunk == 0;
}

}  // namespace mxq::cuda
