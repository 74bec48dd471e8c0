// mma_bf16_rows_activate and mma_bf16_rows_routed: both products of an expert layer for few tokens, with the sums of
// mma_bf16_rows (mma_bf16_rows.cu), whose tiles and warps they have.
//
//     mma_bf16_rows_activate     routes the tokens, multiplies their rows by index with gate_up, adds the bias, rounds,
//                                activates: what mxq_route, mxq_grouped_gemm and mxq_activate write, but for the product
//     mma_bf16_rows_routed       multiplies these rows with down
//
// Both read the ids (layer/few_choices.cuh), so that a thread block knows its weights before the kernel before it has ended:
//
//     start      ids -> its expert and rows -> loads of its first weights
//     wait       for the kernel before it, which wrote the rows
//     loop       as mma_bf16_rows
//
// A tile of gate_up has eight gates and their ups, so that a thread block has both. In halves it reads two ranges of rows:
//
//     lines of a tile     interleaved     16 adjacent rows
//                         halves          8 adjacent rows, and the 8 rows that are I below
#include "core/context_type.h"
#include "core/routed_problem.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/layer/few_choices.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/mma_bf16/few_rows.cuh"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

using few_rows::Consumer;
using few_rows::kTileLines;
using few_rows::kTileRows;
using few_rows::Tile;

struct Arguments : few_rows::Arguments {
    RouteProblem route;     // of ids
    bool computed;          // groups and rows by index are those of arrays instead
    uint32_t first_lines;   // rows of weights that the first eight of a tile may be
    uint32_t second_lines;  // how far apart these and the second eight are
    uint32_t tile_lines;    // from the first row of a tile to that of the next
    uint32_t partner;       // of a thread in the tile: the other row of its gate and up
    ActivatedMatrix from;
    PlainMatrix out;

    __device__ __forceinline__ uint32_t last_first_line() const { return first_lines - 1; }
    __device__ __forceinline__ uint32_t to_second_line() const { return second_lines; }
};

// Finds the tile of the thread block. Returns false where there is none.
__device__ __forceinline__ bool find_routed_tile(const Arguments& args, FewChoices& choices, Tile& tile) {
    const GemmProblem& p = args.problem;
    if (args.computed) {
        if (!few_rows::find_tile<true>(args, tile)) return false;
    } else {
        choices.find(args.route, blockIdx.y);
        const RoutedRows& found = choices.found;
        if (found.expert < 0) return false;
        tile.group = found.expert;
        tile.row = found.row, tile.rows = tile.written = found.rows;
        tile.first_row = found.first_row, tile.d_row = tile.first_row + tile.row;
        tile.numbers = args.rows.codes + tile.first_row * args.rows.line_bytes;
        tile.a = operand_of_matrix(p.a, 0), tile.b = operand_of_matrix(p.b, tile.group);
    }
    tile.line = blockIdx.x * args.tile_lines;
    return true;
}

// Returns a row of A of the tile; null: a row of zeros.
template <bool activates>
__device__ __forceinline__ const uint8_t* row_of(const Arguments& args, const FewChoices& choices, const Tile& tile,
                                                 uint32_t row) {
    if (!activates || args.computed) return few_rows::row_of_tile(args, tile, row, 0);
    return args.rows.codes +
           int64_t(uint32_t(choices.found.members[row]) / uint32_t(args.route.choices)) * args.rows.line_bytes;
}

// Returns a sum of products as the activation reads it: rounded to D's type, with the activation's bias added.
__device__ __forceinline__ float as_hidden(const Arguments& args, int32_t group, uint32_t line, float value) {
    const GemmProblem& p = args.problem;
    if (p.d.format == MXQ_FORMAT_F16) value = to_float(from_float<F16>(value));
    if (p.d.format == MXQ_FORMAT_BF16) value = to_float(from_float<Bf16>(value));
    const PlainArray& bias = args.from.bias;
    return bias.set() ? add_rn(value, number_at(bias, group * p.n + line)) : value;
}

__device__ __forceinline__ float activate_one(const ActivatedMatrix& from, float gate, float up) {
    float gates[1] = {gate};
    const float ups[1] = {up};
    activate_any(from, gates, ups);
    return gates[0];
}

