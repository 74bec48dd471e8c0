// Codes of a tile of 128 x 128 in shared memory to MX codes, for one part or both.
//
// What lies along the source's lines stays in lines; across them, 16 lines are a chunk of each of their positions:
//
//     tile       lines of codes as they are stored; each 16 of them start 16 bytes later than the ones before would have it, so
//                that eight lanes that read the same positions of eight chunks meet eight bank groups
//     across     a lane reads a word of 16 lines, two positions of it at a time -> values -> maxima of two neighbouring lanes
//                -> a scale each -> 16 codes of either position; eight lanes have 128 in a row
//     along      a lane reads 16 or 32 codes of a line, which share a scale of a power of two: their products stay in F16, two
//                to a word (numerics/f16_codes.h). What that does not serve, few chunks, is made out of line
//
// The source's scales come from a table. The loops are short on purpose, and addresses are found by a few threads: a tile is
// but 128 elements a thread. Instructions an element: 8 across (of NVFP4 9), 7 along to E2M1, 6 to 8 bits under one scale for
// the tile, and 3 for all that comes once.
#pragma once
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/code_patch.cuh"
#include "numerics/f16_codes.h"

namespace mxq::cuda {

constexpr int kRequantizeThreads = 128;
constexpr int kRequantizeWarps = kRequantizeThreads / 32;

// Blocks that share an SM: 64 registers a thread. Below sm_89 codes are converted in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kRequantizeBlocks = 4;
#else
constexpr int kRequantizeBlocks = 8;
#endif

struct ChunkArguments {
    QuantizeProblem problem;
    uint32_t matrices, down;  // tiles of a matrix; of groups, slabs
    GroupSumUnits units;
    ScaleSteps steps;
    bool clamps;  // products may be 7 or more, to E2M1
};

// The tile's scales by block and line, each 16 lines moved as the codes are, and blocks by 16 bytes more: fp32 values; NVFP4's
// as F16, 64 times the value, which makes up for what shrunk_e4m3 leaves.
template <class S>
struct ScaleTable {
    using Value = std::conditional_t<S::has_global, uint16_t, float>;
    static constexpr int blocks = S::bits == 4 ? kTile / kNvBlock : kTile / kMxBlock, skew = 16 / sizeof(Value);
    static constexpr int stride = kTile + skew * kSideChunks + skew;
    alignas(16) Value values[blocks][stride];

    static __device__ __forceinline__ int place(int line) { return line + line / kChunk * skew; }
    __device__ __forceinline__ Value& at(int block, int line) { return values[block][place(line)]; }
    static __device__ __forceinline__ Value value(uint32_t byte) {
        if constexpr (!S::has_global) return scale_value(byte);
        else return uint16_t(multiply_f16_pairs(decode_f16_pair<E4M3>(byte), 0x54005400u));
    }
};

// E2M1 codes in the upper halves of bytes as E4M3's of 1/64 of the value.
__device__ __forceinline__ uint32_t shrunk_e4m3(uint32_t codes) {
    return (codes & 0x80808080u) | (codes >> 2 & 0x1C1C1C1Cu);
}

// In the order of GroupSum.
constexpr int kFromPart = 0, kRowwisePart = 1, kColumnwisePart = 2;

template <class S>
struct RequantizeShared {
    static constexpr int pieces = S::bits;  // of 16 bytes, in a line
    static constexpr int line_words = 4 * pieces;

    uint4 codes[kTile * pieces + kSideChunks];
    ScaleTable<S> scales;
    uint32_t words[2][kTile];  // scale bytes of each part, by line
    uint32_t warp_maxima[kRequantizeWarps];
    TileGroup group;
    PartPlace parts[3];
    int lines, length;  // of the source, that exist in the tile
    float global;       // above the source's scales

