// Threads of a host: a context that gets a parallel_for starts no thread, and gives the same bytes whatever the host does.
#include "../cases.h"
#include "says.h"
#include "tasks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using testing::ok;

namespace {

// A host's pool: how it runs tasks, and what it was asked for.
struct Host {
    void (*run)(int32_t count, mxq_task task, void* data);
    std::atomic<int> calls{0}, most{0};
};

void parallel_for(void* user, int32_t count, mxq_task task, void* data) {
    auto& host = *static_cast<Host*>(user);
    ++host.calls;
    host.most = std::max<int>(host.most, count);
    host.run(count, task, data);
}

void in_order(int32_t count, mxq_task task, void* data) {
    for (int32_t i = 0; i < count; ++i) task(data, i);
}
void backwards(int32_t count, mxq_task task, void* data) {
    for (int32_t i = count; i-- > 0;) task(data, i);
}
void at_once(int32_t count, mxq_task task, void* data) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) threads.emplace_back(task, data, i);
    for (auto& thread : threads) thread.join();
}
void last_alone(int32_t count, mxq_task task, void* data) { task(data, count - 1); }
void none(int32_t, mxq_task, void*) {}

testing::Context context_of(Host& host, int32_t threads) {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    testing::Context context;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_threads(options, threads));
    ok(mxq_context_options_set_parallel_for(options, parallel_for, &host));
    ok(mxq_context_create(MXQ_DEVICE_CPU, 0, options, context.out()));
    return context;
}

// Holds the bytes that the verbs of a test write: codes and scales of both parts, dequantized numbers, and a product.
struct Results {
    testing::Bytes codes, scales, columns, column_scales, back, product;
    bool operator==(const Results& o) const {
        return codes == o.codes && scales == o.scales && columns == o.columns && column_scales == o.column_scales &&
               back == o.back && product == o.product;
    }
};

Results run_verbs(mxq_context* context) {
    const testing::Dims dims{std::nullopt, 513, 800};
    const oracle::Floats values = cases::values(cases::Values::wide, dims.shape().count(), 3);
    auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), q = testing::make_quantized({}, dims, false);
    auto y = testing::make_tensor(MXQ_FORMAT_F32, dims), d = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 513, 513});
    Results r;
    r.back.resize(513 * 800 * 4), r.product.resize(513 * 513 * 2);
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        auto& codes = part == MXQ_PART_ROWWISE ? r.codes : r.columns;
        auto& scales = part == MXQ_PART_ROWWISE ? r.scales : r.column_scales;
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(q, part, &code_bytes, &scale_bytes));
        codes.assign(code_bytes, testing::poison), scales.assign(scale_bytes, testing::poison);
        ok(mxq_tensor_set_part(q, part, codes.data(), code_bytes, scales.data(), scale_bytes));
    }
    ok(mxq_tensor_set_const_data(x, values.data(), values.size() * 4));
    ok(mxq_tensor_set_data(y, r.back.data(), r.back.size()));
    ok(mxq_tensor_set_data(d, r.product.data(), r.product.size()));
    ok(mxq_quantize(context, nullptr, x, q, nullptr, 0, nullptr));
    ok(mxq_dequantize(context, nullptr, q, y, nullptr, 0, nullptr));
    ok(mxq_gemm(context, nullptr, q, q, d, nullptr, 0, nullptr));
    return r;
}

}  // namespace

TEST_CASE("host threads: the same bytes, however the host runs tasks", "[cpu]") {
    const Results expected = run_verbs(testing::cpu_context(1));
    int ran = 0;
    for (const auto run : {in_order, backwards, at_once, last_alone, none})
        for (const int32_t threads : {2, 3, 8}) {
            CAPTURE(ran, threads);
            Host host{run};
            const testing::Context context = context_of(host, threads);
            CHECK((run_verbs(context) == expected));
            CHECK(host.calls >= 3);
            CHECK(host.most == threads);
            ++ran;
        }
    CHECK(ran == 15);
}

