// mxq_route: every array, for all kinds of routings, on every device.
#include "../abi/says.h"
#include "routing.h"

using testing::Choices;
using testing::DeviceRouting;
using testing::Draw;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

std::string difference(const testing::Routed& got, const testing::Routed& expected) {
    if (got.ends != expected.ends) return "other ends";
    if (got.row_tokens != expected.row_tokens) return "other tokens of rows";
    if (got.choice_rows != expected.choice_rows) return "other rows of choices";
    if (testing::bytes_of(got.row_weights) != testing::bytes_of(expected.row_weights)) return "other weights of rows";
    return got.dropped == expected.dropped ? "" : "another number of dropped ids";
}

// Returns how the routing of these choices differs from what is expected.
std::string check(testing::Device& device, const Choices& choices, int32_t type, int32_t format) {
    Choices rounded = choices;  // BF16 weights become F32 ones
    if (!choices.weights.empty())
        rounded.weights = oracle::load(format, oracle::store(format, choices.weights).data(), static_cast<int64_t>(choices.weights.size()));
    const DeviceRouting routing(device, rounded, type, format);
    ok(routing.route());
    return difference(routing.read(), testing::expected_routing(rounded));
}

}  // namespace

MXQ_EACH_DEVICE("route: tokens, choices, experts, types of ids and weights") {
    int ran = 0;
    for (const int64_t tokens : {0, 1, 2, 31, 128, 700})
        for (const int32_t choices : {1, 2, 4, 8})
            for (const int32_t experts : {1, 3, 32, 128, 1024, 4096})
                for (const Draw draw : {Draw::uniform, Draw::one_expert, Draw::few_experts, Draw::with_dropped}) {
                    auto c = testing::draw_choices(tokens, choices, experts, draw, static_cast<uint64_t>(ran) + 1);
                    if (ran % 3 == 0) c.weights.clear();
                    if (ran % 4 == 1 && experts > 2) c.first = experts / 3, c.count = experts / 2;
                    const auto text = check(device, c, ran % 2 ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64,
                                            ran % 5 ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16);
                    if (!text.empty())
                        FAIL(tokens << " tokens to " << choices << " of " << experts << ", case " << ran << ": " << text);
                    ++ran;
                }
    CHECK(ran == 6 * 4 * 6 * 4);
}

// More choices than one thread block takes, and chunks that end anywhere.
MXQ_EACH_DEVICE("route: many choices") {
    int ran = 0;
    for (const int64_t rows : {8191, 8192, 8193, 20001, 65536, 131072})
        for (const int32_t experts : {8, 256, 1024, 4096}) {
            const auto draw = static_cast<Draw>(ran % 4);
            const auto c = testing::draw_choices(rows, 1, experts, draw, static_cast<uint64_t>(ran) + 7);
            CHECK(check(device, c, MXQ_TYPE_INT32, MXQ_FORMAT_F32) == "");
            ++ran;
        }
    CHECK(ran == 6 * 4);
}

TEST_CASE("route: a CPU refuses ids out of range, and writes nothing", "[cpu]") {
    for (const int64_t bad : {int64_t(-2), int64_t(4), INT64_MIN, INT64_MAX}) {
        Choices c{2, 2, 4, {0, 1, bad, 3}, {}};
        const DeviceRouting routing(testing::cpu(), c, MXQ_TYPE_INT64);
        MXQ_REFUSED(routing.route(), invalid, "mxq_route", "routing.ids[2] is " + std::to_string(bad), "expected 0 to 3", "-1");
        CHECK(routing.untouched());
    }
}

MXQ_CUDA_DEVICE("route: ids out of range are dropped and counted") {
    int ran = 0;
    for (const int64_t tokens : {8, 20000}) {
        auto c = testing::draw_choices(tokens, 2, 64, Draw::with_dropped, 5);
        for (size_t i = 0; i < c.ids.size(); i += 5) c.ids[i] = i % 2 ? -2 - static_cast<int64_t>(i) : 64 + static_cast<int64_t>(i);
        c.ids[1] = INT64_MIN, c.ids[2] = INT64_MAX, c.ids[3] = int64_t(1) << 32;
        CHECK(check(device, c, MXQ_TYPE_INT64, MXQ_FORMAT_F32) == "");
        CHECK(testing::expected_routing(c).dropped > 3);
        ++ran;
    }
    CHECK(ran == 2);
}

