// skinny_sm90: exact products of few rows with quantized weights on Hopper, dense or grouped, bound by reading the weights
// once.
//
// The product is made transposed: weights are the side of 64 of the instruction, tokens the side that may be 8. A block has
// 128 lines of weights, up to 64 tokens of a group, and all of the contraction or, in a cluster, a share of it:
//
//     warps 0..7    16 lines of weights each: from memory to registers, some steps of 128 codes ahead; there to BF16
//                   (skinny_weights.cuh); multiplied from there
//     thread 0      also loads tokens through a ring of stages; a pass has brought them into order (skinny_tokens.h)
//
//     sums          to shared memory; each block of a cluster adds up those of some tokens, block after block, and
//                   writes them
//
// Bytes: the weights of the groups that have tokens, once for every 64 tokens of a group.
#include <algorithm>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/sm90/beside.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/output.cuh"
#include "cuda/sm90/skinny_weights.cuh"
#include "cuda/sm90/wgmma.cuh"
#include "dispatch/choice.h"

namespace mxq::cuda {
namespace {

using namespace sm90;

constexpr int kLines = 128, kWarps = kLines / 16, kThreads = 32 * kWarps;
constexpr int kStages = 4, kMostCluster = 8;
constexpr int kPitch = kLines + 4;                    // of the sums of a token, in floats
constexpr int kSteps = kChunkCodes / 16, kBatch = 2;  // instructions of 16 codes; of which so many are made at once
constexpr int kCoreBytes = 16 * 2 * kTokenRows;       // of eight tokens and 16 codes

struct Arguments {
    GemmProblem problem;
    GroupSumUnits units;  // of A's codes and scales, of tokens, of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;  // 2^(127 - bias of the codes) as BF16, in both halves
    const uint8_t* tokens;
    uint32_t tile_tokens, weight_tiles, chunks, cluster;
    bool scaled;  // weights have a scale byte for every block, or for a line
};

// The tile of a block.
struct Tile {
    TileOperand a, b;
    int64_t group, d_row;          // of the first token
    uint32_t row, rows, padded;    // first token of the group; tokens, and rows of D, of the tile
    uint32_t line;                 // first of weights
    uint32_t first_chunk, chunks;  // of the block's share
    const uint8_t* tokens;
    uint32_t eights;  // of tokens
};

struct Shared {
    union {
        alignas(128) uint8_t tokens[kStages][kMostTokens / kTokenRows * kTokenRowsBytes];
        float sums[kMostTokens][kPitch];
    };
    Barrier full[kStages], free[kStages];
    Group group;
    Tile tile;
};

// Returns false where there are no tokens. All threads of the block call it.
__device__ __forceinline__ bool find_tile(const Arguments& args, Shared& shared, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t index = blockIdx.x / args.cluster, rank = blockIdx.x % args.cluster;
    const uint32_t token_tile = index / args.weight_tiles;
    int64_t first_token = 0, padded;
    uint32_t rows;
    if (p.grouping == Grouping::Rows) {
        find_group_tile({p.groups, p.group_rows}, args.units, token_tile, shared.group);
        const Group& group = shared.group;
        if (!group.exists()) return false;
        tile.row = (token_tile - group.first_group_tile) * args.tile_tokens;
        tile.group = group.index;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        tile.b = operand_of_matrix(p.b, group.index);
        tile.d_row = group.starts[kColumnwiseCodes] + tile.row;
        first_token = group.starts[kRowwiseCodes];
        rows = group.rows;
        padded = round_up_to_power(int64_t(group.rows), p.d.group_unit);
    } else {
        tile.row = token_tile * args.tile_tokens;
        tile.group = 0;
        tile.a = operand_of_matrix(p.a, 0);
        tile.b = operand_of_matrix(p.b, 0);
        tile.d_row = tile.row;
        rows = uint32_t(p.m);
        padded = p.m;
    }
    tile.rows = min(rows - tile.row, args.tile_tokens);
    tile.padded = tile.row + args.tile_tokens >= rows ? uint32_t(padded) - tile.row : tile.rows;
    tile.eights = (tile.rows + kTokenRows - 1) / kTokenRows;
    tile.line = (index % args.weight_tiles) * kLines;
    const uint32_t share = (args.chunks + args.cluster - 1) / args.cluster;
    tile.first_chunk = min(rank * share, args.chunks);
    tile.chunks = min(share, args.chunks - tile.first_chunk);
    tile.tokens = args.tokens + (first_token + tile.row) * int64_t(args.chunks) * (kChunkCodes * 2);
    return true;
}

// Loads the tokens of a chunk of the share, one thread, once all warps have left what its stage had. A barrier counts as
// complete before its first phase, so that stages are free at first.
__device__ __forceinline__ void load_tokens(const Tile& tile, Shared& shared, uint32_t chunk) {
    if (chunk >= tile.chunks) return;
    const uint32_t stage = chunk % kStages, bytes = tile.eights * kTokenRowsBytes;
    wait(shared.free[stage], (chunk / kStages + 1) % 2);
    arrive_expecting(shared.full[stage], bytes);
    load_bytes(shared.tokens[stage], tile.tokens + int64_t(tile.first_chunk + chunk) * bytes, bytes, shared.full[stage]);
}

__device__ __forceinline__ WeightReader weight_reader(const Arguments& args, const Tile& tile) {
    const GemmOperand& b = args.problem.b;
    const uint32_t thread = threadIdx.x, lane = thread % 32;
    WeightReader reader{};
    reader.code = tile.first_chunk * kChunkCodes + lane % 4 * kLaneCodes;
    reader.end = min(uint32_t(args.problem.k), (tile.first_chunk + tile.chunks) * kChunkCodes);
#pragma unroll
    for (int l = 0; l < 2; l++) {
        const uint32_t line = min(tile.line + thread / 32 * 16 + lane / 4 + 8 * l, uint32_t(args.problem.n) - 1);
        reader.codes[l] = tile.b.codes + line * b.line_bytes + reader.code / 8 * b.bits;
        reader.scales[l] = tile.b.scales + scale_line(tile.b.layout, line) + scale_in_line(tile.b.layout, reader.code);
    }
    reader.scale_step = int32_t(scale_in_line(tile.b.layout, kChunkCodes));
    return reader;
}

// Steps that are loaded ahead: as many as there are registers for, since the time goes to waiting for them.
template <Weights kind, int columns>
constexpr int kAhead = kind == Weights::Bits8                           ? (columns > kFewTokens ? 1 : 2)
                       : kind == Weights::Bits6                         ? 2
                       : kind == Weights::Bits4&& columns <= kFewTokens ? 4
                                                                        : 3;

// Multiplies the block's share for up to `columns` tokens.
template <Weights kind, int columns>
struct Consumer {
    static constexpr int sums_of_thread = columns / 2;
    const Arguments& args;
    const Tile& tile;
    Shared& shared;
    WeightReader reader;
    float sums[sums_of_thread];

