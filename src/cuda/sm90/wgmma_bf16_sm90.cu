// wgmma_bf16_sm90: exact products of many rows with quantized weights on Hopper's BF16 tensor cores, dense or grouped.
//
// The product is made transposed, so that weights are the operand that the tensor cores read from registers: their codes are
// decoded there and never lie in memory as BF16. A block of 384 threads stays on its SM and takes tiles (bf16_tiles.cuh):
//
//     warps 0..3          load tokens, codes and scales of 64 codes a step through a ring of five stages, and find tiles
//     warps 4..7, 8..11   consumers, 64 lines x 256 tokens each: decode 32 codes of the lines while the tensor cores
//                         multiply those before (bf16_consumers.cuh), and write D (bf16_output.cuh)
//
// Where there are fewer tiles than multiprocessors, the blocks of a cluster share the contraction of one, and add up their
// sums through each other's shared memory (bf16_exchange.cuh).
//
// A step is 36 to 40 KB from L2 and 128 x 256 x 64 products: 1024 cycles of the tensor cores. Decoding takes about 3
// instructions a code and thread, 100 for a step of 4-bit codes: a fifth of what a scheduler issues in that time.
#include <algorithm>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/bf16_consumers.cuh"
#include "cuda/sm90/bf16_exchange.cuh"
#include "cuda/sm90/bf16_output.cuh"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::bf16;

constexpr int kThreads = 3 * kWarpgroup;
// A block starts with 168 registers a thread, 65536 / 384 in eights; the consumers get what the first warpgroup gives back.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
static_assert(kProducerRegisters + 2 * kConsumerRegisters <= 3 * 168);

template <Weights kind>
__device__ __forceinline__ void produce(const Arguments& args, Shared<kind>& shared) {
    const uint32_t warp = threadIdx.x / 32;
    if (warp == 0 && elect_lane()) load_operands(args, shared);
    if (warp == 1) scout(args, shared);
    if (warp != 2) return;
    wait_for_previous_kernel();  // which arranges scales
    if (args.scales.bytes && elect_lane()) load_scales(args, shared);
}

template <Weights kind>
__device__ __forceinline__ void consume(const Arguments& args, Shared<kind>& shared) {
    const uint32_t thread = threadIdx.x - kWarpgroup;
    Consumer<kind> consumer{args, shared, thread / 32 * kWarpLines + thread % 32 / 4, {}, {}, {}};
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        consumer.multiply_tile(tile);
        const uint32_t repair = consumer.lines_to_repair();
        if (args.sharing > 1)
            write_shared_tile<kind>(args, reinterpret_cast<Exchange&>(shared.stages), tile, repair, consumer.sums,
                                    shared.out);
        else
            write_lines<kind>(args, tile, consumer.sums, repair, shared.out);
    });
}

template <Weights kind>
__global__ void __launch_bounds__(kThreads, 1) wgmma_bf16_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<kind>*>(memory);
    if (threadIdx.x == 0) {
        const uint32_t loaders = args.scales.bytes ? 2 : 1;
        for (Barrier& barrier : shared.full) init_barrier(barrier, loaders);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kConsumerWarps);
        for (Barrier& barrier : shared.tile_found) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, loaders + kConsumerWarps);
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        produce(args, shared);
    } else {
        take_registers<kConsumerRegisters>();
        consume(args, shared);
    }
}

// ---- The implementation ----------------------------------------------------------------------------------------------

template <Weights kind>
constexpr KernelEntry<Weights, Arguments> entry() {
    static_assert(sizeof(Shared<kind>) <= 227 * 1024, "what a block may have");
    static_assert(sizeof(Exchange) <= sizeof(Shared<kind>::stages), "what is exchanged lies where the stages were");
    return {kind, wgmma_bf16_sm90_kernel<kind>, kThreads, sizeof(Shared<kind>)};
}

