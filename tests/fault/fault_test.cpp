// Makes memory run out at every place where it can: each allocation of each call, and each start of a thread, fails once. The
// call must then return OUT_OF_MEMORY, write and leak nothing, and succeed as soon as there is memory again.
#include "allocations.h"

#include "../abi/says.h"
#include "../oracle_groups.h"
#include "../verbs/product.h"
#include "../verbs/routing.h"
#include "api/guard.h"
#include "core/validate.h"

#include <functional>

namespace {

using fault::armed, fault::fail_each_allocation, fault::live, fault::until_failure, fault::until_no_thread;
using testing::ok;

template <class T, class Create, class Destroy>
int fail_creation(Create create, Destroy destroy) {
    T* handle = nullptr;
    return fail_each_allocation([&] { return create(&handle); }, [&] { return handle == nullptr; },
                                [&] {
                                    destroy(handle);
                                    handle = nullptr;
                                });
}

}  // namespace

TEST_CASE("out of memory: every creation") {
    CHECK(fail_creation<mxq_tensor>([](mxq_tensor** out) { return mxq_tensor_create_2d(MXQ_FORMAT_F32, 3, 3, out); }, mxq_tensor_destroy) >= 1);
    CHECK(fail_creation<mxq_tensor>([](mxq_tensor** out) { return mxq_tensor_create_3d(MXQ_FORMAT_MXFP8_E5M2, 2, 3, 3, out); }, mxq_tensor_destroy) >= 1);
    CHECK(fail_creation<mxq_quantize_options>(mxq_quantize_options_create, mxq_quantize_options_destroy) >= 1);
    CHECK(fail_creation<mxq_gemm_options>(mxq_gemm_options_create, mxq_gemm_options_destroy) >= 1);
    CHECK(fail_creation<mxq_context_options>(mxq_context_options_create, mxq_context_options_destroy) >= 1);

    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_threads(options, 4));
    CHECK(fail_creation<mxq_context>([&](mxq_context** out) { return mxq_context_create(MXQ_DEVICE_CPU, 0, options, out); }, mxq_context_destroy) >= 4);

    auto gemm = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
    CHECK(fail_each_allocation([&] { return mxq_gemm_options_set_implementation(gemm, "a name that is too long to stand inside a string object"); },
                               [] { return true; }, [&] { gemm = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T); }) >= 1);
}

namespace {

mxq_status try_to_quantize(mxq_context* context) {
    static float values[32] = {1, 2, 3};
    static uint8_t codes[32], scale;
    static const testing::Tensor x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, 32});
    static const testing::Tensor q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 1, 32});
    ok(mxq_tensor_set_data(x, values, sizeof values));
    ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 1));
    return mxq_quantize(context, nullptr, x, q, nullptr, 0, nullptr);
}
void quantize_once(mxq_context* context) { ok(try_to_quantize(context)); }

}  // namespace

TEST_CASE("out of memory: the first call of a context, whose memory goes with the context") {
    quantize_once(testing::cpu_context(1));  // makes the tensors
    const auto call = [] {
        testing::Context context;
        const mxq_status created = mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, context.out());
        return created == MXQ_STATUS_OK ? try_to_quantize(context) : created;
    };
    const auto create_alone = [] {
        testing::Context context;
        return mxq_context_create(MXQ_DEVICE_CPU, 0, nullptr, context.out());
    };
    const auto untouched = [] { return true; };
    CHECK(fail_each_allocation(call, untouched) == fail_each_allocation(create_alone, untouched) + 1);
}

