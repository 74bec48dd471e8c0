// wgmma_blocks_sm90: exact products of FP8 that has a scale for every 128 codes, beside BF16, MX or NVFP4, on Hopper's BF16
// tensor cores, dense or with groups of rows. FP8 beside FP8 is wgmma_fp8_sm90's.
//
//     pass       codes of FP8 -> BF16; codes of MX and NVFP4 times their block scales -> BF16; BF16 stays (cuda/widen)
//     product    the block of wgmma_fp8_sm90 (fp8_block.cuh), whose steps have 64 numbers here in place of 128 codes:
//                as many bytes, and as many cycles of the tensor cores. Sums of two steps meet their scales in fp32
//
// Scales that are very large or small, or sums that BF16's range lets leave fp32's, make a warp's sums again, one by one
// (fp8_epilogue.cuh).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/fp8_block.cuh"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using namespace sm90;

constexpr int32_t kStepLog2 = 6, kStepNumbers = 1 << kStepLog2;
constexpr int32_t kWordStepsLog2 = 1;  // steps of 128 numbers
static_assert(kStepNumbers * 2 == kStepBytes && kStepNumbers << kWordStepsLog2 == kBlock128);

template <Columns columns>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    wgmma_blocks_sm90_kernel(const __grid_constant__ ProductArguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    multiply_tiles<Bf16, Bf16, columns>(args, *reinterpret_cast<ProductShared*>(memory));
}

// ---- The implementation ----------------------------------------------------------------------------------------------

template <Columns columns>
constexpr KernelEntry<Columns, ProductArguments> entry() {
    return {columns, wgmma_blocks_sm90_kernel<columns>, kThreads, sizeof(ProductShared)};
}

constexpr KernelEntry<Columns, ProductArguments> kernels[] = {entry<Columns::None>(), entry<Columns::Pieces>(),
                                                              entry<Columns::Each>()};

Columns columns_of(const GemmProblem& p) {
    if (!has_scales_of_128(p.b)) return Columns::None;
    return p.b.layout.tile_rows == 1 ? Columns::Each : Columns::Pieces;
}

// Holds the product of BF16 numbers, what the passes write lying as if the workspace began at 0.
struct Steps {
    GemmProblem product;
    uint64_t b_offset, bytes;  // of the passes; A lies before B
};

// Returns whether an operand has scales of 128, or is what may stand beside one that has.
bool has_scales(const GemmOperand& operand) { return can_widen_codes(operand); }
bool can_be_beside(const GemmOperand& operand) {
    const bool is_block_scaled = operand.scale_type == ScaleType::E8M0 || operand.scale_type == ScaleType::E4M3;
    return (is_bf16(operand) && !operand.across) || is_block_scaled;
}

Reason needs_operands(const GemmProblem& p) {
    if (!(has_scales(p.a) && can_be_beside(p.b)) && !(has_scales(p.b) && can_be_beside(p.a)))
        return [a = p.a.format, b = p.b.format] {
            return format_text(
                "needs FP8 with scales of 128 beside MX, NVFP4, or BF16 along the contraction, found %s and %s",
                find_format(a)->name, find_format(b)->name);
        };
    if (p.grouping == Grouping::Contraction || p.a.across) return "needs a along the contraction, found it transposed";
    return {};
}

// Returns how the copy engine sees an operand's bytes.
TileMap map_of(const GemmOperand& operand, int rank, int32_t box_lines) {
    const int64_t lines = rank == 3 ? operand.lines : operand.matrices * operand.lines;
    return {operand.codes,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            rank,
            {2 * operand.length, lines, operand.matrices},
            {operand.line_bytes, operand.matrix_bytes},
            {kStepBytes, box_lines, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}
TileMap map_of_a(const GemmProblem& p) { return map_of(p.a, 2, kHalfRows); }
TileMap map_of_b(const GemmProblem& p) { return map_of(p.b, 3, kHalfColumns); }

Reason needs_sizes(const GemmProblem& p) {
    constexpr int64_t most = int64_t(1) << 31, longest = int64_t(kMostSteps) * kStepNumbers;
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    if (p.k > longest)
        return [length = p.k] {
            return format_text("needs at most %lld numbers along the contraction, found %lld", (long long)longest,
                               (long long)length);
        };
    for (const int64_t lines : {p.a.lines, p.b.lines, p.n})
        if (lines >= most) return "needs less than 2^31 rows and columns";
    for (const TileMap& map : {map_of_a(p), map_of_b(p)})
        if (auto reason = needs_mappable(map); !reason.empty()) return reason;
    return needs_few_turns(p, kTileRows, kTileColumns);
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_no_limit(p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{p, 0, 0});
    if (!is_bf16(p.a)) {
        steps->product.a = widened(p, Side::A, nullptr);
        steps->b_offset = steps->bytes = widened_bytes(steps->product.a);
    }
    if (!is_bf16(p.b)) {
        steps->product.b = widened(p, Side::B, reinterpret_cast<void*>(uintptr_t(steps->b_offset)));
        steps->bytes += widened_bytes(steps->product.b);
    }
    return {needs_sizes(steps->product), steps->bytes, steps};
}

SideView view_of(const GemmOperand& operand) {
    return has_scales_of_128(operand) ? view_of_scales_of_128(operand) : SideView{};
}

ProductArguments arguments_of(const GemmProblem& p) {
    ProductArguments args{};
    args.a_map = tensor_map(driver(), map_of_a(p)), args.b_map = tensor_map(driver(), map_of_b(p));
    args.a = view_of(p.a), args.b = view_of(p.b);
    args.problem = p;
    args.bands = tile_bands(p.n, kTileColumns, kMostBand);
    args.units = turn_units(args.bands);
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.at[kRowwiseScales] = args.units.at[kColumnwiseCodes] = 1;
    describe_output(args);
    args.step_log2 = kStepLog2, args.word_steps_log2 = kWordStepsLog2;
    args.lift = lift_of_scales(p);
    return args;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const Steps& steps = *static_cast<const Steps*>(call.state);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    GemmProblem product = steps.product;
    if (!is_bf16(p.a)) {
        product.a.codes = at;
        widen(context, p, Side::A, product.a, call.stream);
    }
    if (!is_bf16(p.b)) {
        product.b.codes = at + steps.b_offset;
        widen(context, p, Side::B, product.b, call.stream);
    }
    const unsigned clusters = clusters_for(p, most_turns(p, kTileRows, kTileColumns), context.cuda->multiprocessors);
    launch(context, kernels, columns_of(product), "wgmma_blocks_sm90", dim3(clusters * kCluster), call.stream,
           arguments_of(product));
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_widen(context);
    load_kernels(kernels);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation wgmma_blocks_sm90{
    .name = "wgmma_blocks_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare, .reads_across = true};

}  // namespace mxq::cuda
