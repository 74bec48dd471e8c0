// arrange_scales: a block of threads has 128 lines of an expert and 16 steps of them.
//
//     read     along a line, 16 neighbouring threads a step each
//     write    from shared memory, step after step, in words
#include "cuda/sm90/arrange_scales.h"

#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/weight_kind.h"

namespace mxq::cuda::sm90 {
namespace {

constexpr int kThreads = 256, kSteps = kArrangedSteps;

struct Arguments {
    GemmOperand b;
    int64_t lines, length;  // that the product has
    ArrangedScales to;
    uint32_t steps, tiles;  // of a line; of 128 lines, of an expert
    Bf16DecodeRule rule;
    bool four_bits;
};

// Returns a scale as the product takes it.
template <Weights kind>
__device__ __forceinline__ auto arranged(uint32_t scale) {
    if constexpr (kind == Weights::Nvfp4) {
        const Bf16DecodeRule rule = bf16_decode_rule_nvfp4();
        return uint16_t(needs_two_factors<kind>(rule, scale) ? 0x7FFF : scale_factor<kind>(rule, scale));
    } else {
        return uint8_t(scale);
    }
}

template <Weights kind>
__global__ void __launch_bounds__(kThreads) arrange_scales_kernel(const __grid_constant__ Arguments args) {
    constexpr int of_step = kind == Weights::Nvfp4 ? 4 : 2, codes = kArrangedCodes / of_step;
    constexpr uint32_t one = kind == Weights::Nvfp4 ? 0x38 : 127;
    using Scale = decltype(arranged<kind>(0));
    __shared__ alignas(16) Scale tile[kSteps][kArrangedLines][of_step];
    start_next_kernel();
    const uint32_t first_step = blockIdx.x * kSteps, index = row_of_blocks();
    const uint32_t matrix = index / args.tiles, first_line = index % args.tiles * kArrangedLines;
    const int64_t matrices = args.b.matrices;
    if (matrix >= matrices) return;  // blocks that fill the grid
    const uint8_t* const scales = matrix_scales(args.b, matrix);
    const uint32_t step = threadIdx.x % kSteps;
    bool special = false;
#pragma unroll
    for (uint32_t line = threadIdx.x / kSteps; line < kArrangedLines; line += kThreads / kSteps) {
        const int64_t own = min(int64_t(first_line + line), args.lines - 1);
        const uint8_t* const of_line = scales + scale_line(args.b.layout, uint32_t(own));
#pragma unroll
        for (int i = 0; i < of_step; i++) {
            const uint32_t k = (first_step + step) * kArrangedCodes + i * codes;
            const uint32_t scale = k < args.length ? __ldg(of_line + scale_in_line(args.b.layout, k)) : one;
            special |= args.four_bits ? needs_two_factors<Weights::Bits4>(args.rule, scale)
                                      : needs_two_factors<Weights::Bits8>(args.rule, scale);
            tile[step][line][i] = arranged<kind>(scale);
        }
    }
    special = __syncthreads_or(special);
    if (threadIdx.x == 0) args.to.flags[int64_t(index) * gridDim.x + blockIdx.x] = special;
    constexpr uint32_t words = sizeof(tile[0]) / 4;
    const uint32_t steps = min(args.steps - first_step, uint32_t(kSteps));
    uint32_t* const to = reinterpret_cast<uint32_t*>(args.to.bytes) + (int64_t(index) * args.steps + first_step) * words;
    for (uint32_t word = threadIdx.x; word < steps * words; word += kThreads)
        to[word] = reinterpret_cast<const uint32_t*>(tile)[word];
}

// Returns the bytes of the scales alone, a multiple of those of a step.
uint64_t scale_bytes_of(const GemmProblem& p) {
    const uint64_t step = uint64_t(kArrangedLines) * arranged_step_bytes(p.b.scale_type == ScaleType::E4M3);
    return uint64_t(p.b.matrices) * arranged_tiles_of(p) * arranged_steps_of(p) * step;
}

}  // namespace

uint64_t arranged_bytes(const GemmProblem& p) {
    return scale_bytes_of(p) + uint64_t(p.b.matrices) * arranged_tiles_of(p) * arranged_flags_of(p);
}

ArrangedScales arranged_at(const GemmProblem& p, uint8_t* at) { return {at, at + scale_bytes_of(p)}; }

void arrange_scales(const Context& context, const GemmProblem& p, const ArrangedScales& to, void* stream) {
    const bool nvfp4 = p.b.scale_type == ScaleType::E4M3;
    const Arguments args{p.b,       p.n, p.k, to, arranged_steps_of(p), arranged_tiles_of(p), weight_rule(p.b).rule,
                         p.b.bits == 4 && !nvfp4};
    const dim3 grid = grid_of_rows(arranged_flags_of(p), p.b.matrices * args.tiles);
    launch(context, nvfp4 ? arrange_scales_kernel<Weights::Nvfp4> : arrange_scales_kernel<Weights::Bits8>,
           "wgmma_bf16_sm90's pass", grid, dim3(kThreads), 0, stream, args);
}

void load_arrange_scales() {
    load_kernel(arrange_scales_kernel<Weights::Nvfp4>);
    load_kernel(arrange_scales_kernel<Weights::Bits8>);
}

}  // namespace mxq::cuda::sm90
