// Products of weights_sm90 in one order of sums: that of wgmma_bf16_sm90 for weights with scales of blocks, and that of
// weights_blocks.cuh for FP8 with scales of 128. The contraction is not split among CTAs. Three warpgroups decode ahead of
// the one that multiplies, so that a tile takes little longer than its products take one after another. A persistent CTA:
//
//     warps 0..3     load codes, find tiles, load scales and tokens
//     warps 4..7     multiply 64 lines and all tokens of a tile, and write D
//     warps 8..19    decode (weights_ordered_decode.cuh)
#include "cuda/device.h"
#include "cuda/kernel_lists.h"
#include "cuda/launch.h"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/weight_kind.h"
#include "cuda/sm90/weights_ordered.h"
#include "cuda/sm90/weights_ordered_decode.cuh"
#include "cuda/sm90/weights_output.cuh"
#include "cuda/sm90/weights_host.cuh"
#include "cuda/sm90/weights_producer.cuh"
#include "cuda/sm90/wgmma_columns.cuh"

namespace mxq::cuda::sm90::weights {
namespace {

using namespace ordered;

// A CTA starts with 96 registers a thread, 65536 by all threads in eights.
constexpr int kLoaderRegisters = 32, kDecoderRegisters = 72, kMultiplierRegisters = 232;
static_assert(kLoaderRegisters + kDecoders * kDecoderRegisters + kMultiplierRegisters <=
              (2 + kDecoders) * (65536 / kOrderedThreads / 8 * 8));

// ---- Loads -----------------------------------------------------------------------------------------------------------

template <Kind kind, int tokens>
__device__ __forceinline__ void load_codes(const Arguments& args, OrderedShared<kind, tokens>& shared) {
    Ring<OrderedShared<kind, tokens>::kCodeStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        const int32_t line = tile.line, matrix = tile.group, blocks = blocks_of(args);
#pragma unroll 1
        for (int32_t block = 0; block < blocks; block++, ring.next()) {
            wait(shared.code_free[ring.at()], ring.parity() ^ 1);
            if (elect_lane()) {
                arrive_expecting(shared.code_full[ring.at()], sizeof shared.codes[0]);
                load_tile(shared.codes[ring.at()], args.codes,
                          {block * OrderedShared<kind, tokens>::kCodeBytes, line, matrix}, shared.code_full[ring.at()]);
            }
            __syncwarp();
        }
    });
}

template <Kind kind, int tokens>
__device__ __forceinline__ void load_tokens(const Arguments& args, OrderedShared<kind, tokens>& shared) {
    Ring<OrderedShared<kind, tokens>::kTokenStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        const int32_t token = tile.token, blocks = blocks_of(args);
#pragma unroll 1
        for (int32_t block = 0; block < blocks; block++, ring.next()) {
            wait(shared.token_free[ring.at()], ring.parity() ^ 1);
            if (elect_lane()) {
                arrive_expecting(shared.token_full[ring.at()], sizeof shared.tokens_of[0]);
#pragma unroll
                for (int box = 0; box < kBlockBoxes; box++)
                    load_tile(shared.tokens_of[ring.at()][box], args.tokens,
                              {block * kBlockNumbers + box * kBoxNumbers, token, 0}, shared.token_full[ring.at()]);
            }
            __syncwarp();
        }
    });
}

// Loads the scales of blocks. Those of a line's last block of 128 come apart, where some of it may not exist.
template <Kind kind, int tokens>
__device__ __forceinline__ void load_block_scales(const Arguments& args, OrderedShared<kind, tokens>& shared) {
    constexpr Weights weights = kWeights<kind>;
    const GemmProblem& p = args.problem;
    Ring<OrderedShared<kind, tokens>::kCodeStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        const ScalePlaces<kLines> places = find_scales<kLines>(p, tile);
        const bool has_last = args.shifted || p.k % kBlockNumbers != 0;
        const int32_t last = blocks_of(args) - has_last;
#pragma unroll 1
        for (int32_t block = 0; block < last; block++, ring.next()) {
            auto* const to = &shared.scales[ring.at()];
            wait(shared.code_free[ring.at()], ring.parity() ^ 1);
            if (args.shifted)
                copy_shifted_scales<weights, false>(p, places, block, to);
            else
                copy_scales<weights, false>(p, places, block, to);
            arrive_after_copies(shared.code_full[ring.at()]);
        }
        if (!has_last) return;
        wait(shared.code_free[ring.at()], ring.parity() ^ 1);
        copy_last_scales<weights, kLines>(p, tile, args.shifted, last, &shared.scales[ring.at()]);
        arrive(shared.code_full[ring.at()]);
        ring.next();
    });
}