TEST_CASE("route: setters refuse what cannot be") {
    mxq_routing* none = nullptr;
    MXQ_REFUSED(mxq_routing_create(-1, 1, 1, &none), invalid, "tokens is -1");
    MXQ_REFUSED(mxq_routing_create(MXQ_MAX_DIM, 2, 1, &none), invalid, "tokens is 2147483647", "at most 2147483647 rows");
    MXQ_REFUSED(mxq_routing_create(1, 0, 1, &none), invalid, "choices is 0");
    MXQ_REFUSED(mxq_routing_create(1, 1, 4097, &none), invalid, "experts is 4097", "4096");
    MXQ_REFUSED(mxq_routing_create(1, 1, 1, nullptr), invalid, "out is NULL");
    CHECK(none == nullptr);

    testing::RoutingHandle routing;
    ok(mxq_routing_create(3, 2, 8, routing.out()));
    alignas(256) uint8_t memory[2048];
    uint64_t bytes = 0;
    ok(mxq_routing_required_bytes(routing, &bytes));
    CHECK(bytes == 4 * 256);
    MXQ_REFUSED(mxq_routing_set_ids(routing, memory, 20, MXQ_TYPE_INT32), invalid, "ids is 20", "exactly 24");
    MXQ_REFUSED(mxq_routing_set_ids(routing, memory, 24, MXQ_TYPE_INT64), invalid, "exactly 48");
    MXQ_REFUSED(mxq_routing_set_ids(routing, memory, 24, 3), invalid, "type is 3");
    MXQ_REFUSED(mxq_routing_set_ids(routing, nullptr, 24, MXQ_TYPE_INT32), invalid, "ids is NULL with 24 bytes");
    MXQ_REFUSED(mxq_routing_set_weights(routing, MXQ_FORMAT_F16, memory, 12), invalid, "format is 2", "MXQ_FORMAT_BF16");
    MXQ_REFUSED(mxq_routing_set_weights(routing, MXQ_FORMAT_BF16, memory, 24), invalid, "exactly 12");
    MXQ_REFUSED(mxq_routing_set_local_experts(routing, 7, 2), invalid, "first is 7 and count 2");
    MXQ_REFUSED(mxq_routing_set_local_experts(routing, 0, -1), invalid, "count -1");
    MXQ_REFUSED(mxq_routing_set_memory(routing, memory, 1023), MXQ_STATUS_BUFFER_TOO_SMALL, "1023", "1024");
    MXQ_REFUSED(mxq_routing_set_memory(routing, memory + 128, 1024), MXQ_STATUS_MISALIGNED, "multiple of 256");
    MXQ_REFUSED(mxq_routing_set_dropped(routing, reinterpret_cast<int32_t*>(memory), 8), invalid, "exactly 4");
    const auto* ints = reinterpret_cast<const int32_t*>(memory);
    MXQ_REFUSED(mxq_routing_set_computed(routing, ints, 32, ints, 24, nullptr, 0, nullptr, 0), MXQ_STATUS_MISSING_BUFFER,
                "choice_rows is NULL", "24");
    MXQ_REFUSED(mxq_routing_set_computed(routing, ints, 28, ints, 24, ints, 24, nullptr, 0), invalid, "exactly 32");
    ok(mxq_routing_set_computed(routing, ints, 32, ints, 24, ints, 24, nullptr, 0));
    MXQ_REFUSED(mxq_routing_set_local_experts(routing, 0, 4), invalid, "computed ends of 32 bytes");
    ok(mxq_routing_set_ids(routing, memory, 24, MXQ_TYPE_INT32));
    const auto route = [&] { return mxq_route(testing::any_context(), nullptr, routing, nullptr, 0, nullptr); };
    MXQ_REFUSED(route(), invalid, "another library computed", "mxq_routing_set_memory");
    MXQ_REFUSED(mxq_route(testing::any_context(), nullptr, nullptr, nullptr, 0, nullptr), invalid, "routing is NULL");
    testing::RoutingHandle many;
    ok(mxq_routing_create(3, 2, 128, many.out()));
    ok(mxq_routing_set_local_experts(many, 0, 64));
    ok(mxq_routing_set_memory(many, memory, 1024));
    MXQ_REFUSED(mxq_routing_set_local_experts(many, 0, 65), MXQ_STATUS_BUFFER_TOO_SMALL, "memory of 1024 bytes", "1280",
                "65 experts");
    CHECK(mxq_routing_set_local_experts(many, 64, 64) == MXQ_STATUS_OK);
    ok(mxq_routing_set_memory(routing, memory, sizeof memory));
    MXQ_REFUSED(route(), invalid, "routing.memory overlaps routing.ids");
    ok(mxq_routing_set_ids(routing, nullptr, 0, 0));
    MXQ_REFUSED(route(), MXQ_STATUS_MISSING_BUFFER, "routing.ids is NULL", "mxq_routing_set_ids");
}

