#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

std::string declines(const Context& context, const DequantizeProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

void run(const Context& context, const DequantizeProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const PlainMatrix& out = problem.out;
    const bool stream = out.matrices * out.rows * out.cols * find_format(out.format)->bytes() >= kStreamBytes;
    const Grid grid = grid_of(out, problem.columnwise);
    for_each_rectangle(engine.pool(), grid,
                       [&](const Rectangle& piece) { engine.kernels().dequantize(problem, piece, stream); });
}

}  // namespace

const DequantizeImplementation dequantize = {"cpu", declines, nullptr, run};

}  // namespace mxq::cpu