__device__ __forceinline__ float weight_of_row(const Arguments& args, const FewChoices& choices, const Tile& tile,
                                               uint32_t row) {
    if (args.computed) return number_at(args.from.row_weights, tile.d_row + row);
    return load_weight(args.route.weights, choices.found.members[row]);
}

// Returns the row of D of the second product.
__device__ __forceinline__ int64_t stored_row(const Arguments& args, const FewChoices& choices, const Tile& tile,
                                              uint32_t row) {
    return args.computed ? tile.d_row + row : choices.found.members[row];
}

// Stores a sum in a row of the tile, or what it is activated to. All lanes of a warp call it, those of columns that do not
// exist as well.
template <bool activates>
__device__ __forceinline__ void store_routed(const Arguments& args, const FewChoices& choices, const Tile& tile,
                                             uint32_t row, uint32_t line, bool exists, float value) {
    if constexpr (!activates) {
        const PlainMatrix& d = args.problem.d;
        if (exists) store_element(d.data, d.format, stored_row(args, choices, tile, row) * d.row_stride + line, value);
    } else {
        const int64_t d_row = tile.d_row + row;
        const ActivatedMatrix& from = args.from;
        value = exists ? as_hidden(args, tile.group, line, value) : 0.0f;
        const float other = __shfl_xor_sync(kAllLanes, value, args.partner);
        const int64_t element = from.step == 2 ? (line - from.gate) / 2 : line - from.gate;
        const bool is_gate = from.step == 2 ? line % 2 == from.gate : element >= 0 && element < args.out.cols;
        if (!exists || !is_gate) return;
        value = activate_one(from, value, other);
        if (from.row_weights.set()) value = multiply_rn(value, weight_of_row(args, choices, tile, row));
        store_element(args.out.data, args.out.format, d_row * args.out.row_stride + element, value);
    }
}

template <Weights kind, int warps, bool promotes, bool activates>
__global__ void __launch_bounds__(32 * warps, few_rows::kResidentWarps<kind> / warps)
    mma_bf16_rows_routed_kernel(const __grid_constant__ Arguments args) {
    __shared__ float parts[warps][kTileRows * kTileLines];
    __shared__ Tile kept;
    __shared__ FewChoices choices;
    const GemmProblem& p = args.problem;
    Tile tile;
    start_next_kernel();
    const bool exists = find_routed_tile(args, choices, tile);
    if (exists) {
        Consumer<kind, warps, promotes, Arguments> consumer(args, tile);
        consumer.multiply(
            tile, [&](uint32_t row, uint32_t) { return row_of<activates>(args, choices, tile, row); },
            [] { wait_for_previous_kernel(); });
        if (threadIdx.x == 0) kept = tile;
        const bool again = consumer.put_sums(parts);
        const uint32_t column = threadIdx.x % kTileLines, second = column / 8 * (args.to_second_line() - 8);
        const uint32_t line = tile.line + column + second;
        // A row of A by itself.
        const auto sum_again = [&](uint32_t of, uint32_t at) {
            TileOperand a = kept.a;
            a.codes = row_of<activates>(args, choices, kept, of);
            return a.codes ? cuda::sum_again(p, a, kept.b, 0, at) : 0.0f;
        };
        const bool has_line = line < (column < 8 ? args.first_lines : uint32_t(p.n));
#pragma unroll 1
        for (uint32_t first = 0; first < tile.rows; first += 32 * warps / kTileLines) {
            const uint32_t row = first + threadIdx.x / kTileLines;
            const bool has = has_line && row < tile.rows;
            float value = 0;
            if (has) {
#pragma unroll
                for (int w = 0; w < warps; w++) value = add_rn(value, parts[w][row * kTileLines + column]);
                value = few_rows::finish<kind>(p, kept, row, line, value, promotes ? args.lift : 1.0f, again, sum_again);
            }
            store_routed<activates>(args, choices, tile, row, line, has, value);
        }
    } else {
        wait_for_previous_kernel();
    }
    if (activates && !args.computed && blockIdx.x == 0 && blockIdx.y == 0) write_routing(args.route, choices);
}

constexpr auto kernel_for = [](auto kind, auto warps, auto promotes, auto activates) {
    return kernel(mma_bf16_rows_routed_kernel<kind.value, warps.value, promotes.value, activates.value>, 32 * warps.value);
};
constexpr auto kernels =
    join(kernels_of(kernel_for, few_rows::AllWeights{}, Values<4, 8, 16>{}, Values<false>{}, Values<true, false>{}),
         kernels_of(kernel_for, Values<Weights::Bits8>{}, Values<few_rows::kPromotingWarps>{}, Values<true>{},
                    Values<true, false>{}));

