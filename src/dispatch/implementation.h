// How a verb finds the code that does it. A verb has one ordered list (lists.cpp); the first implementation that takes the
// problem runs it, and every one that declines says why.
#pragma once
#include <string>

#include "core/context.h"
#include "core/error.h"
#include "core/problem.h"

namespace mxq {

// What a run gets beside its problem. The workspace is as large as `workspace_bytes` asked for.
struct Launch {
    void* workspace;
    void* stream;
};

template <class Problem>
struct Implementation {
    const char* name;
    // Empty: takes it. Otherwise the reason why not, as "needs ..., found ...".
    std::string (*declines)(const Context&, const Problem&);
    uint64_t (*workspace_bytes)(const Context&, const Problem&);  // NULL: none
    void (*run)(const Context&, const Problem&, const Launch&);
};

using QuantizeImplementation = Implementation<QuantizeProblem>;
using DequantizeImplementation = Implementation<DequantizeProblem>;
using AmaxImplementation = Implementation<AmaxProblem>;
using PadImplementation = Implementation<PadProblem>;
using SwizzleImplementation = Implementation<SwizzleProblem>;
using GemmImplementation = Implementation<GemmProblem>;

template <class Problem>
struct ImplementationList {
    const Implementation<Problem>* const* first;
    size_t count;
};

// The policy: best first.
extern const ImplementationList<QuantizeProblem> quantize_implementations;
extern const ImplementationList<QuantizeProblem> requantize_implementations;
extern const ImplementationList<AmaxProblem> amax_implementations;
extern const ImplementationList<PadProblem> pad_implementations;
extern const ImplementationList<DequantizeProblem> dequantize_implementations;
extern const ImplementationList<SwizzleProblem> swizzle_implementations;
extern const ImplementationList<GemmProblem> gemm_implementations;

// The first that takes the problem, or the one called `wanted` where that is not empty. UNSUPPORTED with every reason.
template <class Problem>
const Implementation<Problem>& choose(const ImplementationList<Problem>& list, const Context& context,
                                      const Problem& problem, const std::string& wanted) {
    std::string reasons;
    for (size_t i = 0; i < list.count; i++) {
        const Implementation<Problem>& candidate = *list.first[i];
        if (!wanted.empty() && wanted != candidate.name) continue;
        const std::string reason = candidate.declines(context, problem);
        if (reason.empty()) return candidate;
        reasons += std::string(reasons.empty() ? "" : "; ") + candidate.name + ": " + reason;
    }
    if (!reasons.empty())
        throw Error(MXQ_STATUS_UNSUPPORTED, "no implementation takes this (" + reasons + "); change what they name");
    std::string names;
    for (size_t i = 0; i < list.count; i++) names += std::string(i == 0 ? "" : ", ") + list.first[i]->name;
    throw Error(MXQ_STATUS_UNSUPPORTED,
                "options.implementation is \"" + wanted + "\", expected one of: " + names + "; or leave it unset");
}

template <class Problem>
uint64_t workspace_need(const Implementation<Problem>& chosen, const Context& context, const Problem& problem) {
    return chosen.workspace_bytes ? chosen.workspace_bytes(context, problem) : 0;
}

constexpr uint64_t kWorkspaceAlignment = 256;

// BUFFER_TOO_SMALL, MISSING_BUFFER or MISALIGNED for a workspace that does not serve.
void check_workspace(uint64_t need, const void* workspace, uint64_t bytes);

}  // namespace mxq
