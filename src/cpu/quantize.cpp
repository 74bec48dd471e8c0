// The CPU implementations of quantize and requantize. Maxima that stand for more than blocks are gathered first; one pass
// makes everything else.
//
//     FP8, whole lines   maxima gathered where the scales belong    -> codes -> scales made of them
//     MX, whole lines    maxima gathered in memory of the call      -> codes and swizzled scales, or -> codes -> scales
//     NVFP4              maxima gathered unless they are given      -> codes and block scales
//     else                                                             codes and block scales
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/given_numbers.h"
#include "cpu/implementations.h"
#include "cpu/quantize_slices.h"
#include "numerics/e8m0.h"
#include "numerics/fp8_scale.h"

namespace mxq::cpu {
namespace {

int64_t code_bytes(const QuantizeProblem& problem) {
    const int64_t elements = problem.source.matrices * problem.source.rows * problem.source.cols;
    return elements * problem.format->bits / 8 * (problem.has_rowwise + problem.has_columnwise);
}

// Stores the scales of whole K-major rows in place of the maxima that they are made from.
void store_whole_scales(const QuantizeProblem& problem, const QuantizedPart& part, int64_t count) {
    const Fp8Rule rule = fp8_rule_of(problem);
    auto* const scales = reinterpret_cast<float*>(part.scales);
    for (int64_t i = 0; i < count; i++) {
        if (part.amax && !problem.quantization_scale) part.amax[i] = scales[i];
        scales[i] = fp8_stored_scale(problem.quantization_scale ? problem.quantization_scale[i]
                                                                : fp8_quantization_scale(scales[i], rule));
    }
}

// Stores the one byte of each K-major row, made from its maximum.
void store_line_bytes(const QuantizeProblem& problem, const QuantizedPart& part, int64_t count) {
    const ScaleSteps steps = with_element(
        problem.format->element, [&]<class E>(E) { return scale_steps<E>(problem.scale_rounding, problem.nonfinite); });
    for (int64_t i = 0; i < count; i++) part.scales[i] = uint8_t(scale_of(float_bits(part.amax[i]), steps));
}

// Stores compact scales of whole K-major rows, once their codes are made.
void store_scales(const QuantizeProblem& problem, const QuantizedPart& part, const Slices& slices) {
    const int64_t count = slices.maxima_count(part);
    if (has_line_bytes(problem)) return store_line_bytes(problem, part, count);
    store_whole_scales(problem, part, count);
    slices.clear_padding(part);
}

// The maxima of the K-major rows of both parts, where the scales have no room for them.
struct LineMaxima {
    std::vector<float> rowwise, columnwise;
};

// Returns the problem with memory for the maxima of K-major rows, if it needs them.
QuantizeProblem with_line_maxima(const QuantizeProblem& given, LineMaxima& maxima) {
    QuantizeProblem problem = given;
    if (!has_line_bytes(problem)) return problem;
    const QuantizedPart &rowwise = problem.rowwise, &columnwise = problem.columnwise;
    const int64_t scopes = problem.grouped.set() ? problem.grouped.groups.count : columnwise.matrices;
    maxima.rowwise.resize(size_t(rowwise.matrices * rowwise.lines));
    maxima.columnwise.resize(size_t(scopes * columnwise.lines));
    problem.rowwise.amax = maxima.rowwise.data();
    problem.columnwise.amax = maxima.columnwise.data();
    return problem;
}

void run(const Context& context, const QuantizeProblem& problem, const Launch&) { run_quantize(context, problem); }

}  // namespace

void run_quantize(const Context& context, const QuantizeProblem& given) {
    const Engine& engine = *context.cpu;
    LineMaxima line_maxima;
    const QuantizeProblem problem = with_line_maxima(given, line_maxima);
    const Slices slices(problem, maxima_for_quantize);
    require_quantizable(problem);
    const Scratch scratch(engine.scratch());
    bool gathers = false;
    for_each_part(problem, [&](const QuantizedPart& part) {
        const Maxima maxima = maxima_for_quantize(problem, part);
        if (!maxima.first) return;
        std::fill_n(maxima.first, slices.maxima_count(part), 0.0f);
        gathers = true;
    });
    if (gathers) slices.gather(engine);
    const bool stream = code_bytes(problem) >= kStreamBytes;
    slices.for_each(engine.pool(), [&](const QuantizeSlice& slice, const Rectangle& region, int worker) {
        engine.kernels().quantize(slice, region, stream, scratch.of(worker));
    });
    if (has_whole_lines(problem))
        for_each_part(problem, [&](const QuantizedPart& part) {
            if (!part.layout.swizzled) store_scales(problem, part, slices);
        });
}

const QuantizeImplementation quantize = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
