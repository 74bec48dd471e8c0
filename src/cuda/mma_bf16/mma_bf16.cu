// D = A B^T of quantized, BF16 and F16 operands, dense or grouped. Numbers become BF16 on their way into shared memory. Two
// F16 operands stay F16 in a kernel that differs in the instruction alone.
//
// A thread block of 256 threads computes one 128 x 256 tile of D, 64 codes of K a step:
//
//     384 K-major rows           thread t: 16 codes at 16 (t % 4) of rows t / 4 + 64 i, i = 0..5 (A: 0, 1; B: 2..5)
//     (128 of A, 256 of B)       with their scales, in registers a step ahead; converted once, stored as 32 bytes each
//     shared, two buffers        row L: 8 x 16 bytes of BF16, the j-th at j ^ (L % 8), without bank conflicts
//     8 warps, 2 x 4             64 x 64 of D each: 32 mma.m16n8k16 for every 16 of K, fed by 8 ldmatrix.x4
//
// Conversion is spread over the step, which has one barrier. In its last quarter the next step's first fragments load.
// mma.sync is the bound: it reaches 5/8 of the peak of Hopper's tensor cores.
//
//     in a step                  amount                                                      cycles
//     codes read                 24 KB (of 8 bits)
//     shared memory              176 KB                                                      1400
//     mma                        1024                                                        1640
//     a scheduler                1200 instructions, 500 of them on the ALU at half rate
//
// Smaller tiles convert more often, and converting fragments does so four times: both take too many instructions. An H200
// reaches 287 TFLOP/s with 8 bits, the tensor pipe 45% busy. With two warps a scheduler, a third of all stalls are waits of
// fixed latency. Tried in vain: 16 warps of 64 x 32, which spill at 128 registers; fences between conversions and mma.
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/mma_bf16/operand.cuh"
#include "cuda/mma_bf16/output.cuh"
#include "cuda/mma_bf16/promote.cuh"

