// The warps of weights_fp8_sm90 that decode MXFP4 weights to E4M3 and multiply them:
//
//     shared       256 codes of a line, and their scales
//     registers    32 codes of 16 lines as E4M3 numbers, 2^6 too small, by masks: an instruction's. Two instructions are a
//                  turn, decoded while the tensor cores multiply the turn before
//     fp32         sums of 32 products, times the scale of the line's block and that of the token, added to the totals
//
// Each of two warpgroups has 64 of the tile's lines and all of its tokens. No scale is rounded, whatever it is: lines with
// scales far from 1 are marked, and their sums made again.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/weights_fp8_tiles.cuh"
#include "cuda/sm90/wgmma_lines.cuh"

namespace mxq::cuda::sm90::weights {

// Loads the words of a thread for a turn: of 8 x 16 bytes, lane 4 r + c gets word c of row r.
__device__ __forceinline__ void load_matrices(uint32_t from, uint32_t (&to)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// E2M1's sign, exponent and mantissa where E4M3 has them, 2^6 too small, zero and subnormals too.
constexpr uint32_t kSigns = 0x80808080u, kMagnitudes = 0x1C1C1C1Cu;
constexpr uint32_t kMissing = E4M3::bias - E2M1::bias;
__device__ __forceinline__ uint32_t move_even_codes(uint32_t word) {
    return (word * 16 & kSigns) | (word * 4 & kMagnitudes);
}
__device__ __forceinline__ uint32_t move_odd_codes(uint32_t word) { return (word & kSigns) | (word >> 2 & kMagnitudes); }

// Marks, in the signs of its bytes, scales outside of 2^-63 to 2^64. Sums of 32 products keep their bits under the others.
__device__ __forceinline__ uint32_t mark_unusual_scales(uint32_t four) { return ~(four ^ four * 2); }

template <class Block>
struct Fp8Consumer {
    static constexpr int kTurnProducts = 2, kBoxTurns = 2, kTurns = Block::kBoxes * kBoxTurns, tokens = Block::kTokens;
    static constexpr TokenScales kTokenScales = Block::kTokenScales;
    static constexpr int kSums = Block::kOutTokens / 2;
    // Sums of 128 products are added up before the totals, where registers suffice.
    static constexpr bool kSumsBoxes = tokens == kFewestTokens && kTokenScales != TokenScales::Of32;
    // The last step of a tile stands behind the loop, whose steps then need not ask for the next; where registers suffice.
    static constexpr int kPeeled = tokens == kLeastTokens && kTokenScales == TokenScales::Of128 ? 0 : 1;
    using Operands = uint32_t[kTurnProducts][4];
    const Fp8Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[kSums];
    uint32_t unusual;  // marks of the scales of the first line, and a bit below of the second

    // Decodes a turn: `from` is where the thread's row of matrices begins in a stage.
    __device__ __forceinline__ void decode(uint32_t from, int turn, Operands& to) const {
        uint32_t words[4];  // of either line, of two blocks
        load_matrices(from ^ turn * 32, words);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[i / 2][i % 2] = move_even_codes(words[i]);
            to[i / 2][2 + i % 2] = move_odd_codes(words[i]);
            keep(to[i / 2][i % 2]), keep(to[i / 2][2 + i % 2]);  // here, not behind the fence of the products
        }
    }
    __device__ __forceinline__ uint32_t codes_at(uint32_t stage, uint32_t place) const {
        return uint32_t(__cvta_generic_to_shared(shared.stages[stage].codes)) + place;
    }
    // Loads the scales of a box of the thread's lines, 2^6 larger, and marks those that are far from 1. `scales_at` has the
    // word of the first line, and in its high half the shifts of either: in one register, since they are short.
    __device__ __forceinline__ void load_scales(uint32_t stage, int box, uint32_t scales_at, uint32_t (&scales)[2]) {
        const uint32_t* const from = &shared.scales[stage][box][scales_at & 0xFFFF];
#pragma unroll
        for (int l = 0; l < 2; l++) {
            uint32_t four = from[l * kWordsOfEightLines];
            if (args.shifted)
                four = __funnelshift_r(four, from[kScaledLines + l * kWordsOfEightLines], scales_at >> (16 + 8 * l));
            scales[l] = four;
        }
        unusual |= (mark_unusual_scales(scales[0]) & kSigns) | (mark_unusual_scales(scales[1]) & kSigns) >> 1;
        scales[0] += kMissing * 0x01010101u, scales[1] += kMissing * 0x01010101u;
    }
    // Returns the scale of a block as fp32.
    static __device__ __forceinline__ float scale_of(uint32_t four, int block) {
        constexpr uint32_t exponent = 0x7F800000u;
        return bits_float((block < 3 ? four << (23 - 8 * block) : four >> 1) & exponent);
    }
    template <int columns>
    __device__ __forceinline__ void multiply_turn(float (&parts)[kTurnProducts][columns / 2], const auto& boxes, int turn,
                                                  const Operands& operands) const {
        const TileDescriptor described = describe_tile(boxes[turn / kBoxTurns]);
        hold_accumulators(parts[0]), hold_accumulators(parts[1]);
        order_products();
#pragma unroll
        for (int i = 0; i < kTurnProducts; i++)
            multiply_e4m3_lines(parts[i], operands[i],
                                described.along((turn % kBoxTurns * kTurnProducts + i) * kProductBytes), false);
        commit_products();
    }
    // Adds the sums of a turn, under their scales, to the totals, or to those of its box.
    template <int columns>
    __device__ __forceinline__ void promote(float (&parts)[kTurnProducts][columns / 2], float (&of_box)[columns / 2],
                                            int turn, const uint32_t (&scales)[2], const float* of_tokens) {
        hold_accumulators(parts[0]), hold_accumulators(parts[1]);
        float of_lines[2][kTurnProducts];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < kTurnProducts; i++)
                of_lines[l][i] = scale_of(scales[l], turn % kBoxTurns * kTurnProducts + i);
#pragma unroll
        for (int i = 0; i < columns / 2; i++) {
            const int l = i / 2 % 2, token = i / 4 * 8 + i % 2;
            if constexpr (kSumsBoxes) {
                const float before = turn % kBoxTurns == 0 ? multiply_rn(parts[0][i], of_lines[l][0])
                                                           : __fmaf_rn(parts[0][i], of_lines[l][0], of_box[i]);
                of_box[i] = __fmaf_rn(parts[1][i], of_lines[l][1], before);
                if (turn % kBoxTurns == 0) continue;
                totals[i] = kTokenScales == TokenScales::Of128 ? __fmaf_rn(of_box[i], of_tokens[token], totals[i])
                                                               : add_rn(totals[i], of_box[i]);
                continue;
            }
            const float first = multiply_rn(parts[0][i], of_lines[l][0]);
            if constexpr (kTokenScales == TokenScales::Of32) {
                const float2 two = reinterpret_cast<const float2*>(of_tokens)[token * 2 + turn % kBoxTurns];
                totals[i] = __fmaf_rn(first, two.x, totals[i]);
                totals[i] = __fmaf_rn(multiply_rn(parts[1][i], of_lines[l][1]), two.y, totals[i]);
            } else if constexpr (kTokenScales == TokenScales::Of128) {
                totals[i] = __fmaf_rn(__fmaf_rn(parts[1][i], of_lines[l][1], first), of_tokens[token], totals[i]);
            } else {
                totals[i] = add_rn(totals[i], first);
                totals[i] = __fmaf_rn(parts[1][i], of_lines[l][1], totals[i]);
            }
        }
    }
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const uint32_t lane = read_thread() % 32, first_line = bf16::consumer_warp() * kWarpLines;
        const uint32_t place = place_in_lines<Block::kLine>(first_line + lane / 8 % 2 * 8 + lane % 8, lane / 16);
        const uint32_t line = first_line + lane / 4;
        uint32_t scales_at = word_of_line(line) | (args.shifted ? shifts_of_lines(args.problem, tile, line) << 16 : 0);
        keep(scales_at);
        uint32_t next = ring.at(), parity = ring.parity();  // a stage
        Operands operands[2];
        float parts[kTurnProducts][columns / 2], of_box[columns / 2];
#pragma unroll
        for (auto& part : parts)
            for (float& sum : part) sum = 0;
        wait(shared.full[next], parity);
        decode(codes_at(next, place), 0, operands[0]);
        const auto multiply_step = [&](bool more) {
            const uint32_t stage = uint32_t(uniform(int32_t(next)));  // so that descriptors are, too
            if (++next == Block::kStages) next = 0, parity ^= 1;
            uint32_t scales[2];
#pragma unroll
            for (int turn = 0; turn < kTurns; turn++) {
                const int box = turn / kBoxTurns;
                multiply_turn<columns>(parts, shared.stages[stage].boxes, turn, operands[turn % 2]);
                if (turn + 1 < kTurns) {
                    decode(codes_at(stage, place), turn + 1, operands[(turn + 1) % 2]);
                } else if (more) {
                    wait(shared.full[next], parity);
                    decode(codes_at(next, place), 0, operands[0]);
                }
                if (turn % kBoxTurns == 0) load_scales(stage, box, scales_at, scales);
                wait_products_before<0>();
                promote<columns>(parts, of_box, turn, scales,
                                 shared.token_scales[stage][box] + lane % 4 * 2 * floats_of(kTokenScales));
            }
            __syncwarp();
            if (elect_lane()) arrive(shared.free[stage]);
        };
#pragma unroll 1
        for (int32_t left = tile.blocks; left > kPeeled; left--) multiply_step(kPeeled == 1 || left > 1);
        if (kPeeled == 1) multiply_step(false);
        ring.bits = next + 8 * parity;
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
        unusual = 0;
#pragma unroll
        for (float& total : totals) total = 0;
        if (tile.rows <= tokens / 2)
            multiply_steps<tokens / 2>(tile);
        else
            multiply_steps<tokens>(tile);
    }
    // Returns which of the warp's 16 lines have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair(const Tile& tile) const {
        const int32_t most_of_zeros = kScaleNan - 1 - int32_t(kMissing);  // times zero, a factor must be finite
        return unusual_lines(args.problem, tile, unusual & kSigns, unusual & kSigns >> 1, [=](int) {
            return UsualScales{64, 191, most_of_zeros};
        });
    }
};

}  // namespace mxq::cuda::sm90::weights
