// The CPU kernels of every instruction set that this machine has give the same bytes, products included.
#include "verb_bytes.h"

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
    for (const char* isa : {"avx2", "avx512bw", "avx512", "avx512bf16", ""}) {
        const auto context = capped_context(isa);
        for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {33, 47, 129}, {128, 130, 515}, {7, 300, 1024}}) {
            INFO(mxq_context_description(context) << ", " << m << " x " << n << " x " << k);
            CHECK(testing::difference(all_bytes(context, m, n, k), all_bytes(scalar, m, n, k)) == "");
            compared++;
        }
    }
    CHECK(compared == 20);
}

namespace {

// A CPU device whose context has nothing better than `isa`.
struct CappedDevice : testing::Device {
    explicit CappedDevice(const char* isa) : Device(MXQ_DEVICE_CPU, std::exchange(*capped_context(isa).out(), nullptr)) {}
};

enum class Of { Conversions, Products };

// Runs `calls` on the kernels of each instruction set, and returns what differs from the scalar ones. The last two sets have
// kernels of their own for products alone.
template <class Calls>
std::string difference_of_sets(Of verbs, const Calls& calls) {
    static CappedDevice scalar("scalar"), avx2("avx2"), avx512bw("avx512bw"), avx512("avx512"), avx512bf16("avx512bf16");
    testing::VerbBytes expected(scalar);
    calls(expected);
    std::vector<CappedDevice*> others = {&avx2, &avx512bw};
    if (verbs == Of::Products) others.insert(others.end(), {&avx512, &avx512bf16});
    for (CappedDevice* device : others) {
        testing::VerbBytes got(*device);
        calls(got);
        if (auto text = testing::difference(got.all, expected.all); !text.empty())
            return mxq_context_description(device->context) + (": " + text);
    }
    return expected.all.empty() ? "nothing was written" : "";
}

}  // namespace

TEST_CASE("instruction sets: the same bytes from each for every format and option, quantize", "[cpu]") {
    int ran = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int32_t input : cases::plain_formats)
            for (auto [rows, cols] : {std::pair<int64_t, int64_t>{33, 71}, {80, 160}, {2, 1040}})
                for (uint64_t draw = 0; draw < 4; ++draw) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    oracle::Spec spec = base;
                    testing::draw_options(spec, random, cols, rows);
                    const testing::Dims dims{std::nullopt, rows, cols};
                    const Bytes x = cases::plain_values(input, cases::all_values[draw], dims.shape().count(),
                                                        static_cast<uint64_t>(ran));
                    INFO(testing::describe(spec) << " from " << mxq_format_name(input) << ", " << rows << "x" << cols);
                    REQUIRE(difference_of_sets(Of::Conversions, [&](testing::VerbBytes& verbs) {
                                verbs.quantize(spec, input, dims, x);
                            }) == "");
                    ++ran;
                }
    CHECK(ran == 35 * 3 * 3 * 4);
}

TEST_CASE("instruction sets: the same bytes from each for every format and any codes, dequantize and requantize", "[cpu]") {
    const testing::Dims dims{std::nullopt, 48, 176};
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        INFO(testing::describe(spec));
        for (int32_t part : testing::both_parts)
            for (int32_t output : cases::plain_formats) {
                const oracle::Part stored = testing::any_codes(spec, dims, part, static_cast<uint64_t>(++ran));
                REQUIRE(difference_of_sets(Of::Conversions, [&](testing::VerbBytes& verbs) {
                            verbs.dequantize(spec, part, stored, output, dims);
                        }) == "");
            }
        const oracle::Part stored = testing::any_codes(spec, dims, MXQ_PART_ROWWISE, static_cast<uint64_t>(ran));
        for (const oracle::Spec& to : testing::all_formats()) {
            INFO("to " << testing::describe(to));
            REQUIRE(difference_of_sets(Of::Conversions, [&](testing::VerbBytes& verbs) {
                        verbs.requantize(spec, stored, to, dims);
                    }) == "");
            ++ran;
        }
    }
    CHECK(ran == 35 * (2 * 3 + 35));
}

// fp32 scales such as 1.1 and 1.3 make products that are not exact: a fused multiply-add rounds them in another way.
TEST_CASE("instruction sets: the same bytes from each for every pair of formats, gemm", "[cpu]") {
    int ran = 0;
    for (const oracle::Spec& a : testing::all_formats())
        for (const oracle::Spec& b : testing::all_formats()) {
            const int64_t m = 1 + ran % 14, n = 1 + ran % 37, k = ran % 3 ? 32 * (1 + ran % 5) : 272 + 16 * (ran % 4);
            const testing::Dims a_dims{std::nullopt, m, k}, b_dims{std::nullopt, n, k};
            const auto of = [&](const oracle::Spec& spec, const testing::Dims& dims) {
                const auto x = cases::values(cases::Values::normal, dims.shape().count(), static_cast<uint64_t>(ran) + 5);
                return oracle::quantize(spec, x, dims.shape(), MXQ_PART_ROWWISE, false);
            };
            auto query = [&] {
                auto x = testing::make_tensor(a, a_dims, false), y = testing::make_tensor(b, b_dims, false);
                return mxq_gemm_query(testing::cpu().context, nullptr, x, y,
                                      testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n}), nullptr);
            };
            if (query() == MXQ_STATUS_UNSUPPORTED) continue;  // other blocks
            const oracle::Part x = of(a, a_dims), y = of(b, b_dims);
            INFO(testing::describe(a) << " x " << testing::describe(b) << ", " << m << "x" << n << "x" << k);
            REQUIRE(difference_of_sets(Of::Products, [&](testing::VerbBytes& verbs) {
                        verbs.multiply(a, x, b, y, m, n, k);
                    }) == "");
            ++ran;
        }
    CHECK(ran == 25 * 25 + 2 * 2 + 4 * 4 + 4 * 4 + 8 * 27);

    oracle::Spec tensor = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    for (float scale : {1.1f, 1.3f}) {
        auto of = [&](float s, uint64_t seed) {
            oracle::Part part = testing::any_codes(tensor, {std::nullopt, 4, 32}, MXQ_PART_ROWWISE, seed);
            for (uint8_t& code : part.codes) code = static_cast<uint8_t>(code % 64 + 16);
            part.scales = testing::bytes_of({s});
            return part;
        };
        const oracle::Part x = of(scale, 1), y = of(1.3f, 2);
        CHECK(difference_of_sets(Of::Products, [&](testing::VerbBytes& verbs) {
                  verbs.multiply(tensor, x, tensor, y, 4, 4, 32);
              }) == "");
    }
}

TEST_CASE("instruction sets: an unknown cap is refused") {
    setenv("MXQ_CPU_ISA", "sse9", 1);
    testing::Context context;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, context.out());
    unsetenv("MXQ_CPU_ISA");
    CHECK(status == MXQ_STATUS_INVALID_ARGUMENT);
    for (const char* word : {"MXQ_CPU_ISA", "sse9", "scalar, avx2, avx512bw, avx512 or avx512bf16"})
        CHECK(std::string(mxq_last_error()).find(word) != std::string::npos);
}
