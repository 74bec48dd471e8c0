// Writes the lines that MXQ_LOG asks for to stderr: the only place where the library prints.
#pragma once
#include <atomic>
#include <string>

namespace mxq {

enum class LogLevel : int { Off, Info, Trace };  // the values of MXQ_LOG: none, info, trace

// Reads MXQ_LOG and stores its level for the whole process. Any value but info and trace is Off.
LogLevel read_log_level() noexcept;

constexpr int kLogUnread = -1;
extern std::atomic<int> log_level;  // kLogUnread until the first call of `logs`

// Returns whether lines of this level are written.
inline bool logs(LogLevel level) noexcept {
    const int known = log_level.load(std::memory_order_relaxed);
    return (known == kLogUnread ? int(read_log_level()) : known) >= int(level);
}

// Writes "mxq: text" in one write, so that the lines of several threads do not mix.
void write_log_line(std::string text);

// Logs the text that `make` returns. `make` runs only where the level is on; if it throws, the line is lost and no call
// fails.
template <class Make>
void log_line(LogLevel level, const Make& make) noexcept {
    if (!logs(level)) return;
    try {
        write_log_line(make());
    } catch (...) {
    }
}

}  // namespace mxq
