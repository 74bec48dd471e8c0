// quantize_fp4_pairs: BF16 to NVFP4 or MXFP4, rounded to nearest or stochastically, four over six among it, in any of their
// scalings and layouts.
//
// A block of threads takes a tile of 128 x 128 through shared memory; who reads what: tile/shared_tile.cuh. Elements stay
// packed in pairs, as they lie in memory, all the way to their codes:
//
//     rowwise      8 words of a row              -> maximum -> scale  -> 16 codes -> 8 bytes, eight lanes 64 in a row
//     columnwise   16 words of two columns       -> 2 maxima -> 2 scales -> 16 codes of each, the same way
//     square       before both: the maximum of every 16 x 16, by the warp that holds its 16 rows
//     groups       columns of aligned rows, to nearest: tiles of bands of 16 or 32 rows, up to four side by side
//                  (tile/shared_bands.cuh)
//     four over six of lines: a kernel of its own (fp4_four_over_six.cuh)
//     scales       as bytes through shared memory, then as words in the layout's order
//
// Fast path ("plain"), checked by one vote for a warp's blocks together: no element is NaN or comes out at 7 or above, and
// the products of NVFP4 may be cut (CuttingMultiplier, which stands in a table of all scales). Four over six of 16x16
// tells by estimates first.
//
// Bytes an element: 2 read once, 0.53 or 0.56 written for each part. Both parts are bound by arithmetic: in the loops, as
// machine code for sm_90a counts them, 7 to 8 operations an element and part for MXFP4, 7 for NVFP4 (9 where ties go to
// even), 16 for stochastic rounding, 21 for four over six; half are the ALU's, which issues at half the rate. The loops are
// short on purpose: the same from registers, unrolled, waits for instructions (a quarter slower). Blocks that take tile
// after tile, the next one on its way while scales leave, are a tenth slower. A fifth block on an SM, which leaves 48
// registers a thread, takes 2 to 4% of the time from MXFP4 and from squares of NVFP4, and costs its lines 3%. Whole tiles
// are on their way before a block does anything else (EarlyTiles).
//
// Rows that begin anywhere come as pieces that are shifted (tile/shifted_tile.cuh), lines of codes that do leave as aligned
// eight bytes of two lanes, to nearest, else byte by byte (Stores). Kernels for what is all aligned know nothing of that:
// with it they ran 2 to 3% more instructions, and NVFP4 took as much longer.
#include "cuda/launch.h"
#include "cuda/quantize/fp4_four_over_six.cuh"
#include "cuda/quantize/fp4_pair_codes.cuh"
#include "cuda/quantize/fp4_pairs.cuh"
#include "cuda/implementations.h"
#include "cuda/quantize/amax.h"

namespace mxq::cuda {
namespace {

using namespace fp4_pairs;

// ---- Square tiles ----------------------------------------------------------------------------------------------------

// Returns the largest magnitude of the lane's 16 x 16 of the warp's band.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t cell_amax(const Shared& shared) {
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
    uint32_t pair = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        uint32_t words[kPairs];
        rows.read_words(row_of_step(i) - row_of_step(0), words);
        pair = larger_by_magnitude<policy>(pair, largest_by_magnitude<policy>(words));
    }
    uint32_t largest = largest_bits<Bf16>(pair & ~kSignsOfBothHalves);
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 8));
    return max(largest, __shfl_xor_sync(kAllLanes, largest, 16));
}

__device__ __forceinline__ uint32_t cell_amax(const Shared& shared, Nonfinite policy) {
    return policy == Nonfinite::Saturate ? cell_amax<Nonfinite::Saturate>(shared) : cell_amax<Nonfinite::Propagate>(shared);
}

