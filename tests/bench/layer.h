// A grouped linear layer: the quantizes and products that its output, or its output and both gradients, take.
#pragma once

#include "case.h"

// The calls of the case besides the product of its outputs, which is the case itself; none where it is no layer.
std::vector<Case> layer_calls(const Case& c);
