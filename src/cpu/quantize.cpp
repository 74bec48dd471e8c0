#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

std::string declines(const Context& context, const QuantizeProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

int64_t code_bytes(const QuantizeProblem& problem) {
    return problem.in.matrices * problem.in.rows * problem.in.cols * (problem.has_rowwise + problem.has_columnwise);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const bool stream = code_bytes(problem) >= kStreamBytes;
    const Grid grid = grid_of(problem.in, problem.has_columnwise || problem.square_tiles);
    for_each_rectangle(engine.pool(), grid,
                       [&](const Rectangle& piece) { engine.kernels().quantize(problem, piece, stream); });
}

}  // namespace

const QuantizeImplementation quantize = {"cpu", declines, nullptr, run};

}  // namespace mxq::cpu