// Makes the NVFP4 scale of every 16 x 16. False where an element may not be plain.
template <Rounding rounding>
__device__ __forceinline__ bool nvfp4_cells(const QuantizeProblem& p, Shared& shared) {
    uint32_t amax = cell_amax<Nonfinite::Propagate>(shared);
    bool plain = !is_nan(bits_float(amax));
    if (__any_sync(kAllLanes, !plain)) amax = cell_amax<Nonfinite::Saturate>(shared);
    put_nvfp4_cells<rounding>(p, shared.tile, amax, shared.tables.globals, shared.cells, [&](int part, uint32_t scale) {
        plain = plain && is_plain<rounding>(amax, {scale, shared.tables.multipliers[part][scale]});
    });
    return plain;
}

// Makes the scale of every 16 x 16. Ends with a barrier; false where an element of NVFP4 may not be plain.
template <bool nvfp4, Rounding rounding>
__device__ __forceinline__ bool square_scales(const Arguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    if constexpr (nvfp4) return __syncthreads_and(nvfp4_cells<rounding>(p, shared));
    put_mx_cells(a.steps, p.tile.length, cell_amax(shared, p.nonfinite), shared.maxima, shared.cells);
    __syncthreads();
    return true;
}

// Returns the block of the square that all of the lane's chunks of a part lie in; of NVFP4 for plain elements alone.
template <bool nvfp4>
__device__ __forceinline__ Block square_block(const Rule& rule, const Shared& shared) {
    const uint32_t scale = shared.cells[rule.columnwise][cell_of(rule.columnwise, threadIdx.x / 32 * kChunk)];
    return {scale, nvfp4 ? rule.multipliers[scale] : scale_reciprocal(scale)};
}

// Makes the chunks of a tile of NVFP4 squares of which some may not be plain.
template <Rounding rounding, Stores stores>
__device__ __forceinline__ void emit_any_squares(const Arguments& a, Shared& shared) {
#pragma unroll 1
    for (int i = 0; i < 2 * kChunkSteps; i++) {
        const bool columnwise = i >= kChunkSteps;
        const int step = i % kChunkSteps, line = columnwise ? column_of_step<Bf16>(step) : row_of_step(step);
        if (has_part(a.problem, columnwise)) emit_any<rounding, stores>(a, columnwise, line, shared);
    }
}

// ---- Lines -----------------------------------------------------------------------------------------------------------

// Gives the block that the lane's chunk of a row is. False where an element of NVFP4 may not be plain.
template <bool nvfp4, Rounding rounding>
__device__ __forceinline__ bool row_block(const Arguments& a, const Rule& rule, const uint32_t (&words)[kPairs],
                                          Block& block) {
    if constexpr (nvfp4) {
        const uint32_t amax = largest_of_row<Nonfinite::Propagate>(words);
        block = nvfp4_block(rule, amax);
        return __all_sync(kAllLanes, is_plain<rounding>(amax, block));
    } else {
        const uint32_t largest = block_maxima(largest_pair(a.problem.nonfinite, words), a.problem.tile.length);
        block = mx_block(a.steps, larger<Bf16>(largest, largest >> 16), 0);
        return true;
    }
}

