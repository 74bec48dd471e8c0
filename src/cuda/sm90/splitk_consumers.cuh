// The warps of splitk_sm90 that decode and multiply, four warpgroups:
//
//                   lines 0..63       lines 64..127
//     even steps    warpgroup 0       warpgroup 1          in each: the codes of a box of tokens are decoded
//     odd steps     warpgroup 2       warpgroup 3          while the tensor cores multiply the box before
//
// Four warps a scheduler then decode, and one waits while others work. From 96 tokens on there are registers for two alone,
// which make all steps. What both halves have, and all blocks of the cluster, is added up in the end through shared memory
// (bf16_exchange.cuh has pieces and their parts):
//
//     piece       16 lines x 32 tokens; the blocks of the cluster take turns with them, and the warps of a block
//     parts       of each block one for a half
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/splitk_tiles.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::splitk {

constexpr int kTurns = kStepCodes / (16 * kBatch);  // of a step

template <Weights kind, int tokens>
struct Consumer {
    using Block = Shared<kind, tokens>;
    using Step = Stage<kind, tokens>;
    using LineCodes = Codes<kind, kStepCodes>;
    using Operands = uint32_t[kTurns / kBoxes][kBatch][4];
    const Arguments& args;
    Block& shared;
    uint32_t half, line;  // which steps; of the tile, the thread's first
    float sums[tokens / 2];

    // Returns whether codes of 8 bits are Inf or NaN, of those that this thread looks at for its lines.
    __device__ __forceinline__ bool any_special_code(const Step& step) const {
        uint32_t marks = 0;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int piece = 0; piece < 2; piece++) {
                const uint4 of = *reinterpret_cast<const uint4*>(
                    step.codes + place_in_lines<Step::line_bytes>(line + 8 * l, threadIdx.x % 4 * 2 + piece));
                for (uint32_t word : {of.x, of.y, of.z, of.w}) marks |= mark_special_codes(args.rule, word);
            }
        return marks & kSpecialMarks;
    }
    template <bool special>
    __device__ __forceinline__ void decode(const LineCodes (&codes)[2], const StepScales<kind>& scales, int turn,
                                           uint32_t (&to)[kBatch][4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            typename LineCodes::Four own[kBatch];
            codes[l].bring(own);
#pragma unroll
            for (int i = 0; i < kBatch; i++) {
                const uint32_t scale = scales.of(l, (turn * kBatch + i) * 16);
                const EvenOddBf16 moved = LineCodes::move(args.rule, own[i]);
                const EvenOddBf16 pairs =
                    special ? scale_any_four<kind>(args.rule, args.missing, moved, special_word<kind>(own[i]), scale)
                            : scale_four<kind>(args.rule, moved, scale_factor<kind>(args.rule, scale));
                to[i][l] = pairs.even, to[i][2 + l] = pairs.odd;
            }
        }
    }
    // Decodes a thread's codes of one box of tokens.
    template <bool special>
    __device__ __forceinline__ void decode_box(const Step& step, const StepScales<kind>& scales, int box,
                                               Operands& to) const {
        constexpr int turns = kTurns / kBoxes;
        LineCodes codes[turns][2];
#pragma unroll
        for (int turn = 0; turn < turns; turn++)
#pragma unroll
            for (int l = 0; l < 2; l++) codes[turn][l].load(step.codes, line + 8 * l, box * turns + turn);
#pragma unroll
        for (int turn = 0; turn < turns; turn++) decode<special>(codes[turn], scales, box * turns + turn, to[turn]);
    }
    // Multiplies a box, and waits until the products of the one before are complete, whose operands the next one overwrites.
    // A warp that meets something special decodes it another way, and multiplies with the others of its warpgroup.
    __device__ __forceinline__ void multiply_box(const Step& step, const StepScales<kind>& scales, int box, bool special,
                                                 Operands& operands) {
        if (special)
            decode_box<true>(step, scales, box, operands);
        else
            decode_box<false>(step, scales, box, operands);
        const TileDescriptor described = describe_tile(step.token_boxes[box]);
        order_products();
#pragma unroll
        for (int i = 0; i < kTurns / kBoxes * kBatch; i++)
            multiply_bf16_lines(sums, operands[i / kBatch][i % kBatch], described.along(i * kProductBytes));
        commit_products();
        wait_products_before<1>();
    }
    __device__ __forceinline__ void release(uint32_t stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
    }
    // The last products of a step are on their way while the first codes of the next are decoded. The compiler follows
    // accumulators over the loop's end as long as nothing touches them, not even in order to hold them.
    __device__ __forceinline__ void multiply_steps() {
        constexpr uint32_t stages = Block::kStages, halves = kHalves<tokens>, block_codes = StepScales<kind>::kCodes;
        const Steps steps = part_of_steps(args);
        const bool scaled = kind != Weights::Bits8 || args.problem.b.scale_type == ScaleType::E8M0;
        const uint32_t shifts = args.shifted ? shifts_of_lines(args.problem, shared.tile, line) : 0;
        uint32_t stage = half, before = half, parity = 0;
        Operands operands[kBoxes];
#pragma unroll
        for (float& sum : sums) sum = 0;
        begin_products(sums);
#pragma unroll 1
        for (int32_t step = int32_t(half); step < steps.count; step += halves) {
            const Step& own = shared.stages[uniform(int32_t(stage))];
            wait(shared.full[stage], parity);
            StepScales<kind> scales;
            const int32_t codes = int32_t(args.problem.k) - (steps.first + step) * kStepCodes;
            scales.load(own.scales, word_of_line(line), scaled, int32_t((uint32_t(codes) + block_codes - 1) / block_codes), args.shifted,
                        shifts);
            bool special = scales.any_special();
            if constexpr (kind == Weights::Bits8) special |= any_special_code(own);
            special = __any_sync(kAllLanes, special);
            multiply_box(own, scales, 0, special, operands[0]);
            if (step >= int32_t(halves)) release(before);
            multiply_box(own, scales, 1, special, operands[1]);
            before = stage;
            stage += halves;
            if (stage >= stages) stage -= stages, parity ^= 1;
        }
        wait_products<0>(sums);
        if (args.parts == 2) bf16::add_low_parts(sums);
    }
};

