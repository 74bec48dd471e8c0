// splitk_sm90: exact products of few rows with quantized weights on Hopper, without groups, the contraction split between
// the blocks of a cluster.
//
// The product is made transposed, so that weights are the operand that the tensor cores read from registers. A tile is 128
// lines of weights and up to 128 tokens, and each block of its cluster has a part of the contraction and nothing else to do:
//
//     warps 0, 1     ask for all that fits into shared memory at once (splitk_tiles.cuh)
//     warps 4..      decode and multiply; then they add up what the blocks have of the tile (splitk_consumers.cuh)
//
// One launch, no pass over weights or scales. Bytes: weights once, tokens once for every tile of lines.
//
// F16 tokens are two BF16 numbers each, as a pass leaves them: half of a tile's tokens are the high parts of up to 64 rows,
// the other half their low parts, and the sums of both are added up in the end.
#include <algorithm>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/splitk_consumers.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::splitk;

template <int tokens>
constexpr int kThreads = kWarpgroup + 32 * kConsumerWarps<tokens>;
// A block of 640 threads starts with 96 registers each, 65536 / 640 in eights, one of 384 with 168; the consumers get what
// the first warpgroup gives back.
constexpr int kProducerRegisters = 32;
template <int tokens>
constexpr int kConsumerRegisters = kHalves<tokens> == 2 ? 112 : 232;

template <Weights kind, int tokens>
__global__ void __launch_bounds__(kThreads<tokens>, 1) splitk_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<kind, tokens>*>(memory);
    const bool scaled = args.problem.b.scale_type != ScaleType::F32;
    if (threadIdx.x == 0) {
        prefetch_map(args.codes);
        prefetch_map(args.tokens);
        for (Barrier& barrier : shared.full) init_barrier(barrier, scaled ? 1 + 32 : 1);  // a thread, and a warp's lanes
        for (Barrier& barrier : shared.free) init_barrier(barrier, kLineWarps);
        publish_barriers();
    }
    if (threadIdx.x == 32) shared.tile = bf16::find_tile(args, cluster_index());
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        if (threadIdx.x / 32 == 0 && elect_lane()) load_operands(args, shared);
        if (threadIdx.x / 32 == 1 && scaled) load_scales(args, shared);
    } else {
        take_registers<kConsumerRegisters<tokens>>();
        const uint32_t warp = bf16::consumer_warp();
        Consumer<kind, tokens> consumer{
            args, shared, warp / kLineWarps, warp % kLineWarps * kWarpLines + threadIdx.x % 32 / 4, {}};
        consumer.multiply_steps();
        write_tile(args, consumer, reinterpret_cast<Exchange<tokens>&>(shared.stages));
    }
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// Lists the kernels by weights and by tokens of a tile.
constexpr auto kernels = kernels_of(
    []<class Kind, class Tokens>(Kind, Tokens) {
        using Block = Shared<Kind::value, Tokens::value>;
        static_assert(sizeof(Block) <= 227 * 1024, "what a block may have");
        static_assert(sizeof(Exchange<Tokens::value>) <= sizeof(Block::stages),
                      "what is exchanged lies where the stages were");
        return kernel(splitk_sm90_kernel<Kind::value, Tokens::value>, kThreads<Tokens::value>, sizeof(Block));
    },
    Values<Weights::Bits4, Weights::Nvfp4, Weights::Bits6, Weights::Bits8>{}, Values<32, 64, 96, 128>{});

constexpr int64_t kMostTokens = 128;

// Returns the tokens of a tile, which has all of them, those of F16 in two parts.
int32_t tile_tokens(const GemmProblem& p) { return int32_t(round_up(p.m * parts_of_numbers(p.a), int64_t(32))); }

// Describes boxes of all tokens.
TileMap map_of_tile(const GemmProblem& p, const GemmOperand& a) {
    return map_of_tokens(a, tile_tokens(p) / parts_of_numbers(p.a));
}

int64_t line_tiles(const GemmProblem& p) { return ceil_div(p.n, int64_t(kTileLines)); }

// Returns how many blocks share a tile: as many as run at once, with two steps each at least.
int32_t sharing_of(const Context& context, const GemmProblem& p) {
    const int64_t all = context.cuda->multiprocessors, tiles = line_tiles(p);
    const int64_t blocks = p.sm_count > 0 ? std::min<int64_t>(p.sm_count, all) : all;
    const int64_t steps = ceil_div(p.k, int64_t(kStepCodes));
    int32_t sharing = 1;
    for (int32_t next = 2; next <= bf16::kMostSharing; next++)
        if (tiles <= bf16::clusters_at_once(blocks, next) && steps >= 2 * next) sharing = next;
    return sharing;
}

int64_t blocks_of(const Context& context, const GemmProblem& p) { return line_tiles(p) * sharing_of(context, p); }

Reason needs_sizes(const Context& context, const GemmProblem& p) {
    if (p.grouping != Grouping::None) return "needs a product without groups";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    if (const int64_t most = kMostTokens / parts_of_numbers(p.a); p.m > most)
        return [most, m = p.m] { return format_text("needs at most %lld rows, found %lld", (long long)most, (long long)m); };
    constexpr int64_t most = int64_t(1) << 27;  // so that places of steps stay within 32 bits
    if (p.n >= most || p.k >= most) return "needs less than 2^27 columns of D and codes of a line";
    const int64_t blocks = blocks_of(context, p);
    if (p.sm_count > 0 && blocks > p.sm_count)
        return [blocks, count = p.sm_count] {
            return format_text("needs %lld multiprocessors, one for each of its blocks, found %d allowed", (long long)blocks,
                               count);
        };
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    for (const TileMap& map : {map_of_tile(p, as_bf16(p, Side::A, workspace)), map_of_lines(p, kStepCodes, kTileLines)})
        if (!unmappable(map).empty())
            return [data = map.data, lines = map.strides[0]] {
                return format_text(
                    "needs a and b at multiples of 16 bytes, their lines as far apart, found one at %p with lines of %lld "
                    "bytes",
                    data, (long long)lines);
            };
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_lines_of_codes(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_words_of_scales(p.b); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(context, p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, is_bf16(p.a) ? 0 : widened_bytes(as_bf16(p, Side::A, nullptr)), nullptr};
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const int32_t tokens = tile_tokens(p), sharing = sharing_of(context, p);
    const GemmOperand a = as_bf16(p, Side::A, call.workspace);
    if (!is_bf16(p.a)) widen(context, p, Side::A, a, call.stream);
    const WeightRule weights = weight_rule(p.b);
    Arguments args{tensor_map(driver(), map_of_tile(p, a)),
                   tensor_map(driver(), map_of_lines(p, kStepCodes, kTileLines)),
                   p,
                   {},
                   weights.rule,
                   weights.missing,
                   {},
                   uint32_t(line_tiles(p)),
                   uint32_t(sharing),
                   uint32_t(parts_of_numbers(p.a)),
                   false,
                   has_shifted_scales(p.b)};
    args.units.set_tokens(uint32_t(tokens));
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
    launch(context, kernels, {weights.kind, tokens}, "splitk_sm90", dim3(unsigned(blocks_of(context, p))), call.stream, args,
           can_split(p.a) ? Start::WithPrevious : Start::AfterAll, uint32_t(sharing));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_widen(context);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation splitk_sm90{.name = "splitk_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