TEST_CASE("host threads: no thread is started, and one thread or little work needs no host", "[cpu]") {
    Host host{in_order};
    const size_t before = testing::task_count();
    const testing::Context context = context_of(host, 64), alone = context_of(host, 1);
    CHECK(testing::tasks().size() == before);
    CHECK(mxq_context_description(context) == std::string(mxq_context_description(testing::cpu_context(64))).insert(15, " of the host"));
    run_verbs(alone);
    CHECK(host.calls == 0);
    float x[32] = {1};
    uint8_t codes[32], scale;
    auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, 32}), out = testing::make_quantized({}, {std::nullopt, 1, 32}, false);
    ok(mxq_tensor_set_data(in, x, sizeof x));
    ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 1));
    ok(mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr));
    CHECK(host.calls == 0);
    auto values = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 256, 512}), codes_of_two = testing::make_quantized({}, {std::nullopt, 256, 512}, false);
    testing::Bytes memory(256 * 512 * 4);
    testing::PartBuffers part(testing::cpu(), codes_of_two, MXQ_PART_ROWWISE);
    ok(mxq_tensor_set_data(values, memory.data(), memory.size()));
    ok(mxq_quantize(context, nullptr, values, codes_of_two, nullptr, 0, nullptr));
    CHECK(host.calls == 1);
    CHECK(host.most == 2);  // as many tasks as there are pieces of work
}

TEST_CASE("host threads: several threads use one context at once", "[cpu]") {
    const Results expected = run_verbs(testing::cpu_context(1));
    Host host{at_once};
    const testing::Context context = context_of(host, 3);
    std::atomic<int> good{0};
    std::vector<std::thread> callers;
    callers.reserve(4);
    for (int i = 0; i < 4; ++i)
        callers.emplace_back([&] {
            for (int round = 0; round < 3; ++round) good += run_verbs(context) == expected;
        });
    for (auto& caller : callers) caller.join();
    CHECK(good == 12);
}

TEST_CASE("host threads: a forked child works without them", "[cpu]") {
    const Results expected = run_verbs(testing::cpu_context(1));
    Host host{in_order};
    testing::Context context = context_of(host, 4);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        const bool good = run_verbs(context) == expected && host.calls == 0;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("host threads: what makes no sense is refused") {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    int user = 0;
    MXQ_REFUSED(mxq_context_options_set_parallel_for(options, nullptr, &user), MXQ_STATUS_INVALID_ARGUMENT,
                "mxq_context_options_set_parallel_for", "user", "parallel_for is NULL", "clear");
    MXQ_REFUSED(mxq_context_options_set_parallel_for(nullptr, parallel_for, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "options", "NULL");
    for (const int32_t own : {-1, 2})
        MXQ_REFUSED(mxq_context_options_set_own_threads(options, own), MXQ_STATUS_INVALID_ARGUMENT, "mxq_context_options_set_own_threads",
                    "own is", std::to_string(own));
    MXQ_REFUSED(mxq_context_options_set_own_threads(nullptr, 1), MXQ_STATUS_INVALID_ARGUMENT, "options", "NULL");

    testing::Context context;
    ok(mxq_context_options_set_own_threads(options, 1));
    MXQ_REFUSED(mxq_context_options_set_parallel_for(options, parallel_for, nullptr), MXQ_STATUS_INVALID_ARGUMENT,
                "a parallel_for and threads of their own", "mxq_context_options_set_own_threads with 0");
    CHECK(mxq_context_options_set_parallel_for(options, nullptr, nullptr) == MXQ_STATUS_OK);
    ok(mxq_context_options_set_own_threads(options, 0));
    ok(mxq_context_options_set_parallel_for(options, parallel_for, nullptr));
    MXQ_REFUSED(mxq_context_options_set_own_threads(options, 1), MXQ_STATUS_INVALID_ARGUMENT,
                "a parallel_for and threads of their own", "mxq_context_options_set_parallel_for with NULL");
    CHECK(mxq_context_create(MXQ_DEVICE_CPU, 0, options, context.out()) == MXQ_STATUS_OK);
}