// Gives the blocks that the lane's chunks of two neighbouring columns are. False where an element of NVFP4 may not be plain.
template <bool nvfp4, Rounding rounding>
__device__ __forceinline__ bool column_blocks(const Arguments& a, const Rule& rule, const uint32_t (&words)[kChunk],
                                              Block (&blocks)[2]) {
    if constexpr (nvfp4) {
        const uint32_t largest = largest_pair<Nonfinite::Propagate>(words);
        const uint32_t first = magnitude_bits<Bf16>(largest, 0), second = magnitude_bits<Bf16>(largest, 1);
        blocks[0] = nvfp4_block(rule, first);
        blocks[1] = nvfp4_block(rule, second);
        return __all_sync(kAllLanes, is_plain<rounding>(first, blocks[0]) && is_plain<rounding>(second, blocks[1]));
    } else {
        const uint32_t largest = block_maxima(largest_pair(a.problem.nonfinite, words), a.problem.tile.length);
        blocks[0] = mx_block(a.steps, largest, 0);
        blocks[1] = mx_block(a.steps, largest, 1);
        return true;
    }
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

template <bool nvfp4, bool fast, Rounding rounding>
__device__ __forceinline__ uint2 any_row_codes(const Rule& rule, const Shared& shared, const uint32_t (&words)[kPairs],
                                               int line, float multiplier) {
    if constexpr (rounding == Rounding::Stochastic)
        return stochastic_row_codes<nvfp4>(words, multiplier, line_random(rule, shared, line));
    return row_codes<nvfp4, fast>(words, multiplier);
}

// Makes the rowwise part; `fast` tells whether the faster way of row_codes takes it.
template <bool nvfp4, bool squares, Rounding rounding, Stores stores>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, bool fast, Shared& shared) {
    const Rule rule = rule_of<nvfp4, stores>(a, false, shared);
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
    Block block{};
    if constexpr (squares) block = square_block<nvfp4>(rule, shared);
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = row_of_step(i);
        uint32_t words[kPairs];
        rows.read_words(line - row_of_step(0), words);
        if constexpr (!squares) {
            if (!row_block<nvfp4, rounding>(a, rule, words, block)) {
                emit_any<rounding, stores>(a, false, line, shared);
                continue;
            }
        }
        const uint2 codes = rounding == Rounding::Stochastic || fast
                                ? any_row_codes<nvfp4, true, rounding>(rule, shared, words, line, block.multiplier)
                                : any_row_codes<nvfp4, false, rounding>(rule, shared, words, line, block.multiplier);
        put_chunk<stores>(rule, shared, line, block.scale, codes);
    }
}

// Stores chunks of two neighbouring columns, one after the other, since both at once would take more registers than there are.
template <bool nvfp4>
__device__ __forceinline__ void emit_stochastic_columns(const Rule& rule, Shared& shared, const uint32_t (&words)[kChunk],
                                                        int line, const Block (&blocks)[2]) {
#pragma unroll 1
    for (int upper = 0; upper < 2; upper++) {
        const Block block = upper ? blocks[1] : blocks[0];
        const PhiloxWords random = line_random(rule, shared, line + upper);
        put_chunk<Stores::Bytes>(rule, shared, line + upper, block.scale,
                                 stochastic_column_codes<nvfp4>(words, upper, block.multiplier, random));
    }
}

// Makes the columnwise part; `fast` tells whether the faster way of column_codes takes it.
template <bool nvfp4, bool squares, Rounding rounding, Stores stores>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, bool fast, Shared& shared) {
    const Rule rule = rule_of<nvfp4, stores>(a, true, shared);
    static_assert(kChunkSteps == 4);
    const int first = column_pair_word<Bf16>(column_of_step<Bf16>(0), chunk_of_lane());
    const int second = column_pair_word<Bf16>(column_of_step<Bf16>(2), chunk_of_lane());
    Block blocks[2]{};
    if constexpr (squares) blocks[0] = blocks[1] = square_block<nvfp4>(rule, shared);
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += 2) {
        const int line = column_of_step<Bf16>(0) + i * 4;
        uint32_t words[kChunk];
        read_column_pair(shared.tile, i == 0 ? first : second, words);
        if constexpr (!squares) {
            if (!column_blocks<nvfp4, rounding>(a, rule, words, blocks)) {
                emit_any<rounding, stores>(a, true, line, shared);
                emit_any<rounding, stores>(a, true, line + 1, shared);
                continue;
            }
        }
        if constexpr (rounding == Rounding::Stochastic) {
            emit_stochastic_columns<nvfp4>(rule, shared, words, line, blocks);
        } else {
            uint2 codes[2];
            if (fast)
                column_codes<nvfp4, true>(words, blocks[0].multiplier, blocks[1].multiplier, codes);
            else column_codes<nvfp4, false>(words, blocks[0].multiplier, blocks[1].multiplier, codes);
            put_chunk<stores>(rule, shared, line, blocks[0].scale, codes[0]);
            put_chunk<stores>(rule, shared, line + 1, blocks[1].scale, codes[1]);
        }
    }
}

