// Turns exceptions into a status and a message: every exported function that can fail is guard("its name", [&] { ... }), or
// one of the functions below, which take the name of the function that calls them. All of it runs in the default
// floating-point environment, and leaves the caller's as it was, flags of exceptions too: a caller that traps on them gets
// no SIGFPE. The caller's errno stays, too, whatever the system and the driver were asked.
#pragma once
#include <cerrno>
#include <new>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/handle.h"
#include "core/routing.h"
#include "core/tensor.h"

namespace mxq {

class KeptErrno {
public:
    KeptErrno() : before_(errno) {}
    ~KeptErrno() { errno = before_; }
    KeptErrno(const KeptErrno&) = delete;
    KeptErrno& operator=(const KeptErrno&) = delete;

private:
    const int before_;
};

template <class Body>
mxq_status guard(const char* function, const Body& body) noexcept {
    const FloatEnvironment environment;
    const KeptErrno kept;
    try {
        body();
        return MXQ_STATUS_OK;
    } catch (const Error& error) {
        set_last_error(function, error.what());
        return error.status();
    } catch (const std::bad_alloc&) {
        set_last_error(function, "out of host memory; free some and call again");
        return MXQ_STATUS_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        set_last_error(function, error.what(), "; this is a fault of libmxq: please report it");
        return MXQ_STATUS_INTERNAL_ERROR;
    } catch (...) {
        set_last_error(function, "unknown failure", "; this is a fault of libmxq: please report it");
        return MXQ_STATUS_INTERNAL_ERROR;
    }
}

// Sets *out to the object that `make` returns, or to NULL where it throws.
template <class T, class Make>
mxq_status guard_create(T** out, const Make& make, const char* function = __builtin_FUNCTION()) noexcept {
    if (out) *out = nullptr;
    return guard(function, [&] {
        if (!out) fail(MXQ_STATUS_INVALID_ARGUMENT, "out is NULL, expected the address of a handle");
        *out = make();
    });
}

template <class T>
mxq_status create(T** out, const char* function = __builtin_FUNCTION()) noexcept {
    return guard_create(
        out, [] { return new T; }, function);
}

template <class T>
void require_output(T* output, const char* name) {
    if (!output) fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is NULL, expected the address of a number to write", name);
}

inline void require_flag(int32_t value, const char* name) {
    if (value != 0 && value != 1) fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %d, expected 0 or 1", name, value);
}

inline void require_part(int32_t part) {
    if (part != MXQ_PART_ROWWISE && part != MXQ_PART_COLUMNWISE)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "part is %d, expected MXQ_PART_ROWWISE (1) or MXQ_PART_COLUMNWISE (2)", part);
}

// Refuses a plain tensor and an unknown part.
inline void require_part_of(const mxq_tensor_s& tensor, int32_t part, const char* remedy) {
    if (!tensor.format->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no parts; %s", tensor.format->name, remedy);
    require_part(part);
}

inline void refuse_quantized(const mxq_tensor_s& tensor, const char* what, const char* remedy) {
    if (tensor.format->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor is %s, which has no %s; %s", tensor.format->name, what, remedy);
}

template <class T>
T& require_handle(T* handle, const char* name) {
    if (!handle) fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is NULL, expected a handle from its create function", name);
    require_alive(handle, name);
    return *handle;
}

// Names a handle in messages.
template <class T>
constexpr const char* kArgument = T::kind == Kind::Tensor    ? "tensor"
                                  : T::kind == Kind::Routing ? "routing"
                                  : T::kind == Kind::Context ? "context"
                                  : T::kind == Kind::Plan    ? "plan"
                                                             : "options";

// Destroys what a handle points to. NULL does nothing; a handle that is not alive or of another kind is left alone, with a
// message.
template <class T>
void destroy(T* handle, const char* function = __builtin_FUNCTION()) noexcept {
    if (!handle) return;
    guard(function, [&] {
        require_alive(handle, kArgument<T>);
        delete handle;
    });
}

// Calls use(*handle) inside of a guard.
template <class T, class Use>
mxq_status with(T* handle, const Use& use, const char* function = __builtin_FUNCTION()) noexcept {
    return guard(function, [&] { use(require_handle(handle, kArgument<T>)); });
}

// Changes what a handle points to, unless the change throws.
template <class T, class Change>
mxq_status change(T* handle, const Change& apply, const char* function = __builtin_FUNCTION()) noexcept {
    const auto replace = [&](T& target) {
        T changed = target;
        apply(changed);
        target = changed;
    };
    return with(handle, replace, function);
}

// Sets an option that is 0 or 1.
template <class T>
mxq_status set_flag(T* options, const char* name, int32_t value, bool T::*flag,
                    const char* function = __builtin_FUNCTION()) noexcept {
    const auto set = [&](T& o) {
        require_flag(value, name);
        o.*flag = value == 1;
    };
    return with(options, set, function);
}

}  // namespace mxq
