// The warps of skinny_sm90 at work, 16 lines of weights each: what they need comes through the ring of stages.
//
//     step       wait for its stage | of each chunk: codes to registers, decode, multiply | give the stage back
//     decode     16 codes of two lines at a time, what one instruction takes
//
// Up to 16 tokens each warp multiplies by itself (mma.sync), so that no warp waits for another. More tokens are multiplied
// by the four warps of a warpgroup together (wgmma), while each decodes what comes next.
#pragma once
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/skinny_tiles.cuh"
#include "cuda/sm90/skinny_weights.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::skinny {

// Returns where the scales of a thread's lines lie. Lines behind the last count as the last; nobody stores their sums.
template <Weights kind, int chunks>
__device__ __forceinline__ ScaleReader scale_reader(const Arguments& args, const Tile& tile) {
    const uint32_t thread = read_thread(), lane = thread % 32;
    const ScaleLayout& layout = tile.b.layout;
    const uint32_t code = (tile.first_step * args.step_chunks + lane % kScaleChunks) * kChunkCodes;
    const uint32_t k = uint32_t(args.problem.k);
    const bool exist = args.scaled && code < k;
    const int32_t blocks = exist ? int32_t((k - code - 1) / kBlockCodes<kind>) + 1 : 0;
    ScaleReader reader{nullptr, 0, 0, tile.scale_steps, blocks, args.adjacent};
#pragma unroll
    for (int l = 0; l < 2; l++) {
        const uint32_t line = min(tile.line + thread / 32 * kWarpLines + line_of_lane<chunks>() + 8 * l,
                                  uint32_t(args.problem.n) - 1);
        const uint8_t* const scales = tile.b.scales + scale_line(layout, line) + scale_in_line(layout, code);
        const uint32_t before = args.adjacent ? uint32_t(reinterpret_cast<uintptr_t>(scales)) % 4 : 0;
        if (l == 0) reader.words = scales - before;
        if (l == 1) reader.to_second = int32_t(scales - before - reader.words);
        reader.bits |= 8 * before << 8 * l;
    }
    return reader;
}

// Says where a thread's codes and tokens lie in those of a chunk.
struct Places {
    uint32_t codes, tokens;
};

// Returns where a thread's first tokens lie: those of the lane's quarter of the codes, of one token of eight.
template <int second_pieces>
__device__ __forceinline__ uint32_t first_token_of_thread() {
    const uint32_t lane = read_thread() % 32, token = lane / 4, half = lane % 4 / 2, piece = lane % 2 * 4;
    return half * second_pieces + token * 128 + ((piece ^ (token + half * (kPieceGap / 128)) % 8) * 16);
}

// Returns whether any thread of the caller's warpgroup has `own`; all of them call it.
__device__ __forceinline__ bool any_of_warpgroup(bool own) {
    uint32_t any;
    asm volatile(
        "{\n"
        ".reg .pred own, any;\n"
        "setp.ne.u32 own, %1, 0;\n"
        "barrier.cta.red.or.pred any, %2, 128, own;\n"
        "selp.u32 %0, 1, 0, any;\n"
        "}"
        : "=r"(any)
        : "r"(uint32_t(own)), "r"(1 + read_thread() / 128)
        : "memory");
    return any != 0;
}

// Multiplies a part of a tile for up to `columns` tokens.
template <Weights kind, int tile_tokens, int columns>
struct Consumer {
    static constexpr int sums_of_thread = columns / 2, chunks = chunks_of_step(weight_bits<kind>, tile_tokens);
    static constexpr int batch_steps =
        kind == Weights::Bits4 && columns <= 64 ? 2 : 1;  // instructions made at once: registers are short
    using Block = Shared<kind, tile_tokens>;
    const Arguments& args;
    Block& shared;
    float sums[sums_of_thread];
    Places place;  // of what the thread reads of a chunk

