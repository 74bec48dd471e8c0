// What the dequantize kernels share: the offsets of an expert or a group, and tables of a kernel for each pair of types.
#pragma once
#include <array>
#include <type_traits>

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

// Finds the expert or the group of row tile `tile`, and the tile's first row there; false: there is none. All threads of the
// block call it.
template <class Units>
__device__ __forceinline__ bool find_scope(const DequantizeProblem& p, bool grouped, const Units& units, uint32_t tile,
                                           uint32_t matrix_tiles, int64_t element_bytes, Group& group,
                                           DequantizeScope& scope, int32_t& row) {
    if (!grouped) {
        const uint32_t matrix = p.out.matrices == 1 ? 0 : tile / matrix_tiles;
        scope = p.out.matrices == 1 ? scope_of_expert(p, 0, element_bytes) : scope_of_expert(p, matrix, element_bytes);
        row = int32_t((tile - matrix * matrix_tiles) << units.tile_rows_log2);
        return true;
    }
    find_group_tile(p.grouped, units, tile, group);
    if (!group.exists()) return false;
    scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    row = int32_t((tile - group.first_group_tile) << units.tile_rows_log2);
    return true;
}

// The types that a kernel is compiled for.
struct KernelTypes {
    int32_t out_format;
    Element element;
    bool operator==(const KernelTypes&) const = default;
};

template <class T, class E>
constexpr KernelTypes types_of() {
    constexpr int32_t format = std::is_same_v<T, float> ? MXQ_FORMAT_F32
                               : std::is_same_v<T, F16> ? MXQ_FORMAT_F16
                                                        : MXQ_FORMAT_BF16;
    constexpr Element element = std::is_same_v<E, E4M3>   ? Element::E4M3
                                : std::is_same_v<E, E5M2> ? Element::E5M2
                                : std::is_same_v<E, E2M3> ? Element::E2M3
                                : std::is_same_v<E, E3M2> ? Element::E3M2
                                                          : Element::E2M1;
    return {format, element};
}

// Returns the results of `make` for every output type and element.
template <class Make>
constexpr auto for_all_types(const Make& make) {
    return std::array{
        make(float{}, E4M3{}), make(float{}, E5M2{}), make(float{}, E2M3{}), make(float{}, E3M2{}), make(float{}, E2M1{}),
        make(F16{}, E4M3{}),   make(F16{}, E5M2{}),   make(F16{}, E2M3{}),   make(F16{}, E3M2{}),   make(F16{}, E2M1{}),
        make(Bf16{}, E4M3{}),  make(Bf16{}, E5M2{}),  make(Bf16{}, E2M3{}),  make(Bf16{}, E3M2{}),  make(Bf16{}, E2M1{})};
}

// Returns the kernel of a variant for the types of a problem.
template <class Kernels, class Variant>
const auto& kernel_of_variant(const Kernels& kernels, const DequantizeProblem& p, Variant variant) {
    for (const auto& of_types : kernels)
        for (const auto& kernel : of_types)
            if (kernel.types == KernelTypes{p.out.format, p.in.element} && kernel.variant == variant) return kernel;
    return kernels[0][0];  // not reached: there is a kernel for every pair of types
}

}  // namespace mxq::cuda
