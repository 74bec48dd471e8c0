// mma_bf16_rows: exact products of few rows of BF16 with quantized weights, on any chip. Weights go from global memory
// straight to registers. Each warp issues its first loads back to back at the start of the kernel, so that nothing delays
// them.
//
//     thread block     16 rows of weights by up to 8 rows of A of one group, all of K, by 4, 8 or 16 warps
//     a warp           every 4th, 8th or 16th chunk of 128 codes of these rows:
//
//         K         |warp 0|warp 1| ... |warp 0|warp 1| ...       lane 4 r + q: quarter q of a chunk of rows r and r + 8
//
//     iteration        loads of the next one or two chunks are in flight | this one becomes BF16 and is multiplied (mma.sync,
//                      weights as its 16 rows, A as its 8 columns; lane 4 r + q: quarter q of row r of A, from the cache)
//     at the end       sums of the warps are added in order through shared memory; factors of rows, alpha, beta, bias; stores
//
// FP8 with a scale for every 128 codes, on either side: scales multiply the sums of each chunk. Very large or small scales,
// and sums that leave fp32's range, make the block compute its sums again, one by one.
//
// A pass (cuda/widen) dequantizes quantized rows of A to BF16, and splits F16 ones into two BF16 numbers each. A block then
// has 4 rows of F16, high parts before low ones, and adds the sums of both at the end.
//
// Bytes: the weights of groups that have rows, once for every 8 rows of a group, from the L2 where they fit there. An H100,
// us:
//
//     mma_bf16_rows | mma_bf16, whose tiles have 128 rows     1 row        16            32          64 rows
//     BF16 with MXFP4, (N,K) = (4096,4096)                    7.7 | 117    11.3 | 114    22 | 115    34 | 118
//                              (8192,8192)                                                           125 | 230
//                              8 groups of (2048,7168), rows a group                                 218 | 223
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/plain_elements.cuh"
#include "cuda/memory/row_indices.cuh"
#include "cuda/memory/weights.cuh"
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

constexpr int kTileRows = 8, kTileLines = 16;            // rows of BF16
constexpr int kMostRows = 64;                            // of a group on average
constexpr int64_t kMostRowTiles = 65535;                 // of a grid
constexpr uint32_t kChunk = 128, kQuarter = kChunk / 4;  // codes

struct Arguments {
    GemmProblem problem;
    GemmOperand rows;     // A in BF16
    GroupSumUnits units;  // of A's codes and scales, and of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;      // 2^(127 - bias of the codes) as BF16, in both halves
    uint32_t tile_rows;    // of A: 8, or 4 in two parts
    int64_t chunk_scales;  // bytes from the scales of 128 codes of a row to those of the next
    bool scaled;           // weights have scale bytes
    float lift;            // of scales of 128 (lift_of_scales), 1 where there are none
};

// The rows of weights and of A that a block multiplies. (`line`: K-major row of the weights.)
struct Tile {
    TileOperand a, b;
    int64_t d_row;  // of its first row
    int32_t group;
    uint32_t line, row, rows;  // first row of weights; first row of the group; rows of A
    uint32_t written;          // rows of D: those of A, and those that pad the group
    const uint8_t* numbers;    // of the group's first row, in BF16
    int64_t first_row;         // of the group, among all rows
};

// Returns false where there is no such tile. All lanes of a warp call it.
template <bool grouped>
__device__ __forceinline__ bool find_tile(const Arguments& args, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t row_tile = blockIdx.y;
    tile.line = blockIdx.x * kTileLines;
    uint32_t rows = uint32_t(p.m), padded = rows, first_tile = 0;
    tile.group = 0, tile.d_row = 0;
    if constexpr (grouped) {
        const Group group = find_group_tile({p.groups, p.group_rows}, args.units, row_tile);
        if (!group.exists()) return false;
        tile.group = group.index, tile.d_row = group.second().codes;
        rows = group.rows, first_tile = group.first_group_tile;
        padded = uint32_t(round_up_to_power(int64_t(rows), p.d.group_unit));
        tile.a = operand_of_group(p.a, group.first(), rows);
        tile.numbers = group_codes(args.rows, group.first());
        tile.first_row = group.first().codes;
    } else {
        tile.first_row = 0;
        tile.a = operand_of_matrix(p.a, 0);
        tile.numbers = args.rows.codes;
    }
    tile.b = operand_of_matrix(p.b, tile.group);
    tile.row = (row_tile - first_tile) * args.tile_rows;
    tile.d_row += tile.row;
    tile.rows = min(rows - tile.row, args.tile_rows);
    tile.written = p.beta != 0 || tile.row + args.tile_rows < rows ? tile.rows : padded - tile.row;
    return true;
}

