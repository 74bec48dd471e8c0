// Refuses amaxes, decode scales and quantization scales of the caller's that are NaN or negative, as memory that nobody
// wrote often is. Refuses quantization scales that are 0 or infinite, or whose reciprocal is. A verb calls these functions
// once the ends of the groups are known to be in order, before it writes anything. Numbers of groups without rows are not
// looked at. The caller's floating-point environment changes nothing.
#pragma once
#include "core/problem.h"

namespace mxq::cpu {

// Checks what decoding a part takes besides codes and scales. `name` is that of the tensor in messages.
void require_decodable(const QuantizedPart& part, const GroupedRows& grouped, const char* name);

// Checks the input's numbers, and those of the output that are given and not computed.
void require_quantizable(const QuantizeProblem& problem);

}  // namespace mxq::cpu
