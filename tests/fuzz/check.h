// Makes one call with its query, and checks what holds for every call, whatever its arguments are.
#ifndef MXQ_TESTS_FUZZ_CHECK_H
#define MXQ_TESTS_FUZZ_CHECK_H

#include "tensors.h"

#include <functional>

namespace fuzz {

struct Verb {
    const char* name;
    std::function<mxq_status(mxq_context*, mxq_plan**)> query;
    std::function<mxq_status(mxq_context*, void* workspace, uint64_t bytes)> run;
};

// Ends the process where one of these does not hold:
//     query     writes nothing; has a plan if and only if it succeeds; has a message otherwise
//     refused   the query refused, so the call refuses, with the same status or for what no query sees; nothing is written
//     accepted  the call succeeds, or finds in memory what the query could not see, and has then written nothing
//     run       nothing is written but outputs; another instruction set and other threads leave the same bytes
void check_call(Scene& scene, const Verb& verb);

// Returns contexts of each instruction set that this CPU has, with one thread and with tasks for three.
const std::vector<mxq_context*>& contexts();

}  // namespace fuzz

#endif