// Multiplies a warp's chunks of 128 codes of K. The code is short and its loop rolled: a block executes it only once or
// twice, and longer code would wait for instruction fetches.
template <Weights kind, int warps, bool promotes>
struct Consumer {
    static constexpr int kAhead = weight_bits<kind> == 4 ? 2 : 1;  // chunks in flight while one is multiplied
    static constexpr uint32_t kLaneBytes = kQuarter / 8 * weight_bits<kind>, kWarpsCodes = warps * kChunk;
    using Chunk = Fragment<kind>;
    const Arguments& args;
    uint32_t code;                            // the lane's first of the chunk that is loaded next
    const uint8_t *codes, *scales, *numbers;  // of the lane's first row of weights; of its row of A, null past the last
    int64_t to_second_codes, to_second_scales;
    float sums[4] = {};
    bool met_unusual = false;  // a scale of 128

    // The scales of the chunks of two rows of an operand; NULL: none.
    struct ChunkScales {
        const float* at = nullptr;
        int64_t to_second, to_next;
        __device__ __forceinline__ ChunkScales(const GemmOperand& operand, const TileOperand& of, uint32_t first, uint32_t second) {
            if (!has_scales_of_128(operand)) return;
            const int64_t line = scale_line(of.layout, first);
            at = reinterpret_cast<const float*>(of.scales) + line;
            to_second = scale_line(of.layout, second) - line, to_next = of.layout.column_stride;
        }
        __device__ __forceinline__ float2 of_chunk(uint32_t chunk) const {
            if (!at) return {1, 1};
            const float* const first = at + chunk * to_next;
            return {__ldg(first), __ldg(first + to_second)};
        }
    };

    __device__ __forceinline__ Consumer(const Arguments& arguments, const Tile& tile) : args(arguments) {
        const auto [first, second] = lines(tile);
        code = threadIdx.x / 32 * kChunk + threadIdx.x % 4 * kQuarter;
        codes = tile.b.codes + first * args.problem.b.line_bytes + code / 8 * weight_bits<kind>;
        to_second_codes = (second - first) * args.problem.b.line_bytes;
    }
    // Returns the lane's rows of weights. Rows past the last read the last one; their sums are not stored.
    struct Lines {
        int64_t first, second;
    };
    __device__ __forceinline__ Lines lines(const Tile& tile) const {
        const uint32_t own = tile.line + threadIdx.x % 32 / 4, last = uint32_t(args.problem.n) - 1;
        return {min(own, last), min(own + 8, last)};
    }
    __device__ __forceinline__ void find_scales_and_rows(const Tile& tile, uint32_t first_code) {
        const auto [first, second] = lines(tile);
        const ScaleLayout& layout = tile.b.layout;
        const int64_t scale = scale_line(layout, uint32_t(first));
        scales =
            tile.b.scales + scale + scale_in_line(layout, threadIdx.x % 4 * kQuarter) + threadIdx.x / 32 * args.chunk_scales;
        to_second_scales = scale_line(layout, uint32_t(second)) - scale;
        const uint32_t column = threadIdx.x % 32 / 4, part = column >= args.tile_rows, row = column - part * args.tile_rows;
        const uint8_t* const from = tile.numbers + part * args.rows.matrix_bytes + first_code * 2;
        numbers = row < tile.rows ? from + int64_t(tile.row + row) * args.rows.line_bytes : nullptr;
        if (args.problem.a_by_index.set && numbers) {
            const int64_t source = source_row(args.problem.a_by_index, tile.first_row + tile.row + row);
            numbers = source < 0 ? nullptr : args.rows.codes + source * args.rows.line_bytes + first_code * 2;
        }
    }
    __device__ __forceinline__ bool exists(uint32_t first_code) const { return first_code < uint32_t(args.problem.k); }