namespace mxq::cuda {
namespace {

using namespace mma;

// Says what the tensor cores multiply: BF16 numbers, F16 numbers, or the BF16 parts of A's F16 numbers with BF16 numbers.
//
// MN-major operands are loaded and decoded code by code, by kernels of their own that are simple and slow. So are products
// of F16 with quantized numbers. There an F16 number is the sum of two BF16 numbers, and K is summed over twice:
//
//     steps of the contraction    | 0 | 1 | ... | S - 1 | 0 | 1 | ... | S - 1 |
//     parts of A's numbers        | low                 | high                |
enum class Numbers { Bf16, F16, Split };

// Names what a kernel is compiled for.
template <int kABits, int kBBits, int kTileColumns, bool kPromotes, Numbers kNumbers>
struct Kind {
    static constexpr int a_bits = kABits, b_bits = kBBits, columns = kTileColumns;
    static constexpr bool promotes = kPromotes;
    static constexpr bool f16 = kNumbers == Numbers::F16, splits = kNumbers == Numbers::Split;
    static constexpr int passes = splits ? 2 : 1;      // over the contraction
    static constexpr bool across = kABits == kAcross;  // an operand may be MN-major
    static_assert(across == (kBBits == kAcross) && (across || !splits));
    static constexpr int chunks = (kTileRows + columns) / kChunkLines;  // of 16 codes, per thread and step
    static constexpr int halves = 2 * chunks / 4;                       // converted in a quarter of a step
    static constexpr int warp_columns = columns / 4, fragments = warp_columns / 16;
    static constexpr int buffer_bytes = (kTileRows + columns) * kLineBytes;
    static constexpr int shared_bytes = 2 * buffer_bytes;
    static_assert(!promotes || kTileRows + columns == kThreads, "a scale for each thread to load");
};

// The sums of a thread: 64 x warp_columns of its warp's.
template <class K>
using Sums = float[4][2 * K::fragments][4];

// Multiplies two fragments of the kind's numbers.
template <class K>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (K::f16) multiply_add_f16(d, a, b0, b1);
    else multiply_add_bf16(d, a, b0, b1);
}

// Returns which sums to compute again. All threads of the block call it and get the same. Scales of 128 above 2^45 may
// enlarge lost products of plain numbers: then it is all sums.
template <class K>
__device__ __forceinline__ Repair what_to_repair(const Arguments& args, const Met& met, uint32_t met_scales) {
    // Where rows are invariant, what other rows of the tile have must not decide.
    bool tiny = __syncthreads_or(met.tiny & ~kSpecialMarks) || args.problem.row_invariant;
    if constexpr (!K::promotes) {
        // A rounding to BF16 below its normal numbers may take all that the bound has. Of larger sums it covers what is lost.
        const float of_16_bits = args.problem.d.format == MXQ_FORMAT_BF16 ? 0x1p-125f : 0;
        return {!tiny ? 0 : args.to_nearest || args.factored ? 0x1p-100f : of_16_bits, args.mixed};
    } else {
        tiny |= bool(__syncthreads_or(met_scales & kMetSmallScale));
        const bool large = __syncthreads_or(met_scales & kMetLargeScale);
        const float limit = !args.mixed ? 0x1p-100f : large ? bits_float(kInfinityBits) : 0x1p-55f;
        return {tiny ? limit : 0, args.mixed};
    }
}

// Returns whether a sum of the block is below a limit. All its threads call it.
template <int kColumns>
__device__ __forceinline__ bool any_below(const float (&sums)[4][kColumns / 8][4], float limit) {
    bool below = false;
#pragma unroll
    for (int i = 0; i < 4 * (kColumns / 8) * 4; i++)
        below |= fabsf(sums[i / (kColumns / 2)][i / 4 % (kColumns / 8)][i % 4]) < limit;
    return __syncthreads_or(below);
}

// Multiplies a tile. Scales are applied where they lose nothing:
//
//     scales                                   multiply
//     E8M0, E4M3 of blocks                     codes as they are converted: exact in BF16, at most six significant bits
//     fp32 of rows, NVFP4's global ones        the sums, at the end
//     fp32 of 128 codes                        the sums of 128, in registers (promote.cuh), before NVFP4's global one
//
// The fast conversion does not serve Inf, NaN and scales far above 1. The barrier shows these; then every thread reads its
// codes again and converts them one by one. Sums that leave fp32's range are computed again at the end (output.cuh).
template <class K>
__global__ void __launch_bounds__(kThreads, 1) mma_bf16_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ Tile kept;  // for the end: registers are short
    __shared__ uint8_t zero[kTileRows + K::columns];
    [[maybe_unused]] __shared__ float block_scales[K::promotes ? 2 : 1][K::promotes ? kTileRows + K::columns : 1];
    Tile tile;
    if (!find_tile<K::columns>(args, tile)) return;
    if (threadIdx.x == 0) kept = tile;
    __syncthreads();
    Reader<K> reader(args, tile);

    // Fragments: lane l names row l % 16 (A) or 8 (l / 16) + l % 8 (B) of 16, and one of two neighbouring 16-byte vectors.
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t base = uint32_t(__cvta_generic_to_shared(shared));
    uint32_t a_lane = base + (warp % 2 * 64 + lane % 16) * kLineBytes + ((lane / 16) ^ (lane % 8)) * 16;
    uint32_t b_lane = base + (kTileRows + warp / 2 * K::warp_columns + lane / 16 * 8 + lane % 8) * kLineBytes +
                      ((lane / 8 % 2) ^ (lane % 8)) * 16;
    uint32_t first = first_offset();
    keep(a_lane);
    keep(b_lane);
    keep(first);

    Sums<K> sums = {};
    [[maybe_unused]] float totals[K::promotes ? 4 : 1][2 * K::fragments][4] = {};
    [[maybe_unused]] float block_scale = 1;
    uint32_t met_scales = 0;
    uint32_t a[4][4], b[K::fragments][4];
    Chunks<K> chunks;
    Met met{};

