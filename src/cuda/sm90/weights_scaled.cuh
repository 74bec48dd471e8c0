// The warps of weights_sm90 that decode and multiply weights with scales of 32 or 16 codes, or of whole lines, for tiles of
// 32 to 192 tokens:
//
//     shared       128 codes of a line and their scales
//     registers    8 or 16 codes of each line of a thread as BF16, times their scales: decoded while the tensor cores
//                  multiply those before
//     fp32         sums of the whole contraction
//
// Each of two warpgroups has 64 of every 128 of the tile's lines and all of its tokens. A thread has a quarter of 128 codes,
// 32 in a row, of two lines: tokens are arranged for that (weights_tokens.h). Inf, NaN and scales far above 1 need two
// factors: a warp that meets one decodes the step again in another way, and multiplies with the others of its warpgroup.
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

// Returns the offset of a thread's quarter of 128 codes of a line.
template <Weights kind, int line_bytes>
__device__ __forceinline__ uint32_t codes_of_thread(uint32_t line) {
    const uint32_t q = read_thread() % 4;
    return kind == Weights::Bits6 ? line * line_bytes + q * 24
                                  : place_in_lines<line_bytes>(line, q * (weight_bits<kind> / 4));
}

template <Weights kind, int line_bytes>
__device__ __forceinline__ Place place_of_thread(const Arguments& args, const Tile& tile, uint32_t line) {
    constexpr bool nvfp4 = kind == Weights::Nvfp4;
    const uint32_t q = read_thread() % 4;
    const uint32_t word = nvfp4 ? q / 2 : 0, bytes = nvfp4 ? 0x4440 | (q % 2 * 2) : 0x4440 | q;
    return {codes_of_thread<kind, line_bytes>(line), word * kScaledLines + word_of_line(line),
            args.shifted ? shifts_of_lines(args.problem, tile, line) : 0, bytes};
}

// Loads the scales of a thread's two lines in a step, those of its quarter of the codes, or those of 1. Returns whether one
// factor might not serve some scale of the block, of those that a warp's thread looks at for its lines.
template <Weights kind>
__device__ __forceinline__ bool load_scales_of_quarter(const Arguments& args, const uint32_t* from, const Place& place,
                                                       Fragment<kind>& to) {
    constexpr uint32_t ones = 0x7F7F7F7Fu;
    uint32_t marks = 0;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        uint32_t four = kind != Weights::Bits8 || args.has_blocks ? from[l * kWordsOfEightLines] : ones;
        if (args.shifted) four = __funnelshift_r(four, from[kScaledLines + l * kWordsOfEightLines], place.shifts >> 8 * l);
        marks |= kind == Weights::Nvfp4 ? (four & 0x7F7F7F7Fu) + (0x80u - E4M3::nan_code) * 0x01010101u : four;
#pragma unroll
        for (int i = 0; i < to.kScales; i++) to.scales[l][i] = permute_bytes(four, 0, place.bytes + i);
    }
    return marks & 0x80808080u;
}

// Loads some codes of a thread's quarter of 128 codes of a line, at so many bytes of those of a stage: 16 bytes, which a
// swizzle moves as one, or all of 6 bits.
template <Weights kind>
__device__ __forceinline__ void load_some_codes(const uint8_t* codes, uint32_t at, int part,
                                                uint32_t (&to)[weight_bits<kind>]) {
    if constexpr (kind == Weights::Bits6) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint2 two = *reinterpret_cast<const uint2*>(codes + at + 8 * i);
            to[2 * i] = two.x, to[2 * i + 1] = two.y;
        }
    } else {
        const uint4 four = *reinterpret_cast<const uint4*>(codes + (at ^ 16 * part));
        to[4 * part] = four.x, to[4 * part + 1] = four.y, to[4 * part + 2] = four.z, to[4 * part + 3] = four.w;
    }
}
template <Weights kind>
__device__ __forceinline__ void load_codes_of_quarter(const uint8_t* codes, uint32_t at, uint32_t (&to)[weight_bits<kind>]) {
#pragma unroll
    for (int part = 0; part < (kind == Weights::Bits8 ? 2 : 1); part++) load_some_codes<kind>(codes, at, part, to);
}

template <Weights kind, int tokens>
struct ScaledConsumer {
    // Decodes 4 codes of each line at a time for an instruction, or for two or four instructions. With two CTAs an SM,
    // registers suffice for four where the format is MXFP4 and a tile has up to 32 tokens.
    static constexpr bool kShort = Shared<kind, tokens>::kCtas == 2 && (kind != Weights::Bits4 || tokens == kSomeTokens);
    static constexpr int kTurnFours = !kShort                                           ? 4
                                      : kind == Weights::Bits8 && tokens == kSomeTokens ? 1
                                                                                        : 2,
                         kTurns = 8 / kTurnFours;
    using Block = Shared<kind, tokens>;
    using Step = Stage<kind, tokens>;
    static constexpr int kLine = Step::kLine;
    static_assert(Step::kNumbers == kBlockNumbers, "a step is a block");
    static constexpr int kSums = Block::kOutTokens / 2;
    using Operands = uint32_t[kTurnFours][4];
    // Holds what a thread has of a block: 32 codes of two lines.
    struct BlockOfThread {
        Fragment<kind> codes;
        bool special;  // some codes or scales of the warp need two factors
    };
    const Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[kSums];

