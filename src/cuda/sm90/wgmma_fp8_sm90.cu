// wgmma_fp8_sm90: products on Hopper's FP8 tensor cores, dense or grouped, with a power of two for every 128 codes of a line of A
// and one for a line of B. MX operands come from a pass that moves their codes (move_operands.h).
//
// A block of 384 threads stays on its SM and takes tiles of 128 x 192 of D (fp8_tiles.cuh):
//
//     warp 0              loads 128 codes of the lines of A and of B a step, through a ring of four stages
//     warp 1              loads the references of A's lines, warp 2 finds tiles and marks, one tile ahead
//     warps 4..7, 8..11   consumers, 64 x 192 each, as two halves that take turns: while the tensor cores multiply one, the
//                         threads add the other, times the factors of its rows, to the totals
//
//     step s        left  | multiply  | add       | multiply  | add
//     (of 128)      right |    add    | multiply  | add       | multiply     so that the tensor cores never wait
//
// FP8 tensor cores keep 14 bits of a sum, hence the totals in fp32 every 128 codes. A step whose blocks have references of their
// own (numerics/rebase_guard.h) is added up every 32 codes instead, under the product of two powers of two: exact, and slow.
//
// A step is 40 KB from L2 and 128 x 192 x 128 products: 768 cycles of the tensor cores.
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_epilogue.cuh"
#include "cuda/sm90/tensor_map.h"
#include "dispatch/choice.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {
namespace {

using namespace sm90;

constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
// A block starts with 168 registers a thread, 65536 / 384 in eights. What the producer's warpgroup gives the consumers must be
// enough for them, or they wait for ever.
constexpr int kStartRegisters = 168, kProducerRegisters = 48, kConsumerRegisters = 224;
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * kStartRegisters);

// Under this word a code has the factor of its line alone.
constexpr uint32_t kOneWord = 0x7F7F7F7Fu;
constexpr int kLaneWords = kTileRows / 32;

// ---- The producers ---------------------------------------------------------------------------------------------------

// Loads the block's own half or halves of a step: of what the cluster shares, the half with its number, for both blocks.
__device__ __forceinline__ void load_step(const ProductArguments& args, const ProductTile& tile, int32_t step, Stage& stage,
                                          Barrier& full) {
    constexpr uint32_t both = (1u << kCluster) - 1;
    const int32_t code = tile.code + step * kStepCodes, rank = int32_t(blockIdx.x % kCluster);
    const auto rows = [&](int half, auto load) {
        load(stage.a + half * kHalfRows * kStepCodes, args.a_map, {code, tile.a_line + half * kHalfRows});
    };
    const auto columns = [&](int half, auto load) {
        load(stage.b + half * kHalfColumns * kStepCodes, args.b_map, {code, tile.b_line + half * kHalfColumns, tile.b_matrix});
    };
    arrive_expecting(full, sizeof(Stage::a) + sizeof(Stage::b));
    const auto own = [&]<int dimensions>(void* to, const CUtensorMap& map, const int32_t (&at)[dimensions]) {
        load_tile(to, map, at, full);
    };
    const auto shared = [&]<int dimensions>(void* to, const CUtensorMap& map, const int32_t (&at)[dimensions]) {
        load_tile_to(both, to, map, at, full);
    };
    if (tile.shares_a) rows(rank, shared), columns(0, own), columns(1, own);
    else columns(rank, shared), rows(0, own), rows(1, own);
}

// The words of a lane's rows in a tile, which are those number lane, lane + 32, ...
struct RowWords {
    uint32_t rows[kLaneWords];  // numbers of the first

    __device__ __forceinline__ RowWords(const ProductArguments& args, const ProductTile& tile) {
#pragma unroll
        for (int i = 0; i < kLaneWords; i++) {
            const int64_t line = min(int64_t(tile.a_line) + threadIdx.x % 32 + 32 * i, args.a.lines - 1);
            rows[i] = uint32_t(line * args.a.word_stride) + uint32_t(tile.code / kStepCodes);
        }
    }
    // Brings those of a step to shared memory; each lane arrives when its own are there.
    __device__ __forceinline__ void load(const ProductArguments& args, int32_t step, Stage& stage, Barrier& full) const {
#pragma unroll
        for (int i = 0; i < kLaneWords; i++) {
            uint32_t& to = stage.words[threadIdx.x % 32 + 32 * i];
            if (args.a.words) copy_word(&to, args.a.words + (rows[i] + uint32_t(step)));
            else to = kOneWord;
        }
        arrive_after_copies(full);
    }
};

