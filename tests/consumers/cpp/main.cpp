// A program of a C++ user: quantizes a matrix and multiplies it with itself through mxq.hpp.
#include <mxq/mxq.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

int failures = 0;

void expect(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
}

constexpr int64_t rows = 4, cols = 64;

struct Quantized {
    mxq::tensor tensor{MXQ_FORMAT_MXFP8_E4M3, rows, cols};
    std::vector<uint8_t> codes, scales;
};

Quantized quantize(const mxq::context& cpu, const std::vector<float>& values) {
    mxq::tensor x(MXQ_FORMAT_F32, rows, cols);
    Quantized q;
    const mxq::part_bytes bytes = q.tensor.required_bytes();
    q.codes.resize(bytes.codes), q.scales.resize(bytes.scales);
#if __cplusplus >= 202002L
    x.set_data(std::span(values));
    q.tensor.set_part(MXQ_PART_ROWWISE, std::span(q.codes), std::span(q.scales));
#else
    x.set_const_data(values.data(), values.size() * sizeof(float));
    q.tensor.set_part(MXQ_PART_ROWWISE, q.codes.data(), q.codes.size(), q.scales.data(), q.scales.size());
#endif
    const mxq::plan plan = mxq::quantize_query(cpu, {}, x, q.tensor);
    expect(plan.implementation() == std::string("cpu"), "the plan names the implementation");
    std::vector<uint8_t> memory(plan.workspace_bytes());
    mxq::quantize(cpu, mxq::quantize_options().set_scale_rounding(MXQ_SCALE_ROUNDING_FLOOR), x, q.tensor,
                  {memory.data(), memory.size()});
    return q;
}

void check_product(const mxq::context& cpu, const Quantized& q) {
    std::vector<float> sums(rows * rows, -1);
    mxq::tensor d(MXQ_FORMAT_F32, rows, rows);
    d.set_data(sums.data(), sums.size() * sizeof(float));
    expect(mxq::gemm_query(cpu, {}, q.tensor, q.tensor, d).bound() == MXQ_BOUND_EXACT_PRODUCTS, "the class of bound");
    mxq::gemm(cpu, {}, q.tensor, q.tensor, d);
    expect(sums[0] == 64 && sums[1] == 128 && sums[rows * rows - 1] == 16 * 64, "the product");
    mxq::gemm(cpu, mxq::gemm_options().set_alpha(0.5f).set_accumulate(true), q.tensor, q.tensor, d);
    expect(sums[0] == 96, "the product, halved and added");
}

// Setters of an object without a name give an object: a reference to it would outlive it.
static_assert(!std::is_reference_v<decltype(mxq::gemm_options().set_alpha(2))>);
static_assert(!std::is_reference_v<decltype(mxq::tensor().set_row_stride(8))>);

void check_setters() {
    const auto options = mxq::gemm_options().set_alpha(2).set_accumulate(true);
    expect(options.get_alpha() == 2 && options.get_accumulate(), "options that began without a name");
    auto tensor = mxq::tensor(MXQ_FORMAT_F32, rows, cols).set_row_stride(cols + 8);
#if __cplusplus >= 202002L
    std::vector<int32_t> ends = {1, rows};
    tensor.set_groups(std::span(ends));
    expect(tensor.get_groups().count == 2, "ends that may change");
#endif
    expect(tensor.get_row_stride() == cols + 8, "a tensor that began without a name");
}

#if __cplusplus >= 202002L
// Returns what the setter says of these elements, "" where it takes them.
template <class Set>
std::string said(const Set& set) {
    try {
        set();
        return "";
    } catch (const mxq::error& error) {
        return error.what();
    }
}

// A float of 16 bits as libraries have them: a class that becomes a float.
template <int shift>
struct Half {
    uint16_t bits;
    explicit operator float() const {
        return shift == 16 ? std::bit_cast<float>(uint32_t{bits} << 16) : bits == 0x3C00 ? 1.0f : 0.0f;
    }
};
using Bfloat16 = Half<16>;
using Float16 = Half<13>;