// Loads the tile, and what all threads know of it; `put_scale_tables` makes the tables that the kernel needs. Ends with a
// barrier. Returns what put_scale_tables does.
template <bool nvfp4, Stores stores, class PutTables>
__device__ __forceinline__ bool load_tile(const Arguments& a, const TilePlace& place, bool early, Shared& shared,
                                          const PutTables& put_scale_tables) {
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, place.scope) : 0;
    const bool wide = stores == Stores::Wide || a.wide_in;
    static_assert(sizeof(shared.scales) >= kTile * sizeof(uint4));
    uint4* const last = reinterpret_cast<uint4*>(shared.scales);  // which are made later
    if (!early) {
        const SourcePlace source(p, place, shared.place.group);
        if (wide)
            copy_plain(shared.tile, p.source.plain, source);
        else
            start_shifted_tile(shared.tile, last, p, source);
    }
    describe_tile(p, place, shared.place);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, place.scope);
    const bool fast = put_scale_tables(amax);
    if (wide)
        wait_for_pieces();
    else
        shift_tile(shared.tile, last, p, SourcePlace(p, place, shared.place.group));
    __syncthreads();
    return fast;
}

__device__ __forceinline__ void store_all_scales(const QuantizeProblem& p, const Shared& shared) {
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.place.parts[kRowwisePart], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.place.parts[kColumnwisePart], shared.scales[1]);
}

// Four over six is NVFP4's in squares here; of lines it has the kernel below, which needs other registers.
template <bool nvfp4, bool squares, Rounding rounding, Stores stores>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<Bf16> + (!nvfp4 || (squares && rounding == Rounding::Nearest)))
    quantize_fp4_pairs_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    const bool early = start_early(shared.tile, a.early);
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.place.group, place)) return wait_for_previous_kernel();
    const bool fast = load_tile<nvfp4, stores>(a, place, early, shared, [&](float amax) {
        if constexpr (rounding == Rounding::Stochastic) put_keys(p, shared.keys);
        if constexpr (nvfp4 && rounding == Rounding::Stochastic) put_tables(p, amax, shared.tables);
        if constexpr (nvfp4 && rounding != Rounding::Stochastic) return !put_cut_tables(p, amax, shared);
        return a.plain;
    });
    const bool plain = !squares || square_scales<nvfp4, rounding>(a, shared);
    if (plain) {
        if (p.has_rowwise) emit_rowwise<nvfp4, squares, rounding, stores>(a, fast, shared);
        if (p.has_columnwise) emit_columnwise<nvfp4, squares, rounding, stores>(a, fast, shared);
    } else if constexpr (nvfp4 && squares) {
        emit_any_squares<rounding, stores>(a, shared);
    }
    store_all_scales(p, shared);
}

template <Rounding rounding>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<Bf16>)
    quantize_fp4_lines_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    const bool early = start_early(shared.tile, a.early);
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.place.group, place)) return wait_for_previous_kernel();
    load_tile<true, Stores::Bytes>(a, place, early, shared, [&](float amax) {
        put_errors(p, amax, shared);
        return true;
    });
    emit_better<rounding>(a, shared);
    store_all_scales(p, shared);
}

// ---- Bands -----------------------------------------------------------------------------------------------------------

