// Hosts call from threads with small stacks: musl gives a thread 128 KiB, runtimes of languages give less. Every verb runs with
// 64 KiB.
#include "../formats.h"

#include <limits.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

using testing::ok;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t stack_bytes = 1 << 20;  // sanitizers make frames larger
#else
constexpr size_t stack_bytes = 64 << 10;
#endif

// Runs a call in a thread of its own.
mxq_status on_small_stack(std::function<mxq_status()> call) {
    struct Job {
        std::function<mxq_status()> call;
        mxq_status status = -1;
    } job{std::move(call)};
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    const size_t least = PTHREAD_STACK_MIN;  // 128 KiB on Arm
    REQUIRE(pthread_attr_setstacksize(&attributes, std::max(stack_bytes, least)) == 0);
    const auto body = [](void* argument) -> void* {
        auto& job = *static_cast<Job*>(argument);
        job.status = job.call();
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, body, &job) == 0);
    REQUIRE(pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&attributes);
    return job.status;
}

constexpr int64_t side = 256;
const int32_t ends[] = {100, 256};

// A tensor of side x side, or two of them, with memory for both parts.
struct Stored {
    Stored(const oracle::Spec& spec, bool swizzled, bool grouped, testing::Dims dims = {std::nullopt, side, side})
        : tensor(testing::make_tensor(spec, dims, swizzled)) {
        if (grouped) ok(testing::set_ends(tensor, ends, MXQ_TYPE_INT32, 2));
        for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            uint64_t codes = 0, scales = 0, amax = 0;
            ok(mxq_tensor_required_bytes(tensor, part, &codes, &scales));
            ok(mxq_tensor_required_amax_bytes(tensor, part, &amax));
            memory.emplace_back(codes), memory.emplace_back(scales), memory.emplace_back(amax);
            const size_t first = memory.size() - 3;
            ok(mxq_tensor_set_part(tensor, part, memory[first].data(), codes, memory[first + 1].data(), scales));
            if (amax) ok(mxq_tensor_set_amax(tensor, part, reinterpret_cast<float*>(memory[first + 2].data()), amax));
        }
    }
    std::vector<testing::Bytes> memory;
    testing::Tensor tensor;
};

struct Plain {
    Plain(int32_t format, bool grouped, testing::Dims dims = {std::nullopt, side, side}) : tensor(testing::make_tensor(format, dims)) {
        if (grouped) ok(testing::set_ends(tensor, ends, MXQ_TYPE_INT32, 2));
        ok(mxq_tensor_set_data(tensor, memory.data(), memory.size()));
    }
    testing::Bytes memory = testing::Bytes(2 * side * side * 4, 0x40);
    testing::Tensor tensor;
};

// Calls every verb with one format. Returns how many calls there were.
int call_verbs(mxq_context* context, const oracle::Spec& spec, bool grouped) {
    int ran = 0;
    const auto run = [&](testing::Verb verb, const testing::Tensor& in, const testing::Tensor& out) {
        CHECK(on_small_stack([&] { return verb(context, nullptr, in, out, nullptr, 0, nullptr); }) == MXQ_STATUS_OK);
        ++ran;
    };
    const bool swizzles = testing::can_swizzle(spec, grouped);
    Plain x(MXQ_FORMAT_BF16, grouped), y(MXQ_FORMAT_F32, grouped), d(MXQ_FORMAT_F32, false);
    Stored q(spec, false, grouped), again(spec, false, grouped), swizzled(spec, swizzles, grouped);
    run(mxq_quantize, x.tensor, q.tensor);
    run(mxq_quantize, y.tensor, swizzled.tensor);
    if (testing::is_nvfp4(spec) || spec.scaling == MXQ_SCALING_TENSOR) run(mxq_amax, x.tensor, q.tensor);
    run(mxq_requantize, q.tensor, again.tensor);
    run(mxq_dequantize, q.tensor, y.tensor);
    if (swizzles) run(mxq_swizzle_scales, q.tensor, swizzled.tensor), run(mxq_unswizzle_scales, swizzled.tensor, q.tensor);
    if (grouped) run(mxq_pad_groups, q.tensor, again.tensor), run(mxq_unpad_groups, again.tensor, q.tensor);
    for (const auto& [a, b] : {std::pair{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N}}) {
        const bool along_k = grouped && a == MXQ_TRANSPOSE_T;
        Stored weights(spec, false, false, {2, side, side});
        Plain gradients(MXQ_FORMAT_F32, false, {2, side, side});
        const auto options = testing::gemm_options(a, b);
        const testing::Tensor& right = !grouped || along_k ? q.tensor : weights.tensor;
        const testing::Tensor& to = along_k ? gradients.tensor : d.tensor;
        CHECK(on_small_stack([&] {
                  return (grouped ? mxq_grouped_gemm : mxq_gemm)(context, options, q.tensor, right, to, nullptr, 0, nullptr);
              }) == MXQ_STATUS_OK);
        ++ran;
    }
    // The columnwise part alone is what requantize and dequantize then read.
    ok(mxq_tensor_clear_part(q.tensor, MXQ_PART_ROWWISE));
    run(mxq_requantize, q.tensor, again.tensor);
    run(mxq_dequantize, q.tensor, y.tensor);
    // A refusal writes its message from the same stack.
    CHECK(on_small_stack([&] { return mxq_quantize(context, nullptr, x.tensor, x.tensor, nullptr, 0, nullptr); }) == MXQ_STATUS_UNSUPPORTED);
    return ran;
}

}  // namespace

TEST_CASE("small stacks: every verb runs in a thread of 64 KiB, with every format and instruction set", "[cpu]") {
    const char* const before = std::getenv("MXQ_CPU_ISA");
    const std::string kept = before ? before : "";
    int ran = 0, formats = 0;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"}) {
        setenv("MXQ_CPU_ISA", isa, 1);
        const testing::Context context = testing::cpu_context(1);
        for (const oracle::Spec& spec : testing::all_formats())
            for (const bool grouped : {false, true}) {
                CAPTURE(isa, testing::describe(spec), grouped);
                ran += call_verbs(context, spec, grouped);
                ++formats;
            }
    }
    before ? setenv("MXQ_CPU_ISA", kept.c_str(), 1) : unsetenv("MXQ_CPU_ISA");
    CHECK(formats == 5 * 2 * 35);
    CHECK(ran == 5 * (35 * (8 + 10) + 31 * 2 + 27 * 2 + 2 * 4));
}
