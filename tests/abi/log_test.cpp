// The callback of the log gets the lines that stderr would get.
#include "says.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

using testing::ok;

namespace {

struct Line {
    int32_t level;
    std::string text;
};

struct Lines {
    std::mutex mutex;
    std::vector<Line> all;
    std::atomic<mxq_context*> calls_back{nullptr};  // a context that the callback uses itself, once
};

mxq_status quantize(mxq_context* context) {
    float x[64] = {1};
    uint8_t codes[64], scales[2];
    auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 32}), out = testing::make_quantized({}, {std::nullopt, 2, 32}, false);
    ok(mxq_tensor_set_data(in, x, sizeof x));
    ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
    return mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr);
}

void take(void* user, mxq_log_level level, const char* line) {
    auto& lines = *static_cast<Lines*>(user);
    {
        const std::lock_guard lock(lines.mutex);
        lines.all.push_back({level, line});
    }
    if (mxq_context* const context = lines.calls_back.exchange(nullptr)) {
        ok(quantize(context));
        ok(mxq_set_log_callback(take, MXQ_LOG_INFO, user));
    }
}

// Sets a callback for the life of the object.
struct Logged {
    Logged(Lines& lines, mxq_log_level level) { ok(mxq_set_log_callback(take, level, &lines)); }
    ~Logged() { mxq_set_log_callback(nullptr, MXQ_LOG_OFF, nullptr); }
};

size_t lines_at(mxq_log_level level, mxq_context* context) {
    Lines lines;
    const Logged logged(lines, level);
    ok(quantize(context));
    return lines.all.size();
}

// Returns how many bytes a call writes to stderr.
long bytes_on_stderr(mxq_context* context) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), std::fclose);
    std::fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    dup2(fileno(file.get()), STDERR_FILENO);
    const mxq_status status = quantize(context);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ok(status);
    std::fseek(file.get(), 0, SEEK_END);
    return std::ftell(file.get());
}

}  // namespace

TEST_CASE("log: MXQ_LOG is read once, by the first verb") {
    const testing::Context context = testing::cpu_context(1);
    const char* const before = std::getenv("MXQ_LOG");
    const std::string kept = before ? before : "";
    const long bytes = bytes_on_stderr(context);
    for (const char* level : {"info", "off"}) {
        setenv("MXQ_LOG", level, 1);
        CHECK(bytes_on_stderr(context) == bytes);
    }
    before ? setenv("MXQ_LOG", kept.c_str(), 1) : unsetenv("MXQ_LOG");
}

TEST_CASE("log: a callback gets the lines of its level, with the level and without the end of line") {
    const testing::Context context = testing::cpu_context(1);
    Lines lines;
    {
        const Logged logged(lines, MXQ_LOG_TRACE);
        ok(quantize(context));
    }
    ok(quantize(context));  // is not logged any more
    REQUIRE(lines.all.size() == 1);  // a CPU context asks one implementation, which takes the call
    const Line call = lines.all.back();
    CHECK(call.level == MXQ_LOG_INFO);
    CHECK(call.text.find("CPU: quantize, f32 2 x 32, mxfp8_e4m3 2 x 32 1x32 rowwise: cpu") == 0);
    CHECK(call.text.find('\n') == std::string::npos);
    CHECK(lines_at(MXQ_LOG_INFO, context) == 1);
    CHECK(lines_at(MXQ_LOG_OFF, context) == 0);
    CHECK(lines_at(MXQ_LOG_TRACE, context) == 1);
}

TEST_CASE("log: the callback may call the library and set the callback") {
    const testing::Context context = testing::cpu_context(2);
    Lines lines;
    const Logged logged(lines, MXQ_LOG_INFO);
    lines.calls_back = context;
    ok(quantize(context));
    CHECK(lines.all.size() == 2);
}

TEST_CASE("log: threads log while callbacks are replaced, and each line comes whole and once") {
    const testing::Context context = testing::cpu_context(1);
    Lines one, other;
    const Logged logged(one, MXQ_LOG_INFO);
    std::atomic<bool> done{false};
    std::thread setter([&] {
        while (!done)
            for (Lines* lines : {&other, &one}) mxq_set_log_callback(take, MXQ_LOG_INFO, lines);
    });
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int call = 0; call < 200; ++call) ok(quantize(context));
        });
    for (auto& thread : threads) thread.join();
    done = true;
    setter.join();
    CHECK(one.all.size() + other.all.size() == 800);
    for (const Lines* lines : {&one, &other})
        for (const Line& line : lines->all) REQUIRE(line.text == (one.all.empty() ? other : one).all[0].text);
}

TEST_CASE("log: levels that there are not, and a level without a callback, are refused") {
    Lines lines;
    for (const mxq_log_level level : {-1, 3})
        MXQ_REFUSED(mxq_set_log_callback(take, level, &lines), MXQ_STATUS_INVALID_ARGUMENT, "mxq_set_log_callback", "level is",
                    std::to_string(level), "MXQ_LOG_TRACE");
    MXQ_REFUSED(mxq_set_log_callback(nullptr, MXQ_LOG_INFO, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "callback is NULL", "MXQ_LOG_OFF");
    MXQ_REFUSED(mxq_set_log_callback(nullptr, MXQ_LOG_OFF, &lines), MXQ_STATUS_INVALID_ARGUMENT, "callback is NULL", "clear");
    CHECK(mxq_set_log_callback(nullptr, MXQ_LOG_OFF, nullptr) == MXQ_STATUS_OK);
    ok(quantize(testing::cpu_context(1)));
    CHECK(lines.all.empty());
}