// Stores the scales of a tile of bands, and what pads groups behind their last bands.
template <bool nvfp4>
__device__ __forceinline__ void store_band_scales(const QuantizeProblem& p, Shared& shared) {
    constexpr int rows = kBandRows<nvfp4>;
    const auto& bands = bands_of<nvfp4>(shared);
    const PlacedBand& at = bands.of_warp();
    __syncthreads();
    if (p.has_rowwise && at.band.exists()) {
        store_row_scales(p.rowwise, bands, [&](int line, int i) { return shared.scales[0][line][i]; });
        if (at.band.rows_behind > 0) store_placed_rows_behind<rows>(p.rowwise, at, bands.columns.lines);
    }
    const uint32_t(&words)[kTile][2] = shared.scales[1];
    if (!p.columnwise.layout.swizzled)
        return store_compact_columns(p.columnwise, bands, [&](int line, int i) { return words[line][i]; });
    const int place = bands.place_of_warp();
    store_swizzled_columns(bands, [&](int line) {
        return __funnelshift_r(words[line][nvfp4 ? place / 4 : 0], nvfp4 && place < 4 ? words[line][1] : 0, place % 4 * 8);
    });
}

// Takes bands of whatever groups, all of its parts aligned, rounded to nearest.
template <bool nvfp4, bool squares>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<Bf16> + (!nvfp4 || squares))
    quantize_fp4_bands_kernel(const __grid_constant__ BandArguments<nvfp4> a) {
    constexpr Rounding rounding = Rounding::Nearest;
    constexpr Stores stores = Stores::Bands;
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, 0) : 0;
    auto& bands = bands_of<nvfp4>(shared);
    if (!copy_bands(shared.tile, p, a.bands)) return wait_for_previous_kernel();
    describe_bands(p, a.bands, bands);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, 0);
    const bool fast = nvfp4 ? !put_cut_tables(p, amax, shared) : a.plain;
#pragma unroll 1
    do {
        wait_for_pieces();
        __syncthreads();
        const bool plain = !squares || square_scales<nvfp4, rounding>(a, shared);
        if (plain) {
            if (p.has_rowwise) emit_rowwise<nvfp4, squares, rounding, stores>(a, fast, shared);
            emit_columnwise<nvfp4, squares, rounding, stores>(a, fast, shared);
        } else if constexpr (nvfp4 && squares) {
            emit_any_squares<rounding, stores>(a, shared);
        }
        store_band_scales<nvfp4>(p, shared);
    } while (copy_next_bands(shared.tile, p, a.bands, bands));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    bool nvfp4, squares;
    Rounding rounding;
    Stores stores;
    bool operator==(const Key&) const = default;
};

template <bool nvfp4, bool squares, Rounding rounding, Stores stores = Stores::Bytes>
constexpr KernelEntry<Key, Arguments> entry() {
    return {{nvfp4, squares, rounding, stores},
            quantize_fp4_pairs_kernel<nvfp4, squares, rounding, stores>,
            kChunkThreads,
            sizeof(Shared)};
}

template <Rounding rounding>
constexpr KernelEntry<Key, Arguments> lines_entry() {
    return {{true, false, rounding, Stores::Bytes}, quantize_fp4_lines_kernel<rounding>, kChunkThreads, sizeof(Shared)};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<true, false, Rounding::Nearest, Stores::Wide>(),
    entry<true, false, Rounding::Nearest, Stores::Shifted>(),
    entry<true, true, Rounding::Nearest, Stores::Wide>(),
    entry<true, true, Rounding::Nearest, Stores::Shifted>(),
    entry<false, false, Rounding::Nearest, Stores::Wide>(),
    entry<false, false, Rounding::Nearest, Stores::Shifted>(),
    entry<false, true, Rounding::Nearest, Stores::Wide>(),
    entry<false, true, Rounding::Nearest, Stores::Shifted>(),
    entry<true, false, Rounding::Stochastic>(),
    entry<true, true, Rounding::Stochastic>(),
    entry<false, false, Rounding::Stochastic>(),
    entry<false, true, Rounding::Stochastic>(),
    entry<true, true, Rounding::FourOverSixMae>(),
    entry<true, true, Rounding::FourOverSixMse>(),
    lines_entry<Rounding::FourOverSixMae>(),
    lines_entry<Rounding::FourOverSixMse>(),
};