bool has_halves(const RoutedProductProblem& p) { return p.activates && is_gated(p.from.kind) && p.from.step == 1; }

int64_t line_tiles(const RoutedProductProblem& p) {
    return has_halves(p) ? ceil_div(p.out.cols, int64_t(kTileLines / 2)) : few_rows::line_tiles(p.product);
}

// Returns up to how many choices the three launches are faster than the five of single verbs, whose products took
// skinny_sm90, which weights_sm90 has replaced, or mma_bf16_rows. An H200, us, tokens:
//
//     single verbs | three launches                1              2              4              8
//     MXFP4, gpt-oss-20b (top 4 of 32)             41.1 | 34.3    62.5 | 58.4    100.4 | 96.2   141.5 | 152.4
//            Qwen3-30B-A3B (top 8 of 128)          28.0 | 21.1    44.0 | 33.6    59.5 | 56.1    82.1 | 93.4
//     NVFP4, gpt-oss-20b                           52.7 | 46.8    78.7 | 76.0    114.0 | 129.2
//     FP8 128x128, Qwen3-30B-A3B                   44.3 | 37.7    71.9 | 68.3    118.5 | 121.1
//
// More choices cost each thread block more instructions, and instructions bound it.
int64_t most_choices(const RoutedProductProblem& p) { return p.product.b.scale_type == ScaleType::E4M3 ? 8 : 16; }

Reason needs_choices(const RoutedProductProblem& p) {
    if (const int64_t choices = p.product.m, most = most_choices(p); choices > most)
        return [choices, most] {
            return format_text("needs at most %lld choices of all tokens, found %lld", (long long)most, (long long)choices);
        };
    if (const int32_t experts = p.route.count; !p.computed && experts > kMostFewExperts)
        return [experts] { return format_text("needs at most %d experts, found %d", kMostFewExperts, experts); };
    return {};
}

static_assert(16 <= kMostFewChoices);

Reason declines(const Context& context, const RoutedProductProblem& p) {
    if (auto reason = few_rows::declines(context, p.product); !reason.empty()) return reason;
    if (p.product.a.format != MXQ_FORMAT_BF16) return needs("rows of BF16", find_format(p.product.a.format)->name);
    if (p.product.reads_d()) return "needs a beta of 0";
    return needs_choices(p);
}

Arguments arguments_of(const RoutedProductProblem& p) {
    const uint32_t n = uint32_t(p.product.n), half = uint32_t(p.out.cols);
    const bool halves = has_halves(p), gated = p.activates && is_gated(p.from.kind);
    Arguments args{few_rows::arguments_of(p.product, nullptr)};
    args.route = p.route;
    args.computed = p.computed;
    args.first_lines = halves ? half : n;
    args.second_lines = halves ? half : kTileLines / 2;
    args.tile_lines = halves ? kTileLines / 2 : kTileLines;
    args.partner = !gated ? 0 : halves ? kTileLines / 2 : 1;
    args.from = p.from;
    args.out = p.out;
    return args;
}

void run(const Context& context, const RoutedProductProblem& p, const Launch& call) {
    const int warps = few_rows::warps_of_tile(context, p.product);
    const dim3 blocks(unsigned(line_tiles(p)), unsigned(few_rows::row_tiles(p.product)));
    launch(context, kernels, {weight_rule(p.product.b).kind, warps, few_rows::has_promotions(p.product), p.activates},
           "mma_bf16_rows_routed", blocks, call.stream, arguments_of(p), first_start(context, call));
}

}  // namespace

const RoutedProductImplementation mma_bf16_rows_activate{.name = "mma_bf16_rows_activate",
                                                         .declines = declines,
                                                         .run = run,
                                                         .load = load_all<kernels>,
                                                         .bound = bound_is<MXQ_BOUND_EXACT_PRODUCTS>};
const RoutedProductImplementation mma_bf16_rows_routed{
    .name = "mma_bf16_rows_routed", .declines = declines, .run = run, .bound = bound_is<MXQ_BOUND_EXACT_PRODUCTS>};

}  // namespace mxq::cuda
