// A device that has failed: the next verb returns CUDA_ERROR with CUDA's words, and nothing aborts. In a child process,
// since a failed device stays failed.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("CUDA error: a verb after an illegal address", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "../api.h"

#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int no_device = 77;

// What the child does; its exit code.
int provoke() {
    mxq_context* context = nullptr;
    mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context);
    if (status == MXQ_STATUS_NO_DEVICE) return no_device;
    testing::ok(status);
    const int64_t rows = 512, cols = 512;
    void *x = nullptr, *codes = nullptr, *scales = nullptr;
    if (cudaMalloc(&x, rows * cols * 4) || cudaMalloc(&codes, rows * cols) || cudaMalloc(&scales, rows * cols / 32)) return 2;
    auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, cols});
    auto out = testing::make_quantized({}, {std::nullopt, rows, cols}, false);
    testing::ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, rows * cols, scales, rows * cols / 32));
    auto quantize = [&](void* data) {
        testing::ok(mxq_tensor_set_data(in, data, rows * cols * 4));
        return mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr);
    };
    if (quantize(x) != MXQ_STATUS_OK || cudaDeviceSynchronize() != cudaSuccess) return 3;
    quantize(reinterpret_cast<void*>(uintptr_t(1) << 20));  // memory that is not there
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return 4;
    status = quantize(x);
    std::string message = mxq_last_error();
    mxq_context_destroy(context);
    if (status != MXQ_STATUS_CUDA_ERROR) return 5;
    return message.find("mxq_quantize: ") == 0 && message.find(cudaGetErrorString(error)) != std::string::npos ? 0 : 6;
}

}  // namespace

TEST_CASE("CUDA error: a verb after an illegal address", "[cuda]") {
    std::fflush(nullptr);
    pid_t child = fork();  // before this process has touched CUDA
    REQUIRE(child >= 0);
    if (child == 0) {
        int code = 1;
        try {
            code = provoke();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        _exit(code);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == no_device) MXQ_SKIP("no CUDA device");
    CHECK(WEXITSTATUS(status) == 0);
}

#endif
