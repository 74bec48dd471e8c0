// Compares a run with an earlier one.
#pragma once

#include "report.h"

// Prints every row of the report that is slower than the row with the same command in the file by more than `percent`, or
// that the file has a time of and the report has not. True if there is none, and at least one row was compared.
bool check_against(const std::string& path, const Report& report, double percent);
