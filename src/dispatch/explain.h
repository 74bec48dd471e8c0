// Which implementation a call gets, in words: for plans, messages and MXQ_LOG.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "core/layer_problem.h"
#include "dispatch/reason.h"

namespace mxq {

// An implementation that was asked and does not take the problem.
struct Decline {
    const char* name;
    Reason reason;
};

// The name that an implementation must have, and what says so; no name: any.
struct Wanted {
    std::string_view name;
    const char* by;  // "options.implementation" or "MXQ_IMPL"
};

// Returns the name that the options ask for, else that of MXQ_IMPL.
Wanted wanted(const Context& context, const char* verb, std::string_view of_options);

// "a, b, c"
std::string joined(const std::vector<std::string>& words);

// "a: reason; b, c: reason"
std::string text_of(std::span<const Decline> declined);

// Returns why a plan has this implementation and no better one; "" for the first of its list.
std::string reason_of(const Wanted& wanted, std::span<const Decline> declined);

// Throw UNSUPPORTED: all that were asked declined, or none has that name.
[[noreturn]] void refuse_declined(const Wanted& wanted, std::span<const Decline> declined);
[[noreturn]] void refuse_name(const Wanted& wanted, const std::string& names);

// Returns what a plan and the log add to the reason: which part is read where it is not the usual one. Empty: nothing.
template <class Problem>
std::string note_of(const Problem&) {
    return "";
}
std::string note_of(const GemmProblem& problem);

// Returns "reason; note", or the one that there is.
std::string with_note(const std::string& reason, const std::string& note);

// Returns what the log says of a problem in addition to its tensors.
template <class Problem>
std::string detail_of(const Problem&) {
    return "";
}
std::string detail_of(const GemmProblem& problem);   // its transposes
std::string detail_of(const RouteProblem& problem);  // its tokens, choices and experts
std::string detail_of(const ActivateProblem& problem);  // its activation

// Returns the groups of a call with their ends in host memory, or none where the host cannot read the ends.
template <class Problem>
GroupedRows readable_groups(const Context& context, const Problem& problem) {
    if constexpr (requires { problem.quantize; }) return readable_groups(context, problem.quantize);
    if constexpr (requires { problem.grouped; })
        if (context.is_cpu()) return problem.grouped;
    return {};
}
GroupedRows readable_groups(const Context& context, const GemmProblem& problem);

using Tensors = std::array<const mxq_tensor*, 3>;  // NULL behind the last

// For MXQ_LOG=info: "CPU: gemm (N,T), bf16 3 x 64, ...: cpu (mma_bf16: needs ...)".
std::string line_of(const Context& context, const std::string& verb, const Tensors& tensors, const char* implementation,
                    const std::string& reason, const GroupedRows& readable);

// For MXQ_LOG=trace: "CPU: gemm, declined by mma_bf16: needs ...".
std::string line_of(const Context& context, const char* verb, const Decline& decline);

}  // namespace mxq