TEST_CASE("out of memory: every verb and query") {
    testing::Device device(MXQ_DEVICE_CPU, std::exchange(*testing::cpu_context(3).out(), nullptr));
    quantize_once(device.context);  // the context keeps the memory that the kernels of its first call worked in
    const int64_t rows = 200, cols = 300;
    const testing::Dims dims{std::nullopt, rows, cols};
    int verbs = 0, failures = 0, queries = 0;
    auto run = [&](const std::function<mxq_status()>& call, const std::vector<testing::Buffer*>& written) {
        auto untouched = [&] {
            for (auto* buffer : written)
                if (!buffer->untouched()) return false;
            return true;
        };
        failures += fail_each_allocation(call, untouched);
        for (auto* buffer : written) CHECK(!buffer->untouched());
        ++verbs;
    };
    auto query = [&](const auto& call) {
        CHECK(fail_creation<mxq_plan>(call, mxq_plan_destroy) >= 1);
        ++queries;
    };

    auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), back = testing::make_tensor(MXQ_FORMAT_F32, dims);
    auto quantized = testing::make_quantized({}, dims, false), swizzled = testing::make_quantized({}, dims, true), again = testing::make_quantized({}, dims, false);
    testing::Buffer data(device, cases::plain_values(MXQ_FORMAT_F32, cases::Values::normal, rows * cols, 1)), values(device, rows * cols * 4);
    testing::PartBuffers row(device, quantized, MXQ_PART_ROWWISE), column(device, quantized, MXQ_PART_COLUMNWISE);
    ok(mxq_tensor_set_data(x, data.data(), data.bytes()));
    ok(mxq_tensor_set_data(back, values.data(), values.bytes()));
    run([&] { return mxq_quantize(device.context, nullptr, x, quantized, nullptr, 0, nullptr); },
        {row.codes.get(), row.scales.get(), column.codes.get(), column.scales.get()});
    run([&] { return mxq_dequantize(device.context, nullptr, quantized, back, nullptr, 0, nullptr); }, {&values});
    {
        auto narrow = testing::make_tensor(MXQ_FORMAT_F16, dims);
        testing::Buffer numbers(device, rows * cols * 2);
        ok(mxq_tensor_set_data(narrow, numbers.data(), numbers.bytes()));
        run([&] { return mxq_convert(device.context, nullptr, x, narrow, nullptr, 0, nullptr); }, {&numbers});
        query([&](mxq_plan** out) { return mxq_convert_query(device.context, nullptr, x, narrow, out); });
    }
    ok(mxq_tensor_clear_part(quantized, MXQ_PART_COLUMNWISE));
    {
        testing::PartBuffers to(device, swizzled, MXQ_PART_ROWWISE), from(device, again, MXQ_PART_ROWWISE);
        run([&] { return mxq_swizzle_scales(device.context, nullptr, quantized, swizzled, nullptr, 0, nullptr); }, {to.scales.get()});
        run([&] { return mxq_unswizzle_scales(device.context, nullptr, swizzled, again, nullptr, 0, nullptr); }, {from.scales.get()});
        query([&](mxq_plan** out) { return mxq_swizzle_scales_query(device.context, nullptr, quantized, swizzled, out); });
        query([&](mxq_plan** out) { return mxq_unswizzle_scales_query(device.context, nullptr, swizzled, again, out); });
    }
    testing::Buffer product(device, rows * rows * 4), grouped(device, rows * rows * 4), ends(device, testing::Bytes{90, 0, 0, 0, 200, 0, 0, 0});
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, rows});
    ok(mxq_tensor_set_data(d, product.data(), product.bytes()));
    run([&] { return mxq_gemm(device.context, nullptr, quantized, quantized, d, nullptr, 0, nullptr); }, {&product});

    auto experts = testing::make_quantized({}, {2, rows, cols}, false);
    testing::PartBuffers weights(device, experts, MXQ_PART_ROWWISE, testing::make_operand({}, 2 * rows, cols, testing::Spread::normal, 3).compact);
    ok(mxq_tensor_set_data(d, grouped.data(), grouped.bytes()));
    ok(testing::set_ends(quantized, ends.data(), MXQ_TYPE_INT32, 2));
    run([&] { return mxq_grouped_gemm(device.context, nullptr, quantized, experts, d, nullptr, 0, nullptr); }, {&grouped});

    query([&](mxq_plan** out) { return mxq_grouped_gemm_query(device.context, nullptr, quantized, experts, d, out); });

    // Padding of D is cleared after all else is allocated.
    testing::Buffer padded_product(device, oracle::padded_bound(rows, 2, 16) * rows * 4);
    auto padded_d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, rows});
    ok(testing::set_ends(padded_d, ends.data(), MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_group_alignment(padded_d, 16, 0));
    ok(mxq_tensor_set_data(padded_d, padded_product.data(), padded_product.bytes()));
    run([&] { return mxq_grouped_gemm(device.context, nullptr, quantized, experts, padded_d, nullptr, 0, nullptr); },
        {&padded_product});

    auto aligned = testing::make_quantized({}, dims, false), from_aligned = testing::make_quantized({}, dims, false);
    for (const auto* tensor : {&aligned, &from_aligned}) ok(testing::set_ends(*tensor, ends.data(), MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_group_alignment(aligned, 32, 0));
    testing::PartBuffers padded(device, aligned, MXQ_PART_ROWWISE), unpadded(device, from_aligned, MXQ_PART_ROWWISE);
    testing::Buffer starts(device, 8), padded_ends(device, 8), unpadded_starts(device, 8);
    ok(mxq_tensor_set_padded_groups(aligned, MXQ_PART_ROWWISE, starts.data(), starts.bytes(), padded_ends.data(),
                                    padded_ends.bytes()));
    ok(mxq_tensor_set_padded_groups(from_aligned, MXQ_PART_ROWWISE, unpadded_starts.data(), unpadded_starts.bytes(), nullptr,
                                    0));
    // A verb that writes two parts writes nothing of the first one before it has the memory that the second one needs.
    {
        testing::PartBuffers columns(device, quantized, MXQ_PART_COLUMNWISE);
        testing::PartBuffers padded_columns(device, aligned, MXQ_PART_COLUMNWISE);
        run([&] { return mxq_pad_groups(device.context, nullptr, quantized, aligned, nullptr, 0, nullptr); },
            {padded.codes.get(), padded.scales.get(), &starts, &padded_ends});
        for (const auto* tensor : {&quantized, &aligned}) ok(mxq_tensor_clear_part(*tensor, MXQ_PART_COLUMNWISE));
    }
    run([&] { return mxq_unpad_groups(device.context, nullptr, aligned, from_aligned, nullptr, 0, nullptr); },
        {unpadded.codes.get(), unpadded.scales.get(), &unpadded_starts});
    query([&](mxq_plan** out) { return mxq_pad_groups_query(device.context, nullptr, quantized, aligned, out); });
    query([&](mxq_plan** out) { return mxq_unpad_groups_query(device.context, nullptr, aligned, from_aligned, out); });

    auto nvfp4 = testing::make_tensor(MXQ_FORMAT_NVFP4, dims), grouped_x = testing::make_tensor(MXQ_FORMAT_F32, dims);
    ok(mxq_tensor_set_data(grouped_x, data.data(), data.bytes()));
    ok(testing::set_ends(nvfp4, ends.data(), MXQ_TYPE_INT32, 2));
    testing::PartBuffers requantized(device, nvfp4, MXQ_PART_ROWWISE);
    testing::Buffer largest(device, 4), computed(device, 4);
    ok(mxq_tensor_set_amax(nvfp4, MXQ_PART_ROWWISE, static_cast<float*>(largest.data()), 4));
    run([&] { return mxq_amax(device.context, nullptr, grouped_x, nvfp4, nullptr, 0, nullptr); }, {&largest});
    ok(mxq_tensor_set_amax(nvfp4, MXQ_PART_ROWWISE, static_cast<float*>(computed.data()), 4));
    run([&] { return mxq_requantize(device.context, nullptr, quantized, nvfp4, nullptr, 0, nullptr); },
        {requantized.codes.get(), requantized.scales.get(), &computed});
    query([&](mxq_plan** out) { return mxq_requantize_query(device.context, nullptr, quantized, nvfp4, out); });
    query([&](mxq_plan** out) { return mxq_amax_query(device.context, nullptr, grouped_x, nvfp4, out); });
    ok(testing::set_ends(quantized, nullptr, 0, 0));
    query([&](mxq_plan** out) { return mxq_gemm_query(device.context, nullptr, quantized, quantized, d, out); });
    query([&](mxq_plan** out) { return mxq_quantize_query(device.context, nullptr, x, quantized, out); });
    query([&](mxq_plan** out) { return mxq_dequantize_query(device.context, nullptr, quantized, back, out); });
    CHECK(verbs == 12);
    CHECK(failures >= 15);  // quantize without groups allocates nothing
    CHECK(queries == 11);
}

// Of all calls, padding has the most buffers and a grouped product the most requirements.
// The steps of a layer may have written its routing, but never its sums.
TEST_CASE("out of memory: an expert layer, its routing and its sums") {
    testing::Device device(MXQ_DEVICE_CPU, std::exchange(*testing::cpu_context(3).out(), nullptr));
    quantize_once(device.context);
    const auto choices = testing::draw_choices(40, 3, 4, testing::Draw::with_dropped, 1);
    constexpr int64_t width = 64, inner = 96;
    const testing::DeviceRouting routing(device, choices);
    CHECK(fail_each_allocation([&] { return routing.route(); }, [&] { return routing.untouched(); }) >= 1);

    const auto numbers = [](int64_t count, uint64_t seed) { return cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, count, seed); };
    const testing::Buffer x(device, numbers(40 * width, 2)), up(device, numbers(4 * 2 * inner * width, 3)), down(device, numbers(4 * width * inner, 4)),
        rows(device, numbers(choices.rows() * width, 5)), sums(device, 40 * width * 4), added(device, 40 * width * 4), weights(device, 40 * 3 * 4);
    const auto tensor = [](int32_t format, testing::Dims dims, const testing::Buffer& buffer) {
        auto made = testing::make_tensor(format, dims);
        ok(mxq_tensor_set_data(made, buffer.data(), buffer.bytes()));
        return made;
    };
    const auto tx = tensor(MXQ_FORMAT_BF16, {std::nullopt, 40, width}, x), in = tensor(MXQ_FORMAT_BF16, {std::nullopt, choices.rows(), width}, rows),
               gate_up = tensor(MXQ_FORMAT_BF16, {4, 2 * inner, width}, up), of_down = tensor(MXQ_FORMAT_BF16, {4, width, inner}, down),
               out = tensor(MXQ_FORMAT_F32, {std::nullopt, 40, width}, sums), combined = tensor(MXQ_FORMAT_F32, {std::nullopt, 40, width}, added),
               d_weights = tensor(MXQ_FORMAT_F32, {std::nullopt, 40, 3}, weights);
    fail_each_allocation([&] { return mxq_combine(device.context, nullptr, routing.handle, in, nullptr, combined, nullptr, 0, nullptr); },
                         [&] { return added.untouched(); });
    fail_each_allocation([&] { return mxq_combine_backward(device.context, nullptr, routing.handle, tx, in, nullptr, d_weights, nullptr, 0, nullptr); },
                         [&] { return weights.untouched(); });
    testing::Handle<mxq_expert_layer_options, mxq_expert_layer_options_destroy> options;
    ok(mxq_expert_layer_options_create(options.out()));
    ok(mxq_expert_layer_options_set_row_format(options, MXQ_FORMAT_MXFP8_E4M3, 0));
    CHECK(fail_each_allocation([&] { return mxq_expert_layer(device.context, options, tx, routing.handle, gate_up, of_down, out, nullptr, 0, nullptr); },
                               [&] { return sums.untouched(); }) >= 3);
    CHECK(!sums.untouched());
    CHECK(fail_creation<mxq_plan>([&](mxq_plan** plan) { return mxq_expert_layer_query(device.context, options, tx, routing.handle, gate_up, of_down, out, plan); },
                                  mxq_plan_destroy) >= 1);
    CHECK(fail_creation<mxq_routing>([](mxq_routing** made) { return mxq_routing_create(3, 2, 4, made); }, mxq_routing_destroy) >= 1);
    CHECK(fail_creation<mxq_expert_layer_options>(mxq_expert_layer_options_create, mxq_expert_layer_options_destroy) >= 1);
}

