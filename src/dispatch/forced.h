// MXQ_IMPL: the implementations that a process is told to take.
#pragma once
#include <map>
#include <string>

namespace mxq {

// Verb to implementation of "verb:implementation[,verb:implementation...]"; of NULL or "" none. INVALID_ARGUMENT for a verb
// or an implementation that there is not.
std::map<std::string, std::string, std::less<>> forced_implementations(const char* text);

}  // namespace mxq
