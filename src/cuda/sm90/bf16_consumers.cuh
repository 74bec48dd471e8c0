// The warps of wgmma_bf16_sm90 that decode and multiply:
//
//     shared    codes of a line     | 16 codes, an instruction's  | 16 | 16 | 16 |     a thread gives its lines' codes 2 q,
//                                   | 8          | 8            |                    2 q + 1 of either 8, q being lane % 4
//     registers BF16, decoded a turn at a time, while the tensor cores multiply the turn before with the tokens
//
// Each warpgroup has half of the tile's lines, 64 or 2 x 64, and all of its tokens. What one waits for, the other's products
// hide. A turn is 32 codes of 64 lines, or where tokens are fewer, and products shorter, 64 codes.
//
// Inf and NaN are as rare as lines that have them are: their sums are made again, one by one (bf16_output.cuh).
#pragma once
#include "cuda/sm90/bf16_producers.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::bf16 {

constexpr int kBatch = 2;  // instructions of the 32 codes that are brought together

// ---- Codes from shared memory: those that a thread gives to two instructions, of one line ------------------------------------

// Eight 4-bit codes are a word: this thread's two are byte q of it.
template <Weights kind>
struct Codes {
    uint4 words;

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
        words = *reinterpret_cast<const uint4*>(codes + line * (kStepCodes / 2) + batch * 16);
    }
    // Low nibbles go to the low halves, high ones to the high halves, where move_pair_of_word finds them.
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
        const uint32_t both = 0x11 * (threadIdx.x % 4) + 0x40;  // byte q of either
        const uint32_t all =
            permute_bytes(permute_bytes(words.x, words.y, both), permute_bytes(words.z, words.w, both), 0x5410);
        to[0] = permute_bytes(all, all >> 4, 0x5410);
        to[1] = permute_bytes(all, all >> 4, 0x7632);
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule&, uint32_t codes) {
        return {move_pair_of_word(codes, 0), move_pair_of_word(codes, 2)};
    }
};

// Sixteen 6-bit codes are 12 bytes, and a thread's two of either eight 12 bits.
template <>
struct Codes<Weights::Bits6> {
    uint32_t words[kBatch];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
        const uint32_t q = threadIdx.x % 4, shift = q == 3 ? 4 : 12 * q, shift_high = (16 + 12 * q) % 32;
        const auto apart = [](uint32_t two) { return (two & 0x3F) | (two & 0xFC0) << 10; };
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint32_t* const from =
                reinterpret_cast<const uint32_t*>(codes + line * (kStepCodes / 8 * 6) + (batch * kBatch + i) * 12);
            const uint32_t low = __funnelshift_r(q == 3 ? from[1] : from[0], from[1], shift);
            const uint32_t high = __funnelshift_r(q < 2 ? from[1] : from[2], from[2], shift_high);
            words[i] = apart(low) | apart(high) << 8;
        }
    }
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
#pragma unroll
        for (int i = 0; i < kBatch; i++) to[i] = words[i];
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    }
};

// Sixteen 8-bit codes are the 16 bytes that a swizzle of 64-byte lines moves as one.
template <>
struct Codes<Weights::Bits8> {
    uint32_t words[kBatch];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint8_t* const of =
                codes + line * kStepCodes + ((batch * kBatch + i) ^ (line / 2 % 4)) * 16 + threadIdx.x % 4 * 2;
            words[i] = permute_bytes(*reinterpret_cast<const uint16_t*>(of), *reinterpret_cast<const uint16_t*>(of + 8), 0x5140);
        }
    }
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
#pragma unroll
        for (int i = 0; i < kBatch; i++) to[i] = words[i];
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes);
    }
};

// ---- Products ------------------------------------------------------------------------------------------------------------

// Holds what a thread loads for a turn, by 32 codes of two lines: codes, and the scale of each line, or of NVFP4 two.
template <Weights kind, int batches>
struct Turn {
    Codes<kind> codes[batches][2];
    uint32_t scales[batches][2];
};

template <Weights kind, int tokens>
struct Consumer {
    static constexpr int fragments = tile_lines<tokens> / 128, sums_of_thread = tokens / 2;
    static constexpr int batches = fragments;  // of a turn
    static constexpr int instructions = batches * kBatch, turns = kStepCodes / 16 / instructions * fragments;
    using Step = Stage<kind, tokens>;
    using Loaded = Turn<kind, batches>;
    using Operands = uint32_t[instructions][4];
    static_assert(turns == 2, "one is loaded, decoded and multiplied while the other is on its way");
    const Arguments& args;
    Shared<kind, tokens>& shared;
    uint32_t line;  // of the tile, the thread's first
    Ring<kStages> ring;
    float sums[fragments][sums_of_thread];
    uint32_t marks[fragments][2];  // kSpecialMarks, where codes of a line were Inf or NaN

    static MXQ_HD constexpr int batch_of(int turn) { return turn / fragments * batches; }
    static MXQ_HD constexpr int fragment_of(int turn) { return turn % fragments; }