    // Loads the lane's codes of a chunk, zeros behind the last.
    __device__ __forceinline__ void load_codes(Chunk& to) {
        const bool here = exists(code);
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint8_t* const from = codes + (l > 0 ? to_second_codes : 0);
            auto& words = to.words[l];
            if constexpr (kind == Weights::Bits6) {
#pragma unroll
                for (int i = 0; i < 3; i++) {
                    const uint2 two = here ? load_once_8(from + 8 * i) : uint2{};
                    words[2 * i] = two.x, words[2 * i + 1] = two.y;
                }
            } else {
#pragma unroll
                for (int i = 0; i < int(kLaneBytes) / 16; i++) {
                    const uint4 four = here ? load_once(from + 16 * i) : uint4{};
                    words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
                }
            }
        }
        codes += warps * 4 * kLaneBytes;
        code += kWarpsCodes;
    }
    // Loads the scales of its codes, those of finite numbers behind the last.
    __device__ __forceinline__ void load_scales(uint32_t first_code, Chunk& to) {
        const bool here = exists(first_code) && args.scaled;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < int(sizeof to.scales[l] / 4); i++) {
                to.scales[l][i] = kind == Weights::Nvfp4 ? 0 : 127;
                if (here) to.scales[l][i] = __ldg(scales + (l > 0 ? to_second_scales : 0) + i);
            }
        scales += warps * args.chunk_scales;
    }
    // Returns whether one factor does not serve some scale of any lane, or codes are Inf or NaN.
    __device__ __forceinline__ bool is_special(const Chunk& chunk) const {
        bool special = false;
        if constexpr (kind == Weights::Bits8) special = any_special(args.rule, chunk);
#pragma unroll
        for (int l = 0; l < 2; l++)
            for (uint32_t scale : chunk.scales[l]) special |= needs_two_factors<kind>(args.rule, scale);
        return __any_sync(kAllLanes, special);
    }
    // Decodes the operand of one instruction: 4 codes of each row.
    template <bool special>
    __device__ __forceinline__ void decode_16(const Chunk& chunk, int four, const uint32_t (&factors)[2][2],
                                              uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int half = kind == Weights::Nvfp4 ? four / 4 : 0;
            const uint32_t of = four_codes<kind>(chunk, l, four);
            const EvenOddBf16 pairs = special
                                          ? decode_any_four<kind>(args.rule, args.missing, of, four, chunk.scales[l][half])
                                          : decode_four<kind>(args.rule, of, four, factors[l][half]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    template <bool special>
    __device__ __forceinline__ void multiply_chunk(const Chunk& chunk, const uint4 (&eights)[4]) {
        uint32_t factors[2][2];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < int(sizeof chunk.scales[l] / 4); i++)
                factors[l][i] = scale_factor<kind>(args.rule, chunk.scales[l][i]);
#pragma unroll
        for (int two = 0; two < 4; two++) {
            const uint4 pairs = pair_eight<kind>(eights[two]);
            uint32_t first[4], second[4];
            decode_16<special>(chunk, 2 * two, factors, first);
            decode_16<special>(chunk, 2 * two + 1, factors, second);
            multiply_add_bf16(sums, first, pairs.x, pairs.y);
            multiply_add_bf16(sums, second, pairs.z, pairs.w);
        }
    }
    // Loads codes before it computes the addresses of scales, since codes take longest.
    __device__ __forceinline__ void multiply(const Tile& tile) {
        Chunk chunks[kAhead + 1];
        uint32_t own = code;  // of the chunk that is multiplied
#pragma unroll
        for (int i = 0; i < kAhead; i++) load_codes(chunks[i]);
        find_scales_and_rows(tile, own);
#pragma unroll
        for (int i = 0; i < kAhead; i++) load_scales(own + uint32_t(i) * kWarpsCodes, chunks[i]);
        const auto [first_line, second_line] = lines(tile);
        const uint32_t row = tile.row + threadIdx.x % 4 * 2, last_row = tile.row + tile.rows - 1;
        const ChunkScales line_scales(args.problem.b, tile.b, uint32_t(first_line), uint32_t(second_line));
        const ChunkScales row_scales(args.problem.a, tile.a, min(row, last_row), min(row + 1, last_row));
        [[maybe_unused]] float totals[4] = {};
#pragma unroll 1
        for (uint32_t first = threadIdx.x / 32 * kChunk; exists(first); first += kWarpsCodes) {
            uint4 eights[4] = {};
            if (numbers && exists(own))
#pragma unroll
                for (int i = 0; i < 4; i++) eights[i] = __ldg(reinterpret_cast<const uint4*>(numbers) + i);
            load_scales(code, chunks[kAhead]);
            load_codes(chunks[kAhead]);
            float2 of_lines, of_rows;
            if constexpr (promotes)
                of_lines = line_scales.of_chunk(first / kChunk), of_rows = row_scales.of_chunk(first / kChunk);
            if (is_special(chunks[0]))
                multiply_chunk<true>(chunks[0], eights);
            else
                multiply_chunk<false>(chunks[0], eights);
            if constexpr (promotes) promote(of_lines, of_rows, totals);
#pragma unroll
            for (int i = 0; i < kAhead; i++) chunks[i] = chunks[i + 1];
            own += kWarpsCodes;
            if (numbers) numbers += kWarpsCodes * 2;
        }
        if constexpr (promotes)
            for (int i = 0; i < 4; i++) sums[i] = totals[i];
    }
    // Adds the sums of a chunk under their scales to the totals.
    __device__ __forceinline__ void promote(const float2& of_lines, const float2& of_rows, float (&totals)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float of_line = i < 2 ? of_lines.x : of_lines.y, of_row = i % 2 ? of_rows.y : of_rows.x;
            const float scale = multiply_rn(of_line, of_row);
            met_unusual |= is_unusual_scale(float_bits(scale)) || (scale == 0 && of_line != 0 && of_row != 0);
            totals[i] = __fmaf_rn(sums[i], multiply_rn(scale, args.lift), totals[i]);
            sums[i] = 0;
        }
    }
};

