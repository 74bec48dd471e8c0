#include "core/routing.h"

using namespace mxq;

uint64_t mxq_routing_s::required_bytes() const { return aligned_bytes(end_bytes()) + 3 * aligned_bytes(row_bytes()); }

RoutingArrays mxq_routing_s::arrays() const {
    if (is_computed) return computed;
    if (!memory.pointer) return {};
    auto* next = static_cast<uint8_t*>(memory.pointer);
    const auto take = [&](uint64_t bytes) {
        const Buffer array{bytes == 0 ? nullptr : next, bytes};
        next += aligned_bytes(bytes);
        return array;
    };
    RoutingArrays found;
    found.ends = take(end_bytes());
    found.row_tokens = take(row_bytes());
    found.choice_rows = take(row_bytes());
    found.row_weights = take(row_bytes());
    return found;
}
