#include "cpu/given_numbers.h"

#include <algorithm>
#include <cfloat>

#include "core/groups.h"
#include "numerics/fp8_scale.h"

namespace mxq::cpu {
namespace {

bool is_empty_group(const GroupedRows& grouped, int64_t g) {
    return grouped.set() && read_end(grouped.groups, g) == (g == 0 ? 0 : read_end(grouped.groups, g - 1));
}

// The reciprocal of a quantization scale is stored.
bool is_scale(float number) { return number > 0 && number <= FLT_MAX && fp8_stored_scale(number) <= FLT_MAX; }

// Checks one number for all, which a tensor without matrices may leave out, or one for each matrix or group.
template <class Accepts>
void require_numbers(const float* numbers, bool each, int64_t matrices, const GroupedRows& grouped, const std::string& name,
                     const Accepts& accepts, const char* expected) {
    const int64_t count = grouped.set() ? grouped.groups.count : matrices;
    for (int64_t i = 0; i < (each ? count : std::min<int64_t>(matrices, 1)); i++)
        if (!accepts(numbers[i]) && !(each && is_empty_group(grouped, i)))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "%s[%lld] is %g, expected %s; was it computed before this call?", name.c_str(),
                 (long long)i, double(numbers[i]), expected);
}

std::string name_of(const char* tensor, const QuantizedPart& part, const char* numbers) {
    return format_text("%s.%s.%s", tensor, part.columnwise ? "columnwise" : "rowwise", numbers);
}

}  // namespace

void require_decodable(const QuantizedPart& part, const GroupedRows& grouped, const char* name) {
    if (part.scale_type != ScaleType::E4M3) return;
    const float* const numbers = part.decode_scale ? part.decode_scale : part.amax;
    require_numbers(
        numbers, part.scope_stride != 0, part.matrices, grouped,
        name_of(name, part, part.decode_scale ? "decode_scale" : "amax"), [](float number) { return number >= 0; },
        "0 or more");
}

void require_quantizable(const QuantizeProblem& problem) {
    if (problem.source.is_quantized()) require_decodable(problem.source.quantized, problem.grouped, "in");
    if (!problem.compute_amax && problem.has_rowwise) require_decodable(problem.rowwise, problem.grouped, "out");
    if (!problem.compute_amax && problem.has_columnwise) require_decodable(problem.columnwise, problem.grouped, "out");
    if (!problem.quantization_scale) return;
    const QuantizedPart& part = problem.has_rowwise ? problem.rowwise : problem.columnwise;
    require_numbers(problem.quantization_scale, part.layout.matrix_scales != 0, part.matrices, problem.grouped,
                    "out.quantization_scale", is_scale,
                    "a finite number above 0 with a finite reciprocal, so above 2.94e-39");
}

}  // namespace mxq::cpu
