#include "operands.h"

#include <algorithm>
#include <bit>
#include <random>

namespace {

constexpr float largest = 6;  // more than any of the random numbers

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

void fill(Device& device, int32_t format, void* data, size_t bytes) {
    const auto& pool = random_pool(format);
    device.upload(data, pool.data(), std::min(pool.size(), bytes));
    for (size_t at = pool.size(); at < bytes; at += pool.size())
        device.duplicate(static_cast<char*>(data) + at, data, std::min(pool.size(), bytes - at));
}

std::shared_ptr<void> numbers(Device& device, uint64_t bytes, float value) {
    auto memory = device.allocate(bytes);
    device.upload(memory.get(), std::vector<float>(bytes / sizeof(float), value).data(), bytes);
    return memory;
}

// The descriptor without any memory.
Handle<mxq_tensor> bare_tensor(const Library& library, const Description& d) {
    auto tensor = d.shape.experts ? library.make(library->tensor_destroy, library->tensor_create_3d, d.format,
                                                 d.shape.experts, d.shape.rows, d.shape.cols)
                                  : library.make(library->tensor_destroy, library->tensor_create_2d, d.format, d.shape.rows,
                                                 d.shape.cols);
    if (!d.plain()) {
        library.check(library->tensor_set_scaling(tensor.get(), d.scaling));
        library.check(library->tensor_set_swizzled(tensor.get(), d.swizzled));
        if (d.per_expert) library.check(library->tensor_set_scope(tensor.get(), MXQ_SCOPE_EXPERT));
    }
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (d.hadamard && d.has(part)) library.check(library->tensor_set_hadamard(tensor.get(), part, 1, 0xD7E8));
    if (d.groups) {
        const auto& ends = d.groups->ends;
        library.check(library->tensor_set_groups(tensor.get(), d.groups->device_ends.get(), ends.size() * sizeof ends[0],
                                                 MXQ_TYPE_INT32, int32_t(ends.size())));
        library.check(library->tensor_set_group_alignment(tensor.get(), d.rowwise_alignment, d.columnwise_alignment));
    }
    return tensor;
}

// Rows that a part holds: those of the groups, each padded to the part's alignment.
int64_t stored_rows(const Description& d, int32_t part) {
    if (!d.groups) return d.shape.rows;
    const int64_t block = d.format == MXQ_FORMAT_NVFP4                                         ? 16
                          : d.scaling == MXQ_SCALING_1X128 || d.scaling == MXQ_SCALING_128X128 ? 128
                                                                                               : 32;
    const int64_t columnwise = d.columnwise_alignment ? d.columnwise_alignment : block;
    const int64_t alignment = part == MXQ_PART_ROWWISE ? d.rowwise_alignment : columnwise;
    int64_t rows = 0, before = 0;
    for (int64_t end : d.groups->ends) {
        rows += (end - before + alignment - 1) / alignment * alignment;
        before = end;
    }
    return rows;
}

Bytes bytes_of_part(const Library& library, Description d, int32_t part, int64_t rows) {
    d.shape.rows = rows;
    d.groups = nullptr;
    const auto tensor = bare_tensor(library, d);
    uint64_t codes = 0, scales = 0;
    library.check(library->tensor_required_bytes(tensor.get(), part, &codes, &scales));
    return {double(codes), double(scales)};
}

template <class Rows>
Bytes bytes_of(const Library& library, const Description& d, const Rows& rows) {
    Bytes sum;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!d.has(part)) continue;
        const Bytes bytes = bytes_of_part(library, d, part, rows(part));
        if (d.with_codes) sum.codes += bytes.codes;
        sum.scales += bytes.scales;
    }
    return sum;
}

}  // namespace

Groups ragged_groups(Device& device, int64_t rows, int count) {
    std::mt19937 random(2024);
    std::vector<double> weight(static_cast<size_t>(count));
    double total = 0;
    for (double& w : weight) total += w = 0.5 + double(random() - random.min()) / double(random.max());
    std::vector<int32_t> ends;
    double sum = 0;
    int64_t before = 0;
    for (int g = 0; g < count; ++g) {
        const int64_t fours = int64_t(double(rows) * (sum += weight[size_t(g)]) / total) / 4;
        before = std::clamp(4 * fours + 1 + g % 2, before, rows);
        ends.push_back(int32_t(before));
    }
    ends.back() = int32_t(rows);
    auto device_ends = device.allocate(ends.size() * sizeof ends[0]);
    device.upload(device_ends.get(), ends.data(), ends.size() * sizeof ends[0]);
    return {ends, device_ends};
}

