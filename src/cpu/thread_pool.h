// Threads that share out the chunks of a call. Any number of callers may run at once; each also works on its own call, so
// a call ends even when every worker is busy elsewhere, or gone: in a forked child there are none, and calls run alone.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace mxq::cpu {

class ThreadPool {
public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Destroys a pool. In a forked child it leaks instead: there is nobody to join, and no way to destroy what the lost
    // threads were waiting on.
    static void release(ThreadPool* pool);

    int threads() const { return threads_; }

    // Calls body(chunk, worker) once for every chunk in [0, chunks), under round-to-nearest without flushing of subnormals.
    // No two calls of body that run at the same time for this run() have the same worker, a number in [0, threads()).
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
    void work();
    void stop();

    // Whether this is a forked child, where the workers do not exist and must not be waited for.
    bool is_forked() const;

    const int threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    Job* jobs_ = nullptr;  // those with chunks left, newest first
    bool stopping_ = false;
    std::vector<std::thread> workers_;
    const int64_t process_;  // that started the workers
};

}  // namespace mxq::cpu
