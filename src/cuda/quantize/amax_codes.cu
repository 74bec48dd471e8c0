// amax of MX codes of 8 bits, where every line has a maximum, or every position of a matrix's lines:
//
//     lines       a warp has a line, 16 codes a lane: the largest byte of half a block of codes is that of its largest value
//     positions   a warp has 512 positions of every 32nd line, 16 a lane, whose values are F16 numbers over a unit; then in shared
//                 memory over the block of threads; then an atomic each, those of neighbours by neighbouring lanes
//
// Bytes an element: 1.03 read; lines are bound by memory, positions by instructions, too.
#include "cuda/quantize/amax_codes.h"

#include <bit>

#include "cuda/device.h"
#include "cuda/memory/beside.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "numerics/requantize_via_f16.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;

// ---- Lines -----------------------------------------------------------------------------------------------------------

constexpr int kLaneCodes = 16, kCodeLoads = 4;

struct CodeArguments : AmaxOfCodes {
    int32_t strip_log2;  // of positions: blocks of threads side by side in a strip
    uint32_t strips;
};

// Returns the bits of the largest magnitude of 16 codes under a scale, NaN left out or, where it propagates, the largest.
template <class E>
__device__ __forceinline__ uint32_t largest_of_codes(const uint4& codes, uint32_t scale, bool propagates) {
    constexpr uint32_t magnitudes = 0x7F7F7F7F;
    const uint32_t words[4] = {codes.x & magnitudes, codes.y & magnitudes, codes.z & magnitudes, codes.w & magnitudes};
    uint32_t four = __vmaxu4(__vmaxu4(words[0], words[1]), __vmaxu4(words[2], words[3]));
    four = __vmaxu4(four, four >> 16);
    uint32_t largest = max(four & 0xFF, four >> 8 & 0xFF);
    float value = decode<E>(largest);
    if (value != value && !propagates) {
        largest = 0;
#pragma unroll 1
        for (int i = 0; i < kLaneCodes; i++) {
            const uint32_t code = words[i / 4] >> i % 4 * 8 & 0xFF;
            const float one = decode<E>(code);
            if (one == one) largest = max(largest, code);
        }
        value = decode<E>(largest);
    }
    value = multiply_rn(value, scale_value(scale));
    return value == value ? float_bits(value) : propagates ? kNanBits : 0;
}

template <class E>
__global__ void __launch_bounds__(kThreads) amax_codes_kernel(const __grid_constant__ CodeArguments a) {
    start_next_kernel();
    const QuantizedPart& from = a.from;
    const int64_t number = block_index() * (kThreads / 32) + threadIdx.x / 32;
    if (number >= from.matrices * from.lines) return;
    const int64_t matrix = number / from.lines, line = number - matrix * from.lines;
    const uint8_t* const codes = from.line(matrix, line);
    const int shift = log2_of(uint32_t(from.layout.block));
    uint32_t largest = 0;
#pragma unroll 1
    for (int64_t first = threadIdx.x % 32 * kLaneCodes; first < from.length; first += 32 * kLaneCodes * kCodeLoads) {
        uint4 loaded[kCodeLoads] = {};
        uint32_t scales[kCodeLoads] = {};
#pragma unroll
        for (int i = 0; i < kCodeLoads; i++) {
            const int64_t code = first + i * 32 * kLaneCodes;
            if (code >= from.length) continue;
            loaded[i] = *reinterpret_cast<const uint4*>(codes + code);
            scales[i] = from.scales[from.layout.offset(matrix, line, code >> shift)];
        }
#pragma unroll
        for (int i = 0; i < kCodeLoads; i++) largest = max(largest, largest_of_codes<E>(loaded[i], scales[i], a.propagates));
    }
    largest = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % 32 == 0) a.out[number] = bits_float(largest);
}

// ---- Positions -------------------------------------------------------------------------------------------------------

constexpr int kAcrossLines = 128, kAcrossCodes = 32 * kLaneCodes, kAcrossWarps = kThreads / 32;
constexpr int kAcrossLoads = 4, kAcrossStep = kAcrossLines / kAcrossLoads;  // lines apart: neighbours in a swizzled tile
constexpr int kMostStripLog2 = 4;  // of blocks of threads side by side that run together