    static __device__ __forceinline__ int slot(int line) { return line * pieces + line / kChunk; }
};

// ---- The tile --------------------------------------------------------------------------------------------------------

// The tile of a block, of a grid of tiles across by those down in two dimensions. False: there is none.
__device__ __forceinline__ bool find_requantize_tile(const ChunkArguments& a, TileGroup& group, TilePlace& place) {
    const uint32_t line = row_of_blocks();
    if (line >= a.matrices * a.down) return false;
    place.col = int64_t(blockIdx.x) * kTile;
    const uint32_t matrix = a.matrices == 1 ? 0 : line / a.down;
    place.matrix = place.scope = matrix;
    place.row = int64_t(line - matrix * a.down) * kTile;
    place.rows = a.problem.in.rows;
    if (!a.problem.grouped.groups.set) return true;
    find_slab(a.problem.grouped, a.units, line, group);
    place.scope = group.index;
    place.row = int64_t(line - group.first_slab) * kTile;
    place.rows = group.rows;
    return group.index >= 0;
}

// What all threads need to know, by three lanes of a warp at once and by one of another. A barrier must follow.
template <class S>
__device__ __forceinline__ void describe_parts(const QuantizeProblem& p, const TilePlace& place, RequantizeShared<S>& shared) {
    const int which = threadIdx.x;  // source, rowwise, columnwise
    if (which == 0 || (which == 1 && p.has_rowwise) || (which == 2 && p.has_columnwise)) {
        const QuantizedPart& part = which == 0 ? p.from : which == 1 ? p.rowwise : p.columnwise;
        GroupStart start{};
        if (p.grouped.groups.set)
            start = {shared.group.index, 0, shared.group.starts[2 * which], shared.group.starts[2 * which + 1]};
        shared.parts[which] = PartPlace(part, place, start, p.in.cols, p.grouped.groups.set);
    }
    if (threadIdx.x == 32) shared.global = S::has_global ? global_scale(p.from, place.scope) : 1.0f;
}

// The tile's codes, zeros where there are none: on their way when this returns.
template <class S>
__device__ __forceinline__ void copy_codes(const QuantizeProblem& p, const TilePlace& place, RequantizeShared<S>& shared) {
    constexpr int pieces = RequantizeShared<S>::pieces, step = kRequantizeThreads / pieces;
    const bool columnwise = p.from.columnwise;
    const int rows = min(int(place.rows) - int(place.row), kTile), cols = min(int(p.in.cols) - int(place.col), kTile);
    const int lines = columnwise ? cols : rows, length = columnwise ? rows : cols;
    if (threadIdx.x == 64) shared.lines = lines, shared.length = length;
    const uint32_t row = uint32_t(place.row) + (p.grouped.groups.set ? shared.group.starts[kSourceCodes] : 0);
    const int line = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const uint32_t col = uint32_t(place.col), line_bytes = uint32_t(p.from.line_bytes);
    const uint64_t first = uint64_t(uint32_t(place.matrix)) * uint32_t(p.from.lines) + (columnwise ? col : row) + line;
    const uint8_t* at = p.from.codes + first * line_bytes + (columnwise ? row : col) / 8 * S::bits + piece * 16;
    uint4* const to = &shared.codes[shared.slot(line) + piece];
    const int existing = piece * (128 / S::bits) < length ? lines - line : 0;
    const auto slots = [](int below) { return below * pieces + below / kChunk; };
    const uint64_t next = uint64_t(line_bytes) * step;
    if (existing + line == kTile) {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += next) copy_piece(to + slots(i), at, true);
    } else {
#pragma unroll 1
        for (int i = 0; i < kTile; i += step, at += next)
            copy_piece(to + slots(i), i < existing ? at : p.from.codes, i < existing);
    }
}

// A line's scales, one by one. Out of line: of ragged tiles, and of other layouts than whole aligned words.
template <class S>
__device__ __noinline__ void load_line_scales(const QuantizedPart& part, int line, RequantizeShared<S>& shared) {
    const ScaleTile& tile = shared.parts[kFromPart].scales;
    const int shift = source_shift(part.layout), blocks = kTile >> shift, count = (shared.length + (1 << shift) - 1) >> shift;
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        typename ScaleTable<S>::Value scale = 0;
        if (line < shared.lines && block < count) {
            const int64_t at = tile.offset(line, tile.column + block);
            if (part.scale_type != ScaleType::F32) scale = ScaleTable<S>::value(part.scales[at]);
            else if constexpr (!S::has_global) scale = reinterpret_cast<const float*>(part.scales)[at];
        }
        shared.scales.at(block, line) = scale;
    }
}