// ---- From sums to D ------------------------------------------------------------------------------------------------------

using bf16::kOutTokens;
using bf16::kTurnSums;
using bf16::PartOfPiece;

// Holds the parts of a block's pieces, and what its warps bring to D.
template <int tokens>
struct Exchange {
    static constexpr int of_warp = tokens / kOutTokens, pieces = kLineWarps * of_warp;
    static constexpr int halves = kHalves<tokens>;
    PartOfPiece parts[(pieces + bf16::kMostSharing) * halves];
    uint8_t outs[kConsumerWarps<tokens>][bf16::kOutBytes];
};

// Takes the sums of all warps of the cluster to D. All of its consumers call it when the last of their products is complete.
template <Weights kind, int tokens>
__device__ __forceinline__ void write_tile(const Arguments& args, const Consumer<kind, tokens>& consumer,
                                           Exchange<tokens>& exchange) {
    using Pieces = Exchange<tokens>;
    const Tile& tile = consumer.shared.tile;
    const uint32_t sharing = args.sharing, own = block_of_cluster(), warp = bf16::consumer_warp();
    const uint32_t parts = Pieces::halves * sharing, part = own * Pieces::halves + consumer.half;
    sync_cluster_readers();  // nobody needs the stages any more, where the parts go
#pragma unroll
    for (uint32_t turn = 0; turn < Pieces::of_warp; turn++) {
        if (int32_t(turn) * kOutTokens >= tile.rows) break;
        const uint32_t piece = warp % kLineWarps * Pieces::of_warp + turn, before = piece / sharing;
        bf16::send_part(exchange.parts[before * parts + part], piece - before * sharing, &consumer.sums[turn * kTurnSums]);
    }
    sync_cluster();
#pragma unroll 1
    for (uint32_t before = warp; before * sharing + own < Pieces::pieces; before += kConsumerWarps<tokens>) {
        const uint32_t piece = before * sharing + own, turn = piece % Pieces::of_warp;
        const int32_t line = tile.line + int32_t(piece / Pieces::of_warp) * kWarpLines;
        if (int32_t(turn) * kOutTokens >= tile.padded) continue;
        PartOfPiece* const of_piece = &exchange.parts[before * parts];
        float sums[kTurnSums];
        bf16::add_parts(of_piece, parts, sums);
        const bf16::Output output = bf16::output_of<kind>(args, tile, line);
        bf16::add_bias_to_sums(args, tile, output, line, 0, sums);
        bf16::write_any_turn<kind>(args, tile, output, line, int(turn) * kOutTokens, 0, sums, exchange.outs[warp]);
    }
}

}  // namespace mxq::cuda::sm90::splitk