TEST_CASE("out of memory: validation allocates nothing") {
    uintptr_t next = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): only an address.
    auto memory = [&] { return reinterpret_cast<void*>(next += 1 << 20); };
    auto quantized = [&](const testing::Dims& dims) {
        auto tensor = testing::make_quantized({}, dims, true);
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            void* codes = memory();
            ok(mxq_tensor_set_part(tensor, part, codes, 1 << 20, memory(), 1 << 20));
        }
        return tensor;
    };
    const testing::Dims dims{std::nullopt, 256, 128};
    auto in = quantized(dims), out = quantized(dims), experts = quantized({4, 256, 128});
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 256, 256});
    ok(mxq_tensor_set_data(d, memory(), 1 << 20));
    void* ends = memory();
    for (const auto* grouped : {&in, &out}) ok(testing::set_ends(*grouped, ends, MXQ_TYPE_INT32, 4));
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        void* starts = memory();
        ok(mxq_tensor_set_padded_groups(out, part, starts, 16, memory(), 16));
    }
    auto allocations = [&](auto validate) {
        return fail_each_allocation([&] { return mxq::guard("validation", validate); }, [] { return true; });
    };
    mxq_context* const context = testing::cpu().context;
    CHECK(allocations([&] { mxq::validate_pad(*context, nullptr, in, out, true, mxq::Check::Execute); }) == 0);
    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
    CHECK(allocations([&] { mxq::validate_grouped_gemm(*context, options, in, experts, d, mxq::Check::Execute); }) == 0);
}