// Where a warp is: how many tiles it took, of which two bits matter, and above them how many rounds through the ring. One number,
// since registers are short.
struct Progress {
    uint32_t bits = 0;
    __device__ __forceinline__ uint32_t place() const { return bits % kTilePlaces; }
    __device__ __forceinline__ uint32_t place_parity() const { return bits / kTilePlaces % 2; }
    __device__ __forceinline__ uint32_t round_parity() const { return bits / (2 * kTilePlaces) % 2; }
    __device__ __forceinline__ void next_tile() { bits ^= bits % kTilePlaces == 0 ? 1 : 3; }  // 0, 1, 2, 3, 0
    __device__ __forceinline__ void next_round() { bits ^= 2 * kTilePlaces; }
};
static_assert(kTilePlaces == 2);

// Calls `take` with the tile of each place, in turn, as it is ready, and gives the place back. All lanes of a warp call it.
template <class Take>
__device__ __forceinline__ void each_tile(ProductShared& shared, const Take& take) {
    Progress progress;
#pragma unroll 1
    for (;; progress.next_tile()) {
        const uint32_t place = progress.place();
        wait(shared.tile_full[place], progress.place_parity());
        if (shared.tiles[place].tile.steps < 0) return;
        take(shared.tiles[place], progress);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[progress.place()]);
    }
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that places are free at first.
__device__ __forceinline__ void scout(const ProductArguments& args, ProductShared& shared) {
    int32_t steps = 0;
    uint32_t index = blockIdx.x / kCluster;
    for (uint32_t number = 0; steps >= 0; number++) {
        const uint32_t place = number % kTilePlaces;
        wait(shared.tile_free[place], (number / kTilePlaces + 1) % 2);
        scout_tile(args, index, shared.tiles[place]);
        __syncwarp();
        steps = shared.tiles[place].tile.steps;
        if (threadIdx.x % 32 == 0) arrive(shared.tile_full[place]);
    }
}

// Calls `load` with each step of a tile and its stage, once it is free. A tile takes whole rounds through the ring, so that the
// consumers' addresses are constants; `load` gets the steps that fill up the last round too.
template <class Load>
__device__ __forceinline__ void each_step(ProductShared& shared, const ProductTile& tile, Progress& progress, const Load& load) {
#pragma unroll 1
    for (int32_t step = 0; step < tile.steps; progress.next_round())
#pragma unroll 1
        for (int32_t stage = 0; stage < kStages; stage++, step++) {
            wait(shared.free[stage], progress.round_parity() ^ 1);
            load(step, shared.stages[stage], shared.full[stage]);
        }
}

// Loads codes, one warp, of which one lane does it all.
__device__ __forceinline__ void load_codes(const ProductArguments& args, ProductShared& shared) {
    each_tile(shared, [&](const TilePlace& place, Progress& progress) {
        each_step(shared, place.tile, progress, [&](int32_t step, Stage& stage, Barrier& full) {
            if (threadIdx.x % 32 != 0) return;
            if (step < place.tile.steps) load_step(args, place.tile, step, stage, full);
            else arrive(full);
        });
    });
}

// Loads words, one warp.
__device__ __forceinline__ void load_words(const ProductArguments& args, ProductShared& shared) {
    each_tile(shared, [&](const TilePlace& place, Progress& progress) {
        const RowWords words(args, place.tile);
        each_step(shared, place.tile, progress, [&](int32_t step, Stage& stage, Barrier& full) {
            if (step < place.tile.steps) words.load(args, step, stage, full);
            else arrive(full);
        });
    });
}

// ---- The consumers ---------------------------------------------------------------------------------------------------

// totals += part, times the factor of each row. Totals are held, so that the compiler adds here and not behind the next
// products, where it would need a third set of registers.
__device__ __forceinline__ void add_part(float (&totals)[kSums], const float (&part)[kSums], const float2& factors) {
#pragma unroll
    for (int h = 0; h < 2; h++)  // a factor after the other, so that the register that has it need not be read each time
#pragma unroll
        for (int i = 2 * h; i < kSums; i += 4) {
            totals[i] = __fmaf_rn(part[i], h ? factors.y : factors.x, totals[i]);
            totals[i + 1] = __fmaf_rn(part[i + 1], h ? factors.y : factors.x, totals[i + 1]);
        }
    hold_accumulators(totals);
}

