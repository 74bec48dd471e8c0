// D = A B^T with MXFP8 operands, dense or grouped, converted to BF16 on the way into shared memory.
//
// A block of 256 threads makes one 128 x 256 tile of D, 64 codes of the contraction a step:
//
//     384 lines of 64 codes      thread t: 16 codes at 16 (t % 4) of the lines t / 4 + 64 i, i = 0..5 (A: 0, 1; B: 2..5)
//     (128 of A, 256 of B)       with their scales, in registers a step ahead; converted once, stored as 32 bytes each
//     shared, two buffers        line L: 8 x 16 bytes of BF16, the j-th at j ^ (L % 8): neither stores nor ldmatrix conflict
//     8 warps, 2 x 4             64 x 64 of D each: 32 mma.m16n8k16 for every 16 of K, fed by 8 ldmatrix.x4
//
// Per step a block reads 24 KB of codes and moves 176 KB through shared memory: 1400 cycles at 128 bytes each. Its 1024
// mma take 1640 cycles at 5/8 of the tensor cores' peak, what mma.sync reaches on Hopper and the bound here; each scheduler
// has 1200 instructions, 500 of them on the ALU at half rate. Smaller tiles convert more often and converting at the
// fragment converts four times: both take more instructions than the tensor cores leave. Conversion is spread over the
// step; its last quarter computes while the next step's first fragments load; one barrier a step.
//
// Inf, NaN and scales far above 1, which the fast conversion does not serve, are noticed at the barrier; then every thread
// reads its codes again and converts them one by one.
//
// Products below fp32's normal range are cut at 2^-149 whenever they are added, which no term of the bound covers. Only
// codes under scales below 2^-47 have such products: a tile that met one makes its tiny sums again in double, for an F32 D.
//
// H200: 287 TFLOP/s, the tensor pipe 45% busy: with two warps per scheduler nobody fills the fixed-latency waits (a third of
// all stalls). Tried: 16 warps of 64 x 32 (spills at 128 registers, 152); fences among conversions and mma (no change).
//
// Sums: sm_80 adds 8 products and the sum at once, each cut at 2^-24 of the largest, the result cut to fp32: an error of at
// most (8 + 2) 2^-24 sum |a||b| for every 8 of K, hence c = 5 K / 4 + 32. Later chips cut later and less often.
#include "cuda/device.h"
#include "cuda/groups.cuh"
#include "cuda/implementations.h"
#include "cuda/mma.cuh"
#include "numerics/bf16_pairs.h"
#include "numerics/convert.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 128, kTileColumns = 256, kStep = 64;
constexpr int kChunks = 6;                  // of 16 codes, per thread and step
constexpr int kChunkLines = kThreads / 4;   // from a thread's line to its next
constexpr int kLineBytes = 2 * kStep;
constexpr int kBufferBytes = (kTileRows + kTileColumns) * kLineBytes;
constexpr int kSharedBytes = 2 * kBufferBytes;
constexpr int kPanel = 16;                  // row tiles that run together, so that both operands come from L2
static_assert(kTileRows == kSwizzleRows, "Group::slab counts row tiles");

// What the loop needs of an operand, the same in every group.
struct Side {
    int64_t code_steps[4];   // bytes from a line to those 0, 1, 2, 3 times kChunkLines further
    int64_t scale_steps[2];  // likewise, of their scales
    int32_t column_step;     // bytes from a scale to the one 4 blocks further
    Bf16Rule rule;
};

struct Arguments {
    GemmProblem problem;
    Side a, b;
    uint32_t row_tiles, column_tiles;  // of one matrix of D; Grouping::Rows: the most that all groups take
    bool wide;                         // D takes 16-byte stores
};

// ---- Which tile ----------------------------------------------------------------------------------------------------------

// One tile of one product. a and b are the product's own first lines, codes and scales.
struct Tile {
    const uint8_t *a_codes, *a_scales, *b_codes, *b_scales;
    ScaleLayout a_layout, b_layout;
    int64_t m, k;
    int64_t row, column;    // of the tile
    int64_t first_row;      // of the product in D
};

