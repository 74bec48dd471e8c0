// Failures inside the library are exceptions that carry a status; api/guard.h turns them into a return value and the
// thread's message.
#pragma once
#include <exception>
#include <string>

#include "mxq/mxq.h"

namespace mxq {

class Error : public std::exception {
public:
    Error(mxq_status status, std::string message) : status_(status), message_(std::move(message)) {}
    mxq_status status() const { return status_; }
    const char* what() const noexcept override { return message_.c_str(); }

private:
    mxq_status status_;
    std::string message_;
};

// Formats a text as printf does. Beyond 1023 bytes it is cut.
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

// Throws an Error with this status and a message that is formatted as by printf.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(mxq_status status, const char* format, ...);

// Sets the calling thread's message to "function: text" followed by `more`. Never fails: a long text is cut.
void set_last_error(const char* function, const char* text, const char* more = "") noexcept;

// Returns the calling thread's message; empty before its first failure.
const char* last_error() noexcept;

}  // namespace mxq