    // Converts half n of those in this thread's chunks; a chunk makes room for its successor.
    const auto fill = [&](uint32_t buffer, int n) {
        const int c = n / 2, h = n % 2;
        uint8_t* const to = shared + buffer + half_offset(first, c, h);
        if (K::splits && c < kAChunks)
            *reinterpret_cast<uint4*>(to) = convert_split(chunks.a[c % kAChunks].words + 4 * h, reader.previous().high);
        else if (c < kAChunks) store_half(args.a, chunks.a[c % kAChunks], h, to, met);
        else store_half(args.b, chunks.b[c - kAChunks], h, to, met);
        if (h == 1) load_chunk(args, kept, reader, c, chunks);
    };
    uint32_t current = 0, next = K::buffer_bytes;

#pragma unroll
    for (int c = 0; c < K::chunks; c++) load_chunk(args, kept, reader, c, chunks);
    reader.advance(args, kept);
#pragma unroll
    for (int n = 0; n < 2 * K::chunks; n++) fill(current, n);
    complete(args, kept, reader, shared + current, met, chunks);
    reader.advance(args, kept);
#pragma unroll
    for (int n = 0; n < K::halves; n++) fill(next, n);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        load_matrices(a[i], a_lane + i * 16 * kLineBytes);
        if (i < K::fragments) load_matrices(b[i], b_lane + i * 16 * kLineBytes);
    }

    // Multiplies a step. Converts the next step and loads the one after it. `buffer` selects one of two buffers for the
    // step's scales of 128.
    const auto multiply_step = [&]([[maybe_unused]] int32_t buffer) {
#pragma unroll
        for (int q = 0; q < 4; q++) {  // 16 of K; each fragment makes room for its successor after its last use
            if (q == 3) {
                if constexpr (K::promotes) block_scales[buffer][threadIdx.x] = block_scale;
                complete(args, kept, reader, shared + next, met, chunks);
                reader.advance(args, kept);
                const uint32_t free = current;
                current = next;
                next = free;
            }
            const uint32_t next_step = (q + 1) % 4 * 32;
#pragma unroll
            for (int j = 0; j < K::fragments; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    multiply_add<K>(sums[i][2 * j], a[i], b[j][0], b[j][1]);
                    multiply_add<K>(sums[i][2 * j + 1], a[i], b[j][2], b[j][3]);
                    if (j == K::fragments - 1) load_matrices(a[i], ((a_lane + current) ^ next_step) + i * 16 * kLineBytes);
                }
                load_matrices(b[j], ((b_lane + current) ^ next_step) + j * 16 * kLineBytes);
                if (j < K::halves) fill(next, (q + 1) % 4 * K::halves + j);
            }
        }
    };
    uint32_t blocks = 0;  // of 128, before the step's own
#pragma unroll 1
    for (int32_t pass = 0; pass < K::passes; pass++)
#pragma unroll 1
        for (int32_t step = 0; int64_t(step) * kStep < kept.k; step++) {
            if constexpr (!K::promotes) {
                multiply_step(0);
            } else {
                if (step % kBlockSteps == 0)
                    block_scale = load_block_scale(args.problem, kept, threadIdx.x, step / kBlockSteps);
                multiply_step(blocks % 2);
                if ((step + 1) % kBlockSteps == 0 || int64_t(step + 1) * kStep >= kept.k)
                    met_scales |= promote<K::warp_columns>(block_scales[blocks++ % 2], sums, totals);
            }
        }

    Repair repair = what_to_repair<K>(args, met, met_scales);
    if (repair.tiny > 0) {
        bool below;
        if constexpr (K::promotes) below = any_below<K::warp_columns>(totals, repair.tiny);
        else below = any_below<K::warp_columns>(sums, repair.tiny);
        if (!below) repair.tiny = 0;
    }
    if (repair.tiny > 0) {
        find_zero_lines(args, kept, kTileRows + K::columns, zero);
        __syncthreads();
    }
    if constexpr (K::promotes) write_sums<K::warp_columns>(args, kept, totals, repair, zero, shared);
    else write_sums<K::warp_columns>(args, kept, sums, repair, zero, shared);
}