// Which lines a warp takes of 128, and which positions a lane: the first of each. Blocks of threads run down strips.
struct AcrossPlace {
    int64_t matrix, line, strip, position;

    __device__ __forceinline__ explicit AcrossPlace(const CodeArguments& a) {
        const uint32_t row = row_of_blocks(), in_strip = blockIdx.x & ((1u << a.strip_log2) - 1);
        matrix = row / a.strips;
        line = int64_t(blockIdx.x >> a.strip_log2) * kAcrossLines + threadIdx.x / 32;
        strip = int64_t((row % a.strips << a.strip_log2) + in_strip) * kAcrossCodes;
        position = strip + threadIdx.x % 32 * kLaneCodes;
    }
};

// 16 positions of a few lines, and the scales of these.
struct CodeLines {
    uint4 codes[kAcrossLoads];
    uint32_t scales[kAcrossLoads];

    // Returns the largest scale, or the one below where that is NaN.
    __device__ __forceinline__ uint32_t largest_scale() const {
        return min(max(max(scales[0], scales[1]), max(scales[2], scales[3])), kScaleNan - 1);
    }
    __device__ __forceinline__ bool has_values(int i) const {
        return ((codes[i].x | codes[i].y | codes[i].z | codes[i].w) & 0x7F7F7F7F) != 0;
    }
};

// Reads a lane's lines, a few at a time.
struct AcrossReader {
    const uint8_t *codes, *scales;
    int left;  // lines from the first on

    __device__ __forceinline__ AcrossReader(const QuantizedPart& from, const AcrossPlace& place)
        : codes(from.line(place.matrix, place.line) + place.position),
          scales(from.scales +
                 from.layout.offset(place.matrix, place.line, place.position >> log2_of(uint32_t(from.layout.block)))),
          left(int(min(from.lines - place.line, int64_t(kAcrossLines)))) {}
    // Returns how far apart the scales of lines are, so many of which share one or none do.
    static __device__ __forceinline__ int64_t distance(const ScaleLayout& layout, int lines) {
        return (lines >> log2_of(uint32_t(layout.tile_rows))) * layout.line_stride;
    }
    __device__ __forceinline__ CodeLines read(const QuantizedPart& from) const {
        const int64_t next = from.layout.swizzled ? 4 : distance(from.layout, kAcrossStep);
        CodeLines lines;
#pragma unroll
        for (int i = 0; i < kAcrossLoads; i++) {
            const bool exists = i * kAcrossStep < left;
            lines.codes[i] = exists ? *reinterpret_cast<const uint4*>(codes + i * kAcrossStep * from.line_bytes) : uint4{};
            lines.scales[i] = exists ? scales[i * next] : 0;
        }
        return lines;
    }
    __device__ __forceinline__ void skip(const QuantizedPart& from) {
        codes += kAcrossWarps * from.line_bytes;
        scales += from.layout.swizzled ? kAcrossWarps * 16 : distance(from.layout, kAcrossWarps);
        left -= kAcrossWarps;
    }
};

// The maxima of a lane's positions over a unit, in F16: of E4M3 2^-4 of a scale, of E5M2 the scale. Scales that are not much
// larger or smaller leave all products exact.
template <class E, Nonfinite policy>
struct UnitMaxima {
    static constexpr bool narrow = std::is_same_v<E, E4M3>;
    static constexpr uint32_t above = narrow ? 3 : 0, below = narrow ? 18 : 8;
    static constexpr int exponent = narrow ? 15 + 4 : 15;  // of the factor of a scale that is the unit's, as F16 stores it
    uint32_t pairs[kLaneCodes / 2];
    uint32_t scale;