// A's rows in the group, and the group's B.
__device__ void enter_group_of_rows(const GemmProblem& p, const Group& group, int64_t row_tile, Tile& tile) {
    tile.m = group.rows;
    tile.row = (row_tile - group.slab) * kTileRows;
    tile.first_row = group.second.codes;
    tile.a_codes += group.first.codes * p.a.length;
    tile.a_scales += group_scale_offset(p.a.layout, group.first);
    tile.b_codes += group.first.index * p.b.lines * p.b.length;
    tile.b_scales += group.first.index * p.b.layout.matrix_scales;
}

// The group's part of every line of A and of B, and its D.
__device__ void enter_group_of_contraction(const GemmProblem& p, const Group& group, Tile& tile) {
    tile.k = group.rows;
    tile.first_row = group.first.index * p.m;
    tile.a_codes += group.first.codes;
    tile.b_codes += group.second.codes;
    tile.a_scales += group_scale_offset(p.a.layout, group.first);
    tile.b_scales += group_scale_offset(p.b.layout, group.second);
    if (p.a.layout.swizzled) tile.a_layout.columns = ceil_div(round_up(group.rows, p.a.units.codes), kMxBlock);
    if (p.b.layout.swizzled) tile.b_layout.columns = ceil_div(round_up(group.rows, p.b.units.codes), kMxBlock);
}

// False: nothing to do for this block.
__device__ bool find_tile(const Arguments& args, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t matrix = blockIdx.x / (args.row_tiles * args.column_tiles);
    const uint32_t index = blockIdx.x % (args.row_tiles * args.column_tiles);
    const uint32_t panel = index / (kPanel * args.column_tiles) * kPanel;
    const uint32_t panel_rows = min(uint32_t(kPanel), args.row_tiles - panel);
    const uint32_t in_panel = index - panel * args.column_tiles;
    const int64_t row_tile = panel + in_panel % panel_rows;

    tile = {p.a.codes, p.a.scales, p.b.codes, p.b.scales, p.a.layout, p.b.layout, p.m, p.k,
            row_tile * kTileRows, int64_t(in_panel / panel_rows) * kTileColumns, 0};
    if (p.grouping != Grouping::None) {
        const bool by_rows = p.grouping == Grouping::Rows;
        const GroupedRows grouped{p.groups, p.group_rows};
        const Group group = by_rows ? group_of_slab(grouped, p.a.units, {p.d.group_unit, 1}, row_tile)
                                    : group_of_index(grouped, p.a.units, p.b.units, matrix);
        if (!group.exists()) return false;
        by_rows ? enter_group_of_rows(p, group, row_tile, tile) : enter_group_of_contraction(p, group, tile);
    }
    return tile.k > 0 || !p.accumulate;
}

// ---- Codes from global memory, BF16 into shared memory -------------------------------------------------------------------

// First scale byte of a line; without the slow division by a tile_rows that the compiler does not know.
__device__ int64_t scale_line(ScaleLayout layout, int64_t line) {
    const bool tiles = layout.tile_rows > 1;
    layout.tile_rows = 1;
    return layout.offset(0, tiles && !layout.swizzled ? line / kMxBlock : line, 0);
}

// The compiler computes this value here and once, not where it is used and again.
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }

// What one thread reads of the step that it stands at.
struct Reader {
    const uint8_t *a_codes, *b_codes;                // its first chunk of A and of B
    const uint8_t *a_scales, *b_scales, *b1_scales;  // its first scale of A, of B, of B 128 lines further
    uint32_t present;   // bit c: the line of chunk c exists
    int32_t step;
    int32_t steps;      // in which its 16 codes begin before the contraction ends
    int32_t last;       // codes from there to the end of the contraction, in the last of these steps

    __device__ Reader(const GemmProblem& p, const Tile& tile) {
        const int quarter = threadIdx.x % 4, line = threadIdx.x / 4;
        const int64_t row = tile.row + line, column = tile.column + line;
        a_codes = tile.a_codes + row * p.a.length + 16 * quarter;
        b_codes = tile.b_codes + column * p.b.length + 16 * quarter;
        a_scales = tile.a_scales + scale_line(tile.a_layout, row) + quarter / 2;
        b_scales = tile.b_scales + scale_line(tile.b_layout, column) + quarter / 2;
        b1_scales = tile.b_scales + scale_line(tile.b_layout, column + kSwizzleRows) + quarter / 2;
        present = 0;
        for (int c = 0; c < kChunks; c++) {
            const bool exists = c < 2 ? row + c * kChunkLines < tile.m : column + (c - 2) * kChunkLines < p.n;
            present |= uint32_t(exists) << c;
        }
        keep(present);
        const int64_t codes = max(tile.k - 16 * quarter, int64_t(0));
        step = 0;
        steps = int32_t(ceil_div(codes, kStep));
        last = int32_t(codes - int64_t(steps - 1) * kStep);
    }