// ---- The implementation --------------------------------------------------------------------------------------------------

struct Kernel {
    void (*function)(Arguments);
    int32_t a_bits, b_bits, columns, shared_bytes;
    bool promotes, across;
    Numbers numbers;
};

template <int kABits, int kBBits, int kTileColumns, bool kPromotes = false, Numbers kNumbers = Numbers::Bf16>
constexpr Kernel kernel_of() {
    using K = Kind<kABits, kBBits, kTileColumns, kPromotes, kNumbers>;
    return {mma_bf16_kernel<K>, kABits, kBBits, kTileColumns, K::shared_bytes, kPromotes, K::across, kNumbers};
}

// The first that takes a problem runs it. Common pairs of code widths have a kernel of their own, most with tiles of 128 x
// 256. All others have tiles of 128 x 128 and know the width at run time: other widths, unaligned rows, MN-major operands,
// and scales for every 128 codes, which need a second set of sums.
const Kernel kernels[] = {
    kernel_of<8, 8, 256>(),
    kernel_of<4, 4, 256>(),
    kernel_of<8, 4, 256>(),
    kernel_of<16, 4, 256>(),
    kernel_of<16, 8, 128>(),
    kernel_of<kAny, kAny, 128>(),
    kernel_of<8, 8, 128, true>(),
    kernel_of<kAnyWide, kAnyWide, 128, true>(),
    kernel_of<kAny, kAny, 128, true>(),
    kernel_of<kAnyWide, kAnyWide, 128, false, Numbers::F16>(),
    kernel_of<kAcross, kAcross, 128>(),
    kernel_of<kAcross, kAcross, 128, true>(),
    kernel_of<kAcross, kAcross, 128, false, Numbers::F16>(),
    kernel_of<kAcross, kAcross, 128, false, Numbers::Split>(),
    kernel_of<kAcross, kAcross, 128, true, Numbers::Split>(),
};

int64_t row_tiles(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? padded_rows_bound(p.m, p.groups.count, kTileRows) / kTileRows
                                        : ceil_div(p.m, kTileRows);
}

int64_t column_tiles(const GemmProblem& p, const Kernel& kernel) { return ceil_div(p.n, kernel.columns); }

int64_t matrices(const GemmProblem& p) { return p.grouping == Grouping::Contraction ? p.groups.count : 1; }

// 16 codes are a chunk, which takes loads of `bytes` bytes.
bool is_aligned(const GemmOperand& operand, int64_t bytes) {
    if (operand.across) return true;  // is loaded code by code
    return operand.length % kChunkCodes == 0 && operand.line_bytes % bytes == 0 &&
           reinterpret_cast<uintptr_t>(operand.codes) % bytes == 0;
}

bool is_plain(const GemmOperand& operand) { return operand.scale_type == ScaleType::None; }
bool is_f16(const GemmOperand& operand) { return operand.element == Element::F16; }
bool has_float_scales(const GemmOperand& operand) { return operand.scale_type == ScaleType::F32; }
bool promotes(const GemmProblem& p) { return has_scales_of_128(p.a) || has_scales_of_128(p.b); }

bool takes(int32_t bits, const GemmOperand& operand) {
    if (bits == kAnyWide) return operand.bits >= 8;
    return bits <= kAcross || (operand.bits == bits && is_aligned(operand, bits == 4 ? 8 : 16));
}

Numbers numbers_of(const GemmProblem& p) {
    if (!is_f16(p.a)) return Numbers::Bf16;
    return is_f16(p.b) ? Numbers::F16 : Numbers::Split;
}

