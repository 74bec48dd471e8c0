#include "tensors.h"

#include <new>

namespace large {

namespace {

#ifdef MXQ_TESTS_CUDA
void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}
#endif

// Copies memory of the host to a device.
[[maybe_unused]] void upload(const Device& device, uint8_t* to, const Bytes& from) {
    if (from.empty()) return;
    device.to_device(to, from.data(), from.size());
}

// Returns one period of rows.
Bytes rows_of(int32_t format, int64_t width, Scene::Numbers numbers, uint64_t seed) {
    const auto count = static_cast<size_t>(period * width);
    if (numbers == Scene::Numbers::normal) return cases::plain_values(format, cases::Values::normal, count, seed);
    cases::Random random(seed);
    oracle::Floats values(count);
    for (float& value : values) value = static_cast<float>(random.below(5) - 2);
    return oracle::store(format, values);
}

}  // namespace

// ---- Memory --------------------------------------------------------------------------------------------------------------

Memory::Memory(Device& device, uint64_t bytes) : device(device), bytes(bytes) {
    const size_t size = std::max<uint64_t>(bytes, 1);
    if (device.is_cpu()) {
        data = static_cast<uint8_t*>(::operator new(size, std::align_val_t(256)));
        std::memset(data, testing::poison, size);
        return;
    }
#ifdef MXQ_TESTS_CUDA
    void* block = nullptr;
    cuda_ok(cudaMalloc(&block, size));
    data = static_cast<uint8_t*>(block);
    cuda_ok(cudaMemset(data, testing::poison, size));
#endif
}

Memory::~Memory() {
    if (device.is_cpu()) ::operator delete(data, std::align_val_t(256));
#ifdef MXQ_TESTS_CUDA
    else cudaFree(data);
#endif
}

Bytes Memory::read(uint64_t first, uint64_t count) const {
    Bytes out(count);
    if (count) device.to_host(out.data(), data + first, count);
    return out;
}

void repeat(const Memory& to, const Bytes& from, uint64_t lines) {
    const Repetition r{lines, to.bytes / lines, from.size() / lines};
    if (to.device.is_cpu()) {
        for (uint64_t i = 0; i < to.bytes; ++i) to.data[i] = from[i / r.length * r.period + i % r.length % r.period];
        return;
    }
#ifdef MXQ_TESTS_CUDA
    const Memory staged(to.device, from.size());
    upload(to.device, staged.data, from);
    testing::repeat(to.data, staged.data, r);
#endif
}

uint64_t differences(const Memory& big, const Memory& small, uint64_t lines) {
    const Repetition r{lines, big.bytes / lines, small.bytes / lines};
    uint64_t count = 0;
    if (big.device.is_cpu())
        for (uint64_t i = 0; i < big.bytes; ++i)
            count += big.data[i] != small.data[i / r.length * r.period + i % r.length % r.period];
#ifdef MXQ_TESTS_CUDA
    else count = testing::count_differences(big.data, small.data, r);
#endif
    return count;
}

uint64_t differences(const Memory& a, uint64_t from_a, const Memory& b, uint64_t from_b, uint64_t bytes) {
    uint64_t count = 0;
    if (a.device.is_cpu())
        for (uint64_t i = 0; i < bytes; ++i) count += a.data[from_a + i] != b.data[from_b + i];
#ifdef MXQ_TESTS_CUDA
    else if (bytes) count = testing::count_differences(a.data + from_a, b.data + from_b, {1, bytes, bytes});
#endif
    return count;
}

// ---- Tensors -------------------------------------------------------------------------------------------------------------

mxq_tensor* Scene::plain_in(int32_t format, int64_t width, Numbers numbers, uint64_t seed, int64_t times) {
    mxq_tensor* tensor = keep(testing::make_tensor(format, {std::nullopt, rows * times, width}));
    uint64_t bytes = 0;
    ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
    const auto data = memory(bytes);
    repeat(*data, rows_of(format, width, numbers, seed), 1);
    ok(mxq_tensor_set_data(tensor, data->data, data->bytes));
    return tensor;
}

mxq_tensor* Scene::plain_out(const char* name, int32_t format, int64_t width, int64_t times, uint64_t lines) {
    mxq_tensor* tensor = keep(testing::make_tensor(format, {std::nullopt, rows * times, width}));
    uint64_t bytes = 0;
    ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
    const auto data = memory(bytes);
    ok(mxq_tensor_set_data(tensor, data->data, data->bytes));
    write(name, data, lines);
    return tensor;
}

namespace {

// Returns how many lines the scales of a part are, each along the rows of the tensor.
uint64_t lines_of_scales(const Spec& spec, int64_t width, int32_t part, bool swizzled) {
    const bool is_row = part == MXQ_PART_ROWWISE;
    if (spec.scaling == MXQ_SCALING_TENSOR) return 1;
    if (oracle::is_fp8(spec.format) && swizzled) return is_row ? static_cast<uint64_t>(width) / 128 : 1;  // across the codes
    if (is_row) return 1;
    const int64_t height = swizzled ? 128 : testing::is_square(spec) ? oracle::tile_of(spec.scaling).height : 1;
    return static_cast<uint64_t>(width / height);
}

}  // namespace