    __device__ __forceinline__ void advance(const Arguments& args) {
        move(1, step % 2 ? args.a.column_step - 2 : 2, step % 2 ? args.b.column_step - 2 : 2);
    }
    __device__ __forceinline__ void retreat(const Arguments& args) {
        move(-1, step % 2 ? -2 : 2 - args.a.column_step, step % 2 ? -2 : 2 - args.b.column_step);
    }

private:
    __device__ __forceinline__ void move(int direction, int32_t a_scale_bytes, int32_t b_scale_bytes) {
        step += direction;
        a_codes += direction * kStep;
        b_codes += direction * kStep;
        a_scales += a_scale_bytes;
        b_scales += b_scale_bytes;
        b1_scales += b_scale_bytes;
    }
};

struct Chunk {
    uint4 codes;
    uint32_t scale;
};

__device__ __forceinline__ uint32_t load_bytes(const uint8_t* from, int32_t count) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) word |= uint32_t(__ldg(from + i)) << (8 * i);
    return word;
}

// Chunk c of the reader's step; zeros where there are no codes.
template <bool kAligned>
__device__ __forceinline__ Chunk load_chunk(const Arguments& args, const Reader& reader, int c) {
    Chunk out{{0, 0, 0, 0}, 0};
    const uint32_t present = reader.step < reader.steps ? reader.present : 0;
    if (!(present & (1u << c))) return out;
    const Side& side = c < 2 ? args.a : args.b;
    const uint8_t* const codes = (c < 2 ? reader.a_codes : reader.b_codes) + side.code_steps[c < 2 ? c : c - 2];
    const uint8_t* const scales = c < 2 ? reader.a_scales : c < 4 ? reader.b_scales : reader.b1_scales;
    out.scale = __ldg(scales + side.scale_steps[c % 2]);
    if constexpr (kAligned) {
        out.codes = load_once(codes);
    } else {
        const int32_t left = reader.step + 1 < reader.steps ? kStep : reader.last;
        out.codes = {load_bytes(codes, left), load_bytes(codes + 4, left - 4), load_bytes(codes + 8, left - 8),
                     load_bytes(codes + 12, left - 12)};
    }
    return out;
}

// Where this thread's first chunk lies in a buffer; the second half of each chunk is 16 bytes before or after the first.
__device__ __forceinline__ uint32_t first_offset() {
    const uint32_t line = threadIdx.x / 4, quarter = threadIdx.x % 4;
    return line * kLineBytes + ((2 * quarter) ^ (line % 8)) * 16;
}

__device__ __forceinline__ uint32_t half_offset(uint32_t first, int c, int h) {
    return (first ^ (16 * h)) + c * kChunkLines * kLineBytes;
}

// Below this scale a code may be under 2^-63, and the product of two such codes under 2^-126.
constexpr uint32_t kTinyScale = 127 - 63 + 16;

// Converts half h of a chunk. Sets bits of kSpecialCodes in `special` where that was not right, and others than these in
// `tiny` where a code is.
__device__ __forceinline__ void store_half(const Bf16Rule& rule, const Chunk& chunk, int h, uint8_t* to, uint32_t& special,
                                           uint32_t& tiny) {
    const uint32_t first = h == 0 ? chunk.codes.x : chunk.codes.z, second = h == 0 ? chunk.codes.y : chunk.codes.w;
    const uint32_t multiplier = bf16_multiplier(rule, chunk.scale);
    const Bf16Pairs low = to_bf16_pairs(rule, first, multiplier), high = to_bf16_pairs(rule, second, multiplier);
    *reinterpret_cast<uint4*>(to) = {low.even, low.odd, high.even, high.odd};
    special |= special_codes(rule, first) | special_codes(rule, second);
    if (h == 0 && is_special_scale(rule, chunk.scale)) special = ~0u;
    if (chunk.scale < kTinyScale) tiny |= first | second;
    keep(special);
}

