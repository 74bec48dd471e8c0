// What an implementation finds out about a problem when dispatch asks it.
#pragma once
#include <cstdint>
#include <memory>

#include "dispatch/implementation.h"
#include "dispatch/reason.h"

namespace mxq {

struct Prepared {
    Reason declines;  // empty: takes it
    uint64_t workspace_bytes = 0;
    std::shared_ptr<const void> state;  // of the implementation's own, for its run
};

constexpr uint64_t kWorkspaceAlignment = 256;

// Hands out a workspace from an address on; from 0 on where the address is not known yet.
struct WorkspaceParts {
    uintptr_t at = 0;

    template <class T>
    T* take(int64_t bytes) {
        T* const taken = reinterpret_cast<T*>(at);
        at += uintptr_t(round_up(bytes, int64_t(kWorkspaceAlignment)));
        return taken;
    }
};

// Returns why an implementation that takes `reads` and all that is denser declines these addresses.
inline Reason needs_nearer(Addresses found, Addresses reads) {
    if (found <= reads) return {};
    if (found == Addresses::Listed)
        return "needs contiguous experts, found a list of them (mxq_tensor_set_part_list or _data_list)";
    return "needs contiguous rows and experts, found strides (mxq_tensor_set_strides)";
}

template <class Problem>
Prepared prepare(const Implementation<Problem>& candidate, const Context& context, const Problem& problem) {
    if (Reason reason = needs_nearer(addresses_of(problem), candidate.reads); !reason.empty()) return {reason, 0, nullptr};
    if (reads_across(problem) && !candidate.reads_across)
        return {"needs K-major operands, found an MN-major one", 0, nullptr};
    if (is_row_invariant(problem) && !(candidate.keeps_rows && candidate.keeps_rows(problem)))
        return {"cannot promise the same bits for a row whatever the others are (leave row_invariant at 0)", 0, nullptr};
    if (candidate.prepare) return candidate.prepare(context, problem);
    Prepared prepared{candidate.declines(context, problem), 0, nullptr};
    if (prepared.declines.empty() && candidate.workspace_bytes)
        prepared.workspace_bytes = candidate.workspace_bytes(context, problem);
    return prepared;
}

}  // namespace mxq
