// Thread pools that the contexts of a process share.
#pragma once
#include <memory>

#include "cpu/thread_pool.h"

namespace mxq::cpu {

// Returns the pool of so many threads that other contexts use, which were created under the calling thread's affinity, or
// starts one. It ends with its last user. May be called by several threads at once.
std::shared_ptr<ThreadPool> shared_pool(int threads);

}  // namespace mxq::cpu
