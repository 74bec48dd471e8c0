// arrange_scales: a block of threads has 128 lines of an expert and 16 steps of them.
//
//     read     along a line, 16 neighbouring threads a step each
//     write    from shared memory, step after step, in words
#include "cuda/sm90/arrange_scales.h"

#include "cuda/launch.h"
#include "cuda/sm90/beside.cuh"
#include "cuda/sm90/weights.cuh"

namespace mxq::cuda::sm90 {
namespace {

constexpr int kThreads = 256, kSteps = 16;

struct Arguments {
    GemmOperand b;
    int64_t lines, length;  // that the product has
    uint8_t* to;
    uint32_t steps, tiles;  // of a line; of 128 lines, of an expert
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
    if (matrix >= matrices) return;
    const uint8_t* const scales = matrix_scales(args.b, matrix);
    const uint32_t step = threadIdx.x % kSteps;
#pragma unroll 4
    for (uint32_t line = threadIdx.x / kSteps; line < kArrangedLines; line += kThreads / kSteps) {
        const int64_t own = min(int64_t(first_line + line), args.lines - 1);
        const uint8_t* const of_line = scales + scale_line(args.b.layout, uint32_t(own));
#pragma unroll
        for (int i = 0; i < of_step; i++) {
            const uint32_t k = (first_step + step) * kArrangedCodes + i * codes;
            tile[step][line][i] =
                arranged<kind>(k < args.length ? __ldg(of_line + scale_in_line(args.b.layout, k)) : one);
        }
    }
    __syncthreads();
    constexpr uint32_t words = sizeof(tile[0]) / 4;
    const uint32_t steps = min(args.steps - first_step, uint32_t(kSteps));
    uint32_t* const to = reinterpret_cast<uint32_t*>(args.to) + (int64_t(index) * args.steps + first_step) * words;
    for (uint32_t word = threadIdx.x; word < steps * words; word += kThreads)
        to[word] = reinterpret_cast<const uint32_t*>(tile)[word];
}

uint32_t steps_of(const GemmProblem& p) { return uint32_t(ceil_div(p.k, int64_t(kArrangedCodes))); }
uint32_t tiles_of(const GemmProblem& p) { return uint32_t(ceil_div(p.n, int64_t(kArrangedLines))); }

}  // namespace

uint64_t arranged_bytes(const GemmProblem& p) {
    const uint64_t step = uint64_t(kArrangedLines) * arranged_step_bytes(p.b.scale_type == ScaleType::E4M3);
    return uint64_t(p.b.matrices) * tiles_of(p) * steps_of(p) * step;
}

void arrange_scales(const Context& context, const GemmProblem& p, uint8_t* to, void* stream) {
    const Arguments args{p.b, p.n, p.k, to, steps_of(p), tiles_of(p)};
    const dim3 grid = grid_of_rows(ceil_div(int64_t(args.steps), int64_t(kSteps)), p.b.matrices * args.tiles);
    if (p.b.scale_type == ScaleType::E4M3)
        launch(context, arrange_scales_kernel<Weights::Nvfp4>, "wgmma_bf16_sm90's pass", grid, dim3(kThreads), 0, stream, args);
    else
        launch(context, arrange_scales_kernel<Weights::Bits8>, "wgmma_bf16_sm90's pass", grid, dim3(kThreads), 0, stream, args);
}

void load_arrange_scales() {
    load_kernel(arrange_scales_kernel<Weights::Nvfp4>);
    load_kernel(arrange_scales_kernel<Weights::Bits8>);
}

}  // namespace mxq::cuda::sm90