const Kernel& kernel_for(const GemmProblem& p) {
    const Numbers numbers = numbers_of(p);
    for (const Kernel& kernel : kernels)
        if (kernel.promotes == promotes(p) && kernel.numbers == numbers &&
            (kernel.across == reads_across(p) || numbers == Numbers::Split) && takes(kernel.a_bits, p.a) &&
            takes(kernel.b_bits, p.b))
            return kernel;
    return kernels[0];  // not reached: those of any bits take all
}

// Returns whether an operand is BF16 or F16 as soon as it is loaded.
bool is_loaded_as_numbers(const GemmOperand& operand) { return is_plain(operand) || operand.across; }

Bf16DecodeRule rule_of(const GemmOperand& operand) {
    if (is_loaded_as_numbers(operand)) return bf16_decode_rule<E4M3>();  // numbers need the scale of one alone
    if (operand.scale_type == ScaleType::E4M3) return bf16_decode_rule_nvfp4();
    return with_element(operand.element, []<class E>(E) { return bf16_decode_rule<E>(); });
}

// Codes under a scale of one are at least 2^-16. Below these a product may be under 2^-126.
constexpr uint32_t kTinyScale = 127 - 63 + 16, kTinyScaleWithCodes = 127 - 110 + 16;
constexpr uint32_t kTinyNumber = (127 - 63) * (0x80 * kOneInBothHalves),
                   kTinyWithCodes = (127 - 110) * (0x80 * kOneInBothHalves);

uint32_t tiny_below(const GemmOperand& operand, const GemmOperand& other) {
    if (is_f16(operand)) return 0;  // products of F16 are normal numbers
    const bool with_codes = has_float_scales(other) || has_line_factors(other);
    if (is_loaded_as_numbers(operand)) return with_codes ? kTinyWithCodes : kTinyNumber;
    return operand.scale_type != ScaleType::E8M0 ? 0 : with_codes ? kTinyScaleWithCodes : kTinyScale;
}

// Returns whether values have the range of BF16 before any fp32 scale is applied.
bool is_wide(const GemmOperand& operand) { return is_plain(operand) || operand.scale_type == ScaleType::E8M0; }

// Returns whether sums without their fp32 factors may leave fp32's range where D does not: those of wide values, and of 128
// codes under their scales where another factor comes after them.
bool mixes_ranges(const GemmProblem& p) {
    const bool factored = has_line_factors(p.a) || has_line_factors(p.b);
    return (is_wide(p.a) || is_wide(p.b)) ? factored || promotes(p) : factored && promotes(p);
}

LoopOperand loop_operand(const GemmOperand& operand, const GemmOperand& other) {
    const ScaleLayout& layout = operand.layout;
    const int64_t step = operand.line_bytes * kChunkLines;
    LoopOperand s{{0, step, 2 * step, 3 * step}, {}, {}, operand.across ? 16 : operand.bits,
                  !is_loaded_as_numbers(operand) && !has_float_scales(operand), operand.across,
                  tiny_below(operand, other), rule_of(operand)};
    if (!s.scaled) return s;
    const int64_t odd = layout.offset(0, 0, kStep / layout.block), even = layout.offset(0, 0, 2 * kStep / layout.block);
    s.scale_steps[1] = layout.offset(0, kChunkLines, 0);
    s.scale_advance[0] = int32_t(odd);
    s.scale_advance[1] = int32_t(even - odd);
    return s;
}

// Refuses plain numbers that no tensor core multiplies with what is on the other side.
Reason declines_numbers(const GemmProblem& p) {
    const auto is_other = [](const GemmOperand& operand) { return is_plain(operand) && operand.element != Element::Bf16; };
    if (!is_other(p.a) && !is_other(p.b)) return "";
    if (is_f16(p.a) && (is_f16(p.b) || !is_plain(p.b))) return "";
    return [a = p.a.format, b = p.b.format] {
        return format_text("needs plain operands in bf16, or a in f16 with f16 or quantized numbers, found %s and %s, which "
                           "mxq_convert makes so",
                           find_format(a)->name, find_format(b)->name);
    };
}

