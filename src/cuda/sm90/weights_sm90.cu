// weights_sm90: products of activations with weights that are decoded in registers on Hopper, dense or grouped. Weights are
// MX or NVFP4, or FP8 with an fp32 scale for every 128 codes, for a line, or for all. A is BF16, or a pass makes it so.
//
// Computes the product transposed: weights are the operand that the tensor cores read from registers. A persistent CTA of
// 384 threads takes tiles of 128 rows of weights and 16 to 192 tokens (weights_tiles.cuh):
//
//     warps 0..3           load codes, find tiles, load scales and tokens (weights_producer.cuh)
//     warps 4..7, 8..11    64 rows and all tokens each: decode and multiply FP8 with scales of 128, and promote sums by
//                          these (weights_blocks.cuh), or others (weights_few.cuh, weights_scaled.cuh), and write D
//                          (weights_output.cuh)
//
// Two CTAs with tiles of up to 64 tokens run on an SM. Where tiles are few, the CTAs of a cluster split the contraction of
// one; else they share tiles of the last rounds (weights_schedule.cuh). Reads weights once for each tile of tokens, and
// tokens once for each tile of weights. A pass arranges the tokens of larger tiles, but for FP8 with scales of 128
// (weights_tokens.h).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/sm90/weights_blocks.cuh"
#include "cuda/sm90/weights_few.cuh"
#include "cuda/sm90/weights_host.cuh"
#include "cuda/sm90/weights_output.cuh"
#include "cuda/sm90/weights_producer.cuh"
#include "cuda/sm90/weights_scaled.cuh"
#include "cuda/sm90/weights_tokens.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::weights;

// A CTA starts with 168 registers a thread, or two with 80 each: 65536 by all threads, in eights. The consumers get what the
// first warpgroup gives back.
template <int ctas>
constexpr int kStartRegisters = 65536 / (kThreads * ctas) / 8 * 8;
template <int ctas>
constexpr int kProducerRegisters = ctas == 1 ? 40 : 32;
template <int ctas>
constexpr int kConsumerRegisters = (3 * kStartRegisters<ctas> - kProducerRegisters<ctas>) / 2 / 8 * 8;

template <int tokens>
__device__ __forceinline__ BlocksConsumer<tokens> consumer_of(const Arguments& args,
                                                              Shared<Weights::Fp8Blocks, tokens>& shared) {
    const uint32_t line = bf16::consumer_warp() * kWarpLines + threadIdx.x % 32 / 4;
    return {args, shared, place_in_lines<kLineBytes>(line, 0) + threadIdx.x % 4 * 2, {}, {}, {}};
}
template <Weights kind>
__device__ __forceinline__ FewConsumer<kind> consumer_of(const Arguments& args, Shared<kind, kFewestTokens>& shared) {
    return {args, shared, {}, {}};
}
template <Weights kind, int tokens>
__device__ __forceinline__ ScaledConsumer<kind, tokens> consumer_of(const Arguments& args, Shared<kind, tokens>& shared) {
    return {args, shared, {}, {}};
}

template <Weights kind, int tokens>
__device__ __forceinline__ void consume(const Arguments& args, Shared<kind, tokens>& shared) {
    auto consumer = consumer_of(args, shared);
#pragma unroll 1
    for (Ring<kSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Tile& tile = shared.tiles[slots.at()];
        if (!tile.exists) return;
        consumer.multiply_tile(tile);
        finish_tile<kind, tokens == kFewestTokens>(args, shared, tile, consumer, consumer.lines_to_repair());
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
}

template <Weights kind, int tokens>
__global__ void __launch_bounds__(kThreads, ctas_of_sm(tokens)) weights_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<kind, tokens>*>(memory);
    const bool loads_scales = shared.kCopiesScales || args.swizzled;
    if (threadIdx.x == 0) {
        prefetch_map(args.codes);
        prefetch_map(args.tokens);
        for (Barrier& barrier : shared.full) init_barrier(barrier, 2 + 32 * loads_scales);  // two threads, a warp's lanes
        for (Barrier& barrier : shared.free) init_barrier(barrier, kConsumerWarps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 2 + loads_scales + kConsumerWarps);
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters<Shared<kind, tokens>::kCtas>>();
        if (read_thread() / 32 == 0) load_codes(args, shared);
        if (read_thread() / 32 == 1) find_tiles(args, shared);
        if (loads_scales && read_thread() / 32 == 2) load_scales(args, shared);
        if (read_thread() / 32 == 3) load_tokens(args, shared);
    } else {
        take_registers<kConsumerRegisters<Shared<kind, tokens>::kCtas>>();
        consume(args, shared);
    }
}

// ---- The implementation ----------------------------------------------------------------------------------------------