// The table, by all threads, a line each. A barrier must follow.
template <class S>
__device__ __forceinline__ void load_scale_table(const QuantizedPart& part, RequantizeShared<S>& shared) {
    static_assert(kRequantizeThreads == kTile);
    const PartPlace& from = shared.parts[kFromPart];
    const int line = line_of_word(part.layout, int(threadIdx.x));
    if (!from.whole_words || shared.lines < kTile || shared.length < kTile) return load_line_scales<S>(part, line, shared);
    const uint8_t* at = from.scale_bytes + (part.layout.swizzled ? int64_t(threadIdx.x * 4) : line * from.scale_step);
    const int64_t next = part.layout.swizzled ? kSwizzleBytes : 4;
    uint32_t words[ScaleTable<S>::blocks / 4];
#pragma unroll
    for (uint32_t& word : words) {
        word = __ldg(reinterpret_cast<const uint32_t*>(at));
        at += next;
    }
    auto* const to = &shared.scales.at(0, line);
#pragma unroll
    for (int i = 0; i < ScaleTable<S>::blocks; i++)
        to[i * ScaleTable<S>::stride] = ScaleTable<S>::value(words[i / 4] >> (i % 4 * 8) & 0xFF);
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// 16 codes as they are stored.
template <class E>
struct ChunkCodes {
    uint32_t words[E::bits / 2];
};

template <class E>
__device__ __forceinline__ void store_chunk(uint8_t* to, const ChunkCodes<E>& codes) {
    const auto& words = codes.words;
    if constexpr (E::bits == 8) __stwb(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
    else __stwb(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
}

template <class E>
__device__ __forceinline__ void store_chunks(uint8_t* to, const ChunkCodes<E> (&codes)[1]) {
    store_chunk(to, codes[0]);
}

__device__ __forceinline__ void store_chunks(uint8_t* to, const ChunkCodes<E2M1> (&codes)[2]) {
    __stwb(reinterpret_cast<uint4*>(to),
           make_uint4(codes[0].words[0], codes[0].words[1], codes[1].words[0], codes[1].words[1]));
}

template <class E>
__device__ __forceinline__ ChunkCodes<E> quantize_values(const float (&values)[kChunk], float factor) {
    ChunkCodes<E> codes;
    const auto product = [&](int i) { return multiply_rn(values[i], factor); };
    if constexpr (E::bits == 8) {
#pragma unroll
        for (int w = 0; w < 4; w++)
            codes.words[w] = encode_pair<E>(product(4 * w), product(4 * w + 1)) |
                             encode_pair<E>(product(4 * w + 2), product(4 * w + 3)) << 16;
    } else {
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) pairs[i] = encode_e2m1_floats(product(8 * w + 2 * i), product(8 * w + 2 * i + 1));
            codes.words[w] = mask_nibbles(pack_nibble_pairs(pairs), factor);
        }
    }
    return codes;
}

// ---- Across ----------------------------------------------------------------------------------------------------------

// What a lane reads two positions of: 16 lines of a word.
template <class S>
struct ChunkPlaceOf {
    const uint32_t* words;  // of the first line
    const typename ScaleTable<S>::Value* scales;
    int pair;

    __device__ __forceinline__ ChunkPlaceOf(const RequantizeShared<S>& shared, int chunk, int word, int block, int which)
        : words(reinterpret_cast<const uint32_t*>(&shared.codes[shared.slot(chunk * kChunk)]) + word),
          scales(&shared.scales.values[block][ScaleTable<S>::place(chunk * kChunk)]), pair(which) {}
    __device__ __forceinline__ uint32_t line(int i) const { return words[i * RequantizeShared<S>::line_words]; }
    __device__ __forceinline__ void four_scales(int i, float (&of_line)[4]) const {
        const float4 four = *reinterpret_cast<const float4*>(scales + i);
        of_line[0] = four.x, of_line[1] = four.y, of_line[2] = four.z, of_line[3] = four.w;
    }
};

template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_chunk(const float (&values)[kChunk]) {
    uint32_t even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        even = larger_magnitudes<float, policy>(even, float_bits(values[i]));
        odd = larger_magnitudes<float, policy>(odd, float_bits(values[i + 1]));
    }
    return larger_magnitudes<float, policy>(even, odd);
}

// Of the two positions, as bits.
struct TwoMaxima {
    uint32_t first, second;
};

// The values of codes of 8 bits.
template <class S>
struct TwoChunks {
    float first[kChunk], second[kChunk];

