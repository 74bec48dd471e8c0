// The kernel of wgmma_fp8_sm90 for few rows of FP8 with scales of 128: tiles of 64 or 128 rows by 32, 64 or 128 columns, so
// that few rows have many. A CTA has one tile:
//
//     warpgroups but the last    64 rows each: products of 128 codes, added to totals in fp32 by the scales of both sides
//     one warp more              loads steps of 128 codes of A and B
//
// Products, factors and additions come in the order of fp8_consumers.cuh, so that sums are the same, bit for bit.
#include "cuda/sm90/fp8_few.h"

#include <algorithm>

#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/memory/plain_elements.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/rows_output.cuh"
#include "cuda/sm90/wgmma_columns.cuh"

namespace mxq::cuda::sm90::few {
namespace {

constexpr int kStepBytes = 128, kStages = 6;

// Says where scales lie: floats from a line to the next that has others, and from a step to the next.
struct Scales {
    const float* first;
    int64_t line, step;
    int32_t lines_log2;  // that share one
};

struct Arguments {
    CUtensorMap a, b;
    Scales of_a, of_b;
    PlainMatrix d;
    int32_t rows, columns, steps;
};

template <int warpgroups, int columns>
struct Shared {
    alignas(1024) uint8_t a[kStages][warpgroups][kProductRows * kStepBytes];
    alignas(1024) uint8_t b[kStages][columns * kStepBytes];
    Barrier full[kStages], free[kStages];
};

// Loads all steps, one lane.
template <int warpgroups, int columns>
__device__ __forceinline__ void load_steps(const Arguments& args, Shared<warpgroups, columns>& shared, int32_t row,
                                           int32_t column) {
    Ring<kStages> ring;
#pragma unroll 1
    for (int32_t step = 0; step < args.steps; step++, ring.next()) {
        Barrier& full = shared.full[ring.at()];
        wait(shared.free[ring.at()], ring.parity() ^ 1);
        arrive_expecting(full, sizeof shared.a[0] + sizeof shared.b[0]);
#pragma unroll
        for (int i = 0; i < warpgroups; i++)
            load_tile(shared.a[ring.at()][i], args.a, {step * kStepBytes, row + i * kProductRows}, full);
        load_tile(shared.b[ring.at()], args.b, {step * kStepBytes, column, 0}, full);
    }
}

template <int warpgroups, int columns>
struct Consumer {
    using Block = Shared<warpgroups, columns>;
    static constexpr int kSums = columns / 2;
    const Arguments& args;
    Block& shared;
    int32_t row, column;      // the thread's first row, and the tile's first column
    const float* of_rows[2];  // scales of the thread's rows in the next step
    const float* of_columns;  // and of the tile's columns
    Ring<kStages> ring = {};
    float totals[kSums];

    // Multiplies a step. Returns its stage.
    __device__ __forceinline__ uint32_t multiply(float (&part)[kSums]) {
        const uint32_t stage = uint32_t(uniform(int32_t(ring.at())));
        wait(shared.full[stage], ring.parity());
        ring.next();
        const TileDescriptor a = describe_tile(shared.a[stage][uniform(int32_t(threadIdx.x / kWarpgroup))]),
                             b = describe_tile(shared.b[stage]);
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepBytes; k += kProductBytes) multiply_e4m3(part, a.along(k), b.along(k), k > 0);
        commit_products();
        return stage;
    }
    // Returns the factors of the thread's rows in the next step.
    __device__ __forceinline__ float2 next_factors() {
        const float of = __ldg(of_columns);
        const float2 factors{multiply_rn(__ldg(of_rows[0]), of), multiply_rn(__ldg(of_rows[1]), of)};
        of_columns += args.of_b.step, of_rows[0] += args.of_a.step, of_rows[1] += args.of_a.step;
        return factors;
    }
    __device__ __forceinline__ void add(const float (&part)[kSums], const float2& factors, uint32_t stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
#pragma unroll
        for (int i = 0; i < kSums; i++) totals[i] = __fmaf_rn(part[i], i / 2 % 2 ? factors.y : factors.x, totals[i]);
    }
    // Multiplies some steps and adds their sums, those of the first while the tensor cores have the others.
    template <int count>
    __device__ __forceinline__ void multiply_steps() {
        float parts[count][kSums];
        uint32_t stages[count];
        float2 factors[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            stages[i] = multiply(parts[i]);
            factors[i] = next_factors();
        }
        if constexpr (count == 2) {
            wait_products<1>(parts[0]);
            add(parts[0], factors[0], stages[0]);
        }
        wait_products<0>(parts[count - 1]);
        add(parts[count - 1], factors[count - 1], stages[count - 1]);
    }
    __device__ __forceinline__ void multiply_all() {
        constexpr int at_once = columns == 128 ? 1 : 2;  // registers are short
#pragma unroll
        for (float& total : totals) total = 0;
        int32_t left = args.steps;
#pragma unroll 1
        for (; left >= at_once; left -= at_once) multiply_steps<at_once>();
        if (left > 0) multiply_steps<1>();
    }
    // Stores a pair of neighbouring elements.
    __device__ __forceinline__ void store(int32_t at_row, int32_t at_column, float first, float second) const {
        if (at_row >= args.rows || at_column >= args.columns) return;
        const int64_t at = at_row * args.d.row_stride + at_column;
        const bool both = at_column + 1 < args.columns;
        if (args.d.format == MXQ_FORMAT_F32) {
            float* const to = static_cast<float*>(args.d.data) + at;
            to[0] = first;
            if (both) to[1] = second;
            return;
        }
        const uint32_t pair = round_pair<Bf16>(first, second);
        uint16_t* const to = static_cast<uint16_t*>(args.d.data) + at;
        if (both && reinterpret_cast<uintptr_t>(to) % 4 == 0) {
            *reinterpret_cast<uint32_t*>(to) = pair;
            return;
        }
        to[0] = uint16_t(pair);
        if (both) to[1] = uint16_t(pair >> 16);
    }
    __device__ __forceinline__ void run() {
        multiply_all();
#pragma unroll
        for (int i = 0; i < kSums; i += 2)
            store(row + i / 2 % 2 * 8, column + i / 4 * 8 + int32_t(threadIdx.x % 4) * 2, totals[i], totals[i + 1]);
    }
};

template <int warpgroups, int columns>
__global__ void __launch_bounds__(warpgroups* kWarpgroup + 32) few_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<warpgroups, columns>*>(memory);
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, warpgroups * kWarpgroup / 32);
        publish_barriers();
    }
    __syncthreads();
    const int32_t first_row = int32_t(blockIdx.y) * warpgroups * kProductRows, column = int32_t(blockIdx.x) * columns;
    if (threadIdx.x >= warpgroups * kWarpgroup) {
        if (elect_lane()) load_steps(args, shared, first_row, column);
        return;
    }
    const int32_t row = first_row + int32_t(threadIdx.x / 32) * 16 + int32_t(threadIdx.x % 32) / 4, last = args.rows - 1;
    const auto scale_of_row = [&](int32_t r) {
        return args.of_a.first + (min(r, last) >> args.of_a.lines_log2) * args.of_a.line;
    };
    Consumer<warpgroups, columns> consumer{args,
                                           shared,
                                           row,
                                           column,
                                           {scale_of_row(row), scale_of_row(row + 8)},
                                           args.of_b.first + (column >> args.of_b.lines_log2) * args.of_b.line};
    consumer.run();
}