    __device__ __forceinline__ void load(uint32_t chunk, Fragment<kind>& to) const {
        load_fragment<kind>(reader, chunk, args.scaled, to);
    }
    // Decodes what a thread gives to one instruction.
    __device__ __forceinline__ void decode_16(const Fragment<kind>& fragment, int four, const uint32_t (&factors)[2][2],
                                              bool special, uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int half = kind == Weights::Nvfp4 ? four / 4 : 0;
            const uint32_t codes = four_codes<kind>(fragment, l, four);
            const EvenOddBf16 pairs =
                special ? decode_any_four<kind>(args.rule, args.missing, codes, four, fragment.scales[l][half])
                        : decode_four<kind>(args.rule, codes, four, factors[l][half]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    __device__ __forceinline__ void multiply_chunk(const Fragment<kind>& fragment, uint32_t chunk) {
        uint32_t factors[2][2];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < (kind == Weights::Nvfp4 ? 2 : 1); i++)
                factors[l][i] = scale_factor<kind>(args.rule, fragment.scales[l][i]);
        const bool special = __any_sync(kAllLanes, is_special<kind>(args.rule, fragment));
        const uint32_t stage = chunk % kStages;
        wait(shared.full[stage], chunk / kStages % 2);
        if constexpr (columns <= kFewTokens)
            multiply_by_warps(fragment, stage, factors, special);
        else
            multiply_by_warpgroups(fragment, stage, factors, special);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
    }
    // Each warp multiplies by itself: nobody waits for the others of its warpgroup.
    __device__ __forceinline__ void multiply_by_warps(const Fragment<kind>& fragment, uint32_t stage,
                                                      const uint32_t (&factors)[2][2], bool special) {
        const uint8_t* const tokens = shared.tokens[stage] + threadIdx.x % 32 * 16;
#pragma unroll
        for (int two = 0; two < kSteps / 2; two++) {
            uint32_t first[4], second[4];
            decode_16(fragment, 2 * two, factors, special, first);
            decode_16(fragment, 2 * two + 1, factors, special, second);
#pragma unroll
            for (int eight = 0; eight < columns / kTokenRows; eight++) {
                const uint4 of = *reinterpret_cast<const uint4*>(tokens + eight * kTokenRowsBytes + two * 2 * kCoreBytes);
                auto& own = reinterpret_cast<float(&)[4]>(sums[4 * eight]);
                multiply_add_bf16(own, first, of.x, of.y);
                multiply_add_bf16(own, second, of.z, of.w);
            }
        }
    }
    __device__ __forceinline__ void multiply_by_warpgroups(const Fragment<kind>& fragment, uint32_t stage,
                                                           const uint32_t (&factors)[2][2], bool special) {
        uint32_t operands[2][kBatch][4];  // decoded while those before are multiplied
#pragma unroll
        for (int batch = 0; batch < kSteps / kBatch; batch++) {
            auto& own = operands[batch % 2];
#pragma unroll
            for (int i = 0; i < kBatch; i++) decode_16(fragment, batch * kBatch + i, factors, special, own[i]);
            begin_products(sums);
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                multiply_bf16_lines(
                    sums, own[i], describe_cores(shared.tokens[stage] + (batch * kBatch + i) * kCoreBytes, kTokenRowsBytes));
            commit_products();
            wait_products<1>(sums);
        }
        wait_products<0>(sums);
    }
    __device__ __forceinline__ void multiply_share() {
        Fragment<kind> ahead[kAhead<kind, columns>];
#pragma unroll
        for (float& sum : sums) sum = 0;
#pragma unroll
        for (int i = 0; i < kAhead<kind, columns>; i++) load(i, ahead[i]);
        if (threadIdx.x == 0) {
            wait_for_previous_kernel();  // which writes the tokens; weights are there already
#pragma unroll 1
            for (uint32_t chunk = 0; chunk + 1 < kStages; chunk++) load_tokens(tile, shared, chunk);
        }
        __syncwarp();
#pragma unroll 1
        for (uint32_t first = 0; first < tile.chunks; first += kAhead<kind, columns>)
#pragma unroll
            for (int i = 0; i < kAhead<kind, columns>; i++) {
                if (first + i >= tile.chunks) break;
                const Fragment<kind> fragment = ahead[i];
                load(first + i + kAhead<kind, columns>, ahead[i]);
                if (threadIdx.x == 0) load_tokens(tile, shared, first + i + kStages - 1);
                __syncwarp();
                multiply_chunk(fragment, first + i);
            }
    }
    // Leaves the sums in shared memory, token by token.
    __device__ __forceinline__ void store_sums() {
        const uint32_t lane = threadIdx.x % 32, line = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < sums_of_thread; i++)
            shared.sums[8 * (i / 4) + lane % 4 * 2 + i % 2][line + i % 4 / 2 * 8] = sums[i];
    }
};

// Returns a number of the same place in another block of the cluster.
__device__ __forceinline__ float load_of_block(const float* at, uint32_t block) {
    float value;
    asm volatile(
        "{\n"
        ".reg .b32 other;\n"
        "mapa.shared::cluster.u32 other, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [other];\n"
        "}"
        : "=f"(value)
        : "r"(uint32_t(__cvta_generic_to_shared(at))), "r"(block)
        : "memory");
    return value;
}

// Makes the sum of plain numbers and codes again, in double: without their fp32 factors sums may leave fp32's range where D
// does not.
__device__ __noinline__ float sum_again(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line) {
    const GemmProblem& p = args.problem;
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, tile.a, token, k)) * double(operand_value(p.b, tile.b, line, k));
    return __double2float_rn(sum);
}

