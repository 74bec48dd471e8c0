// weights_sm90: products of activations with weights that are decoded in registers on Hopper, dense or grouped. Weights are
// FP8 with an fp32 scale for every 128 codes, or FP4 with a scale of blocks (MXFP4, NVFP4). A is BF16, or a pass makes it
// so.
//
// Computes the product transposed: weights are the operand that the tensor cores read from registers. A persistent CTA of
// 384 threads takes tiles of 128 or 256 rows of weights and 16 to 128 tokens (weights_tiles.cuh):
//
//     warps 0..3           load codes, find tiles, load scales and tokens (weights_producer.cuh)
//     warps 4..7, 8..11    64 rows and all tokens each: decode and multiply FP8, and promote sums by their scales
//                          (weights_blocks.cuh), or FP4 (weights_scaled.cuh), and write D (weights_output.cuh)
//
// Two CTAs with tiles of up to 64 tokens run on an SM. Where tiles are few, the CTAs of a cluster split the contraction of
// one. Reads weights once for each tile of tokens, and tokens once for each tile of weights. FP4 weights take tokens that a
// pass has arranged (weights_tokens.h).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/sm90/weights_blocks.cuh"
#include "cuda/sm90/weights_ordered.h"
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
                                                              Shared<Weights::Bits8, tokens, 1>& shared) {
    const uint32_t line = bf16::consumer_warp() * kWarpLines + threadIdx.x % 32 / 4;
    return {args, shared, place_in_lines<kLineBytes>(line, 0) + threadIdx.x % 4 * 2, {}, {}, {}};
}
template <Weights kind, int tokens, int halves>
__device__ __forceinline__ ScaledConsumer<kind, tokens, halves> consumer_of(const Arguments& args,
                                                                            Shared<kind, tokens, halves>& shared) {
    return {args, shared, {}, {}};
}