    __device__ __forceinline__ explicit UnitMaxima(uint32_t scale) : scale(scale) {
#pragma unroll
        for (uint32_t& pair : pairs) asm volatile("mov.b32 %0, 0;" : "=r"(pair));  // a zero that the compiler does not know
    }
    __device__ __forceinline__ bool is_near(uint32_t of_line) const { return scale + above - of_line <= above + below; }
    // Returns whether the unit serves the lines: whether all that have values have scales near it.
    __device__ __forceinline__ bool takes(const CodeLines& lines) const {
        const auto& of = lines.scales;
        if (is_near(max(max(of[0], of[1]), max(of[2], of[3]))) && is_near(min(min(of[0], of[1]), min(of[2], of[3]))) &&
            lines.largest_scale() < kScaleNan - 1)
            return true;
        bool all = true;
#pragma unroll
        for (int i = 0; i < kAcrossLoads; i++)
            all = all && of[i] != kScaleNan && (is_near(of[i]) || !lines.has_values(i));
        return all;
    }
    __device__ __forceinline__ void raise(const CodeLines& lines) {
#pragma unroll
        for (int i = 0; i < kAcrossLoads; i++) {
            const int distance = min(max(int(lines.scales[i] - scale), -int(below)), int(above));
            const uint32_t factors = uint32_t(exponent + distance) * 0x04000400u;
            const uint32_t words[] = {lines.codes[i].x, lines.codes[i].y, lines.codes[i].z, lines.codes[i].w};
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint32_t low, high;
                decode_word_to_f16<E>(words[w], low, high);
                pairs[2 * w] = max_abs_f16_pairs<policy>(pairs[2 * w], multiply_f16_pairs(low, factors));
                pairs[2 * w + 1] = max_abs_f16_pairs<policy>(pairs[2 * w + 1], multiply_f16_pairs(high, factors));
            }
        }
    }
    // Returns a position's maximum as bits.
    __device__ __forceinline__ uint32_t maximum(int i) const {
        const F16 over_unit{uint16_t(pairs[i / 2] >> (i % 2 * 16) & 0x7FFF)};
        const float unit = multiply_rn(scale_value(scale), narrow ? 0x1p-4f : 1.0f);
        return float_bits(multiply_rn(to_float(over_unit), unit));
    }
};

// Raises the maxima of a lane's positions by a few lines, in memory and value by value. Out of line, where places are found
// again: few need it.
template <class E, Nonfinite policy>
__device__ __noinline__ void raise_any(const CodeArguments& a, int step) {
    const AcrossPlace place(a);
    float* const out = a.out + place.matrix * a.from.length + place.position;
    const int64_t column = place.position >> log2_of(uint32_t(a.from.layout.block));
#pragma unroll 1
    for (int i = 0; i < kAcrossLoads * kLaneCodes; i++) {
        const int64_t line = place.line + step + i / kLaneCodes * kAcrossStep;
        if (line >= a.from.lines) return;
        const uint32_t code = a.from.line(place.matrix, line)[place.position + i % kLaneCodes];
        const float scale = scale_value(a.from.scales[a.from.layout.offset(place.matrix, line, column)]);
        const float value = fabsf(multiply_rn(decode<E>(code & 0x7F), scale));
        if (!is_nan(value))
            take_larger(out + i % kLaneCodes, float_bits(value));
        else if (policy == Nonfinite::Propagate)
            take_larger(out + i % kLaneCodes, kNanBits);
    }
}

template <class E, Nonfinite policy>
__device__ __forceinline__ void store_maxima(float* to, const UnitMaxima<E, policy>& maxima) {
#pragma unroll
    for (int i = 0; i < kLaneCodes; i++) take_larger(to + i, maxima.maximum(i));
}