    // Decodes four codes of either line to what the thread gives to an instruction.
    template <bool special>
    __device__ __forceinline__ void decode(const Fragment<kind>& of, int four, uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t codes = four_codes(of, l, four), scale = of.scales[l][four / 4 * (of.kScales - 1)];
            const EvenOddBf16 pairs = special
                                          ? decode_any_four<kind>(args.rule, args.missing, codes, four, scale)
                                          : decode_four<kind>(args.rule, codes, four, scale_factor<kind>(args.rule, scale));
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    // Decodes a turn: some codes of the lines.
    __device__ __forceinline__ void decode_turn(const BlockOfThread& own, int turn, Operands& operands) const {
#pragma unroll
        for (int i = 0; i < kTurnFours; i++) decode<false>(own.codes, turn * kTurnFours + i, operands[i]);
        if (!own.special) return;
#pragma unroll
        for (int i = 0; i < kTurnFours; i++) decode<true>(own.codes, turn * kTurnFours + i, operands[i]);
    }
    template <int count>
    __device__ __forceinline__ void multiply_turn(float (&sums)[count], const Step& step, int turn,
                                                  const Operands& operands) const {
        constexpr int of_box = kTokenBytes / kProductBytes;
        order_products();
#pragma unroll
        for (int i = 0; i < kTurnFours; i++) {
            const int product = turn * kTurnFours + i;
            multiply_bf16_lines(
                sums, operands[i],
                describe_tile(step.boxes + Step::box_at(product / of_box)).along(product % of_box * kProductBytes));
        }
        commit_products();
    }
    // Reads what the thread needs of a stage. Line 8 further on has the same swizzle.
    __device__ __forceinline__ void load_block(uint32_t stage, const Place& place, BlockOfThread& own) const {
        Fragment<kind>& of = own.codes;
#pragma unroll
        for (int l = 0; l < 2; l++)
            load_codes_of_quarter<kind>(shared.stages[stage].codes + l * 8 * kLine, place.codes, of.words[l]);
        bool special = load_scales_of_quarter(args, shared.scales[stage][0] + place.scales, place, of);
        if constexpr (kind == Weights::Bits8) special |= any_special(args.rule, of);
        own.special = __any_sync(kAllLanes, special);
    }
    // Multiplies the CTA's part of the contraction. Each turn is decoded while the one before is multiplied; of a step, the
    // last turn is multiplied while the first of the next is decoded, and no product is in flight as the loop goes round.
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const uint32_t line = bf16::consumer_warp() * kWarpLines + read_thread() % 32 / 4;
        const Place place = place_of_thread<kind, kLine>(args, tile, line);
        uint32_t next = ring.at(), parity = ring.parity();  // a stage
        Operands operands[2];
        BlockOfThread own;
        float sums[columns / 2];
#pragma unroll
        for (float& sum : sums) sum = 0;
        wait(shared.full[next], parity);
        load_block(next, place, own);
        decode_turn(own, 0, operands[0]);
        const auto multiply_step = [&](bool more) {
            const uint32_t stage = uint32_t(uniform(int32_t(next)));  // so that descriptors are, too
            if (++next == Block::kStages) next = 0, parity ^= 1;
            hold_accumulators(sums);
#pragma unroll
            for (int turn = 0; turn < kTurns; turn++) {
                multiply_turn(sums, shared.stages[stage], turn, operands[turn % 2]);
                if (turn > 0) wait_products_before<1>();  // those whose operands are overwritten next
                if (turn + 1 == kTurns) break;
                decode_turn(own, turn + 1, operands[(turn + 1) % 2]);
            }
            if (more) {
                wait(shared.full[next], parity);
                load_block(next, place, own);
                decode_turn(own, 0, operands[0]);
            }
            wait_products<0>(sums);
            __syncwarp();
            if (elect_lane()) arrive(shared.free[stage]);
        };
#pragma unroll 1
        for (int32_t left = tile.blocks; left > 1; left--) multiply_step(true);
        multiply_step(false);
        ring.bits = next + 8 * parity;
#pragma unroll
        for (int i = 0; i < kSums; i++) totals[i] = i < columns / 2 ? sums[i] : 0;
    }
    // Multiplies the CTA's part in instructions of at least as many columns as the tile has tokens, of those that are named.
    template <int columns, int... more>
    __device__ __forceinline__ void multiply_tokens(const Tile& tile) {
        if constexpr (sizeof...(more) > 0)
            if (args.parts == 2 || tile.rows > columns) return multiply_tokens<more...>(tile);
        multiply_steps<columns>(tile);
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        if constexpr (tokens == kWideTokens)
            multiply_tokens<64, 96, 128, 160, tokens>(tile);
        else if constexpr (tokens == kSomeTokens)
            multiply_tokens<tokens / 2, tokens / 4 * 3, tokens>(tile);
        else
            multiply_tokens<tokens / 2, tokens>(tile);
        if (args.parts == 2) bf16::add_low_parts(reinterpret_cast<float(&)[tokens / 2]>(totals));
    }
    // No line is to be made again: sums are as exact as they can be.
    __device__ __forceinline__ uint32_t lines_to_repair() const { return 0; }
};

}  // namespace mxq::cuda::sm90::weights
