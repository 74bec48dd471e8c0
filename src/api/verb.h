// The one way through a verb: a validated problem, the implementation that takes it, its workspace, its run.
#pragma once
#include <memory>

#include "core/options.h"
#include "core/validate.h"
#include "dispatch/implementation.h"

namespace mxq {

template <class Options>
std::string wanted(const Options* options) {
    return options ? options->implementation : std::string();
}

template <class Problem>
void run_verb(const ImplementationList<Problem>& list, const Context& context, const Problem& problem, bool nothing_to_do,
              const std::string& implementation, void* workspace, uint64_t workspace_bytes, void* stream) {
    const Implementation<Problem>& chosen = choose(list, context, problem, implementation);
    check_workspace(workspace_need(chosen, context, problem), workspace, workspace_bytes);
    if (!nothing_to_do) chosen.run(context, problem, {workspace, stream});
}

template <class Problem>
void query_verb(const ImplementationList<Problem>& list, const Context& context, const Problem& problem,
                const std::string& implementation, mxq_plan** plan) {
    const Implementation<Problem>& chosen = choose(list, context, problem, implementation);
    if (plan) *plan = new mxq_plan_s{chosen.name, workspace_need(chosen, context, problem)};
}

}  // namespace mxq
