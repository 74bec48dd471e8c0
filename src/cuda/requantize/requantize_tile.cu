// requantize_tile: a part of any format and layout to the parts of any other, by way of fp32 values in registers; experts and
// groups.
//
// Three kernels: one for what is asked for most, the others quantize_tile's with another source.
//
//     codes in shared      8 bits and NVFP4, lines of whole pieces of 16 bytes, to MXFP8 and MXFP4 in blocks of 32, along the
//     memory               lines of MXFP8 to 128x128 too: short loops, two thirds of the instructions (requantize_chunks.cuh)
//     codes in registers   8 and 4 bits, lines of whole 8 codes: the patches of 16-bit elements, as codes of a byte, decoded
//                          whenever their values are needed (tile/code_patch.cuh). Twice the warps of the other
//     values in registers  the patches of floats. A thread reads the codes of its 16 rows x 4 columns, four codes of each row
//                          (rowwise) or 16 of each column (columnwise, turned into rows), one a byte from then on:
//
//     codes in memory --words of 4 codes a row--> elements --scales--> values --quantize_tile's way--> parts
//
// The source's scales meet the patches in shared memory, a word for each block and line of the tile. Elements that do not
// exist are +0, whatever their scale.
//
// Bytes an element: 0.53 to 1.03 read once, as much written for each part. Bound by instructions: about 11 an element
// and part from shared memory, as machine code counts them, about 17 from registers, by ncu's issue slots.
#include "cuda/tile/code_patch.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/requantize/requantize_chunks.cuh"

namespace mxq::cuda {
namespace {

using Values = PatchChunks<float>;
using Place = Patch<float>;
constexpr int kRows = Place::rows, kColumns = Place::columns;
static_assert(kRows == kPieceCodes && kColumns == 4, "a row of a patch is a word of codes, a column a piece");

__device__ __forceinline__ GroupStart source_start(const TileArguments& a, const TileGroup& group) {
    if (!a.problem.grouped.groups.set) return {};
    return {group.index, 0, group.starts[kSourceCodes], group.starts[kSourceScales]};
}

// Four rows of four columns, from a word for each column to one for each row.
__device__ __forceinline__ void transpose_bytes(const uint32_t (&columns)[4], uint32_t* rows) {
    const uint32_t low01 = __byte_perm(columns[0], columns[1], 0x5140), high01 = __byte_perm(columns[0], columns[1], 0x7362);
    const uint32_t low23 = __byte_perm(columns[2], columns[3], 0x5140), high23 = __byte_perm(columns[2], columns[3], 0x7362);
    rows[0] = __byte_perm(low01, low23, 0x5410);
    rows[1] = __byte_perm(low01, low23, 0x7632);
    rows[2] = __byte_perm(high01, high23, 0x5410);
    rows[3] = __byte_perm(high01, high23, 0x7632);
}

template <int bits>
__device__ __forceinline__ void load_rows(const CodeTile& from, const Place& patch, bool wide, uint32_t (&words)[kRows]) {
    Packed<bits, kColumns> packed[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
        const uint8_t* line = from.codes + (patch.row + i) * from.line_bytes;
        packed[i] = {};
        if (!wide) packed[i] = load_packed_narrow<bits, kColumns>(line, patch.column, patch.valid(i));
        else if (patch.exists(i)) packed[i] = load_packed_wide<bits, kColumns>(line, patch.column);
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) words[i] = unpack<bits, kColumns>(packed[i]).words[0];
}

template <int bits>
__device__ __forceinline__ Packed<bits, kRows> load_piece(const uint8_t* line, int row, int valid, bool wide) {
    if (!wide) return load_packed_narrow<bits, kRows>(line, row, valid);
    Packed<bits, kRows> packed{};
    if (valid == 0) return packed;
    const uint8_t* from = line + row / 8 * bits;
    if constexpr (bits == 8) {
        const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from));
        packed.words[0] = v.x, packed.words[1] = v.y, packed.words[2] = v.z, packed.words[3] = v.w;
    } else if constexpr (bits == 4) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from));
        packed.words[0] = v.x, packed.words[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < 3; i++) packed.words[i] = __ldcs(reinterpret_cast<const uint32_t*>(from) + i);
    }
    return packed;
}

