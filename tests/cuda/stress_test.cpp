// Makes one product a thousand times, beside a kernel that uses Tensor Memory on another stream: the same bits each time, and
// how far they are from mma_bf16, whose sums are fp32. For chips that nobody has run yet: hidden, tests/blackwell.sh runs
// it.
//
// Operands are positive, so that an error is a share of the sum itself: where tensor cores keep fewer bits of sums than
// fp32, it grows with the contraction.
#include "../formats.h"
#include "../verbs/product.h"
#include "tensor_memory.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

using testing::Buffer;
using testing::ok;

namespace {

void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Stream {
    Stream() { cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(handle); }
    cudaStream_t handle = nullptr;
};

int repetitions() {
    const char* const text = std::getenv("MXQ_STRESS_REPETITIONS");
    return text ? std::atoi(text) : 1000;
}

// A tensor with a rowwise part, quantized on the device from positive numbers. `ends`: NULL, or of its groups of rows.
struct Operand {
    testing::Tensor tensor;
    std::vector<std::unique_ptr<Buffer>> buffers;

    Operand(testing::Device& device, const oracle::Spec& spec, testing::Dims dims, bool swizzled,
            const testing::DeviceEnds* ends, const oracle::Groups& groups, uint64_t seed) {
        oracle::Floats x(dims.shape().count());
        cases::Random random(seed);
        for (float& value : x) value = std::fabs(random.normal()) + 0.01f;
        testing::Tensor plain = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        const Buffer& numbers = keep(device, oracle::store(MXQ_FORMAT_BF16, x));
        ok(mxq_tensor_set_data(plain, numbers.data(), numbers.bytes()));
        tensor = testing::make_tensor(spec, dims, swizzled);
        if (ends) ends->set(tensor, groups);
        uint64_t codes = 0, scales = 0, amax = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &codes, &scales));
        const Buffer &code_room = keep(device, codes), &scale_room = keep(device, scales);
        ok(mxq_tensor_set_part(tensor, MXQ_PART_ROWWISE, code_room.data(), codes, scale_room.data(), scales));
        if (spec.format == MXQ_FORMAT_NVFP4) {
            ok(mxq_tensor_required_amax_bytes(tensor, MXQ_PART_ROWWISE, &amax));
            ok(mxq_tensor_set_amax(tensor, MXQ_PART_ROWWISE, static_cast<float*>(keep(device, amax).data()), amax));
        }
        testing::Plan plan;
        ok(mxq_quantize_query(device.context, nullptr, plain, tensor, plan.out()));
        Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        ok(mxq_quantize(device.context, nullptr, plain, tensor, workspace.bytes() ? workspace.data() : nullptr,
                        workspace.bytes(), nullptr));
        cuda_ok(cudaDeviceSynchronize());
    }

private:
    template <class Content>
    const Buffer& keep(testing::Device& device, Content content) {
        if constexpr (std::is_integral_v<Content>)
            buffers.push_back(std::make_unique<Buffer>(device, static_cast<size_t>(content)));
        else
            buffers.push_back(std::make_unique<Buffer>(device, content));
        return *buffers.back();
    }
};

// One product, asked for by name or as the library chooses.
struct Product {
    testing::Device& device;
    testing::ProductVerb verb;
    testing::GemmOptions options;
    mxq_tensor *a, *b;
    testing::Output d;
    std::unique_ptr<Buffer> workspace;
    oracle::Promise promise;

    Product(testing::Device& on, bool grouped, const char* name, mxq_tensor* a, mxq_tensor* b, testing::Dims dims)
        : device(on),
          verb(grouped ? mxq_grouped_gemm : mxq_gemm),
          options(testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, name)),
          a(a),
          b(b),
          d(on, MXQ_FORMAT_F32, dims, 0) {
        testing::Plan plan;
        ok((grouped ? mxq_grouped_gemm_query : mxq_gemm_query)(on.context, options, a, b, d.tensor, plan.out()));
        promise = {mxq_plan_implementation(plan), mxq_plan_bound(plan)};
        workspace = std::make_unique<Buffer>(on, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    }
    void run(cudaStream_t stream) {
        ok(verb(device.context, options, a, b, d.tensor, workspace->bytes() ? workspace->data() : nullptr,
                workspace->bytes(), stream));
    }
};

