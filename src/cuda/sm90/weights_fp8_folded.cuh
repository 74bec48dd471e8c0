// The warps of weights_fp8_sm90 that fold the scales of MXFP4 weights into E4M3 codes:
//
//     shared       128 codes of a line, and the four scales of their blocks
//     registers    128 codes of 16 lines as E4M3 numbers: each code by a look-up in the table of its block's exponent,
//                  counted down from the line's reference. Decoded while the tensor cores multiply the 128 before
//     fp32         sums of 128 products, times the scale of the token, added to the totals
//
//     32 codes of a line   lane 4 r + q has quarter q of 128, a block, of lines r and r + 8: tokens are arranged for that
//
// E4M3 has room for E2M1 codes under scales from 2^10 below the reference to 2^4 above it. Lines with others are marked;
// their sums are made again unless such blocks are zeros, as are those that are no numbers.
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

// Returns the four codes whose magnitudes are the low half of a word as E4M3 codes.
__device__ __forceinline__ uint32_t look_up(const uint2& row, uint32_t magnitudes, uint32_t signs) {
    return permute_bytes(row.x, row.y, magnitudes) | (signs & 0x80808080u);
}

template <class Block>
struct FoldedConsumer {
    static constexpr int tokens = Block::kTokens, kProducts = 4;  // of 128 codes
    static constexpr TokenScales kTokenScales = Block::kTokenScales;
    static constexpr int kSums = Block::kOutTokens / 2;
    using Operands = uint32_t[kProducts][4];
    // Holds what a thread has of 128 codes of its two lines: 32 of each, a scale of each, and rows of the table.
    struct CodesOfThread {
        uint4 codes[2];
        uint32_t exponents[2];
        uint2 rows[2];
    };
    // Offsets of its codes in a stage, and of its scales of either line, 16 bits each.
    struct Place {
        uint32_t codes, scales;
    };
    const Fp8Arguments& args;
    Block& shared;
    Ring<Block::kStages> ring;
    float totals[kSums];
    uint32_t references;  // exponents of the thread's lines, one in either half
    uint32_t unusual;     // either half is not zero where a line of the thread has unusual scales