template <int bits>
__device__ __forceinline__ void load_columns(const CodeTile& from, const Place& patch, bool wide, uint32_t (&words)[kRows]) {
    Packed<bits, kRows> packed[kColumns];
    uint32_t columns[kColumns][4];
#pragma unroll
    for (int v = 0; v < kColumns; v++) {
        const int valid = v < patch.existing_columns ? patch.existing : 0;
        packed[v] = load_piece<bits>(from.codes + (patch.column + v) * from.line_bytes, patch.row, valid, wide);
    }
#pragma unroll
    for (int v = 0; v < kColumns; v++) unpack_16<bits>(packed[v].words, columns[v]);
#pragma unroll
    for (int w = 0; w < 4; w++)
        transpose_bytes({columns[0][w], columns[1][w], columns[2][w], columns[3][w]}, &words[4 * w]);
}

template <int bits>
__device__ __forceinline__ void load_codes_of(const CodeTile& from, const Place& patch, bool columnwise, bool wide,
                                              uint32_t (&words)[kRows]) {
    if (columnwise) load_columns<bits>(from, patch, wide, words);
    else load_rows<bits>(from, patch, wide, words);
}

template <class E>
__device__ __forceinline__ void decode_words(const uint32_t (&words)[kRows], Values& values) {
#pragma unroll
    for (int i = 0; i < kRows; i++) {
        const float2 low = decode_pair<E>(words[i] & 0xFFFF), high = decode_pair<E>(words[i] >> 16);
        values[i] = {{float_bits(low.x), float_bits(low.y), float_bits(high.x), float_bits(high.y)}};
    }
}

__device__ __forceinline__ void decode_words_of(Element element, const uint32_t (&words)[kRows], Values& values) {
    static_assert(kElementCount == 5, "the elements are listed below");
    switch (element) {
        case Element::E4M3: return decode_words<E4M3>(words, values);
        case Element::E5M2: return decode_words<E5M2>(words, values);
        case Element::E2M3: return decode_words<E2M3>(words, values);
        case Element::E3M2: return decode_words<E3M2>(words, values);
        default: return decode_words<E2M1>(words, values);
    }
}

__device__ __forceinline__ float scaled(uint32_t bits, float scale, float global) {
    return nvfp4_product(bits_float(bits), scale, global);  // a global scale of 1 changes nothing
}

__device__ __forceinline__ void scale_values(const QuantizedPart& part, const Place& patch, float global,
                                             const float (&table)[kTile / kNvBlock][kTableLines], Values& values) {
    const int shift = source_shift(part.layout);
    const float* scales = part.columnwise ? &table[patch.row >> shift][patch.column] : &table[patch.column >> shift][patch.row];
    const int row_step = part.columnwise ? 0 : 1, column_step = 1 - row_step;
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
        for (int v = 0; v < kColumns; v++) {
            const float value = scaled(values[i].words[v], scales[i * row_step + v * column_step], global);
            values[i].words[v] = v < patch.valid(i) ? float_bits(value) : 0;
        }
}

