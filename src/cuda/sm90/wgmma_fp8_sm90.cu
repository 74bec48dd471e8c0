// wgmma_fp8_sm90: products on Hopper's FP8 tensor cores, dense or grouped, with a number for every 128 codes of a line and
// one for the line. MX operands come from a pass that moves their codes (move_operands.h); FP8, and MX with a scale for a
// line, are read where they are, where the copy engine can. A of FP8 goes with B of FP8 or MX.
//
// A block of 384 threads stays on its SM and takes tiles of 128 x 192 of D (fp8_tiles.cuh):
//
//     warps 0, 1          load 128 codes of the lines of A, and of B, a step, through a ring of four stages
//     warp 2              loads words, the references or scales of 128 codes, for four steps at once
//     warp 3              finds tiles, marks and factors, one ahead
//     warps 4..7, 8..11   consumers, 64 x 192 each: while the tensor cores multiply a step for one warpgroup, the threads of
//                         the other add theirs, times the factors of its rows, to the totals
//
// Totals that D takes as they are become elements of D under the first product of the next tile.
//
// FP8 tensor cores keep 14 bits of a sum, hence the totals in fp32 every 128 codes. Where columns of a step have references
// of their own (numerics/rebase_guard.h), or scales, an element takes two operations instead of one. A step whose blocks of
// 32 have references of their own is added up every 32 codes: exact, and slow.
//
// A step is 40 KB from L2 and 128 x 192 x 128 products: 768 cycles of the tensor cores. FP8 1x128 with 128x128 has a kernel
// of its own where D takes sums alone (fp8_squares.cu).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/fp8_block.cuh"
#include "cuda/sm90/fp8_few.h"
#include "cuda/sm90/fp8_squares.h"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;

constexpr int32_t log2_of_step = 7;  // kStepBytes codes

