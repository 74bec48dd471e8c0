// The CPU kernels of every instruction set that this machine has give the same bytes, products included.
#include "../api.h"
#include "../cases.h"

#include <cstdlib>

using testing::Bytes;
using testing::ok;

namespace {

// Creates a context as if the machine had nothing better than `isa`; "" is no cap.
testing::Context capped_context(const char* isa) {
    setenv("MXQ_CPU_ISA", isa, 1);
    testing::Context context;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, context.out());
    unsetenv("MXQ_CPU_ISA");
    ok(status);
    return context;
}

struct Operand {
    Operand(mxq_context* context, int64_t rows, int64_t cols, uint64_t seed)
        : dims{std::nullopt, rows, cols}, values(cases::values(cases::Values::wide, rows * cols, seed)) {
        data = oracle::store(MXQ_FORMAT_BF16, values);
        auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        ok(mxq_tensor_set_data(in, data.data(), data.size()));
        quantized = testing::make_quantized({}, dims, true);
        for (int i : {0, 1}) {
            const int32_t part = i ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
            uint64_t code_bytes, scale_bytes;
            ok(mxq_tensor_required_bytes(quantized, part, &code_bytes, &scale_bytes));
            codes[i].resize(code_bytes), scales[i].resize(scale_bytes);
            ok(mxq_tensor_set_part(quantized, part, codes[i].data(), code_bytes, scales[i].data(), scale_bytes));
        }
        ok(mxq_quantize(context, nullptr, in, quantized, nullptr, 0, nullptr));
        restored.resize(values.size() * 2);
        auto out = testing::make_tensor(MXQ_FORMAT_F16, dims);
        ok(mxq_tensor_set_data(out, restored.data(), restored.size()));
        ok(mxq_dequantize(context, nullptr, quantized, out, nullptr, 0, nullptr));
    }

    testing::Dims dims;
    oracle::Floats values;
    testing::Tensor quantized;
    Bytes data, codes[2], scales[2], restored;
};

// Runs the verbs on one shape and returns all the bytes that they write, one result after another.
Bytes all_bytes(mxq_context* context, int64_t m, int64_t n, int64_t k) {
    Operand a(context, m, k, 1), b(context, n, k, 2);
    Bytes d(m * n * 4), all;
    auto out = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n});
    ok(mxq_tensor_set_data(out, d.data(), d.size()));
    ok(mxq_gemm(context, nullptr, a.quantized, b.quantized, out, nullptr, 0, nullptr));
    for (const Bytes& part : {a.codes[0], a.codes[1], a.scales[0], a.scales[1], a.restored, b.codes[0], d})
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

}  // namespace

TEST_CASE("instruction sets: the same bytes from each") {
    const auto scalar = capped_context("scalar");
    CHECK(std::string(mxq_context_description(scalar)).find("scalar") != std::string::npos);
    int compared = 0;
    for (const char* isa : {"avx2", "avx512", ""}) {
        const auto context = capped_context(isa);
        for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {33, 47, 129}, {128, 130, 515}, {7, 300, 1024}}) {
            INFO(mxq_context_description(context) << ", " << m << " x " << n << " x " << k);
            CHECK(testing::difference(all_bytes(context, m, n, k), all_bytes(scalar, m, n, k)) == "");
            compared++;
        }
    }
    CHECK(compared == 12);
}

TEST_CASE("instruction sets: an unknown cap is refused") {
    setenv("MXQ_CPU_ISA", "sse9", 1);
    testing::Context context;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, context.out());
    unsetenv("MXQ_CPU_ISA");
    CHECK(status == MXQ_STATUS_INVALID_ARGUMENT);
    for (const char* word : {"MXQ_CPU_ISA", "sse9", "scalar, avx2 or avx512"})
        CHECK(std::string(mxq_last_error()).find(word) != std::string::npos);
}