    __device__ __forceinline__ explicit TwoChunks(const ChunkPlaceOf<S>& place) {
#pragma unroll
        for (int i = 0; i < kChunk; i += 4) {
            float scales[4];
            place.four_scales(i, scales);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const uint32_t codes =
                    __byte_perm(place.line(i + j), place.line(i + j + 1), place.pair == 0 ? 0x5140 : 0x7362);
                const float2 of_first = dequantize_pair<typename S::Bytes>(codes & 0xFFFF, scales[j], scales[j + 1]);
                const float2 of_second = dequantize_pair<typename S::Bytes>(codes >> 16, scales[j], scales[j + 1]);
                first[i + j] = of_first.x, first[i + j + 1] = of_first.y;
                second[i + j] = of_second.x, second[i + j + 1] = of_second.y;
            }
        }
    }
    template <Nonfinite policy>
    __device__ __forceinline__ TwoMaxima maxima(float) const {
        return {largest_of_chunk<policy>(first), largest_of_chunk<policy>(second)};
    }
};

// NVFP4's: codes times block scales are exact in F16, two lines to a word. The scale above them comes last, and mostly together
// with the factor: a power of two from 2^-100 to 2^107, which changes no product that is not far below any code.
struct TwoHalfChunks {
    using S = Source<E2M1>;
    static constexpr int count = kChunk / 2;
    uint32_t first[count], second[count];

    __device__ __forceinline__ explicit TwoHalfChunks(const ChunkPlaceOf<S>& place) {
#pragma unroll
        for (int i = 0; i < kChunk; i += 8) {
            const uint4 eight = *reinterpret_cast<const uint4*>(place.scales + i);
            const uint32_t scales[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int j = 0; j < 8; j += 4) {
                const uint32_t select = 0x40 + 0x11 * place.pair;
                const uint32_t codes = __byte_perm(__byte_perm(place.line(i + j), place.line(i + j + 1), select),
                                                   __byte_perm(place.line(i + j + 2), place.line(i + j + 3), select), 0x5410);
                const uint32_t low = shrunk_e4m3(codes << 4), high = shrunk_e4m3(codes);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const int at = (i + j) / 2 + k;
                    first[at] = multiply_f16_pairs(decode_f16_pair<E4M3>(low >> (16 * k) & 0xFFFF), scales[j / 2 + k]);
                    second[at] = multiply_f16_pairs(decode_f16_pair<E4M3>(high >> (16 * k) & 0xFFFF), scales[j / 2 + k]);
                }
            }
        }
    }
    template <Nonfinite policy>
    static __device__ __forceinline__ uint32_t maximum(const uint32_t (&pairs)[count], float global) {
        uint32_t even = policy == Nonfinite::Saturate ? 0 : pairs[0], odd = policy == Nonfinite::Saturate ? 0 : pairs[1];
#pragma unroll
        for (int i = policy == Nonfinite::Saturate ? 0 : 2; i < count; i += 2) {
            even = farther_f16_pairs<policy>(even, pairs[i]);
            odd = farther_f16_pairs<policy>(odd, pairs[i + 1]);
        }
        const float largest = multiply_rn(f16_magnitude(farther_f16_pairs<policy>(even, odd)), fabsf(global));
        return policy == Nonfinite::Saturate && is_nan(largest) ? 0 : float_bits(largest);  // all are NaN
    }
    template <Nonfinite policy>
    __device__ __forceinline__ TwoMaxima maxima(float global) const {
        return {maximum<policy>(first, global), maximum<policy>(second, global)};
    }
    // Under two factors, or under their product alone, the second being 1.
    template <class E, bool twice>
    static __device__ __forceinline__ ChunkCodes<E> codes_of(const uint32_t (&pairs)[count], float global, float factor) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            const float value = to_float(F16{uint16_t(pairs[i / 2] >> (i % 2 * 16))});
            values[i] = twice ? multiply_rn(value, global) : value;
        }
        return quantize_values<E>(values, factor);
    }
};

// Global scale times factor, or for values that are all zero, by themselves or under the global scale, a zero of their sign.
__device__ __forceinline__ bool is_plain_product(uint32_t maximum, float global, float factor, float& product) {
    const bool zeros = maximum == 0 && fabsf(global) < bits_float(kInfinityBits);
    product = zeros ? copysignf(0.0f, global) : multiply_rn(global, factor);
    return zeros ? !is_nan(factor) : factor >= 0x1p-100f && factor <= 0x1p107f;
}

// Any codes of one of the two positions. Out of line.
template <class E>
__device__ __noinline__ ChunkCodes<E> any_nvfp4_codes(ChunkPlaceOf<Source<E2M1>> place, bool second, float global,
                                                      float factor) {
    const TwoHalfChunks chunks(place);
    return second ? TwoHalfChunks::codes_of<E, true>(chunks.second, global, factor)
                  : TwoHalfChunks::codes_of<E, true>(chunks.first, global, factor);
}