// What a warpgroup multiplies of a stage.
struct StageTiles {
    TileDescriptor a, left, right;
    __device__ __forceinline__ StageTiles(const Stage& stage, int warpgroup)
        : a(describe_tile(stage.a + warpgroup * kProductRows * kStepCodes)), left(describe_tile(stage.b)),
          right(describe_tile(stage.b + kHalfColumns * kStepCodes)) {}
};

// A warpgroup's work on one tile. That it is known which of them makes addresses the same for all threads to the compiler, which
// then computes them once a warp.
template <class A, class B, int warpgroup>
struct Consumer {
    const ProductArguments& args;
    ProductShared& shared;
    const TilePlace& place;
    const ProductTile& tile;
    Progress& progress;
    float (&totals)[2][kSums];

    __device__ __forceinline__ void wait_for(int stage) const { wait(shared.full[stage], progress.round_parity()); }
    __device__ __forceinline__ void release(int stage) const {
        const uint32_t lane = read_thread() % 32;
        if (lane < kCluster) arrive_at(shared.free[stage], lane);
    }
    // Returns the words of the thread's two rows.
    __device__ __forceinline__ uint2 row_words(int stage) const {
        const uint32_t* const first = shared.stages[stage].words + (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4;
        return {first[0], first[8]};
    }
    __device__ __forceinline__ static void multiply_half(float (&part)[kSums], TileDescriptor a, TileDescriptor b) {
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepCodes; k += kProductBytes) multiply_fp8<A, B>(part, a.along(k), b.along(k), k > 0);
        commit_products();
    }
    // Takes `steps` steps from a stage on; products run across them, but not past the last: ptxas follows accumulators through
    // straight code alone.
    template <int steps>
    __device__ __forceinline__ void multiply_steps(int first) {
        float left[kSums], right[kSums];
        float2 factors{}, before{};
#pragma unroll
        for (int i = 0; i < steps; i++) {
            const int stage = first + i;
            wait_for(stage);
            const StageTiles tiles(shared.stages[stage], warpgroup);
            const uint2 words = row_words(stage);
            factors = {bits_float((words.x & 0xFF) << 23), bits_float((words.y & 0xFF) << 23)};
            multiply_half(left, tiles.a, tiles.left);
            if (i > 0) {
                wait_products<1>(right);
                add_part(totals[1], right, before);
                release(stage - 1);
            }
            multiply_half(right, tiles.a, tiles.right);
            wait_products<1>(left);
            add_part(totals[0], left, factors);
            before = factors;
        }
        wait_products<0>(right);
        add_part(totals[1], right, before);
        release(first + steps - 1);
    }
    // Adds up half of a step every 32 codes, under the references of both sides.
    __device__ __forceinline__ void multiply_exactly(int stage, int32_t step, int half, TileDescriptor a, TileDescriptor b) {
        const int column = half * kHalfColumns + 2 * int(read_thread() % 4);
        const uint32_t* const of_columns =
            args.b.words + (tile.b_word_line + column) * args.b.word_stride + tile.code / kStepCodes + step;
        const uint2 words = row_words(stage);
#pragma unroll 1
        for (int k = 0; k < kStepCodes; k += kProductBytes) {
            float part[kSums];
            begin_products(part);
            multiply_fp8<A, B>(part, a.along(k), b.along(k), false);
            commit_products();
            wait_products<0>(part);
            const int shift = k / kProductBytes * 8;
            const float2 of_rows = {scale_value(words.x >> shift & 0xFF), scale_value(words.y >> shift & 0xFF)};
#pragma unroll
            for (int i = 0; i < kSums; i += 4)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const bool exists = column + 2 * i + c < tile.columns;
                    const uint32_t word = exists ? __ldg(of_columns + (2 * i + c) * args.b.word_stride) : 0;
                    const float factor = scale_value(word >> shift & 0xFF);
                    part[i + c] = multiply_rn(part[i + c], factor);
                    part[i + 2 + c] = multiply_rn(part[i + 2 + c], factor);
                }
            add_part(totals[half], part, of_rows);
        }
    }
    __device__ __forceinline__ void multiply_marked(int stage, int32_t step) {
        wait_for(stage);
        const StageTiles tiles(shared.stages[stage], warpgroup);
        multiply_exactly(stage, step, 0, tiles.a, tiles.left);
        multiply_exactly(stage, step, 1, tiles.a, tiles.right);
        release(stage);
    }
    __device__ __forceinline__ void skip(int stage) {
        wait_for(stage);
        release(stage);
    }
    // Takes a round that has marks, or that is not full.
    __device__ __forceinline__ void multiply_round(int32_t first, uint32_t marked) {
#pragma unroll 1
        for (int stage = 0; stage < kStages; stage++) {
            if (first + stage >= tile.steps) skip(stage);
            else if (marked >> stage & 1) multiply_marked(stage, first + stage);
            else multiply_steps<1>(stage);
        }
    }
    __device__ __forceinline__ void multiply_tile() {
        const int32_t steps = tile.steps;
        uint32_t marked = 0;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, progress.next_round()) {
            marked = step % 32 == 0 ? place.marked[step / 32] : marked >> kStages;
            if (marked % (1 << kStages) == 0 && step + kStages <= steps) multiply_steps<kStages>(0);
            else multiply_round(step, marked);
        }
    }
};

