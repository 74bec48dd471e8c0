// Dispatch explains itself: plans say why, MXQ_IMPL forces, MXQ_LOG tells on stderr.
#include "../abi/says.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <thread>

using testing::ok;

namespace {

// A context made while MXQ_IMPL has this value.
mxq_status create_forced(const char* value, testing::Context& context, int32_t type = MXQ_DEVICE_CPU) {
    setenv("MXQ_IMPL", value, 1);
    const mxq_status status = mxq_context_create(type, 0, nullptr, context.out());
    unsetenv("MXQ_IMPL");
    return status;
}

// 2 x 32 values on the CPU, as F32, MXFP8 and a product with themselves.
struct Small {
    Small() {
        ok(mxq_tensor_set_data(x, values, sizeof values));
        ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
        ok(mxq_tensor_set_data(d, sums, sizeof sums));
    }
    mxq_status quantize(mxq_context* context, mxq_quantize_options* options = nullptr) {
        return mxq_quantize(context, options, x, q, nullptr, 0, nullptr);
    }
    mxq_status multiply(mxq_context* context, mxq_gemm_options* options = nullptr) {
        return mxq_gemm(context, options, q, q, d, nullptr, 0, nullptr);
    }
    testing::Plan multiply_plan(mxq_context* context, mxq_gemm_options* options = nullptr) {
        testing::Plan plan;
        ok(mxq_gemm_query(context, options, q, q, d, plan.out()));
        return plan;
    }

    float values[64] = {1, 2, 3}, sums[4] = {-1, -1, -1, -1};
    uint8_t codes[64] = {}, scales[2] = {};
    testing::Tensor x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 32});
    testing::Tensor q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 2, 32});
    testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 2});
};

std::string reason(const testing::Plan& plan) { return mxq_plan_reason(plan); }

std::string this_program() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    REQUIRE(length > 0);
    return std::string(path, static_cast<size_t>(length));
}

// What the hidden case of this name says on stderr, line by line, in a process of its own with MXQ_LOG at this value.
std::vector<std::string> log_of(const std::string& value, const std::string& tag) {
    const std::string command = "MXQ_LOG='" + value + "' '" + this_program() + "' '[" + tag + "]' 2>&1 >/dev/null";
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe);
    std::string all;
    for (int c; (c = std::fgetc(pipe)) != EOF;) all += static_cast<char>(c);
    CHECK(pclose(pipe) == 0);
    std::vector<std::string> lines;
    std::istringstream in(all);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

}  // namespace

MXQ_EACH_DEVICE("explain: a plan says why it has this implementation") {
    auto in = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 64, 64}), out = testing::make_quantized({}, {std::nullopt, 64, 64}, false);
    ok(mxq_tensor_set_part(out, MXQ_PART_COLUMNWISE, nullptr, 0, nullptr, 0));
    testing::Plan best, asked;
    ok(mxq_quantize_query(device.context, nullptr, in, out, best.out()));
    if (device.is_cpu()) {  // those of CUDA are not asked
        CHECK(reason(best) == "");
    } else {
        CHECK(reason(best).find("quantize_rowwise: ") == 0);  // the first of the list, which needs a rowwise part
        CHECK(reason(best).find("cpu") == std::string::npos);
        CHECK(reason(best).find(std::string(mxq_plan_implementation(best)) + ": ") == std::string::npos);
    }

    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_implementation(options, mxq_plan_implementation(best)));
    ok(mxq_quantize_query(device.context, options, in, out, asked.out()));
    CHECK(reason(asked) == "asked for by options.implementation");
    CHECK(mxq_plan_reason(nullptr) == std::string());
}

MXQ_EACH_DEVICE("explain: the first of a list needs no reason") {
    testing::Plan plan;
    auto a = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 64, 64}), b = testing::make_quantized({}, {std::nullopt, 64, 64}, false);
    ok(mxq_quantize_query(device.context, nullptr, a, b, plan.out()));
    CHECK(reason(plan) == "");
}

