// The warpgroups of weights_ordered.cu that decode: a block of 64 lines each, in turn. A thread has a quarter, 32 codes, of
// two lines, and writes them as BF16 where wgmma reads them. Eight lanes have eight lines, which lie in different banks.
#pragma once
#include "cuda/sm90/line_codes.cuh"
#include "cuda/sm90/slots.cuh"
#include "cuda/sm90/weights_ordered_tiles.cuh"

namespace mxq::cuda::sm90::weights::ordered {

// Brings the two codes of each byte of eight E2M1 codes to the halves of a word, as BF16 numbers 2^126 too small.
__device__ __forceinline__ void move_eight(uint32_t eight, uint32_t (&to)[4]) {
    const uint32_t low = eight & 0x0F0F0F0Fu, high = eight >> 4 & 0x0F0F0F0Fu;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) to[i] = move_pair(permute_bytes(low, high, 0xC480 + 0x1111 * i));
}

// Does so with eight codes of 8 bits. Codes 1 and 2 of four change places, so that even and odd ones are neighbours.
__device__ __forceinline__ void move_eight(const Bf16DecodeRule& rule, const uint32_t (&eight)[2], uint32_t (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const EvenOddBf16 moved = move_codes_to_bf16(rule, permute_bytes(eight[i], 0, 0x3120));
        to[2 * i] = moved.even, to[2 * i + 1] = moved.odd;
    }
}

// Multiplies eight moved numbers by their scale. `special`: it may need two factors.
template <Kind kind>
__device__ __forceinline__ void scale_eight(const Arguments& args, uint32_t scale, bool special, uint32_t (&eight)[4]) {
    constexpr Weights weights = kWeights<kind>;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const EvenOddBf16 moved{eight[i], eight[i + 1]};
        const EvenOddBf16 pairs = special ? scale_any_four<weights>(args.rule, args.missing, moved, 0, scale)
                                          : scale_four<weights>(args.rule, moved, scale_factor<weights>(args.rule, scale));
        eight[i] = pairs.even, eight[i + 1] = pairs.odd;
    }
}

template <Kind kind, int tokens>
struct Decoder {
    using Block = OrderedShared<kind, tokens>;
    static constexpr int kScales = kind == Kind::Nvfp4 ? 2 : 1;  // of a quarter
    static constexpr int kCodeWords = Block::kCodeBytes / 16;    // of a quarter
    const Arguments& args;
    Block& shared;
    Ring<Block::kCodeStages> codes = {};
    Ring<kDecodedStages> decoded = {};
    uint32_t turn = 0;            // whose block is next
    uint32_t shifts[2] = {0, 0};  // by which scales of the two lines are unaligned, in bits

