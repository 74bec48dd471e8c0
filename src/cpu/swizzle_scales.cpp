// Compact scales to swizzled ones and back: 128 lines x 128 scales at a time, one byte read and one written per scale.
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"
#include "cpu/scale_window.h"

namespace mxq::cpu {
namespace {

std::string declines(const Context& context, const SwizzleProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

void move_scales(const SwizzleProblem::Scales& part, const Rectangle& piece) {
    const ScaleWindow<const uint8_t> in(part.in, part.in_layout, piece.matrix, piece.row, piece.col);
    const ScaleWindow<uint8_t> out(part.out, part.out_layout, piece.matrix, piece.row, piece.col);
    uint8_t scales[kRectangleCols];
    for (int64_t line = 0; line < piece.rows; line++) {
        in.load(line, 0, piece.cols, scales);
        out.store(line, piece.cols, scales);
    }
    out.clear(piece.rows, round_up(piece.rows, kSwizzleRows), piece.cols);
}

void run(const Context& context, const SwizzleProblem& problem, const Launch&) {
    for (int32_t i = 0; i < problem.count; i++) {
        const SwizzleProblem::Scales& part = problem.parts[i];
        const Grid grid{part.matrices, part.lines, part.in_layout.columns, kRectangleRows, kRectangleCols};
        for_each_rectangle(context.cpu->pool(), grid, [&](const Rectangle& piece) { move_scales(part, piece); });
    }
}

}  // namespace

const SwizzleImplementation swizzle_scales = {"cpu", declines, nullptr, run};

}  // namespace mxq::cpu