    // Decodes the thread's codes of a box.
    static __device__ __forceinline__ void decode(const CodesOfThread& own, Operands& to) {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t words[kProducts] = {own.codes[l].x, own.codes[l].y, own.codes[l].z, own.codes[l].w};
#pragma unroll
            for (int i = 0; i < kProducts; i++) {
                const uint32_t word = words[i], shifted = word * 16, magnitudes = word & 0x77777777u;  // signs of even codes
                to[i][l] = look_up(own.rows[l], magnitudes, permute_bytes(word, shifted, 0x1504));
                to[i][2 + l] = look_up(own.rows[l], magnitudes >> 16, permute_bytes(word, shifted, 0x3726));
                keep(to[i][l]), keep(to[i][2 + l]);  // here, not behind the fence of the products
            }
        }
    }
    // Loads the thread's codes and scales of a box.
    __device__ __forceinline__ void load_codes(uint32_t stage, int box, const Place& place, CodesOfThread& own) const {
        const uint8_t* const codes = shared.stages[stage].codes + (place.codes ^ box * (Block::kLine / 2));
        const auto* const scales = reinterpret_cast<const uint8_t*>(&shared.scales[stage][box]);
#pragma unroll
        for (int l = 0; l < 2; l++) {
            own.codes[l] = *reinterpret_cast<const uint4*>(codes + l * 8 * Block::kLine);
            own.exponents[l] = scales[place.scales >> 16 * l & 0xFFFF];
        }
    }
    // Finds the rows of the table for its scales, and marks lines that it has none for.
    __device__ __forceinline__ void find_rows(CodesOfThread& own) {
        constexpr uint32_t above = 0x100;  // so that no half borrows from the other
        keep(references);                  // else its sum takes a register over the loop
        const uint32_t below = references + (above + kRoom) * 0x00010001u - (own.exponents[0] + own.exponents[1] * 0x10000);
        const uint32_t fold = __vminu2(__vmaxu2(below, above * 0x00010001u), (above + kFolds) * 0x00010001u);
        unusual |= below ^ fold;
#pragma unroll
        for (int l = 0; l < 2; l++) own.rows[l] = shared.folded[fold >> 16 * l & 0xFF];
    }
    __device__ __forceinline__ void decode_box(uint32_t stage, int box, const Place& place, Operands& to) {
        CodesOfThread own;
        load_codes(stage, box, place, own);
        find_rows(own);
        decode(own, to);
    }
    // Returns where the thread's codes and scales lie. Unaligned scales may lie in the word behind that of their line.
    __device__ __forceinline__ Place place_of(const FoldedTile& tile, uint32_t line) const {
        const uint32_t quarter = read_thread() % 4, shifts = args.shifted ? shifts_of_lines(args.problem, tile, line) : 0;
        Place place{place_in_lines<Block::kLine>(line, quarter), 0};
#pragma unroll
        for (uint32_t l = 0; l < 2; l++) {
            const uint32_t byte = quarter + (shifts >> 8 * l & 0xFF) / 8;
            place.scales |= ((byte / 4 * kScaledLines + word_of_line(line) + l * kWordsOfEightLines) * 4 + byte % 4)
                            << 16 * l;
        }
        return place;
    }
    template <int columns>
    __device__ __forceinline__ void multiply_box(float (&part)[columns / 2], const void* box,
                                                 const Operands& operands) const {
        const TileDescriptor described = describe_tile(box);
        hold_accumulators(part);
        order_products();
#pragma unroll
        for (int i = 0; i < kProducts; i++)
            multiply_e4m3_lines(part, operands[i], described.along(i * kProductBytes), i > 0);
        commit_products();
    }
    // Adds the sums of a box, under the scales of tokens, to the totals. Some of these are loaded before the sums are there.
    template <int columns>
    __device__ __forceinline__ void promote(float (&part)[columns / 2], const float* of_tokens) {
        constexpr int early = columns < 64 ? columns / 8 : 8;
        float2 first[early];
        if constexpr (kTokenScales == TokenScales::Of128)
#pragma unroll
            for (int i = 0; i < early; i++) first[i] = *reinterpret_cast<const float2*>(of_tokens + 8 * i);
        wait_products<0>(part);
#pragma unroll
        for (int i = 0; i < columns / 2; i += 4) {
            if constexpr (kTokenScales == TokenScales::Of128) {
                const float2 two = i / 4 < early ? first[i / 4] : *reinterpret_cast<const float2*>(of_tokens + 2 * i);
                totals[i] = __fmaf_rn(part[i], two.x, totals[i]),
                totals[i + 1] = __fmaf_rn(part[i + 1], two.y, totals[i + 1]);
                totals[i + 2] = __fmaf_rn(part[i + 2], two.x, totals[i + 2]);
                totals[i + 3] = __fmaf_rn(part[i + 3], two.y, totals[i + 3]);
            } else {
#pragma unroll
                for (int of_four = i; of_four < i + 4; of_four++) totals[of_four] = add_rn(totals[of_four], part[of_four]);
            }
        }
    }
    // Loads the references of the thread's lines, which are there with a tile's first stage. Those outside of 2^-63 to 2^64
    // count as unusual: sums might be subnormal before factors of rows lift them, and large ones might hide NaN.
    __device__ __forceinline__ void begin_tile(const FoldedTile& tile, uint32_t line) {
        references = uint32_t(tile.references[line]) | uint32_t(tile.references[line + 8]) << 16;
        unusual = ~(references ^ references * 2) & 0x00800080u;
    }
    // Multiplies the totals of lines by factors, of the thread's first line and of its second.
    __device__ __forceinline__ void multiply_lines(float first, float second) {
#pragma unroll
        for (int i = 0; i < kSums; i++) totals[i] = multiply_rn(totals[i], i / 2 % 2 == 0 ? first : second);
    }
    // Multiplies the totals by the scales that the references stand for, in two steps where a factor is no number.
    __device__ __forceinline__ void multiply_by_references() {
        const int bias = 127, lift = kTokenScales == TokenScales::Of128 ? kTokenLiftLog2 : 0;
        const int less = bias + kMostFold + lift - int(kRoom);
        const int first = int(references & 0xFF) - less, second = int(references >> 16) - less;
        const auto power = [](int exponent) { return bits_float(uint32_t(bias + exponent) << 23); };
        if (__all_sync(kAllLanes, min(first, second) > -bias && max(first, second) <= bias)) {
            multiply_lines(power(first), power(second));
        } else {
            multiply_lines(power(first / 2), power(second / 2));
            multiply_lines(power(first - first / 2), power(second - second / 2));
        }
    }
    template <int columns>
    __device__ __forceinline__ void multiply_steps(const FoldedTile& tile) {
        const uint32_t lane = read_thread() % 32, line = bf16::consumer_warp() * kWarpLines + lane / 4;
        const Place place = place_of(tile, line);
        Operands operands[2];
        float part[columns / 2];
#pragma unroll
        for (float& sum : part) sum = 0;
        wait(shared.full[ring.at()], ring.parity());
        begin_tile(tile, line);
        decode_box(ring.at(), 0, place, operands[0]);
#pragma unroll 1
        for (int32_t left = uniform(tile.blocks); left > 0; left--) {
            const uint32_t stage = uint32_t(uniform(int32_t(ring.at())));  // so that descriptors are, too
            ring.next();
#pragma unroll
            for (int box = 0; box < Block::kBoxes; box++) {
                const bool ends = box + 1 == Block::kBoxes, more = left > 1;  // the last box is decoded again
                multiply_box<columns>(part, shared.stages[stage].boxes[box], operands[box]);
                if (ends && more) wait(shared.full[ring.at()], ring.parity());
                decode_box(ends && more ? ring.at() : stage, ends ? (more ? 0 : box) : box + 1, place, operands[1 - box]);
                // A branch: else ptxas decodes behind the wait for products. With 144 columns the second one spills.
                if (more && (!ends || columns <= 128)) wait(shared.full[ring.at()], ring.parity());
                promote<columns>(part, shared.token_scales[stage][box] + lane % 4 * 2);
            }
            __syncwarp();
            if (elect_lane()) arrive(shared.free[stage]);
        }
    }
    // Multiplies the steps of a tile in instructions of at least as many columns as it has tokens, of those that `columns`
    // names.
    template <int columns, int... more>
    __device__ __forceinline__ void multiply_tokens(const FoldedTile& tile) {
        if constexpr (sizeof...(more) > 0)
            if (tile.rows > columns) return multiply_tokens<more...>(tile);
        multiply_steps<columns>(tile);
    }
    __device__ __forceinline__ void multiply_tile(const FoldedTile& tile) {
#pragma unroll
        for (float& total : totals) total = 0;
        if constexpr (tokens == kFoldedTokens)
            multiply_tokens<64, 80, 96, 128, tokens>(tile);
        else
            multiply_tokens<tokens / 2, tokens>(tile);
        multiply_by_references();
    }
    // Returns which of the warp's 16 lines have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair(const Tile& tile) const {
        float zeros[4] = {};  // unless some total, of a token or of none, is no number
