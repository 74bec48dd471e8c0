// The warps of weights_sm90 that decode and multiply FP4 weights with scales of 32 or 16 codes:
//
//     shared       128 codes of a line and their scales
//     registers    32 of them as BF16, times their scales, a turn: decoded while the tensor cores multiply the turn before
//     fp32         sums of the whole contraction
//
// Each of two warpgroups has 64 of every 128 of the tile's lines and all of its tokens. Scales far above 1 need two factors: a warp that
// meets one decodes the step in another way, and multiplies with the others of its warpgroup.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

// Holds the scales of a thread's two lines in a step, those of its quarter of the codes: a byte each, or of NVFP4 two.
template <Weights kind>
struct QuarterScales {
    static constexpr int kCount = kind == Weights::Nvfp4 ? 2 : 1, kCodes = 32 / kCount;
    uint32_t bytes[2][kCount];

    // Scales of blocks that do not exist become those of finite numbers, since the codes there are zeros. `shifts`: by how many
    // bits the scales of either line begin behind the first bit of their words, 8 bits each. Returns whether one factor might not
    // serve some scale of the step, of those that a warp's thread looks at for its lines.
    __device__ __forceinline__ bool load(const ScalesOfLines<kind>& from, uint32_t line, int32_t blocks, bool shifted, uint32_t shifts) {
        constexpr uint32_t none = kind == Weights::Nvfp4 ? 0 : 0x7F7F7F7Fu;
        const uint32_t q = read_thread() % 4, word = kind == Weights::Nvfp4 ? q / 2 : 0;
        uint32_t marks = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            uint32_t four = from[word][line + 8 * l];
            if (shifted) four = __funnelshift_r(four, from[word + 1][line + 8 * l], shifts >> 8 * l);
            if (blocks < 4 * kScaleWords<kind>) {
                const uint32_t mask = first_bytes(max(min(blocks - int32_t(4 * word), 4), 0));
                four = (four & mask) | (none & ~mask);
            }
            marks |= kind == Weights::Nvfp4 ? (four & 0x7F7F7F7Fu) + (0x80u - E4M3::nan_code) * 0x01010101u : four;
#pragma unroll
            for (int i = 0; i < kCount; i++)
                bytes[l][i] = permute_bytes(four, 0, 0x4440 | (kind == Weights::Nvfp4 ? q % 2 * 2 + i : q));
        }
        return marks & 0x80808080u;
    }
};

