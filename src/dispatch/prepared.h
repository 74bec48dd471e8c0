// What an implementation finds out about a problem when dispatch asks it.
#pragma once
#include <cstdint>
#include <memory>

#include "dispatch/reason.h"

namespace mxq {

struct Prepared {
    Reason declines;  // empty: takes it
    uint64_t workspace_bytes = 0;
    std::shared_ptr<const void> state;  // of the implementation's own, for its run
};

constexpr uint64_t kWorkspaceAlignment = 256;

}  // namespace mxq
