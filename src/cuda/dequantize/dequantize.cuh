// Finds the offsets of an expert or a group for all dequantize kernels.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// The expert or the group of a thread block: where its codes, its scales and its rows of the output start.
struct DequantizeScope {
    const uint8_t* codes;
    const uint8_t* scales;
    uint8_t* out;
    int32_t rows, out_rows;  // rows with codes; rows that are written, padding included
    float global;            // the scale above the block scales
};

__device__ __forceinline__ DequantizeScope scope_of_expert(const DequantizeProblem& p, int64_t expert,
                                                           int64_t element_bytes) {
    const ScaleLayout& layout = p.in.layout;
    return {p.in.line(expert, 0), p.in.scales + expert * layout.matrix_scales * layout.bytes,
            static_cast<uint8_t*>(p.out.data) + expert * p.out.rows * p.out.row_stride * element_bytes, int32_t(p.out.rows),
            int32_t(p.out.rows), global_scale(p.in, expert)};
}

// Returns the scope of a group of `rows` rows that starts at `start` in the input and at row `out_row` of the output.
__device__ __forceinline__ DequantizeScope scope_of_group(const DequantizeProblem& p, const GroupStart& start,
                                                          int64_t out_row, int64_t rows, int64_t element_bytes) {
    return {group_codes(p.in, start), group_scales(p.in, start),
            static_cast<uint8_t*>(p.out.data) + out_row * p.out.row_stride * element_bytes, int32_t(rows),
            int32_t(round_up_to_power(rows, p.out.group_unit)), global_scale(p.in, start.index)};
}

// Finds the expert or the group of a row tile, and the tile's first row there; false: there is none. Arguments have `tiles`
// and `matrix_tiles`: row tiles in all (with groups an upper bound), and of a matrix. All threads of the block call it.
template <class Arguments>
__device__ __forceinline__ bool find_scope(const Arguments& a, bool grouped, uint32_t tile, int64_t element_bytes,
                                           Group& group, DequantizeScope& scope, int32_t& row) {
    const DequantizeProblem& p = a.problem;
    if (tile >= a.tiles) return false;
    if (!grouped) {
        const uint32_t matrix = p.out.matrices == 1 ? 0 : tile / a.matrix_tiles;
        scope = p.out.matrices == 1 ? scope_of_expert(p, 0, element_bytes) : scope_of_expert(p, matrix, element_bytes);
        row = int32_t((tile - matrix * a.matrix_tiles) << a.units.tile_rows_log2);
        return true;
    }
    find_group_tile(p.grouped, a.units, tile, group);
    if (!group.exists()) return false;
    scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    row = int32_t((tile - group.first_group_tile) << a.units.tile_rows_log2);
    return true;
}

}  // namespace mxq::cuda