constexpr KernelEntry<Weights, Arguments> kernels[] = {entry<Weights::Bits4>(), entry<Weights::Nvfp4>(),
                                                       entry<Weights::Bits6>(), entry<Weights::Bits8>()};

// Returns the tiles of so many tokens, at most.
int64_t token_tiles_of(const GemmProblem& p, int64_t tokens) {
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tokens) : ceil_div(p.m, tokens);
}

int64_t line_tiles(const GemmProblem& p) { return ceil_div(p.n, int64_t(kTileLines)); }

int64_t blocks_at_most(const Context& context, const GemmProblem& p) {
    const int64_t all = context.cuda->multiprocessors;
    return p.sm_count > 0 ? std::min<int64_t>(p.sm_count, all) : all;
}

Cut cut_of(const Context& context, const GemmProblem& p) {
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    const TilesToCut tiles{token_tiles_of(p, kMostTokens) * line_tiles(p), token_tiles_of(p, kFewTokens) * line_tiles(p),
                           arranged_steps_of(p), parts_of_numbers(p.a) == 2 || p.m <= kFewTokens / 2 * groups};
    return cut_of(tiles, blocks_at_most(context, p));
}

Reason needs_sizes(const Context& context, const GemmProblem& p) {
    constexpr int64_t most = int64_t(1) << 31;
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    if (p.a.lines >= most || p.n >= most || p.k >= most) return "needs less than 2^31 rows, columns and codes of a line";
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    const Cut cut = cut_of(context, p);
    for (const TileMap& map : {map_of_tokens(as_bf16(p, Side::A, workspace), cut.tokens), map_of_lines(p, kStepCodes, kTileLines)})
        if (auto reason = needs_mappable(map); !reason.empty()) return reason;
    const double tiles = double(token_tiles_of(p, cut.tokens)) * double(line_tiles(p));
    if (tiles > 4294000000.0)  // turns of all blocks are counted in 32 bits
        return [tiles] { return format_text("needs less than 2^32 tiles of D, found %.0f", tiles); };
    return {};
}

// Returns where the arranged scales lie in the workspace: behind an A that a pass made BF16.
uint64_t scales_offset(const GemmProblem& p) { return is_bf16(p.a) ? 0 : widened_bytes(as_bf16(p, Side::A, nullptr)); }

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_lines_of_codes(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(context, p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, scales_offset(p) + (is_block_scaled(p.b) ? arranged_bytes(p) : 0), nullptr};
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const Cut cut = cut_of(context, p);
    const int64_t tiles = token_tiles_of(p, cut.tokens) * line_tiles(p);
    if (tiles == 0) return;
    ArrangedScales scales{};
    if (is_block_scaled(p.b)) scales = arranged_at(p, static_cast<uint8_t*>(call.workspace) + scales_offset(p));
    const GemmOperand tokens = as_bf16(p, Side::A, call.workspace);
    if (!is_bf16(p.a)) widen(context, p, Side::A, tokens, call.stream);
    if (scales.bytes) arrange_scales(context, p, scales, call.stream);
    const WeightRule weights = weight_rule(p.b);
    Arguments args{tensor_map(driver(), map_of_tokens(tokens, cut.tokens)),
                   tensor_map(driver(), map_of_lines(p, kStepCodes, kTileLines)),
                   p,
                   {},
                   weights.rule,
                   weights.missing,
                   scales,
                   uint32_t(line_tiles(p)),
                   uint32_t(cut.sharing),
                   uint32_t(parts_of_numbers(p.a)),
                   false,
                   false};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.set_tokens(uint32_t(cut.tokens));
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
    const int64_t blocks = std::min(tiles * cut.sharing, blocks_at_most(context, p));
    launch(context, kernels, weights.kind, "wgmma_bf16_sm90", dim3(unsigned(blocks)), call.stream, args,
           scales.bytes ? Start::WithPrevious : Start::AfterAll, uint32_t(cut.sharing));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_widen(context);
    load_arrange_scales();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation wgmma_bf16_sm90{
    .name = "wgmma_bf16_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
