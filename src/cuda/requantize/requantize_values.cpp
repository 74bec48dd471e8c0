// requantize_values: a part of any format and layout to the parts of any other, through fp32 values in registers; experts
// and groups.
//
//     codes in memory --words of 4 codes a row--> elements --scales--> values --steps of quantize_tile--> parts
//
// It runs quantize_tile's kernels with a quantized source (tile/patch_source.cuh). A thread reads the codes of its 16 rows x
// 4 columns: four codes of each row (rowwise) or 16 of each column (columnwise). The scales of the source come through
// shared memory, a word for each block and row of the tile.
//
// Bytes an element: 0.53 to 1.03 read, as much written for each part. Bound by instructions: about 17 an element and part,
// by ncu's issue slots.
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.h"

namespace mxq::cuda {
namespace {

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    launch_quantize_tile(context, problem, call, "requantize_values");
}

}  // namespace

// Nothing to load: quantize_tile does.
const QuantizeImplementation requantize_values = {"requantize_values", declines, tile_workspace_bytes, run};

}  // namespace mxq::cuda