template <class E>
__device__ __forceinline__ void quantize_two(const TwoHalfChunks& values, const ChunkPlaceOf<Source<E2M1>>& place,
                                             const TwoMaxima& maxima, float global, float2 factors,
                                             ChunkCodes<E> (&codes)[2]) {
    float first, second;
    const bool plain = is_plain_product(maxima.first, global, factors.x, first) &
                       is_plain_product(maxima.second, global, factors.y, second);
    if (plain) {
        codes[0] = TwoHalfChunks::codes_of<E, false>(values.first, 1, first);
        codes[1] = TwoHalfChunks::codes_of<E, false>(values.second, 1, second);
    } else {
        codes[0] = any_nvfp4_codes<E>(place, false, global, factors.x);
        codes[1] = any_nvfp4_codes<E>(place, true, global, factors.y);
    }
}

template <class E, class S>
__device__ __forceinline__ void quantize_two(const TwoChunks<S>& values, const ChunkPlaceOf<S>&, const TwoMaxima&, float,
                                             float2 factors, ChunkCodes<E> (&codes)[2]) {
    codes[0] = quantize_values<E>(values.first, factors.x);
    codes[1] = quantize_values<E>(values.second, factors.y);
}

template <class S>
using TwoChunksOf = std::conditional_t<S::has_global, TwoHalfChunks, TwoChunks<S>>;

// Two neighbouring lanes have the 32 lines of a block, of two positions: each makes the scale of one.
__device__ __forceinline__ float2 put_block_scales(const ScaleSteps& steps, const TwoMaxima& maxima, int position, int chunk,
                                                   uint32_t (&words)[kTile]) {
    const bool odd = chunk & 1;
    const uint32_t mine = odd ? maxima.second : maxima.first, other = odd ? maxima.first : maxima.second;
    const uint32_t scale = scale_of(max(mine, __shfl_xor_sync(kAllLanes, other, 1)), steps);
    reinterpret_cast<uint8_t*>(&words[position + odd])[chunk / 2] = uint8_t(scale);
    const float factor = scale_reciprocal(scale), others = __shfl_xor_sync(kAllLanes, factor, 1);
    return odd ? make_float2(others, factor) : make_float2(factor, others);
}

template <class S, class E, Nonfinite policy>
__device__ __forceinline__ void emit_across(const ChunkArguments& a, int which, RequantizeShared<S>& shared) {
    constexpr int in_word = 32 / S::bits;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = lane % kSideChunks;
    const CodeTile& to = shared.parts[kRowwisePart + which].codes;
    const int shift = source_shift(a.problem.from.layout);
    const float global = chunk * kChunk < shared.lines ? shared.global : 0.0f;
    const int lines = chunk * kChunk < to.length ? to.lines : 0;
    uint8_t* const codes = to.codes + chunk * (kChunk * E::bits / 8);
    const uint32_t line_bytes = uint32_t(to.line_bytes);
#pragma unroll 1
    for (int step = 0; step < 4; step++) {
        const int word = (S::bits == 8 ? warp + step / 2 * 4 : warp) * 4 + lane / kSideChunks;
        const int pair = S::bits == 8 ? step % 2 : step, position = word * in_word + pair * 2;
        const ChunkPlaceOf<S> place(shared, chunk, word, position >> shift, pair);
        const TwoChunksOf<S> values(place);
        const TwoMaxima maxima = values.template maxima<policy>(global);
        const float2 factors = put_block_scales(a.steps, maxima, position, chunk, shared.words[which]);
        ChunkCodes<E> out[2];
        quantize_two<E>(values, place, maxima, global, factors, out);
        uint8_t* const at = codes + uint64_t(uint32_t(position)) * line_bytes;
        if (position < lines) store_chunk(at, out[0]);
        if (position + 1 < lines) store_chunk(at + line_bytes, out[1]);
    }
}

// ---- Along -----------------------------------------------------------------------------------------------------------

// The largest magnitude of a block of 32 of a line, as bits. Out of line: where there are NaN or Inf.
template <class S>
__device__ __noinline__ uint32_t any_block_maximum(const RequantizeShared<S>& shared, Nonfinite policy, int line, int block,
                                                   float scale) {
    const auto* codes = reinterpret_cast<const uint8_t*>(&shared.codes[shared.slot(line)]) + block * kMxBlock;
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < kMxBlock; i++) {
        const float value = multiply_rn(decode_pair<typename S::Bytes>(codes[i]).x, scale);
        const uint32_t bits = policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value)
                                                            : amax_bits<Nonfinite::Propagate>(value);
        largest = max(largest, bits);
    }
    return largest;
}

