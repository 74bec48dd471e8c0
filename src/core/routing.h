// The descriptor behind mxq_routing.
#pragma once
#include <cstdint>

#include "core/handle.h"
#include "core/tensor.h"

namespace mxq {

// The arrays of a routing, with their exact sizes; NULL where nothing is set.
struct RoutingArrays {
    Buffer ends, row_tokens, choice_rows, row_weights;
};

}  // namespace mxq

struct mxq_routing_s : mxq::Handle<mxq::Kind::Routing> {
    int64_t tokens = 0;
    int32_t choices = 0, experts = 0;
    int32_t first = 0, count = 0;  // the experts of this rank; a count of 0: all
    int32_t id_type = 0;           // MXQ_TYPE_*
    mxq::Numbers weights;
    mxq::Buffer ids, memory, dropped;
    bool is_computed = false;  // by another library, which gave the arrays
    mxq::RoutingArrays computed;

    // Returns the number of choices of all tokens, which is that of the rows.
    int64_t rows() const { return tokens * choices; }
    int32_t local_experts() const { return count == 0 ? experts : count; }
    uint64_t end_bytes() const { return uint64_t(local_experts()) * sizeof(int32_t); }
    uint64_t row_bytes() const { return uint64_t(rows()) * sizeof(int32_t); }  // of each array but the ends

    uint64_t required_bytes() const;
    // Returns the arrays in the memory, or those that were computed.
    mxq::RoutingArrays arrays() const;
};