// Takes 512 positions of 128 lines. Lines whose scales are far from a lane's unit change it: what it has goes to memory.
template <class E, Nonfinite policy>
__global__ void __launch_bounds__(kThreads, 4) amax_across_codes_kernel(const __grid_constant__ CodeArguments a) {
    __shared__ uint32_t of_warps[kAcrossWarps][kLaneCodes][33];
    start_next_kernel();
    const AcrossPlace place(a);
    if (place.matrix >= a.from.matrices) return wait_for_previous_kernel();
    float* const out = a.out + place.matrix * a.from.length + place.strip;
    UnitMaxima<E, policy> maxima(0);
    AcrossReader reader(a.from, place);
#pragma unroll 1
    for (int step = 0; place.position < a.from.length && step < kAcrossStep; step += kAcrossWarps, reader.skip(a.from)) {
        const CodeLines lines = reader.read(a.from);
        wait_for_previous_kernel();  // which zeroes; while the first lines are on their way
        bool takes = maxima.takes(lines);
        if (!takes) {
            if (step > 0) store_maxima(out + (place.position - place.strip), maxima);
            maxima = UnitMaxima<E, policy>(lines.largest_scale());
            takes = maxima.takes(lines);
        }
        if (takes) maxima.raise(lines);
        else raise_any<E, policy>(a, step);
    }
    wait_for_previous_kernel();
#pragma unroll
    for (int i = 0; i < kLaneCodes; i++) of_warps[threadIdx.x / 32][i][threadIdx.x % 32] = maxima.maximum(i);
    __syncthreads();
    for (int i = threadIdx.x; i < kAcrossCodes && place.strip + i < a.from.length; i += kThreads) {
        uint32_t largest = 0;
#pragma unroll
        for (const auto& of_warp : of_warps) largest = max(largest, of_warp[i % kLaneCodes][i / kLaneCodes]);
        take_larger(out + i, largest);
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// The kernels that go by lines of codes, by whether those are E5M2.
constexpr KernelEntry<bool, CodeArguments> code_kernels[] = {
    {false, amax_codes_kernel<E4M3>, kThreads, 0},
    {true, amax_codes_kernel<E5M2>, kThreads, 0},
};

// Names what a kernel for positions of codes is compiled for.
struct AcrossKey {
    Element element;
    bool propagates;
    bool operator==(const AcrossKey&) const = default;
};

constexpr KernelEntry<AcrossKey, CodeArguments> across_kernels[] = {
    {{Element::E4M3, false}, amax_across_codes_kernel<E4M3, Nonfinite::Saturate>, kThreads, 0},
    {{Element::E4M3, true}, amax_across_codes_kernel<E4M3, Nonfinite::Propagate>, kThreads, 0},
    {{Element::E5M2, false}, amax_across_codes_kernel<E5M2, Nonfinite::Saturate>, kThreads, 0},
    {{Element::E5M2, true}, amax_across_codes_kernel<E5M2, Nonfinite::Propagate>, kThreads, 0},
};

}  // namespace

bool are_of_codes(const QuantizeProblem& p, const float* rowwise, const float* columnwise) {
    if (!p.source.is_quantized() || p.grouped.set()) return false;
    const QuantizedPart& from = p.source.quantized;
    return !(rowwise && columnwise) && from.scale_type == ScaleType::E8M0 && from.bits == 8 &&
           from.layout.block != MXQ_MAX_DIM && from.addresses == Addresses::Dense && is_aligned(from.codes, kLaneCodes) &&
           from.line_bytes % kLaneCodes == 0 && from.matrix_bytes % kLaneCodes == 0 && from.length % kLaneCodes == 0 &&
           from.lines > 0;
}

void amax_of_code_lines(const Context& context, const AmaxOfCodes& amax, const Launch& call) {
    const int64_t blocks = ceil_div(amax.from.matrices * amax.from.lines, int64_t(kThreads / 32));
    if (blocks == 0) return;
    launch(context, code_kernels, amax.from.element == Element::E5M2, "amax", grid_of(blocks), call.stream,
           CodeArguments{amax, 0, 0});
}

void amax_of_code_positions(const Context& context, const AmaxOfCodes& amax, const Launch& call, Start start) {
    const QuantizedPart& from = amax.from;
    const int64_t across = std::max(ceil_div(from.length, int64_t(kAcrossCodes)), int64_t(1));
    const int strip_log2 = std::min(log2_of(std::bit_ceil(uint32_t(across))), kMostStripLog2);
    const int64_t strips = ceil_div(across, int64_t(1) << strip_log2);
    const dim3 grid = grid_of_rows(ceil_div(from.lines, int64_t(kAcrossLines)) << strip_log2, from.matrices * strips);
    launch(context, across_kernels, {from.element, amax.propagates}, "amax", grid, call.stream,
           CodeArguments{amax, strip_log2, uint32_t(strips)}, start);
}

void load_amax_codes() {
    load_kernels(code_kernels);
    load_kernels(across_kernels);
}

}  // namespace mxq::cuda
