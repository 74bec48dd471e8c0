// requantize_wide: MXFP8 E4M3 in lines of whole aligned pieces of 16 bytes to the same across the source's lines; experts, no
// groups. Tiles of 256 x 256, so that memory reads and writes 256 bytes of a line at once (docs/performance.md, the rate of
// memory by pattern); lists.cpp says from how many tiles on that is faster than requantize_chunks.
//
//     codes ---cp.async, 256 bytes a line---> shared memory --16 lines x 4 positions a lane--> F16 pairs
//     scales --8 bytes a line, a thread each--> units and factors of lines -----------------------^      (wide_tile.cuh)
//     F16 pairs --two lanes, 32 lines--> maxima --> scales, by way of shared memory; factors --> codes, 256 bytes a line
//
//     tile     each 16 lines, a chunk of every position, start 16 bytes later than the ones before would have it, so that 8
//              chunks meet 8 bank groups; a warp reads words of 16, two lanes a bank. Its stores are 256 bytes of two lines
//
// The 32 lines of a block of 32 positions share a unit: 2^-6 of the largest of their 32 scales. A line's codes times its
// scale over that unit are F16 numbers, and so are their products with the unit over the new scale:
//
//     - A scale 2^30 or less below the largest leaves products exact, or below 2^-21.
//     - One further below counts as 0, where the products are below 2^-16.
//     - From 2^22 below on, products may vanish where codes are not 0: that all are 0 then says nothing of the codes.
//     - The second product is exact, or below half of E4M3's least code. With a factor of at most 2^6 all that was not exact is
//       below that half, too: only its sign is left, which all products keep.
//
// A warp that has a larger factor or a NaN makes its codes again, in fp32 and out of line.
//
// Blocks of threads run along bands of tiles. Rowwise to columnwise a band is four tiles high, so that the compact scales of a
// line, a sector of four tiles, can meet in the L2; columnwise to rowwise it is all of the source's lines, which was faster.
//
// Bytes an element: 1.03 read, 1.03 written. Bound by memory, scales above all: without them
// it took 66.3 us in place of 75.3 (16384 x 7168 in bands of 16, H200).
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/requantize/source_lines.cuh"
#include "cuda/requantize/wide_tile.cuh"

namespace mxq::cuda {
namespace {

// The codes of 4 positions of 16 lines, and what they are multiplied by.
struct WideCodes {
    uint32_t lines[kChunk];
    uint32_t factors[kChunk / 2];

    __device__ __forceinline__ WideCodes(const WideShared& shared, int chunk, int position) {
        const auto* words = reinterpret_cast<const uint32_t*>(&shared.codes[WideShared::slot(chunk * kChunk)]) + position / 4;
#pragma unroll
        for (int i = 0; i < kChunk; i++) lines[i] = words[i * (kWide / 4)];
        const auto* four = reinterpret_cast<const uint4*>(shared.factors[position / kMxBlock][chunk]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 of = four[i];
            factors[4 * i] = of.x, factors[4 * i + 1] = of.y, factors[4 * i + 2] = of.z, factors[4 * i + 3] = of.w;
        }
    }
};

// The values of two neighbouring positions of 16 lines, over their unit, two lines to a word.
struct WidePairs {
    static constexpr int count = kChunk / 2;
    uint32_t first[count], second[count];

