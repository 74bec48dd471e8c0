#include "cpu/shared_pools.h"

#include <pthread.h>
#include <sched.h>

namespace mxq::cpu {
namespace {

struct SharedPool {
    SharedPool(int threads, const cpu_set_t& cpus, SharedPool* others) : pool(threads), affinity(cpus), next(others) {}

    ThreadPool pool;
    const cpu_set_t affinity;  // of the thread that started the pool, which its threads have inherited
    SharedPool* next;
    int users = 0;
};

// The list takes no memory but that of its pools, so that a process without contexts holds none.
std::mutex mutex;
SharedPool* pools = nullptr;

// Holds the mutex while the process forks, so that the child finds it free and the list whole.
bool hold_mutex_in_forks() {
    return pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); }) == 0;
}

cpu_set_t affinity_of_this_thread() {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    return cpus;
}

// Returns the pool of this list that has so many threads, this affinity, and was not started before the process forked.
SharedPool* find(int threads, const cpu_set_t& cpus) {
    for (SharedPool* one = pools; one; one = one->next)
        if (one->pool.threads() == threads && CPU_EQUAL(&one->affinity, &cpus) && !one->pool.is_forked()) return one;
    return nullptr;
}

SharedPool* enter(int threads) {
    const cpu_set_t cpus = affinity_of_this_thread();
    const std::lock_guard lock(mutex);
    SharedPool* shared = find(threads, cpus);
    if (!shared) pools = shared = new SharedPool(threads, cpus, pools);
    shared->users++;
    return shared;
}

void leave(SharedPool* shared) {
    {
        const std::lock_guard lock(mutex);
        if (--shared->users > 0) return;
        SharedPool** link = &pools;
        while (*link != shared) link = &(*link)->next;
        *link = shared->next;
    }
    if (!shared->pool.is_forked()) delete shared;  // a forked child leaks it, as ThreadPool::release does
}

}  // namespace

std::shared_ptr<ThreadPool> shared_pool(int threads) {
    [[maybe_unused]] static const bool held = hold_mutex_in_forks();
    SharedPool* const shared = enter(threads);
    return {&shared->pool, [shared](ThreadPool*) { leave(shared); }};
}

}  // namespace mxq::cpu