// Writes D for some of the tokens, a warp for each, and the rows that pad the group.
template <Weights kind>
__device__ __forceinline__ void write_tokens(const Arguments& args, const Tile& tile, Shared& shared) {
    const GemmProblem& p = args.problem;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % args.cluster;
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const bool factored = p.b.scale_type == ScaleType::F32 || p.b.scale_type == ScaleType::E4M3 ||
                          p.a.scale_type == ScaleType::F32 || p.a.scale_type == ScaleType::E4M3;
#pragma unroll 1
    for (uint32_t token = rank + warp * args.cluster; token < tile.padded; token += kWarps * args.cluster) {
        const int64_t row = tile.d_row + token;
        const bool exists = token < tile.rows;
        if (!exists && p.beta != 0) break;
#pragma unroll 1
        for (uint32_t i = lane; i < kLines && tile.line + i < uint32_t(p.n); i += 32) {
            const uint32_t line = tile.line + i;
            float value = 0;
            if (exists) {
                for (uint32_t block = 0; block < args.cluster; block++)
                    value = add_rn(value,
                                   args.cluster == 1 ? shared.sums[token][i] : load_of_block(&shared.sums[token][i], block));
                value = multiply_rn(value, unit_of_sums<kind>);
                if (factored && !(fabsf(value) < bits_float(kInfinityBits)))
                    value = sum_again(args, tile, tile.row + token, line);
                else if (factored)
                    value = scale_sum(value, line_factor(p.a, tile.a, tile.row + token), line_factor(p.b, tile.b, line),
                                      to_nearest);
                value = add_more(p, int32_t(tile.group), row, int32_t(line), value);
            }
            store_element(p.d.data, p.d.format, row * p.d.row_stride + line, value);
        }
    }
}