template <class E>
__device__ __forceinline__ void load_values(const TileArguments& a, const TilePlace& place, TileShared<E>& shared,
                                            Values& values) {
    using Table = float[kTile / kNvBlock][kTableLines];
    static_assert(sizeof(Table) <= sizeof(shared.codes));
    Table& table = *reinterpret_cast<Table*>(shared.codes.words);
    const QuantizedPart& part = a.problem.from;
    const GroupStart start = source_start(a, shared.group);
    const CodeTile codes(part, place, start, a.problem.in.cols);
    const int rows = int(min(place.rows - place.row, int64_t(kTile)));
    const Place patch(rows, part.columnwise ? codes.lines : codes.length);
    uint32_t words[kRows];
    if (part.bits == 8) load_codes_of<8>(codes, patch, part.columnwise, a.wide_in, words);
    else if (part.bits == 6) load_codes_of<6>(codes, patch, part.columnwise, a.wide_in, words);
    else load_codes_of<4>(codes, patch, part.columnwise, a.wide_in, words);
    const ScaleTile scales(part, place, start, a.problem.in.cols, a.problem.grouped.groups.set);
    load_source_scales(part, scales, part.columnwise ? rows : codes.length, table);
    __syncthreads();
    decode_words_of(part.element, words, values);
    scale_values(part, patch, global_scale(part, place.scope), table, values);
    __syncthreads();
}

template <class E>
__global__ void __launch_bounds__(Place::threads, kSmBlocks<float>)
    requantize_tile_kernel(const __grid_constant__ TileArguments a) {
    __shared__ TileShared<E> shared;
    store_whole_scales<E>(a.problem, a.rule);
    TilePlace place;
    if (!find_tile(a.tiles, a.problem.grouped, a.units, shared.group, place)) return;
    Values values;
    load_values(a, place, shared, values);
    quantize_patch<E, float>(a, place, Place(kTile, kTile), values, shared);
}

// ---- From codes in registers -----------------------------------------------------------------------------------------

template <class E>
struct CodeShared {
    TileShared<E> tile;
    SourceScales source;
};

// `along`: which part lies along the source's lines.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_patch_maxima(const TileArguments& a, const PatchValues<S>& values, const CodePlace& place,
                                                 int along, TileScales<E>& scales) {
    const ScaleRule& rule = a.rule;
    PartScales<E>&to_along = scales.parts[along], &to_across = scales.parts[1 - along];
    if (a.problem.square_tiles || rule.whole) {
        if (rule.whole && !rule.records) return;
        const uint32_t maximum = largest_of_patch<S, policy>(values);
        if (rule.shift < 7) {
            put_square_maxima(maximum, place, rule.shift, to_along, to_across);
        } else {
            const uint32_t of_warp = __reduce_max_sync(kAllLanes, maximum);
            if (threadIdx.x % 32 == 0) scales.warp_maxima[threadIdx.x / 32] = of_warp;
        }
        return;
    }
    if (has_part(a.problem, 1 - along)) put_maxima_across<E, S, policy>(values, place, rule.shift, to_across);
    if (has_part(a.problem, along)) put_maxima_along<E, S, policy>(values, place, rule.shift, to_along);
}

// From maxima to factors. Warps have whole blocks of both parts, but in the order of the source: where that is columnwise,
// all of them meet.
template <class E>
__device__ __forceinline__ void make_patch_scales(const TileArguments& a, const TilePlace& place, bool turned,
                                                  TileShared<E>& shared) {
    if (turned) __syncthreads();
    make_scales<E, Bf16>(a.problem, a.rule, place, shared.group, shared.scales);
    if (turned) __syncthreads();
    if (a.rule.records) record_maximum<E, Bf16>(a.problem, place, shared.scales);
}

__device__ __forceinline__ CodeTile part_codes(const TileArguments& a, const TilePlace& place, const TileGroup& group,
                                               int which) {
    return CodeTile(part_of(a.problem, which), place, part_start(a.problem.grouped, group, which == 1), a.problem.in.cols);
}

