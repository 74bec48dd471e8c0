// A case made ready: operands in a device's memory, and for each library a call that enqueues the verb on them.
#pragma once

#include <optional>

#include "case.h"

// What a case moves and computes, by the rule of README.md.
struct Work {
    double bytes_read = 0, bytes_written = 0;
    double bytes_touched = 0;  // each once
    int streams_written = 1;
    double operations = 0;  // of a product
    double bytes() const { return bytes_read + bytes_written; }
};

struct LayerCall;

struct Operands {
    std::shared_ptr<Groups> groups;  // null: none
    Operand first, second;           // input and output; A and B
    std::optional<Operand> d, bias;
    std::shared_ptr<void> seed_offset;  // of stochastic rounding
    std::vector<LayerCall> others;      // of a layer: its calls but the product of its outputs

    // Made by the library; any other can work on them.
    static Operands make(Device& device, const Library& library, const Case& c);
    // These with another second operand; all else they share.
    Operands with_second(Operand other) const;
};

// A call of a layer, on operands of its own.
struct LayerCall {
    Case c;
    Operands operands;
};

Work work_of(const Library& library, const Case& c, const Operands& operands);

struct Prepared {
    std::string implementation, reason;  // why it was chosen, in the words of mxq_plan_reason
    Call call;
    Call query_and_call;
};

// Throws LeftOut where the library has no such function or no implementation takes the case. The operands must outlive it.
Prepared prepare(Device& device, const Library& library, const Case& c, const Operands& operands);