TEST_CASE("explain: no verb's plan on a CPU context has a word of CUDA", "[cpu]") {
    mxq_context* const context = testing::cpu().context;
    auto x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 64, 64}), y = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 64, 64}),
         q = testing::make_quantized({}, {std::nullopt, 64, 64}, false), swizzled = testing::make_quantized({}, {std::nullopt, 64, 64}, true),
         fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 64, 64}), experts = testing::make_quantized({}, {1, 64, 64}, false),
         grouped = testing::make_quantized({}, {std::nullopt, 64, 64}, false);
    for (const auto* tensor : {&grouped}) ok(testing::set_ends(*tensor, nullptr, MXQ_TYPE_INT32, 1));
    using Query = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, mxq_plan**);
    const std::tuple<Query, mxq_tensor*, mxq_tensor*> verbs[] = {
        {mxq_quantize_query, x, q},           {mxq_requantize_query, q, fp8},
        {mxq_dequantize_query, q, y},         {mxq_amax_query, x, fp8},
        {mxq_swizzle_scales_query, q, swizzled}, {mxq_unswizzle_scales_query, swizzled, q},
        {mxq_pad_groups_query, grouped, grouped}, {mxq_unpad_groups_query, grouped, grouped}};
    int ran = 0;
    for (const auto& [query, in, out] : verbs) {
        testing::Plan plan;
        ok(query(context, nullptr, in, out, plan.out()));
        CHECK(mxq_plan_implementation(plan) == std::string("cpu"));
        CHECK(reason(plan) == "");
        ++ran;
    }
    testing::Plan product, products;
    ok(mxq_gemm_query(context, nullptr, q, q, y, product.out()));
    ok(mxq_grouped_gemm_query(context, nullptr, grouped, experts, y, products.out()));
    CHECK(reason(product) == "");
    CHECK(reason(products) == "");
    CHECK(ran == 8);
}

TEST_CASE("explain: a plan names the class of bound of a product, and none of other verbs") {
    Small small;
    testing::Context context = testing::cpu_context(1);
    CHECK(mxq_plan_bound(small.multiply_plan(context)) == MXQ_BOUND_EXACT_PRODUCTS);
    testing::Plan grouped, quantize;
    auto a = testing::make_quantized({}, {std::nullopt, 2, 32}, false), b = testing::make_quantized({}, {1, 2, 32}, false);
    ok(testing::set_ends(a, nullptr, MXQ_TYPE_INT32, 1));
    ok(mxq_grouped_gemm_query(context, nullptr, a, b, small.d, grouped.out()));
    CHECK(mxq_plan_bound(grouped) == MXQ_BOUND_EXACT_PRODUCTS);
    ok(mxq_quantize_query(context, nullptr, small.x, small.q, quantize.out()));
    CHECK(mxq_plan_bound(quantize) == MXQ_BOUND_NONE);
    CHECK(mxq_plan_bound(nullptr) == MXQ_BOUND_NONE);
}

TEST_CASE("explain: what the library was built with, and cuBLASLt") {
    CHECK(std::string(mxq_build_string()).find(", ") != std::string::npos);
    CHECK(std::string(mxq_build_string()).find("CUDA") != std::string::npos);
    CHECK(mxq_context_cublaslt(testing::cpu().context) != std::string());
    CHECK(mxq_context_cublaslt(nullptr) == std::string());
    if (testing::cuda()) CHECK(mxq_context_cublaslt(testing::cuda()->context) != std::string());
}

TEST_CASE("MXQ_IMPL: forces the verbs that it names, options go before it") {
    Small small;
    testing::Context context;
    ok(create_forced("gemm:cpu,dequantize:cpu", context));
    CHECK(reason(small.multiply_plan(context)) == "asked for by MXQ_IMPL");
    testing::Plan plan;
    ok(mxq_quantize_query(context, nullptr, small.x, small.q, plan.out()));
    CHECK(reason(plan).find("MXQ_IMPL") == std::string::npos);

    testing::Context declined;
    ok(create_forced("gemm:mma_bf16", declined));
    ok(small.quantize(declined));
    MXQ_REFUSED(small.multiply(declined), MXQ_STATUS_UNSUPPORTED, "mxq_gemm: MXQ_IMPL asks for", "(mma_bf16: ", "CUDA", "unset");
    MXQ_REFUSED(mxq_gemm_query(declined, nullptr, small.q, small.q, small.d, nullptr), MXQ_STATUS_UNSUPPORTED, "MXQ_IMPL", "mma_bf16");
    CHECK(small.sums[0] == -1);
    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "cpu");
    CHECK(reason(small.multiply_plan(declined, options)) == "asked for by options.implementation");
    ok(small.multiply(declined, options));
    CHECK(small.sums[0] == 14);

    testing::Context after;
    ok(mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, after.out()));
    CHECK(reason(small.multiply_plan(after)).find("MXQ_IMPL") == std::string::npos);
}

MXQ_EACH_DEVICE("MXQ_IMPL: on each device, the implementation that a verb takes anyway and one of the other device") {
    auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 64, 64}), out = testing::make_quantized({}, {std::nullopt, 64, 64}, false);
    const std::string own = device.is_cpu() ? "cpu" : "quantize_rowwise", other = device.is_cpu() ? "quantize_rowwise" : "cpu";
    testing::Context context, mistaken;
    testing::Plan plan;
    ok(create_forced(("quantize:" + own).c_str(), context, device.type));
    ok(mxq_quantize_query(context, nullptr, in, out, plan.out()));
    CHECK(mxq_plan_implementation(plan) == own);
    CHECK(reason(plan) == "asked for by MXQ_IMPL");
    ok(create_forced(("quantize:" + other).c_str(), mistaken, device.type));
    MXQ_REFUSED(mxq_quantize_query(mistaken, nullptr, in, out, nullptr), MXQ_STATUS_UNSUPPORTED, "MXQ_IMPL asks for", "(" + other + ": ");
}

