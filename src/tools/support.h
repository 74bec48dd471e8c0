// Finds what a context's verbs do with each format, by the queries of the library.
#pragma once
#include <string>
#include <vector>

#include "handles.h"

namespace tools {

// The sizes of the tensors in the queries. Their pointers are NULL, which a query takes as aligned and large enough.
constexpr int64_t kRows = 4096, kCols = 4096;
constexpr int32_t kGroups = 8;

struct Answer {
    std::string verb, format;
    std::string scaling;         // "1x32"; empty for plain formats
    std::string use;             // "rowwise", "(N,T)", ...; empty where a verb has only one use
    std::string implementation;  // empty: not supported
    std::string reason;          // why this implementation was chosen, or why there is none
    std::string bound;           // class of a product's error bound, "exact_products"; empty for other verbs
    uint64_t workspace_bytes = 0;

    bool operator==(const Answer&) const = default;
};

// Queries every verb with every format, scaling and use. The answers are ordered by verb, then by format.
std::vector<Answer> ask_all(mxq_context* context);

}  // namespace tools
