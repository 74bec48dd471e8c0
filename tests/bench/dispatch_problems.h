// Draws random products as users have them, for the suite "dispatch".
#pragma once

#include <cstdint>

#include "case.h"

// Returns as many problems, the same for the same seed and device. Those for the CPU are small.
std::vector<Case> dispatch_problems(int count, uint32_t seed, bool cuda);