TEST_CASE("MXQ_IMPL: each product by its own name") {
    Small small;
    testing::Context context;
    ok(create_forced("grouped_gemm:mma_bf16", context));
    CHECK(reason(small.multiply_plan(context)).find("MXQ_IMPL") == std::string::npos);
    auto b = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {1, 2, 32});
    ok(testing::set_ends(small.q, nullptr, MXQ_TYPE_INT32, 1));
    MXQ_REFUSED(mxq_grouped_gemm_query(context, nullptr, small.q, b, small.d, nullptr), MXQ_STATUS_UNSUPPORTED, "mxq_grouped_gemm_query",
                "MXQ_IMPL", "mma_bf16: ");
}

TEST_CASE("MXQ_IMPL: names that there are not are refused with those that there are") {
    testing::Context context;
    const auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
    MXQ_REFUSED(create_forced("gem:cpu", context), invalid, "mxq_context_create", "MXQ_IMPL", "\"gem:cpu\"", "expected a verb",
                "quantize, ", "grouped_gemm", "unset");
    MXQ_REFUSED(create_forced("gemm:cpus", context), invalid, "MXQ_IMPL", "\"gemm:cpus\"", "implementation of gemm: one of cpu;");
    MXQ_REFUSED(create_forced("gemm:cpu,amax:no", context), invalid, "\"amax:no\"", "implementation of amax");
    MXQ_REFUSED(create_forced("gemm", context), invalid, "\"gemm\"", "verb:implementation");
    MXQ_REFUSED(create_forced("gemm:cpu,", context), invalid, "\"\"", "verb:implementation");
    MXQ_REFUSED(create_forced("gemm:cpu,gemm:cpu", context), invalid, "\"gemm:cpu\"", "once");
    MXQ_REFUSED(create_forced((std::string(5000, 'x') + ":cpu").c_str(), context), invalid, "MXQ_IMPL", "xxx", "expected a verb");
    CHECK(context == nullptr);
    CHECK(create_forced("", context) == MXQ_STATUS_OK);
}

// Runs alone, in a process whose MXQ_LOG is set: one call of each kind.
TEST_CASE("MXQ_LOG: calls to be logged", "[.][log-calls]") {
    Small small;
    testing::Context context = testing::cpu_context(1);
    ok(small.quantize(context));
    ok(mxq_gemm_query(context, nullptr, small.q, small.q, small.d, nullptr));
    ok(small.multiply(context));
    ok(small.multiply(context, testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "cpu")));
    CHECK(small.multiply(context, testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "mma_bf16")) == MXQ_STATUS_UNSUPPORTED);
}

// Runs alone, as the one above: groups that leave out two rows, one, none, and whose ends only a device could read.
TEST_CASE("MXQ_LOG: calls with groups, to be logged", "[.][log-groups]") {
    Small small;
    testing::Context context = testing::cpu_context(1);
    for (const int32_t end : {0, 1, 2}) {
        ok(testing::set_ends(small.q, &end, MXQ_TYPE_INT32, 1));
        ok(small.quantize(context));
    }
    ok(testing::set_ends(small.q, nullptr, MXQ_TYPE_INT32, 1));
    ok(mxq_quantize_query(context, nullptr, small.x, small.q, nullptr));
    const int64_t end = 1;
    ok(testing::set_ends(small.q, &end, MXQ_TYPE_INT64, 1));
    auto b = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {1, 2, 32});
    ok(mxq_tensor_set_part(b, MXQ_PART_ROWWISE, small.codes, sizeof small.codes, small.scales, sizeof small.scales));
    ok(mxq_grouped_gemm(context, nullptr, small.q, b, small.d, nullptr, 0, nullptr));
}

TEST_CASE("MXQ_LOG: calls of many threads to be logged", "[.][log-threads]") {
    testing::Context context = testing::cpu_context(1);
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            Small small;
            for (int call = 0; call < 50; ++call) ok(small.quantize(context));
        });
    for (auto& thread : threads) thread.join();
}

// Runs alone, as the one above, and changes MXQ_LOG between its two calls.
TEST_CASE("MXQ_LOG: calls around a change of the variable, to be logged", "[.][log-changes]") {
    Small small;
    testing::Context context = testing::cpu_context(1);
    const char* first = std::getenv("MXQ_LOG");
    const bool logs = first && std::string(first) == "info";
    ok(small.quantize(context));
    setenv("MXQ_LOG", logs ? "" : "info", 1);
    ok(small.quantize(context));
}

