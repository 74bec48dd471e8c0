// What a context's verbs do with each format: the answers of the library's own queries.
#pragma once
#include <string>
#include <vector>

#include "handles.h"

namespace tools {

// The sizes that are asked for. NULL pointers count as aligned and large enough, so the answers are those of such tensors.
constexpr int64_t kRows = 4096, kCols = 4096;
constexpr int32_t kGroups = 8;

struct Answer {
    std::string verb, format;
    std::string scaling;         // "1x32"; "" of plain formats
    std::string use;             // "rowwise", "(N,T)", ...; "" where a verb has but one
    std::string implementation;  // "": not supported
    std::string reason;          // why this implementation, or why none
    std::string bound;           // "exact_products", the class of bound of a product; "" for other verbs
    uint64_t workspace_bytes = 0;

    bool operator==(const Answer&) const = default;
};

// Every verb with every format, scaling and use; a verb's answers, and in them a format's, stand together.
std::vector<Answer> ask_all(mxq_context* context);

}  // namespace tools
