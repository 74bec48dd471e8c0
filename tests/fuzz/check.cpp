#include "check.h"

#include <cstdlib>

namespace fuzz {

namespace {

void in_turn(void*, int32_t count, mxq_task task, void* data) {
    for (int32_t i = count - 1; i >= 0; --i) task(data, i);
}

std::vector<mxq_context*> make_contexts() {
    std::vector<mxq_context*> made;
    for (const char* isa : {"avx512bf16", "avx2", "avx512bw", "scalar"})
        for (const int32_t threads : {1, 3}) {
            setenv("MXQ_CPU_ISA", isa, 1);
            mxq_context_options* options = nullptr;
            mxq_context* context = nullptr;
            require(mxq_context_options_create(&options) == MXQ_STATUS_OK, "options of a context", mxq_last_error());
            mxq_context_options_set_threads(options, threads);
            if (threads > 1) mxq_context_options_set_parallel_for(options, in_turn, nullptr);
            require(mxq_context_create(MXQ_DEVICE_CPU, 0, options, &context) == MXQ_STATUS_OK, "a context",
                    mxq_last_error());
            mxq_context_options_destroy(options);
            made.push_back(context);
        }
    unsetenv("MXQ_CPU_ISA");
    return made;
}

// Returns whether a call may be refused so although its query was not. A query sees no values in memory, no missing pointers, and
// no difference between equal ends at other addresses.
bool may_come_late(mxq_status status) {
    const bool other_ends = status == MXQ_STATUS_SHAPE_MISMATCH && std::strstr(mxq_last_error(), "equal ends");
    return status == MXQ_STATUS_INVALID_ARGUMENT || status == MXQ_STATUS_MISSING_BUFFER || other_ends;
}

std::string said(mxq_status status) { return std::string(mxq_status_name(status)) + ", " + mxq_last_error(); }

mxq_status ask(Scene& scene, const Verb& verb, mxq_context* context) {
    mxq_plan* plan = nullptr;
    const mxq_status asked = verb.query(context, &plan);
    require((asked == MXQ_STATUS_OK) == (plan != nullptr), verb.name, "a query has a plan if and only if it succeeds");
    if (plan) {
        require(*mxq_plan_implementation(plan) != 0 && mxq_plan_reason(plan), verb.name, "a plan has a name");
        require(mxq_plan_workspace_bytes(plan) == 0, verb.name, "a CPU context needs no workspace");
    } else {
        require(*mxq_last_error() != 0, verb.name, "a refused query has a message");
    }
    mxq_plan_destroy(plan);
    require(scene.memory.unchanged(), verb.name, "a query writes nothing");
    require(verb.query(context, nullptr) == asked, verb.name, "a query without a plan answers the same");
    return asked;
}

}  // namespace

const std::vector<mxq_context*>& contexts() {
    static const auto* const all =
        new std::vector<mxq_context*>(make_contexts());  // they stay, so that none is freed too early
    return *all;
}

void check_call(Scene& scene, const Verb& verb) {
    mxq_context* const context = contexts()[scene.in.byte() % contexts().size()];
    mxq_context* const other = contexts()[scene.in.byte() % contexts().size()];
    const bool with_workspace = scene.in.seldom(16);
    const Buffer workspace = with_workspace ? scene.memory.take(scene.in.byte(), true, 256, scene.in.below(2)) : Buffer();
    scene.memory.seal();
    const mxq_status asked = ask(scene, verb, context);
    const std::string reason = asked == MXQ_STATUS_OK ? "" : said(asked);
    const mxq_status did = verb.run(context, workspace.address, workspace.bytes);
    // A call with several faults may name one that a query cannot see.
    if (asked != MXQ_STATUS_OK && !may_come_late(did))
        require(did == asked, verb.name, "the query said " + reason + "; the call " + said(did));
    require(asked == MXQ_STATUS_OK || did != MXQ_STATUS_OK, verb.name, "the query refuses what the call does: " + reason);
    if (did != MXQ_STATUS_OK) {
        require(*mxq_last_error() != 0, verb.name, "a refused call has a message");
        require(asked != MXQ_STATUS_OK || may_come_late(did) || (with_workspace && did == MXQ_STATUS_MISALIGNED), verb.name,
                "the query accepts what the call refuses: " + said(did));
        require(scene.memory.unchanged(), verb.name, "a refused call writes nothing: " + said(did));
        return;
    }
    require(scene.memory.kept(), verb.name, "a call writes outputs only");
    if (other == context) return;
    const std::vector<uint8_t> first = scene.memory.content();
    scene.memory.restore();
    require(verb.run(other, workspace.address, workspace.bytes) == did, verb.name, "another instruction set refuses");
    require(scene.memory.kept() && scene.memory.content() == first, verb.name,
            "another instruction set writes the same bytes");
}

}  // namespace fuzz