    __device__ __forceinline__ uint32_t line(int i) const {
        return read_thread() / 32 % kWarps * 16 + 8 * i + read_thread() % 8;
    }
    __device__ __forceinline__ uint32_t quarter() const { return read_thread() % 32 / 8; }
    __device__ __forceinline__ void begin_tile(const Tile& tile) {
        if constexpr (kHasBlockScales<kind>)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (args.shifted)
                    shifts[i] = (uint32_t(reinterpret_cast<uintptr_t>(matrix_scales(args.problem.b, tile.group))) +
                                 scales_of_line(args.problem, tile, line(i))) %
                                4 * 8;
    }
    // Returns the scales of the thread's quarter of a line, a byte each.
    __device__ __forceinline__ void load_scales(int i, uint32_t (&to)[kScales]) const {
        const auto& from = shared.scales[codes.at()];
        const uint32_t word = kind == Kind::Nvfp4 ? quarter() / 2 : 0;
        uint32_t four = from[word][word_of_line(line(i))];
        if (args.shifted) four = __funnelshift_r(four, from[word + 1][word_of_line(line(i))], shifts[i]);
        const uint32_t first = kind == Kind::Nvfp4 ? quarter() % 2 * 2 : quarter();
#pragma unroll
        for (int s = 0; s < kScales; s++) to[s] = permute_bytes(four, 0, 0x4440 + first + s);
    }
    __device__ __forceinline__ void load_codes(int i, uint32_t (&to)[kCodeWords]) const {
        constexpr int pieces = kCodeWords / 4;
#pragma unroll
        for (int piece = 0; piece < pieces; piece++) {
            const uint4 of = *reinterpret_cast<const uint4*>(
                shared.codes[codes.at()] + place_in_lines<Block::kCodeBytes>(line(i), quarter() * pieces + piece));
            to[4 * piece] = of.x, to[4 * piece + 1] = of.y, to[4 * piece + 2] = of.z, to[4 * piece + 3] = of.w;
        }
    }
    // Stores eight numbers, number `eight` of the quarter.
    __device__ __forceinline__ void store_eight(int i, int eight, const uint32_t (&of)[4]) const {
        const uint32_t chunk = quarter() % 2 * 4 + eight, own = line(i);
        *reinterpret_cast<uint4*>(shared.decoded[decoded.at()][quarter() / 2] + own * kTokenBytes +
                                  (chunk ^ own % 8) * 16) = {of[0], of[1], of[2], of[3]};
    }
    template <bool special>
    __device__ __forceinline__ void decode_line(int i, const uint32_t (&words)[kCodeWords],
                                                const uint32_t (&scales)[kScales]) const {
#pragma unroll
        for (int eight = 0; eight < 4; eight++) {
            uint32_t numbers[4];
            if constexpr (weight_bits<kWeights<kind>> == 4)
                move_eight(words[eight], numbers);
            else
                move_eight(args.rule, {words[2 * eight], words[2 * eight + 1]}, numbers);
            if constexpr (kHasBlockScales<kind>)
                scale_eight<kind>(args, scales[eight / 2 * (kScales - 1)], special, numbers);
            else
#pragma unroll
                for (uint32_t& pair : numbers) pair = multiply_bf16_pairs(pair, bf16_power_pair(127 - E4M3::bias));
            store_eight(i, eight, numbers);
        }
    }
    // Remembers in which lines of 16 codes were Inf or NaN, for the warp that has the sums of these lines.
    __device__ __forceinline__ void mark_lines(uint32_t slot, const uint32_t (&marks)[2]) const {
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (marks[i] & kSpecialMarks) atomicOr(&shared.repair[slot][line(i) / kWarpLines], 1u << line(i) % kWarpLines);
    }
    __device__ __forceinline__ void decode_block(uint32_t slot) const {
        uint32_t marks[2] = {0, 0}, words[2][kCodeWords], scales[2][kScales] = {};
        bool special = false;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_codes(i, words[i]);
            if constexpr (kHasBlockScales<kind>) {
                load_scales(i, scales[i]);
#pragma unroll
                for (uint32_t scale : scales[i]) special |= needs_two_factors<kWeights<kind>>(args.rule, scale);
            }
            if constexpr (weight_bits<kWeights<kind>> == 8)
#pragma unroll
                for (uint32_t word : words[i]) marks[i] |= mark_special_codes(args.rule, word);
        }
        if (kHasBlockScales<kind> && __any_sync(kAllLanes, special)) {
#pragma unroll
            for (int i = 0; i < 2; i++) decode_line<true>(i, words[i], scales[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) decode_line<false>(i, words[i], scales[i]);
        }
        if constexpr (weight_bits<kWeights<kind>> == 8) mark_lines(slot, marks);
        if (!kHasBlockScales<kind> && quarter() == 0)
#pragma unroll
            for (int i = 0; i < 2; i++)
                shared.decoded_scales[decoded.at()][line(i)] = shared.scales_of_128[codes.at()][line(i)];
    }
    __device__ __forceinline__ void run(uint32_t own) {
        uint32_t slot = 0;
        each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
            begin_tile(tile);
#pragma unroll 1
            for (int32_t left = blocks_of(args); left > 0; left--, codes.next(), decoded.next()) {
                const bool mine = turn == own;
                turn = turn == kDecoders - 1 ? 0 : turn + 1;
                if (!mine) continue;
                // A free stage first: products of an earlier block are then complete, and so is the last round of these
                // codes.
                wait(shared.decoded_free[decoded.at()], decoded.parity() ^ 1);
                wait(shared.code_full[codes.at()], codes.parity());
                decode_block(slot);
                publish_shared_writes();
                __syncwarp();
                if (read_thread() % 32 == 0) {
                    arrive(shared.code_free[codes.at()]);
                    arrive(shared.decoded_full[decoded.at()]);
                }
            }
            slot ^= 1;
        });
    }
};

}  // namespace mxq::cuda::sm90::weights::ordered
