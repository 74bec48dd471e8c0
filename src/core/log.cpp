#include "core/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace mxq {
namespace {

LogLevel level_of(const char* value) {
    const std::string_view text = value ? value : "";
    return text == "trace" ? LogLevel::Trace : text == "info" ? LogLevel::Info : LogLevel::Off;
}

}  // namespace

std::atomic<int> log_level{kLogUnread};

// Several threads may run this at once: all of them store the same value.
LogLevel read_log_level() noexcept {
    const LogLevel level = level_of(std::getenv("MXQ_LOG"));
    log_level.store(int(level), std::memory_order_relaxed);
    return level;
}

void write_log_line(std::string text) {
    text = "mxq: " + text + "\n";
    const char* rest = text.data();
    size_t bytes = text.size();
    while (bytes > 0) {  // runs once, unless a pipe is full or a signal interrupts the write
        const ssize_t written = ::write(STDERR_FILENO, rest, bytes);
        if (written <= 0) return;
        rest += written;
        bytes -= size_t(written);
    }
}

}  // namespace mxq
