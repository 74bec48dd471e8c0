// Replaces operator new and pthread_create of a program, which can then be made to fail at any time.
#ifndef MXQ_TESTS_FAULT_ALLOCATIONS_H
#define MXQ_TESTS_FAULT_ALLOCATIONS_H

#include <mxq/mxq.h>

#include <atomic>
#include <functional>

namespace fault {

// Where armed, an allocation fails after as many others have succeeded. Counts what is allocated. The start of a thread
// fails after as many others; below 0: none.
extern std::atomic<bool> armed;
extern std::atomic<long> until_failure, live, until_no_thread;

// Fails allocation 0, 1, 2, ... of a call, one in each run, until the call succeeds. Returns how many allocations it makes.
// `undo` destroys what a successful call created, so that anything still allocated is a leak.
int fail_each_allocation(const std::function<mxq_status()>& call, const std::function<bool()>& untouched,
                         const std::function<void()>& undo);
int fail_each_allocation(const std::function<mxq_status()>& call, const std::function<bool()>& untouched);

}  // namespace fault

#endif
