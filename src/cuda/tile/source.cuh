// Sources of values for kernels of tiles, which are templates of a Source. A new input of quantize (rows gathered by an
// index, an activation) is a new Source and no new kernel. A Source has
//
//     Element       float or Bf16: the type of its values, for which kernels are compiled
//     load_patch    16 rows of a thread's columns to registers (tile/patch_source.cuh): quantize_tile, requantize_values
//     start_copy    starts to copy a tile to shared memory; false: not possible for these rows
//     fill_tile     fills a tile in shared memory in any other case (tile/tile_source.cuh): quantize_fp4, amax
//     is_wide_...   on the host, whether accesses may be as wide as possible: one for each of the two loads
//
// with +0 wherever the tile has no element. Differences at run time are branches that a whole thread block takes alike: a
// further kind of core/problem.h's Source is a branch of FloatSource, or a type of its own if it must be as fast as BF16.
// Source::group_units and SourceTile locate groups and tiles in a source.
#pragma once
#include "core/problem.h"
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// Plain BF16, as it is.
struct Bf16Source {
    using Element = Bf16;
};

// Values of any source as fp32: plain F32, F16 or BF16, and quantized parts.
struct FloatSource {
    using Element = float;
};

// Loads four 16-bit numbers as fp32, `valid` of which exist; all or none where accesses are wide.
__device__ __forceinline__ Vector<float> load_halves(const uint16_t* from, int32_t format, bool wide, int valid) {
    uint16_t halves[4] = {};
    if (wide) {
        const uint2 v = valid > 0 ? *reinterpret_cast<const uint2*>(from) : uint2{};
        halves[0] = uint16_t(v.x), halves[1] = uint16_t(v.x >> 16), halves[2] = uint16_t(v.y), halves[3] = uint16_t(v.y >> 16);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < valid) halves[j] = from[j];
    }
    Vector<float> vector;
#pragma unroll
    for (int j = 0; j < 4; j++)
        vector.words[j] = float_bits(format == MXQ_FORMAT_F16 ? to_float(F16{halves[j]}) : to_float(Bf16{halves[j]}));
    return vector;
}

inline bool is_bf16(const QuantizeProblem& p) { return p.source.is_plain() && p.source.plain.format == MXQ_FORMAT_BF16; }

}  // namespace mxq::cuda