TEST_CASE("MXQ_LOG: read once, by the first verb") {
    CHECK(log_of("info", "log-changes").size() == 2);
    CHECK(log_of("", "log-changes").empty());
}

TEST_CASE("MXQ_LOG: nothing unless it is info or trace") {
    for (const char* value : {"", "0", "INFO", "debug", "info "}) CHECK(log_of(value, "log-calls").empty());
}

TEST_CASE("MXQ_LOG=info: a line for each call that runs") {
    const auto lines = log_of("info", "log-calls");
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].find("mxq: CPU: quantize, f32 2 x 32, mxfp8_e4m3 2 x 32 1x32 rowwise: cpu") == 0);
    for (const std::string& line : lines) CHECK(line.find("CUDA") == std::string::npos);
    CHECK(lines[1] == "mxq: CPU: gemm (N,T), mxfp8_e4m3 2 x 32 1x32 rowwise, mxfp8_e4m3 2 x 32 1x32 rowwise, f32 2 x 2: cpu");
    CHECK(lines[2].find("f32 2 x 2: cpu (asked for by options.implementation)") != std::string::npos);
}

TEST_CASE("MXQ_LOG=info: how many rows are in no group") {
    const auto lines = log_of("info", "log-groups");
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].find(", mxfp8_e4m3 2 x 32 in 1 groups 1x32 rowwise, 2 rows in no group: cpu") != std::string::npos);
    CHECK(lines[1].find(", 1 row in no group: cpu") != std::string::npos);
    CHECK(lines[2].find("in no group") == std::string::npos);
    CHECK(lines[3].find("f32 2 x 2, 1 row in no group: cpu") != std::string::npos);
}

TEST_CASE("MXQ_LOG=trace: also a line for each that declined") {
    std::vector<std::string> declined, calls;
    for (const std::string& line : log_of("trace", "log-calls"))
        (line.find(", declined by ") == std::string::npos ? calls : declined).push_back(line);
    CHECK(calls == log_of("info", "log-calls"));
    REQUIRE(declined.size() == 1);  // those of other devices are asked by name alone
    CHECK(declined.front().find("mxq: CPU: gemm, declined by mma_bf16: ") == 0);  // of the call that was refused
}

TEST_CASE("MXQ_LOG: lines of threads do not mix") {
    const auto lines = log_of("info", "log-threads");
    CHECK(lines.size() == 400);
    for (const std::string& line : lines) REQUIRE(line == lines[0]);
}

TEST_CASE("MXQ_LOG: a call with swizzled scales, to be logged", "[.][log-swizzled]") {
    Small small;
    uint8_t scales[512] = {};
    ok(mxq_tensor_set_swizzled(small.q, 1));
    ok(mxq_tensor_set_part(small.q, MXQ_PART_ROWWISE, small.codes, sizeof small.codes, scales, sizeof scales));
    ok(small.quantize(testing::cpu_context(1)));
}

TEST_CASE("MXQ_LOG=info: a line tells where scales are swizzled") {
    const auto lines = log_of("info", "log-swizzled");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("f32 2 x 32, mxfp8_e4m3 2 x 32 1x32 rowwise swizzled: cpu") != std::string::npos);
}

TEST_CASE("MXQ_LOG: products across what is stored, to be logged", "[.][log-across]") {
    Small small;
    std::vector<float> gradient(32 * 32), of_rows(2 * 32);
    auto weights = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 32, 32}), rows = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 32});
    ok(mxq_tensor_set_data(weights, gradient.data(), gradient.size() * sizeof(float)));
    ok(mxq_tensor_set_data(rows, of_rows.data(), of_rows.size() * sizeof(float)));
    const testing::Context context = testing::cpu_context(1);
    ok(mxq_gemm(context, testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), small.x, small.x, weights, nullptr, 0, nullptr));
    ok(mxq_gemm(context, testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N), small.d, small.q, rows, nullptr, 0, nullptr));
    CHECK(gradient[1] == 2);
    CHECK(gradient[32] == 2);
}

TEST_CASE("MXQ_LOG=info: a line tells the transposes of plain operands, and of which part weights are read") {
    const auto lines = log_of("info", "log-across");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "mxq: CPU: gemm (T,N), f32 2 x 32, f32 2 x 32, f32 32 x 32: cpu");
    CHECK(lines[1] == "mxq: CPU: gemm (N,N), f32 2 x 2, mxfp8_e4m3 2 x 32 1x32 rowwise, f32 2 x 32: cpu (reads b.rowwise transposed, "
                      "since b declares no columnwise part)");
}
