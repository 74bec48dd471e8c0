// The CPU implementation of amax, which is the first pass of quantize alone.
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/quantize_slices.h"

namespace mxq::cpu {
namespace {

Maxima maxima_of(const QuantizeProblem& problem, const QuantizedPart& part) {
    return {part.amax, has_whole_lines(problem) ? part.layout.matrix_scales : part.scope_stride, 0};
}

void run(const Context& context, const AmaxProblem& problem, const Launch&) {
    const QuantizeProblem& quantize = problem.quantize;
    const Slices slices(quantize, maxima_of);
    for_each_part(quantize, [&](const QuantizedPart& part) {
        std::fill_n(part.amax, slices.maxima_count(part), 0.0f);
    });
    slices.gather(*context.cpu);
}

}  // namespace

const AmaxImplementation amax = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
