// wgmma_plain_sm90: products of BF16 with BF16, and of F16 with F16, on Hopper's tensor cores, dense or grouped. Each operand
// may be read across its rows as they are stored, since the tensor cores take both orders: (N,T), (N,N) and (T,N) cost the same.
//
// A block of 384 threads stays on its SM and takes tiles of 128 x 256 of D (plain_tiles.cuh):
//
//     warp 0              loads boxes of 64 elements of the contraction of the lines of A and of B, a step, through a ring of
//                         four stages; what the two blocks of a cluster share each loads half of, for both
//     warp 1              finds tiles, one ahead
//     warps 4..7, 8..11   consumers, 64 x 256 each; a step's products are asked for before those of the step before have ended
//
// Operands that were quantized come here as BF16, with fp32 factors of their lines for the sums (plain_factors.cuh).
//
// Groups along the contraction may begin at any row. The last step of one has rows of the next behind its own, in both operands:
// the consumers make them zero, whole rows of 128 bytes, before they multiply.
//
// A step is 32 KB from L2 and 128 x 256 x 64 products: 1024 cycles of the tensor cores.
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/needs_chip.h"
#include "cuda/sm90/plain_factors.cuh"
#include "cuda/sm90/slots.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/widen/widen_operand.h"

namespace mxq::cuda {
namespace {

using namespace sm90;
using namespace sm90::plain;

constexpr int kThreads = 3 * kWarpgroup;
// A block starts with 168 registers a thread, 65536 / 384 in eights; the consumers get what the first warpgroup gives back.
constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
static_assert(kProducerRegisters + 2 * kConsumerRegisters <= 3 * 168);

// ---- What multiplies nothing -------------------------------------------------------------------------------------------

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
__device__ __forceinline__ void scout(const Arguments& args, Shared& shared) {
    bool exists = true;
    uint32_t index = cluster_index();
#pragma unroll 1
    for (uint32_t number = 0; exists; number++, index += cluster_count()) {
        const uint32_t slot = number % kSlots;
        const Tile tile = find_tile(args, index);
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        exists = tile.exists;
        if (threadIdx.x % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_full[slot]);
        }
    }
}

// Loads one side of a step. Of what the cluster shares, a block loads the half with its number, for both blocks.
template <bool across, int boxes>
__device__ __forceinline__ void load_boxes(uint8_t (&to)[boxes][kBoxBytes], const CUtensorMap& map, bool shared, Barrier& full,
                                           int32_t first, int32_t line, int32_t matrix) {
    const int half = boxes / 2, begin = shared ? int(block_of_cluster()) * half : 0, end = shared ? begin + half : boxes;
#pragma unroll 1
    for (int i = begin; i < end; i++) {
        const int32_t lines = line + i * kBox;
        const int32_t at[3] = {across ? lines : first, across ? first : lines, matrix};
        if (shared)
            load_tile_to((1u << kCluster) - 1, to[i], map, at, full);
        else
            load_tile(to[i], map, at, full);
    }
}

// Loads all steps, one thread.
template <bool a_across, bool b_across>
__device__ __forceinline__ void load_operands(const Arguments& args, Shared& shared) {
    Ring<kStages> ring;
    each_tile<false>(shared, shared.tile_full, [&](const Tile& found) {
        const Tile tile = found;
#pragma unroll 1
        for (int32_t step = 0; step < tile.steps; step++, ring.next()) {
            Stage& stage = shared.stages[ring.at()];
            Barrier& full = shared.full[ring.at()];
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            arrive_expecting(full, sizeof(Stage));
            load_boxes<a_across>(stage.a, args.a_map, tile.shares_a, full, tile.a_first + step * kStep, tile.a_line, 0);
            load_boxes<b_across>(stage.b, args.b_map, !tile.shares_a, full, tile.b_first + step * kStep, tile.b_line,
                                 tile.b_matrix);
        }
    });
}

// ---- Products ------------------------------------------------------------------------------------------------------------

constexpr int kProductElements = 16;  // of the contraction, of an instruction

// Describes boxes one after the other, of which the instruction takes the first or all.
template <bool across>
__device__ __forceinline__ TileDescriptor describe(const uint8_t* boxes) {
    if constexpr (across) return describe_across(boxes, kBoxBytes);
    return describe_tile(boxes);
}
template <bool across>
__device__ __forceinline__ TileDescriptor along(TileDescriptor tile, int product) {
    return across ? tile.behind(product * kProductElements * kRowBytes / 1024) : tile.along(product * kProductBytes);
}

// Makes rows of a stage from this one on zero, where rows are elements of the contraction. All consumers call it.
__device__ __forceinline__ void clear_behind(Stage& stage, int32_t rows) {
    constexpr int consumers = 2 * kWarpgroup, pieces = kRowBytes / 16, boxes = sizeof(Stage) / kBoxBytes;
    const int thread = int(threadIdx.x) - kWarpgroup, of_box = (kStep - rows) * pieces;
#pragma unroll 1
    for (int box = 0; box < boxes; box++)
#pragma unroll 1
        for (int i = thread; i < of_box; i += consumers)
            *reinterpret_cast<uint4*>(stage.a[0] + box * kBoxBytes + rows * kRowBytes + i * 16) = {};
    publish_shared_writes();
    asm volatile("bar.sync 1, %0;" ::"n"(consumers) : "memory");
}

// Tells the loaders of both blocks that a warp has left a stage.
__device__ __forceinline__ void release(Shared& shared, uint32_t stage) {
    const uint32_t lane = read_thread() % 32;
    if (lane < kCluster) arrive_at(shared.free[stage], lane);
}

template <class T, bool a_across, bool b_across>
__device__ __forceinline__ void multiply_tile(Shared& shared, Ring<kStages>& ring, const Tile& tile,
                                              float (&sums)[kWidestAccumulators]) {
    const int32_t warpgroup = uniform(int32_t(threadIdx.x / kWarpgroup) - 1), steps = uniform(tile.steps);
    uint32_t before = 0;
#pragma unroll 1
    for (int32_t step = 0; step < steps; step++) {
        const uint32_t at = ring.at();
        Stage& stage = shared.stages[at];
        wait(shared.full[at], ring.parity());
        ring.next();
        if constexpr (a_across && b_across)
            if (step + 1 == steps && tile.cut > 0) clear_behind(stage, tile.cut);
        const TileDescriptor a = describe<a_across>(stage.a[warpgroup]), b = describe<b_across>(stage.b[0]);
        begin_products(sums);
#pragma unroll
        for (int i = 0; i < kStep / kProductElements; i++)
            multiply_plain<T, a_across, b_across>(sums, along<a_across>(a, i), along<b_across>(b, i));
        commit_products();
        wait_products<1>(sums);
        if (step > 0) release(shared, before);
        before = at;
    }
    wait_products<0>(sums);
    if (steps > 0) release(shared, before);
}

// ---- D -------------------------------------------------------------------------------------------------------------------

// Copies the turn's columns of 16 bits from shared memory to D, eight lanes a row.
__device__ __forceinline__ void copy_turn(const GemmProblem& p, const RowsOfWarp& of, int first, const uint8_t* from) {
    constexpr int pieces = kTurnBytes / 16;
    const int lane = int(read_thread() % 32), piece = lane % pieces;
    if (first + piece * 8 >= of.columns) return;
    uint8_t* const to = static_cast<uint8_t*>(p.d.data) + (of.d_row * p.d.row_stride + of.column + first) * 2 + piece * 16;
#pragma unroll
    for (int row = lane / pieces; row < kWarpRows; row += 32 / pieces)
        if (row < of.rows)
            *reinterpret_cast<uint4*>(to + row * p.d.row_stride * 2) =
                *reinterpret_cast<const uint4*>(from + row * kTurnPitch + piece * 16);
}

template <class T, int halves, int count>
__device__ __forceinline__ void write_rows(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[halves][count],
                                           uint8_t* rows) {
    if (of.copied && of.columns % 8 == 0)
        write_turns<T>(sums, rows, [&](int first) { copy_turn(p, of, first, rows); });
    else
        write_turns<T>(sums, rows, [&](int first) { store_turn<T>(p, of, first, rows); });
}

template <bool factored>
__device__ __forceinline__ void write_tile(const Arguments& args, const Tile& tile, float (&all)[kWidestAccumulators],
                                           Shared& shared) {
    const GemmProblem& p = args.problem;
    auto& sums = reinterpret_cast<float(&)[2][kWidestAccumulators / 2]>(all);
    const int warp = int(read_thread()) / 32 - kWarpgroup / 32, first_row = warp * kWarpRows;
    const RowsOfWarp of = rows_of_warp(p, tile, first_row, args.wide);
    uint8_t* const rows = shared.out[warp];
    const int32_t format = format_of_sums(p, of);
    if constexpr (factored)
        if (!scale_rows(p, tile, first_row, sums)) {
            write_turns<float>(sums, rows, [&](int first) { finish_turn(p, tile, first_row, first, rows); });
            return clear_padding(p, tile, first_row);
        }
    add_more_to_sums(p, of, sums);
    if (format == MXQ_FORMAT_F32 && of.copied)
        write_floats(p, of, sums);
    else if (format == MXQ_FORMAT_BF16)
        write_rows<Bf16>(p, of, sums, rows);
    else if (format == MXQ_FORMAT_F16)
        write_rows<F16>(p, of, sums, rows);
    else
        write_turns<float>(sums, rows, [&](int first) { store_turn<float>(p, of, first, rows); });
    clear_padding(p, tile, first_row);
}

template <class T, bool a_across, bool b_across, bool factored>
__device__ __forceinline__ void consume(const Arguments& args, Shared& shared) {
    Ring<kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        float sums[kWidestAccumulators] = {};
        multiply_tile<T, a_across, b_across>(shared, ring, tile, sums);
        if (!args.problem.leaves_d(tile.steps)) write_tile<factored>(args, tile, sums, shared);
    });
}

