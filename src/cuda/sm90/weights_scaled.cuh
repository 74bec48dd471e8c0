// The warps of weights_sm90 that decode and multiply FP4 weights with scales of 32 or 16 codes:
//
//     shared       128 codes of a line and their scales
//     registers    32 or 64 codes as BF16, times their scales: decoded while the tensor cores multiply those before
//     fp32         sums of the whole contraction
//
// Each of two warpgroups has 64 of every 128 of the tile's lines and all of its tokens. A thread has a quarter of 128 codes,
// 32 in a row, of two lines: tokens are arranged for that (weights_tokens.h). Scales far above 1 need two factors: a warp
// that meets one decodes the step again in another way, and multiplies with the others of its warpgroup.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

// Holds the offsets of a thread's two lines in a stage, of each 128 lines: `codes` of their codes, `scales` of the words
// with the scales of its quarter, `shifts` by which a line's scales are unaligned (in bits, 8 for either line), and `bytes`
// of the quarter.
struct Place {
    uint32_t codes, scales, shifts, bytes;
};

template <Weights kind, int line_bytes>
__device__ __forceinline__ Place place_of_thread(const Arguments& args, const Tile& tile) {
    constexpr bool nvfp4 = kind == Weights::Nvfp4;
    const uint32_t line = bf16::consumer_warp() * kWarpLines + read_thread() % 32 / 4, q = read_thread() % 4;
    const uint32_t word = nvfp4 ? q / 2 : 0, bytes = nvfp4 ? 0x4440 | (q % 2 * 2) : 0x4440 | q;
    return {place_in_lines<line_bytes>(line, q), word * kScaledLines + line,
            args.shifted ? shifts_of_lines(args.problem, tile, line) : 0, bytes};
}

// Holds the scales of a thread's two lines in a step, those of its quarter of the codes: a byte each, or of NVFP4 two.
template <Weights kind>
struct QuarterScales {
    static constexpr int kCount = kind == Weights::Nvfp4 ? 2 : 1;
    uint32_t bytes[2][kCount];

    // Returns whether one factor might not serve some scale of the block, of those that a warp's thread looks at for its
    // lines.
    __device__ __forceinline__ bool load(const uint32_t* from, const Place& place, bool shifted) {
        uint32_t marks = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            uint32_t four = from[8 * l];
            if (shifted) four = __funnelshift_r(four, from[kScaledLines + 8 * l], place.shifts >> 8 * l);
            marks |= kind == Weights::Nvfp4 ? (four & 0x7F7F7F7Fu) + (0x80u - E4M3::nan_code) * 0x01010101u : four;
#pragma unroll
            for (int i = 0; i < kCount; i++) bytes[l][i] = permute_bytes(four, 0, place.bytes + i);
        }
        return marks & 0x80808080u;
    }
};

template <Weights kind, int tokens, int halves>
struct ScaledConsumer {
    // Decodes one or two words of eight codes at a time. With two CTAs an SM, registers suffice for two words where the
    // format is MXFP4 and a tile has 32 tokens.
    static constexpr bool kShort =
        Shared<kind, tokens, halves>::kCtas == 2 && (kind == Weights::Nvfp4 || tokens == kSomeTokens);
    static constexpr int kTurnWords = kShort ? 1 : 2, kTurns = 4 / kTurnWords * halves;
    using Block = Shared<kind, tokens, halves>;
    using Step = Stage<kind, tokens, halves>;
    static constexpr int kLine = Step::kLine, kBlocks = Step::kNumbers / kBlockNumbers;  // of a step
    static constexpr int kSums = Block::kOutTokens / 2;
    using Operands = uint32_t[kTurnWords * 2][4];
    // Holds what a thread has of a block: 32 codes of two lines of each 128.
    struct BlockOfThread {
        uint4 codes[halves][2];
        QuarterScales<kind> scales[halves];
        bool special;  // some scales of the warp need two factors
    };
    const Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[halves][kSums];