#pragma unroll
        for (int i = 0; i < tokens / 2; i++) zeros[i % 4] = __fmaf_rn(totals[i], 0.0f, zeros[i % 4]);
        const bool are_numbers = (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]) == 0;
        if (__all_sync(kAllLanes, are_numbers && unusual == 0)) return 0;
        return lines_with_marks(tile);
    }
    __device__ __forceinline__ uint32_t lines_with_marks(const Tile& tile) const {
        const uint32_t lane = read_thread() % 32;
        bool numbers[2] = {true, true};
#pragma unroll
        for (int i = 0; i < tokens / 2; i++)
            if (i / 4 * 8 + int(lane % 4) * 2 + i % 2 < tile.rows)
                numbers[i / 2 % 2] &= fabsf(totals[i]) < bits_float(kInfinityBits);
        uint32_t lines = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t ballot = __ballot_sync(kAllLanes, !numbers[l]);
#pragma unroll
            for (int of_line = 0; of_line < 8; of_line++)
                lines |= uint32_t((ballot >> 4 * of_line & 0xF) != 0) << (8 * l + of_line);
        }
        return lines | unusual_lines(args.problem, tile, unusual & 0xFFFF, unusual >> 16, [&](int of_line) {
                   const uint32_t two = __shfl_sync(kAllLanes, references, of_line % 8 * 4);
                   const int32_t reference = int32_t(two >> of_line / 8 * 16 & 0xFF);
                   return UsualScales{max(reference - int32_t(kFolds - kRoom), 64), min(reference + int32_t(kRoom), 191),
                                      kScaleNan - 1};
               });
    }
};

}  // namespace mxq::cuda::sm90::weights
