// Four over six of lines: each block of 16 takes the better of two scales, told by estimates out of which the codes come too.
//
//     words -> maximum -> two candidates -> error and codes under each -> the better one's
//                              |                   |
//                        table of factors     too close to tell: exact errors, out of line
#pragma once
#include "cuda/quantize/fp4_pairs.cuh"

namespace mxq::cuda::fp4_pairs {

// A block's candidates, and what estimates multiply by under each.
struct Choice {
    float amax;
    uint32_t candidates;  // six, four: a byte each
    ErrorScale four, six;

    __device__ __forceinline__ Choice(const Rule& rule, uint32_t bits) : amax(bits_float(bits)) {
        const float sixth = ErrorDivisor{6, 1.0f / 6}.divide(amax), base = multiply_rn(sixth, rule.global.encode);
        candidates = encode_pair<E4M3>(base, multiply_rn(base, 1.5f));
        four = rule.errors[candidates >> 8 & 0x7F];
        six = rule.errors[candidates & 0x7F];
    }
    // (Where there are estimates multipliers are above 2^-42, so that ErrorDivisor divides what is not too large.)
    __device__ __forceinline__ bool can_estimate() const { return mxq::can_estimate(amax, four, six); }
};

// Makes the scale and codes of the lane's chunk of a line. False where an element may not be plain.
template <bool squared>
__device__ __forceinline__ bool better_codes(const Rule& rule, const Shared& shared, const uint32_t (&words)[kPairs], int line,
                                             uint32_t& scale, uint2& codes) {
    const Choice choice(rule, largest_of_row<Nonfinite::Propagate>(words));
    if (!__all_sync(kAllLanes, choice.can_estimate())) return false;
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
        values[2 * i] = low_value(words[i]);
        values[2 * i + 1] = high_value(words[i]);
    }
    uint32_t fours[4], sixes[4];
    Errors errors{error_estimate_16<squared>(values, choice.four, fours),
                  error_estimate_16<squared>(values, choice.six, sixes)};
    if (choice.amax != 0 && !estimates_decide<squared>(errors.four, errors.six, choice.amax, 1))
        errors = tile_errors<squared>(shared.tile, rule.columnwise, line, {choice.candidates >> 8, choice.candidates & 0xFF},
                                      shared.tables.globals[rule.columnwise]);
    const bool is_four = errors.four < errors.six;
    scale = is_four ? choice.candidates >> 8 : choice.candidates & 0xFF;
    const auto eight = [&](int i) {
        return pack_shifted_codes(is_four ? fours[i] : sixes[i], is_four ? fours[i + 1] : sixes[i + 1], words + 2 * i);
    };
    codes = {eight(0), eight(2)};
    return true;
}

// Reads the lane's chunks of rows and of columns, two elements to a word: the one of step i.
struct LineReader {
    RowReader<Bf16> rows;
    int columns[2];

    __device__ __forceinline__ explicit LineReader(const ChunkTile<Bf16>& tile)
        : rows(tile, row_of_step(0), chunk_of_lane()),
          columns{column_pair_word<Bf16>(column_of_step<Bf16>(0), chunk_of_lane()),
                  column_pair_word<Bf16>(column_of_step<Bf16>(2), chunk_of_lane())} {}
    __device__ __forceinline__ void read(bool columnwise, int i, uint32_t (&words)[kPairs]) const {
        if (!columnwise) return rows.read_words(row_of_step(i) - row_of_step(0), words);
        uint32_t pairs[kChunk];
        read_column_pair(rows.tile, i < 2 ? columns[0] : columns[1], pairs);
        const uint32_t halves = i % 2 == 0 ? 0x5410 : 0x7632;
#pragma unroll
        for (int j = 0; j < kPairs; j++) words[j] = __byte_perm(pairs[2 * j], pairs[2 * j + 1], halves);
    }
};

// Makes all parts by four over six. The loop is so long that a second one for columns would push it out of the instruction
// cache.
template <Rounding rounding>
__device__ __forceinline__ void emit_better(const Arguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const LineReader reader(shared.tile);
#pragma unroll 1
    for (int columnwise = 0; columnwise < 2; columnwise++) {
        if (!has_part(p, columnwise)) continue;
        const Rule rule(a, part_of(p, columnwise), shared);
        int line = columnwise ? column_of_step<Bf16>(0) : row_of_step(0);
#pragma unroll 1
        for (int i = 0; i < kChunkSteps; line += !columnwise ? 4 : i % 2 == 0 ? 1 : 7, i++) {
            uint32_t words[kPairs];
            reader.read(columnwise, i, words);
            uint32_t scale;
            uint2 codes;
            if (better_codes<rounding == Rounding::FourOverSixMse>(rule, shared, words, line, scale, codes))
                put_chunk<Stores::Bytes>(rule, shared, line, scale, codes);
            else
                emit_any<rounding, Stores::Bytes>(a, columnwise, line, shared);
        }
    }
}

}  // namespace mxq::cuda::fp4_pairs
