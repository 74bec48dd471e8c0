// Checks a refusal: its status, and that its message has all the words that a reader needs.
#ifndef MXQ_TESTS_SAYS_H
#define MXQ_TESTS_SAYS_H

#include "../api.h"

namespace testing {

// Returns "" if the call was refused with this status and a message that has every word, else a text about what happened.
inline std::string refusal(mxq_status got, mxq_status expected, std::initializer_list<std::string> words) {
    std::string message = mxq_last_error();
    if (got != expected)
        return std::string("got ") + mxq_status_name(got) + ", expected " + mxq_status_name(expected) + "; message: " + message;
    for (const std::string& word : words)
        if (message.find(word) == std::string::npos) return "no \"" + word + "\" in the message: " + message;
    return "";
}

}  // namespace testing

#define MXQ_REFUSED(call, status, ...) CHECK(::testing::refusal((call), status, {__VA_ARGS__}) == "")

#endif