template <int warpgroups, int columns>
constexpr KernelEntry<Tile, Arguments> entry() {
    static_assert(sizeof(Shared<warpgroups, columns>) <= 227 * 1024, "what a CTA may have");
    return {{warpgroups, columns},
            few_kernel<warpgroups, columns>,
            warpgroups * kWarpgroup + 32,
            sizeof(Shared<warpgroups, columns>)};
}

constexpr KernelEntry<Tile, Arguments> kernels[] = {entry<1, 32>(), entry<1, 64>(), entry<2, 64>(), entry<2, 128>()};

// Returns about the cycles of so many rounds of tiles.
constexpr int64_t cost_of(int64_t rounds, int64_t steps, int64_t of_step, int64_t of_end) {
    return rounds * (steps * of_step + of_end);
}

// A step takes what its loads take, 55 bytes a cycle, or its products and the wait for the last.
int64_t cost_of(int64_t m, int64_t n, int64_t steps, const Tile& tile, int64_t sms) {
    const int64_t tiles = ceil_div(m, int64_t(tile.rows())) * ceil_div(n, int64_t(tile.columns));
    const int64_t loads = (tile.rows() + tile.columns) * kStepBytes / 55;
    const int64_t products = 2 * tile.warpgroups * tile.columns + 100;
    return cost_of(ceil_div(tiles, sms), steps, std::max(loads, products), 2500);
}

Scales scales_of(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    return {reinterpret_cast<const float*>(operand.scales), layout.line_stride, layout.column_stride,
            int32_t(log2_of(uint32_t(layout.tile_rows)))};
}

}  // namespace

Tile tile_of(int64_t m, int64_t n, int64_t steps, int64_t sms) {
    Tile best = kernels[0].key;
    for (const auto& kernel : kernels)
        if (cost_of(m, n, steps, kernel.key, sms) < cost_of(m, n, steps, best, sms)) best = kernel.key;
    return best;
}

// Those kernels have two tiles of 128 x 192 at once in a cluster of two CTAs, or two of 256 x 128.
bool pays(int64_t m, int64_t n, int64_t steps, int64_t sms) {
    const int64_t clusters = std::max<int64_t>(1, sms / 2);
    const int64_t wide =
                      cost_of(ceil_div(ceil_div(m, int64_t(128)) * ceil_div(n, int64_t(384)), clusters), steps, 830, 3300),
                  square =
                      cost_of(ceil_div(ceil_div(m, int64_t(256)) * ceil_div(n, int64_t(256)), clusters), steps, 1060, 3300);
    return cost_of(m, n, steps, tile_of(m, n, steps, sms), sms) < std::min(wide, square);
}

void multiply(const Context& context, const GemmProblem& p, const Tile& tile, const TileMap& a, const TileMap& b,
              void* stream) {
    const Arguments args{tensor_map(driver(), a),
                         tensor_map(driver(), b),
                         scales_of(p.a),
                         scales_of(p.b),
                         p.d,
                         int32_t(p.m),
                         int32_t(p.n),
                         int32_t(ceil_div(p.k, int64_t(kStepBytes)))};
    const dim3 grid(unsigned(ceil_div(p.n, int64_t(tile.columns))), unsigned(ceil_div(p.m, int64_t(tile.rows()))));
    launch(context, kernels, tile, "wgmma_fp8_sm90", grid, stream, args);
}

void load() { load_kernels(kernels); }

}  // namespace mxq::cuda::sm90::few
