// mma_bf16_rows: exact products of few rows of BF16 with quantized weights, on any chip. Weights go from global memory
// straight to registers. Each warp issues its first loads back to back at the start of the kernel, so that nothing delays
// them.
//
//     thread block     16 rows of weights by up to 8 rows of A of one group, all of K, by 4, 8 or 16 warps
//     a warp           every 4th, 8th or 16th chunk of 128 codes of these rows:
//
//         K         |warp 0|warp 1| ... |warp 0|warp 1| ...       lane 4 r + q: quarter q of a chunk of rows r and r + 8
//
//     iteration        loads of the next one or two chunks are in flight | this one becomes BF16 and is multiplied (mma.sync,
//                      weights as its 16 rows, A as its 8 columns; lane 4 r + q: quarter q of row r of A, from the cache)
//     at the end       sums of the warps are added in order through shared memory; factors of rows, alpha, beta, bias; stores
//
// FP8 with a scale for every 128 codes, on either side: scales multiply the sums of each chunk. Very large or small scales,
// and sums that leave fp32's range, make the block compute its sums again, one by one.
//
// A pass (cuda/widen) dequantizes quantized rows of A to BF16, and splits F16 ones into two BF16 numbers each. A block then
// has 4 rows of F16, high parts before low ones, and adds the sums of both at the end.
//
// Bytes: the weights of groups that have rows, once for every 8 rows of a group, from the L2 where they fit there. An H100,
// us:
//
//     mma_bf16_rows | mma_bf16, whose tiles have 128 rows     1 row        16            32          64 rows
//     BF16 with MXFP4, (N,K) = (4096,4096)                    7.7 | 117    11.3 | 114    22 | 115    34 | 118
//                              (8192,8192)                                                           125 | 230
//                              8 groups of (2048,7168), rows a group                                 218 | 223
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/mma_bf16/few_rows.cuh"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace few_rows;

template <Weights kind, bool grouped, int warps, bool promotes>
__global__ void __launch_bounds__(32 * warps, kResidentWarps<kind> / warps)
    mma_bf16_rows_kernel(const __grid_constant__ Arguments args) {
    __shared__ float parts[warps][kTileRows * kTileLines];
    __shared__ Tile kept;  // in shared memory, for the rare path, which indexes it
    const GemmProblem& p = args.problem;
    Tile tile;
    start_next_kernel();
    wait_for_previous_kernel();
    if (!find_tile<grouped>(args, tile)) return;
    Consumer<kind, warps, promotes> consumer(args, tile);
    consumer.multiply(tile, [&](uint32_t row, uint32_t part) { return row_of_tile(args, tile, row, part); },
                      [] {});
    if (threadIdx.x == 0) kept = tile;
    const bool again = consumer.put_sums(parts);
    const uint32_t column = threadIdx.x % kTileLines, line = tile.line + column;
    const auto sum_again = [&](uint32_t of, uint32_t at) { return cuda::sum_again(p, kept.a, kept.b, kept.row + of, at); };
    const auto sum_of = [&](uint32_t row) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) sum = add_rn(sum, parts[w][row * kTileLines + column]);
        return sum;
    };
    if (line >= uint32_t(p.n)) return;
    for (uint32_t row = threadIdx.x / kTileLines; row < tile.written; row += 32 * warps / kTileLines) {
        float value = 0;
        if (row < tile.rows) {
            value = sum_of(row);
            if (args.tile_rows < kTileRows) value = add_rn(value, sum_of(row + args.tile_rows));
            value = finish<kind>(p, kept, row, line, value, promotes ? args.lift : 1.0f, again, sum_again);
        }
        store_element(p.d.data, p.d.format, (tile.d_row + row) * p.d.row_stride + line, value);
    }
}

constexpr auto kernel_for = [](auto kind, auto grouped, auto warps, auto promotes) {
    return kernel(mma_bf16_rows_kernel<kind.value, grouped.value, warps.value, promotes.value>, 32 * warps.value);
};
constexpr auto kernels =
    join(kernels_of(kernel_for, AllWeights{}, Values<false, true>{}, Values<4, 8, 16>{}, Values<false>{}),
         kernels_of(kernel_for, AllWeights{}, Values<false, true>{}, Values<kPromotingWarps>{}, Values<true>{}));

}  // namespace

// ---- On the host, shared with mma_bf16_rows_routed ------------------------------------------------------------------------