void check_elements() {
    std::vector<float> floats(rows * cols);
    std::vector<uint16_t> integers(rows * cols);
    std::vector<Bfloat16> bfloats(rows * cols);
    std::vector<Float16> halves(rows * cols);
    std::vector<std::byte> bytes(rows * cols * 4);
    mxq::tensor f32(MXQ_FORMAT_F32, rows, cols), f16(MXQ_FORMAT_F16, rows, cols), bf16(MXQ_FORMAT_BF16, rows, cols);
    const auto set = [&](mxq::tensor& tensor, auto& values) { return said([&] { tensor.set_data(std::span(values)); }); };
    expect(
        set(bf16, floats) ==
            "MXQ_STATUS_INVALID_ARGUMENT: mxq::tensor::set_data: data has elements of another type, of 4 bytes, expected a "
            "16-bit float such as __nv_bfloat16, or uint16_t, or bytes for bf16 4 x 64; convert them, or check the format",
        "floats are not BF16");
    expect(!bf16.get_data().data, "a setter that refuses sets nothing");
    expect(set(f32, integers) != "" && set(f32, bfloats) != "", "numbers of 16 bits are not F32");
    expect(set(bf16, halves) != "" && set(f16, bfloats) != "" && set(f16, floats) != "", "F16 is not BF16");
    expect(said([&] { bf16.set_const_data(std::span<const float>(floats)); }).find("set_const_data: data has") !=
               std::string::npos,
           "const floats are not BF16");
    expect(set(f32, floats) + set(bf16, bfloats) + set(f16, halves) + set(bf16, integers) + set(f16, integers) == "",
           "elements of the format");
    expect(set(f32, bytes) + set(bf16, bytes) + set(f16, bytes) == "", "bytes are of every format");

    std::vector<uint8_t> codes(rows * cols);
    mxq::tensor mx(MXQ_FORMAT_MXFP8_E4M3, rows, cols), fp8(MXQ_FORMAT_FP8_E4M3, rows, cols);
    const auto part = [&](mxq::tensor& tensor, auto& scales) {
        return said([&] { tensor.set_part(MXQ_PART_ROWWISE, std::span(codes), std::span(scales)); }) +
               said([&] { tensor.set_const_part(MXQ_PART_ROWWISE, std::span(codes), std::span(scales)); });
    };
    expect(
        part(mx, floats).find("set_part: scales has elements of another type, of 4 bytes, expected bytes for mxfp8_e4m3") !=
            std::string::npos,
        "scales of MX are no floats");
    expect(part(mx, codes) + part(fp8, floats) + part(fp8, bytes) == "", "scales of the format");
    expect(part(bf16, floats).find("tensor is bf16, which has no parts") != std::string::npos, "a plain tensor has no part");
    expect(said([&] { mx.set_data(std::span(floats)); }).find("use mxq_tensor_set_part") != std::string::npos,
           "a quantized tensor has no data");
}
#else
void check_elements() {}  // std::span is not here
#endif

void check_errors(const mxq::context& cpu) {
    mxq::tensor x(MXQ_FORMAT_F32, rows, cols), other(MXQ_FORMAT_MXFP8_E4M3, rows, cols + 32);
    other.set_part(MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0);
    bool thrown = false;
    try {
        mxq::quantize_query(cpu, {}, x, other);
    } catch (const mxq::error& error) {
        thrown = error.status() == MXQ_STATUS_SHAPE_MISMATCH &&
                 std::string(error.what()).find("MXQ_STATUS_SHAPE_MISMATCH: mxq_quantize_query: ") == 0;
    }
    expect(thrown, "an error with its status and message");
    thrown = false;
    try {
        mxq::context(MXQ_DEVICE_CPU, 1);
    } catch (const mxq::error& error) {
        thrown = error.status() == MXQ_STATUS_INVALID_ARGUMENT;
    }
    expect(thrown, "no context for a second CPU");
}

void check_handles(const mxq::context& cpu) {
    mxq::tensor first(MXQ_FORMAT_BF16, 2, 3, 4), empty;
    mxq_tensor* const raw = first.get();
    mxq::tensor second = std::move(first);
    expect(!first && !empty && second.get() == raw, "a handle that moves");
    expect(second.required_bytes().codes == 2 * 3 * 4 * 2, "a tensor of experts");
    uint16_t memory[24];
    second.set_const_data(memory, sizeof memory);
    const mxq::tensor_data data = second.get_data();
    expect(data.data == memory && data.bytes == sizeof memory && data.is_const, "what a setter gave");
    expect(second.get_shape().rows == 3 && second.get_format() == MXQ_FORMAT_BF16, "a shape and a format");
    expect(second.describe() == "bf16 2 x 3 x 4", "a description");
    const void* const experts[] = {memory, memory + 12};
    const mxq::data_list list = second.set_data_list(2, experts, 24).get_data_list();
    expect(list.count == 2 && list.data == experts && list.bytes == 24, "a list of experts");
    mxq::tensor slices(MXQ_FORMAT_MXFP4, 2, 3, 64);
    slices.set_strides(MXQ_PART_ROWWISE, {48, 0, 4, 0}).set_part_list(MXQ_PART_ROWWISE, 2, experts, 128, experts, 10);
    expect(slices.get_strides(MXQ_PART_ROWWISE).scale_line == 4 && slices.get_part_list(MXQ_PART_ROWWISE).code_bytes == 128,
           "strides and a list of parts");
    expect(!mxq::quantize_options() && mxq::quantize_options().set_compute_amax(true), "options are made by a setter");
    const mxq::gemm_options defaults;
    expect(defaults.get_alpha() == 1 && defaults.get_transpose().b == MXQ_TRANSPOSE_T && !defaults, "defaults of options");
    expect(mxq::quantize_options().set_implementation("cpu").get_implementation() == "cpu", "an option's text");
    mxq::tensor kept(MXQ_FORMAT_MXFP8_E4M3, rows, cols);
    expect(kept.set_const_part(MXQ_PART_ROWWISE, memory, 24, memory, 24).get_part(MXQ_PART_ROWWISE).is_const,
           "a part to read");
    const mxq::context two(MXQ_DEVICE_CPU, 0, mxq::context_options().set_threads(2));
    expect(std::string(two.description()).find("CPU, 2 threads") == 0, "options of a context");
    expect(std::string(cpu.description()).find("CPU, ") == 0, "a context");
}

}  // namespace

int main() {
    try {
        const mxq::context cpu(MXQ_DEVICE_CPU);
        std::vector<float> values(rows * cols);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / cols + 1);
        const Quantized q = quantize(cpu, values);
        expect(q.scales == std::vector<uint8_t>({119, 119, 120, 120, 120, 120, 121, 121}), "scales");
        check_product(cpu, q);
        check_setters();
        check_elements();
        check_errors(cpu);
        check_handles(cpu);
    } catch (const std::exception& error) {
        expect(false, error.what());
    }
    return failures != 0;
}
