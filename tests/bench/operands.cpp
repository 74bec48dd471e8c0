#include "operands.h"

#include <algorithm>
#include <bit>
#include <random>
#include <stdexcept>

using namespace mxq_handles;

namespace {

uint16_t f16_of(float x) {  // truncating, for values of moderate size
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude < 0x38800000) return uint16_t(sign);
    return uint16_t(sign | ((magnitude - 0x38000000) >> 13));
}

template <class T, class Convert>
std::vector<uint8_t> random_bytes(Convert convert) {
    std::mt19937 random(12345);
    std::normal_distribution<float> normal;
    std::vector<uint8_t> bytes((size_t(8) << 20) / sizeof(T) * sizeof(T));
    T* values = reinterpret_cast<T*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) values[i] = convert(normal(random));
    return bytes;
}

// 8 MiB of random numbers; tensors repeat them.
const std::vector<uint8_t>& random_pool(int32_t format) {
    static const auto f32 = random_bytes<float>([](float x) { return x; });
    static const auto f16 = random_bytes<uint16_t>(f16_of);
    static const auto bf16 =
        random_bytes<uint16_t>([](float x) { return uint16_t((std::bit_cast<uint32_t>(x) + 0x8000) >> 16); });
    return format == MXQ_FORMAT_F32 ? f32 : format == MXQ_FORMAT_F16 ? f16 : bf16;
}

Tensor describe(int32_t format, Shape shape) {
    return shape.experts ? tensor(format, shape.experts, shape.rows, shape.cols)
                         : tensor(format, shape.rows, shape.cols);
}

void add_part(Backend& backend, Operand& operand, int32_t part) {
    const PartBytes bytes = required_bytes(operand.tensor, part);
    auto codes = backend.allocate(bytes.codes), scales = backend.allocate(bytes.scales);
    check(mxq_tensor_set_part(operand.get(), part, codes.get(), bytes.codes, scales.get(), bytes.scales));
    operand.memory.push_back(codes);
    operand.memory.push_back(scales);
    operand.codes = codes.get();
    operand.scales = scales.get();
    operand.bytes += double(bytes.codes) + double(bytes.scales);
}

void add_data(Backend& backend, Operand& operand) {
    const uint64_t bytes = required_bytes(operand.tensor).codes;
    operand.memory.push_back(backend.allocate(bytes));
    operand.bytes = double(bytes);
    operand.codes = operand.memory.back().get();
    check(mxq_tensor_set_data(operand.get(), operand.codes, bytes));
}

void fill(Backend& backend, const Operand& plain, int32_t format) {
    const auto& pool = random_pool(format);
    for (size_t at = 0; at < size_t(plain.bytes); at += pool.size())
        backend.upload(static_cast<char*>(plain.codes) + at, pool.data(), std::min(pool.size(), size_t(plain.bytes) - at));
}

// One fp32 number in the backend's memory, which the operand keeps.
float* add_number(Backend& backend, Operand& operand, float value) {
    operand.memory.push_back(backend.allocate(sizeof value));
    backend.upload(operand.memory.back().get(), &value, sizeof value);
    return static_cast<float*>(operand.memory.back().get());
}

void quantize(Backend& backend, const Operand& in, const Operand& out) {
    Plan plan = make<Plan>(mxq_quantize_query, backend.context(), nullptr, in.get(), out.get());
    const uint64_t bytes = mxq_plan_workspace_bytes(plan.get());
    auto workspace = backend.allocate(bytes);
    check(mxq_quantize(backend.context(), nullptr, in.get(), out.get(), workspace.get(), bytes, backend.stream()));
    backend.wait();
}

}  // namespace

Operand empty_plain(Backend& backend, int32_t format, Shape shape) {
    Operand out{describe(format, shape), {}};
    add_data(backend, out);
    return out;
}

Operand empty_grouped(Backend& backend, int32_t format, Shape shape, const std::vector<int32_t>& ends,
                      const std::shared_ptr<void>& device_ends, int32_t alignment) {
    Operand out{describe(format, shape), {device_ends}};
    set_groups(out, ends, device_ends);
    check(mxq_tensor_set_group_alignment(out.get(), alignment, 0));
    add_data(backend, out);
    return out;
}

Operand random_plain(Backend& backend, int32_t format, Shape shape) {
    Operand out = empty_plain(backend, format, shape);
    fill(backend, out, format);
    return out;
}

Operand empty_quantized(Backend& backend, const Quantization& quantization, Shape shape) {
    constexpr float largest = 6;  // more than any of the random numbers
    Operand out{describe(quantization.format, shape), {}};
    if (quantization.scaling != MXQ_SCALING_NONE) check(mxq_tensor_set_scaling(out.get(), quantization.scaling));
    check(mxq_tensor_set_swizzled(out.get(), quantization.swizzled));
    if (quantization.per_expert) check(mxq_tensor_set_scope(out.get(), MXQ_SCOPE_EXPERT));
    for (int32_t part : quantization.parts) add_part(backend, out, part);
    if (quantization.format == MXQ_FORMAT_NVFP4)
        for (int32_t part : quantization.parts)
            check(mxq_tensor_set_amax(out.get(), part, add_number(backend, out, largest), sizeof(float)));
    if (quantization.delayed)
        check(mxq_tensor_set_quantization_scale(out.get(), add_number(backend, out, 448 / largest), sizeof(float)));
    return out;
}

Operand random_quantized(Backend& backend, const Quantization& quantization, Shape shape) {
    Operand in = random_plain(backend, MXQ_FORMAT_BF16, shape);
    Operand out = empty_quantized(backend, quantization, shape);
    quantize(backend, in, out);
    return out;
}

std::vector<int32_t> ragged_ends(int64_t rows, int groups) {
    std::mt19937 random(2024);
    std::vector<double> weight(groups);
    double total = 0;
    for (double& w : weight) total += w = 0.5 + double(random() - random.min()) / double(random.max());
    std::vector<int32_t> ends;
    double sum = 0;
    int64_t before = 0;
    for (int g = 0; g < groups; ++g) {
        const int64_t fours = int64_t(double(rows) * (sum += weight[g]) / total) / 4;
        before = std::clamp(4 * fours + 1 + g % 2, before, rows);
        ends.push_back(int32_t(before));
    }
    ends.back() = int32_t(rows);
    return ends;
}

void set_groups(const Operand& operand, const std::vector<int32_t>& ends, const std::shared_ptr<void>& device_ends) {
    check(mxq_tensor_set_groups(operand.get(), device_ends.get(), MXQ_TYPE_INT32, int32_t(ends.size())));
}

Operand random_grouped(Backend& backend, const Quantization& quantization, Shape shape, const std::vector<int32_t>& ends,
                       const std::shared_ptr<void>& device_ends) {
    if (quantization.format == MXQ_FORMAT_BF16) {
        Operand plain = empty_grouped(backend, MXQ_FORMAT_BF16, shape, ends, device_ends, quantization.group_alignment);
        fill(backend, plain, MXQ_FORMAT_BF16);
        return plain;
    }
    Operand in = random_plain(backend, MXQ_FORMAT_BF16, shape);
    Quantization without_parts = quantization;  // whose sizes the groups change
    without_parts.parts = {};
    Operand out = empty_quantized(backend, without_parts, shape);
    out.memory.push_back(device_ends);
    set_groups(out, ends, device_ends);
    check(mxq_tensor_set_group_alignment(out.get(), quantization.group_alignment, 0));
    for (int32_t part : quantization.parts) add_part(backend, out, part);
    quantize(backend, in, out);
    return out;
}
