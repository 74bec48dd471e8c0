// requantize_transpose: 8-bit codes of one part to MXFP8 1x32 of the other part, rowwise to columnwise or back; experts, and
// groups of rows. All accesses are aligned 16-byte vectors.
//
//     global memory --cp.async--> 128 x 128 codes in shared memory, K-major as they are stored
//     warp lane     --> 16 rows x 2 columns: values, the maximum of each column, one scale for 32 rows by two lanes
//     registers     --> 16 codes of a column: one 16-byte store; eight lanes store 128 contiguous bytes
//     scales        --> bytes in shared memory, then words in the order of the layout
//
// "Rows" are the K-major rows of the source: rows of a rowwise part, columns of a columnwise one.
// Bytes an element: 1.03 read once, 1.03 written. Bound by instructions, about 11 an element.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/requantize/transposed_codes.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/store_scale_words.cuh"

namespace mxq::cuda {
namespace {

template <class From, class To>
__global__ void __launch_bounds__(kTransposeThreads, kTransposeBlocks)
    requantize_transpose_kernel(const __grid_constant__ TransposeArguments a) {
    alignas(128) __shared__ uint4 memory[(sizeof(TransposeShared) + sizeof(uint4) - 1) / sizeof(uint4)];
    auto& shared = *reinterpret_cast<TransposeShared*>(memory);
    const QuantizeProblem& p = a.problem;
    TileCoord coord;
    if (!find_tile(a.tiles, p.grouped, shared.group, coord)) return;
    start_code_copy(p, coord, shared);
    if (threadIdx.x < 3) describe_part(p, coord, shared.group, int(threadIdx.x), shared.parts);
    __syncthreads();
    load_scale_table(p.source.quantized, shared);
    wait_for_copies();
    __syncthreads();
    const int out = p.source.quantized.columnwise ? 0 : 1;
    if (p.nonfinite == Nonfinite::Saturate) emit_transposed<From, To, Nonfinite::Saturate>(a, out, shared);
    else emit_transposed<From, To, Nonfinite::Propagate>(a, out, shared);
    __syncthreads();
    store_scale_words<kTransposeThreads, 1>(part_of(p, out), shared.parts[kRowwisePart + out],
                                            [&](int row, int) { return shared.words[row]; });
}

// ---- On the host -----------------------------------------------------------------------------------------------------

constexpr auto kernels = kernels_of(
    []<class From, class To>(From, To) { return kernel(requantize_transpose_kernel<From, To>, kTransposeThreads); },
    ElementsOf8Bits{}, ElementsOf8Bits{});

// Returns whether all K-major rows of a part are whole aligned 16-byte vectors.
bool has_aligned_rows(const QuantizedPart& part, bool grouped) {
    return code_access(part, grouped) >= 16 && part.length % 16 == 0;
}

Reason declines(const Context& context, const QuantizeProblem& p) {
    if (Reason reason = declines_tile_options(p); !reason.empty()) return reason;
    const QuantizedPart& from = p.source.quantized;
    const bool grouped = p.grouped.set();
    if (from.bits != 8) return "needs codes of 8 bits in the source, found fewer";
    if (!p.format->is_mx() || p.format->bits != 8 || p.tile.length != kMxBlock || p.square_tiles)
        return [format = p.format, tile = p.tile.name] {
            return std::string("needs mxfp8 with 1x32 scales out, found ") + format->name + " with " + tile;
        };
    if (from.columnwise ? p.has_columnwise : p.has_rowwise)
        return "needs the transposed part alone out, found the part that the source has";
    if (from.columnwise && grouped) return "needs a rowwise source with groups, found a columnwise one";
    const QuantizedPart& to = from.columnwise ? p.rowwise : p.columnwise;
    if (!has_aligned_rows(from, grouped) || !has_aligned_rows(to, grouped))
        return "needs rows of whole aligned 16-byte vectors, found others";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& p, const Launch& call) {
    const TransposeArguments a{Tiles(p), scale_steps_of(p), p};
    if (a.tiles.count() == 0) return;
    launch(context, kernels, {p.source.quantized.element, p.format->element}, "requantize_transpose", a.tiles.grid(), call.stream,
           a);
}

}  // namespace

const QuantizeImplementation requantize_transpose = {"requantize_transpose", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
