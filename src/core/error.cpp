#include "core/error.h"

#include <cstdarg>
#include <cstdio>

namespace mxq {
namespace {

thread_local char message[2048] = "";

std::string format_list(const char* format, va_list arguments) {
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    return text;
}

}  // namespace

std::string format_text(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = format_list(format, arguments);
    va_end(arguments);
    return text;
}

void fail(mxq_status status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = format_list(format, arguments);
    va_end(arguments);
    throw Error(status, std::move(text));
}

void set_last_error(const char* function, const char* text, const char* more) noexcept {
    snprintf(message, sizeof message, "%s: %s%s", function, text, more);
}

const char* last_error() noexcept { return message; }

}  // namespace mxq