// Reads and converts this thread's part of a step again, whatever the codes and scales are.
template <bool kAligned>
__device__ __forceinline__ void convert_exactly(const Arguments& args, const Reader& reader, uint8_t* buffer,
                                                uint32_t first) {
#pragma unroll 1
    for (int c = 0; c < kChunks; c++) {
        Chunk chunk = load_chunk<kAligned>(args, reader, c);
        const int32_t format = c < 2 ? args.problem.a.format : args.problem.b.format;
#pragma unroll 1
        for (int w = 0; w < 4; w++) {
            const Bf16Pairs pairs = format == MXQ_FORMAT_MXFP8_E4M3
                                        ? to_bf16_pairs_exactly<E4M3>(chunk.codes.x, chunk.scale)
                                        : to_bf16_pairs_exactly<E5M2>(chunk.codes.x, chunk.scale);
            *reinterpret_cast<uint2*>(buffer + half_offset(first, c, w / 2) + w % 2 * 8) = {pairs.even, pairs.odd};
            chunk.codes = {chunk.codes.y, chunk.codes.z, chunk.codes.w, 0};
        }
    }
}

// The barrier after which all of a buffer is there and right. It holds the step before the reader's; the chunks of the
// reader's own are read again, so that they need no registers meanwhile.
template <bool kAligned>
__device__ __forceinline__ void complete(const Arguments& args, Reader& reader, uint8_t* buffer, uint32_t first,
                                         uint32_t& special, Chunk (&chunks)[kChunks]) {
    if (__syncthreads_or(special & kSpecialCodes)) {
        reader.retreat(args);
        convert_exactly<kAligned>(args, reader, buffer, first);
        reader.advance(args);
#pragma unroll
        for (int c = 0; c < kChunks; c++) chunks[c] = load_chunk<kAligned>(args, reader, c);
        __syncthreads();
    }
    special = 0;
}

// ---- D -------------------------------------------------------------------------------------------------------------------

// Up to eight neighbouring elements of a row.
template <class T>
__device__ __forceinline__ void store_row(T* to, const float (&values)[8], int64_t count, bool wide) {
    if (wide && count >= 8) {
        alignas(16) T out[8];
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = from_float<T>(values[i]);
#pragma unroll
        for (int i = 0; i < int(sizeof out / 16); i++)
            reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(out)[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) to[i] = from_float<T>(values[i]);
    }
}

__device__ __forceinline__ double decode_one(const GemmOperand& operand, const uint8_t* codes, const uint8_t* scales,
                                             const ScaleLayout& layout, int64_t line, int64_t k) {
    const uint32_t code = codes[line * operand.length + k];
    const float scale = scale_value(scales[scale_line(layout, line) + layout.offset(0, 0, k / kMxBlock)]);
    return operand.format == MXQ_FORMAT_MXFP8_E4M3 ? dequantize_element<E4M3>(code, scale)
                                                   : dequantize_element<E5M2>(code, scale);
}

// Whether a line is all zeros: then so are its sums. Most lines say no at once.
__device__ __forceinline__ bool is_zero_line(const uint8_t* codes, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (codes[k] & 0x7F) return false;
    return true;
}

// Makes the tiny ones of eight neighbouring sums again, in double.
__device__ __noinline__ void repair_row(const Arguments& args, const Tile& tile, int64_t row, int64_t column, float* sums) {
    const GemmProblem& p = args.problem;
    if (is_zero_line(tile.a_codes + row * p.a.length, tile.k)) return;
    for (int64_t i = 0; i < 8 && column + i < p.n; i++) {
        if (!(fabsf(sums[i]) < 0x1p-100f) || is_zero_line(tile.b_codes + (column + i) * p.b.length, tile.k)) continue;
        double sum = 0;
        for (int64_t k = 0; k < tile.k; k++)
            sum += decode_one(p.a, tile.a_codes, tile.a_scales, tile.a_layout, row, k) *
                   decode_one(p.b, tile.b_codes, tile.b_scales, tile.b_layout, column + i, k);
        sums[i] = float(sum);
    }
}