TEST_CASE("route: getters give what was set") {
    testing::RoutingHandle routing;
    ok(mxq_routing_create(3, 2, 8, routing.out()));
    alignas(256) static uint8_t memory[2048];
    int64_t tokens = 0;
    int32_t choices = 0, experts = 0, type = 1, format = 1, first = 1, count = 1;
    const void* read = memory;
    void* written = memory;
    const int32_t* array = nullptr;
    const float* weights = nullptr;
    int32_t* dropped = nullptr;
    uint64_t bytes = 1;
    ok(mxq_routing_get_shape(routing, &tokens, &choices, &experts));
    CHECK((tokens == 3 && choices == 2 && experts == 8));
    ok(mxq_routing_get_ids(routing, &read, &bytes, &type));
    CHECK((!read && bytes == 0 && type == 0));
    ok(mxq_routing_get_weights(routing, &format, &read, &bytes));
    CHECK((!read && bytes == 0 && format == 0));
    ok(mxq_routing_get_local_experts(routing, &first, &count));
    CHECK((first == 0 && count == 0));
    ok(mxq_routing_get_memory(routing, &written, &bytes));
    CHECK((!written && bytes == 0));
    ok(mxq_routing_get_ends(routing, &array, &bytes));
    CHECK((!array && bytes == 0));

    ok(mxq_routing_set_ids(routing, memory, 48, MXQ_TYPE_INT64));
    ok(mxq_routing_set_weights(routing, MXQ_FORMAT_BF16, memory + 64, 12));
    ok(mxq_routing_set_local_experts(routing, 2, 3));
    ok(mxq_routing_set_memory(routing, memory + 256, 1700));
    ok(mxq_routing_set_dropped(routing, reinterpret_cast<int32_t*>(memory + 128), 4));
    ok(mxq_routing_get_ids(routing, &read, &bytes, &type));
    CHECK((read == memory && bytes == 48 && type == MXQ_TYPE_INT64));
    ok(mxq_routing_get_weights(routing, &format, &read, &bytes));
    CHECK((read == memory + 64 && bytes == 12 && format == MXQ_FORMAT_BF16));
    ok(mxq_routing_get_local_experts(routing, &first, &count));
    CHECK((first == 2 && count == 3));
    ok(mxq_routing_get_memory(routing, &written, &bytes));
    CHECK((written == memory + 256 && bytes == 1700));
    ok(mxq_routing_get_dropped(routing, &dropped, &bytes));
    CHECK((dropped == reinterpret_cast<int32_t*>(memory + 128) && bytes == 4));
    const auto is_at = [&](const void* found, size_t offset, uint64_t need) { return found == memory + offset && bytes == need; };
    ok(mxq_routing_get_ends(routing, &array, &bytes));
    CHECK(is_at(array, 256, 12));
    ok(mxq_routing_get_row_tokens(routing, &array, &bytes));
    CHECK(is_at(array, 512, 24));
    ok(mxq_routing_get_choice_rows(routing, &array, &bytes));
    CHECK(is_at(array, 768, 24));
    ok(mxq_routing_get_row_weights(routing, &weights, &bytes));
    CHECK(is_at(weights, 1024, 24));
}