// Loads scales of 128 codes, those of two lines by each lane. Lines behind the last count as the last.
template <Kind kind, int tokens>
__device__ __forceinline__ void load_scales_of_128(const Arguments& args, OrderedShared<kind, tokens>& shared) {
    const GemmProblem& p = args.problem;
    Ring<OrderedShared<kind, tokens>::kCodeStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        const uint32_t* const scales = reinterpret_cast<const uint32_t*>(matrix_scales(p.b, tile.group));
        const uint32_t lane = read_thread() % 32, last = uint32_t(p.n) - 1;
        const uint32_t* from[2] = {scales + scale_line(p.b.layout, min(uint32_t(tile.line) + lane, last)),
                                   scales + scale_line(p.b.layout, min(uint32_t(tile.line) + 32 + lane, last))};
        const int64_t stride = p.b.layout.column_stride;
#pragma unroll 1
        for (int32_t left = blocks_of(args); left > 0; left--, ring.next()) {
            wait(shared.code_free[ring.at()], ring.parity() ^ 1);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                copy_word(reinterpret_cast<uint32_t*>(&shared.scales_of_128[ring.at()][32 * i + lane]), from[i]);
                from[i] += stride;
            }
            arrive_after_copies(shared.code_full[ring.at()]);
        }
    });
}

template <Kind kind, int tokens>
__device__ __forceinline__ void find_ordered_tiles(const Arguments& args, OrderedShared<kind, tokens>& shared) {
    bool exists = true;
    Ring<kSlots> slots;
#pragma unroll 1
    for (uint32_t number = blockIdx.x; exists; number += gridDim.x, slots.next()) {
        Tile tile{bf16::find_tile(args, number)};
        tile.line /= bf16::kTileLines / kLines;
        pad_last_tile(args, tile);
        wait(shared.tile_free[slots.at()], slots.parity() ^ 1);
        if (read_thread() % 32 == 0) {
            shared.tiles[slots.at()] = tile;
            arrive(shared.tile_full[slots.at()]);
        }
        exists = tile.exists;
    }
}

// ---- Products --------------------------------------------------------------------------------------------------------

template <Kind kind, int tokens>
struct Multiplier {
    using Block = OrderedShared<kind, tokens>;
    const Arguments& args;
    Block& shared;
    Ring<kDecodedStages> decoded = {};
    Ring<Block::kTokenStages> of_tokens = {};
    float totals[tokens / 2];

    // Multiplies a block, as soon as it is there. `adds`: to what the accumulators have.
    template <int count>
    __device__ __forceinline__ void multiply_block(float (&sums)[count], bool adds) const {
        wait(shared.decoded_full[decoded.at()], decoded.parity());
        wait(shared.token_full[of_tokens.at()], of_tokens.parity());
        const TileDescriptor a = describe_tile(shared.decoded[uniform(int32_t(decoded.at()))]);
        const TileDescriptor b = describe_tile(shared.tokens_of[uniform(int32_t(of_tokens.at()))]);
        constexpr int of_box = kTokenBytes / kProductBytes, patterns_a = kLines * kTokenBytes / 1024,
                      patterns_b = tokens * kTokenBytes / 1024;
        order_products();
#pragma unroll
        for (int i = 0; i < kBlockBoxes * of_box; i++)
            multiply_bf16(sums, a.behind(i / of_box * patterns_a).along(i % of_box * kProductBytes),
                          b.behind(i / of_box * patterns_b).along(i % of_box * kProductBytes), adds || i > 0);
        commit_products();
    }
    // Names the stages of a block, so that they can be given back later.
    __device__ __forceinline__ uint32_t stages() const { return decoded.at() | of_tokens.at() << 8; }
    __device__ __forceinline__ void release(uint32_t stages) const {
        if (read_thread() % 32 != 0) return;
        arrive(shared.decoded_free[stages & 0xFF]);
        arrive(shared.token_free[stages >> 8]);
    }
    __device__ __forceinline__ void next() { decoded.next(), of_tokens.next(); }