__device__ __forceinline__ void write_row(const Arguments& args, int64_t row, int64_t column, float (&values)[8]) {
    const PlainMatrix& d = args.problem.d;
    const int64_t at = row * d.row_stride + column, count = args.problem.n - column;
    if (d.format == MXQ_FORMAT_BF16) return store_row(static_cast<Bf16*>(d.data) + at, values, count, args.wide);
    if (d.format == MXQ_FORMAT_F16) return store_row(static_cast<F16*>(d.data) + at, values, count, args.wide);
    float* const to = static_cast<float*>(d.data) + at;
    if (args.problem.accumulate) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) values[i] = add_rn(to[i], values[i]);
    }
    store_row(to, values, count, args.wide);
}

// A warp's 64 x 64 sums to D, 32 rows at a time through its own piece of shared memory.
constexpr int kPitch = 72;  // floats from row to row: neither stores nor loads of a warp conflict

__device__ __forceinline__ void write_sums(const Arguments& args, const Tile& tile, const float (&sums)[4][8][4], bool repair,
                                           uint8_t* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const piece = reinterpret_cast<float*>(shared) + warp * 32 * kPitch;
    const int64_t row = tile.row + warp % 2 * 64, column = tile.column + warp / 2 * 64 + lane % 8 * 8;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float(&s)[4] = sums[2 * part + i / 8][i % 8];
            float* const to = piece + (i / 8 * 16 + lane / 4) * kPitch + i % 8 * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = {s[0], s[1]};
            *reinterpret_cast<float2*>(to + 8 * kPitch) = {s[2], s[3]};
        }
        __syncwarp();
#pragma unroll 1
        for (int r = lane / 8; r < 32; r += 4) {
            const int64_t line = row + part * 32 + r;
            if (line >= tile.m || column >= args.problem.n) continue;
            float* const from = piece + r * kPitch + lane % 8 * 8;
            if (repair) repair_row(args, tile, line, column, from);
            const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
            float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            write_row(args, tile.first_row + line, column, values);
        }
    }
}

// ---- The kernel ----------------------------------------------------------------------------------------------------------

// kAligned: every line begins at a multiple of 16 bytes and ends at one.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 1) mma_bf16_kernel(const __grid_constant__ Arguments args) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ Tile kept;  // for the end: registers are short
    Tile tile;
    if (!find_tile(args, tile)) return;
    if (threadIdx.x == 0) kept = tile;
    Reader reader(args.problem, tile);
    const int32_t steps = int32_t(ceil_div(tile.k, kStep));

    // Fragments: lane l names line l % 16 (A) or 8 (l / 16) + l % 8 (B) of 16, and one of two neighbouring 16 bytes.
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t base = uint32_t(__cvta_generic_to_shared(shared));
    uint32_t a_lane = base + (warp % 2 * 64 + lane % 16) * kLineBytes + ((lane / 16) ^ (lane % 8)) * 16;
    uint32_t b_lane = base + (kTileRows + warp / 2 * 64 + lane / 16 * 8 + lane % 8) * kLineBytes +
                      ((lane / 8 % 2) ^ (lane % 8)) * 16;
    uint32_t first = first_offset();
    keep(a_lane);
    keep(b_lane);
    keep(first);

    float sums[4][8][4] = {};
    uint32_t a[4][4], b[4][4];
    Chunk chunks[kChunks];
    uint32_t special = 0;
    uint32_t tiny = 0;

    // Converts half n of the 12 in this thread's chunks; a chunk makes room for its successor.
    const auto fill = [&](uint32_t buffer, int n) {
        const int c = n / 2, h = n % 2;
        uint8_t* const to = shared + buffer + half_offset(first, c, h);
        store_half(c < 2 ? args.a.rule : args.b.rule, chunks[c], h, to, special, tiny);
        if (h == 1) chunks[c] = load_chunk<kAligned>(args, reader, c);
    };
    uint32_t current = 0, next = kBufferBytes;

#pragma unroll
    for (int c = 0; c < kChunks; c++) chunks[c] = load_chunk<kAligned>(args, reader, c);
    reader.advance(args);
#pragma unroll
    for (int n = 0; n < 2 * kChunks; n++) fill(current, n);
    complete<kAligned>(args, reader, shared + current, first, special, chunks);
    reader.advance(args);
