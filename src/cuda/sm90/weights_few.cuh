// The warps of weights_sm90 that multiply tiles of 16 tokens, each by itself (mma.sync), so that none waits for another:
//
//     shared       128 codes of a line; 128 numbers of a token in two boxes, as they lie in memory
//     registers    four codes of 16 lines as BF16, times their scales (few_scales.cuh): an instruction's; then the numbers
//                  of 8 tokens for two instructions, by one load
//     fp32         sums of the whole contraction
//
// Each warp has 16 of the tile's lines. A thread has a quarter of 128 codes, 32 in a row, of two lines, and the same quarter
// of a token's numbers. A warp that meets Inf, NaN or a scale far above 1 multiplies the block by two factors.
#pragma once
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/sm90/few_scales.cuh"
#include "cuda/sm90/weights_scaled.cuh"

namespace mxq::cuda::sm90::weights {

template <Weights kind>
struct FewConsumer {
    using Block = Shared<kind, kFewestTokens>;
    using Step = Block::OneStage;
    static constexpr int kLine = Block::kLine, kBlocks = Step::kNumbers / kBlockNumbers, kSums = Block::kOutTokens / 2;
    // Where two blocks share 128 bytes under the swizzle, lanes 0 to 7 read from all banks if they have lines 0 and 4.
    static constexpr bool kPermuted = kBlocks == 2;
    // Codes of 8 bits come in two parts, since registers are short.
    static constexpr int kPairs = kind == Weights::Bits8 ? 2 : 4;
    using Factors = uint32_t[2][Fragment<kind>::kScales];
    const Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[kSums];

