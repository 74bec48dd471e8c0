// Reads an environment variable of the user, and none in a program that has more rights than its user (set-uid,
// capabilities).
#pragma once
#include <cstdlib>

namespace mxq {

inline const char* environment_variable(const char* name) { return ::secure_getenv(name); }

}  // namespace mxq