constexpr auto kernel_for = []<class Kind, class Tokens>(Kind, Tokens) {
    using Block = Shared<Kind::value, Tokens::value>;
    static_assert(sizeof(Block) <= Block::kMostBytes, "what a CTA may have");
    static_assert(sizeof(Exchange<Block::kOutTokens>) <= sizeof(Block::stages),
                  "what is exchanged lies where the stages were");
    return kernel(weights_sm90_kernel<Kind::value, Tokens::value>, kThreads, sizeof(Block));
};

// Lists the kernels by weights and by tokens of a tile.
constexpr auto kernels =
    join(kernels_of(kernel_for, Values<Weights::Fp8Blocks>{}, Values<kLeastTokens, kSomeTokens, kMostTokens>{}),
         kernels_of(kernel_for, Values<Weights::Bits4, Weights::Nvfp4, Weights::Bits6, Weights::Bits8>{},
                    Values<kFewestTokens, kLeastTokens, kSomeTokens, kWideTokens>{}));

// Returns the rows of A, those of F16 counted twice, of groups on average.
int64_t rows_of(const GemmProblem& p) {
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    return ceil_div(p.m * parts_of_numbers(p.a), groups);
}

// Returns whether weights are FP8 with an fp32 scale for 128 codes.
bool has_fp8_blocks(const GemmProblem& p) { return has_scales_of_128(p.b) && p.b.element == Element::E4M3; }

Weights kind_of(const GemmProblem& p) { return has_fp8_blocks(p) ? Weights::Fp8Blocks : weight_rule(p.b).kind; }

// Returns whether groups have so many rows that tiles of 32 tokens are faster than those of 16: of MXFP4, and of NVFP4 with
// swizzled scales. An H200, 2026-11-30, (5760,2880) in 32 groups, MXFP4 with swizzled scales, 2 and 8 rows of each: 107, 146 us
// with tiles of 16, and 113, 124 with tiles of 32.
bool has_rows_of_groups(const GemmProblem& p) {
    constexpr int64_t few_rows = 6;
    const bool is_faster = p.b.bits == 4 && (p.b.scale_type == ScaleType::E8M0 || p.b.layout.swizzled);
    return p.grouping == Grouping::Rows && is_faster && rows_of(p) > few_rows;
}

// Returns the tokens of a tile, `fewest` to `most`, with which a contraction in pieces costs least: all have the same sums.
int32_t tokens_of_pieces(const GemmProblem& p, int32_t fewest, int32_t most) {
    constexpr int64_t multiprocessors = 132;
    int32_t best = most;
    int64_t least = INT64_MAX;
    for (int32_t tokens : {fewest, kLeastTokens, kSomeTokens, most}) {
        const Room room{multiprocessors, multiprocessors * ctas_of_sm(tokens)};
        const int64_t tiles = tiles_of(p, tokens / parts_of_numbers(p.a));
        const Pieces pieces = ctas_of_pieces(pieces_of(p.n, p.k, kTileLines), tokens, tiles, room.ctas).pieces;
        const Cut cut{tokens, int32_t(ceil_div(pieces.count, pieces.of_cta))};
        const int64_t cost = weights::cost_of(tiles, ceil_div(p.k, int64_t(kBlockNumbers)), cut, room);
        if (cost < least) best = tokens, least = cost;
    }
    return best;
}

// Returns the tokens of a tile, those of F16 counted twice. The copy engine brings those of tiles of 16 as they lie.
int32_t tokens_of(const GemmProblem& p) {
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    const bool has_few = !has_fp8_blocks(p) && !has_rows_of_groups(p) &&
                         unmappable(map_of_tokens(as_bf16(p, Side::A, workspace), 1)).empty();
    const int32_t fewest = has_few ? kFewestTokens : kLeastTokens, most = has_fp8_blocks(p) ? kMostTokens : kWideTokens;
    if (p.row_invariant && p.grouping == Grouping::None) return tokens_of_pieces(p, fewest, most);
    const int32_t tokens = weights::tokens_of(rows_of(p), p.grouping == Grouping::Rows, fewest);
    return tokens == kMostTokens ? most : tokens;
}

// Returns the rows of A of a box.
int32_t box_rows(const GemmProblem& p) {
    return parts_of_numbers(p.a) == 1 ? rows_of_box(tokens_of(p)) : tokens_of(p) / parts_of_numbers(p.a);
}

// Returns the rows of A that a tile has, fewer than it has room for where those of a product make equal tiles.
int32_t tile_rows(const GemmProblem& p) {
    const int32_t rows = tokens_of(p) / parts_of_numbers(p.a);
    return p.grouping == Grouping::Rows || tokens_of(p) < kWideTokens ? rows : rows_of_equal_tiles(p.m, rows);
}

