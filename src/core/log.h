// Writes the lines of the log: to the host's callback, or those that MXQ_LOG asks for to stderr. The library prints nowhere
// else.
#pragma once
#include <string>

#include "mxq/mxq.h"

namespace mxq {

enum class LogLevel : int { Off = MXQ_LOG_OFF, Info = MXQ_LOG_INFO, Trace = MXQ_LOG_TRACE };

// Where lines go, and up to which level.
struct LogSink {
    mxq_log_callback callback;  // NULL: stderr
    LogLevel level;
    void* user;

    // Writes one line. A line for stderr becomes "mxq: text" in one write, so that the lines of several threads do not mix.
    void write(LogLevel line_level, const std::string& text) const;
};

// Returns where lines go now. Takes no lock. The first call without a callback reads MXQ_LOG for the whole process; any value
// but info and trace is Off.
LogSink log_sink() noexcept;

// Sends the lines of the whole process to a callback, or to stderr again.
void set_log_callback(const LogSink& sink);
void clear_log_callback() noexcept;

// Logs the text that `make` returns. `make` runs only where the level is on; if it throws, the line is lost and no call
// fails.
template <class Make>
void log_line(LogLevel level, const Make& make) noexcept {
    const LogSink sink = log_sink();
    if (sink.level < level) return;
    try {
        sink.write(level, make());
    } catch (...) {
    }
}

}  // namespace mxq
