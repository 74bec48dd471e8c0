// A forked child has none of the context's threads. It can still use and destroy the context, and the parent's keeps working.
#include "../api.h"
#include "../cases.h"

#include <sys/wait.h>
#include <unistd.h>

using testing::ok;

namespace {

// A quantize in memory that is allocated before the fork, large enough for every thread to get a share.
struct Work {
    explicit Work(mxq_context* context) : context(context) {
        values = cases::values(cases::Values::normal, dims.shape().count(), 1);
        expected = oracle::quantize({}, values, dims.shape(), MXQ_PART_ROWWISE, false);
        ok(mxq_tensor_set_data(in, values.data(), values.size() * 4));
        codes.resize(expected.codes.size()), scales.resize(expected.scales.size());
        ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(), scales.size()));
    }
    bool runs() {
        std::fill(codes.begin(), codes.end(), testing::poison);
        return mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK && codes == expected.codes && scales == expected.scales;
    }

    const testing::Dims dims{std::nullopt, 512, 1024};
    mxq_context* context;
    testing::Tensor in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_quantized({}, dims, false);
    oracle::Floats values;
    oracle::Part expected;
    testing::Bytes codes, scales;
};

int exit_code(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);  // 1014: the alarm ended a child that hung
}

}  // namespace

TEST_CASE("fork: the child uses and destroys the context, the parent goes on", "[cpu]") {
    testing::Context context = testing::cpu_context(4);
    Work work(context);
    int ran = 0;
    for (bool uses : {true, false}) {
        CHECK(work.runs());
        std::fflush(nullptr);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(30);
            const bool good = !uses || (work.runs() && work.runs());
            mxq_context_destroy(context);
            _exit(good ? 0 : 1);
        }
        CHECK(exit_code(child) == 0);
        CHECK(work.runs());
        ++ran;
    }
    CHECK(ran == 2);
}
