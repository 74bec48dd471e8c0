// The scales of a quantized source as fp32, in a table in shared memory: a row for each block of the tile's K-major rows.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/location.cuh"
#include "cuda/tile/scales.cuh"

namespace mxq::cuda {

using SourceScaleTable = float[kTile / kNvBlock][kTableLines];

// Scales by block and row of the tile. Scales that no element has are +0, as are those after the last block.
struct alignas(16) SourceScales {
    static constexpr int nothing = kTile / kNvBlock;
    float table[nothing + 1][kTableLines];
    float global;
};

// Returns log2 of the codes that share a scale.
__device__ __forceinline__ int source_shift(const ScaleLayout& layout) {
    return layout.block == kNvBlock ? 4 : layout.block == kMxBlock ? 5 : 7;
}

// Loads fp32 scales.
__device__ __forceinline__ void load_float_scales(const QuantizedPart& part, const ScaleTile& tile, int count,
                                                  float (*table)[kTableLines]) {
    const auto* from = reinterpret_cast<const float*>(part.scales);
    const int line = threadIdx.x;
    for (int block = 0; line < kTile && block < kTile >> source_shift(part.layout); block++)
        table[block][line] = line < tile.lines && block < count ? from[tile.offset(line, tile.column + block)] : 0;
}

// Loads scale bytes, four of a row at once.
__device__ __forceinline__ void load_byte_scales(const QuantizedPart& part, const ScaleTile& tile, int count,
                                                 float (*table)[kTableLines]) {
    const int blocks = kTile >> source_shift(part.layout), line = line_of_word(part.layout, threadIdx.x % kTile);
    for (int first = 0; threadIdx.x < kTile && first < blocks; first += 4) {
        const int existing = line < tile.lines ? min(count - first, 4) : 0;
        uint32_t word = 0;
        if (existing > 0)
            word = load_scale_word(part.scales + tile.offset(line, tile.column + first), part.layout.swizzled ? 4 : existing);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (first + i < blocks)
                table[first + i][line] = i < existing ? scale_of_byte(part.scale_type, word >> (8 * i) & 0xFF) : 0;
    }
}

// Loads the scales of a tile whose K-major rows have `length` codes. All threads of the block call it, at least 128. A
// barrier must follow.
__device__ __forceinline__ void load_source_scales(const QuantizedPart& part, const ScaleTile& tile, int length,
                                                   float (*table)[kTableLines]) {
    const int shift = source_shift(part.layout), count = (length + (1 << shift) - 1) >> shift;
    if (part.scale_type == ScaleType::F32) load_float_scales(part, tile, count, table);
    else load_byte_scales(part, tile, count, table);
}

}  // namespace mxq::cuda