    // Decodes what a thread gives to one instruction. `special` is asked once a chunk, so that all of its instructions are
    // one straight piece of code.
    template <bool special>
    __device__ __forceinline__ void decode_16(const Fragment<kind>& fragment, int four, const uint32_t (&factors)[2][2],
                                              uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int half = kind == Weights::Nvfp4 ? four / 4 : 0;
            const uint32_t codes = four_codes<kind>(fragment, l, four);
            const EvenOddBf16 pairs =
                special ? decode_any_four<kind>(args.rule, args.missing, codes, four, fragment.scales[l][half])
                        : decode_four<kind>(args.rule, codes, four, factors[l][half]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    // Each warp multiplies by itself: nobody waits for the others of its warpgroup.
    template <bool special>
    __device__ __forceinline__ void multiply_by_warps(const Fragment<kind>& fragment, const uint8_t* tokens,
                                                      const uint32_t (&factors)[2][2]) {
#pragma unroll
        for (int two = 0; two < kSteps / 2; two++) {
            uint32_t first[4], second[4];
            decode_16<special>(fragment, 2 * two, factors, first);
            decode_16<special>(fragment, 2 * two + 1, factors, second);
#pragma unroll
            for (int eight = 0; eight < columns / kTokenRows; eight++) {
                const uint4 of = pair_eight<kind>(
                    *reinterpret_cast<const uint4*>(tokens + eight * kPieceBytes + (place.tokens ^ two * 16)));
                auto& own = reinterpret_cast<float(&)[4]>(sums[4 * eight]);
                multiply_add_bf16(own, first, of.x, of.y);
                multiply_add_bf16(own, second, of.z, of.w);
            }
        }
    }
    // Codes of 8 bits are read again when their turn comes: registers are short.
    template <bool special>
    __device__ __forceinline__ void multiply_by_warpgroups(Fragment<kind>& fragment, const uint8_t* codes,
                                                           const uint8_t* tokens, const uint32_t (&factors)[2][2]) {
        uint32_t operands[2][batch_steps][4];  // decoded while those before are multiplied
#pragma unroll
        for (int batch = 0; batch < kSteps / batch_steps; batch++) {
            auto& own = operands[batch % 2];
            if (kind == Weights::Bits8 && batch % 4 == 0) read_piece<kind, chunks>(codes, place.codes, batch / 4, fragment);
#pragma unroll
            for (int i = 0; i < batch_steps; i++) decode_16<special>(fragment, batch * batch_steps + i, factors, own[i]);
            begin_products(sums);
#pragma unroll
            for (int i = 0; i < batch_steps; i++)
                multiply_bf16_lines(sums, own[i],
                                    describe_cores(tokens + (batch * batch_steps + i) * kCoreBytes, kTokenRowsBytes));
            commit_products();
            wait_products<1>(sums);
        }
        wait_products<0>(sums);
    }
    template <bool special>
    __device__ __forceinline__ void multiply(Fragment<kind>& fragment, const uint8_t* codes, const uint8_t* tokens,
                                             const uint32_t (&factors)[2][2]) {
        if constexpr (columns > kFewTokens)
            multiply_by_warpgroups<special>(fragment, codes, tokens, factors);
        else
            multiply_by_warps<special>(fragment, tokens, factors);
    }
    // Returns whether any of those has something special who multiply together, and so take the same way.
    static __device__ __forceinline__ bool any_of_all(bool own) {
        if constexpr (columns > kFewTokens)
            return any_of_warpgroup(own);
        else
            return __any_sync(kAllLanes, own);
    }
    // `at` is where the thread's first codes lie; `special`: whether some scales of the chunks around this one need two factors.
    __device__ __forceinline__ void multiply_chunk(Fragment<kind>& fragment, const uint8_t* codes, uint32_t at,
                                                   const uint8_t* tokens, bool special) {
        read_codes<kind, chunks>(codes, at, fragment);
        uint32_t factors[2][2];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < (kind == Weights::Nvfp4 ? 2 : 1); i++)
                factors[l][i] = scale_factor<kind>(args.rule, fragment.scales[l][i]);
        if constexpr (kind == Weights::Bits8) special |= any_of_all(any_special(args.rule, fragment));
        if (special)
            multiply<true>(fragment, codes, tokens, factors);
        else
            multiply<false>(fragment, codes, tokens, factors);
    }
    __device__ __forceinline__ void multiply_part(const Tile& tile, Ring<Block::kStages>& ring) {
        ScaleReader reader = scale_reader<kind, chunks>(args, tile);
        LoadedScales<kind> next{};
        ScaleWords<kind> scales;
        load_scales(reader, next);
        bool special = false;
        place = {first_code_of_thread<kind, chunks>(), first_token_of_thread<kSecondPieces<chunks>>()};
        if constexpr (columns <= kFewTokens) keep(place.codes), keep(place.tokens);
#pragma unroll
        for (float& sum : sums) sum = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < tile.steps; step++, ring.next()) {
            if (step % (kScaleChunks / chunks) == 0) {
                scales = scale_words(reader, next);
                load_scales(reader, next);
                special = any_of_all(any_special(args.rule, scales));
            }
            const auto& stage = shared.stages[ring.at()];
            wait(shared.full[ring.at()], ring.parity());
#pragma unroll
            for (int i = 0; i < chunks; i++) {
                Fragment<kind> fragment;
                take_scales(scales, step * chunks + i, fragment);
                multiply_chunk(fragment, stage.codes, place.codes ^ i * (kRowBytes<kind, 1>),
                               stage.tokens + i * (kFewTokens / kTokenRows * kPieceBytes), special);
            }
            __syncwarp();
            if (read_thread() % 32 == 0) arrive(shared.free[ring.at()]);
        }
    }
};

}  // namespace mxq::cuda::sm90::skinny