template <Weights kind, int tokens, int halves>
struct ScaledConsumer {
    // Words of eight codes of a turn; more leave no registers for the sums of 64 tokens where two CTAs share an SM.
    static constexpr int kTurnWords = tokens == kSomeTokens && halves == 1 ? 1 : 2, kTurns = 4 / kTurnWords * halves;
    using Block = Shared<kind, tokens, halves>;
    using Step = Stage<kind, tokens, halves>;
    using Operands = uint32_t[kTurnWords * 2][4];
    // Says which lines of each 128 a thread has, where their codes lie in those of a stage, and how their scales in words.
    struct Place {
        uint32_t line, codes, shifts;
    };
    // Holds what a thread has of a step: 32 codes of two lines of each 128.
    struct StepOfThread {
        uint4 codes[halves][2];
        QuarterScales<kind> scales[halves];
        bool special;  // some scales of the warp need two factors
    };
    const Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[halves][tokens / 2];

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
    __device__ __forceinline__ void decode_turn(const StepOfThread& own, int turn, Operands& operands) const {
        const int half = turn % halves, first = turn / halves * kTurnWords;
        if (own.special) {
#pragma unroll
            for (int i = 0; i < kTurnWords; i++) decode<true>(own.codes[half], own.scales[half], first + i, &operands[2 * i]);
        } else {
#pragma unroll
            for (int i = 0; i < kTurnWords; i++) decode<false>(own.codes[half], own.scales[half], first + i, &operands[2 * i]);
        }
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
    // Waits for the next stage, and reads what the thread needs of it; `codes` are left of the contraction. Line 8 further on has
    // the same swizzle.
    __device__ __forceinline__ void begin_step(const Place& place, int32_t codes, StepOfThread& own) {
        wait(shared.full[ring.at()], ring.parity());
        const uint32_t blocks = uint32_t(codes + QuarterScales<kind>::kCodes - 1) / QuarterScales<kind>::kCodes;
        bool special = false;
#pragma unroll
        for (int half = 0; half < halves; half++) {
            const uint8_t* const from = shared.stages[ring.at()].codes[half] + place.codes;
#pragma unroll
            for (int l = 0; l < 2; l++) own.codes[half][l] = *reinterpret_cast<const uint4*>(from + l * 8 * kLineBytes);
            special |= own.scales[half].load(shared.scales[ring.at()][half], place.line, int32_t(blocks), args.shifted,
                                             place.shifts);
        }
        own.special = __any_sync(kAllLanes, special);
    }
    // Lines 128 apart begin alike in words of scales.
    __device__ __forceinline__ Place place_of_thread(const Tile& tile) const {
        const uint32_t line = bf16::consumer_warp() * kWarpLines + read_thread() % 32 / 4;
        return {line, place_in_lines<kLineBytes>(line, read_thread() % 4),
                args.shifted ? shifts_of_lines(args.problem, tile, line) : 0};
    }
    // Multiplies the CTA's part of the contraction. Each turn is decoded while the one before is multiplied; of a step, the last
    // turn is multiplied while the first of the next is decoded, and no product is on its way as the loop goes round.
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const Steps steps = blocks_of_cta(args);
        const Place place = place_of_thread(tile);
        int32_t codes = int32_t(args.problem.k) - steps.first * kScaledCodes;
        Operands operands[2];
        StepOfThread own;
        float sums[halves][columns / 2];
#pragma unroll
        for (auto& of_half : sums)
            for (float& sum : of_half) sum = 0;
        begin_step(place, codes, own);
        decode_turn(own, 0, operands[0]);
#pragma unroll 1
        for (int32_t left = steps.count; left > 0; left--) {
            const uint32_t stage = uint32_t(uniform(int32_t(ring.at())));  // so that descriptors are, too
            ring.next();
            codes -= kScaledCodes;
#pragma unroll
            for (auto& of_half : sums) hold_accumulators(of_half);
#pragma unroll
            for (int turn = 0; turn < kTurns; turn++) {
                multiply_turn(sums[turn % halves], shared.stages[stage], turn, operands[turn % 2]);
                if (turn > 0) wait_products_before<1>();  // those whose operands are overwritten next
                if (turn + 1 < kTurns) decode_turn(own, turn + 1, operands[(turn + 1) % 2]);
            }
            if (left > 1) {
                begin_step(place, codes, own);
                decode_turn(own, 0, operands[0]);
            }
            wait_products_before<0>();
#pragma unroll
            for (auto& of_half : sums) hold_accumulators(of_half);
            __syncwarp();
            if (read_thread() % 32 == 0) arrive(shared.free[stage]);
        }
#pragma unroll
        for (int half = 0; half < halves; half++)
#pragma unroll
            for (int i = 0; i < columns / 2; i++) totals[half][i] = sums[half][i];
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        if (args.parts == 1 && tile.rows <= tokens / 2)
            multiply_steps<tokens / 2>(tile);
        else
            multiply_steps<tokens>(tile);
        if (args.parts == 2)
#pragma unroll
            for (auto& of_half : totals) bf16::add_low_parts(of_half);
    }
    __device__ __forceinline__ const float (&totals_of(int half) const)[tokens / 2] { return totals[half]; }
    // No line is to be made again: sums are as exact as they can be.
    __device__ __forceinline__ uint32_t lines_to_repair() const { return 0; }
};

}  // namespace mxq::cuda::sm90::weights