    // Adds all products of the contraction in the accumulators. The last products of a block stay in flight over the
    // loop's end.
    template <int columns>
    __device__ __forceinline__ void multiply_all() {
        float sums[columns / 2];
#pragma unroll
        for (float& sum : sums) sum = 0;
        begin_products(sums);
        const int32_t blocks = blocks_of(args);
        uint32_t before = 0;
#pragma unroll 1
        for (int32_t block = 0; block < blocks; block++) {
            multiply_block(sums, true);
            wait_products_before<1>();
            if (block > 0) release(before);
            before = stages();
            next();
        }
        wait_products<0>(sums);
        release(before);
#pragma unroll
        for (int i = 0; i < columns / 2; i++) totals[i] = sums[i];
    }
    // Adds the sums of a block, times its scales, to the totals.
    template <int columns>
    __device__ __forceinline__ void add_block(const float (&part)[columns / 2], uint32_t stages) {
        const uint32_t line = bf16::consumer_warp() * kWarpLines + read_thread() % 32 / 4;
        const float* const scales = &shared.decoded_scales[stages & 0xFF][line];
        const float of_lines[2] = {multiply_rn(scales[0], kLift), multiply_rn(scales[8], kLift)};
        __syncwarp();
        release(stages);
#pragma unroll
        for (int i = 0; i < columns / 2; i++) totals[i] = __fmaf_rn(part[i], of_lines[i / 2 % 2], totals[i]);
    }
    // Adds sums of 128 products in fp32, two blocks a round.
    template <int columns>
    __device__ __forceinline__ void multiply_blocks() {
        float parts[2][columns / 2];
        int32_t left = blocks_of(args);
#pragma unroll 1
        for (; left > 1; left -= 2) {
            uint32_t of[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                hold_accumulators(parts[i]);
                multiply_block(parts[i], false);
                of[i] = stages();
                next();
            }
            wait_products<1>(parts[0]);
            add_block<columns>(parts[0], of[0]);
            wait_products<0>(parts[1]);
            add_block<columns>(parts[1], of[1]);
        }
        if (left == 0) return;
        hold_accumulators(parts[0]);
        multiply_block(parts[0], false);
        wait_products<0>(parts[0]);
        add_block<columns>(parts[0], stages());
        next();
    }
    template <int columns>
    __device__ __forceinline__ void multiply() {
        if constexpr (kHasBlockScales<kind>)
            multiply_all<columns>();
        else
            multiply_blocks<columns>();
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
#pragma unroll
        for (float& total : totals) total = 0;
        if (args.parts == 1 && tile.rows <= tokens / 2)
            multiply<tokens / 2>();
        else
            multiply<tokens>();
        if (args.parts == 2) bf16::add_low_parts(totals);
    }
    __device__ __forceinline__ void run() {
#pragma unroll 1
        for (Ring<kSlots> slots;; slots.next()) {
            wait(shared.tile_full[slots.at()], slots.parity());
            const Tile& tile = shared.tiles[slots.at()];
            if (!tile.exists) return;
            multiply_tile(tile);
            uint32_t& of_warp = shared.repair[slots.at()][bf16::consumer_warp()];
            const uint32_t repair = of_warp;
            const int32_t line = bf16::first_line_of(tile);
            write_own_lines<kWeights<kind>, tokens, false, false, !kHasBlockScales<kind>>(args, tile, line, totals, repair,
                                                                                          shared.out);
            clear_padding(args, tile, line, tokens);
            __syncwarp();
            if (read_thread() % 32 == 0) {
                of_warp = 0;
                arrive(shared.tile_free[slots.at()]);
            }
        }
    }
};

// ---- A CTA -----------------------------------------------------------------------------------------------------------

template <Kind kind, int tokens>
__device__ __forceinline__ void init_barriers(OrderedShared<kind, tokens>& shared) {
    for (Barrier& barrier : shared.code_full) init_barrier(barrier, 1 + 32);  // a thread, and a warp's lanes
    for (Barrier& barrier : shared.code_free) init_barrier(barrier, kWarps);
    for (Barrier& barrier : shared.decoded_full) init_barrier(barrier, kWarps);
    for (Barrier& barrier : shared.decoded_free) init_barrier(barrier, kWarps);
    for (Barrier& barrier : shared.token_full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.token_free) init_barrier(barrier, kWarps);
    for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 3 + (1 + kDecoders) * kWarps);
    for (auto& slot : shared.repair)
        for (uint32_t& of_warp : slot) of_warp = 0;
    publish_barriers();
}

