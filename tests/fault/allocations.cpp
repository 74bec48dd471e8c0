#include "allocations.h"

#include "../catch.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>

namespace fault {

std::atomic<bool> armed{false};
std::atomic<long> until_failure{0}, live{0}, until_no_thread{-1};

}  // namespace fault

using fault::armed, fault::until_failure, fault::live, fault::until_no_thread;

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (armed && until_failure-- == 0) return nullptr;
    void* block = alignment ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                            : std::malloc(bytes ? bytes : 1);
    if (block) ++live;
    return block;
}
void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    if (void* block = allocate(bytes, alignment)) return block;
    throw std::bad_alloc();
}
void release(void* block) noexcept {
    if (block) --live;
    std::free(block);
}

}  // namespace

void* operator new(std::size_t n) { return allocate_or_throw(n, 0); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }

// Replaces the pthread_create of the C library, also for std::thread.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
    static const auto next = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    if (until_no_thread >= 0 && until_no_thread-- == 0) return EAGAIN;
    return next(thread, attributes, start, argument);
}

namespace fault {

int fail_each_allocation(const std::function<mxq_status()>& call, const std::function<bool()>& untouched,
                         const std::function<void()>& undo) {
    for (int n = 0; n < 10000; ++n) {
        const long before = live;
        until_failure = n;
        armed = true;
        mxq_status status = call();
        armed = false;
        if (status == MXQ_STATUS_OK) {
            undo();
            CHECK(live == before);
            return n;
        }
        const long after = live;
        CHECK(after == before);
        CHECK(status == MXQ_STATUS_OUT_OF_MEMORY);
        CHECK(std::string(mxq_last_error()).find("memory") != std::string::npos);
        CHECK(untouched());
    }
    FAIL("no number of allocations is enough");
    return -1;
}
int fail_each_allocation(const std::function<mxq_status()>& call, const std::function<bool()>& untouched) {
    return fail_each_allocation(call, untouched, [] {});
}

}  // namespace fault
