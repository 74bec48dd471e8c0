// Each mode of capture, in a process whose first verb is captured: what a context does not load at its creation would show. Each
// mode has child processes of its own, and this process never uses CUDA.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("capture: each mode, at the first call of a process", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "graph.h"
#include "graph_calls.h"

#include <sys/wait.h>
#include <unistd.h>

#include <iterator>
#include <thread>

using testing::Bytes;
using testing::Graph;
using testing::Stream;

namespace {

constexpr int no_device = 77;
constexpr int64_t one_of = 29;  // prime, so that every verb, format and part is among them

constexpr std::pair<const char*, cudaStreamCaptureMode> modes[] = {{"global", cudaStreamCaptureModeGlobal},
                                                                  {"thread local", cudaStreamCaptureModeThreadLocal},
                                                                  {"relaxed", cudaStreamCaptureModeRelaxed}};

// Calls with what they must write: conversions what the CPU does, products what a call without a capture does.
class Calls {
public:
    explicit Calls(testing::Device& device)
        : calls_(graph_calls::conversions(device, one_of)), expected_(graph_calls::conversions(testing::cpu(), one_of)) {
        auto products = graph_calls::products(device, one_of);
        std::move(products.begin(), products.end(), std::back_inserter(calls_));
    }
    void run(const Stream& stream) const {
        for (const auto& call : calls_) call->run(stream.handle);
    }
    void reset(int round) const {
        for (const auto& call : calls_) call->reset(round);
    }
    // Returns what is wrong with what is written now, or "".
    std::string complaint(int round) const {
        for (size_t i = 0; i < calls_.size(); ++i) {
            const Bytes got = calls_[i]->result();
            const graph_calls::Call& call = i < expected_.size() ? *expected_[i] : *calls_[i];
            call.reset(round);
            call.run(nullptr);
            if (const auto text = testing::difference(got, call.result()); !text.empty())
                return calls_[i]->verb + " by " + calls_[i]->implementation + ", " + calls_[i]->text + ": " + text;
        }
        return "";
    }
    size_t count() const { return calls_.size(); }

private:
    graph_calls::Calls calls_, expected_;
};

std::string replayed(Graph& graph, const Calls& calls) {
    for (int round = 0; round < graph_calls::rounds; ++round) {
        calls.reset(round);
        graph.replay();
        if (const auto text = calls.complaint(round); !text.empty()) return text;
    }
    return "";
}

// What a child does: returns a complaint, or "".
std::string capture_first(cudaStreamCaptureMode mode) {
    const Calls calls(*testing::cuda());
    if (calls.count() < 300) return "there are " + std::to_string(calls.count()) + " calls, expected 300 or more";
    Stream stream;
    Graph graph(stream, [&] { calls.run(stream); }, mode);
    return replayed(graph, calls);
}

// The first verbs of the process run in another thread, on a stream of their own, while this one captures.
std::string capture_beside_another_thread(cudaStreamCaptureMode mode) {
    testing::Device& device = *testing::cuda();
    const Calls captured(device), called(device);
    Stream stream, other;
    called.reset(0);
    testing::cuda_ok(cudaDeviceSynchronize());
    std::string failure;
    Graph graph(
        stream,
        [&] {
            std::thread thread([&] {
                try {
                    called.run(other);
                } catch (const std::exception& error) {
                    failure = error.what();
                }
            });
            captured.run(stream);
            thread.join();
        },
        mode);
    if (!failure.empty()) return "the other thread: " + failure;
    testing::cuda_ok(cudaStreamSynchronize(other.handle));
    if (const auto text = called.complaint(0); !text.empty()) return "the other thread: " + text;
    return replayed(graph, captured);
}

// Runs work in a child. Returns its complaint, "skip" where there is no device, or "".
std::string in_child(std::string (*work)(cudaStreamCaptureMode), cudaStreamCaptureMode mode) {
    std::fflush(nullptr);
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child < 0) return "no child";
    if (child == 0) {
        std::string text;
        try {
            text = testing::cuda() ? work(mode) : "skip";
        } catch (const std::exception& error) {
            text = error.what();
        }
        [[maybe_unused]] const ssize_t written = write(ends[1], text.data(), text.size());
        _exit(text.empty() ? 0 : 1);
    }
    close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return "the child ended by signal " + std::to_string(WTERMSIG(status));
    return text;
}

void check_modes(std::string (*work)(cudaStreamCaptureMode)) {
    for (const auto& [name, mode] : modes) {
        const std::string complaint = in_child(work, mode);
        if (complaint == "skip") MXQ_SKIP("no CUDA device");
        INFO(name);
        CHECK(complaint == "");
    }
}

}  // namespace

TEST_CASE("capture: each mode, at the first call of a process", "[cuda]") { check_modes(capture_first); }

TEST_CASE("capture: each mode, while another thread makes the first calls of a process", "[cuda]") {
    check_modes(capture_beside_another_thread);
}

#endif
