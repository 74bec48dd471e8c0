#include "core/log.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

#include "core/environment.h"

namespace mxq {
namespace {

LogLevel level_of(const char* value) {
    const std::string_view text = value ? value : "";
    return text == "trace" ? LogLevel::Trace : text == "info" ? LogLevel::Info : LogLevel::Off;
}

constexpr int kLogUnread = -1;
std::atomic<int> environment_level{kLogUnread};  // kLogUnread until the first line that could go to stderr

// Several threads may run this concurrently: all of them store the same value.
LogLevel read_log_level() noexcept {
    const LogLevel level = level_of(environment_variable("MXQ_LOG"));
    environment_level.store(int(level), std::memory_order_relaxed);
    return level;
}

// Callbacks that were set. They stay for the life of the process, since a thread may still use one that was replaced, and are
// found again when they are set again. So no lock is needed, which a callback or a forked child could wait for.
struct KnownSink {
    LogSink sink;
    KnownSink* next;
};
std::atomic<KnownSink*> known_sinks{nullptr};
std::atomic<const KnownSink*> current{nullptr};

bool is_same(const LogSink& a, const LogSink& b) {
    return a.callback == b.callback && a.level == b.level && a.user == b.user;
}

const KnownSink* known(const LogSink& sink) {
    for (const KnownSink* one = known_sinks.load(); one; one = one->next)
        if (is_same(one->sink, sink)) return one;
    auto* const added = new KnownSink{sink, known_sinks.load()};
    while (!known_sinks.compare_exchange_weak(added->next, added)) {
    }
    return added;
}

void write_to_stderr(const std::string& text) {
    const std::string line = "mxq: " + text + "\n";
    const char* rest = line.data();
    size_t bytes = line.size();
    while (bytes > 0) {  // runs once, unless a pipe is full or a signal interrupts the write
        const ssize_t written = ::write(STDERR_FILENO, rest, bytes);
        if (written <= 0) return;
        rest += written;
        bytes -= size_t(written);
    }
}

}  // namespace

LogSink log_sink() noexcept {
    if (const KnownSink* const set = current.load(std::memory_order_acquire)) return set->sink;
    const int level = environment_level.load(std::memory_order_relaxed);
    return {nullptr, level == kLogUnread ? read_log_level() : LogLevel(level), nullptr};
}

void set_log_callback(const LogSink& sink) { current.store(known(sink), std::memory_order_release); }
void clear_log_callback() noexcept { current.store(nullptr, std::memory_order_release); }

void LogSink::write(LogLevel line_level, const std::string& text) const {
    if (callback) callback(user, int32_t(line_level), text.c_str());
    else write_to_stderr(text);
}

}  // namespace mxq
