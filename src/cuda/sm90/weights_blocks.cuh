// The warps of weights_sm90 that decode and multiply FP8 weights with an fp32 scale for every 128 codes:
//
//     shared       64 codes of a line
//     registers    16 or 32 of them as BF16, a turn: decoded while the tensor cores multiply the turn before
//     fp32         sums of a block of 128 codes, multiplied by its scale as they are added to the totals
//
// Each of two warpgroups has 64 of the tile's lines and all of its tokens. A code, moved to where BF16 has sign, exponent
// and mantissa, is 2^120 too small. NaN is the largest number then; the sums of lines that have met it are made again.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

constexpr uint32_t kMovedNan = 0x07F0;

// Moves two E4M3 codes, the bytes of `codes`, to where BF16 has them.
__device__ __forceinline__ uint32_t move_two_codes(uint32_t codes) {
    constexpr uint32_t signs_above = 0x9180;  // each byte below a byte of its sign
    return permute_bytes(codes, 0, signs_above) * 16 & 0x87F087F0u;
}

__device__ __forceinline__ uint32_t load_two_codes(uint32_t from) {
    uint16_t codes;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(codes) : "r"(from));
    return codes;
}

// Returns the larger magnitudes of BF16 numbers in both halves, signs left open. Computes them here and no later, so that no
// number waits in a register.
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t a, uint32_t b) {
    uint32_t larger;
    asm volatile("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
}

template <int tokens>
struct BlocksConsumer {
    // More codes a turn leave no registers for the sums of 64 tokens where two CTAs share an SM.
    static constexpr int kTurnProducts = tokens == kSomeTokens ? 1 : 2, kTurns = kBlockNumbers / (16 * kTurnProducts),
                         kSteps = kBlockNumbers / kLineBytes, kStepTurns = kTurns / kSteps;
    using Block = Shared<Weights::Fp8Blocks, tokens>;
    using Operands = uint32_t[kTurnProducts][4];
    const Arguments& args;
    Block& shared;
    uint32_t place;  // of the thread's first two codes in a stage
    Ring<Block::kStages> ring;
    float totals[tokens / 2];
    uint32_t largest[2];  // moved codes of either line

    // Decodes a turn; `from` is where the thread's codes of the stage begin. Line 8 further on has the same swizzle.
    __device__ __forceinline__ void decode(uint32_t from, int turn, Operands& to) {
        constexpr uint32_t missing = bf16_power_pair(127 - E4M3::bias);
#pragma unroll
        for (int i = 0; i < kTurnProducts; i++)
#pragma unroll
            for (int part = 0; part < 4; part++) {  // of an instruction's operand: lines first
                const int l = part % 2;
                const uint32_t sixteen = from ^ (turn * kTurnProducts + i) * 16;
                const uint32_t moved = move_two_codes(load_two_codes(sixteen + l * 8 * kLineBytes + part / 2 * 8));
                largest[l] = larger_magnitudes(largest[l], moved);
                to[i][part] = multiply_bf16_pairs(moved, missing);
            }
    }
    // Multiplies a turn of a stage that is full. Operands of the turn before the last are free then.
    template <int count>
    __device__ __forceinline__ void multiply_turn(float (&part)[count], const Block::OneStage& stage, int turn,
                                                  Operands& operands) {
        decode(uint32_t(__cvta_generic_to_shared(stage.codes)) + place, turn % kStepTurns, operands);
        const TileDescriptor described = describe_tile(stage.boxes);
        order_products();
#pragma unroll
        for (int i = 0; i < kTurnProducts; i++)
            multiply_bf16_lines(part, operands[i], described.along((turn % kStepTurns * kTurnProducts + i) * kProductBytes),
                                turn > 0 || i > 0);
        commit_products();
        wait_products_before<1>();
    }
    __device__ __forceinline__ void release(uint32_t stage) const {
        if (read_thread() % 32 == 0) arrive(shared.free[stage]);
    }
    // Multiplies a block with so many columns of tokens, and adds its sums to the totals.
    template <int columns>
    __device__ __forceinline__ void multiply_block() {
        float part[columns / 2];
        Operands operands[2];
        uint32_t stages[kSteps];
        begin_products(part);
#pragma unroll
        for (int step = 0; step < kSteps; step++, ring.next()) {
            stages[step] = ring.at();
            wait(shared.full[ring.at()], ring.parity());
            const auto& stage = shared.stages[uniform(int32_t(ring.at()))];
#pragma unroll
            for (int turn = step * kStepTurns; turn < (step + 1) * kStepTurns; turn++)
                multiply_turn(part, stage, turn, operands[turn % 2]);
        }
        const uint32_t line = bf16::consumer_warp() * kWarpLines + read_thread() % 32 / 4;
        const float* const scales = &shared.scales[stages[0]][line];
        const float of_lines[2] = {multiply_rn(scales[0], kLift), multiply_rn(scales[8], kLift)};
        wait_products<0>(part);
        __syncwarp();
        for (uint32_t stage : stages) release(stage);
#pragma unroll
        for (int i = 0; i < columns / 2; i++) totals[i] = __fmaf_rn(part[i], of_lines[i / 2 % 2], totals[i]);
    }
    template <int columns>
    __device__ __forceinline__ void multiply_blocks(int32_t blocks) {
#pragma unroll 1
        for (int32_t left = blocks; left > 0; left--) multiply_block<columns>();
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        largest[0] = largest[1] = 0;
#pragma unroll
        for (float& total : totals) total = 0;
        if (args.parts == 1 && tile.rows <= tokens / 2)
            multiply_blocks<tokens / 2>(tile.blocks);
        else
            multiply_blocks<tokens>(tile.blocks);
        if (args.parts == 2) bf16::add_low_parts(totals);
    }
    // Returns which of the warp's 16 lines have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair() const {
        uint32_t lines = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const bool met = (largest[l] & 0x7FFF) == kMovedNan || (largest[l] >> 16 & 0x7FFF) == kMovedNan;
            const uint32_t ballot = __ballot_sync(kAllLanes, met);
            if (ballot == 0) continue;
#pragma unroll 1
            for (int of_line = 0; of_line < 8; of_line++)
                if (ballot >> 4 * of_line & 0xF) lines |= 1u << (8 * l + of_line);
        }
        return lines;
    }
};

}  // namespace mxq::cuda::sm90::weights