// A context of 4 threads starts three, as the caller is one of them. The first, second and third start fail in turn.
TEST_CASE("threads that do not start: the context is refused and says what to do") {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_threads(options, 4));
    auto create = [&](int first_refused, mxq_context** context) {
        until_no_thread = first_refused;
        mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, options, context);
        until_no_thread = -1;
        return status;
    };
    int refused = 0;
    for (int n = 0; n < 3; ++n) {
        const long before = live;
        auto* context = reinterpret_cast<mxq_context*>(&refused);  // any address but NULL, which the call must set to NULL
        mxq_status status = create(n, &context);
        const long after = live;
        CHECK(after == before);
        CHECK(context == nullptr);
        MXQ_REFUSED(status, MXQ_STATUS_OUT_OF_MEMORY, "mxq_context_create", std::to_string(n + 1) + " of 4 threads", "mxq_context_options_set_threads");
        ++refused;
    }
    CHECK(refused == 3);
    testing::Context context;
    CHECK(create(3, context.out()) == MXQ_STATUS_OK);
}

// A refusal without memory for its message must still return a status.
TEST_CASE("out of memory: while refusing") {
    mxq_tensor* tensor = nullptr;
    int refused = 0;
    for (int n = 0; n < 20; ++n) {
        const long before = live;
        until_failure = n;
        armed = true;
        mxq_status status = mxq_tensor_create_2d(MXQ_FORMAT_F32, -1, 1, &tensor);
        armed = false;
        const long after = live;
        CHECK(after == before);
        CHECK((status == MXQ_STATUS_OUT_OF_MEMORY || status == MXQ_STATUS_INVALID_ARGUMENT));
        CHECK(tensor == nullptr);
        ++refused;
    }
    CHECK(refused == 20);
}