    __device__ __forceinline__ WidePairs(const WideCodes& codes, int pair) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const uint32_t four = __byte_perm(codes.lines[2 * i], codes.lines[2 * i + 1], pair == 0 ? 0x5140 : 0x7362);
            first[i] = multiply_f16_pairs(decode_pair_to_f16<E4M3>(four & 0xFFFF), codes.factors[i]);
            second[i] = multiply_f16_pairs(decode_pair_to_f16<E4M3>(four >> 16), codes.factors[i]);
        }
    }
    static __device__ __forceinline__ uint32_t maxima(const uint32_t (&pairs)[count]) {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < count; i += 2) {
            even = max_abs_f16_pairs(even, pairs[i]);
            odd = max_abs_f16_pairs(odd, pairs[i + 1]);
        }
        return max_abs_f16_pairs(even, odd);
    }
    // Returns the largest magnitudes of both positions, of the 32 lines that two neighbouring lanes have.
    __device__ __forceinline__ uint32_t block_maxima() const {
        const uint32_t of_first = maxima(first), of_second = maxima(second);
        const uint32_t low = __byte_perm(of_first, of_second, 0x5410), high = __byte_perm(of_first, of_second, 0x7632);
        const uint32_t both = max_abs_f16_pairs(low, high);
        return max_abs_f16_pairs(both, __shfl_xor_sync(kAllLanes, both, 1)) & 0x7FFF7FFFu;
    }
    static __device__ __forceinline__ ChunkCodes<E4M3> codes(const uint32_t (&pairs)[count], uint32_t factors) {
        ChunkCodes<E4M3> to;
#pragma unroll
        for (int w = 0; w < 4; w++)
            to.words[w] = encode_pair_from_f16<E4M3>(multiply_f16_pairs(pairs[2 * w], factors)) |
                          encode_pair_from_f16<E4M3>(multiply_f16_pairs(pairs[2 * w + 1], factors)) << 16;
        return to;
    }
};

// Returns whether values of this largest magnitude, as bits, may be multiplied by a factor over their unit. Zeros may by any
// number.
__device__ __forceinline__ bool takes_factor(uint32_t largest, const WideUnit& unit, float factor) {
    return largest < kInfinityBits && factor <= (largest == 0 && unit.whole ? bits_float(kInfinityBits) : 64.0f);
}

// Makes and stores the codes and scales of a lane's 4 positions in fp32, for all lanes of a warp. Out of line: few need it.
__device__ __noinline__ void emit_any_wide(const WideArguments& a, WideShared& shared, uint8_t* to, int chunk, int first,
                                           int length) {
#pragma unroll 1
    for (int position = first; position < first + 4; position++) {
        const auto* codes = reinterpret_cast<const uint8_t*>(&shared.codes[WideShared::slot(chunk * kChunk)]) + position;
        float values[kChunk];
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            const auto* scales = reinterpret_cast<const uint8_t*>(shared.from_scales[chunk * kChunk + i]);
            values[i] = multiply_rn(decode_pair<E4M3>(codes[i * kWide]).x, scale_value(scales[position / kMxBlock]));
            largest = max(largest, a.nonfinite == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(values[i])
                                                                      : amax_bits<Nonfinite::Propagate>(values[i]));
        }
        const uint32_t scale = scale_of(max(largest, __shfl_xor_sync(kAllLanes, largest, 1)), a.steps);
        // The lane that made the scale before makes it again.
        if (chunk % 2 == position % 2) reinterpret_cast<uint8_t*>(shared.to_scales[position])[chunk / 2] = uint8_t(scale);
        const ChunkCodes<E4M3> out = quantize_values<E4M3>(values, scale_reciprocal(scale));
        if (first < length) store_chunk(to + position * a.to.line_bytes, out);
    }
}

// Makes and stores the codes of the part across the source's lines, and leaves its scales in shared memory.
__device__ __forceinline__ void emit_wide(const WideArguments& a, const WidePlace& place, WideShared& shared) {
    const int lane = threadIdx.x % 32, chunk = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
    uint8_t* const to = a.to.line(place.matrix, place.position) + place.line + chunk * kChunk;
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const bool odd = chunk % 2;
    auto* const scales = reinterpret_cast<uint8_t*>(shared.to_scales[odd]) + chunk / 2;
    int length = chunk * kChunk < place.lines ? place.length : 0;
    asm("" : "+r"(length));  // kept: else it is made again for every pair
#pragma unroll 1
    for (int step = threadIdx.x / 32; step < 2 * kWideChunks; step += kWideThreads / 32) {
        const int piece = step / 2, first = piece * kChunk + half * 8 + step % 2 * 4;
        const WideCodes codes(shared, chunk, first);
        const WideUnit unit = shared.units[piece / 2][chunk / 2];
        uint8_t* at = to + uint64_t(uint32_t(first)) * line_bytes;
        asm("" : "+l"(at));  // kept: else it is made again for every pair
        bool plain = true;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const WidePairs values(codes, pair);
            // Two lanes have the 32 lines of a block: each makes the scale of one position.
            const uint32_t largest_of_both = values.block_maxima();
            const F16 over_unit{uint16_t(odd ? largest_of_both >> 16 : largest_of_both)};
            const float largest = multiply_rn(to_float(over_unit), unit.value);
            const uint32_t scale = scale_of(float_bits(largest), a.steps);
            scales[(first + 2 * pair) * sizeof(shared.to_scales[0])] = uint8_t(scale);
            const float factor = multiply_rn(scale_reciprocal(scale), unit.value);
            const uint32_t mine = f16_pair_of(fminf(factor, 64.0f)), other = __shfl_xor_sync(kAllLanes, mine, 1);
            plain = plain && takes_factor(float_bits(largest), unit, factor);
            if (first < length) store_chunk(at, values.codes(values.first, odd ? other : mine));
            at += line_bytes;
            if (first < length) store_chunk(at, values.codes(values.second, odd ? mine : other));
            at += line_bytes;
        }
        if (!__all_sync(kAllLanes, plain)) emit_any_wide(a, shared, to, chunk, first, length);
    }
}

