// A grouped linear layer: the quantizes and products that its output, or its output and both gradients, take.
#pragma once

#include "case.h"

// Returns the calls that a layer makes in addition to its forward product. Other cases have none.
std::vector<Case> layer_calls(const Case& c);