    // Returns which of eight lines a lane has.
    static __device__ __forceinline__ uint32_t line_of_lane() {
        const uint32_t eighth = read_thread() % 32 / 4;
        return kPermuted ? eighth / 2 + eighth % 2 * 4 : eighth;
    }
    // Returns the offset in a stage's boxes of a thread's first numbers: of one of eight tokens, its quarter of a block.
    static __device__ __forceinline__ uint32_t tokens_of_thread() {
        const uint32_t lane = read_thread() % 32, token = lane / 4, half = lane % 4 / 2;
        const uint32_t swizzled = lane % 2 * 4 ^ (token + half * (kBoxGap / kTokenBytes)) % 8;
        return Step::box_at(int(half)) + token * kTokenBytes + swizzled * 16;
    }
    template <bool special>
    __device__ __forceinline__ void decode(const Fragment<kind>& of, int four, const Factors& factors,
                                           uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int scale = four / 4 * (of.kScales - 1);
            const uint32_t codes = four_codes(of, l, four);
            const EvenOddBf16 pairs = special
                                          ? decode_any_four<kind>(args.rule, args.missing, codes, four, of.scales[l][scale])
                                          : decode_four<kind>(args.rule, codes, four, factors[l][scale]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    // Multiplies a part of a block, from pair `part` * kPairs of its instructions on.
    template <int columns, bool special>
    __device__ __forceinline__ void multiply_part(const Fragment<kind>& of, int part, const uint8_t* boxes, uint32_t tokens,
                                                  const Factors& factors) {
#pragma unroll
        for (int two = part * kPairs; two < (part + 1) * kPairs; two++) {
            uint32_t first[4], second[4];
            decode<special>(of, 2 * two, factors, first);
            decode<special>(of, 2 * two + 1, factors, second);
#pragma unroll
            for (int eight = 0; eight < columns / 8; eight++) {
                const uint4 numbers =
                    pair_eight<kind>(*reinterpret_cast<const uint4*>(boxes + (tokens ^ two * 16) + eight * 8 * kTokenBytes));
                auto& sums = reinterpret_cast<float(&)[4]>(totals[4 * eight]);
                multiply_add_bf16(sums, first, numbers.x, numbers.y);
                multiply_add_bf16(sums, second, numbers.z, numbers.w);
            }
        }
    }
    // Multiplies a stage. `take_scales(block, fragment)` takes the scales of one of its blocks, and returns whether some of
    // the warp's may need two factors.
    template <int columns, class TakeScales>
    __device__ __forceinline__ void multiply_step(const Step& step, const Place& place, uint32_t tokens,
                                                  const TakeScales& take_scales) {
#pragma unroll
        for (int block = 0; block < kBlocks; block++) {
            Fragment<kind> of;
            const bool special_scales = take_scales(block, of);
            Factors factors;
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int i = 0; i < of.kScales; i++) factors[l][i] = scale_factor<kind>(args.rule, of.scales[l][i]);
            const uint8_t* const boxes = step.boxes + Step::box_at(2 * block);
#pragma unroll
            for (int part = 0; part < 4 / kPairs; part++) {
#pragma unroll
                for (int l = 0; l < 2; l++)
                    load_some_codes<kind>(step.codes + l * 8 * kLine, place.codes ^ block * (kLine / 2), part, of.words[l]);
                bool own = special_scales;
                if constexpr (kind == Weights::Bits8) own |= __any_sync(kAllLanes, any_special(args.rule, of, part));
                if (own)
                    multiply_part<columns, true>(of, part, boxes, tokens, factors);
                else
                    multiply_part<columns, false>(of, part, boxes, tokens, factors);
            }
        }
    }
    // Calls `multiply(number of the step)` with each step of the CTA's part of the contraction, as its stage is full.
    template <class Multiply>
    __device__ __forceinline__ void each_stage(const Tile& tile, const Multiply& multiply) {
#pragma unroll 1
        for (int32_t step = 0; step < tile.blocks; step++, ring.next()) {
            multiply(uint32_t(step));
            __syncwarp();
            if (elect_lane()) arrive(shared.free[ring.at()]);
        }
    }
    // Multiplies the part by scales that lie in the stages, or by those that the warp loads.
    template <int columns, bool swizzled>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const uint32_t line = bf16::consumer_warp() * kWarpLines + line_of_lane();
        Place place = place_of_thread<kind, kLine>(args, tile, line);
        uint32_t tokens = tokens_of_thread();
        keep(place.codes), keep(tokens);
        if constexpr (swizzled) {
            each_stage(tile, [&](uint32_t) {
                wait(shared.full[ring.at()], ring.parity());
                const auto take = [&](int block, Fragment<kind>& of) {
                    const uint32_t* const from = shared.scales[ring.at()][block * kScaleWords<kind>] + place.scales;
                    return __any_sync(kAllLanes, load_scales_of_quarter(args, from, place, of));
                };
                multiply_step<columns>(shared.stages[ring.at()], place, tokens, take);
            });
        } else {
            FewScales<kind> scales;
            scales.begin(args, tile, line, tile.first_block * kBlocks);
            bool special = false;
            each_stage(tile, [&](uint32_t step) {
                if (step % (kScaleRound / kBlocks) == 0) special = scales.next_round(args);
                wait(shared.full[ring.at()], ring.parity());
                const auto take = [&](int block, Fragment<kind>& of) {
                    scales.take((step * kBlocks + uint32_t(block)) % kScaleRound, of);
                    return special;
                };
                multiply_step<columns>(shared.stages[ring.at()], place, tokens, take);
            });
        }
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
#pragma unroll
        for (float& total : totals) total = 0;
        const bool has_eight = args.parts == 1 && tile.rows <= 8;
        if (args.swizzled)
            has_eight ? multiply_steps<8, true>(tile) : multiply_steps<16, true>(tile);
        else
            has_eight ? multiply_steps<8, false>(tile) : multiply_steps<16, false>(tile);
        if (args.parts == 2) bf16::add_low_parts(reinterpret_cast<float(&)[kFewestTokens / 2]>(totals));
        if (!kPermuted) return;
        const uint32_t lane = read_thread() % 32, eighth = lane / 4, from = (eighth % 4 * 2 + eighth / 4) * 4 + lane % 4;
#pragma unroll
        for (int i = 0; i < kFewestTokens / 2; i++) totals[i] = __shfl_sync(kAllLanes, totals[i], from);
    }
    // No line is to be made again: sums are as exact as they can be.
    __device__ __forceinline__ uint32_t lines_to_repair() const { return 0; }
};

}  // namespace mxq::cuda::sm90::weights
