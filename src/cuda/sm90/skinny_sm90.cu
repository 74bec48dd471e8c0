// skinny_sm90: exact products of few rows with quantized weights on Hopper, dense or grouped, bound by reading the weights
// once.
//
// The product is made transposed: weights are the side of 16 or 64 of the instruction, tokens the side that may be 8. A tile
// is 256 lines of weights, up to 16 or 64 tokens of a group, and all of the contraction. One block a multiprocessor stays,
// and makes its share of all tiles (skinny_tiles.cuh):
//
//     warp 16        finds parts of tiles; one thread brings codes and tokens to a ring of stages (skinny_producer.cuh)
//     warps 0..15    16 lines of weights each: from a stage to registers, there to BF16 (skinny_weights.cuh),
//                    multiplied from there (skinny_consumers.cuh); sums to D, or to the block that has the end of the
//                    tile (skinny_output.cuh)
//     warp 17        tells that block that they are there
//
// Tiles of 16 tokens take them as they lie, quantized ones as a pass widens them; those of 64 as a pass brings them into
// order (skinny_tokens.h). F16 tokens are two BF16 numbers each, as the passes leave them: a tile has half as many, eight's
// high parts before their low ones, and the sums of both are added up in the end.
//
// Bytes: the weights of the groups that have tokens, once for every 64 tokens of a group.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/skinny_consumers.cuh"
#include "cuda/sm90/skinny_output.cuh"
#include "cuda/sm90/skinny_producer.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::skinny;

template <int columns, Weights kind, int tile_tokens>
__device__ __forceinline__ void make_part(const Arguments& args, const Tile& tile, Shared<kind, tile_tokens>& shared,
                                          Ring<Shared<kind, tile_tokens>::kStages>& ring) {
    Consumer<kind, tile_tokens, columns> consumer{args, shared, {}, {}};
    consumer.multiply_part(tile, ring);
    finish_part<kind, consumer.chunks>(args, tile, consumer.sums, shared.sums[read_thread() / 32], shared.left);
}

// Calls `take` with each part of the block. A warp calls it, and gives the slot of a part back after it.
template <Weights kind, int tile_tokens, class Take>
__device__ __forceinline__ void each_part(Shared<kind, tile_tokens>& shared, const Take& take) {
#pragma unroll 1
    for (Ring<kSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Tile& tile = shared.tiles[slots.at()];
        if (tile.steps == 0) return;
        take(tile);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
}

template <Weights kind, int tile_tokens>
__device__ __forceinline__ void consume(const Arguments& args, Shared<kind, tile_tokens>& shared) {
    constexpr int three_quarters = tile_tokens > kFewTokens ? tile_tokens / 4 * 3 : tile_tokens;
    Ring<Shared<kind, tile_tokens>::kStages> ring;
    each_part(shared, [&](const Tile& tile) {
        if (tile.eights * kTokenRows <= tile_tokens / 2)
            make_part<tile_tokens / 2>(args, tile, shared, ring);
        else if (tile_tokens > kFewTokens && tile.eights * kTokenRows <= three_quarters)
            make_part<three_quarters>(args, tile, shared, ring);
        else
            make_part<tile_tokens>(args, tile, shared, ring);
    });
}

template <Weights kind, int tile_tokens>
__global__ void __launch_bounds__(threads_of(tile_tokens), 1) skinny_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    if (threadIdx.x == 32) prefetch_map(args.codes);
    if (threadIdx.x == 64 && tile_tokens == kFewTokens) prefetch_map(args.tokens);
    auto& shared = *reinterpret_cast<Shared<kind, tile_tokens>*>(memory);
    constexpr uint32_t warps = Shared<kind, tile_tokens>::warps;
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, warps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, warps + 1);
        init_barrier(shared.left, warps);
        publish_barriers();
    }
    __syncthreads();
    const uint32_t warp = threadIdx.x / 32;
    if (warp < warps)
        consume(args, shared);
    else if (warp == warps)
        produce(args, shared);
    else
        each_part(shared, [&](const Tile& tile) {
            if (is_beginning(args, tile)) announce_part(args, shared.left);
        });
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
    static_assert(sizeof(Shared<kind, tokens>) <= 227 * 1024, "what a block may have");
    return {{kind, tokens}, skinny_sm90_kernel<kind, tokens>, threads_of(tokens), sizeof(Shared<kind, tokens>)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Weights::Bits4, kFewTokens>(), entry<Weights::Bits4, kManyTokens>(), entry<Weights::Bits4, kMostTokens>(),
    entry<Weights::Nvfp4, kFewTokens>(), entry<Weights::Nvfp4, kManyTokens>(), entry<Weights::Nvfp4, kMostTokens>(),
    entry<Weights::Bits6, kFewTokens>(), entry<Weights::Bits6, kManyTokens>(), entry<Weights::Bits6, kMostTokens>(),
    entry<Weights::Bits8, kFewTokens>(), entry<Weights::Bits8, kManyTokens>(), entry<Weights::Bits8, kMostTokens>(),
};

