#include "routes.hpp"

namespace {

// Returns number `index` of running sums as a count.
int32_t count_at(const int32_t* sums, int64_t index) { return sums[index] - (index > 0 ? sums[index - 1] : 0); }

int64_t add(std::vector<Segment>& to, int peer, int64_t row, int64_t rows) {
    to.push_back({peer, row, rows});
    return rows;
}

}  // namespace

Routes routes_of_tokens(const std::vector<int32_t>& counts, int rank, int ranks, int32_t experts) {
    Routes routes;
    const int32_t own = experts / ranks;
    const auto of = [&](int source) { return counts.data() + int64_t(source) * (ranks + experts); };
    for (int peer = 0; peer < ranks; ++peer) {
        routes.sent += add(routes.out, peer, routes.sent, count_at(of(rank), peer));
        routes.arrived += add(routes.in, peer, routes.arrived, count_at(of(peer), rank));
    }
    for (int32_t e = rank * own; e < (rank + 1) * own; ++e) {
        for (int source = 0; source < ranks; ++source) routes.expert_rows += count_at(of(source) + ranks, e);
        routes.ends.push_back(int32_t(routes.expert_rows));
    }
    return routes;
}

Routes routes_of_choices(const std::vector<int32_t>& counts, int rank, int ranks, int32_t experts) {
    Routes routes;
    const int32_t own = experts / ranks;
    const auto of = [&](int source) { return counts.data() + int64_t(source) * experts; };
    for (int32_t e = 0; e < experts; ++e) routes.sent += add(routes.out, e / own, routes.sent, count_at(of(rank), e));
    for (int32_t e = rank * own; e < (rank + 1) * own; ++e) {
        for (int source = 0; source < ranks; ++source)
            routes.arrived += add(routes.in, source, routes.arrived, count_at(of(source), e));
        routes.ends.push_back(int32_t(routes.arrived));
    }
    routes.expert_rows = routes.arrived;
    return routes;
}

Routes routes_of_capacity(int32_t capacity, int ranks, int32_t top) {
    Routes routes;
    for (int peer = 0; peer < ranks; ++peer) {
        add(routes.out, peer, int64_t(peer) * capacity, capacity);
        add(routes.in, peer, int64_t(peer) * capacity, capacity);
    }
    routes.sent = routes.arrived = int64_t(ranks) * capacity;
    routes.expert_rows = routes.arrived * top;
    return routes;
}
