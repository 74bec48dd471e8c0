// A routing, its setters and its getters.
#include "core/routing.h"

#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"

using namespace mxq;

namespace {

mxq_routing_s* create_routing(int64_t tokens, int32_t choices, int32_t experts) {
    if (choices < 1) fail(MXQ_STATUS_INVALID_ARGUMENT, "choices is %d, expected 1 or more for each token", choices);
    if (experts < 1 || experts > MXQ_MAX_GROUPS)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "experts is %d, expected 1 to %d", experts, MXQ_MAX_GROUPS);
    if (tokens < 0 || tokens > MXQ_MAX_DIM / choices)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tokens is %lld, expected 0 to %d: %d choices each, at most %d rows",
             (long long)tokens, MXQ_MAX_DIM / choices, choices, MXQ_MAX_DIM);
    auto* routing = new mxq_routing_s;
    routing->tokens = tokens;
    routing->choices = choices;
    routing->experts = experts;
    return routing;
}

// Requires exactly the bytes that an array has: a type that is not its own has another size.
void require_exact(const char* name, const void* array, uint64_t bytes, uint64_t need) {
    buffer_of(array, bytes, name);
    if (array && bytes != need)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "bytes of %s is %llu, expected exactly %llu; check its type and the routing's shape", name,
             (unsigned long long)bytes, (unsigned long long)need);
}

// Refuses experts of this rank with which arrays that were set have another size.
void require_arrays_fit(const mxq_routing_s& routing) {
    if (routing.is_computed && routing.computed.ends.bytes != routing.end_bytes())
        fail(
            MXQ_STATUS_INVALID_ARGUMENT,
            "routing has computed ends of %llu bytes, expected %llu for %d experts; call mxq_routing_set_computed with NULL "
            "first",
            (unsigned long long)routing.computed.ends.bytes, (unsigned long long)routing.end_bytes(),
            routing.local_experts());
    if (routing.memory.pointer && routing.memory.bytes < routing.required_bytes())
        fail(
            MXQ_STATUS_BUFFER_TOO_SMALL,
            "routing has memory of %llu bytes, expected at least %llu for %d experts; call mxq_routing_set_memory with NULL "
            "first",
            (unsigned long long)routing.memory.bytes, (unsigned long long)routing.required_bytes(), routing.local_experts());
}

// Returns an array that another library computed. Only weights may be missing.
Buffer computed_array(const char* name, const void* array, uint64_t bytes, uint64_t need, bool is_optional) {
    require_exact(name, array, bytes, need);
    if (!array && need != 0 && !is_optional)
        fail(MXQ_STATUS_MISSING_BUFFER, "%s is NULL, expected %llu bytes, since other arrays are given; give all, or none",
             name, (unsigned long long)need);
    return {const_cast<void*>(array), array ? bytes : 0};
}

}  // namespace

mxq_status mxq_routing_create(int64_t tokens, int32_t choices, int32_t experts, mxq_routing** out) {
    return guard_create(out, [&] { return create_routing(tokens, choices, experts); });
}

void mxq_routing_destroy(mxq_routing* routing) { destroy(routing); }

mxq_status mxq_routing_set_ids(mxq_routing* routing, const void* ids, uint64_t bytes, int32_t type) {
    return with(routing, [&](auto& r) {
        if (ids) require_type(type, "type");
        require_exact("ids", ids, bytes, uint64_t(r.rows()) * (type == MXQ_TYPE_INT32 ? 4 : 8));
        r.ids = buffer_of(ids, bytes, "ids");
        r.id_type = ids ? type : 0;
    });
}

mxq_status mxq_routing_set_weights(mxq_routing* routing, int32_t format, const void* weights, uint64_t bytes) {
    return with(routing, [&](auto& r) {
        const bool none = format == 0 && !weights;
        if (!none && format != MXQ_FORMAT_F32 && format != MXQ_FORMAT_BF16)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "format is %d, expected MXQ_FORMAT_F32 (1) or MXQ_FORMAT_BF16 (3), or 0 with NULL for no weights", format);
        require_exact("weights", weights, bytes, uint64_t(r.rows()) * (format == MXQ_FORMAT_F32 ? 4 : 2));
        r.weights = {format, buffer_of(weights, bytes, "weights")};
    });
}

