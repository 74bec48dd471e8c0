// Takes the times of a case: all libraries in turns, with what they are compared with.
#pragma once

#include "report.h"

Row measure(Device& device, const std::vector<Library>& libraries, const Rates& rates, const Case& c, int threads);