template <class A, class B, int warpgroup>
__device__ __forceinline__ void consume(const ProductArguments& args, ProductShared& shared) {
    each_tile(shared, [&](const TilePlace& place, Progress& progress) {
        const ProductTile& tile = place.tile;  // read there whenever it is needed: registers are short
        float totals[2][kSums] = {};
        Consumer<A, B, warpgroup>{args, shared, place, tile, progress, totals}.multiply_tile();
        if (!args.problem.leaves_d(tile.steps)) write_sums(args, tile, warpgroup, totals, shared);
    });
}

template <class A, class B>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    wgmma_fp8_sm90_kernel(const __grid_constant__ ProductArguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<ProductShared*>(memory);
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1 + 32);  // the boxes, and each lane's words
        for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 2 + kConsumerWarps);  // two that load
        publish_barriers();
    }
    __syncwarp();
    sync_cluster();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        if (threadIdx.x < 32) load_codes(args, shared);
        else if (threadIdx.x < 64) load_words(args, shared);
        else if (threadIdx.x < 96) scout(args, shared);
    } else {
        take_registers<kConsumerRegisters>();
        if (threadIdx.x < 2 * kWarpgroup) consume<A, B, 0>(args, shared);
        else consume<A, B, 1>(args, shared);
    }
    __syncwarp();
    sync_cluster();  // the other block may still load to this one, and arrive at its barriers
}

// ---- The implementation ----------------------------------------------------------------------------------------------

// What a kernel is compiled for: which operands are E5M2.
struct Key {
    bool a, b;
    bool operator==(const Key&) const = default;
};

template <class A, class B>
constexpr KernelEntry<Key, ProductArguments> entry() {
    return {{std::is_same_v<A, E5M2>, std::is_same_v<B, E5M2>}, wgmma_fp8_sm90_kernel<A, B>, kThreads, sizeof(ProductShared)};
}

constexpr KernelEntry<Key, ProductArguments> kernels[] = {
    entry<E4M3, E4M3>(), entry<E5M2, E4M3>(), entry<E4M3, E5M2>(), entry<E5M2, E5M2>(),
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

struct Plan {
    MoveCall a, b;
    MovedAt a_at, b_at;
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

MoveCall placed(const MoveCall& call, const MovedAt& at, void* workspace) {
    uint8_t* const base = static_cast<uint8_t*>(workspace);
    MoveCall out = call;
    out.codes = base + at.codes;
    out.words = reinterpret_cast<uint32_t*>(base + at.words);
    out.factors = reinterpret_cast<float*>(base + at.factors);
    out.marks = base + at.marks;
    return out;
}

Plan plan_of(const GemmProblem& p) {
    Plan plan{move_call(p, Side::A, false), move_call(p, Side::B, true), {}, {}, 0};
    Offsets workspace;
    plan.a_at = place(plan.a, workspace);
    plan.b_at = place(plan.b, workspace);
    plan.bytes = workspace.at;
    return plan;
}

Reason needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == 90) return {};
    return [capability] {
        return format_text("needs compute capability 9.0, found %d.%d", capability / 10, capability % 10);
    };
}

