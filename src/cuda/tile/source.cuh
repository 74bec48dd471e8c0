// Where a kernel of tiles takes its values from. A kernel is a template of a Source, so that what stands before a quantize
// (plain numbers, a quantized tensor, rows gathered by an index, an activation) is a new Source and no new kernel. A Source
// has
//
//     Element       float or Bf16: what its values are held as, and what kernels are compiled for
//     load_patch    16 rows of a thread's columns to registers (tile/patch_source.cuh): quantize_tile, requantize_values
//     start_copy    a tile to shared memory, on its way when this returns; false: it has no such way for these rows
//     fill_tile     a tile to shared memory in any other case (tile/tile_source.cuh): quantize_fp4, amax
//     is_wide_...   on the host, whether accesses may be as wide as they go: one for each of the two loads
//
// with +0 wherever the tile has no element. What differs at run time alone is a branch that a whole block of threads takes
// alike: a further kind in core/problem.h's Source is a further branch of FloatSource, and a type of its own where it must be
// as fast as BF16. The first rows of groups in a source, and where a tile lies in it: Source::group_units, SourcePlace.
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

// Returns, on the host, whether every row of a plain matrix can be accessed 16 bytes at a time.
inline bool is_wide_plain(const PlainMatrix& plain) {
    return plain.format == MXQ_FORMAT_F32 ? is_wide<float>(plain) : is_wide<Bf16>(plain);
}

}  // namespace mxq::cuda
