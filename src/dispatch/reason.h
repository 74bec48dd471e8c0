// Why an implementation does not take a problem, as text that is written only where somebody reads it: for a plan, a message or
// a line of the log. Most calls ask implementations that decline and never read why.
#pragma once
#include <new>
#include <string>
#include <type_traits>

namespace mxq {

// Holds a literal, or a function that returns the text, such as
//
//     return [bits = part.bits] { return format_text("needs codes of 8 bits, found %d", bits); };
//
// The function captures a few values by copy. What captured pointers point to must live as long as the call that asks.
class Reason {
public:
    Reason() = default;  // takes the problem
    Reason(const char* literal) {
        if (*literal) keep([literal] { return std::string(literal); });
    }
    template <class Write>
        requires std::is_invocable_r_v<std::string, const Write&>
    Reason(const Write& write) {
        keep(write);
    }

    bool empty() const { return !text_; }
    std::string text() const { return text_ ? text_(room_) : std::string(); }

private:
    static constexpr size_t kRoom = 40;

    template <class Write>
    void keep(const Write& write) {
        static_assert(sizeof(Write) <= kRoom && alignof(Write) <= alignof(void*) && std::is_trivially_copyable_v<Write>);
        new (room_) Write(write);
        text_ = [](const void* room) { return (*static_cast<const Write*>(room))(); };
    }

    std::string (*text_)(const void* room) = nullptr;
    alignas(void*) unsigned char room_[kRoom];
};

// Returns the reason "needs `what`, found `found`". Both texts live as long as literals.
inline Reason needs(const char* what, const char* found) {
    return [what, found] { return std::string("needs ") + what + ", found " + found; };
}

}  // namespace mxq
