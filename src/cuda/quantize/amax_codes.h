// Largest magnitudes of MX codes of 8 bits, from the codes as they are stored: of each line, or of each position of a
// matrix's lines.
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "cuda/launch.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

struct AmaxOfCodes {
    QuantizedPart from;
    float* out;       // a maximum for each line, or for each position, matrix after matrix
    bool propagates;  // a NaN is a maximum
};

// Returns whether one maximum is wanted for each line or position of MX codes of 8 bits that lie in whole aligned pieces.
bool are_of_codes(const QuantizeProblem& p, const float* rowwise, const float* columnwise);

// Enqueues a kernel that writes the maxima of lines.
void amax_of_code_lines(const Context& context, const AmaxOfCodes& amax, const Launch& call);

// Enqueues a kernel that raises the maxima of positions, which a kernel before has zeroed.
void amax_of_code_positions(const Context& context, const AmaxOfCodes& amax, const Launch& call, Start start);

void load_amax_codes();

}  // namespace mxq::cuda