// 16 codes of a line under any factor.
template <class S, class E>
__device__ __noinline__ ChunkCodes<E> any_chunk_codes(const RequantizeShared<S>& shared, int line, int chunk, float scale,
                                                      float factor) {
    const auto* codes = reinterpret_cast<const uint8_t*>(&shared.codes[shared.slot(line) + chunk]);
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) values[i] = multiply_rn(decode_pair<typename S::Bytes>(codes[i]).x, scale);
    return quantize_values<E>(values, factor);
}

// Chunks of a line that a lane has at once: to E2M1 those of a whole block.
template <class E>
constexpr int kLaneChunks = E::bits == 8 ? 1 : 2;

// They as codes and in F16: signs and all, or magnitudes for E2M1, which takes its signs from the codes.
template <class S, class E>
struct LineChunks {
    static constexpr int count = kLaneChunks<E>, pairs_each = kChunk / 2;
    uint32_t words[count][4];
    uint32_t pairs[count * pairs_each];

    __device__ __forceinline__ explicit LineChunks(const uint4* codes) {
#pragma unroll
        for (int j = 0; j < count; j++) {
            const uint4 four = codes[j];
            words[j][0] = four.x, words[j][1] = four.y, words[j][2] = four.z, words[j][3] = four.w;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t kept = words[j][i];
                if constexpr (E::bits == 4) {
                    kept &= 0x7F7F7F7Fu;
                    asm("" : "+r"(kept));  // once: else each half is masked by itself
                }
                pairs[j * pairs_each + 2 * i] = decode_f16_pair<typename S::Bytes>(kept & 0xFFFF);
                pairs[j * pairs_each + 2 * i + 1] = decode_f16_pair<typename S::Bytes>(kept >> 16);
            }
        }
    }
    // NaN where one is.
    __device__ __forceinline__ float largest() const {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < count * pairs_each; i += 2) {
            even = farther_f16_pairs(even, pairs[i]);
            odd = farther_f16_pairs(odd, pairs[i + 1]);
        }
        return f16_magnitude(farther_f16_pairs(even, odd));
    }
    // By a factor that is_f16_factor, of codes that are numbers.
    __device__ __forceinline__ void quantize(float factor, bool clamps, ChunkCodes<E> (&to)[count]) const {
        if constexpr (E::bits == 8) {
            const uint32_t both = f16_pair(factor);
#pragma unroll
            for (int w = 0; w < 4; w++)
                to[0].words[w] = encode_f16_pair<E>(multiply_f16_pairs(pairs[2 * w], both)) |
                                 encode_f16_pair<E>(multiply_f16_pairs(pairs[2 * w + 1], both)) << 16;
        } else {
            const E2m1Factors factors(factor);
            const uint32_t limit = clamps ? e2m1_limit(factor) : 0x7BFF7BFFu;
            const auto code = [&](int i) {
                return round_e2m1_f16_pair(clamps ? lesser_f16_pairs(pairs[i], limit) : pairs[i], factors);
            };
#pragma unroll
            for (int j = 0; j < count; j++) {
                uint32_t bytes[4];
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    const int i = j * pairs_each + 2 * w;
                    bytes[w] = signed_e2m1_bytes(code(i), code(i + 1), words[j][w]);
                }
                to[j].words[0] = pack_nibble_bytes(bytes[0], bytes[1]);
                to[j].words[1] = pack_nibble_bytes(bytes[2], bytes[3]);
            }
        }
    }
};

// A lane's chunks of lines, neighbouring lanes having neighbours; step i has lines i * at_once after the lane's first.
template <class S, class E>
struct LineReader {
    using Chunks = LineChunks<S, E>;
    static constexpr int lanes = kSideChunks / Chunks::count, at_once = kRequantizeThreads / lanes, steps = kTile / at_once;
    static constexpr int stride = at_once * RequantizeShared<S>::pieces + at_once / kChunk;
    static constexpr int scale_stride = at_once + at_once / kChunk * 4;
    const uint4* codes;
    const float* scales;
    int first, chunk;

