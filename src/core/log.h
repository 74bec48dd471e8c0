// What MXQ_LOG asks for, on stderr: the only place where the library prints.
#pragma once
#include <atomic>
#include <string>

namespace mxq {

enum class LogLevel : int { Off, Info, Trace };  // the values of MXQ_LOG: none, info, trace

// Of the process: MXQ_LOG as the first call finds it. Anything but info and trace is Off.
LogLevel read_log_level() noexcept;

constexpr int kLogUnread = -1;
extern std::atomic<int> log_level;  // kLogUnread until the first call

inline bool logs(LogLevel level) noexcept {
    const int known = log_level.load(std::memory_order_relaxed);
    return (known == kLogUnread ? int(read_log_level()) : known) >= int(level);
}

// "mxq: text" in one write, so that lines of threads do not mix.
void write_log_line(std::string text);

// Logs what `make` returns, which is asked only where somebody reads it. A call never fails for want of a log line.
template <class Make>
void log_line(LogLevel level, const Make& make) noexcept {
    if (!logs(level)) return;
    try {
        write_log_line(make());
    } catch (...) {
    }
}

}  // namespace mxq