template <class S, class E>
__device__ __forceinline__ void requantize_patch(const TileArguments& a, const TilePlace& place, const CodePlace& lines,
                                                 CodePatch& patch, CodeShared<E>& shared) {
    const int along = a.problem.from.columnwise ? 1 : 0, from_shift = source_shift(a.problem.from.layout);
    TileShared<E>& tile = shared.tile;
    const auto values = [&] { return PatchValues<S>(patch, lines, from_shift, shared.source); };
    if (a.rule.saturates) put_patch_maxima<E, S, Nonfinite::Saturate>(a, values(), lines, along, tile.scales);
    else put_patch_maxima<E, S, Nonfinite::Propagate>(a, values(), lines, along, tile.scales);
    make_patch_scales(a, place, along == 1, tile);
    forget_values(patch);
    if (has_part(a.problem, along)) {
        const CodeTile to = part_codes(a, place, tile.group, along);
        put_along<E>(values(), lines, a.rule.shift, tile.scales.parts[along], to, a.direct_rows, tile.codes);
        if (!a.direct_rows) store_staged_rows<E, Bf16>(tile.codes, to, a.access[along]);
    }
    forget_values(patch);
    if (has_part(a.problem, 1 - along)) {
        put_across<E>(values(), lines, a.rule.shift, tile.scales.parts[1 - along], tile.codes);
        __syncthreads();
        store_lines<E, Bf16>(tile.codes, part_codes(a, place, tile.group, 1 - along), a.access[1 - along]);
    } else {
        __syncthreads();
    }
#pragma unroll 1
    for (int which = 0; which < 2; which++)
        if (has_part(a.problem, which)) store_scales(a.problem, a.rule, place, tile.group, which, tile.scales.parts[which]);
}

// Blocks that share an SM: 96 registers a thread. Below sm_89 codes are rounded in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kCodeBlocks = 3;
#else
constexpr int kCodeBlocks = 5;
#endif

template <class S, class E>
__global__ void __launch_bounds__(CodePlace::threads, kCodeBlocks)
    requantize_codes_kernel(const __grid_constant__ TileArguments a) {
    __shared__ CodeShared<E> shared;
    store_whole_scales<E>(a.problem, a.rule);
    TilePlace place;
    if (!find_tile(a.tiles, a.problem.grouped, a.units, shared.tile.group, place)) return;
    const QuantizedPart& part = a.problem.from;
    const GroupStart start = source_start(a, shared.tile.group);
    const CodeTile from(part, place, start, a.problem.in.cols);
    const int rows = int(min(place.rows - place.row, int64_t(kTile)));
    const int length = part.columnwise ? rows : from.length;
    const CodePlace lines(part.columnwise ? from.lines : rows, length);
    CodePatch patch;
    load_patch_codes<S::bits>(from, lines, patch);
    ScaleTile scales(part, place, start, a.problem.in.cols, a.problem.grouped.groups.set);
    if (!part.columnwise) scales.lines = min(scales.lines, rows);  // swizzled square tiles have NaN for a group's padding, too
    load_source_scales(part, scales, length, shared.source.table);
    shared.source.table[SourceScales::nothing][threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.source.global = global_scale(part, place.scope);
    unpack_patch<S>(patch);
    __syncthreads();
    requantize_patch<S>(a, place, lines, patch, shared);
}

// ---- From codes in shared memory -------------------------------------------------------------------------------------

template <class S, class E>
__global__ void __launch_bounds__(kRequantizeThreads, kRequantizeBlocks)
    requantize_chunks_kernel(const __grid_constant__ ChunkArguments a) {
    __shared__ uint4 memory[(sizeof(RequantizeShared<S>) + sizeof(uint4) - 1) / sizeof(uint4)];
    requantize_tile_chunks<S, E>(a, *reinterpret_cast<RequantizeShared<S>*>(memory));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Whether a thread's codes of a line are all there or none, and can be read at once. A scale above the blocks' that the caller
// gives may be anything: then no thread has lines that exist beside such that do not.
bool is_code_source(const QuantizeProblem& problem) {
    const QuantizedPart& from = problem.from;
    const bool grouped = problem.grouped.set();
    const int64_t length = from.columnwise ? problem.in.rows : problem.in.cols;
    if (from.bits == 6 || length % kPatchPositions != 0 || (from.columnwise && grouped)) return false;
    const int64_t lines = from.columnwise ? problem.in.cols : problem.in.rows;
    if (from.decode_scale && (grouped || lines % kPatchLines != 0)) return false;
    return code_access(from, grouped).bytes >= from.bits;
}

// Calls body(source) with what requantize_codes_kernel takes.
template <class Body>
void with_code_source(Element element, const Body& body) {
    static_assert(kElementCount == 5, "the elements that have a Source are listed below");
    if (element == Element::E4M3) body(Source<E4M3>{});
    if (element == Element::E5M2) body(Source<E5M2>{});
    if (element == Element::E2M1) body(Source<E2M1>{});
}

// Whether codes can be read as load_packed_wide and load_piece do.
bool is_wide_source(const QuantizeProblem& problem) {
    const QuantizedPart& from = problem.from;
    const int needed = !from.columnwise || from.bits == 6 ? 4 : 2 * from.bits;
    return code_access(from, problem.grouped.groups.set).bytes >= needed && (from.bits != 6 || from.length % kPieceCodes == 0);
}

std::string declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.hadamard.rowwise || problem.hadamard.columnwise) return "needs no transform, found a Hadamard transform";
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    return needs_cuda(context);
}

