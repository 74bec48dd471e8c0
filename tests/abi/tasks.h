// The threads of this process, as the kernel lists them.
#ifndef MXQ_TESTS_TASKS_H
#define MXQ_TESTS_TASKS_H

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#if defined(__SANITIZE_THREAD__)
#define MXQ_TESTS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MXQ_TESTS_TSAN 1
#endif
#endif

namespace testing {

// Starts the thread that ThreadSanitizer keeps for itself, which begins with the first of the process. It then counts before and
// after alike.
inline void start_thread_of_sanitizer() {
#ifdef MXQ_TESTS_TSAN
    static const bool started = [] {
        std::thread([] {}).join();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the kernel lists the joined one no longer
        return true;
    }();
    (void)started;
#endif
}

inline std::set<std::string> tasks() {
    start_thread_of_sanitizer();
    std::set<std::string> all;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) all.insert(task.path().filename());
    return all;
}

// Returns how many threads there are, after those that were joined just before have left the kernel's list.
inline size_t task_count() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return tasks().size();
}

// Returns how many threads there are, once no more than `expected` are left or after ten seconds: the kernel lists a thread a
// little longer than it can be joined.
inline size_t task_count_falls_to(size_t expected) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (tasks().size() > expected && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return tasks().size();
}

}  // namespace testing

#endif