// Returns an element of D from the sum of its products; `again`: which is to be made again.
template <Weights kind>
__device__ __forceinline__ float finish(const GemmProblem& p, const Tile& tile, uint32_t row, uint32_t line, float sum,
                                        float lift, bool again) {
    float value = multiply_rn(sum, unit_of_sums<kind> / lift);
    if (has_factor(p.a) || has_factor(p.b)) {
        const auto after_sums = [](const GemmOperand& operand, const TileOperand& at, uint32_t of) {
            return has_scales_of_128(operand) ? 1.0f : line_factor(operand, at, of);
        };
        const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
        const uint32_t in_group = tile.row + row;
        value = !again && fabsf(value) < bits_float(kInfinityBits)
                    ? scale_sum(value, after_sums(p.a, tile.a, in_group), after_sums(p.b, tile.b, line), to_nearest)
                    : sum_again(p, tile.a, tile.b, in_group, line);
    }
    return add_more(p, tile.group, tile.d_row + row, int32_t(line), value);
}

// Warps that an SM should hold: more warps have more loads in flight.
template <Weights kind>
constexpr int kResidentWarps = kind == Weights::Bits4 ? 24 : 16;

template <Weights kind, bool grouped, int warps, bool promotes>
__global__ void __launch_bounds__(32 * warps, kResidentWarps<kind> / warps)
    mma_bf16_rows_kernel(const __grid_constant__ Arguments args) {
    __shared__ float parts[warps][kTileRows * kTileLines];
    __shared__ Tile kept;  // in shared memory, for the rare path, which indexes it
    const GemmProblem& p = args.problem;
    Tile tile;
    start_next_kernel();
    wait_for_previous_kernel();
    if (!find_tile<grouped>(args, tile)) return;
    Consumer<kind, warps, promotes> consumer(args, tile);
    consumer.multiply(tile);
    if (threadIdx.x == 0) kept = tile;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++)
        parts[threadIdx.x / 32][(lane % 4 * 2 + i % 2) * kTileLines + lane / 4 + i / 2 * 8] = consumer.sums[i];
    bool again = false;
    if constexpr (promotes)
        again = __syncthreads_or(consumer.met_unusual);
    else
        __syncthreads();
    const uint32_t column = threadIdx.x % kTileLines, line = tile.line + column;
    const auto sum_of = [&](uint32_t row) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) sum = add_rn(sum, parts[w][row * kTileLines + column]);
        return sum;
    };
    if (line >= uint32_t(p.n)) return;
    for (uint32_t row = threadIdx.x / kTileLines; row < tile.written; row += 32 * warps / kTileLines) {
        float value = 0;
        if (row < tile.rows) {
            value = sum_of(row);
            if (args.tile_rows < kTileRows) value = add_rn(value, sum_of(row + args.tile_rows));
            value = finish<kind>(p, kept, row, line, value, promotes ? args.lift : 1.0f, again);
        }
        store_element(p.d.data, p.d.format, (tile.d_row + row) * p.d.row_stride + line, value);
    }
}