template <Weights kind, int columns>
__device__ __forceinline__ void multiply_tile(const Arguments& args, const Tile& tile, Shared& shared) {
    Consumer<kind, columns> consumer{args, tile, shared, weight_reader(args, tile), {}};
    consumer.multiply_share();
    __syncthreads();  // all have left the tokens, which the sums overwrite
    consumer.store_sums();
}

template <Weights kind, int tokens>
__global__ void __launch_bounds__(kThreads, 2) skinny_sm90_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(128) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    {
        Tile found;
        if (!find_tile(args, shared, found)) return;  // all blocks of the cluster
        if (threadIdx.x == 0) shared.tile = found;
    }
    const Tile& tile = shared.tile;
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kWarps);
        publish_barriers();
    }
    __syncthreads();
    if constexpr (tokens == kFewTokens) {
        if (tile.eights == 1)
            multiply_tile<kind, 8>(args, tile, shared);
        else
            multiply_tile<kind, 16>(args, tile, shared);
    } else {
        if (tile.eights <= 4)
            multiply_tile<kind, 32>(args, tile, shared);
        else
            multiply_tile<kind, 64>(args, tile, shared);
    }
    if (args.cluster > 1)
        sync_cluster();
    else
        __syncthreads();
    write_tokens<kind>(args, tile, shared);
    if (args.cluster > 1) sync_cluster();  // the others may still read this block's sums
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
    return {{kind, tokens}, skinny_sm90_kernel<kind, tokens>, kThreads, sizeof(Shared)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Weights::Bits4, kFewTokens>(),  entry<Weights::Nvfp4, kFewTokens>(),  entry<Weights::Bits6, kFewTokens>(),
    entry<Weights::Bits8, kFewTokens>(),  entry<Weights::Bits4, kMostTokens>(), entry<Weights::Nvfp4, kMostTokens>(),
    entry<Weights::Bits6, kMostTokens>(), entry<Weights::Bits8, kMostTokens>(),
};

Weights weights_of(const GemmOperand& b) {
    if (b.scale_type == ScaleType::E4M3) return Weights::Nvfp4;
    return b.bits == 8 ? Weights::Bits8 : b.bits == 6 ? Weights::Bits6 : Weights::Bits4;
}

template <class E>
void set_rule(const GemmOperand& b, Arguments& args) {
    args.rule = b.scale_type == ScaleType::E4M3 ? bf16_decode_rule_nvfp4() : bf16_decode_rule<E>();
    args.missing = bf16_power_pair(127 - E::bias);
}

void set_rule(const GemmOperand& b, Arguments& args) {
    switch (b.element) {
        case Element::E4M3: return set_rule<E4M3>(b, args);
        case Element::E5M2: return set_rule<E5M2>(b, args);
        case Element::E2M3: return set_rule<E2M3>(b, args);
        case Element::E3M2: return set_rule<E3M2>(b, args);
        default: return set_rule<E2M1>(b, args);
    }
}

Reason needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == 90) return {};
    return
        [capability] { return format_text("needs compute capability 9.0, found %d.%d", capability / 10, capability % 10); };
}

bool is_block_scaled(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::E8M0 || operand.scale_type == ScaleType::E4M3;
}

bool has_line_scales(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM;
}