Description describe(const Quantization& quantization, const Shape& shape) {
    return {.format = quantization.format->id, .shape = shape, .scaling = quantization.scaling};
}

Operand::Operand(Device& device, const Library& library, const Description& description) : description_(description) {
    const auto tensor = bare_tensor(library, description);
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (description.has(part)) allocate_part(device, library, tensor.get(), part);
    if (description.padded_groups) {
        const size_t bytes = description.groups->ends.size() * sizeof(int32_t);
        starts_ = device.allocate(bytes), ends_ = device.allocate(bytes);
    }
    if (!description.delayed) return;
    const int64_t matrices =
        description.groups ? int64_t(description.groups->ends.size()) : std::max<int64_t>(1, description.shape.experts);
    quantization_scale_bytes_ = sizeof(float) * uint64_t(description.per_expert ? matrices : 1);
    quantization_scale_ = numbers(device, quantization_scale_bytes_, 448 / largest);
}

void Operand::allocate_part(Device& device, const Library& library, mxq_tensor* tensor, int32_t part) {
    Part& p = parts_[part - 1];
    library.check(library->tensor_required_bytes(tensor, part, &p.code_bytes, &p.scale_bytes));
    if (description_.with_codes) p.codes = device.allocate(p.code_bytes);
    if (description_.plain()) return;
    p.scales = device.allocate(p.scale_bytes);
    if (description_.format != MXQ_FORMAT_NVFP4 && !description_.with_amax) return;
    library.check(library->tensor_required_amax_bytes(tensor, part, &p.amax_bytes));
    p.amax = numbers(device, p.amax_bytes, largest);
}

Handle<mxq_tensor> Operand::tensor(const Library& library) const {
    auto tensor = bare_tensor(library, description_);
    if (starts_) {
        const size_t bytes = description_.groups->ends.size() * sizeof(int32_t);
        library.check(library->tensor_set_padded_groups(
            tensor.get(), description_.has(MXQ_PART_ROWWISE) ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, starts_.get(), bytes,
            ends_.get(), bytes));
    }
    if (description_.plain()) {
        library.check(library->tensor_set_data(tensor.get(), parts_[0].codes.get(), parts_[0].code_bytes));
        return tensor;
    }
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        const Part& p = parts_[part - 1];
        if (!description_.has(part)) continue;
        library.check(library->tensor_set_part(tensor.get(), part, p.codes.get(), p.codes ? p.code_bytes : 0, p.scales.get(),
                                               p.scale_bytes));
        if (p.amax)
            library.check(library->tensor_set_amax(tensor.get(), part, static_cast<float*>(p.amax.get()), p.amax_bytes));
    }
    if (quantization_scale_)
        library.check(library->tensor_set_quantization_scale(tensor.get(), static_cast<float*>(quantization_scale_.get()),
                                                             quantization_scale_bytes_));
    return tensor;
}

Operand random_operand(Device& device, const Library& library, const Description& description) {
    Operand out(device, library, description);
    if (description.plain()) {
        const auto tensor = bare_tensor(library, description);
        uint64_t bytes = 0;
        library.check(library->tensor_required_bytes(tensor.get(), MXQ_PART_ROWWISE, &bytes, nullptr));
        fill(device, description.format, out.data(), bytes);
        return out;
    }
    const Operand in = random_operand(device, library, {.format = MXQ_FORMAT_BF16, .shape = description.shape});
    const auto from = in.tensor(library), to = out.tensor(library);
    const auto plan =
        library.make(library->plan_destroy, library->quantize_query, library.context(), nullptr, from.get(), to.get());
    const uint64_t bytes = library->plan_workspace_bytes(plan.get());
    const auto workspace = device.allocate(bytes);
    library.check(
        library->quantize(library.context(), nullptr, from.get(), to.get(), workspace.get(), bytes, device.stream()));
    device.wait();
    return out;
}

Bytes bytes_read(const Library& library, const Description& d) {
    return bytes_of(library, d, [&](int32_t) { return d.shape.rows; });
}

Bytes bytes_written(const Library& library, const Description& d) {
    return bytes_of(library, d, [&](int32_t part) { return stored_rows(d, part); });
}