template <Weights kind, int tokens, int halves>
__device__ __forceinline__ void consume(const Arguments& args, Shared<kind, tokens, halves>& shared) {
    constexpr int out_tokens = Shared<kind, tokens, halves>::kOutTokens;
    auto consumer = consumer_of(args, shared);
#pragma unroll 1
    for (Ring<kSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Tile& tile = shared.tiles[slots.at()];
        if (!tile.exists) return;
        consumer.multiply_tile(tile);
        const uint32_t repair = consumer.lines_to_repair();
        if (halves == 1 && args.sharing > 1)
            write_shared_tile<kind, out_tokens>(args, reinterpret_cast<Exchange<out_tokens>&>(shared.stages), tile,
                                                consumer.totals_of(0), repair, shared.out);
        else
#pragma unroll
            for (int half = 0; half < halves; half++)
                write_own_lines<kind, out_tokens, tokens == kFewestTokens>(
                    args, tile, bf16::first_line_of(tile) + half * kTileLines, consumer.totals_of(half), repair, shared.out);
        if (block_of_cluster() == 0)
#pragma unroll 1
            for (int half = 0; half < halves; half++)
                clear_padding(args, tile, bf16::first_line_of(tile) + half * kTileLines, out_tokens);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
}

template <Weights kind, int tokens, int halves>
__global__ void __launch_bounds__(kThreads, ctas_of_sm(tokens, halves))
    weights_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<kind, tokens, halves>*>(memory);
    if (threadIdx.x == 0) {
        prefetch_map(args.codes);
        prefetch_map(args.tokens);
        for (Barrier& barrier : shared.full) init_barrier(barrier, 2 + 32);  // two threads, and a warp's lanes
        for (Barrier& barrier : shared.free) init_barrier(barrier, kConsumerWarps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 3 + kConsumerWarps);
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters<Shared<kind, tokens, halves>::kCtas>>();
        if (read_thread() / 32 == 0) load_codes(args, shared);
        if (read_thread() / 32 == 1) find_tiles(args, shared);
        if (read_thread() / 32 == 2) load_scales(args, shared);
        if (read_thread() / 32 == 3) load_tokens(args, shared);
    } else {
        take_registers<kConsumerRegisters<Shared<kind, tokens, halves>::kCtas>>();
        consume(args, shared);
    }
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// Names what a kernel is compiled for: weights, tokens of a tile, and how many times 128 lines.
struct Key {
    Weights kind;
    int tokens, halves;
    bool operator==(const Key&) const = default;
};

template <Weights kind, int tokens, int halves>
constexpr KernelEntry<Key, Arguments> entry() {
    using Block = Shared<kind, tokens, halves>;
    static_assert(sizeof(Block) <= Block::kMostBytes, "what a CTA may have");
    static_assert(halves > 1 || sizeof(Exchange<Block::kOutTokens>) <= sizeof(Block::stages),
                  "what is exchanged lies where the stages were");
    return {{kind, tokens, halves}, weights_sm90_kernel<kind, tokens, halves>, kThreads, sizeof(Block)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Weights::Bits8, kLeastTokens, 1>(), entry<Weights::Bits8, kSomeTokens, 1>(),
    entry<Weights::Bits8, kMostTokens, 1>(),    entry<Weights::Bits4, kFewestTokens, 1>(),
    entry<Weights::Bits4, kLeastTokens, 1>(),   entry<Weights::Bits4, kSomeTokens, 1>(),
    entry<Weights::Bits4, kMostTokens, 1>(),    entry<Weights::Nvfp4, kFewestTokens, 1>(),
    entry<Weights::Nvfp4, kLeastTokens, 1>(),   entry<Weights::Nvfp4, kSomeTokens, 1>(),
    entry<Weights::Nvfp4, kMostTokens, 1>(),    entry<Weights::Bits4, kMostTokens, 2>(),
    entry<Weights::Nvfp4, kMostTokens, 2>(),
};

// Returns the rows of A, those of F16 counted twice, of groups on average.
int64_t rows_of(const GemmProblem& p) {
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    return ceil_div(p.m * parts_of_numbers(p.a), groups);
}

int32_t tokens_of(const GemmProblem& p) {
    const int32_t fewest = p.b.bits == 4 ? kFewestTokens : kLeastTokens;
    return weights::tokens_of(rows_of(p), p.grouping == Grouping::Rows, fewest);
}

// Returns the rows of A that a tile has.
int32_t tile_rows(const GemmProblem& p) { return tokens_of(p) / parts_of_numbers(p.a); }

int64_t line_tiles(const GemmProblem& p, int64_t halves) { return ceil_div(p.n, halves * kTileLines); }

// Returns the tiles of a product, of so many times 128 lines, at most.
int64_t tiles_of(const GemmProblem& p, int64_t halves) {
    const int64_t rows = tile_rows(p);
    const int64_t of_tokens =
        p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, rows) : ceil_div(p.m, rows);
    return of_tokens * line_tiles(p, halves);
}

int64_t multiprocessors_of(const Context& context, const GemmProblem& p) {
    const int64_t all = context.cuda->multiprocessors;
    return p.sm_count > 0 ? std::min<int64_t>(p.sm_count, all) : all;
}

// Returns whether weights are FP8 with an fp32 scale for 128 codes, or else have scales of blocks.
bool has_fp8_weights(const GemmProblem& p) { return has_scales_of_128(p.b) && p.b.element == Element::E4M3; }

// Returns how many CTAs may run at once: each may have an SM of its own, where SMs are limited.
int64_t ctas_at_once(const Context& context, const GemmProblem& p, int32_t halves) {
    return multiprocessors_of(context, p) * (p.sm_count > 0 ? 1 : ctas_of_sm(tokens_of(p), halves));
}

// Tiles of FP4 weights and 128 tokens have 256 lines where each SM gets many: an H200, 64 rows of each group, 128 groups of
// (5760,2880) 905, 883 us, but 32 groups 237, 249.
Cut cut_of(const Context& context, const GemmProblem& p) {
    if (p.row_invariant) return {tokens_of(p), 1};  // sharing is another order of sums
    const bool are_large = p.b.bits == 4 && tokens_of(p) == kMostTokens;
    if (are_large && tiles_of(p, 2) >= 16 * multiprocessors_of(context, p)) return {kMostTokens, 1, 2};
    return weights::cut_of(tiles_of(p, 1), ceil_div(p.k, int64_t(kBlockNumbers)), tokens_of(p),
                           {multiprocessors_of(context, p), ctas_at_once(context, p, 1)});
}

// Returns whether a kernel of weights_ordered.cu multiplies. FP8's tiles of this file have the same sums where no CTAs share
// them, and are faster where there are many.
bool is_ordered(const Context& context, const GemmProblem& p) {
    if (!p.row_invariant || !has_fp8_weights(p)) return p.row_invariant;
    return 2 * tiles_of(p, 1) <= multiprocessors_of(context, p);
}

// Returns whether rows are the same in any batch: MXFP8 is taken for that alone.
bool keeps_rows(const GemmProblem&) { return true; }

Reason needs_operands(const GemmProblem& p) {
    const bool is_fp4 = is_block_scaled(p.b) && p.b.bits == 4, is_mxfp8 = is_block_scaled(p.b) && p.b.bits == 8;
    if (!has_fp8_weights(p) && !is_fp4 && !(is_mxfp8 && p.row_invariant))
        return [format = p.b.format] {
            return format_text(
                "needs b in MXFP4, NVFP4 or FP8 E4M3 with scales of 128, found %s of another scaling or format",
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
    return map_of_lines(p, step_bytes(p.b.bits, tokens_of(p)) * 8 / p.b.bits, kTileLines);
}

// Says where the tokens of a product lie in its workspace: behind an A that a pass makes BF16 those that another one
// arranges.
struct Tokens {
    GemmOperand numbers, of_tiles;
    uint64_t bytes;
};

Tokens tokens_at(const GemmProblem& p, void* workspace) {
    if (p.b.bits == 8 || p.row_invariant) {
        const GemmOperand numbers = as_bf16(p, Side::A, workspace);
        return {numbers, numbers, is_bf16(p.a) ? 0 : widened_bytes(numbers)};
    }
    const bool is_plain = is_bf16(p.a) || can_split(p.a);
    const GemmOperand numbers = is_plain ? p.a : as_bf16(p, Side::A, workspace);
    const uint64_t before = is_plain ? 0 : widened_bytes(numbers);
    return {numbers, arranged_tokens(numbers, static_cast<uint8_t*>(workspace) + before),
            before + arranged_token_bytes(numbers)};
}

Reason needs_sizes(const GemmProblem& p) {
    constexpr int64_t most = int64_t(1) << 31;
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    if (p.a.lines >= most || p.n >= most || p.k >= most) return "needs less than 2^31 rows, columns and codes of a line";
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    for (const TileMap& map : {map_of_tokens(tokens_at(p, workspace).of_tiles, tile_rows(p)), map_of_codes(p)})
        if (auto reason = needs_mappable(map); !reason.empty()) return reason;
    constexpr double least_part = 8;  // of a tile: those of weights_ordered.cu may be so much smaller
    if (const double tiles = double(tiles_of(p, 1)) * least_part; tiles > 4294000000.0)  // turns are counted in 32 bits
        return [tiles] { return format_text("needs less than 2^32 tiles of D, found %.0f", tiles); };
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, tokens_at(p, nullptr).bytes, nullptr};
}

Arguments arguments_of(const GemmProblem& p, const GemmOperand& tokens, const Cut& cut) {
    const WeightRule weights = weight_rule(p.b);
    Arguments args{};
    args.tokens = tensor_map(driver(), map_of_tokens(tokens, tile_rows(p)));
    args.codes = tensor_map(driver(), map_of_codes(p));
    args.problem = p;
    args.rule = weights.rule;
    args.missing = weights.missing;
    args.shifted = has_shifted_scales(p.b);
    args.tile_tokens = uint32_t(tile_rows(p));
    args.line_tiles = uint32_t(line_tiles(p, cut.halves));
    args.sharing = uint32_t(cut.sharing);
    args.parts = uint32_t(parts_of_numbers(p.a));
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_tokens));
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
    return args;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    if (is_ordered(context, p)) {
        const GemmOperand tokens = tokens_at(p, call.workspace).numbers;
        if (!is_bf16(p.a)) widen(context, p, Side::A, tokens, call.stream);
        return run_ordered(context, p, tokens, call.stream);
    }
    const Cut cut = cut_of(context, p);
    const int64_t tiles = tiles_of(p, cut.halves);
    if (tiles == 0) return;
    const Tokens tokens = tokens_at(p, call.workspace);
    const bool arranges = p.b.bits == 4;
    if (!is_bf16(p.a) && !(arranges && can_split(p.a))) widen(context, p, Side::A, tokens.numbers, call.stream);
    if (arranges) arrange_tokens(context, tokens.numbers, tokens.of_tiles, call.stream);
    const int64_t ctas = cut.sharing > 1 ? tiles * cut.sharing : std::min(tiles, ctas_at_once(context, p, cut.halves));
    launch(context, kernels, Key{weight_rule(p.b).kind, cut.tokens, cut.halves}, "weights_sm90", dim3(unsigned(ctas)),
           call.stream, arguments_of(p, tokens.of_tiles, cut), arranges ? Start::WithPrevious : Start::AfterAll,
           uint32_t(cut.sharing));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_widen(context);
    load_arrange_tokens();
    load_ordered();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation weights_sm90{
    .name = "weights_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare, .keeps_rows = keeps_rows};

}  // namespace mxq::cuda