Reason needs_operands(const GemmProblem& p) {
    if (!is_block_scaled(p.b) && !has_line_scales(p.b)) return "needs b quantized, FP8 with scaling ROW or TENSOR";
    if (p.a.scale_type == ScaleType::F32 && !has_line_scales(p.a)) return "needs FP8 with scaling ROW or TENSOR in a";
    if (p.a.scale_type == ScaleType::None && p.a.format != MXQ_FORMAT_BF16)
        return [format = p.a.format] {
            return format_text("needs a in BF16 or quantized, found %s", find_format(format)->name);
        };
    const int64_t unit = p.b.bits == 6 ? 8 : 16;
    if (reinterpret_cast<uintptr_t>(p.b.codes) % uintptr_t(unit) != 0 || p.b.line_bytes % unit != 0 || p.k % kLaneCodes != 0)
        return [unit, bytes = p.b.line_bytes, k = p.k] {
            return format_text(
                "needs lines of b at multiples of %lld bytes and whole blocks of 32, found %lld bytes and %lld codes",
                (long long)unit, (long long)bytes, (long long)k);
        };
    return {};
}

// Returns the tokens of a tile: those of most groups are to fit, and few are multiplied without warps that wait for each
// other.
int32_t tile_tokens(const GemmProblem& p) {
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    return 3 * p.m <= 2 * kFewTokens * groups ? kFewTokens : kMostTokens;
}

// Returns the tiles of tokens, at most.
int64_t token_tiles(const GemmProblem& p) {
    const int64_t tokens = tile_tokens(p);
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tokens) : ceil_div(p.m, tokens);
}

Reason needs_sizes(const GemmProblem& p) {
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.sm_count > 0) return "needs all multiprocessors, found a limit";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    if (p.m > kMostTokens * groups)
        return [m = p.m, groups] {
            return format_text("needs at most %d rows a group, found %.1f on average", kMostTokens,
                               double(m) / double(groups));
        };
    if (double(token_tiles(p)) * double(ceil_div(p.n, int64_t(kLines))) * kMostCluster > 2147483647.0)
        return "needs at most 2^28 tiles of 16 rows and 128 columns";
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, token_bytes(p), nullptr};
}

// Returns how many blocks share the contraction of a tile. Shares that are not short let the last blocks of a call not run
// alone for long; short ones pay where multiprocessors have nothing to do otherwise.
uint32_t cluster_for(const Context& context, const GemmProblem& p, int64_t chunks, int64_t weight_tiles) {
    constexpr int64_t short_share = 6, long_share = 20;
    const int64_t groups = p.grouping == Grouping::Rows ? std::min<int64_t>(p.groups.count, p.m) : 1;
    const int64_t blocks = std::max<int64_t>(groups, ceil_div(p.m, int64_t(tile_tokens(p)))) * weight_tiles;
    const int64_t all = context.cuda->multiprocessors;
    uint32_t cluster = 1;
    while (cluster < kMostCluster && blocks * cluster < 4 * all &&
           chunks / (2 * cluster) >= (2 * blocks * cluster <= all ? short_share : long_share))
        cluster *= 2;
    return cluster;
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    if (token_tiles(p) == 0) return;
    Arguments args{
        p, {}, {}, 0, static_cast<const uint8_t*>(call.workspace), uint32_t(tile_tokens(p)), 0, 0, 1, is_block_scaled(p.b)};
    set_rule(p.b, args);
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = kTokenRows;
    args.units.at[kColumnwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_tokens));
    args.weight_tiles = uint32_t(ceil_div(p.n, int64_t(kLines)));
    args.chunks = uint32_t(ceil_div(p.k, int64_t(kChunkCodes)));
    args.cluster = cluster_for(context, p, args.chunks, args.weight_tiles);
    prepare_tokens(context, p, tile_tokens(p), p.b.bits == 4, static_cast<uint8_t*>(call.workspace), call.stream);
    launch(context, kernels, Key{weights_of(p.b), tile_tokens(p)}, "skinny_sm90",
           dim3(unsigned(token_tiles(p) * args.weight_tiles * args.cluster)), call.stream, args, Start::WithPrevious,
           args.cluster);
}

void load(const Context& context) {
    if (context.cuda->compute_capability != 90) return;
    load_kernels(kernels);
    load_prepare_tokens();
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation skinny_sm90{.name = "skinny_sm90", .run = run, .load = load, .bound = bound, .prepare = prepare};

}  // namespace mxq::cuda