Reason needs_operands(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type == ScaleType::F32 && !has_line_scales(*operand))
            return "needs FP8 with scaling ROW or TENSOR, found scales of 128";
    if (p.b.scale_type == ScaleType::None)
        return [format = p.b.format] { return format_text("needs b quantized, found %s", find_format(format)->name); };
    if (p.a.scale_type == ScaleType::None && !can_be_bf16(p.a))
        return [format = p.a.format] {
            return format_text("needs a in BF16, F16 or quantized, found %s", find_format(format)->name);
        };
    return {};
}

// Returns the tokens of a tile, F16 counted twice: those of most groups are to fit, and few are multiplied without warps
// that wait for each other, where the copy engine can bring them as they lie. Without groups 64 tokens of (8192,8192) take
// 37 us so and 40 in tiles of 128, but of (4096,4096) 23 and 22, MXFP4 on an H200.
int32_t tile_tokens(const GemmProblem& p) {
    constexpr int64_t many_weights = 1 << 26;
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    const int64_t tokens = p.m * parts_of_numbers(p.a);
    const bool single = p.grouping == Grouping::None;  // groups differ in size
    const bool all_fit = single && tokens <= kFewTokens;
    const bool many_fit = single && tokens <= kManyTokens && p.n * p.k >= many_weights;
    if (3 * tokens > 2 * kManyTokens * groups && !many_fit) return kMostTokens;
    if (3 * tokens > 2 * kFewTokens * groups && !all_fit) return kManyTokens;
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as it will be
    if (!can_be_bf16(p.a)) return kManyTokens;
    return unmappable(map_of_tokens(as_bf16(p, Side::A, workspace), kTokenRows)).empty() ? kFewTokens : kManyTokens;
}

// Returns the rows of A that a tile has.
int32_t tile_rows(const GemmProblem& p) { return tile_tokens(p) / parts_of_numbers(p.a); }

// Returns the tiles of tokens, at most.
int64_t token_tiles(const GemmProblem& p) {
    const int64_t tokens = tile_rows(p);
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tokens) : ceil_div(p.m, tokens);
}

int64_t step_chunks(const GemmProblem& p) { return chunks_of_step(p.b.bits, tile_tokens(p)); }

TileMap map_of_codes(const GemmProblem& p) {
    const int32_t line_bytes = int32_t(step_chunks(p)) * kChunkCodes * p.b.bits / 8;
    return {p.b.codes,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            3,
            {ceil_div(p.k * p.b.bits, int64_t(8)), p.b.lines, p.b.matrices},
            {p.b.line_bytes, p.b.matrix_bytes},
            {line_bytes, lines_of(tile_tokens(p)), 1},
            line_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE};
}

int64_t weight_tiles(const GemmProblem& p) { return ceil_div(p.n, int64_t(lines_of(tile_tokens(p)))); }

Reason needs_sizes(const GemmProblem& p) {
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    if (const int32_t most = kMostTokens / parts_of_numbers(p.a); p.m > most * groups)
        return [most, m = p.m, groups] {
            return format_text("needs at most %d rows a group, found %.1f on average", most, double(m) / double(groups));
        };
    if (!unmappable(map_of_codes(p)).empty())
        return [data = p.b.codes, lines = p.b.line_bytes, matrices = p.b.matrix_bytes] {
            return format_text(
                "needs b at a multiple of 16 bytes, its lines and matrices as far apart, found it at %p with "
                "lines of %lld and matrices of %lld bytes",
                static_cast<const void*>(data), (long long)lines, (long long)matrices);
        };
    const double chunks = double(token_tiles(p)) * double(weight_tiles(p)) * double(ceil_div(p.k, int64_t(kChunkCodes)));
    if (chunks > 2147483647.0)
        return [chunks] { return format_text("needs at most 2^31 chunks of 128 codes, found %.0f", chunks); };
    return {};
}

// Says where in the workspace the kernel's memory lies, behind the tokens.
struct Workspace {
    uint64_t parts, flags, bytes;
};

int64_t steps(const GemmProblem& p) { return ceil_div(p.k, step_chunks(p) * kChunkCodes); }