    __device__ __forceinline__ LineReader(const RequantizeShared<S>& shared, const QuantizedPart& from)
        : first(threadIdx.x / lanes), chunk(threadIdx.x % lanes * Chunks::count) {
        codes = &shared.codes[shared.slot(first) + chunk];
        scales = &shared.scales.values[chunk * kChunk >> source_shift(from.layout)][ScaleTable<S>::place(first)];
    }
    __device__ __forceinline__ int line(int i) const { return first + i * at_once; }
    __device__ __forceinline__ Chunks read(int i) const { return Chunks(codes + i * stride); }
    __device__ __forceinline__ float scale(int i) const { return scales[i * scale_stride]; }
};

// The scale of the lane's block of 32, half of which its neighbour may have. `plain`: it has neither NaN nor Inf.
template <class S, class E>
__device__ __forceinline__ uint32_t line_scale(const ChunkArguments& a, const RequantizeShared<S>& shared,
                                               const LineReader<S, E>& reader, const LineChunks<S, E>& values, int i,
                                               bool& plain) {
    uint32_t largest = float_bits(multiply_rn(values.largest(), reader.scale(i)));
    if constexpr (kLaneChunks<E> == 1) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    plain = largest < kInfinityBits;
    if (!plain) largest = any_block_maximum(shared, a.problem.nonfinite, reader.line(i), reader.chunk / 2, reader.scale(i));
    return scale_of(largest, a.steps);
}

// The same of the whole tile. All threads call it.
template <class S, class E>
__device__ __forceinline__ uint32_t tile_scale(const ChunkArguments& a, RequantizeShared<S>& shared,
                                               const LineReader<S, E>& reader, bool& plain) {
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < reader.steps; i++)
        largest = max(largest, float_bits(multiply_rn(reader.read(i).largest(), reader.scale(i))));
    plain = !__syncthreads_or(largest >= kInfinityBits);
    if (!plain) {
        largest = 0;
#pragma unroll 1
        for (int i = 0; i < reader.steps; i++)
            largest = max(largest, any_block_maximum(shared, a.problem.nonfinite, reader.line(i), reader.chunk / 2,
                                                     reader.scale(i)));
    }
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % 32 == 0) shared.warp_maxima[threadIdx.x / 32] = of_warp;
    __syncthreads();
#pragma unroll
    for (const uint32_t other : shared.warp_maxima) largest = max(largest, other);
    return scale_of(largest, a.steps);
}

// `whole`: one scale for the tile.
template <class S, class E, bool whole>
__device__ __forceinline__ void emit_along(const ChunkArguments& a, int which, RequantizeShared<S>& shared) {
    const CodeTile& to = shared.parts[kRowwisePart + which].codes;
    const LineReader<S, E> reader(shared, a.problem.from);
    const int lines = reader.chunk * kChunk < to.length ? to.lines : 0;
    const uint32_t line_bytes = uint32_t(to.line_bytes);
    uint8_t* codes = to.codes + reader.chunk * (kChunk * E::bits / 8) + uint64_t(uint32_t(reader.first)) * line_bytes;
    auto* const bytes = reinterpret_cast<uint8_t*>(&shared.words[which][reader.first]) + reader.chunk / 2;
    bool plain = true;
    uint32_t scale = 0;
    if constexpr (whole) {
        scale = tile_scale<S, E>(a, shared, reader, plain);
        shared.words[which][threadIdx.x] = scale * 0x01010101u;
    }
#pragma unroll 1
    for (int i = 0; i < reader.steps; i++) {
        const LineChunks<S, E> values = reader.read(i);
        if constexpr (!whole) {
            scale = line_scale<S, E>(a, shared, reader, values, i, plain);
            bytes[i * reader.at_once * 4] = uint8_t(scale);
        }
        const float reciprocal = scale_reciprocal(scale), factor = multiply_rn(reader.scale(i), reciprocal);
        ChunkCodes<E> out[kLaneChunks<E>];
        if (plain && is_f16_factor<typename S::Bytes, E>(factor)) {
            values.quantize(factor, a.clamps, out);
        } else {
#pragma unroll
            for (int j = 0; j < kLaneChunks<E>; j++)
                out[j] = any_chunk_codes<S, E>(shared, reader.line(i), reader.chunk + j, reader.scale(i), reciprocal);
        }
        if (reader.line(i) < lines) store_chunks(codes, out);
        codes += uint64_t(line_bytes) * reader.at_once;
    }
}

// ---- Scales to memory ------------------------------------------------------------------------------------------------