template <bool nvfp4, bool squares>
constexpr KernelEntry<bool, BandArguments<nvfp4>> band_entry() {
    return {squares, quantize_fp4_bands_kernel<nvfp4, squares>, kChunkThreads, sizeof(Shared)};
}

constexpr KernelEntry<bool, BandArguments<false>> mx_band_kernels[] = {band_entry<false, false>(),
                                                                       band_entry<false, true>()};
constexpr KernelEntry<bool, BandArguments<true>> nv_band_kernels[] = {band_entry<true, false>(), band_entry<true, true>()};

// Returns how chunks are stored: Wide where all of the input and the parts is aligned.
Stores stores_of(const Arguments& a, Rounding rounding) {
    if (rounding != Rounding::Nearest) return Stores::Bytes;
    const bool wide = a.wide_in && (a.wide[0] || !a.problem.has_rowwise) && (a.wide[1] || !a.problem.has_columnwise);
    return wide ? Stores::Wide : Stores::Shifted;
}

// Returns whether groups go by bands: to nearest, all of it aligned, NVFP4 with one global maximum. Compact scales of MX
// squares stand once for all rows of a band.
bool fits_bands(const QuantizeProblem& p, const Key& key) {
    const bool squares = key.squares && !key.nvfp4;
    const auto fits = [&](const QuantizedPart& part) {
        return part.scope_stride == 0 && (!squares || part.layout.swizzled);
    };
    return fits_shared_bands(p) && key.stores == Stores::Wide && p.tile.length == (key.nvfp4 ? kNvBlock : kMxBlock) &&
           fits(p.columnwise) && (!p.has_rowwise || fits(p.rowwise));
}

// Launches the kernel over bands.
template <bool nvfp4>
void launch_bands(const Context& context, const KernelEntry<bool, BandArguments<nvfp4>> (&list)[2], const Arguments& all,
                  const Key& key, void* stream, Start start) {
    const BandArguments<nvfp4> a{all, BandTiles<kBandRows<nvfp4>>(all.problem)};
    launch(context, list, key.squares, "quantize_fp4_pairs", a.bands.grid(), stream, a, start);
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1)
        return [format = problem.format] { return std::string("needs nvfp4 or mxfp4, found ") + format->name; };
    if (problem.source.plain.format != MXQ_FORMAT_BF16)
        return [format = problem.source.plain.format] { return std::string("needs bf16, found ") + find_format(format)->name; };
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.tile.is_row()) return "needs scales of blocks, found row";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = problem.compute_amax
                            ? launch_amax(context, problem, problem.rowwise.amax, problem.columnwise.amax, call)
                            : Start::AfterAll;
    const bool wide_in = is_wide_tile_source(problem);
    const Arguments a{early_tiles(problem, wide_in),
                      problem,
                      Tiles(problem),
                      scale_steps<E2M1>(problem.scale_rounding, problem.nonfinite),
                      is_plain_mxfp4(problem),
                      wide_in,
                      {is_wide_part(problem.rowwise), is_wide_part(problem.columnwise)}};
    if (a.tiles.count() == 0) return;
    const Rounding rounding = rounding_of(problem);
    const Key key{problem.format->is_nvfp4(), problem.square_tiles, rounding, stores_of(a, rounding)};
    if (!fits_bands(problem, key))
        launch(context, kernels, key, "quantize_fp4_pairs", a.tiles.grid(), call.stream, a, start);
    else if (key.nvfp4)
        launch_bands<true>(context, nv_band_kernels, a, key, call.stream, start);
    else
        launch_bands<false>(context, mx_band_kernels, a, key, call.stream, start);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernels(mx_band_kernels);
    load_kernels(nv_band_kernels);
}

}  // namespace

const QuantizeImplementation quantize_fp4_pairs = {"quantize_fp4_pairs", declines, nullptr, run, load};

}  // namespace mxq::cuda
