// Runs a validated problem of any verb: chooses an implementation, checks the workspace, logs, runs.
#pragma once
#include <memory>
#include <new>
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
    bool follows = false;  // another verb ran before, as a step of the same call
};

struct Workspace {
    void* memory;
    uint64_t bytes;
};

// Memory of a call on the host.
class HostMemory {
public:
    explicit HostMemory(uint64_t bytes)
        : memory_(bytes == 0 ? nullptr : ::operator new(size_t(bytes), std::align_val_t(kWorkspaceAlignment))) {}
    ~HostMemory() { ::operator delete(memory_, std::align_val_t(kWorkspaceAlignment)); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    void* get() const { return memory_; }

private:
    void* const memory_;
};

// Returns the bytes of workspace that rows take which are gathered first. A CPU context has memory of its own for them.
template <class Problem>
uint64_t gathered_bytes(const Context& context, const Choice<Problem>& choice, const Gathered<Problem>& gathered) {
    return choice.gathers && !context.is_cpu() ? gathered.bytes() : 0;
}

// Returns what a plan and the log add to the reason.
template <class Problem>
std::string notes_of(const Problem& problem, const Choice<Problem>& choice) {
    return with_note(note_of(problem), choice.gathers ? "gathers rows by index first" : "");
}

// Runs an implementation, after gathering rows by index where it does not read them.
template <class Problem>
void run_choice(const Context& context, const Problem& problem, const Choice<Problem>& choice,
                const Gathered<Problem>& gathered, void* workspace, const Launch& launch) {
    bool follows = launch.follows;
    if (choice.gathers)
        for (const GatherProblem& gather : gathered.gathers()) {
            gather_rows(context, gather, {nullptr, launch.stream, nullptr, follows});
            follows = true;
        }
    auto* const memory = static_cast<uint8_t*>(workspace) + gathered_bytes(context, choice, gathered);
    void* const own = choice.prepared.workspace_bytes == 0 ? nullptr : memory;
    choice.implementation->run(context, choice.gathers ? gathered.problem() : problem,
                               {own, launch.stream, choice.prepared.state.get(), follows});
}

template <class Problem>
void run_verb(const Verb<Problem>& verb, const Call& call, const Problem& problem, const Workspace& workspace,
              void* stream) {
    const Context& context = call.context;
    const Wanted name = wanted(context, verb.name, call.implementation);
    const HostMemory host(context.is_cpu() ? Gathered<Problem>(problem, nullptr).bytes() : 0);
    const Gathered<Problem> gathered(problem, context.is_cpu() ? host.get() : workspace.memory);
    const Choice<Problem> choice = ask(verb, context, problem, name, gathered);
    for (const Decline& decline : choice.declined())
        log_line(LogLevel::Trace, [&] { return line_of(context, verb.name, decline); });
    const Implementation<Problem>& chosen = require_choice(choice, verb, context, name);
    check_workspace(choice.prepared.workspace_bytes + gathered_bytes(context, choice, gathered), workspace.memory,
                    workspace.bytes);
    log_line(LogLevel::Info, [&] {
        return line_of(context, verb.name + detail_of(problem), call.tensors, chosen.name,
                       with_note(reason_of(name, choice.declined()), notes_of(problem, choice)),
                       readable_groups(context, problem));
    });
    if (!is_nothing(problem))
        run_choice(context, problem, choice, gathered, workspace.memory, {nullptr, stream, nullptr, call.follows});
}

// Returns how a problem would run, or throws the reasons why it would not.
template <class Problem>
mxq_plan_s plan_of(const Verb<Problem>& verb, const Call& call, const Problem& problem) {
    const Context& context = call.context;
    const Wanted name = wanted(context, verb.name, call.implementation);
    const Gathered<Problem> gathered(problem, nullptr);
    const Choice<Problem> choice = ask(verb, context, problem, name, gathered);
    const Implementation<Problem>& chosen = require_choice(choice, verb, context, name);
    mxq_plan_s made;
    made.implementation = chosen.name;
    made.workspace_bytes = choice.prepared.workspace_bytes + gathered_bytes(context, choice, gathered);
    made.reason = with_note(reason_of(name, choice.declined()), notes_of(problem, choice));
    made.bound = bound_of(chosen, context, problem);
    return made;
}

}  // namespace mxq