// A word a line; what a swizzled layout has no scale for is zero.
__device__ __forceinline__ void store_scale_words(const QuantizedPart& part, const PartPlace& place,
                                                  const uint32_t (&words)[kTile]) {
    const ScaleLayout& layout = part.layout;
    const int i = threadIdx.x, line = line_of_word(layout, i);
    if (place.whole_words) {
        const int64_t byte = layout.swizzled ? i * 4 : line * place.scale_step;
        __stwb(reinterpret_cast<uint32_t*>(place.scale_bytes + byte), words[line]);
        return;
    }
    const ScaleTile& tile = place.scales;
    const int left = int(min(tile.layout.columns - tile.column, int64_t(4))), in_word = min(kTile / layout.block, 4);
    if (left <= 0) return;
    const uint32_t word = line < tile.lines ? words[line] & (~0u >> (32 - 8 * left)) : 0;
    const int stored = layout.swizzled ? 4 : tile.stores(line) ? min(left, in_word) : 0;
    if (stored > 0) store_scale_word(part.scales + tile.offset(line, tile.column), word, stored);
}

// ---- All of it -------------------------------------------------------------------------------------------------------

template <class S, class E>
__device__ __forceinline__ void requantize_tile_chunks(const ChunkArguments& a, RequantizeShared<S>& shared) {
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_requantize_tile(a, shared.group, place)) return;
    copy_codes(p, place, shared);
    describe_parts(p, place, shared);
    __syncthreads();
    load_scale_table(p.from, shared);
    wait_for_pieces();
    __syncthreads();
    const int along = p.from.columnwise ? 1 : 0;
    if constexpr (S::bits == 8) {
        if (has_part(p, along)) {
            if (p.square_tiles) emit_along<S, E, true>(a, along, shared);
            else emit_along<S, E, false>(a, along, shared);
        }
    }
    if (has_part(p, 1 - along)) {
        if (p.nonfinite == Nonfinite::Saturate) emit_across<S, E, Nonfinite::Saturate>(a, 1 - along, shared);
        else emit_across<S, E, Nonfinite::Propagate>(a, 1 - along, shared);
    }
    __syncthreads();
    if (p.has_rowwise) store_scale_words(p.rowwise, shared.parts[kRowwisePart], shared.words[0]);
    if (p.has_columnwise) store_scale_words(p.columnwise, shared.parts[kColumnwisePart], shared.words[1]);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Whether all lines of a part are whole aligned pieces of so many bytes.
inline bool has_whole_chunks(const QuantizedPart& part, bool grouped, int bytes) {
    return code_access(part, grouped).bytes >= bytes && part.length % (8 * bytes / part.bits) == 0;
}

// Along a source's lines, products are F16's: MXFP8 under powers of two, which 16 codes share.
inline bool serves_along(const QuantizedPart& from) { return from.bits == 8 && from.scale_type == ScaleType::E8M0; }

// Of what is_code_source allows.
inline bool is_chunk_work(const QuantizeProblem& p) {
    const bool grouped = p.grouped.set(), along_rows = !p.from.columnwise;
    const bool has_along = along_rows ? p.has_rowwise : p.has_columnwise;
    const bool has_across = along_rows ? p.has_columnwise : p.has_rowwise;
    if (p.from.bits == 4 && p.from.scale_type != ScaleType::E4M3) return false;  // as Source<E2M1>'s table has it
    if (!p.format->is_mx() || p.format->bits == 6 || !has_whole_chunks(p.from, grouped, 16)) return false;
    if (p.has_rowwise && !has_whole_chunks(p.rowwise, grouped, 16)) return false;
    if (p.has_columnwise && !has_whole_chunks(p.columnwise, grouped, 16)) return false;
    if (has_along && !serves_along(p.from)) return false;
    if (p.tile.length == kWideBlock) return p.square_tiles && !has_across;
    return p.tile.length == kMxBlock && !p.square_tiles;
}

inline ChunkArguments chunk_arguments(const QuantizeProblem& p, const Tiles& tiles, const GroupSumUnits& units,
                                      const ScaleSteps& steps) {
    // FLOOR and EVEN give values up to 8, SATURATE Inf.
    const bool below_seven = p.scale_rounding == ScaleRounding::Rceil || p.scale_rounding == ScaleRounding::Ceil;
    return {p, uint32_t(tiles.matrices), uint32_t(tiles.down), units, steps,
            !below_seven || p.nonfinite == Nonfinite::Saturate};
}

}  // namespace mxq::cuda
