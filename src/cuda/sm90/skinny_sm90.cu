// skinny_sm90: exact products of few rows with quantized weights on Hopper, dense or grouped, bound by reading the weights
// once.
//
// The product is made transposed: weights are the side of 64 of the instruction, tokens the side that may be 8. A block has
// 128 lines of weights, up to 64 tokens of a group, and all of the contraction or, in a cluster, a share of it:
//
//     warps 0..7    16 lines of weights each: from memory to registers, some steps of 128 codes ahead; there to BF16
//                   (skinny_weights.cuh); multiplied from there
//     thread 0      also loads tokens through a ring of stages; a pass has brought them into order (skinny_tokens.h)
//
//     sums          to shared memory; each block of a cluster adds up those of some tokens, block after block, and
//                   writes them
//
// Bytes: the weights of the groups that have tokens, once for every 64 tokens of a group.
#include <algorithm>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/skinny_consumers.cuh"
#include "cuda/sm90/skinny_output.cuh"
#include "cuda/sm90/weight_kind.h"
#include "dispatch/choice.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::skinny;

template <Weights kind, int columns>
__device__ __forceinline__ void multiply_tile(const Arguments& args, const Tile& tile, Shared& shared) {
    Consumer<kind, columns> consumer{args, tile, shared, weight_reader(args, tile), {}};
    consumer.multiply_share();
    __syncthreads();  // all have left the tokens, which the sums overwrite
    consumer.store_sums();
}

template <Weights kind, int tokens>
__global__ void __launch_bounds__(kThreads, 2) skinny_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(128) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    {
        Tile found;
        if (!find_tile(args, shared, found)) return;  // all blocks of the cluster
        if (threadIdx.x == 0) shared.tile = found;
    }
    const Tile& tile = shared.tile;
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kWarps);
        publish_barriers();
    }
    __syncthreads();
    if constexpr (tokens == kFewTokens) {
        if (tile.eights == 1)
            multiply_tile<kind, 8>(args, tile, shared);
        else
            multiply_tile<kind, 16>(args, tile, shared);
    } else {
        if (tile.eights <= 4)
            multiply_tile<kind, 32>(args, tile, shared);
        else
            multiply_tile<kind, 64>(args, tile, shared);
    }
    if (args.cluster > 1)
        sync_cluster();
    else
        __syncthreads();
    write_tokens<kind>(args, tile, shared);
    if (args.cluster > 1) sync_cluster();  // the others may still read this block's sums
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// Names what a kernel is compiled for: weights, and tokens of a tile.
struct Key {
    Weights kind;
    int tokens;
    bool operator==(const Key&) const = default;
};

template <Weights kind, int tokens>
constexpr KernelEntry<Key, Arguments> entry() {
    return {{kind, tokens}, skinny_sm90_kernel<kind, tokens>, kThreads, sizeof(Shared)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Weights::Bits4, kFewTokens>(),  entry<Weights::Nvfp4, kFewTokens>(),  entry<Weights::Bits6, kFewTokens>(),
    entry<Weights::Bits8, kFewTokens>(),  entry<Weights::Bits4, kMostTokens>(), entry<Weights::Nvfp4, kMostTokens>(),
    entry<Weights::Bits6, kMostTokens>(), entry<Weights::Bits8, kMostTokens>(),
};

Reason needs_operands(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type == ScaleType::F32 && !has_line_scales(*operand))
            return "needs FP8 with scaling ROW or TENSOR, found scales of 128";
    if (p.b.scale_type == ScaleType::None)
        return [format = p.b.format] { return format_text("needs b quantized, found %s", find_format(format)->name); };
    if (p.a.scale_type == ScaleType::None && p.a.format != MXQ_FORMAT_BF16)
        return [format = p.a.format] {
            return format_text("needs a in BF16 or quantized, found %s", find_format(format)->name);
        };
    const int64_t unit = p.b.bits == 6 ? 8 : 16;
    if (reinterpret_cast<uintptr_t>(p.b.codes) % uintptr_t(unit) != 0 || p.b.line_bytes % unit != 0 || p.k % kLaneCodes != 0)
        return [unit, bytes = p.b.line_bytes, k = p.k] {
            return format_text(
                "needs lines of b at multiples of %lld bytes and whole blocks of 32, found %lld bytes and %lld codes",
                (long long)unit, (long long)bytes, (long long)k);
        };
    return {};
}

// Returns the tokens of a tile: those of most groups are to fit, and few are multiplied without warps that wait for each
// other.
int32_t tile_tokens(const GemmProblem& p) {
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    return 3 * p.m <= 2 * kFewTokens * groups ? kFewTokens : kMostTokens;
}

// Returns the tiles of tokens, at most.
int64_t token_tiles(const GemmProblem& p) {
    const int64_t tokens = tile_tokens(p);
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tokens) : ceil_div(p.m, tokens);
}

Reason needs_sizes(const GemmProblem& p) {
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.sm_count > 0) return "needs all multiprocessors, found a limit";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    if (p.m > kMostTokens * groups)
        return [m = p.m, groups] {
            return format_text("needs at most %d rows a group, found %.1f on average", kMostTokens,
                               double(m) / double(groups));
        };
    if (double(token_tiles(p)) * double(ceil_div(p.n, int64_t(kLines))) * kMostCluster > 2147483647.0)
        return "needs at most 2^28 tiles of 16 rows and 128 columns";
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, token_bytes(p), nullptr};
}

// Returns how many blocks share the contraction of a tile. Shares that are not short let the last blocks of a call not run
// alone for long; short ones pay where multiprocessors have nothing to do otherwise.
uint32_t cluster_for(const Context& context, const GemmProblem& p, int64_t chunks, int64_t weight_tiles) {
    constexpr int64_t short_share = 6, long_share = 20;
    const int64_t groups = p.grouping == Grouping::Rows ? std::min<int64_t>(p.groups.count, p.m) : 1;
    const int64_t blocks = std::max<int64_t>(groups, ceil_div(p.m, int64_t(tile_tokens(p)))) * weight_tiles;
    const int64_t all = context.cuda->multiprocessors;
    uint32_t cluster = 1;
    while (cluster < kMostCluster && blocks * cluster < 4 * all &&
           chunks / (2 * cluster) >= (2 * blocks * cluster <= all ? short_share : long_share))
        cluster *= 2;
    return cluster;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    if (token_tiles(p) == 0) return;
    const WeightRule weights = weight_rule(p.b);
    Arguments args{
        p, {}, weights.rule, weights.missing, static_cast<const uint8_t*>(call.workspace), uint32_t(tile_tokens(p)), 0, 0, 1,
        is_block_scaled(p.b)};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = kTokenRows;
    args.units.at[kColumnwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_tokens));
    args.weight_tiles = uint32_t(ceil_div(p.n, int64_t(kLines)));
    args.chunks = uint32_t(ceil_div(p.k, int64_t(kChunkCodes)));
    args.cluster = cluster_for(context, p, args.chunks, args.weight_tiles);
    prepare_tokens(context, p, tile_tokens(p), p.b.bits == 4, static_cast<uint8_t*>(call.workspace), call.stream);
    launch(context, kernels, Key{weights.kind, tile_tokens(p)}, "skinny_sm90",
           dim3(unsigned(token_tiles(p) * args.weight_tiles * args.cluster)), call.stream, args, Start::WithPrevious,
           args.cluster);
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_prepare_tokens();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation skinny_sm90{.name = "skinny_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
