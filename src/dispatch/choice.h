// How a verb finds the code that does it. A verb has one ordered list (lists.cpp); the first implementation that takes the
// problem runs it, and every one that declines says why.
#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "core/routed_problem.h"
#include "dispatch/explain.h"
#include "dispatch/gathered.h"
#include "dispatch/implementation.h"
#include "dispatch/prepared.h"

namespace mxq {

// A verb by its name without mxq_, and its implementations, best first.
template <class Problem>
struct Verb {
    const char* name;
    const Implementation<Problem>* const* first;
    size_t count;
    // Changes the order in which a copy of the list is asked for this problem; NULL: nothing does.
    void (*order)(const Context&, const Problem&, std::span<const Implementation<Problem>*>) = nullptr;
};

namespace verbs {
extern const Verb<QuantizeProblem> quantize, requantize;
extern const Verb<AmaxProblem> amax;
extern const Verb<DequantizeProblem> dequantize;
extern const Verb<PadProblem> pad_groups, unpad_groups;
extern const Verb<ConvertProblem> convert;
extern const Verb<SwizzleProblem> swizzle_scales, unswizzle_scales;
extern const Verb<GemmProblem> gemm, grouped_gemm;
extern const Verb<RouteProblem> route;
extern const Verb<CombineProblem> combine;
extern const Verb<CombineBackwardProblem> combine_backward;
extern const Verb<ActivateProblem> activate, activate_backward;
// Steps of mxq_expert_layer alone: the first product with the routing and the activation, the second, and the sum.
extern const Verb<RoutedProductProblem> activated_product, routed_product;
extern const Verb<RoutedCombineProblem> routed_combine;
}  // namespace verbs

// Copies rows by index on the context's device.
void gather_rows(const Context& context, const GatherProblem& problem, const Launch& launch);

// Loads what every implementation needs on the context's device; called when the context is created.
void load_implementations(const Context& context);

// The names of all implementations of a verb.
struct VerbNames {
    std::string verb;
    std::vector<std::string> implementations;
};
std::vector<VerbNames> verb_table();

template <class Problem>
VerbNames names_of(const Verb<Problem>& verb) {
    VerbNames names{verb.name, {}};
    for (size_t i = 0; i < verb.count; i++) names.implementations.push_back(verb.first[i]->name);
    return names;
}

constexpr size_t kMostImplementations = 24;  // of a verb

// The answer to a problem: the implementation that takes it, what it needs, and why those asked before declined.
template <class Problem>
struct Choice {
    const Implementation<Problem>* implementation = nullptr;  // NULL: none
    Prepared prepared;
    std::array<Decline, kMostImplementations> declines;
    size_t decline_count = 0;
    bool gathers = false;  // rows by index are gathered into memory first, since the implementation does not read them

    std::span<const Decline> declined() const { return {declines.data(), decline_count}; }
};

// Returns whether an implementation is of the context's device. All of the CPU, and no others, are called `cpu`.
inline bool is_of_device(const Context& context, std::string_view name) { return (name == "cpu") == context.is_cpu(); }

// Returns the names that are of the context's device.
inline std::vector<std::string> of_device(const Context& context, const std::vector<std::string>& names) {
    std::vector<std::string> found;
    for (const std::string& name : names)
        if (is_of_device(context, name)) found.push_back(name);
    return found;
}

// Asks the implementations of the context's device, in the verb's order, and returns the first that takes the problem.
// Where a name is wanted, only the implementation of that name is asked, on any device, so that it can say why it declines.
// `gathered` has the problem with its rows gathered, for implementations that do not read rows by index.
template <class Problem>
Choice<Problem> ask(const Verb<Problem>& verb, const Context& context, const Problem& problem, const Wanted& wanted,
                    const Gathered<Problem>& gathered) {
    Choice<Problem> choice;
    const auto consider = [&](const Implementation<Problem>& candidate) {
        if (choice.implementation) return;
        if (wanted.name.empty() ? !is_of_device(context, candidate.name) : wanted.name != candidate.name) return;
        const bool reads = candidate.reads_by_index && candidate.reads_by_index(problem);
        const bool gathers = gathered.any() && !reads;
        Prepared prepared = prepare(candidate, context, gathers ? gathered.problem() : problem);
        if (!prepared.declines.empty()) {
            choice.declines[choice.decline_count++] = {candidate.name, prepared.declines};
        } else {
            choice.implementation = &candidate;
            choice.gathers = gathers;
            choice.prepared = std::move(prepared);
        }
    };
    std::array<const Implementation<Problem>*, kMostImplementations> asked;
    std::copy_n(verb.first, verb.count, asked.begin());
    if (verb.order && wanted.name.empty()) verb.order(context, problem, {asked.data(), verb.count});
    for (size_t i = 0; i < verb.count; i++) consider(*asked[i]);
    return choice;
}

// Asks as above, without memory for rows that are gathered.
template <class Problem>
Choice<Problem> ask(const Verb<Problem>& verb, const Context& context, const Problem& problem, const Wanted& wanted) {
    return ask(verb, context, problem, wanted, Gathered<Problem>(problem, nullptr));
}

// Throws UNSUPPORTED with every reason where none takes the problem.
template <class Problem>
const Implementation<Problem>& require_choice(const Choice<Problem>& choice, const Verb<Problem>& verb,
                                              const Context& context, const Wanted& wanted) {
    if (choice.implementation) return *choice.implementation;
    if (choice.decline_count > 0) refuse_declined(wanted, choice.declined());
    refuse_name(wanted, joined(of_device(context, names_of(verb).implementations)));
}

template <class Problem>
int32_t bound_of(const Implementation<Problem>& chosen, const Context& context, const Problem& problem) {
    return chosen.bound ? chosen.bound(context, problem) : MXQ_BOUND_NONE;
}

// Throws BUFFER_TOO_SMALL, MISSING_BUFFER or MISALIGNED for an unfit workspace. A workspace that is given and not needed is
// checked too, so that a mistake shows on every device.
void check_workspace(uint64_t need, const void* workspace, uint64_t bytes);

}  // namespace mxq