// Returns the largest difference as a share of what mma_bf16 has.
double largest_share(const oracle::Floats& got, const oracle::Floats& wanted) {
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i)
        if (wanted[i] != 0)
            largest = std::max(largest, std::fabs(static_cast<double>(got[i]) - wanted[i]) / std::fabs(wanted[i]));
    return largest;
}

void stress(testing::Device& device, const std::string& what, bool grouped, mxq_tensor* a, mxq_tensor* b, testing::Dims d,
            int64_t k) {
    Product reference(device, grouped, "mma_bf16", a, b, d), product(device, grouped, nullptr, a, b, d);
    Stream of_product, of_others;
    reference.run(of_product.handle);
    cuda_ok(cudaStreamSynchronize(of_product.handle));
    Buffer report(device, testing::Bytes(sizeof(testing::TensorMemoryReport)));
    auto* const on_device = static_cast<testing::TensorMemoryReport*>(report.data());
    testing::Bytes first;
    const int count = repetitions();
    int alike = 0;
    for (int i = 0; i < count; ++i) {
        if (i > 0) testing::use_tensor_memory(of_others.handle, 148, 20000, on_device);  // first without
        product.run(of_product.handle);
        cuda_ok(cudaStreamSynchronize(of_product.handle));
        const testing::Bytes now = product.d.bytes();
        if (i == 0) first = now;
        alike += now == first;
    }
    cuda_ok(cudaStreamSynchronize(of_others.handle));
    testing::TensorMemoryReport found;
    std::memcpy(&found, report.read().data(), sizeof found);
    const double share = largest_share(product.d.values(), reference.d.values());
    std::printf(
        "stress: %s by %s: %d of %d alike, at most 2^%.1f of the sum from mma_bf16; %u blocks with Tensor Memory, %u "
        "wrong\n",
        what.c_str(), product.promise.implementation.c_str(), alike, count, share > 0 ? std::log2(share) : -99.0, found.ran,
        found.wrong);
    const double bound =
        (oracle::class_factor(product.promise.bound, k) + oracle::class_factor(reference.promise.bound, k)) * 0x1p-24;
    INFO(what);
    CHECK(alike == count);
    CHECK(share <= bound);
    CHECK(found.wrong == 0);
}

}  // namespace

TEST_CASE("stress: products again and again beside Tensor Memory have the same bits", "[.stress][cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    const auto spec = testing::spec_of;
    const oracle::Spec mxfp8 = spec(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
                       mxfp4 = spec(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), nvfp4 = spec(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
                       fp8 = spec(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    const int64_t m = 384, n = 512;
    const oracle::Groups groups{{1, 70, 70, 200, 383}};
    int ran = 0;
    for (const auto& [name, one, swizzled] : {std::tuple{"mxfp8", mxfp8, true},
                                              {"nvfp4", nvfp4, true},
                                              {"mxfp8 compact", mxfp8, false},
                                              {"mxfp4", mxfp4, true},
                                              {"fp8", fp8, false}})
        for (const int64_t k : {512, 8192}) {
            const std::string size = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
            const Operand a(device, one, {std::nullopt, m, k}, swizzled, nullptr, {}, 1),
                b(device, one, {std::nullopt, n, k}, swizzled, nullptr, {}, 2);
            stress(device, name + std::string(" ") + size, false, a.tensor, b.tensor, {std::nullopt, m, n}, k);
            ++ran;
            if (k != 512) continue;
            testing::DeviceEnds ends(device, groups.ends, 0);
            const Operand grouped(device, one, {std::nullopt, m, k}, swizzled, &ends, groups, 3);
            const Operand weights(device, one, {groups.count(), n, k}, swizzled, nullptr, {}, 4);
            stress(device, name + std::string(" ") + size + " in 5 groups", true, grouped.tensor, weights.tensor,
                   {std::nullopt, m, n}, k);
            ++ran;
        }
    CHECK(ran == 15);
}