Reason needs_mx(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type != ScaleType::E8M0)
            return [format = operand->format] {
                return format_text("needs MX operands, found %s", find_format(format)->name);
            };
    if (p.exact_products) return "needs leave to round operands, found exact products asked for";
    return {};
}

// What the maps and 32-bit places can address.
Reason needs_sizes(const GemmProblem& p, const Plan& plan) {
    constexpr int64_t most = int64_t(1) << 31;
    for (const MoveCall* call : {&plan.a, &plan.b})
        if (call->lines() >= most || call->line_bytes >= most || call->lines() == 0 || call->line_bytes == 0)
            return [lines = call->lines(), length = call->line_bytes] {
                return format_text("needs 1 to 2^31 - 1 lines and codes of a line, found %lld and %lld", (long long)lines,
                                   (long long)length);
            };
    if (plan.a.blocks() > kMostSteps)
        return [length = plan.a.line_bytes] {
            return format_text("needs at most %d codes along the contraction, found %lld", kMostSteps * kStepCodes, (long long)length);
        };
    if (p.m == 0 || p.n == 0) return "needs rows and columns in d, found none";
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_mx(p); !reason.empty()) return {reason, 0, nullptr};
    const auto plan = std::make_shared<Plan>(plan_of(p));
    return {needs_sizes(p, *plan), plan->bytes, plan};
}

CUtensorMap map_of(const MoveCall& call, int rank, int32_t box_lines) {
    const int64_t lines = rank == 3 ? call.from.lines : call.lines();
    return tensor_map(driver(), {call.codes,
                                 CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                 rank,
                                 {call.line_bytes, lines, call.from.matrices},
                                 {call.line_bytes, lines * call.line_bytes},
                                 {kStepCodes, box_lines, 1},
                                 CU_TENSOR_MAP_SWIZZLE_128B});
}

SideView view_of(const MoveCall& call) {
    return {call.words, call.blocks(), call.marks, call.by_line ? call.factors : nullptr, 1, call.from.lines, call.lines()};
}

// The most turns that the clusters of a call can take.
int64_t turns_of(const GemmProblem& p, const ProductArguments& args) {
    return int64_t(args.row_pairs) * args.column_tiles * (p.grouping == Grouping::Contraction ? p.groups.count : 1);
}

ProductArguments arguments_of(const GemmProblem& p, const MoveCall& a, const MoveCall& b) {
    ProductArguments args{map_of(a, 2, kHalfRows), map_of(b, 3, kHalfColumns), view_of(a), view_of(b), p, {}, 0, 0, 0, false};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kRowwiseCodes] = p.grouping == Grouping::Contraction ? uint32_t(kBlock128) : uint32_t(p.d.group_unit);
    constexpr int64_t pair = 2 * kTileRows;
    args.units.at[kColumnwiseCodes] = kTileRows;  // marks
    args.units.tile_rows_log2 = uint32_t(log2_of(uint32_t(pair)));
    args.row_pairs = uint32_t(p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, pair)
                                                           : ceil_div(p.m, pair));
    args.column_tiles = uint32_t(ceil_div(p.n, int64_t(kTileColumns)));
    args.bands = uint32_t(ceil_div(args.column_tiles, kMostBand));
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
    return args;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Plan& plan = *static_cast<const Plan*>(call.state);
    const MoveCall a = placed(plan.a, plan.a_at, call.workspace), b = placed(plan.b, plan.b_at, call.workspace);
    move_operands(context, a, b, call.stream);
    const ProductArguments args = arguments_of(p, a, b);
    const int64_t clusters = std::min(turns_of(p, args), int64_t(context.cuda->multiprocessors / kCluster));
    const Key key{p.a.element == Element::E5M2, p.b.element == Element::E5M2};
    launch(context, kernels, key, "wgmma_fp8_sm90", dim3(unsigned(clusters * kCluster)), call.stream, args);
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_move_operands();
}

int32_t bound(const GemmProblem&) { return MXQ_BOUND_REBASED_GUARDED; }

}  // namespace

const GemmImplementation wgmma_fp8_sm90{
    .name = "wgmma_fp8_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
