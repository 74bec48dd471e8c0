#include "api/guard.h"
#include "core/options.h"

using namespace mxq;

const char* mxq_plan_implementation(const mxq_plan* plan) { return plan && is_alive(plan) ? plan->implementation.c_str() : ""; }

const char* mxq_plan_reason(const mxq_plan* plan) { return plan && is_alive(plan) ? plan->reason.c_str() : ""; }

uint64_t mxq_plan_workspace_bytes(const mxq_plan* plan) { return plan && is_alive(plan) ? plan->workspace_bytes : 0; }

int32_t mxq_plan_bound(const mxq_plan* plan) { return plan && is_alive(plan) ? plan->bound : MXQ_BOUND_NONE; }

void mxq_plan_destroy(mxq_plan* plan) { destroy(plan); }