__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    requantize_wide_kernel(const __grid_constant__ WideArguments a) {
    extern __shared__ uint4 wide_memory[];
    auto& shared = *reinterpret_cast<WideShared*>(wide_memory);
    const WidePlace place(a);
    if (!place.exists(a)) return;
    copy_wide_codes(a, place, shared);
    load_wide_scales(a, place, shared);
    wait_for_pieces();
    __syncthreads();
    emit_wide(a, place, shared);
    __syncthreads();
    store_wide_scales(a, place, shared);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

constexpr KernelEntry<Element, WideArguments> kernels[] = {
    {Element::E4M3, requantize_wide_kernel, kWideThreads, sizeof(WideShared)},
};

Reason declines_formats(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    if (from.element != Element::E4M3 || from.scale_type != ScaleType::E8M0 || from.layout.block != kMxBlock ||
        from.layout.tile_rows != 1 || from.layout.repeat != 1)
        return "needs mxfp8_e4m3 of 1x32 in the source, found another format or scaling";
    if (p.format->element != Element::E4M3 || !p.format->is_mx() || p.tile.id != MXQ_SCALING_1X32)
        return "needs mxfp8_e4m3 of 1x32 out, found another format or scaling";
    return "";
}

// The kernel was timed where a multiprocessor has room for its three blocks; with one of them it may well be the slower one.
Reason needs_room(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability >= 90 && capability < 120) return "";
    return [capability] {
        return format_text(
            "needs three blocks of %d KB in a multiprocessor, which compute capability 9.0 to 11.0 has, found %d.%d",
            int(sizeof(WideShared) / 1024), capability / 10, capability % 10);
    };
}

Reason declines(const Context& context, const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    if (Reason reason = declines_tile_options(p); !reason.empty()) return reason;
    if (Reason reason = declines_formats(p); !reason.empty()) return reason;
    if (p.grouped.set()) return "needs rows without groups, found groups";
    if (from.columnwise ? p.has_columnwise : p.has_rowwise)
        return "needs the part across the source's lines alone, found the one along them";
    if (Reason reason = declines_source_lines(p); !reason.empty()) return reason;
    if (!has_whole_pieces(from, false) || !has_whole_pieces(from.columnwise ? p.rowwise : p.columnwise, false))
        return "needs lines of whole aligned pieces of 16 bytes, found others";
    if (Reason reason = needs_cuda(context); !reason.empty()) return reason;
    return needs_room(context);
}

void run(const Context& context, const QuantizeProblem& p, const Launch& call) {
    const QuantizedPart& from = p.source.quantized;
    const uint32_t across = uint32_t(ceil_div(from.length, kWide)), down = uint32_t(ceil_div(from.lines, kWide));
    if (from.matrices * across * down == 0) return;
    const WideArguments a{from, from.columnwise ? p.rowwise : p.columnwise, across, down, from.columnwise ? down : 4,
                          scale_steps_of(p), p.nonfinite};
    launch(context, kernels, Element::E4M3, "requantize_wide", grid_of_rows(int64_t(across) * down, from.matrices), call.stream,
           a);
}

void load(const Context&) { load_kernels(kernels); }

}  // namespace

const QuantizeImplementation requantize_wide = {"requantize_wide", declines, nullptr, run, load};

}  // namespace mxq::cuda
