// weights_fp8_sm90: products of few FP8 or MXFP8 activations with MXFP4 weights on Hopper's FP8 tensor cores, dense or
// grouped. No operand is rounded: scales multiply sums of 32 products, or are powers of two that E4M3 has room for.
//
// Computes the product transposed: weights are the operand that the tensor cores read from registers. A persistent CTA of
// 384 threads takes tiles of 128 rows of weights and 16 to 144 tokens (weights_fp8_tiles.cuh):
//
//     warps 0..3           load codes, find tiles, load scales (weights_producer.cuh) and tokens (weights_fp8_producer.cuh)
//     warps 4..7, 8..11    64 rows and all tokens each: decode, multiply, promote sums of 32 products, or of 128
//                          (weights_fp8_consumers.cuh, weights_fp8_folded.cuh), and write D (weights_output.cuh)
//
// Two CTAs with tiles of up to 32 tokens run on an SM. Where tiles are few, the CTAs of a cluster split the contraction of
// one. Bytes: the weights once for each tile of tokens. A pass arranges the tokens (weights_fp8_tokens.h).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/sm90/weights_fp8_consumers.cuh"
#include "cuda/sm90/weights_fp8_folded.cuh"
#include "cuda/sm90/weights_fp8_producer.cuh"
#include "cuda/sm90/weights_host.cuh"
#include "cuda/sm90/weights_output.cuh"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::weights;

template <int ctas>
constexpr int kStartRegisters = 65536 / (kThreads * ctas) / 8 * 8;
template <int ctas>
constexpr int kProducerRegisters = ctas == 1 ? 40 : 32;
template <int ctas>
constexpr int kConsumerRegisters = (3 * kStartRegisters<ctas> - kProducerRegisters<ctas>) / 2 / 8 * 8;

template <class Block>
using ConsumerOf = std::conditional_t<Block::kFolded, FoldedConsumer<Block>, Fp8Consumer<Block>>;
template <class Block>
__device__ __forceinline__ void consume(const Fp8Arguments& args, Block& shared) {
    ConsumerOf<Block> consumer{args, shared};
    const auto slots = [&]() -> Ring<kSlots>& { return shared.slots[bf16::consumer_warp()]; };
    if (read_thread() % 32 == 0) slots() = {};
    __syncwarp();
#pragma unroll 1
    while (true) {
        wait(shared.tile_full[slots().at()], slots().parity());
        if (!shared.tiles[slots().at()].exists) return;
        consumer.multiply_tile(shared.tiles[slots().at()]);
        const Tile& tile = shared.tiles[slots().at()];
        finish_tile<Block::kKind, Block::kTokens == kFewestTokens>(args, shared, tile, consumer,
                                                                   consumer.lines_to_repair(tile));
        __syncwarp();
        if (read_thread() % 32 == 0) {
            arrive(shared.tile_free[slots().at()]);
            slots().next();
        }
        __syncwarp();
    }
}

template <class Block>
__global__ void __launch_bounds__(kThreads, Block::kCtas)
    weights_fp8_sm90_kernel(const __grid_constant__ Fp8Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Block*>(memory);
    if (threadIdx.x == 0) {
        prefetch_map(args.codes);
        prefetch_map(args.tokens);
        for (Barrier& barrier : shared.full) init_barrier(barrier, kStageArrivals<Block>);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kConsumerWarps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 3 + kConsumerWarps);
        publish_barriers();
    }
    if (Block::kFolded && threadIdx.x / 16 == 2) fill_folded_codes(shared.folded, threadIdx.x % 16);
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters<Block::kCtas>>();
        if (read_thread() / 32 == 0) load_codes(args, shared);
        if (read_thread() / 32 == 1) find_tiles(args, shared);
        if (read_thread() / 32 == 2) load_block_scales(args, shared);
        if (read_thread() / 32 == 3) load_fp8_tokens(args, shared);
    } else {
        take_registers<kConsumerRegisters<Block::kCtas>>();
        consume(args, shared);
    }
}

// ---- The implementation ----------------------------------------------------------------------------------------------

constexpr auto kernel_for = []<class Tokens, class Scales>(Tokens, Scales) {
    using Block = Fp8Shared<Tokens::value, Scales::value>;
    static_assert(sizeof(Block) <= Block::kMostBytes, "what a CTA may have");
    static_assert(sizeof(Exchange<Block::kOutTokens>) <= sizeof(Block::stages),
                  "what is exchanged lies where the stages were");
    return kernel(weights_fp8_sm90_kernel<Block>, kThreads, sizeof(Block));
};

// Lists the kernels by tokens of a tile and by the scales of these tokens.
constexpr auto kernels =
    join(kernels_of(kernel_for, Values<kFewestTokens, kLeastTokens, kSomeTokens>{},
                    Values<TokenScales::None, TokenScales::Of128, TokenScales::Of32>{}),
         kernels_of(kernel_for, Values<kFoldedTokens>{}, Values<TokenScales::None, TokenScales::Of128>{}));

