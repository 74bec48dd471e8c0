// Stands between the library and CUDA's runtime, its driver and cuBLASLt: counts the calls of a program, and lets one of
// them fail. The linker's --wrap leads the library's calls here.
#ifndef MXQ_TESTS_FAULT_CALLS_H
#define MXQ_TESTS_FAULT_CALLS_H

#include <string>
#include <vector>

namespace fault {

using Trace = std::vector<std::string>;  // the names of calls, in their order

// What the library has allocated and not freed between begin_calls and end_calls.
extern long held;

// Begins to count. Call number `failing` fails, counted from 0; below 0: none. A call that ends something fails after it
// has done so, as what it ended cannot be ended again.
void begin_calls(long failing = -1);

struct Counted {
    Trace calls;
    std::string failed;    // the one that failed; "" where there were fewer calls
    long work_before = 0;  // work enqueued before it
};
Counted end_calls();

// The names of all entry points that can fail here.
std::vector<std::string> entry_points();
// The names that the library asked the driver or cuBLASLt for, and which are not among them.
std::vector<std::string> unknown_entry_points();

}  // namespace fault

#endif