struct Key {
    Weights kind;
    bool grouped;
    int warps;
    bool promotes;
    bool operator==(const Key&) const = default;
};

template <Weights kind, bool grouped, int warps, bool promotes = false>
constexpr KernelEntry<Key, Arguments> entry = {
    {kind, grouped, warps, promotes}, mma_bf16_rows_kernel<kind, grouped, warps, promotes>, 32 * warps, 0};

constexpr int kPromotingWarps = 8;
template <Weights kind, bool grouped>
constexpr KernelEntry<Key, Arguments> promoting = entry<kind, grouped, kPromotingWarps, true>;

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Weights::Bits4, false, 4>, entry<Weights::Bits4, false, 8>, entry<Weights::Bits4, false, 16>,
    entry<Weights::Bits4, true, 4>,  entry<Weights::Bits4, true, 8>,  entry<Weights::Bits4, true, 16>,
    entry<Weights::Nvfp4, false, 4>, entry<Weights::Nvfp4, false, 8>, entry<Weights::Nvfp4, false, 16>,
    entry<Weights::Nvfp4, true, 4>,  entry<Weights::Nvfp4, true, 8>,  entry<Weights::Nvfp4, true, 16>,
    entry<Weights::Bits6, false, 4>, entry<Weights::Bits6, false, 8>, entry<Weights::Bits6, false, 16>,
    entry<Weights::Bits6, true, 4>,  entry<Weights::Bits6, true, 8>,  entry<Weights::Bits6, true, 16>,
    entry<Weights::Bits8, false, 4>, entry<Weights::Bits8, false, 8>, entry<Weights::Bits8, false, 16>,
    entry<Weights::Bits8, true, 4>,  entry<Weights::Bits8, true, 8>,  entry<Weights::Bits8, true, 16>,
    promoting<Weights::Bits4, false>, promoting<Weights::Bits4, true>, promoting<Weights::Nvfp4, false>,
    promoting<Weights::Nvfp4, true>,  promoting<Weights::Bits6, false>, promoting<Weights::Bits6, true>,
    promoting<Weights::Bits8, false>, promoting<Weights::Bits8, true>,
};

// Returns the bytes between the scales of a row that are so many chunks apart.
int64_t scales_of_chunks(ScaleLayout layout, int64_t chunks) {
    layout.tile_rows = 1;
    return layout.block == MXQ_MAX_DIM ? 0 : layout.offset(0, 0, chunks * kChunk / layout.block);
}

bool has_aligned_lines(const GemmOperand& operand) {
    return is_aligned(operand.codes, 16) && operand.line_bytes % 16 == 0 && operand.matrix_bytes % 16 == 0;
}

int64_t tile_rows(const GemmProblem& p) { return can_split(p.a) ? kTileRows / 2 : kTileRows; }

// Returns the tiles of rows of A, at most.
int64_t row_tiles(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, tile_rows(p))
                                        : ceil_div(p.m, tile_rows(p));
}

int64_t line_tiles(const GemmProblem& p) { return ceil_div(p.n, int64_t(kTileLines)); }

bool has_promotions(const GemmProblem& p) { return has_scales_of_128(p.a) || has_scales_of_128(p.b); }

