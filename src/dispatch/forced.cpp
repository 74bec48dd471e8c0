#include "dispatch/forced.h"

#include <algorithm>
#include <string_view>

#include "dispatch/choice.h"

namespace mxq {
namespace {

[[noreturn]] void refuse(std::string_view entry, const std::string& what) {
    constexpr size_t shown = 64;
    throw Error(MXQ_STATUS_INVALID_ARGUMENT, "the environment variable MXQ_IMPL has \"" + std::string(entry.substr(0, shown)) +
                                                 "\", " + what + "; or leave it unset");
}

const VerbNames& require_verb(const std::vector<VerbNames>& table, std::string_view verb, std::string_view entry) {
    std::vector<std::string> verbs;
    for (const VerbNames& row : table) {
        if (row.verb == verb) return row;
        verbs.push_back(row.verb);
    }
    refuse(entry, "expected a verb before the colon: one of " + joined(verbs));
}

}  // namespace

std::map<std::string, std::string, std::less<>> forced_implementations(const Context& context, const char* text) {
    std::map<std::string, std::string, std::less<>> forced;
    if (!text || !*text) return forced;
    const std::vector<VerbNames> table = verb_table();
    for (std::string_view rest = text, entry; rest.data(); ) {
        const size_t comma = rest.find(',');
        entry = rest.substr(0, comma);
        rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
        const size_t colon = entry.find(':');
        if (colon == entry.npos)
            refuse(entry, "expected verb:implementation, such as grouped_gemm:mma_bf16, several separated by commas");
        const VerbNames& row = require_verb(table, entry.substr(0, colon), entry);
        const std::string name(entry.substr(colon + 1));
        if (std::find(row.implementations.begin(), row.implementations.end(), name) == row.implementations.end())
            refuse(entry, "expected an implementation of " + row.verb + ": one of " +
                              joined(of_device(context, row.implementations)));
        if (!forced.emplace(row.verb, name).second) refuse(entry, "expected each verb once");
    }
    return forced;
}

}  // namespace mxq
