// The warps of weights_fp8_sm90 that fold the scales of MXFP4 weights into E4M3 codes:
//
//     shared       128 codes of a line, and the four scales of their blocks
//     registers    64 codes of 16 lines as E4M3 numbers, a turn: each code by a look-up in the table of its block's exponent,
//                  counted down from the largest of the four. Decoded while the tensor cores multiply the turn before
//     fp32         sums of 128 products, times the line's largest scale and that of the token, added to the totals
//
//     32 codes of a line   lane 4 r + q has quarter q of 128, a block, of lines r and r + 8: tokens are arranged for that
//
// E4M3 has room for E2M1 codes under scales up to 2^14 below the largest. Lines with others, or with scales far from 1, are
// marked; their sums are made again unless such blocks are zeros.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/weights_fp8_tiles.cuh"
#include "cuda/sm90/wgmma_lines.cuh"

namespace mxq::cuda::sm90::weights {

// Fills the rows of the table: row t has the magnitudes of E2M1, times 2^(6 - t), as E4M3 codes. Threads 0 to 15 call it.
__device__ __forceinline__ void fill_folded_codes(FoldedCodes& table, uint32_t row) {
    uint32_t words[2] = {};
#pragma unroll
    for (uint32_t code = 0; code < 8; code++)
        words[code / 4] |= encode<E4M3>(multiply_rn(decode<E2M1>(code), bits_float(uint32_t(127 + kMostFold - int(row)) << 23))) << code % 4 * 8;
    table[row] = {words[0], words[1]};
}

// Returns four neighbouring codes of a word, the first or the last four, as E4M3 codes.
__device__ __forceinline__ uint32_t look_up(const uint2& row, uint32_t codes, uint32_t signs) {
    return permute_bytes(row.x, row.y, codes & 0x7777u) | (signs & 0x80808080u);
}

template <class Block>
struct FoldedConsumer {
    static constexpr int tokens = Block::kTokens, kTurnProducts = 2;
    static constexpr TokenScales kTokenScales = Block::kTokenScales;
    static constexpr int kSums = tokens / 2;
    // The sums of a box are promoted while the next is multiplied, where registers suffice.
    static constexpr bool kOverlaps = tokens < kMostTokens;
    static constexpr int kParts = kOverlaps ? 2 : 1;
    using Operands = uint32_t[kTurnProducts][4];
    // What a thread has of 128 codes of its two lines.
    struct BoxOfThread {
        uint4 codes[2];
        uint2 rows[2];    // of the table
        float scales[2];  // the largest of the line
    };
    const Fp8Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[kSums];
    uint32_t unusual;  // either half is not zero where a line of the thread has unusual scales

    // Decodes a turn: 16 codes of the thread of either line.
    static __device__ __forceinline__ void decode(const BoxOfThread& own, int turn, Operands& to) {
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < kTurnProducts; i++) {
                const uint4& codes = own.codes[l];
                const uint32_t word = turn == 0 ? (i == 0 ? codes.x : codes.y) : i == 0 ? codes.z : codes.w;
                const uint32_t shifted = word * 16;  // signs of even codes
                to[i][l] = look_up(own.rows[l], word, permute_bytes(word, shifted, 0x1504));
                to[i][2 + l] = look_up(own.rows[l], word >> 16, permute_bytes(word, shifted, 0x3726));
                keep(to[i][l]), keep(to[i][2 + l]);  // here, not behind the fence of the products
            }
    }
    // Loads what the thread needs of a box.
    __device__ __forceinline__ void load_box(uint32_t stage, int box, uint32_t codes_at, uint32_t word, uint32_t shifts,
                                             BoxOfThread& own) {
        const uint8_t* const codes = shared.stages[stage].codes[0] + (codes_at ^ box * (Block::kLine / 2));
        const uint32_t* const from = &shared.scales[stage][0][box][word];
        uint32_t fours[2];
#pragma unroll
        for (int l = 0; l < 2; l++) {
            own.codes[l] = *reinterpret_cast<const uint4*>(codes + l * 8 * Block::kLine);
            fours[l] = from[l * kWordsOfEightLines];
            if (args.shifted) fours[l] = __funnelshift_r(fours[l], from[kScaledLines + l * kWordsOfEightLines], shifts >> 8 * l);
        }
        const uint32_t exponents = permute_bytes(fours[0], fours[1], own_scales()) & 0x00FF00FFu;
        uint32_t largest = __vmaxu2(exponents, __shfl_xor_sync(kAllLanes, exponents, 1));
        largest = __vmaxu2(largest, __shfl_xor_sync(kAllLanes, largest, 2));
        const uint32_t below = largest - exponents, fold = __vminu2(below, kFolds * 0x00010001u);
        const uint32_t positive = __vmaxu2(largest, kMostFold * 0x00010001u);
        unusual |= (below ^ fold) | (~(largest ^ largest * 2) & 0x00800080u);
#pragma unroll
        for (int l = 0; l < 2; l++) {
            own.rows[l] = shared.folded[l == 0 ? fold & 0xFFFF : fold >> 16];
            own.scales[l] = bits_float(((l == 0 ? positive & 0xFFFF : positive >> 16) - kMostFold) << 23);
        }
    }
    // Selects the scales of the thread's quarter, byte q of two words, one for either half.
    static __device__ __forceinline__ uint32_t own_scales() { return 0x0400 + read_thread() % 4 * 0x0101; }

