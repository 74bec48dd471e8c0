// The tag that every object behind a C handle carries, so that a handle of another kind, or one that was destroyed, is refused
// and not followed. Memory that was freed may hold anything, so the second is found only as long as nobody has used it again.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace mxq {

// Tells the kinds of handles apart, by values that memory is unlikely to hold by chance.
enum class Kind : uint32_t {
    Destroyed = 0x4d58518f,
    Context = 0x4d585190,
    ContextOptions,
    Tensor,
    QuantizeOptions,
    GemmOptions,
    Plan,
    Routing,
    ExpertLayerOptions,
    ActivateOptions,
};

// Returns what a tag says of its handle: "is a context", "was destroyed".
const char* text_of_kind(Kind kind);

// The first base of what a handle points to.
template <Kind K>
class Handle {
public:
    static constexpr Kind kind = K;
    // The write is volatile: it is the last one to the object, and would be left out as one that nobody reads.
    ~Handle() { *const_cast<volatile Kind*>(&tag_) = Kind::Destroyed; }

private:
    uint64_t reserved_[2] = {};  // where allocators link freed memory: the tag behind them outlives that
    Kind tag_ = K;
};

// Returns the tag of what a handle points to, whatever it is.
inline Kind tag_of(const void* handle) {
    Kind tag;
    std::memcpy(&tag, static_cast<const char*>(handle) + 2 * sizeof(uint64_t), sizeof tag);
    return tag;
}

template <class T>
bool is_alive(const T* handle) {
    static_assert(sizeof(Handle<T::kind>) == 3 * sizeof(uint64_t));
    return tag_of(handle) == T::kind;
}

// Throws unless the handle, which is not NULL, is alive and of its kind.
template <class T>
void require_alive(const T* handle, const char* name) {
    if (!is_alive(handle))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s %s, expected %s; check the order of the arguments and who destroys them", name,
             text_of_kind(tag_of(handle)), text_of_kind(T::kind) + std::strlen("is "));
}

}  // namespace mxq