namespace few_rows {
namespace {

// Returns the bytes between the scales of a row that are so many chunks apart.
int64_t scales_of_chunks(ScaleLayout layout, int64_t chunks) {
    layout.tile_rows = 1;
    return layout.block == MXQ_MAX_DIM ? 0 : layout.offset(0, 0, chunks * kChunk / layout.block);
}

Reason needs_operands(const GemmProblem& p) {
    if (!can_be_bf16(p.a) && !can_widen_codes(p.a))
        return needs("a in BF16, F16 or quantized", find_format(p.a.format)->name);
    if (p.b.scale_type == ScaleType::None) return needs("b quantized", find_format(p.b.format)->name);
    if (p.a.across || p.b.across) return "needs both operands along the contraction, found one across it";
    return {};
}

Reason needs_sizes(const GemmProblem& p) {
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    if (const int64_t most = kMostRows / kTileRows * tile_rows(p); p.m > most * groups)
        return [most, m = p.m, groups] {
            return format_text("needs at most %lld rows a group, found %.1f on average", (long long)most,
                               double(m) / double(groups));
        };
    if (p.k % kQuarter != 0)
        return [k = p.k] { return format_text("needs a contraction of whole 32 codes, found %lld", (long long)k); };
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as the real one
    if (!has_aligned_lines(as_bf16(p, Side::A, workspace)) || !has_aligned_lines(p.b))
        return "needs lines of both operands at multiples of 16 bytes";
    const ScaleLayout& layout = p.b.layout;
    if (is_block_scaled(p.b) && scales_of_chunks(layout, 4) != 4 * scales_of_chunks(layout, 1))
        return "needs scales of b for 16 or 32 codes";
    if (const int64_t tiles = row_tiles(p); tiles > kMostRowTiles)
        return [tiles] {
            return format_text("needs at most %lld tiles of 4 or 8 rows, found %lld", (long long)kMostRowTiles,
                               (long long)tiles);
        };
    return {};
}

}  // namespace

bool has_aligned_lines(const GemmOperand& operand) {
    return is_aligned(operand.codes, 16) && operand.line_bytes % 16 == 0 && operand.matrix_bytes % 16 == 0;
}

int64_t tile_rows(const GemmProblem& p) { return can_split(p.a) ? kTileRows / 2 : kTileRows; }

// Returns the tiles of rows of A, at most.
int64_t row_tiles(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tile_rows(p))
                                        : ceil_div(p.m, tile_rows(p));
}

int64_t line_tiles(const GemmProblem& p) { return ceil_div(p.n, int64_t(kTileLines)); }

bool has_promotions(const GemmProblem& p) { return has_scales_of_128(p.a) || has_scales_of_128(p.b); }

// Returns how many warps share a tile. With many tiles an SM holds several anyway, and small thread blocks replace each
// other without a gap.
int warps_of_tile(const Context& context, const GemmProblem& p) {
    const int64_t tiles = row_tiles(p) * line_tiles(p), multiprocessors = context.cuda->multiprocessors;
    if (has_promotions(p)) return kPromotingWarps;
    return tiles >= 3 * multiprocessors ? 4 : tiles > multiprocessors ? 8 : 16;
}

Reason declines(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return reason;
    if (auto reason = needs_no_limit(p); !reason.empty()) return reason;
    if (auto reason = needs_operands(p); !reason.empty()) return reason;
    return needs_sizes(p);
}

Arguments arguments_of(const GemmProblem& p, void* workspace) {
    const WeightRule weights = weight_rule(p.b);
    Arguments args{p,
                   as_bf16(p, Side::A, workspace),
                   {},
                   weights.rule,
                   weights.missing,
                   uint32_t(tile_rows(p)),
                   is_block_scaled(p.b) ? scales_of_chunks(p.b.layout, 1) : 0,
                   is_block_scaled(p.b),
                   has_promotions(p) ? lift_of_scales(p) : 1.0f};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_rows));
    return args;
}

}  // namespace few_rows

namespace {

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = declines(context, p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, is_bf16(p.a) ? 0 : widened_bytes(as_bf16(p, Side::A, nullptr)), nullptr};
}

// Rows in two parts are widened first, and a sum that is made again reads A as it is stored.
bool reads_by_index(const GemmProblem& p) {
    return !p.b_by_index.set && is_bf16(p.a) && p.b.scale_type == ScaleType::E8M0 && has_aligned_lines(p.a);
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Arguments args = arguments_of(p, call.workspace);
    const dim3 blocks(unsigned(line_tiles(p)), unsigned(row_tiles(p)));
    if (blocks.y == 0) return;
    if (!is_bf16(p.a)) widen(context, p, Side::A, args.rows, call.stream);
    const Start start = is_bf16(p.a) ? first_start(context, call) : Start::AfterAll;
    launch(context, kernels,
           {weight_rule(p.b).kind, p.grouping == Grouping::Rows, warps_of_tile(context, p), has_promotions(p)}, "mma_bf16_rows",
           blocks, call.stream, args, start);
}

void load(const Context& context) {
    load_kernels(kernels);
    load_widen(context);
}

}  // namespace

const GemmImplementation mma_bf16_rows{.name = "mma_bf16_rows",
                                       .run = run,
                                       .load = load,
                                       .bound = bound_is<MXQ_BOUND_EXACT_PRODUCTS>,
                                       .prepare = prepare,
                                       .reads_by_index = reads_by_index};

}  // namespace mxq::cuda
