#include "cpu/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <system_error>

#include "core/error.h"
#include "core/float_environment.h"

namespace mxq::cpu {

struct ThreadPool::Job {
    const void* body;
    Function function;
    int64_t chunks;
    std::atomic<int64_t> next{0};
    std::atomic<int> worker{0};        // the next number that is given to a thread
    std::atomic<int> helpers{0};       // pool threads that are in drain(); changes under mutex_
    std::condition_variable finished;  // told when helpers becomes 0
    Job* below = nullptr;              // the next older job of the stack `jobs_`

    void drain() {
        const FloatEnvironment environment;
        const int number = worker.fetch_add(1);
        for (int64_t chunk; (chunk = next.fetch_add(1)) < chunks;) function(body, chunk, number);
    }
    bool has_chunks() const { return next.load() < chunks; }
};

namespace {

// Says how long a thread looks for what it waits for before it sleeps. To wake one takes some 25 us of a system call and a core
// that comes out of idling; the products of a model follow each other more closely.
constexpr std::chrono::microseconds kSpin{50};

// Returns as soon as `is_there` does, with true, or after kSpin.
template <class IsThere>
bool spin(const IsThere& is_there) {
    constexpr int looks = 64;  // for which one look at the clock is cheap
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < looks; i++) {
            if (is_there()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

// Blocks all signals of this thread while it lives. Threads that are started meanwhile inherit that, so that no handler of
// the host runs on a thread of the pool.
class BlockedSignals {
public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

}  // namespace

ThreadPool::ThreadPool(int threads, HostPool host) : threads_(threads), host_(host), process_(getpid()) {
    if (host_.parallel_for) return;
    const BlockedSignals blocked;
    try {
        for (int i = 1; i < threads; i++) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
        const size_t started = workers_.size() + 1;
        stop();
        fail(MXQ_STATUS_OUT_OF_MEMORY,
             "only %zu of %d threads could be started (%s); ask for fewer with mxq_context_options_set_threads", started,
             threads, error.what());
    } catch (...) {
        stop();
        throw;
    }
}

bool ThreadPool::is_forked() const { return process_ != getpid(); }

void ThreadPool::release(ThreadPool* pool) {
    if (pool && !pool->is_forked()) delete pool;
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        posted_++;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

// A job that its caller ended alone was a job all the same: the next one is as near as after any other.
void ThreadPool::work() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        help(lock);
        const uint64_t seen = posted_;
        lock.unlock();
        const bool is_posted = spin([&] { return posted_ != seen; });
        lock.lock();
        if (is_posted) continue;
        sleepers_++;
        wake_.wait(lock, [this] { return stopping_ || jobs_; });
        sleepers_--;
    }
}

// Works on the jobs that have chunks left, until there are none.
void ThreadPool::help(std::unique_lock<std::mutex>& lock) {
    while (Job* const job = jobs_) {
        if (!job->has_chunks()) {
            jobs_ = job->below;
            continue;
        }
        job->helpers++;
        lock.unlock();
        job->drain();
        lock.lock();
        if (--job->helpers == 0) job->finished.notify_all();
    }
}

void ThreadPool::run_job(int64_t chunks, const void* body, Function function) {
    Job job{};
    job.body = body;
    job.function = function;
    job.chunks = chunks;
    // In a forked child the mutex may be held for ever by a worker that the child does not have.
    if (chunks < 2 || threads_ < 2 || is_forked())
        job.drain();
    else if (host_.parallel_for)
        share_with_host(job);
    else
        share_job(job);
}

void ThreadPool::share_job(Job& job) {
    bool wakes;
    {
        const std::lock_guard lock(mutex_);
        job.below = jobs_;
        jobs_ = &job;
        posted_++;
        wakes = sleepers_ > 0;
    }
    if (wakes) job.chunks > 2 ? wake_.notify_all() : wake_.notify_one();
    job.drain();
    spin([&] { return job.helpers == 0; });
    std::unique_lock lock(mutex_);
    for (Job** link = &jobs_; *link; link = &(*link)->below)
        if (*link == &job) {
            *link = job.below;
            break;
        }
    job.finished.wait(lock, [&] { return job.helpers == 0; });
}

// A task takes chunks until none is left, so that one that runs alone does all the work, and those that run later do none.
// Only where the host ran no task at all are chunks left.
void ThreadPool::share_with_host(Job& job) const {
    const auto task = [](void* data, int32_t) { static_cast<Job*>(data)->drain(); };
    host_.parallel_for(host_.user, int32_t(std::min<int64_t>(threads_, job.chunks)), task, &job);
    if (job.has_chunks()) job.drain();
}

}  // namespace mxq::cpu