// Refuses fp32 scales that change from code to code along the contraction: they can multiply no sum.
Reason declines_scales(const GemmProblem& p) {
    const ScaleLayout& layout = p.b.layout;
    if (!p.b.across || !has_float_scales(p.b)) return "";
    if (layout.block == MXQ_MAX_DIM ? layout.line_stride == 0 : layout.tile_rows == kBlock128) return "";
    return [format = p.b.format] {
        return format_text("needs fp32 scales of tensors or 128X128 where b is MN-major, found %s "
                           "with one for each row or each 128 codes of it; quantize a columnwise part",
                           find_format(format)->name);
    };
}

Reason declines(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return reason;
    if (auto reason = declines_numbers(p); !reason.empty()) return reason;
    if (auto reason = declines_scales(p); !reason.empty()) return reason;
    if (auto reason = needs_no_limit(p); !reason.empty()) return reason;
    const Kernel& kernel = kernel_for(p);
    const double tiles = double(row_tiles(p)) * double(column_tiles(p, kernel)) * double(matrices(p));
    if (tiles > 2147483647.0)
        return [tiles, columns = kernel.columns] {
            return format_text("needs at most 2^31 - 1 tiles of 128 x %d in D, found %.0f", columns, tiles);
        };
    return "";
}

void run(const Context& context, const GemmProblem& p, const Launch& launch_info) {
    const Kernel& kernel = kernel_for(p);
    const bool factored = has_line_factors(p.a) || has_line_factors(p.b);
    const Arguments args{p,
                         loop_operand(p.a, p.b),
                         loop_operand(p.b, p.a),
                         uint32_t(row_tiles(p)),
                         uint32_t(column_tiles(p, kernel)),
                         is_aligned(p.a, 4) && is_aligned(p.b, 4),
                         p.d.row_stride * (p.d.format == MXQ_FORMAT_F32 ? 4 : 2) % 16 == 0 &&
                             reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0,
                         factored,
                         p.d.format == MXQ_FORMAT_F32 || !p.is_sum_alone(),
                         !p.is_sum_alone(),
                         mixes_ranges(p)};
    const uint32_t blocks = args.row_tiles * args.column_tiles * uint32_t(matrices(p));
    if (blocks == 0) return;
    launch(context, kernel.function, "mma_bf16", blocks, kThreads, kernel.shared_bytes, launch_info.stream, args);
}

void load(const Context&) {
    for (const Kernel& kernel : kernels) load_kernel(kernel.function, kernel.shared_bytes);
}

// The error of sums, in terms of c (docs/numerics.md). sm_80 adds 8 products and the sum in one step, each cut at 2^-24 of
// the largest, the result cut to fp32. That is an error of at most (8 + 2) 2^-24 sum |a||b| for every 8 codes, hence c = 5
// L / 4 + 32. Later chips cut later and less often.
//
//     operands with fp32 factors      1 each for values, which are rounded to fp32; 2 for both factors
//     scales of 128                   1 for their product, L / 128 for the totals
//     low parts of F16                2^-7 of c: they, and all sums before the high parts, are below 2^-7 of the numbers
//
// All of them stay within c = 13 L / 10 + 40.
int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

// Scales of 128 far from 1 decide for a whole tile which sums are computed again, where the other operand has a wide range.
bool keeps_rows(const GemmProblem& p) { return !promotes(p) || !mixes_ranges(p); }

}  // namespace

const GemmImplementation mma_bf16{.name = "mma_bf16",
                                  .declines = declines,
                                  .run = run,
                                  .load = load,
                                  .bound = bound,
                                  .reads_across = true,
                                  .keeps_rows = keeps_rows};

}  // namespace mxq::cuda
