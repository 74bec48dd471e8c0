// The warps of wgmma_bf16_sm90 that decode and multiply:
//
//     shared    codes of a line     | 16 codes, an instruction's  | 16 | 16 | 16 |     (line_codes.cuh)
//     registers BF16, decoded a turn at a time, while the tensor cores multiply the turn before with the tokens
//
// Each warpgroup has 64 of the tile's lines and all of its tokens. What one waits for, the other's products hide.
//
// Codes that are Inf or NaN are rare, so the loop only remembers in which lines it met some. The sums of these lines are made
// again afterwards, one by one (bf16_output.cuh).
#pragma once
#include "cuda/sm90/bf16_output.cuh"
#include "cuda/sm90/bf16_producers.cuh"
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::bf16 {

// ---- Products ------------------------------------------------------------------------------------------------------------

// Returns the first accumulators of some, those of so many columns. (Where a member function casts its own, the compiler keeps
// them in memory.)
template <int columns, int count>
__device__ __forceinline__ float (&first_columns(float (&sums)[count]))[columns / 2] {
    return reinterpret_cast<float(&)[columns / 2]>(sums);
}

// Holds what a thread loads for a turn, 32 codes of two lines: codes, and the scale of each line, or of NVFP4 two.
template <Weights kind>
struct Loaded {
    Codes<kind, kStepCodes> codes[2];
    uint32_t scales[2];
};

constexpr int kTurns = kStepCodes / 32;
static_assert(kTurns == 2, "one is loaded, decoded and multiplied while the other is on its way");

template <Weights kind>
struct Consumer {
    using Step = Stage<kind>;
    using Operands = uint32_t[kBatch][4];
    using Four = typename Codes<kind, kStepCodes>::Four;
    const Arguments& args;
    Shared<kind>& shared;
    uint32_t line;  // of the tile, the thread's first
    Ring<kStages> ring;
    float sums[kMostTokens / 2];
    uint32_t marks[2];  // kSpecialMarks, where codes of a line were Inf or NaN

    // Loads a turn of a stage that is full.
    __device__ __forceinline__ void load(uint32_t stage, int turn, Loaded<kind>& to) const {
        const Step& step = shared.stages[stage];
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t own = line + 8 * l;
            const uint8_t* const scales = step.scales + own * Step::scale_bytes;
            to.codes[l].load(step.codes, own, turn);
            if constexpr (kind == Weights::Nvfp4)
                to.scales[l] = reinterpret_cast<const uint32_t*>(scales)[turn];
            else
                to.scales[l] = kind == Weights::Bits8 && !args.scales.bytes ? 127 : scales[turn];
        }
    }
    // Decodes four codes of an instruction.
    template <bool any_scales>
    __device__ __forceinline__ EvenOddBf16 decode_four(const Four& codes, uint32_t scale, int instruction) const {
        const EvenOddBf16 moved = Codes<kind, kStepCodes>::move(args.rule, codes);
        if constexpr (kind == Weights::Nvfp4)
            return scale_four<kind>(args.rule, moved, permute_bytes(scale, 0, instruction == 0 ? 0x1010 : 0x3232));
        if constexpr (any_scales) return scale_any_four<kind>(args.rule, args.missing, moved, special_word<kind>(codes), scale);
        return scale_four<kind>(args.rule, moved, scale_factor<kind>(args.rule, scale));
    }
    // Decodes a turn to what the thread gives to its instructions.
    template <bool any_scales>
    __device__ __forceinline__ void decode(const Loaded<kind>& loaded, Operands& to) {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            Four codes[kBatch];
            loaded.codes[l].bring(codes);
#pragma unroll
            for (int i = 0; i < kBatch; i++) {
                if constexpr (kind == Weights::Bits8) marks[l] |= mark_special_codes(args.rule, codes[i]);
                const EvenOddBf16 pairs = decode_four<any_scales>(codes[i], loaded.scales[l], i);
                to[i][l] = pairs.even, to[i][2 + l] = pairs.odd;
            }
        }
    }
    // Multiplies a step. Its first turn is decoded and its second loaded; in the end those of the next step are, if there is one.
    // No product is on its way then, since the compiler follows accumulators through straight code alone.
    template <bool any_scales, int tokens>
    __device__ __forceinline__ void multiply_step(uint32_t stage, bool last, Loaded<kind> (&loaded)[2],
                                                  Operands (&operands)[2]) {
        const TileDescriptor described = describe_tile(shared.stages[stage].tokens);
        auto& own = first_columns<tokens>(sums);
#pragma unroll
        for (int turn = 0; turn < kTurns; turn++) {
            begin_products(own);
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                multiply_bf16_lines(own, operands[turn][i], described.along((turn * kBatch + i) * kProductBytes));
            commit_products();
            if (!last) {
                if (turn == 0) wait(shared.full[ring.at()], ring.parity());
                load(ring.at(), turn, loaded[turn]);
            }
            wait_products<1>(own);  // those whose operands are overwritten next
            if (turn == 0 || !last) decode<any_scales>(loaded[1 - turn], operands[1 - turn]);
        }
        wait_products<0>(own);
    }
    // Multiplies all steps of a tile, and gives the stages back.
    template <bool any_scales, int tokens>
    __device__ __forceinline__ void multiply_steps(int32_t steps) {
        Loaded<kind> loaded[2];
        Operands operands[2];
        wait(shared.full[ring.at()], ring.parity());
        load(ring.at(), 0, loaded[0]);
        load(ring.at(), 1, loaded[1]);
        decode<any_scales>(loaded[0], operands[0]);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            const uint32_t stage = ring.at();
            ring.next();
            multiply_step<any_scales, tokens>(stage, step + 1 == steps, loaded, operands);
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
        }
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        const Steps of_block = steps_of_block(args);
        const int32_t steps = of_block.end - of_block.first;
        marks[0] = marks[1] = 0;
#pragma unroll
        for (float& sum : sums) sum = 0;
        if (kind != Weights::Nvfp4 && tile.any_scales)
            multiply_steps<true, kMostTokens>(steps);
        else if (args.parts == 1 && tile.rows <= kFewTokens)
            multiply_steps<false, kFewTokens>(steps);
        else
            multiply_steps<false, kMostTokens>(steps);
        if (args.parts == 2) add_low_parts(sums);
    }
    // Returns which of the warp's 16 lines have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair() const {
        if constexpr (kind != Weights::Bits8) return 0;
        uint32_t lines = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t ballot = __ballot_sync(kAllLanes, marks[l] & kSpecialMarks);
            if (ballot == 0) continue;
            for (int of_line = 0; of_line < 8; of_line++)
                if (ballot >> 4 * of_line & 0xF) lines |= 1u << (8 * l + of_line);
        }
        return lines;
    }
};

}  // namespace mxq::cuda::sm90::bf16