template <Kind kind, int tokens>
__global__ void __launch_bounds__(kOrderedThreads, 1) weights_ordered_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<OrderedShared<kind, tokens>*>(memory);
    if (threadIdx.x == 0) {
        prefetch_map(args.codes);
        prefetch_map(args.tokens);
        init_barriers(shared);
    }
    __syncthreads();
    const uint32_t warpgroup = threadIdx.x / kWarpgroup;
    if (warpgroup == 0) {
        give_registers<kLoaderRegisters>();
        if (read_thread() / 32 == 0) load_codes(args, shared);
        if (read_thread() / 32 == 1) find_ordered_tiles(args, shared);
        if (read_thread() / 32 == 2) {
            if constexpr (kHasBlockScales<kind>)
                load_block_scales(args, shared);
            else
                load_scales_of_128(args, shared);
        }
        if (read_thread() / 32 == 3) load_tokens(args, shared);
    } else if (warpgroup == 1) {
        take_registers<kMultiplierRegisters>();
        Multiplier<kind, tokens> multiplier{args, shared};
        multiplier.run();
    } else {
        give_registers<kDecoderRegisters>();
        Decoder<kind, tokens> decoder{args, shared};
        decoder.run(uint32_t(uniform(int32_t(warpgroup))) - 2);
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Lists the kernels by weights and by tokens of a tile.
constexpr auto kernels = kernels_of(
    []<class K, class Tokens>(K, Tokens) {
        using Block = OrderedShared<K::value, Tokens::value>;
        static_assert(sizeof(Block) <= 227 * 1024, "what a CTA may have");
        return kernel(weights_ordered_kernel<K::value, Tokens::value>, kOrderedThreads, sizeof(Block));
    },
    Values<Kind::Mxfp4, Kind::Nvfp4, Kind::Mxfp8, Kind::Fp8>{}, Values<kLeastTokens, kSomeTokens, kMostTokens>{});

Kind kind_of(const GemmOperand& b) {
    if (b.scale_type == ScaleType::F32) return Kind::Fp8;
    if (b.bits == 8) return Kind::Mxfp8;
    return b.scale_type == ScaleType::E4M3 ? Kind::Nvfp4 : Kind::Mxfp4;
}

int64_t tiles_with(const GemmProblem& p, int32_t tokens) { return tiles_of(p, tokens / parts_of_numbers(p.a), kLines); }

int64_t most_ctas(const Context& context, const GemmProblem& p) { return room_of(context, p, 1).ctas; }

// Returns the tokens of a tile, those with which all rounds of tiles take least. Sums of tiles of any size are the same.
int32_t ordered_tokens(const Context& context, const GemmProblem& p) {
    if (p.grouping == Grouping::Rows)
        return tokens_of(ceil_div(p.m * parts_of_numbers(p.a), std::max(p.groups.count, 1)), true, kLeastTokens);
    int32_t best = kLeastTokens;
    int64_t least = INT64_MAX;
    for (const int32_t tokens : {kLeastTokens, kSomeTokens, kMostTokens}) {
        const int64_t cost = ceil_div(tiles_with(p, tokens), most_ctas(context, p)) * ordered_block_cost(tokens);
        if (cost < least) best = tokens, least = cost;
    }
    return best;
}

}  // namespace

void run_ordered(const Context& context, const GemmProblem& p, const GemmOperand& tokens, void* stream) {
    const WeightRule weights = weight_rule(p.b);
    const Kind kind = kind_of(p.b);
    const int32_t of_tile = ordered_tokens(context, p), rows = of_tile / parts_of_numbers(p.a);
    Arguments args{};
    fill_arguments(args, p, rows, kLines);
    args.tokens = tensor_map(driver(), map_of_tokens(tokens, rows));
    args.codes = tensor_map(driver(), map_of_lines(p, kBlockNumbers, kLines));
    args.rule = weights.rule;
    args.missing = weights.missing;
    const int64_t ctas = std::min(tiles_with(p, of_tile), most_ctas(context, p));
    launch(context, kernels, {kind, of_tile}, "weights_sm90", dim3(unsigned(ctas)), stream, args);
}

void load_ordered() { load_kernels(kernels); }

}  // namespace mxq::cuda::sm90::weights