template <class E>
void run_general(const Context& context, TileArguments a, const Launch& call) {
    a.wide_in = is_wide_source(a.problem);
    a.direct_rows = a.problem.has_rowwise && stores_rows_directly<E, float>(a.access[0]);
    launch(context, requantize_tile_kernel<E>, "requantize_tile", tile_grid(a), dim3(Place::threads), 0, call.stream, a);
}

template <class E>
void run_codes(const Context& context, TileArguments a, const Launch& call) {
    const bool columnwise = a.problem.from.columnwise;
    const bool has_along = columnwise ? a.problem.has_columnwise : a.problem.has_rowwise;
    a.direct_rows = has_along && stores_along_directly<E>(a.access[columnwise]);
    with_code_source(a.problem.from.element, [&]<class S>(S) {
        launch(context, requantize_codes_kernel<S, E>, "requantize_tile", tile_grid(a), dim3(CodePlace::threads), 0,
               call.stream, a);
    });
}

template <class E>
void run_chunks(const Context& context, const TileArguments& tile, const Launch& call) {
    const QuantizeProblem& problem = tile.problem;
    const ChunkArguments a = chunk_arguments(problem, tile.tiles, tile.units,
                                             scale_steps<E>(problem.scale_rounding, problem.nonfinite));
    with_code_source(problem.from.element, [&]<class S>(S) {
        const dim3 grid = grid_of_rows(tile.tiles.across, tile.tiles.matrices * tile.tiles.down);
        launch(context, requantize_chunks_kernel<S, E>, "requantize_tile", grid, dim3(kRequantizeThreads), 0, call.stream, a);
    });
}

template <class E>
void run_type(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxPlaces amax(problem, call.workspace);
    const TileArguments a = tile_arguments(problem, amax);
    prepare_amax(context, problem, a.rule, amax, call);
    if (!has_tile_work(a)) return;
    if constexpr (E::bits != 6)
        if (is_code_source(problem) && is_chunk_work(problem)) return run_chunks<E>(context, a, call);
    if (is_code_source(problem)) run_codes<E>(context, a, call);
    else run_general<E>(context, a, call);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    with_element(problem.format->element, [&]<class E>(E) { run_type<E>(context, problem, call); });
}

void load(const Context&) {
    for (Element element : kElements)
        with_element(element, []<class E>(E) {
            load_kernel(reinterpret_cast<const void*>(requantize_tile_kernel<E>), 0);
            for (Element from : kElements)
                with_code_source(from, []<class S>(S) {
                    load_kernel(reinterpret_cast<const void*>(requantize_codes_kernel<S, E>), 0);
                    if constexpr (E::bits != 6) load_kernel(reinterpret_cast<const void*>(requantize_chunks_kernel<S, E>), 0);
                });
        });
}

}  // namespace

const QuantizeImplementation requantize_tile = {"requantize_tile", declines, tile_workspace_bytes, run, load};

}  // namespace mxq::cuda