mxq_status mxq_routing_set_local_experts(mxq_routing* routing, int32_t first, int32_t count) {
    return with(routing, [&](auto& r) {
        const bool all = first == 0 && count == 0;
        if (!all && (first < 0 || count < 1 || first > r.experts - count))
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "first is %d and count %d, expected 1 or more of %d experts, or 0 and 0 for all", first, count, r.experts);
        mxq_routing_s local = r;
        local.first = first;
        local.count = count;
        require_arrays_fit(local);
        r = local;
    });
}

mxq_status mxq_routing_set_memory(mxq_routing* routing, void* memory, uint64_t bytes) {
    return with(routing, [&](auto& r) {
        const Buffer block = buffer_of(memory, bytes, "memory");
        if (memory) require_block(memory, bytes, r.required_bytes(), "mxq_routing_required_bytes");
        r.memory = block;
        r.is_computed = false;
        r.computed = {};
    });
}

mxq_status mxq_routing_required_bytes(const mxq_routing* routing, uint64_t* bytes) {
    return with(routing, [&](auto& r) {
        require_output(bytes, "bytes");
        *bytes = r.required_bytes();
    });
}

mxq_status mxq_routing_set_dropped(mxq_routing* routing, int32_t* dropped, uint64_t bytes) {
    return with(routing, [&](auto& r) {
        require_exact("dropped", dropped, bytes, sizeof(int32_t));
        r.dropped = buffer_of(dropped, bytes, "dropped");
    });
}

mxq_status mxq_routing_set_computed(mxq_routing* routing, const int32_t* ends, uint64_t end_bytes, const int32_t* row_tokens,
                                    uint64_t row_token_bytes, const int32_t* choice_rows, uint64_t choice_row_bytes,
                                    const float* row_weights, uint64_t row_weight_bytes) {
    return with(routing, [&](auto& r) {
        const bool given = ends || row_tokens || choice_rows || row_weights;
        RoutingArrays arrays;
        arrays.ends = computed_array("ends", ends, end_bytes, r.end_bytes(), !given);
        arrays.row_tokens = computed_array("row_tokens", row_tokens, row_token_bytes, r.row_bytes(), !given);
        arrays.choice_rows = computed_array("choice_rows", choice_rows, choice_row_bytes, r.row_bytes(), !given);
        arrays.row_weights = computed_array("row_weights", row_weights, row_weight_bytes, r.row_bytes(), true);
        r.is_computed = given;
        r.computed = arrays;
        if (given) r.memory = {};
    });
}

mxq_status mxq_routing_get_shape(const mxq_routing* routing, int64_t* tokens, int32_t* choices, int32_t* experts) {
    return with(routing, [&](auto& r) {
        put(tokens, r.tokens);
        put(choices, r.choices);
        put(experts, r.experts);
    });
}

mxq_status mxq_routing_get_ids(const mxq_routing* routing, const void** ids, uint64_t* bytes, int32_t* type) {
    return with(routing, [&](auto& r) {
        put(ids, bytes, r.ids);
        put(type, r.id_type);
    });
}

mxq_status mxq_routing_get_weights(const mxq_routing* routing, int32_t* format, const void** weights, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(format, weights, bytes, r.weights); });
}

mxq_status mxq_routing_get_local_experts(const mxq_routing* routing, int32_t* first, int32_t* count) {
    return with(routing, [&](auto& r) {
        put(first, r.first);
        put(count, r.count);
    });
}

mxq_status mxq_routing_get_memory(const mxq_routing* routing, void** memory, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(memory, bytes, r.memory); });
}

mxq_status mxq_routing_get_dropped(const mxq_routing* routing, int32_t** dropped, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(dropped, bytes, r.dropped); });
}

mxq_status mxq_routing_get_ends(const mxq_routing* routing, const int32_t** ends, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(ends, bytes, r.arrays().ends); });
}

mxq_status mxq_routing_get_row_tokens(const mxq_routing* routing, const int32_t** tokens, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(tokens, bytes, r.arrays().row_tokens); });
}

mxq_status mxq_routing_get_choice_rows(const mxq_routing* routing, const int32_t** rows, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(rows, bytes, r.arrays().choice_rows); });
}

mxq_status mxq_routing_get_row_weights(const mxq_routing* routing, const float** weights, uint64_t* bytes) {
    return with(routing, [&](auto& r) { put(weights, bytes, r.arrays().row_weights); });
}
