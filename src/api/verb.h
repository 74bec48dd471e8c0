// Runs a validated problem of any verb: chooses an implementation, checks the workspace, logs, runs.
#pragma once
#include <memory>
#include <string_view>

#include "core/log.h"
#include "core/options.h"
#include "core/validate.h"
#include "dispatch/choice.h"

namespace mxq {

template <class Options>
std::string_view implementation_of(const Options* options) {
    return options ? std::string_view(options->implementation) : std::string_view();
}

// The arguments that all verbs have: the context, the options' implementation, the tensors in the order of the arguments.
struct Call {
    const Context& context;
    std::string_view implementation;
    Tensors tensors;
};

struct Workspace {
    void* memory;
    uint64_t bytes;
};

template <class Problem>
void run_verb(const Verb<Problem>& verb, const Call& call, const Problem& problem, bool nothing_to_do,
              const Workspace& workspace, void* stream) {
    const Context& context = call.context;
    const Wanted name = wanted(context, verb.name, call.implementation);
    const Choice<Problem> choice = ask(verb, context, problem, name);
    for (const Decline& decline : choice.declined())
        log_line(LogLevel::Trace, [&] { return line_of(context, verb.name, decline); });
    const Implementation<Problem>& chosen = require_choice(choice, verb, context, name);
    check_workspace(choice.prepared.workspace_bytes, workspace.memory, workspace.bytes);
    log_line(LogLevel::Info, [&] {
        return line_of(context, verb.name + detail_of(problem), call.tensors, chosen.name,
                       with_note(reason_of(name, choice.declined()), note_of(problem)), readable_groups(context, problem));
    });
    if (!nothing_to_do) chosen.run(context, problem, {workspace.memory, stream, choice.prepared.state.get()});
}

template <class Problem>
void query_verb(const Verb<Problem>& verb, const Call& call, const Problem& problem, mxq_plan** plan) {
    const Wanted name = wanted(call.context, verb.name, call.implementation);
    const Choice<Problem> choice = ask(verb, call.context, problem, name);
    const Implementation<Problem>& chosen = require_choice(choice, verb, call.context, name);
    if (!plan) return;
    auto made = std::make_unique<mxq_plan_s>();
    made->implementation = chosen.name;
    made->workspace_bytes = choice.prepared.workspace_bytes;
    made->reason = with_note(reason_of(name, choice.declined()), note_of(problem));
    made->bound = bound_of(chosen, call.context, problem);
    *plan = made.release();
}

}  // namespace mxq