    template <int columns>
    __device__ __forceinline__ void multiply_turn(float (&part)[columns / 2], const void* box, int turn,
                                                  const Operands& operands) const {
        const TileDescriptor described = describe_tile(box);
        hold_accumulators(part);
        order_products();
#pragma unroll
        for (int i = 0; i < kTurnProducts; i++)
            multiply_e4m3_lines(part, operands[i], described.along((turn * kTurnProducts + i) * kProductBytes), turn + i > 0);
        commit_products();
    }
    // Adds the sums of a box, under their scales, to the totals.
    template <int columns>
    __device__ __forceinline__ void promote(float (&part)[columns / 2], const float (&of_lines)[2], const float* of_tokens) {
        hold_accumulators(part);
#pragma unroll
        for (int i = 0; i < columns / 2; i++) {
            const int l = i / 2 % 2, token = i / 4 * 8 + i % 2;
            if constexpr (kTokenScales == TokenScales::Of128)
                totals[i] = __fmaf_rn(multiply_rn(part[i], of_lines[l]), of_tokens[token], totals[i]);
            else
                totals[i] = __fmaf_rn(part[i], of_lines[l], totals[i]);
        }
    }
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const Tile& tile) {
        const uint32_t lane = read_thread() % 32, line = bf16::consumer_warp() * kWarpLines + lane / 4;
        const uint32_t codes_at = place_in_lines<Block::kLine>(line, lane % 4);
        const uint32_t word = word_of_line(line);
        const uint32_t shifts = args.shifted ? shifts_of_lines(args.problem, tile, line) : 0;
        uint32_t next = ring.at(), parity = ring.parity();  // a stage
        Operands operands[2];
        BoxOfThread own;
        float parts[kParts][columns / 2];
#pragma unroll
        for (auto& part : parts)
            for (float& sum : part) sum = 0;
        wait(shared.full[next], parity);
        load_box(next, 0, codes_at, word, shifts, own);
        decode(own, 0, operands[0]);
#pragma unroll 1
        for (int32_t left = tile.blocks; left > 0; left--) {
            const uint32_t stage = uint32_t(uniform(int32_t(next)));  // so that descriptors are, too
            if (++next == Block::kStages) next = 0, parity ^= 1;
            float of_lines[Block::kBoxes][2];
            const auto promote_box = [&](int box) {
                promote<columns>(parts[box % kParts], of_lines[box],
                                 shared.token_scales[stage][box] + lane % 4 * 2 * floats_of(kTokenScales));
            };
#pragma unroll
            for (int box = 0; box < Block::kBoxes; box++) {
                const uint8_t* const numbers = shared.stages[stage].boxes[box];
                multiply_turn<columns>(parts[box % kParts], numbers, 0, operands[0]);
                of_lines[box][0] = own.scales[0], of_lines[box][1] = own.scales[1];
                if (kOverlaps && box > 0) wait_products_before<1>();
                decode(own, 1, operands[1]);
                if (kOverlaps && box > 0) promote_box(box - 1);
                multiply_turn<columns>(parts[box % kParts], numbers, 1, operands[1]);
                if (box + 1 < Block::kBoxes) {
                    load_box(stage, box + 1, codes_at, word, shifts, own);
                } else if (left > 1) {
                    wait(shared.full[next], parity);
                    load_box(next, 0, codes_at, word, shifts, own);
                }
                wait_products_before<1>();
                decode(own, 0, operands[0]);
                if (!kOverlaps || box + 1 == Block::kBoxes) {
                    wait_products_before<0>();
                    promote_box(box);
                }
            }
            __syncwarp();
            if (elect_lane()) arrive(shared.free[stage]);
        }
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
    __device__ __forceinline__ float (&totals_of(int))[kSums] { return totals; }
    // Returns which of the warp's 16 lines have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair(const Tile& tile) const {
        return unusual_lines<true>(args.problem, tile, unusual & 0xFFFF, unusual >> 16);
    }
};

}  // namespace mxq::cuda::sm90::weights