// Columnwise codes are a line for each column.
mxq_tensor* Scene::quantized(const char* name, const Spec& spec, int64_t width, int32_t parts, bool swizzled, int64_t times) {
    mxq_tensor* tensor = keep(testing::make_tensor(spec, {std::nullopt, rows * times, width}, swizzled));
    const std::string text = std::string(name) + " " + testing::describe(spec) + (swizzled ? ", swizzled" : "");
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(parts & part)) continue;
        uint64_t code_bytes = 0, scale_bytes = 0, amax_bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes));
        ok(mxq_tensor_required_amax_bytes(tensor, part, &amax_bytes));
        const auto codes = memory(code_bytes), scales = memory(scale_bytes);
        ok(mxq_tensor_set_part(tensor, part, codes->data, codes->bytes, scales->data, scales->bytes));
        const std::string of = part == MXQ_PART_ROWWISE ? "rows" : "columns";
        write(text + ", codes of " + of, codes, part == MXQ_PART_ROWWISE ? 1 : static_cast<uint64_t>(width));
        write(text + ", scales of " + of, scales, lines_of_scales(spec, width, part, swizzled));
        if (!testing::is_nvfp4(spec)) continue;
        const auto amax = memory(amax_bytes);
        ok(mxq_tensor_set_amax(tensor, part, reinterpret_cast<float*>(amax->data), amax->bytes));
        write(text + ", amax of " + of, amax, 1);
    }
    return tensor;
}

mxq_tensor* Scene::same(const Spec& spec, Dims dims, int32_t part, uint64_t seed) {
    const bool is_plain = spec.scaling == MXQ_SCALING_NONE;
    const int32_t format = is_plain ? spec.format : MXQ_FORMAT_F32;
    cases::Random random(seed);
    oracle::Floats values(static_cast<size_t>(dims.rows * dims.cols));
    for (float& value : values) value = static_cast<float>(random.below(5) - 2);
    mxq_tensor* x = keep(testing::make_tensor(format, dims));
    const Bytes of_expert = oracle::store(format, values);
    const auto data = memory(of_expert.size() * static_cast<uint64_t>(dims.experts.value_or(1)));
    repeat(*data, of_expert, 1);
    ok(mxq_tensor_set_data(x, data->data, data->bytes));
    if (is_plain) return x;
    mxq_tensor* q = keep(testing::make_tensor(spec, dims, false));
    uint64_t code_bytes = 0, scale_bytes = 0;
    ok(mxq_tensor_required_bytes(q, part, &code_bytes, &scale_bytes));
    const auto codes = memory(code_bytes), scales = memory(scale_bytes);
    ok(mxq_tensor_set_part(q, part, codes->data, codes->bytes, scales->data, scales->bytes));
    const testing::Options options(device, spec);
    convert(*this, mxq_quantize, mxq_quantize_query, options, x, q);
    return q;
}

mxq_tensor* Scene::part_of(const mxq_tensor* tensor, const Spec& spec, int64_t width, int32_t part, bool swizzled) {
    mxq_tensor* out = keep(testing::make_tensor(spec, {std::nullopt, rows, width}, swizzled));
    void *codes = nullptr, *scales = nullptr;
    uint64_t code_bytes = 0, scale_bytes = 0, amax_bytes = 0;
    ok(mxq_tensor_get_part(tensor, part, nullptr, &codes, &code_bytes, &scales, &scale_bytes, nullptr));
    ok(mxq_tensor_set_part(out, part, codes, code_bytes, scales, scale_bytes));
    if (!testing::is_nvfp4(spec)) return out;
    float* amax = nullptr;
    ok(mxq_tensor_get_amax(tensor, part, &amax, &amax_bytes));
    ok(mxq_tensor_set_amax(out, part, amax, amax_bytes));
    return out;
}

std::string convert(Scene& scene, testing::Verb run, testing::Query query, const mxq_quantize_options* options,
                    const mxq_tensor* in, const mxq_tensor* out) {
    mxq_context* context = scene.device.context;
    return call(
        scene, [&](mxq_plan** plan) { return query(context, options, in, out, plan); },
        [&](void* workspace, uint64_t bytes) { return run(context, options, in, out, workspace, bytes, nullptr); });
}

// ---- The comparison ------------------------------------------------------------------------------------------------------

int check(const std::string& what, Device& device, const std::vector<int64_t>& rows, const Make& make) {
    Scene expected(testing::cpu(), period), small(device, period);
    make(expected);
    make(small);
    int compared = 0;
    for (const int64_t count : rows) {
        Scene big(device, count);
        make(big);
        INFO(what << ", " << count << " rows, on " << mxq_context_description(device.context));
        REQUIRE(big.written.size() == small.written.size());
        for (size_t i = 0; i < big.written.size(); ++i) {
            const Written &of_big = big.written[i], &of_small = small.written[i];
            INFO(of_big.name << ", " << of_big.memory->bytes << " bytes");
            CHECK(testing::difference(of_small.memory->read(), expected.written[i].memory->read()) == "");
            REQUIRE(of_big.memory->bytes % of_big.lines == 0);
            CHECK(differences(*of_big.memory, *of_small.memory, of_big.lines) == 0);
            ++compared;
        }
    }
    return compared;
}

std::vector<int64_t> rows_for(const Device& device) {
    if (device.is_cpu()) return {3 * period};
    return {beyond_31, beyond_32};
}

std::string lacks_memory([[maybe_unused]] const Device& device, [[maybe_unused]] uint64_t bytes) {
#ifdef MXQ_TESTS_CUDA
    size_t free = 0, total = 0;
    cuda_ok(cudaMemGetInfo(&free, &total));
    if (free < bytes)
        return std::to_string(free >> 30) + " GiB of device memory are free, expected " + std::to_string(bytes >> 30);
#endif
    return "";
}

}  // namespace large