    // Loads a turn of a stage that is full.
    __device__ __forceinline__ void load(uint32_t stage, int turn, Loaded& to) const {
        const Step& step = shared.stages[stage];
#pragma unroll
        for (int b = 0; b < batches; b++)
#pragma unroll
            for (int l = 0; l < 2; l++) {
                const uint32_t own = line + 64 * fragment_of(turn) + 8 * l;
                const int batch = batch_of(turn) + b;
                const uint8_t* const scales = step.scales + own * Step::scale_bytes;
                to.codes[b][l].load(step.codes, own, batch);
                if constexpr (kind == Weights::Nvfp4)
                    to.scales[b][l] = reinterpret_cast<const uint32_t*>(scales)[batch];
                else
                    to.scales[b][l] = kind == Weights::Bits8 && !args.scales.bytes ? 127 : scales[batch];
            }
    }
    // Decodes four codes of an instruction.
    template <bool any_scales>
    __device__ __forceinline__ EvenOddBf16 decode_four(uint32_t codes, uint32_t scale, int instruction) const {
        const EvenOddBf16 moved = Codes<kind>::move(args.rule, codes);
        if constexpr (kind == Weights::Nvfp4)
            return scale_four<kind>(args.rule, moved, permute_bytes(scale, 0, instruction == 0 ? 0x1010 : 0x3232));
        if constexpr (any_scales) return scale_any_four<kind>(args.rule, args.missing, moved, codes, scale);
        return scale_four<kind>(args.rule, moved, scale_factor<kind>(args.rule, scale));
    }
    // Decodes a turn to what the thread gives to its instructions.
    template <bool any_scales>
    __device__ __forceinline__ void decode(const Loaded& loaded, int turn, Operands& to) {
#pragma unroll
        for (int b = 0; b < batches; b++)
#pragma unroll
            for (int l = 0; l < 2; l++) {
                uint32_t codes[kBatch];
                loaded.codes[b][l].bring(codes);
#pragma unroll
                for (int i = 0; i < kBatch; i++) {
                    if constexpr (kind == Weights::Bits8)
                        marks[fragment_of(turn)][l] |= mark_special_codes(args.rule, codes[i]);
                    const EvenOddBf16 pairs = decode_four<any_scales>(codes[i], loaded.scales[b][l], i);
                    uint32_t(&own)[4] = to[b * kBatch + i];
                    own[l] = pairs.even, own[2 + l] = pairs.odd;
                }
            }
    }
    // Multiplies a step. Its first turn is decoded and its second loaded; in the end those of the next step are, if there is one.
    // No product is on its way then, since the compiler follows accumulators through straight code alone.
    template <bool any_scales>
    __device__ __forceinline__ void multiply_step(uint32_t stage, bool last, Loaded (&loaded)[2], Operands (&operands)[2]) {
        const TileDescriptor described = describe_tile(shared.stages[stage].tokens);
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            auto& own = sums[fragment_of(turn)];
            begin_products(own);
#pragma unroll
            for (int i = 0; i < instructions; i++)
                multiply_bf16_lines(own, operands[turn][i], described.along((batch_of(turn) * kBatch + i) * kProductBytes));
            commit_products();
            if (!last) {
                if (turn == 0) wait(shared.full[ring.at()], ring.parity());
                load(ring.at(), turn, loaded[turn]);
            }
            wait_products<1>(own);  // those whose operands are overwritten next
            if (turn == 0 || !last) decode<any_scales>(loaded[1 - turn], 1 - turn, operands[1 - turn]);
        }
#pragma unroll
        for (auto& of_fragment : sums) wait_products<0>(of_fragment);
    }
    // Multiplies all steps of a tile, and gives the stages back.
    template <bool any_scales>
    __device__ __forceinline__ void multiply_steps(int32_t steps) {
        Loaded loaded[2];
        Operands operands[2];
        wait(shared.full[ring.at()], ring.parity());
        load(ring.at(), 0, loaded[0]);
        load(ring.at(), 1, loaded[1]);
        decode<any_scales>(loaded[0], 0, operands[0]);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            const uint32_t stage = ring.at();
            ring.next();
            multiply_step<any_scales>(stage, step + 1 == steps, loaded, operands);
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
        }
    }
    __device__ __forceinline__ void multiply_tile(const Tile& tile) {
#pragma unroll
        for (int f = 0; f < fragments; f++) {
            marks[f][0] = marks[f][1] = 0;
#pragma unroll
            for (float& sum : sums[f]) sum = 0;
        }
        if (kind != Weights::Nvfp4 && tile.any_scales) multiply_steps<true>(tile.steps);
        else multiply_steps<false>(tile.steps);
    }
    // Returns which of the warp's 16 lines of a fragment have sums that are to be made again, a bit each.
    __device__ __forceinline__ uint32_t lines_to_repair(int fragment) const {
        if constexpr (kind != Weights::Bits8) return 0;
        uint32_t lines = 0;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t ballot = __ballot_sync(kAllLanes, marks[fragment][l] & kSpecialMarks);
            if (ballot == 0) continue;
            for (int of_line = 0; of_line < 8; of_line++)
                if (ballot >> 4 * of_line & 0xF) lines |= 1u << (8 * l + of_line);
        }
        return lines;
    }
};

}  // namespace mxq::cuda::sm90::bf16