#pragma unroll
    for (int n = 0; n < 3; n++) fill(next, n);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        load_matrices(a[i], a_lane + i * 16 * kLineBytes);
        load_matrices(b[i], b_lane + i * 16 * kLineBytes);
    }

#pragma unroll 1
    for (int32_t step = 0; step < steps; step++) {
#pragma unroll
        for (int q = 0; q < 4; q++) {  // 16 of K; each fragment makes room for its successor after its last use
            if (q == 3) {
                complete<kAligned>(args, reader, shared + next, first, special, chunks);
                reader.advance(args);
                const uint32_t free = current;
                current = next;
                next = free;
            }
            const uint32_t turn = (q + 1) % 4 * 32;
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    multiply_add_bf16(sums[i][2 * j], a[i], b[j][0], b[j][1]);
                    multiply_add_bf16(sums[i][2 * j + 1], a[i], b[j][2], b[j][3]);
                    if (j == 3) load_matrices(a[i], ((a_lane + current) ^ turn) + i * 16 * kLineBytes);
                }
                load_matrices(b[j], ((b_lane + current) ^ turn) + j * 16 * kLineBytes);
                if (j < 3) fill(next, (q + 1) % 4 * 3 + j);
            }
        }
    }

    const bool repair = __syncthreads_or(tiny & ~kSpecialCodes) && args.problem.d.format == MXQ_FORMAT_F32;
    write_sums(args, kept, sums, repair, shared);
}

// ---- The implementation --------------------------------------------------------------------------------------------------

int64_t row_tiles(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? padded_rows_bound(p.m, p.groups.count, kTileRows) / kTileRows
                                        : ceil_div(p.m, kTileRows);
}

int64_t column_tiles(const GemmProblem& p) { return ceil_div(p.n, kTileColumns); }

int64_t matrices(const GemmProblem& p) { return p.grouping == Grouping::Contraction ? p.groups.count : 1; }

bool aligned(const GemmOperand& operand) {
    return operand.length % 16 == 0 && reinterpret_cast<uintptr_t>(operand.codes) % 16 == 0;
}

Side side(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    const int64_t step = operand.length * kChunkLines;
    return {{0, step, 2 * step, 3 * step}, {0, layout.offset(0, kChunkLines, 0)}, int32_t(layout.offset(0, 0, 4)),
            operand.format == MXQ_FORMAT_MXFP8_E4M3 ? bf16_rule<E4M3>() : bf16_rule<E5M2>()};
}

std::string declines(const Context& context, const GemmProblem& p) {
    if (!context.is_cuda()) return needs_cuda(context);
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->bits != 8 || operand->scale_type != ScaleType::E8M0 || operand->layout.block != kMxBlock)
            return "needs MXFP8 in blocks of 32, found another format";
    const double tiles = double(row_tiles(p)) * double(column_tiles(p)) * double(matrices(p));
    if (tiles > 2147483647.0) return format_text("needs at most 2^31 - 1 tiles of 128 x 256 in D, found %.0f", tiles);
    return "";
}

void run(const Context& context, const GemmProblem& p, const Launch& launch_info) {
    const Arguments args{p,
                         side(p.a),
                         side(p.b),
                         uint32_t(row_tiles(p)),
                         uint32_t(column_tiles(p)),
                         p.d.row_stride * (p.d.format == MXQ_FORMAT_F32 ? 4 : 2) % 16 == 0 &&
                             reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0};
    const uint32_t blocks = args.row_tiles * args.column_tiles * uint32_t(matrices(p));
    if (blocks == 0) return;
    launch(context, aligned(p.a) && aligned(p.b) ? mma_bf16_kernel<true> : mma_bf16_kernel<false>, "mma_bf16", blocks,
           kThreads, kSharedBytes, launch_info.stream, args);
}

}  // namespace

const GemmImplementation mma_bf16{"mma_bf16", declines, nullptr, run};

void load_mma_bf16() {
    load_kernel(reinterpret_cast<const void*>(mma_bf16_kernel<true>), kSharedBytes);
    load_kernel(reinterpret_cast<const void*>(mma_bf16_kernel<false>), kSharedBytes);
}

}  // namespace mxq::cuda
