// MXQ_IMPL: the implementations that a process is told to take.
#pragma once
#include <map>
#include <string>

#include "core/context.h"

namespace mxq {

// Verb to implementation of "verb:implementation[,verb:implementation...]"; of NULL or "" none. INVALID_ARGUMENT for a verb
// or an implementation that there is not; the message lists those of the context's device.
std::map<std::string, std::string, std::less<>> forced_implementations(const Context& context, const char* text);

}  // namespace mxq