    // Decodes a word of either line to what the thread gives to two instructions.
    template <bool special>
    __device__ __forceinline__ void decode(const uint4 (&of_lines)[2], const QuarterScales<kind>& scales, int word,
                                           uint32_t (*to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint4& codes = of_lines[l];
            const uint32_t eight = word == 0 ? codes.x : word == 1 ? codes.y : word == 2 ? codes.z : codes.w;
            const uint32_t scale = scales.bytes[l][word / 2 * (scales.kCount - 1)];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const EvenOddBf16 moved{move_pair_of_word(eight, 2 * i), move_pair_of_word(eight, 2 * i + 1)};
                const EvenOddBf16 pairs = special ? scale_any_four<kind>(args.rule, args.missing, moved, 0, scale)
                                                  : scale_four<kind>(args.rule, moved, scale_factor<kind>(args.rule, scale));
                to[i][l] = pairs.even, to[i][2 + l] = pairs.odd;
            }
        }
    }
    // Decodes a turn: some words of the lines of 128, then the same words of the other 128.
    __device__ __forceinline__ void decode_turn(const BlockOfThread& own, int turn, Operands& operands) const {
        const int half = turn % halves, first = turn / halves * kTurnWords;
#pragma unroll
        for (int i = 0; i < kTurnWords; i++) decode<false>(own.codes[half], own.scales[half], first + i, &operands[2 * i]);
        if (!own.special) return;
#pragma unroll
        for (int i = 0; i < kTurnWords; i++) decode<true>(own.codes[half], own.scales[half], first + i, &operands[2 * i]);
    }
    template <int count>
    __device__ __forceinline__ void multiply_turn(float (&sums)[count], const Step& step, int turn,
                                                  const Operands& operands) const {
        constexpr int of_box = kTokenBytes / kProductBytes;
        order_products();
#pragma unroll
        for (int i = 0; i < 2 * kTurnWords; i++) {
            const int product = turn / halves * 2 * kTurnWords + i;
            multiply_bf16_lines(sums, operands[i],
                                describe_tile(step.boxes[product / of_box]).along(product % of_box * kProductBytes));
        }
        commit_products();
    }
    // Reads what the thread needs of a block of a stage. Line 8 further on has the same swizzle.
    __device__ __forceinline__ void load_block(uint32_t stage, int block, const Place& place, BlockOfThread& own) const {
        bool special = false;
#pragma unroll
        for (int half = 0; half < halves; half++) {
            const uint8_t* const from = shared.stages[stage].codes[half] + (place.codes ^ block * (kLine / 2));
#pragma unroll
            for (int l = 0; l < 2; l++) own.codes[half][l] = *reinterpret_cast<const uint4*>(from + l * 8 * kLine);
            const uint32_t* const scales = shared.scales[stage][half][block * kScaleWords<kind>];
            special |= own.scales[half].load(scales + place.scales, place, args.shifted);
        }
        own.special = __any_sync(kAllLanes, special);
    }
    // Multiplies the CTA's part of the contraction. Each turn is decoded while the one before is multiplied; of a step, the
    // last turn is multiplied while the first of the next is decoded, and no product is in flight as the loop goes round.
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const Place place = place_of_thread<kind, kLine>(args, tile);
        uint32_t next = ring.at(), parity = ring.parity();  // a stage
        Operands operands[2];
        BlockOfThread own;
        float sums[halves][columns / 2];
#pragma unroll
        for (auto& of_half : sums)
            for (float& sum : of_half) sum = 0;
        wait(shared.full[next], parity);
        load_block(next, 0, place, own);
        decode_turn(own, 0, operands[0]);
        const auto multiply_step = [&](bool more) {
            const uint32_t stage = uint32_t(uniform(int32_t(next)));  // so that descriptors are, too
            if (++next == Block::kStages) next = 0, parity ^= 1;
#pragma unroll
            for (auto& of_half : sums) hold_accumulators(of_half);
#pragma unroll
            for (int turn = 0; turn < kBlocks * kTurns; turn++) {
                multiply_turn(sums[turn % halves], shared.stages[stage], turn, operands[turn % 2]);
                if (turn > 0) wait_products_before<1>();  // those whose operands are overwritten next
                if (turn + 1 == kBlocks * kTurns) break;
                if ((turn + 1) % kTurns == 0) load_block(stage, (turn + 1) / kTurns, place, own);
                decode_turn(own, (turn + 1) % kTurns, operands[(turn + 1) % 2]);
            }
            if (more) {
                wait(shared.full[next], parity);
                load_block(next, 0, place, own);
                decode_turn(own, 0, operands[0]);
            }
            wait_products_before<0>();
#pragma unroll
            for (auto& of_half : sums) hold_accumulators(of_half);
            __syncwarp();
            if (elect_lane()) arrive(shared.free[stage]);
        };
#pragma unroll 1
        for (int32_t left = blocks_of_cta<Block::kBlock>(args).count; left > 1; left--) multiply_step(true);
        multiply_step(false);
        ring.bits = next + 8 * parity;
#pragma unroll
        for (int half = 0; half < halves; half++)
#pragma unroll
            for (int i = 0; i < kSums; i++) totals[half][i] = i < columns / 2 ? sums[half][i] : 0;
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        constexpr int three_quarters = tokens > kLeastTokens ? tokens / 4 * 3 : tokens;
        if (args.parts == 1 && tile.rows <= tokens / 2)
            multiply_steps<tokens / 2>(tile);
        else if (three_quarters < tokens && args.parts == 1 && tile.rows <= three_quarters)
            multiply_steps<three_quarters>(tile);
        else
            multiply_steps<tokens>(tile);
        if (args.parts == 2)
#pragma unroll
            for (auto& of_half : totals) bf16::add_low_parts(reinterpret_cast<float(&)[tokens / 2]>(of_half));
    }
    __device__ __forceinline__ const float (&totals_of(int half) const)[kSums] { return totals[half]; }
    // No line is to be made again: sums are as exact as they can be.
    __device__ __forceinline__ uint32_t lines_to_repair() const { return 0; }
};

}  // namespace mxq::cuda::sm90::weights