// Returns the tokens of a tile: as many as a product has, or most groups.
int32_t tokens_of(const GemmProblem& p) {
    const bool grouped = p.grouping == Grouping::Rows;
    const int64_t rows = ceil_div(p.m, grouped ? std::max<int64_t>(1, p.groups.count) : 1);
    const int32_t tokens = weights::tokens_of(rows, grouped, kFewestTokens);
    if (token_scales_of(p.a) == TokenScales::Of32) return std::min(tokens, kSomeTokens);
    return tokens == kMostTokens ? kFoldedTokens : tokens;
}

// Returns the rows of A of a tile, fewer than the kernel has tokens where those of a product make equal tiles.
int32_t tile_rows(const GemmProblem& p) {
    const int32_t tokens = tokens_of(p);
    if (p.grouping == Grouping::Rows || tokens < kFoldedTokens) return tokens;
    return rows_of_equal_tiles(p.m, tokens);
}

int32_t ctas_of_sm(const GemmProblem& p) { return fp8_ctas_of_sm(tokens_of(p), token_scales_of(p.a)); }

int64_t blocks_of(const GemmProblem& p) { return ceil_div(p.k, int64_t(2 * kBlockNumbers)); }

Cut cut_of(const Context& context, const GemmProblem& p) {
    return weights::cut_of(tiles_of(p, tile_rows(p)), blocks_of(p), tokens_of(p), room_of(context, p, ctas_of_sm(p)));
}

Ctas ctas_of(const Context& context, const GemmProblem& p, const Cut& cut) {
    return weights::ctas_of(p, cut, tiles_of(p, tile_rows(p)), blocks_of(p), room_of(context, p, ctas_of_sm(p)).ctas);
}

// Returns whether the scales of A lie row by row.
bool has_scales_of_rows(const GemmOperand& a) {
    return token_scales_of(a) == TokenScales::None ||
           (a.layout.tile_rows == 1 && !a.layout.swizzled && a.units.codes == a.units.scales);
}

Reason needs_operands(const GemmProblem& p) {
    if (!is_block_scaled(p.b) || p.b.bits != 4 || p.b.scale_type != ScaleType::E8M0 || p.b.across)
        return [format = p.b.format] {
            return format_text("needs b in MXFP4, K-major, found %s", find_format(format)->name);
        };
    if (p.a.element != Element::E4M3 || p.a.across)
        return [format = p.a.format] {
            return format_text("needs a in FP8 or MXFP8 E4M3, K-major, found %s", find_format(format)->name);
        };
    if (!has_scales_of_rows(p.a)) return "needs scales of a row by row, found swizzled ones or those of 128 rows";
    if (p.exact_products) return "needs sums that FP8 tensor cores may round, found exact products asked for";
    return needs_words_of_scales(p.b);
}

TileMap map_of_fp8_tokens(const Fp8Tokens& tokens, int32_t rows) {
    return {tokens.codes,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            3,
            {tokens.line_bytes, tokens.lines, 1},
            {tokens.line_bytes, tokens.lines * tokens.line_bytes},
            {kBlockNumbers, rows, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

TileMap map_of_codes(const GemmProblem& p) { return map_of_lines(p, 2 * kBlockNumbers, kTileLines); }

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p, double(tiles_of(p, tile_rows(p)))); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_mappable(map_of_codes(p)); !reason.empty()) return {reason, 0, nullptr};
    return {{}, fp8_token_bytes(p.a) + ctas_of(context, p, cut_of(context, p)).bytes, nullptr};
}

Fp8Arguments arguments_of(const GemmProblem& p, const Fp8Tokens& tokens, const Cut& cut) {
    Fp8Arguments args{};
    fill_arguments(args, p, tile_rows(p), kTileLines, cut.sharing);
    args.tokens = tensor_map(driver(), map_of_fp8_tokens(tokens, fp8_rows_of_box(cut.tokens)));
    args.codes = tensor_map(driver(), map_of_codes(p));
    args.token_scales = tokens.scales;
    args.token_lines = uint32_t(tokens.lines);
    return args;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const Cut cut = cut_of(context, p);
    const Ctas ctas = ctas_of(context, p, cut);
    if (ctas.count == 0) return;
    const Fp8Tokens tokens = fp8_tokens(p.a, call.workspace);
    arrange_fp8_tokens(context, p.a, tokens, is_folded(cut.tokens, token_scales_of(p.a)), call.stream);
    Fp8Arguments args = arguments_of(p, tokens, cut);
    share_tiles(args, ctas, static_cast<uint8_t*>(call.workspace) + fp8_token_bytes(p.a));
    launch(context, kernels, {cut.tokens, token_scales_of(p.a)}, "weights_fp8_sm90", dim3(unsigned(ctas.count)), call.stream,
           args, Start::WithPrevious, uint32_t(cut.sharing));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_arrange_fp8_tokens();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_FP8_TENSOR_CORES; }

}  // namespace

const GemmImplementation weights_fp8_sm90{
    .name = "weights_fp8_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