template <class T, bool a_across, bool b_across, bool factored>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    wgmma_plain_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 1 + kConsumerWarps);
        publish_barriers();
    }
    __syncwarp();
    sync_cluster();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 && elect_lane()) load_operands<a_across, b_across>(args, shared);
        if (warp == 1) scout(args, shared);
    } else {
        take_registers<kConsumerRegisters>();
        consume<T, a_across, b_across, factored>(args, shared);
    }
    __syncwarp();
    sync_cluster();  // the other block may still load to this one, and arrive at its barriers
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    bool f16, a_across, b_across, factored;
    bool operator==(const Key&) const = default;
};

template <class T, bool a_across, bool b_across, bool factored = false>
constexpr KernelEntry<Key, Arguments> entry() {
    return {{std::is_same_v<T, F16>, a_across, b_across, factored},
            wgmma_plain_sm90_kernel<T, a_across, b_across, factored>,
            kThreads,
            sizeof(Shared)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Bf16, false, false>(),       entry<Bf16, false, true>(),       entry<Bf16, true, false>(),
    entry<Bf16, true, true>(),         entry<F16, false, false>(),       entry<F16, false, true>(),
    entry<F16, true, false>(),         entry<F16, true, true>(),         entry<Bf16, false, false, true>(),
    entry<Bf16, false, true, true>(),  entry<Bf16, true, false, true>(), entry<Bf16, true, true, true>(),
};

TileMap map_of(const GemmOperand& operand) {
    const bool across = operand.across;
    return {operand.codes,
            operand.element == Element::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            {across ? operand.lines : operand.length, across ? operand.length : operand.lines, operand.matrices},
            {operand.line_bytes, operand.matrix_bytes},
            {across ? kBox : kStep, across ? kStep : kBox, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

Reason needs_operands(const GemmProblem& p) {
    if (p.a.bits != 16 || p.b.bits != 16 || p.a.element != p.b.element)
        return [a = p.a.format, b = p.b.format] {
            return format_text("needs both operands in bf16, or both in f16, found %s and %s", find_format(a)->name,
                               find_format(b)->name);
        };
    if (p.grouping == Grouping::Contraction && !(p.a.across && p.b.across))
        return "needs operands whose rows are groups along the contraction, found one whose rows run along it";
    return {};
}

Reason needs_sizes(const GemmProblem& p) {
    constexpr int64_t most = int64_t(1) << 31;
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    for (const int64_t size : {p.a.lines, p.b.lines, p.a.length, p.b.length, p.n, p.k})
        if (size >= most) return "needs less than 2^31 rows, columns and elements of a line";
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (auto reason = needs_mappable(map_of(*operand)); !reason.empty()) return reason;
    return needs_few_turns(p, kTileRows, kTileColumns);
}

Reason declines(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return reason;
    if (auto reason = needs_chip(context); !reason.empty()) return reason;
    if (auto reason = needs_operands(p); !reason.empty()) return reason;
    if (p.sm_count == 1) return "needs two multiprocessors, found a limit of one";
    return needs_sizes(p);
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const CurrentDevice current(*context.cuda);  // whose driver encodes tensor maps
    const double turns = most_turns(p, kTileRows, kTileColumns);
    if (turns == 0) return;
    Arguments args{tensor_map(driver(), map_of(p.a)), tensor_map(driver(), map_of(p.b)), p, {},
                   tile_bands(p.n, kTileColumns, kMostBand), false};
    args.units = turn_units(args.bands);
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.at[kColumnwiseCodes] = uint32_t(p.b.units.codes);
    args.units.at[kColumnwiseScales] = uint32_t(p.b.units.scales);
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
    const unsigned clusters = clusters_for(p, turns, context.cuda->multiprocessors);
    const Key key{p.a.element == Element::F16, p.a.across, p.b.across, has_line_factors(p.a) || has_line_factors(p.b)};
    launch(context, kernels, key, "wgmma_plain_sm90", dim3(clusters * kCluster), call.stream, args);
}

void load(const Context& context) {
    if (context.cuda->compute_capability == 90) load_kernels(kernels);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation wgmma_plain_sm90{.name = "wgmma_plain_sm90",
                                          .declines = declines,
                                          .run = run,
                                          .load = load,
                                          .bound = bound,
                                          .reads_across = true,
                                          .keeps_rows = keeps_all_rows};

}  // namespace mxq::cuda
