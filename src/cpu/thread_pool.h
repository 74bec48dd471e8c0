// Threads that share the chunks of a call: threads of the pool's own, or those of a host. Any number of callers may run at
// once. With threads of the pool's own each caller also works on its own call, so that a call ends even if every pool thread is
// busy elsewhere, or gone: a forked child has none, and its calls run alone.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "mxq/mxq.h"

namespace mxq::cpu {

// The host's way to run tasks on its threads, as mxq.h describes it. NULL: there is none.
struct HostPool {
    mxq_parallel_for parallel_for = nullptr;
    void* user = nullptr;
};

class ThreadPool {
public:
    // Starts threads - 1 threads, as the caller of run() is one, or none where the host has threads.
    explicit ThreadPool(int threads, HostPool host = {});
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Destroys a pool. In a forked child it leaks the pool instead: there are no threads to join, and what the lost threads
    // were waiting on cannot be destroyed.
    static void release(ThreadPool* pool);

    int threads() const { return threads_; }

    // Returns whether this is a forked child, where the pool's threads do not exist and must not be waited for.
    bool is_forked() const;

    // Calls body(chunk, worker) once for every chunk in [0, chunks), under round-to-nearest without flushing of subnormals.
    // `worker` is a number in [0, threads()); two calls of body that run at the same time for this run() have different ones.
    // The body must not throw.
    template <class Body>
    void run(int64_t chunks, const Body& body) {
        run_job(chunks, &body, [](const void* self, int64_t chunk, int worker) {
            (*static_cast<const Body*>(self))(chunk, worker);
        });
    }

private:
    using Function = void (*)(const void* self, int64_t chunk, int worker);
    struct Job;

    void run_job(int64_t chunks, const void* body, Function function);
    void share_job(Job& job);
    void share_with_host(Job& job) const;
    void work();
    void help(std::unique_lock<std::mutex>& lock);
    void stop();

    const int threads_;
    const HostPool host_;
    std::mutex mutex_;
    std::condition_variable wake_;
    Job* jobs_ = nullptr;  // a stack of the jobs that have chunks left, the newest on top
    bool stopping_ = false;
    int sleepers_ = 0;                   // threads that wait to be woken; the others work, or look at posted_
    std::atomic<uint64_t> posted_ = 0;   // counts what threads are told
    std::vector<std::thread> workers_;
    const int64_t process_;  // the id of the process that started the threads
};

}  // namespace mxq::cpu
