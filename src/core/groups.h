// Groups whose ends lie in host memory: they are read and checked before anything is written.
#pragma once
#include <vector>

#include "core/error.h"
#include "core/problem.h"

namespace mxq {

// Rows [row, row + rows), as the caller counts them, of group `index`.
struct Group {
    int64_t index, row, rows;
};

// Returns a number of an array of MXQ_TYPE_*.
inline int64_t read_integer(const void* numbers, int32_t type, int64_t index) {
    return type == MXQ_TYPE_INT32 ? static_cast<const int32_t*>(numbers)[index] : static_cast<const int64_t*>(numbers)[index];
}
inline int64_t read_end(const Groups& groups, int64_t index) { return read_integer(groups.ends, groups.type, index); }
inline int64_t read_row_index(const RowIndices& by, int64_t row) { return read_integer(by.indices, by.type, row); }

// Refuses a last end that is not the number of rows, where the caller promised that. `name` is that of the array in messages.
inline void require_covered(const GroupedRows& grouped, int64_t last_end, const std::string& name) {
    if (grouped.groups.cover_rows && last_end != grouped.rows)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s says %lld for the end of the last group, expected %lld, the number of rows, as "
             "mxq_tensor_set_groups_cover_rows promises; give ends, which are one past the last row of each group, and no "
             "starts or sizes",
             name.c_str(), (long long)last_end, (long long)grouped.rows);
}

// Returns every group, empty ones too, or refuses ends out of order. `name` is that of the tensor in messages.
inline std::vector<Group> read_groups(const GroupedRows& grouped, const char* name) {
    std::vector<Group> found;
    found.reserve(size_t(grouped.groups.count));
    int64_t before = 0;
    for (int64_t g = 0; g < grouped.groups.count; g++) {
        const int64_t end = read_end(grouped.groups, g);
        if (end < before)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "%s.ends[%lld] is %lld, expected at least %lld, the end before; give the running sums of the groups' sizes",
                 name, (long long)g, (long long)end, (long long)before);
        if (end > grouped.rows)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "%s.ends[%lld] is %lld, expected at most %lld (its rows)", name, (long long)g,
                 (long long)end, (long long)grouped.rows);
        found.push_back({g, before, end - before});
        before = end;
    }
    require_covered(grouped, before, std::string(name) + ".ends");
    return found;
}

// Returns where each group starts in a part of these units, and one more entry for where the last one ends.
inline std::vector<GroupStart> group_starts(const std::vector<Group>& groups, const GroupUnits& units) {
    std::vector<GroupStart> starts{{}};
    starts.reserve(groups.size() + 1);
    for (const Group& group : groups) {
        GroupStart next = starts.back();
        next.skip(units, group.rows);
        starts.push_back(next);
    }
    return starts;
}

}  // namespace mxq