// Returns how many warps share a tile. With many tiles an SM holds several anyway, and small thread blocks replace each
// other without a gap.
int warps_of_tile(const Context& context, const GemmProblem& p) {
    const int64_t tiles = row_tiles(p) * line_tiles(p), multiprocessors = context.cuda->multiprocessors;
    if (has_promotions(p)) return kPromotingWarps;
    return tiles >= 3 * multiprocessors ? 4 : tiles > multiprocessors ? 8 : 16;
}

Reason needs_operands(const GemmProblem& p) {
    if (!can_be_bf16(p.a) && !can_widen_codes(p.a))
        return [format = p.a.format] {
            return format_text("needs a in BF16, F16 or quantized, found %s", find_format(format)->name);
        };
    if (p.b.scale_type == ScaleType::None)
        return [format = p.b.format] { return format_text("needs b quantized, found %s", find_format(format)->name); };
    if (p.a.across || p.b.across) return "needs both operands along the contraction, found one across it";
    return {};
}

Reason needs_sizes(const GemmProblem& p) {
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    const int64_t groups = p.grouping == Grouping::Rows ? std::max<int64_t>(1, p.groups.count) : 1;
    if (const int64_t most = kMostRows / kTileRows * tile_rows(p); p.m > most * groups)
        return [most, m = p.m, groups] {
            return format_text("needs at most %lld rows a group, found %.1f on average", (long long)most,
                               double(m) / double(groups));
        };
    if (p.k % kQuarter != 0)
        return [k = p.k] { return format_text("needs a contraction of whole 32 codes, found %lld", (long long)k); };
    void* const workspace = reinterpret_cast<void*>(kWorkspaceAlignment);  // as aligned as the real one
    if (!has_aligned_lines(as_bf16(p, Side::A, workspace)) || !has_aligned_lines(p.b))
        return "needs lines of both operands at multiples of 16 bytes";
    const ScaleLayout& layout = p.b.layout;
    if (is_block_scaled(p.b) && scales_of_chunks(layout, 4) != 4 * scales_of_chunks(layout, 1))
        return "needs scales of b for 16 or 32 codes";
    if (const int64_t tiles = row_tiles(p); tiles > kMostRowTiles)
        return [tiles] {
            return format_text("needs at most %lld tiles of 4 or 8 rows, found %lld", (long long)kMostRowTiles,
                               (long long)tiles);
        };
    return {};
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_no_limit(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_sizes(p); !reason.empty()) return {reason, 0, nullptr};
    return {{}, is_bf16(p.a) ? 0 : widened_bytes(as_bf16(p, Side::A, nullptr)), nullptr};
}

// Rows in two parts are widened first, and a sum that is made again reads A as it is stored.
bool reads_by_index(const GemmProblem& p) {
    return !p.b_by_index.set && is_bf16(p.a) && p.b.scale_type == ScaleType::E8M0 && has_aligned_lines(p.a);
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const WeightRule weights = weight_rule(p.b);
    const GemmOperand rows = as_bf16(p, Side::A, call.workspace);
    Arguments args{p,
                   rows,
                   {},
                   weights.rule,
                   weights.missing,
                   uint32_t(tile_rows(p)),
                   is_block_scaled(p.b) ? scales_of_chunks(p.b.layout, 1) : 0,
                   is_block_scaled(p.b),
                   has_promotions(p) ? lift_of_scales(p) : 1.0f};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.tile_rows_log2 = uint32_t(log2_of(args.tile_rows));
    const dim3 blocks(unsigned(line_tiles(p)), unsigned(row_tiles(p)));
    if (blocks.y == 0) return;
    if (!is_bf16(p.a)) widen(context, p, Side::A, rows, call.stream);
    const Start start = is_bf16(p.a) ? first_start(context, call) : Start::AfterAll;
    const Key key{weights.kind, p.grouping == Grouping::Rows, warps_of_tile(context, p), has_promotions(p)};
    launch(context, kernels, key, "mma_bf16_rows", blocks, call.stream, args, start);
}

void load(const Context& context) {
    load_kernels(kernels);
    load_widen(context);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation mma_bf16_rows{
    .name = "mma_bf16_rows", .run = run, .load = load, .bound = bound, .prepare = prepare, .reads_by_index = reads_by_index};

}  // namespace mxq::cuda