template <class A, class B, Columns columns>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    wgmma_fp8_sm90_kernel(const __grid_constant__ ProductArguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    multiply_tiles<A, B, columns>(args, *reinterpret_cast<ProductShared*>(memory));
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// Names what a kernel is compiled for: which operands are E5M2, and what columns have.
struct Key {
    bool a, b;
    Columns columns;
    bool operator==(const Key&) const = default;
};

template <class A, class B, Columns columns>
constexpr KernelEntry<Key, ProductArguments> entry() {
    return {{std::is_same_v<A, E5M2>, std::is_same_v<B, E5M2>, columns},
            wgmma_fp8_sm90_kernel<A, B, columns>,
            kThreads,
            sizeof(ProductShared)};
}

constexpr KernelEntry<Key, ProductArguments> kernels[] = {
    entry<E4M3, E4M3, Columns::Marked>(), entry<E5M2, E4M3, Columns::Marked>(),      entry<E4M3, E5M2, Columns::Marked>(),
    entry<E5M2, E5M2, Columns::Marked>(), entry<E4M3, E4M3, Columns::MarkedAlone>(), entry<E4M3, E4M3, Columns::Pieces>(),
    entry<E5M2, E4M3, Columns::Pieces>(), entry<E4M3, E5M2, Columns::Pieces>(),      entry<E5M2, E5M2, Columns::Pieces>(),
    entry<E4M3, E4M3, Columns::Each>(),   entry<E5M2, E4M3, Columns::Each>(),        entry<E4M3, E5M2, Columns::Each>(),
    entry<E5M2, E5M2, Columns::Each>(),
};

// Hands out a workspace whose address is not known yet.
struct Offsets {
    uint64_t at = 0;
    uint64_t take(uint64_t bytes) {
        const uint64_t taken = at;
        at += uint64_t(round_up(int64_t(bytes), kWorkspaceAlignment));
        return taken;
    }
};

// Where a moved operand lies in the workspace.
struct MovedAt {
    uint64_t codes, words, factors, marks;
};

// Describes an operand, which the pass moves or the product reads where it is. Of one that stays the pass may still write
// words.
struct PlannedOperand {
    MoveCall call;
    bool stays, passed;
    MovedAt at;
};

struct Plan {
    PlannedOperand a, b;
    uint64_t bytes;
};

MovedAt place(const MoveCall& call, Offsets& workspace) {
    MovedAt at;
    at.codes = workspace.take(moved_code_bytes(call));
    at.words = workspace.take(moved_word_bytes(call));
    at.factors = workspace.take(moved_factor_bytes(call));
    at.marks = workspace.take(moved_mark_bytes(call));
    return at;
}

// Returns how the copy engine sees lines of so many codes.
TileMap tile_map(const MoveCall& call, const uint8_t* codes, int64_t length, int64_t line_bytes, int rank,
                 int32_t box_lines) {
    const int64_t lines = rank == 3 ? call.from.lines : call.lines();
    return {codes,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            rank,
            {length, lines, call.from.matrices},
            {line_bytes, lines * line_bytes},
            {kStepBytes, box_lines, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

TileMap map_of_source(const MoveCall& call, int rank, int32_t box_lines) {
    return tile_map(call, call.from.codes, call.from.length, call.from.line_bytes, rank, box_lines);
}

TileMap map_of_moved(const MoveCall& call, int rank, int32_t box_lines) {
    return tile_map(call, call.codes, call.line_bytes, call.line_bytes, rank, box_lines);
}

// The ranks of the maps: lines of A lie one after the other, and B has a matrix for each group.
constexpr int kRankA = 2, kRankB = 3;

// Codes of FP8, and of MX with a scale for a line, stay where they are if the copy engine can read them there; so do those
// of MX whose references are their scales, if no group begins between them.
PlannedOperand plan_operand(const GemmProblem& p, Side side) {
    const bool is_b = side == Side::B;
    MoveCall call = move_call(p, side, is_b);
    const bool serves = call.copies() || (call.codes_may_stay() && call.grouping != Grouping::Contraction);
    const bool stays = serves && unmappable(map_of_source(call, is_b ? kRankB : kRankA, kHalfRows)).empty();
    call.codes_stay = stays && !call.copies();
    return {call, stays, !stays || call.codes_stay, {}};
}

Plan plan_of(const GemmProblem& p) {
    Plan plan{plan_operand(p, Side::A), plan_operand(p, Side::B), 0};
    Offsets workspace;
    for (PlannedOperand* operand : {&plan.a, &plan.b})
        if (operand->passed) operand->at = place(operand->call, workspace);
    plan.bytes = workspace.at;
    return plan;
}

// Returns an operand's call with its places in the workspace; those without bytes are NULL. Who plans may not know yet where
// the operand's codes are.
MoveCall placed(const PlannedOperand& planned, const GemmOperand& operand, void* workspace) {
    MoveCall out = planned.call;
    out.from.codes = operand.codes;
    if (!planned.passed) return out;
    uint8_t* const base = static_cast<uint8_t*>(workspace);
    out.codes = base + planned.at.codes;
    if (out.copies()) return out;
    out.words = reinterpret_cast<uint32_t*>(base + planned.at.words);
    out.factors = reinterpret_cast<float*>(base + planned.at.factors);
    out.marks = reinterpret_cast<Marks*>(base + planned.at.marks);
    return out;
}

// Two MX operands, two of FP8, or FP8 with MX, both with codes in E4M3.
Reason needs_operands(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type != ScaleType::E8M0 && operand->scale_type != ScaleType::F32)
            return [format = operand->format] {
                return format_text("needs MX or FP8 operands, found %s", find_format(format)->name);
            };
    const bool mixed = p.a.scale_type != p.b.scale_type;
    if (mixed && p.b.scale_type == ScaleType::F32) return "needs a in FP8 or b in MX, found a in MX and b in FP8";
    if (mixed && (p.a.element == Element::E5M2 || p.b.element == Element::E5M2))
        return "needs codes other than E5M2 where a is FP8 and b is MX, found E5M2";
    if (p.exact_products && p.b.scale_type == ScaleType::E8M0)
        return "needs leave to round operands, found exact products asked for";
    return {};
}

// Returns how the copy engine sees words that lie line after line, those of a round of a tile in a box.
TileMap map_of_words(const void* words, int64_t length, int64_t stride, int64_t lines) {
    constexpr int64_t word = sizeof(uint32_t);
    return {words,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            kRankA,
            {length * word, lines, 1},
            {stride * word, 0},
            {kStages * word, kTileRows, 1},
            CU_TENSOR_MAP_SWIZZLE_NONE};
}
TileMap map_of_scales(const GemmOperand& a) {
    return map_of_words(a.scales, a.layout.columns, a.layout.line_stride, a.matrices * a.lines);
}

// Returns whether the scales of A for 128 codes can be loaded as such boxes: rows are lines, and each of their lines is one.
bool lie_so_for_boxes(const GemmProblem& p) {
    const ScaleLayout& layout = p.a.layout;
    return p.grouping != Grouping::Contraction && layout.tile_rows == 1 && layout.column_stride == 1 &&
           p.a.units.codes == p.a.units.scales && unmappable(map_of_scales(p.a)).empty();
}

// What the maps and 32-bit places can address.
Reason needs_sizes(const GemmProblem& p, const Plan& plan) {
    constexpr int64_t most = int64_t(1) << 31;
    const MoveCall &a = plan.a.call, &b = plan.b.call;
    for (const MoveCall* call : {&a, &b})
        if (call->lines() >= most || call->line_bytes >= most || call->lines() == 0 || call->line_bytes == 0)
            return [lines = call->lines(), length = call->line_bytes] {
                return format_text("needs 1 to 2^31 - 1 lines and codes of a line, found %lld and %lld", (long long)lines,
                                   (long long)length);
            };
    const int64_t blocks = move_blocks(a) + move_blocks(b), words = a.lines() * a.word_stride();
    if (blocks >= most || words >= 2 * most)
        return [blocks, words] {
            return format_text(
                "needs less than 2^31 blocks of threads and 2^32 blocks of 128 codes in a, found %lld and %lld",
                (long long)blocks, (long long)words);
        };
    if (a.blocks() > kMostSteps)
        return [length = a.line_bytes] {
            return format_text("needs at most %d codes along the contraction, found %lld", kMostSteps * kStepBytes,
                               (long long)length);
        };
    if (auto reason = needs_few_turns(p, kTileRows, kTileColumns); !reason.empty()) return reason;
    if (p.m == 0 || p.n == 0) return "needs rows and columns in d, found none";
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (p.sm_count == 1) return {"needs two multiprocessors, found a limit of one", 0, nullptr};
    const auto plan = std::make_shared<Plan>(plan_of(p));
    return {needs_sizes(p, *plan), plan->bytes, plan};
}

CUtensorMap map_of(const PlannedOperand& operand, const MoveCall& call, int rank, int32_t box_lines) {
    return tensor_map(driver(), operand.stays ? map_of_source(call, rank, box_lines) : map_of_moved(call, rank, box_lines));
}

Columns columns_of(const GemmProblem& p) {
    if (p.a.scale_type != p.b.scale_type) return Columns::MarkedAlone;
    if (!has_scales_of_128(p.a) && !has_scales_of_128(p.b)) return Columns::Marked;
    return has_scales_of_128(p.b) && p.b.layout.tile_rows == 1 ? Columns::Each : Columns::Pieces;
}

// An operand whose scales stay where they are: those of 128 codes are words, those of lines factors.
SideView view_of_scales(const MoveCall& call) {
    const ScaleLayout& layout = call.from.layout;
    if (has_scales_of_128(call.from)) return view_of_scales_of_128(call.from);
    SideView view{};
    if (call.from.scale_type == ScaleType::E8M0)
        view.bytes = call.from.scales;
    else
        view.factors = reinterpret_cast<const float*>(call.from.scales);
    if (layout.swizzled) view.tile_bytes = layout.tile_row_scales();
    view.factor_stride = layout.line_stride;
    view.factor_group_stride = call.grouping == Grouping::None ? layout.matrix_scales : layout.group_index_stride;
    return view;
}

SideView view_of(const MoveCall& call) {
    if (call.copies()) return view_of_scales(call);
    SideView view{};
    view.words = call.words;
    view.marks = call.codes_stay ? nullptr : call.marks;
    view.boxed = true;
    view.word_stride = call.word_stride();
    view.mark_stride = call.blocks();
    view.step_stride = 1;
    view.factors = call.factors;
    view.factor_stride = 1;
    view.factor_group_stride =
        call.grouping == Grouping::Rows ? 0 : call.from.lines;  // groups of rows are lines of their own
    return view;
}

ProductArguments arguments_of(const GemmProblem& p, const Plan& plan, const MoveCall& a, const MoveCall& b) {
    ProductArguments args{};
    args.a_map = map_of(plan.a, a, kRankA, kHalfRows), args.b_map = map_of(plan.b, b, kRankB, kHalfColumns);
    args.a = view_of(a), args.b = view_of(b);
    if (!a.copies()) args.a_words = tensor_map(driver(), map_of_words(a.words, a.word_stride(), a.word_stride(), a.lines()));
    args.problem = p;
    args.bands = tile_bands(p.n, kTileColumns, kMostBand);
    args.a_stays = plan.a.stays, args.b_stays = plan.b.stays;
    args.step_log2 = log2_of_step;
    args.lift = 1;
    if (has_scales_of_128(p.a) && lie_so_for_boxes(p)) {
        args.a.boxed = true;
        args.a_words = tensor_map(driver(), map_of_scales(p.a));
    }
    args.units = turn_units(args.bands);
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseScales] = uint32_t(p.b.units.scales);
    args.units.at[kRowwiseCodes] = p.grouping == Grouping::Contraction ? uint32_t(kBlock128) : uint32_t(p.d.group_unit);
    args.units.at[kColumnwiseCodes] =
        p.grouping == Grouping::Contraction ? uint32_t(p.b.units.codes) : uint32_t(kTileRows);  // codes of B, or marks
    describe_output(args);
    return args;
}

// Returns whether fp8_squares.cu serves: no pass, E4M3, scales of 128 on both sides, and a BF16 or F32 D. Where B has one scale
// for 128 lines, D takes the sums alone.
bool serves_squares(const GemmProblem& p, const Plan& plan, const ProductArguments& args) {
    const int64_t steps = ceil_div(p.k, int64_t(kStepBytes));
    if (!plan.a.stays || !plan.b.stays || p.a.element != Element::E4M3 || p.b.element != Element::E4M3 ||
        !has_scales_of_128(p.a) || !has_scales_of_128(p.b) || !args.directly || p.d.format == MXQ_FORMAT_F16)
        return false;
    if (p.a.layout.tile_rows != 1) return false;
    if (columns_of(p) == Columns::Each) return steps > 0;
    return p.grouping != Grouping::Contraction && p.is_sum_alone() && steps > 0 && steps <= squares::kMostTileSteps;
}

// Returns whether fp8_few.cu serves, and takes less time: E4M3 without a pass and groups, one scale of B for 128 lines, sums
// alone, all SMs.
bool serves_few(const Context& context, const GemmProblem& p, const Plan& plan) {
    constexpr int64_t most_row_tiles = 65535;
    const bool fits = p.d.format == MXQ_FORMAT_BF16 || p.d.format == MXQ_FORMAT_F32;
    return fits && p.grouping == Grouping::None && plan.a.stays && plan.b.stays && p.a.element == Element::E4M3 &&
           p.b.element == Element::E4M3 && has_scales_of_128(p.a) && has_scales_of_128(p.b) &&
           p.b.layout.tile_rows == kBlock128 && p.is_sum_alone() && p.sm_count == 0 && p.m <= most_row_tiles * 64 &&
           p.k > 0 && few::pays(p.m, p.n, ceil_div(p.k, int64_t(kStepBytes)), context.cuda->multiprocessors);
}

void run_few(const Context& context, const GemmProblem& p, const MoveCall& a, const MoveCall& b, void* stream) {
    const few::Tile tile = few::tile_of(p.m, p.n, ceil_div(p.k, int64_t(kStepBytes)), context.cuda->multiprocessors);
    few::multiply(context, p, tile, map_of_source(a, kRankA, kProductRows), map_of_source(b, kRankB, tile.columns), stream);
}

void run_squares(const Context& context, const GemmProblem& p, const MoveCall& a, const MoveCall& b, void* stream,
                 ProductArguments& args) {
    using namespace squares;
    args.a_map = tensor_map(driver(), map_of_source(a, kRankA, kHalf));
    args.b_map = tensor_map(driver(), map_of_source(b, kRankB, kColumns));
    const uint32_t pairs = uint32_t(ceil_div(p.n, int64_t(kCluster * kColumns)));
    args.bands = {pairs, uint32_t(ceil_div(int64_t(pairs), int64_t(kMostBandPairs)))};
    args.units.of_pair = 2 * pairs, args.units.of_last = pairs;  // of rows of tiles
    args.units.tile_rows_log2 = uint32_t(log2_of(kRows));
    const int64_t rows =
        p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, kRows) : ceil_div(p.m, int64_t(kRows));
    const int64_t products = p.grouping == Grouping::Contraction ? p.groups.count : 1;
    const unsigned clusters = clusters_for(p, double(rows) * pairs * products, context.cuda->multiprocessors);
    void* pointers[] = {&args};
    const bool is_whole = args.a.boxed && p.d.format == MXQ_FORMAT_BF16 && p.k % (4 * kStepBytes) == 0;
    const Kernel kernel = kernel_of(columns_of(p) == Columns::Each ? Kind::Each : is_whole ? Kind::Whole : Kind::Any);
    launch_kernel(context, kernel.entry, "wgmma_fp8_sm90", dim3(clusters * kCluster), dim3(kThreads), kernel.shared_bytes,
                  stream, pointers);
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const Plan& plan = *static_cast<const Plan*>(call.state);
    const MoveCall a = placed(plan.a, p.a, call.workspace), b = placed(plan.b, p.b, call.workspace);
    if (serves_few(context, p, plan)) return run_few(context, p, a, b, call.stream);
    const bool passes = plan.a.passed || plan.b.passed;
    if (passes) move_operands(context, plan.a.passed ? &a : nullptr, plan.b.passed ? &b : nullptr, p.sm_count, call.stream);
    ProductArguments args = arguments_of(p, plan, a, b);
    if (serves_squares(p, plan, args)) return run_squares(context, p, a, b, call.stream, args);
    const unsigned clusters = clusters_for(p, most_turns(p, kTileRows, kTileColumns), context.cuda->multiprocessors);
    const Key key{p.a.element == Element::E5M2, p.b.element == Element::E5M2, columns_of(p)};
    launch(context, kernels, key, "wgmma_fp8_sm90", dim3(clusters * kCluster), call.stream, args,
           passes ? Start::WithPrevious : Start::AfterAll);
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    for (const auto kind : {squares::Kind::Whole, squares::Kind::Any, squares::Kind::Each})
        load_kernel(squares::kernel_of(kind).entry, squares::kernel_of(kind).shared_bytes);
    few::load();
    load_move_operands();
}

int32_t bound(const Context&, const GemmProblem& p) {
    return p.b.scale_type == ScaleType::F32 ? MXQ_BOUND_FP8_TENSOR_CORES : MXQ_BOUND_REBASED_GUARDED;
}

// Marks of MX are those of 32 rows. FP8 with MX leaves rows that must be invariant to kernels that are faster with few.
bool keeps_rows(const GemmProblem& p) { return p.b.scale_type == ScaleType::F32; }

}  // namespace

const GemmImplementation wgmma_fp8_sm90{
    .name = "wgmma_fp8_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare, .keeps_rows = keeps_rows};

}  // namespace mxq::cuda