Cut cut_of(const Context& context, const GemmProblem& p) {
    if (p.row_invariant) return {tokens_of(p), 1};  // sharing is another order of sums
    const Room room = room_of(context, p, ctas_of_sm(tokens_of(p)));
    return weights::cut_of(tiles_of(p, tile_rows(p)), ceil_div(p.k, int64_t(kBlockNumbers)), tokens_of(p), room);
}

Ctas ctas_of(const Context& context, const GemmProblem& p, const Cut& cut) {
    const int64_t numbers = step_bytes(kind_of(p), cut.tokens) * 8 / p.b.bits,
                  block = std::max<int64_t>(numbers, kBlockNumbers);
    return weights::ctas_of(p, cut, tiles_of(p, tile_rows(p)), ceil_div(p.k, block),
                            room_of(context, p, ctas_of_sm(cut.tokens)).ctas);
}

bool keeps_rows(const GemmProblem&) { return true; }

Reason needs_operands(const GemmProblem& p) {
    if (p.b.scale_type == ScaleType::None || (has_scales_of_128(p.b) && !has_fp8_blocks(p)))
        return [format = p.b.format] {
            return format_text("needs b quantized, and E4M3 where it has scales of 128, found %s",
                               find_format(format)->name);
        };
    if (auto reason = needs_words_of_scales(p.b); !reason.empty()) return reason;
    if (!can_be_bf16(p.a))
        return [format = p.a.format] {
            return format_text("needs a in BF16, F16 or quantized, without scales of 128, found %s",
                               find_format(format)->name);
        };
    return {};
}

// Describes boxes of the codes of a step.
TileMap map_of_codes(const GemmProblem& p) {
    return map_of_lines(p, step_bytes(kind_of(p), tokens_of(p)) * 8 / p.b.bits, kTileLines);
}

// Returns whether a pass arranges the tokens.
bool arranges(const GemmProblem& p) { return !has_fp8_blocks(p) && tokens_of(p) != kFewestTokens; }

// Says where the tokens of a product lie in its workspace: behind an A that a pass makes BF16 those that another one
// arranges.
struct Tokens {
    GemmOperand numbers, of_tiles;
    uint64_t bytes;
};

Tokens tokens_at(const GemmProblem& p, void* workspace) {
    if (!arranges(p)) {
        const GemmOperand numbers = as_bf16(p, Side::A, workspace);
        return {numbers, numbers, is_bf16(p.a) ? 0 : widened_bytes(numbers)};
    }
    const bool is_plain = is_bf16(p.a) || can_split(p.a);
    const GemmOperand numbers = is_plain ? p.a : as_bf16(p, Side::A, workspace);
    const uint64_t before = is_plain ? 0 : widened_bytes(numbers);
    return {numbers, arranged_tokens(numbers, static_cast<uint8_t*>(workspace) + before),
            before + arranged_token_bytes(numbers)};
}

Reason needs_maps(const GemmProblem& p) {
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    for (const TileMap& map : {map_of_tokens(tokens_at(p, workspace).of_tiles, box_rows(p)), map_of_codes(p)})
        if (auto reason = needs_mappable(map); !reason.empty()) return reason;
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p, double(tiles_of(p, tile_rows(p)))); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_maps(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, tokens_at(p, nullptr).bytes + ctas_of(context, p, cut_of(context, p)).bytes, nullptr};
}

Arguments arguments_of(const GemmProblem& p, const GemmOperand& tokens, const Cut& cut) {
    const WeightRule weights = weight_rule(p.b);
    Arguments args{};
    fill_arguments(args, p, tile_rows(p), kTileLines, cut.sharing);
    args.tokens = tensor_map(driver(), map_of_tokens(tokens, box_rows(p)));
    args.codes = tensor_map(driver(), map_of_codes(p));
    args.rule = weights.rule;
    args.missing = weights.missing;
    return args;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const Cut cut = cut_of(context, p);
    const Ctas ctas = ctas_of(context, p, cut);
    if (ctas.count == 0) return;
    const Tokens tokens = tokens_at(p, call.workspace);
    if (!is_bf16(p.a) && !(arranges(p) && can_split(p.a))) widen(context, p, Side::A, tokens.numbers, call.stream);
    if (arranges(p)) arrange_tokens(context, tokens.numbers, tokens.of_tiles, p.b.bits, call.stream);
    Arguments args = arguments_of(p, tokens.of_tiles, cut);
    share_tiles(args, ctas, static_cast<uint8_t*>(call.workspace) + tokens.bytes);
    launch(context, kernels, {kind_of(p), cut.tokens}, "weights_sm90", dim3(unsigned(ctas.count)), call.stream, args,
           arranges(p) ? Start::WithPrevious : Start::AfterAll, uint32_t(cut.sharing));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_widen(context);
    load_arrange_tokens();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation weights_sm90{
    .name = "weights_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare, .keeps_rows = keeps_rows};

}  // namespace mxq::cuda