unsigned blocks_of(const Context& context, const GemmProblem& p) {
    const int64_t all = context.cuda->multiprocessors, most = p.sm_count > 0 ? std::min<int64_t>(p.sm_count, all) : all;
    const int64_t shares = ceil_div(token_tiles(p) * weight_tiles(p) * steps(p), int64_t(kLeastShare));
    return unsigned(std::clamp<int64_t>(shares, 1, most));
}

bool widens_tokens(const GemmProblem& p) { return tile_tokens(p) == kFewTokens && !is_bf16(p.a); }

Workspace workspace_of(const Context& context, const GemmProblem& p) {
    uint64_t tokens = 0;
    if (widens_tokens(p)) tokens = widened_bytes(as_bf16(p, Side::A, nullptr));
    if (tile_tokens(p) != kFewTokens) tokens = token_bytes(p);
    tokens = uint64_t(round_up(int64_t(tokens), int64_t(kWorkspaceAlignment)));
    const uint64_t parts = blocks_of(context, p) * uint64_t(tile_tokens(p)) * lines_of(tile_tokens(p)) * sizeof(float);
    return {tokens, tokens + parts, tokens + parts + blocks_of(context, p) * warps_of(tile_tokens(p)) * sizeof(uint64_t)};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, workspace_of(context, p).bytes, nullptr};
}

int32_t block_of(const GemmProblem& p) { return p.b.scale_type == ScaleType::E4M3 ? 16 : 32; }

// Returns whether the scales of any four blocks that begin at a multiple of four lie one after the other, and those of the
// next 128 codes whole words behind them, all in whole aligned words of the tensor's memory.
bool has_adjacent_scales(const GemmProblem& p) {
    const ScaleLayout& layout = p.b.layout;
    if (layout.block != block_of(p)) return false;
    if (layout.swizzled) return true;
    const int64_t last_row = (p.b.lines - 1) / layout.tile_rows;
    const int64_t bytes = (p.b.matrices - 1) * layout.matrix_scales + last_row * layout.line_stride + layout.columns;
    return layout.column_stride == 1 && reinterpret_cast<uintptr_t>(p.b.scales) % 4 == 0 && bytes % 4 == 0;
}

// Returns a number that no other launch of this process has, and that no memory has by chance.
uint64_t next_mark() {
    static std::atomic<uint64_t> launches{uint64_t(std::chrono::steady_clock::now().time_since_epoch().count())};
    uint64_t mark = launches.fetch_add(0x9E3779B97F4A7C15ull);  // then mixed, so that near numbers have nothing in common
    mark = (mark ^ mark >> 30) * 0xBF58476D1CE4E5B9ull;
    mark = (mark ^ mark >> 27) * 0x94D049BB133111EBull;
    return mark ^ mark >> 31;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    if (token_tiles(p) == 0) return;
    const WeightRule weights = weight_rule(p.b);
    const Workspace space = workspace_of(context, p);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    const bool few = tile_tokens(p) == kFewTokens;
    const GemmOperand tokens = as_bf16(p, Side::A, at);
    Arguments args{tensor_map(driver(), map_of_codes(p)),
                   few ? tensor_map(driver(), map_of_tokens(tokens, kTokenRows)) : CUtensorMap{},
                   p,
                   {},
                   weights.rule,
                   weights.missing,
                   at,
                   reinterpret_cast<float*>(at + space.parts),
                   reinterpret_cast<uint64_t*>(at + space.flags),
                   next_mark(),
                   uint32_t(tile_tokens(p)),
                   uint32_t(lines_of(tile_tokens(p))),
                   uint32_t(weight_tiles(p)),
                   uint32_t(parts_of_numbers(p.a)),
                   uint32_t(tile_rows(p)),
                   uint32_t(steps(p)),
                   uint32_t(step_chunks(p)),
                   share(uint32_t(token_tiles(p) * weight_tiles(p) * steps(p)), blocks_of(context, p)),
                   is_block_scaled(p.b),
                   has_adjacent_scales(p)};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = kTokenRows;
    args.units.at[kColumnwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_rows));
    if (widens_tokens(p)) widen(context, p, Side::A, tokens, call.stream);
    if (!few) prepare_tokens(context, p, tile_rows(p), p.b.bits == 4, at, call.stream);
    launch(context, kernels, Key{weights.kind, tile_tokens(p)}, "skinny_sm90", dim3(blocks_of(context, p)), call.stream,
           args, few && !can_split(p.a) ? Start::AfterAll : Start::WithPrevious);
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_prepare_tokens();
    load_widen(context);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation skinny_sm90{.name = "skinny_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
