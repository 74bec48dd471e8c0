// C++ over mxq.h: handles that destroy themselves, and an exception for each call that fails. Header only, C++17 or later,
// and no part of the ABI: everything here is inline and calls the C functions, whose comments in mxq.h are its manual.
//
//     mxq::context cpu(MXQ_DEVICE_CPU);
//     mxq::tensor x(MXQ_FORMAT_F32, rows, cols), q(MXQ_FORMAT_MXFP8_E4M3, rows, cols);
//     x.set_const_data(std::span(values));
//     q.set_part(MXQ_PART_ROWWISE, std::span(codes), std::span(scales));
//     mxq::quantize(cpu, {}, x, q);
//     mxq::quantize(cpu, mxq::quantize_options().set_scale_rounding(MXQ_SCALE_ROUNDING_FLOOR), x, q);
//
// A member has the name of its function without the handle's prefix: tensor::set_scaling is mxq_tensor_set_scaling. Setters
// return the object that they are called on, or the object itself where it has no name. Every class also gives its C handle,
// get(), for functions that take one. The overloads with std::span need C++20. They compare the elements with the format:
// float for F32, 16-bit types for F16 and BF16, and bytes for all.
//
// Without exceptions (-fno-exceptions) define MXQ_THROW(error) before this header is included, the same in every file of the
// program: it gets an mxq::error. It may return: the call had no effect then, and an object that could not be made is empty.
//
//     #define MXQ_THROW(error) engine_failed((error).status(), (error).what())
#ifndef MXQ_MXQ_HPP
#define MXQ_MXQ_HPP

#include <mxq/mxq.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#if __cplusplus >= 202002L
#include <bit>
#include <span>
#include <type_traits>
#endif

#ifndef MXQ_THROW
#ifndef __cpp_exceptions
#error "mxq.hpp throws mxq::error. Without exceptions, define MXQ_THROW(error) before it is included, or use mxq.h."
#endif
#define MXQ_THROW(error) throw error
#endif

namespace mxq {

// A call that failed: its status, and as what() "MXQ_STATUS_...: " and the message of mxq_last_error().
class error : public std::runtime_error {
public:
    // Takes the message of the call that returned the status, the last that failed on this thread.
    explicit error(mxq_status status) : error(status, mxq_last_error()) {}
    error(mxq_status status, const std::string& message)
        : std::runtime_error(std::string(mxq_status_name(status)) + ": " + message), status_(status) {}
    // Returns the status of the call.
    mxq_status status() const noexcept { return status_; }

private:
    mxq_status status_;
};

// Throws an error unless the status is MXQ_STATUS_OK.
inline void check(mxq_status status) {
    if (status != MXQ_STATUS_OK) MXQ_THROW(error(status));
}

namespace detail {

// Owns a C handle; may be empty.
template <class T, void (*Destroy)(T*)>
class handle {
public:
    handle() = default;
    T* get() const noexcept { return owned_.get(); }
    explicit operator bool() const noexcept { return owned_ != nullptr; }

protected:
    explicit handle(T* owned) noexcept : owned_(owned) {}
    void own(T* owned) noexcept { owned_.reset(owned); }

private:
    struct destroyer {
        void operator()(T* owned) const noexcept { Destroy(owned); }
    };
    std::unique_ptr<T, destroyer> owned_;
};

// Options at their defaults are NULL to the library; the first setter makes the object.
template <class T, mxq_status (*Create)(T**), void (*Destroy)(T*)>
class options : public handle<T, Destroy> {
protected:
    T* made() {
        if (!this->get()) {
            T* raw = nullptr;
            check(Create(&raw));
            this->own(raw);
        }
        return this->get();
    }
    // Calls read(handle) for the object, or for one that has the defaults.
    template <class Read>
    void read(const Read& read) const {
        options defaults;
        check(read(static_cast<const T*>(this->get() ? this->get() : defaults.made())));
    }
    template <class Value>
    Value got(mxq_status (*getter)(const T*, Value*)) const {
        Value value{};
        read([&](const T* from) { return getter(from, &value); });
        return value;
    }
    std::string text(mxq_status (*getter)(const T*, const char**)) const {
        std::string out;
        read([&](const T* from) {
            const char* text = nullptr;
            const mxq_status status = getter(from, &text);
            if (text) out = text;
            return status;
        });
        return out;
    }
};

#if __cplusplus >= 202002L
// Whether a 16-bit float type has this format: the bits of 1 then have the value 1. Integers hold bits of either format.
template <class T>
bool is_16_bit(mxq_format format) {
    if constexpr (!std::is_integral_v<T> && std::is_constructible_v<float, T>)
        return static_cast<float>(std::bit_cast<T>(static_cast<uint16_t>(format == MXQ_FORMAT_F16 ? 0x3C00 : 0x3F80))) == 1;
    else
        return format == MXQ_FORMAT_F16 || format == MXQ_FORMAT_BF16;
}

// Whether the elements are those of a plain format. Bytes are of all, as a file gives them.
template <class T>
bool has_elements(mxq_format format) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) <= 2 || (std::is_floating_point_v<T> && sizeof(T) == 4)),
                  "elements are float for F32, 16-bit types for F16 and BF16, or bytes");
    if constexpr (sizeof(T) == 4) return format == MXQ_FORMAT_F32;
    if constexpr (sizeof(T) == 2) return (format == MXQ_FORMAT_F16 || format == MXQ_FORMAT_BF16) && is_16_bit<T>(format);
    return sizeof(T) == 1;
}

// Whether the elements are those of a format's scales. Bytes are of all. The C function refuses formats without scales.
template <class T>
bool has_scales(mxq_format format) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 1 || (std::is_floating_point_v<T> && sizeof(T) == 4)),
                  "scales are float for FP8, and bytes for other formats");
    return sizeof(T) == 1 || format < MXQ_FORMAT_MXFP8_E4M3 || format > MXQ_FORMAT_NVFP4;
}

// Names the elements of a plain format; nullptr for a quantized one.
inline const char* element_text(mxq_format format) {
    switch (format) {
        case MXQ_FORMAT_F32: return "float";
        case MXQ_FORMAT_F16: return "a 16-bit float such as _Float16, or uint16_t";
        case MXQ_FORMAT_BF16: return "a 16-bit float such as __nv_bfloat16, or uint16_t";
        default: return nullptr;
    }
}
#endif

}  // namespace detail

// ---- Context -----------------------------------------------------------------------------------------------------------

// A host's way to run tasks on its threads, with its argument.
struct host_threads {
    mxq_parallel_for parallel_for = nullptr;
    void* user = nullptr;
};

class context_options
    : public detail::options<mxq_context_options, mxq_context_options_create, mxq_context_options_destroy> {
public:
    context_options& set_threads(int32_t threads) & {
        check(mxq_context_options_set_threads(made(), threads));
        return *this;
    }
    context_options set_threads(int32_t threads) && { return std::move(set_threads(threads)); }
    context_options& set_own_threads(bool own) & {
        check(mxq_context_options_set_own_threads(made(), own));
        return *this;
    }
    context_options set_own_threads(bool own) && { return std::move(set_own_threads(own)); }
    context_options& set_parallel_for(mxq_parallel_for parallel_for, void* user) & {
        check(mxq_context_options_set_parallel_for(made(), parallel_for, user));
        return *this;
    }
    context_options set_parallel_for(mxq_parallel_for parallel_for, void* user) && {
        return std::move(set_parallel_for(parallel_for, user));
    }
    context_options& set_cublaslt_path(const char* path) & {
        check(mxq_context_options_set_cublaslt_path(made(), path));
        return *this;
    }
    context_options set_cublaslt_path(const char* path) && { return std::move(set_cublaslt_path(path)); }

    int32_t get_threads() const { return got(mxq_context_options_get_threads); }
    bool get_own_threads() const { return got(mxq_context_options_get_own_threads) != 0; }
    host_threads get_parallel_for() const {
        host_threads out;
        read([&](auto* from) { return mxq_context_options_get_parallel_for(from, &out.parallel_for, &out.user); });
        return out;
    }
    std::string get_cublaslt_path() const { return text(mxq_context_options_get_cublaslt_path); }
};

class context : public detail::handle<mxq_context, mxq_context_destroy> {
public:
    context() = default;  // empty: every verb refuses it
    explicit context(mxq_device device_type, int32_t ordinal = 0, const context_options& options = {})
        : handle(create(device_type, ordinal, options)) {}
    const char* description() const noexcept { return mxq_context_description(get()); }
    const char* cublaslt() const noexcept { return mxq_context_cublaslt(get()); }

private:
    static mxq_context* create(mxq_device device_type, int32_t ordinal, const context_options& options) {
        mxq_context* raw = nullptr;
        check(mxq_context_create(device_type, ordinal, options.get(), &raw));
        return raw;
    }
};

// ---- Tensors -----------------------------------------------------------------------------------------------------------

// The sizes of a part: bytes of codes, or of a plain tensor's data, and bytes of scales.
struct part_bytes {
    uint64_t codes = 0, scales = 0;
};

struct tensor_shape {
    int32_t dimensions = 0;
    int64_t experts = 0, rows = 0, cols = 0;
};

// An address with its byte extent, as a setter gave them.
template <class T>
struct memory_of {
    T* data = nullptr;   // where it begins
    uint64_t bytes = 0;  // its extent
};

struct tensor_data : memory_of<void> {
    bool is_const = false;
};

struct tensor_part {
    bool declared = false, is_const = false;
    memory_of<void> codes, scales;
};

// Addresses of the codes and scales of each expert, and how many bytes each has.
struct part_list {
    int64_t count = 0;
    const void* const* codes = nullptr;
    uint64_t code_bytes = 0;
    const void* const* scales = nullptr;
    uint64_t scale_bytes = 0;
};

// Addresses of the data of each expert of a plain tensor, and how many bytes each has.
struct data_list {
    int64_t count = 0;
    const void* const* data = nullptr;
    uint64_t bytes = 0;
};

// Bytes between rows of codes, rows of scales and experts; 0: contiguous.
struct part_strides {
    int64_t code_line = 0, code_expert = 0, scale_line = 0, scale_expert = 0;
};

struct tensor_groups {
    memory_of<const void> ends;
    mxq_type ends_type = 0;
    int32_t count = 0;
};

struct group_alignment {
    int32_t rowwise = 0, columnwise = 0;
};

struct padded_groups {
    memory_of<void> starts, ends;
};

// The rows of a plain tensor by index, and how many rows its data have.
struct row_indices {
    memory_of<const void> indices;
    mxq_type type = 0;  // 0: rows as they are stored
    int64_t source_rows = 0;
};

class routing;

class tensor : public detail::handle<mxq_tensor, mxq_tensor_destroy> {
public:
    tensor() = default;  // empty: every verb refuses it
    tensor(mxq_format format, int64_t rows, int64_t cols) : handle(create_2d(format, rows, cols)) {}
    tensor(mxq_format format, int64_t experts, int64_t rows, int64_t cols)
        : handle(create_3d(format, experts, rows, cols)) {}

    tensor& set_scaling(mxq_scaling scaling) & { return checked(mxq_tensor_set_scaling(get(), scaling)); }
    tensor set_scaling(mxq_scaling scaling) && { return std::move(set_scaling(scaling)); }
    tensor& set_swizzled(bool swizzled) & { return checked(mxq_tensor_set_swizzled(get(), swizzled)); }
    tensor set_swizzled(bool swizzled) && { return std::move(set_swizzled(swizzled)); }
    tensor& set_row_stride(int64_t elements) & { return checked(mxq_tensor_set_row_stride(get(), elements)); }
    tensor set_row_stride(int64_t elements) && { return std::move(set_row_stride(elements)); }
    tensor& set_data(void* data, uint64_t bytes) & { return checked(mxq_tensor_set_data(get(), data, bytes)); }
    tensor set_data(void* data, uint64_t bytes) && { return std::move(set_data(data, bytes)); }
    tensor& set_const_data(const void* data, uint64_t bytes) & {
        return checked(mxq_tensor_set_const_data(get(), data, bytes));
    }
    tensor set_const_data(const void* data, uint64_t bytes) && { return std::move(set_const_data(data, bytes)); }
    tensor& set_data_list(int64_t count, const void* const* data, uint64_t bytes) & {
        return checked(mxq_tensor_set_data_list(get(), count, data, bytes));
    }
    tensor set_data_list(int64_t count, const void* const* data, uint64_t bytes) && {
        return std::move(set_data_list(count, data, bytes));
    }
    tensor& set_part(mxq_part part, void* codes, uint64_t code_bytes, void* scales, uint64_t scale_bytes) & {
        return checked(mxq_tensor_set_part(get(), part, codes, code_bytes, scales, scale_bytes));
    }
    tensor set_part(mxq_part part, void* codes, uint64_t code_bytes, void* scales, uint64_t scale_bytes) && {
        return std::move(set_part(part, codes, code_bytes, scales, scale_bytes));
    }
    tensor& set_const_part(mxq_part part, const void* codes, uint64_t code_bytes, const void* scales,
                           uint64_t scale_bytes) & {
        return checked(mxq_tensor_set_const_part(get(), part, codes, code_bytes, scales, scale_bytes));
    }
    tensor set_const_part(mxq_part part, const void* codes, uint64_t code_bytes, const void* scales,
                          uint64_t scale_bytes) && {
        return std::move(set_const_part(part, codes, code_bytes, scales, scale_bytes));
    }
    tensor& set_part_list(mxq_part part, int64_t count, const void* const* codes, uint64_t code_bytes,
                          const void* const* scales, uint64_t scale_bytes) & {
        return checked(mxq_tensor_set_part_list(get(), part, count, codes, code_bytes, scales, scale_bytes));
    }
    tensor set_part_list(mxq_part part, int64_t count, const void* const* codes, uint64_t code_bytes,
                         const void* const* scales, uint64_t scale_bytes) && {
        return std::move(set_part_list(part, count, codes, code_bytes, scales, scale_bytes));
    }
    tensor& set_strides(mxq_part part, const part_strides& strides) & {
        return checked(mxq_tensor_set_strides(get(), part, strides.code_line, strides.code_expert, strides.scale_line,
                                              strides.scale_expert));
    }
    tensor set_strides(mxq_part part, const part_strides& strides) && { return std::move(set_strides(part, strides)); }
    tensor& set_memory(mxq_part parts, void* memory, uint64_t bytes) & {
        return checked(mxq_tensor_set_memory(get(), parts, memory, bytes));
    }
    tensor set_memory(mxq_part parts, void* memory, uint64_t bytes) && {
        return std::move(set_memory(parts, memory, bytes));
    }
    tensor& clear_part(mxq_part part) & { return checked(mxq_tensor_clear_part(get(), part)); }
    tensor clear_part(mxq_part part) && { return std::move(clear_part(part)); }
    tensor& set_groups(const void* ends, uint64_t bytes, mxq_type ends_type, int32_t count) & {
        return checked(mxq_tensor_set_groups(get(), ends, bytes, ends_type, count));
    }
    tensor set_groups(const void* ends, uint64_t bytes, mxq_type ends_type, int32_t count) && {
        return std::move(set_groups(ends, bytes, ends_type, count));
    }
    tensor& set_groups_cover_rows(bool cover) & { return checked(mxq_tensor_set_groups_cover_rows(get(), cover)); }
    tensor set_groups_cover_rows(bool cover) && { return std::move(set_groups_cover_rows(cover)); }
    tensor& set_host_ends(const void* ends, uint64_t bytes) & {
        return checked(mxq_tensor_set_host_ends(get(), ends, bytes));
    }
    tensor set_host_ends(const void* ends, uint64_t bytes) && { return std::move(set_host_ends(ends, bytes)); }
    tensor& set_group_alignment(int32_t rowwise, int32_t columnwise) & {
        return checked(mxq_tensor_set_group_alignment(get(), rowwise, columnwise));
    }
    tensor set_group_alignment(int32_t rowwise, int32_t columnwise) && {
        return std::move(set_group_alignment(rowwise, columnwise));
    }
    tensor& set_padded_groups(mxq_part part, void* starts, uint64_t start_bytes, void* ends, uint64_t end_bytes) & {
        return checked(mxq_tensor_set_padded_groups(get(), part, starts, start_bytes, ends, end_bytes));
    }
    tensor set_padded_groups(mxq_part part, void* starts, uint64_t start_bytes, void* ends, uint64_t end_bytes) && {
        return std::move(set_padded_groups(part, starts, start_bytes, ends, end_bytes));
    }
    tensor& set_amax(mxq_part part, float* amax, uint64_t bytes) & {
        return checked(mxq_tensor_set_amax(get(), part, amax, bytes));
    }
    tensor set_amax(mxq_part part, float* amax, uint64_t bytes) && { return std::move(set_amax(part, amax, bytes)); }
    tensor& set_decode_scale(mxq_part part, const float* scale, uint64_t bytes) & {
        return checked(mxq_tensor_set_decode_scale(get(), part, scale, bytes));
    }
    tensor set_decode_scale(mxq_part part, const float* scale, uint64_t bytes) && {
        return std::move(set_decode_scale(part, scale, bytes));
    }
    tensor& set_hadamard(mxq_part part, bool transformed, int32_t mask) & {
        return checked(mxq_tensor_set_hadamard(get(), part, transformed, mask));
    }
    tensor set_hadamard(mxq_part part, bool transformed, int32_t mask) && {
        return std::move(set_hadamard(part, transformed, mask));
    }
    tensor& set_scale_max(int32_t scale_max) & { return checked(mxq_tensor_set_scale_max(get(), scale_max)); }
    tensor set_scale_max(int32_t scale_max) && { return std::move(set_scale_max(scale_max)); }
    tensor& set_quantization_scale(const float* scale, uint64_t bytes) & {
        return checked(mxq_tensor_set_quantization_scale(get(), scale, bytes));
    }
    tensor set_quantization_scale(const float* scale, uint64_t bytes) && {
        return std::move(set_quantization_scale(scale, bytes));
    }
    tensor& set_scope(mxq_scope scope) & { return checked(mxq_tensor_set_scope(get(), scope)); }
    tensor set_scope(mxq_scope scope) && { return std::move(set_scope(scope)); }
    tensor& set_row_indices(const void* indices, uint64_t bytes, mxq_type type, int64_t source_rows) & {
        return checked(mxq_tensor_set_row_indices(get(), indices, bytes, type, source_rows));
    }
    tensor set_row_indices(const void* indices, uint64_t bytes, mxq_type type, int64_t source_rows) && {
        return std::move(set_row_indices(indices, bytes, type, source_rows));
    }
    tensor& set_routing_rows(const routing& of) &;
    tensor set_routing_rows(const routing& of) && { return std::move(set_routing_rows(of)); }
    tensor& set_routing_groups(const routing& of) &;
    tensor set_routing_groups(const routing& of) && { return std::move(set_routing_groups(of)); }

    part_bytes required_bytes(mxq_part part = MXQ_PART_ROWWISE) const {
        part_bytes bytes;
        check(mxq_tensor_required_bytes(get(), part, &bytes.codes, &bytes.scales));
        return bytes;
    }
    uint64_t required_amax_bytes(mxq_part part) const {
        uint64_t bytes = 0;
        check(mxq_tensor_required_amax_bytes(get(), part, &bytes));
        return bytes;
    }
    uint64_t total_bytes(mxq_part parts) const {
        uint64_t bytes = 0;
        check(mxq_tensor_total_bytes(get(), parts, &bytes));
        return bytes;
    }

    mxq_format get_format() const { return got(mxq_tensor_get_format); }
    tensor_shape get_shape() const {
        tensor_shape shape;
        check(mxq_tensor_get_shape(get(), &shape.dimensions, &shape.experts, &shape.rows, &shape.cols));
        return shape;
    }
    mxq_scaling get_scaling() const { return got(mxq_tensor_get_scaling); }
    bool get_swizzled() const { return got(mxq_tensor_get_swizzled) != 0; }
    int64_t get_row_stride() const { return got(mxq_tensor_get_row_stride); }
    tensor_data get_data() const {
        tensor_data data;
        int32_t is_const = 0;
        check(mxq_tensor_get_data(get(), &data.data, &data.bytes, &is_const));
        data.is_const = is_const != 0;
        return data;
    }
    data_list get_data_list() const {
        data_list out;
        check(mxq_tensor_get_data_list(get(), &out.count, &out.data, &out.bytes));
        return out;
    }
    tensor_part get_part(mxq_part part) const {
        tensor_part out;
        int32_t declared = 0, is_const = 0;
        check(mxq_tensor_get_part(get(), part, &declared, &out.codes.data, &out.codes.bytes, &out.scales.data,
                                  &out.scales.bytes, &is_const));
        out.declared = declared != 0;
        out.is_const = is_const != 0;
        return out;
    }
    part_list get_part_list(mxq_part part) const {
        part_list out;
        check(mxq_tensor_get_part_list(get(), part, &out.count, &out.codes, &out.code_bytes, &out.scales, &out.scale_bytes));
        return out;
    }
    part_strides get_strides(mxq_part part) const {
        part_strides out;
        check(mxq_tensor_get_strides(get(), part, &out.code_line, &out.code_expert, &out.scale_line, &out.scale_expert));
        return out;
    }
    tensor_groups get_groups() const {
        tensor_groups groups;
        check(mxq_tensor_get_groups(get(), &groups.ends.data, &groups.ends.bytes, &groups.ends_type, &groups.count));
        return groups;
    }
    bool get_groups_cover_rows() const { return got(mxq_tensor_get_groups_cover_rows) != 0; }
    memory_of<const void> get_host_ends() const {
        memory_of<const void> ends;
        check(mxq_tensor_get_host_ends(get(), &ends.data, &ends.bytes));
        return ends;
    }
    group_alignment get_group_alignment() const {
        group_alignment alignment;
        check(mxq_tensor_get_group_alignment(get(), &alignment.rowwise, &alignment.columnwise));
        return alignment;
    }
    padded_groups get_padded_groups(mxq_part part) const {
        padded_groups out;
        check(
            mxq_tensor_get_padded_groups(get(), part, &out.starts.data, &out.starts.bytes, &out.ends.data, &out.ends.bytes));
        return out;
    }
    memory_of<float> get_amax(mxq_part part) const {
        memory_of<float> amax;
        check(mxq_tensor_get_amax(get(), part, &amax.data, &amax.bytes));
        return amax;
    }
    memory_of<const float> get_decode_scale(mxq_part part) const {
        memory_of<const float> scale;
        check(mxq_tensor_get_decode_scale(get(), part, &scale.data, &scale.bytes));
        return scale;
    }
    int32_t get_scale_max() const { return got(mxq_tensor_get_scale_max); }
    memory_of<const float> get_quantization_scale() const {
        memory_of<const float> scale;
        check(mxq_tensor_get_quantization_scale(get(), &scale.data, &scale.bytes));
        return scale;
    }
    // Returns the mask of a part's Hadamard transform, or nothing where it has none.
    std::optional<int32_t> get_hadamard(mxq_part part) const {
        int32_t transformed = 0, mask = 0;
        check(mxq_tensor_get_hadamard(get(), part, &transformed, &mask));
        return transformed != 0 ? std::optional<int32_t>(mask) : std::nullopt;
    }
    mxq_scope get_scope() const { return got(mxq_tensor_get_scope); }
    row_indices get_row_indices() const {
        row_indices out;
        check(mxq_tensor_get_row_indices(get(), &out.indices.data, &out.indices.bytes, &out.type, &out.source_rows));
        return out;
    }
    std::string describe() const {
        std::string text(mxq_tensor_describe(get(), nullptr, 0), ' ');
        mxq_tensor_describe(get(), text.data(), text.size() + 1);
        return text;
    }

#if __cplusplus >= 202002L
    // Sets data that is only read where the elements are const.
    template <class T, size_t N>
    tensor& set_data(std::span<T, N> data) & {
        if constexpr (std::is_const_v<T>)
            return set_const_data(data);
        else if (has_data<T>("set_data"))
            set_data(static_cast<void*>(data.data()), data.size_bytes());
        return *this;
    }
    template <class T, size_t N>
    tensor set_data(std::span<T, N> data) && {
        return std::move(set_data(data));
    }
    template <class T, size_t N>
    tensor& set_const_data(std::span<T, N> data) & {
        if (has_data<T>("set_const_data")) set_const_data(data.data(), data.size_bytes());
        return *this;
    }
    template <class T, size_t N>
    tensor set_const_data(std::span<T, N> data) && {
        return std::move(set_const_data(data));
    }
    // Sets a part that is only read where the elements of both are const.
    template <class C, size_t N, class S, size_t M>
    tensor& set_part(mxq_part part, std::span<C, N> codes, std::span<S, M> scales) & {
        if constexpr (std::is_const_v<C> && std::is_const_v<S>)
            return set_const_part(part, codes, scales);
        else if (has_part<C, S>("set_part"))
            set_part(part, codes.data(), codes.size_bytes(), scales.data(), scales.size_bytes());
        return *this;
    }
    template <class C, size_t N, class S, size_t M>
    tensor set_part(mxq_part part, std::span<C, N> codes, std::span<S, M> scales) && {
        return std::move(set_part(part, codes, scales));
    }
    template <class C, size_t N, class S, size_t M>
    tensor& set_const_part(mxq_part part, std::span<C, N> codes, std::span<S, M> scales) & {
        if (has_part<C, S>("set_const_part"))
            set_const_part(part, codes.data(), codes.size_bytes(), scales.data(), scales.size_bytes());
        return *this;
    }
    template <class C, size_t N, class S, size_t M>
    tensor set_const_part(mxq_part part, std::span<C, N> codes, std::span<S, M> scales) && {
        return std::move(set_const_part(part, codes, scales));
    }
    template <class T, size_t N>
    tensor& set_groups(std::span<T, N> ends) & {
        constexpr bool is_int32 = std::is_same_v<std::remove_const_t<T>, int32_t>;
        static_assert(is_int32 || std::is_same_v<std::remove_const_t<T>, int64_t>, "ends are int32_t or int64_t");
        return set_groups(ends.data(), ends.size_bytes(), is_int32 ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64,
                          static_cast<int32_t>(ends.size()));
    }
    template <class T, size_t N>
    tensor set_groups(std::span<T, N> ends) && {
        return std::move(set_groups(ends));
    }
#endif

private:
#if __cplusplus >= 202002L
    // Refuses elements that are not those of the format. The C function refuses data of a quantized tensor.
    template <class T>
    bool has_data(const char* setter) const {
        const mxq_format format = get_format();
        const char* expected = detail::element_text(format);
        return !expected || detail::has_elements<std::remove_const_t<T>>(format) ||
               refuse(setter, "data", sizeof(T), std::string(expected) + ", or bytes");
    }
    template <class C, class S>
    bool has_part(const char* setter) const {
        static_assert(std::is_trivially_copyable_v<C> && sizeof(C) == 1, "codes are bytes");
        return detail::has_scales<std::remove_const_t<S>>(get_format()) || refuse(setter, "scales", sizeof(S), "bytes");
    }
    bool refuse(const char* setter, const char* what, size_t bytes, const std::string& expected) const {
        const std::string text = std::string("mxq::tensor::") + setter + ": " + what + " has elements of another type, of " +
                                 std::to_string(bytes) + " bytes, expected " + expected + " for " + describe() +
                                 "; convert them, or check the format";
        MXQ_THROW(error(MXQ_STATUS_INVALID_ARGUMENT, text));
        return false;
    }
#endif
    template <class T>
    T got(mxq_status (*getter)(const mxq_tensor*, T*)) const {
        T value{};
        check(getter(get(), &value));
        return value;
    }
    tensor& checked(mxq_status status) {
        check(status);
        return *this;
    }
    static mxq_tensor* create_2d(mxq_format format, int64_t rows, int64_t cols) {
        mxq_tensor* raw = nullptr;
        check(mxq_tensor_create_2d(format, rows, cols, &raw));
        return raw;
    }
    static mxq_tensor* create_3d(mxq_format format, int64_t experts, int64_t rows, int64_t cols) {
        mxq_tensor* raw = nullptr;
        check(mxq_tensor_create_3d(format, experts, rows, cols, &raw));
        return raw;
    }
};

// ---- Options -----------------------------------------------------------------------------------------------------------

class quantize_options
    : public detail::options<mxq_quantize_options, mxq_quantize_options_create, mxq_quantize_options_destroy> {
public:
    quantize_options& set_scale_rounding(mxq_scale_rounding rounding) & {
        check(mxq_quantize_options_set_scale_rounding(made(), rounding));
        return *this;
    }
    quantize_options set_scale_rounding(mxq_scale_rounding rounding) && { return std::move(set_scale_rounding(rounding)); }
    quantize_options& set_nonfinite(mxq_nonfinite policy) & {
        check(mxq_quantize_options_set_nonfinite(made(), policy));
        return *this;
    }
    quantize_options set_nonfinite(mxq_nonfinite policy) && { return std::move(set_nonfinite(policy)); }
    quantize_options& set_four_over_six(mxq_four_over_six mode) & {
        check(mxq_quantize_options_set_four_over_six(made(), mode));
        return *this;
    }
    quantize_options set_four_over_six(mxq_four_over_six mode) && { return std::move(set_four_over_six(mode)); }
    quantize_options& set_undo_hadamard(bool undo) & {
        check(mxq_quantize_options_set_undo_hadamard(made(), undo));
        return *this;
    }
    quantize_options set_undo_hadamard(bool undo) && { return std::move(set_undo_hadamard(undo)); }
    quantize_options& set_stochastic_rounding(const uint64_t* seed_offset, uint64_t bytes) & {
        check(mxq_quantize_options_set_stochastic_rounding(made(), seed_offset, bytes));
        return *this;
    }
    quantize_options set_stochastic_rounding(const uint64_t* seed_offset, uint64_t bytes) && {
        return std::move(set_stochastic_rounding(seed_offset, bytes));
    }
    quantize_options& set_compute_amax(bool compute) & {
        check(mxq_quantize_options_set_compute_amax(made(), compute));
        return *this;
    }
    quantize_options set_compute_amax(bool compute) && { return std::move(set_compute_amax(compute)); }
    quantize_options& set_power_of_two_scales(bool power_of_two) & {
        check(mxq_quantize_options_set_power_of_two_scales(made(), power_of_two));
        return *this;
    }
    quantize_options set_power_of_two_scales(bool power_of_two) && {
        return std::move(set_power_of_two_scales(power_of_two));
    }
    quantize_options& set_amax_epsilon(float epsilon) & {
        check(mxq_quantize_options_set_amax_epsilon(made(), epsilon));
        return *this;
    }
    quantize_options set_amax_epsilon(float epsilon) && { return std::move(set_amax_epsilon(epsilon)); }
    quantize_options& set_source_part(mxq_part part) & {
        check(mxq_quantize_options_set_source_part(made(), part));
        return *this;
    }
    quantize_options set_source_part(mxq_part part) && { return std::move(set_source_part(part)); }
    quantize_options& set_implementation(const char* name) & {
        check(mxq_quantize_options_set_implementation(made(), name));
        return *this;
    }
    quantize_options set_implementation(const char* name) && { return std::move(set_implementation(name)); }

    mxq_scale_rounding get_scale_rounding() const { return got(mxq_quantize_options_get_scale_rounding); }
    mxq_nonfinite get_nonfinite() const { return got(mxq_quantize_options_get_nonfinite); }
    mxq_four_over_six get_four_over_six() const { return got(mxq_quantize_options_get_four_over_six); }
    bool get_undo_hadamard() const { return got(mxq_quantize_options_get_undo_hadamard) != 0; }
    memory_of<const uint64_t> get_stochastic_rounding() const {
        memory_of<const uint64_t> out;
        read([&](auto* from) { return mxq_quantize_options_get_stochastic_rounding(from, &out.data, &out.bytes); });
        return out;
    }
    bool get_compute_amax() const { return got(mxq_quantize_options_get_compute_amax) != 0; }
    bool get_power_of_two_scales() const { return got(mxq_quantize_options_get_power_of_two_scales) != 0; }
    float get_amax_epsilon() const { return got(mxq_quantize_options_get_amax_epsilon); }
    mxq_part get_source_part() const { return got(mxq_quantize_options_get_source_part); }
    std::string get_implementation() const { return text(mxq_quantize_options_get_implementation); }
};

struct product_transposes {
    mxq_transpose a = MXQ_TRANSPOSE_N, b = MXQ_TRANSPOSE_T;
};

struct product_bias {
    mxq_format format = 0;  // 0: none
    memory_of<const void> values;
};

class gemm_options : public detail::options<mxq_gemm_options, mxq_gemm_options_create, mxq_gemm_options_destroy> {
public:
    gemm_options& set_transpose(mxq_transpose a, mxq_transpose b) & {
        check(mxq_gemm_options_set_transpose(made(), a, b));
        return *this;
    }
    gemm_options set_transpose(mxq_transpose a, mxq_transpose b) && { return std::move(set_transpose(a, b)); }
    gemm_options& set_alpha(float alpha) & {
        check(mxq_gemm_options_set_alpha(made(), alpha));
        return *this;
    }
    gemm_options set_alpha(float alpha) && { return std::move(set_alpha(alpha)); }
    gemm_options& set_beta(float beta) & {
        check(mxq_gemm_options_set_beta(made(), beta));
        return *this;
    }
    gemm_options set_beta(float beta) && { return std::move(set_beta(beta)); }
    gemm_options& set_accumulate(bool accumulate) & {
        check(mxq_gemm_options_set_accumulate(made(), accumulate));
        return *this;
    }
    gemm_options set_accumulate(bool accumulate) && { return std::move(set_accumulate(accumulate)); }
    gemm_options& set_bias(mxq_format format, const void* bias, uint64_t bytes) & {
        check(mxq_gemm_options_set_bias(made(), format, bias, bytes));
        return *this;
    }
    gemm_options set_bias(mxq_format format, const void* bias, uint64_t bytes) && {
        return std::move(set_bias(format, bias, bytes));
    }
    gemm_options& set_exact_products(bool exact) & {
        check(mxq_gemm_options_set_exact_products(made(), exact));
        return *this;
    }
    gemm_options set_exact_products(bool exact) && { return std::move(set_exact_products(exact)); }
    gemm_options& set_sm_count(int32_t count) & {
        check(mxq_gemm_options_set_sm_count(made(), count));
        return *this;
    }
    gemm_options set_sm_count(int32_t count) && { return std::move(set_sm_count(count)); }
    gemm_options& set_row_invariant(bool row_invariant) & {
        check(mxq_gemm_options_set_row_invariant(made(), row_invariant));
        return *this;
    }
    gemm_options set_row_invariant(bool row_invariant) && { return std::move(set_row_invariant(row_invariant)); }
    gemm_options& set_implementation(const char* name) & {
        check(mxq_gemm_options_set_implementation(made(), name));
        return *this;
    }
    gemm_options set_implementation(const char* name) && { return std::move(set_implementation(name)); }

    product_transposes get_transpose() const {
        product_transposes out;
        read([&](auto* from) { return mxq_gemm_options_get_transpose(from, &out.a, &out.b); });
        return out;
    }
    float get_alpha() const { return got(mxq_gemm_options_get_alpha); }
    float get_beta() const { return got(mxq_gemm_options_get_beta); }
    bool get_accumulate() const { return got(mxq_gemm_options_get_accumulate) != 0; }
    product_bias get_bias() const {
        product_bias out;
        read([&](auto* from) { return mxq_gemm_options_get_bias(from, &out.format, &out.values.data, &out.values.bytes); });
        return out;
    }
    bool get_exact_products() const { return got(mxq_gemm_options_get_exact_products) != 0; }
    int32_t get_sm_count() const { return got(mxq_gemm_options_get_sm_count); }
    bool get_row_invariant() const { return got(mxq_gemm_options_get_row_invariant) != 0; }
    std::string get_implementation() const { return text(mxq_gemm_options_get_implementation); }
};

// The numbers of MXQ_ACTIVATION_SWIGLU_CLAMPED.
struct activation_clamp {
    float alpha = 0, limit = 0, addend = 0;
};

// Numbers that activate reads: of a bias, or the weights of rows.
struct plain_numbers {
    mxq_format format = 0;  // 0: none
    memory_of<const void> values;
};

class activate_options
    : public detail::options<mxq_activate_options, mxq_activate_options_create, mxq_activate_options_destroy> {
public:
    activate_options& set_activation(mxq_activation activation) & {
        check(mxq_activate_options_set_activation(made(), activation));
        return *this;
    }
    activate_options set_activation(mxq_activation activation) && { return std::move(set_activation(activation)); }
    activate_options& set_gate_layout(mxq_gate_layout layout) & {
        check(mxq_activate_options_set_gate_layout(made(), layout));
        return *this;
    }
    activate_options set_gate_layout(mxq_gate_layout layout) && { return std::move(set_gate_layout(layout)); }
    activate_options& set_clamp(float alpha, float limit, float addend) & {
        check(mxq_activate_options_set_clamp(made(), alpha, limit, addend));
        return *this;
    }
    activate_options set_clamp(float alpha, float limit, float addend) && { return std::move(set_clamp(alpha, limit, addend)); }
    activate_options& set_bias(mxq_format format, const void* bias, uint64_t bytes) & {
        check(mxq_activate_options_set_bias(made(), format, bias, bytes));
        return *this;
    }
    activate_options set_bias(mxq_format format, const void* bias, uint64_t bytes) && { return std::move(set_bias(format, bias, bytes)); }
    activate_options& set_row_weights(mxq_format format, const void* weights, uint64_t bytes) & {
        check(mxq_activate_options_set_row_weights(made(), format, weights, bytes));
        return *this;
    }
    activate_options set_row_weights(mxq_format format, const void* weights, uint64_t bytes) && { return std::move(set_row_weights(format, weights, bytes)); }
    activate_options& set_bias_gradient(float* gradient, uint64_t bytes) & {
        check(mxq_activate_options_set_bias_gradient(made(), gradient, bytes));
        return *this;
    }
    activate_options set_bias_gradient(float* gradient, uint64_t bytes) && { return std::move(set_bias_gradient(gradient, bytes)); }
    activate_options& set_row_weight_gradient(float* gradient, uint64_t bytes) & {
        check(mxq_activate_options_set_row_weight_gradient(made(), gradient, bytes));
        return *this;
    }
    activate_options set_row_weight_gradient(float* gradient, uint64_t bytes) && { return std::move(set_row_weight_gradient(gradient, bytes)); }
    activate_options& set_quantize_options(const quantize_options& quantize) & {
        check(mxq_activate_options_set_quantize_options(made(), quantize.get()));
        return *this;
    }
    activate_options set_quantize_options(const quantize_options& quantize) && {
        return std::move(set_quantize_options(quantize));
    }
    activate_options& set_implementation(const char* name) & {
        check(mxq_activate_options_set_implementation(made(), name));
        return *this;
    }
    activate_options set_implementation(const char* name) && { return std::move(set_implementation(name)); }

    mxq_activation get_activation() const { return got(mxq_activate_options_get_activation); }
    mxq_gate_layout get_gate_layout() const { return got(mxq_activate_options_get_gate_layout); }
    activation_clamp get_clamp() const {
        activation_clamp out;
        read([&](auto* from) { return mxq_activate_options_get_clamp(from, &out.alpha, &out.limit, &out.addend); });
        return out;
    }
    plain_numbers get_bias() const { return numbers(mxq_activate_options_get_bias); }
    plain_numbers get_row_weights() const { return numbers(mxq_activate_options_get_row_weights); }
    memory_of<float> get_bias_gradient() const { return gradient(mxq_activate_options_get_bias_gradient); }
    memory_of<float> get_row_weight_gradient() const { return gradient(mxq_activate_options_get_row_weight_gradient); }
    quantize_options get_quantize_options() const {
        quantize_options out = quantize_options().set_source_part(0);
        read([&](auto* from) { return mxq_activate_options_get_quantize_options(from, out.get()); });
        return out;
    }
    std::string get_implementation() const { return text(mxq_activate_options_get_implementation); }

private:
    memory_of<float> gradient(decltype(&mxq_activate_options_get_bias_gradient) getter) const {
        memory_of<float> out;
        read([&](auto* from) { return getter(from, &out.data, &out.bytes); });
        return out;
    }
    plain_numbers numbers(decltype(&mxq_activate_options_get_bias) getter) const {
        plain_numbers out;
        read([&](auto* from) { return getter(from, &out.format, &out.values.data, &out.values.bytes); });
        return out;
    }
};

// ---- Verbs and their queries -------------------------------------------------------------------------------------------

// The answer of a query.
class plan : public detail::handle<mxq_plan, mxq_plan_destroy> {
public:
    plan() = default;  // empty: nothing was asked
    // Owns what a query of mxq.h made.
    explicit plan(mxq_plan* owned) noexcept : handle(owned) {}
    const char* implementation() const noexcept { return mxq_plan_implementation(get()); }
    const char* reason() const noexcept { return mxq_plan_reason(get()); }
    uint64_t workspace_bytes() const noexcept { return mxq_plan_workspace_bytes(get()); }
    mxq_bound bound() const noexcept { return mxq_plan_bound(get()); }
};

// Memory that a verb may use while it runs, as large as its query says.
struct workspace {
    void* data = nullptr;  // at a multiple of 256
    uint64_t bytes = 0;    // its extent
};

namespace detail {

using quantize_verb = decltype(&mxq_quantize);
using quantize_query = decltype(&mxq_quantize_query);
using product_verb = decltype(&mxq_gemm);
using product_query = decltype(&mxq_gemm_query);

inline void run(quantize_verb verb, const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                workspace work, void* stream) {
    check(verb(on.get(), options.get(), in.get(), out.get(), work.data, work.bytes, stream));
}
inline void run(product_verb verb, const context& on, const gemm_options& options, const tensor& a, const tensor& b,
                const tensor& d, workspace work, void* stream) {
    check(verb(on.get(), options.get(), a.get(), b.get(), d.get(), work.data, work.bytes, stream));
}
inline plan ask(quantize_query query, const context& on, const quantize_options& options, const tensor& in,
                const tensor& out) {
    mxq_plan* raw = nullptr;
    check(query(on.get(), options.get(), in.get(), out.get(), &raw));
    return plan(raw);
}
inline plan ask(product_query query, const context& on, const gemm_options& options, const tensor& a, const tensor& b,
                const tensor& d) {
    mxq_plan* raw = nullptr;
    check(query(on.get(), options.get(), a.get(), b.get(), d.get(), &raw));
    return plan(raw);
}

}  // namespace detail

inline void quantize(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                     workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_quantize, on, options, in, out, work, stream);
}
inline plan quantize_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_quantize_query, on, options, in, out);
}

inline void requantize(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                       workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_requantize, on, options, in, out, work, stream);
}
inline plan requantize_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_requantize_query, on, options, in, out);
}

inline void amax(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                 workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_amax, on, options, in, out, work, stream);
}
inline plan amax_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_amax_query, on, options, in, out);
}

inline void dequantize(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                       workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_dequantize, on, options, in, out, work, stream);
}
inline plan dequantize_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_dequantize_query, on, options, in, out);
}

inline void convert(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                    workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_convert, on, options, in, out, work, stream);
}
inline plan convert_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_convert_query, on, options, in, out);
}

inline void pad_groups(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                       workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_pad_groups, on, options, in, out, work, stream);
}
inline plan pad_groups_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_pad_groups_query, on, options, in, out);
}

inline void unpad_groups(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                         workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_unpad_groups, on, options, in, out, work, stream);
}
inline plan unpad_groups_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_unpad_groups_query, on, options, in, out);
}

inline void swizzle_scales(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                           workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_swizzle_scales, on, options, in, out, work, stream);
}
inline plan swizzle_scales_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_swizzle_scales_query, on, options, in, out);
}

inline void unswizzle_scales(const context& on, const quantize_options& options, const tensor& in, const tensor& out,
                             workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_unswizzle_scales, on, options, in, out, work, stream);
}
inline plan unswizzle_scales_query(const context& on, const quantize_options& options, const tensor& in, const tensor& out) {
    return detail::ask(mxq_unswizzle_scales_query, on, options, in, out);
}

inline void gemm(const context& on, const gemm_options& options, const tensor& a, const tensor& b, const tensor& d,
                 workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_gemm, on, options, a, b, d, work, stream);
}
inline plan gemm_query(const context& on, const gemm_options& options, const tensor& a, const tensor& b, const tensor& d) {
    return detail::ask(mxq_gemm_query, on, options, a, b, d);
}

inline void grouped_gemm(const context& on, const gemm_options& options, const tensor& a, const tensor& b, const tensor& d,
                         workspace work = {}, void* stream = nullptr) {
    detail::run(mxq_grouped_gemm, on, options, a, b, d, work, stream);
}
inline plan grouped_gemm_query(const context& on, const gemm_options& options, const tensor& a, const tensor& b,
                               const tensor& d) {
    return detail::ask(mxq_grouped_gemm_query, on, options, a, b, d);
}

inline void activate(const context& on, const activate_options& options, const tensor& in, const tensor& out,
                     workspace work = {}, void* stream = nullptr) {
    check(mxq_activate(on.get(), options.get(), in.get(), out.get(), work.data, work.bytes, stream));
}
inline plan activate_query(const context& on, const activate_options& options, const tensor& in, const tensor& out) {
    mxq_plan* raw = nullptr;
    check(mxq_activate_query(on.get(), options.get(), in.get(), out.get(), &raw));
    return plan(raw);
}

// ---- Routing -----------------------------------------------------------------------------------------------------------

struct routing_shape {
    int64_t tokens = 0;
    int32_t choices = 0, experts = 0;
};

// The ids of choices, with their type.
struct routing_ids {
    memory_of<const void> ids;
    mxq_type type = 0;  // 0: not set
};

// The weights of choices, with their format.
struct routing_weights {
    mxq_format format = 0;  // 0: none
    memory_of<const void> weights;
};

// The experts of this rank; all where both are 0.
struct local_experts {
    int32_t first = 0, count = 0;
};

// The arrays that another library computed. Row weights may be left out.
struct computed_routing {
    memory_of<const int32_t> ends;         // of each expert of this rank
    memory_of<const int32_t> row_tokens;   // the token of each row
    memory_of<const int32_t> choice_rows;  // the row of each choice
    memory_of<const float> row_weights;    // the weight of each row
};

class routing : public detail::handle<mxq_routing, mxq_routing_destroy> {
public:
    routing() = default;  // empty: every verb refuses it
    routing(int64_t tokens, int32_t choices, int32_t experts) : handle(create(tokens, choices, experts)) {}

    routing& set_ids(const void* ids, uint64_t bytes, mxq_type type) & {
        return checked(mxq_routing_set_ids(get(), ids, bytes, type));
    }
    routing set_ids(const void* ids, uint64_t bytes, mxq_type type) && { return std::move(set_ids(ids, bytes, type)); }
    routing& set_weights(mxq_format format, const void* weights, uint64_t bytes) & {
        return checked(mxq_routing_set_weights(get(), format, weights, bytes));
    }
    routing set_weights(mxq_format format, const void* weights, uint64_t bytes) && {
        return std::move(set_weights(format, weights, bytes));
    }
    routing& set_local_experts(int32_t first, int32_t count) & {
        return checked(mxq_routing_set_local_experts(get(), first, count));
    }
    routing set_local_experts(int32_t first, int32_t count) && { return std::move(set_local_experts(first, count)); }
    routing& set_memory(void* memory, uint64_t bytes) & { return checked(mxq_routing_set_memory(get(), memory, bytes)); }
    routing set_memory(void* memory, uint64_t bytes) && { return std::move(set_memory(memory, bytes)); }
    routing& set_dropped(int32_t* dropped, uint64_t bytes) & {
        return checked(mxq_routing_set_dropped(get(), dropped, bytes));
    }
    routing set_dropped(int32_t* dropped, uint64_t bytes) && { return std::move(set_dropped(dropped, bytes)); }
    routing& set_computed(const computed_routing& arrays) & {
        return checked(mxq_routing_set_computed(get(), arrays.ends.data, arrays.ends.bytes, arrays.row_tokens.data,
                                                arrays.row_tokens.bytes, arrays.choice_rows.data, arrays.choice_rows.bytes,
                                                arrays.row_weights.data, arrays.row_weights.bytes));
    }
    routing set_computed(const computed_routing& arrays) && { return std::move(set_computed(arrays)); }

    uint64_t required_bytes() const {
        uint64_t bytes = 0;
        check(mxq_routing_required_bytes(get(), &bytes));
        return bytes;
    }
    routing_shape get_shape() const {
        routing_shape shape;
        check(mxq_routing_get_shape(get(), &shape.tokens, &shape.choices, &shape.experts));
        return shape;
    }
    routing_ids get_ids() const {
        routing_ids out;
        check(mxq_routing_get_ids(get(), &out.ids.data, &out.ids.bytes, &out.type));
        return out;
    }
    routing_weights get_weights() const {
        routing_weights out;
        check(mxq_routing_get_weights(get(), &out.format, &out.weights.data, &out.weights.bytes));
        return out;
    }
    local_experts get_local_experts() const {
        local_experts out;
        check(mxq_routing_get_local_experts(get(), &out.first, &out.count));
        return out;
    }
    memory_of<void> get_memory() const { return got(mxq_routing_get_memory); }
    memory_of<int32_t> get_dropped() const { return got(mxq_routing_get_dropped); }
    memory_of<const int32_t> get_ends() const { return got(mxq_routing_get_ends); }
    memory_of<const int32_t> get_row_tokens() const { return got(mxq_routing_get_row_tokens); }
    memory_of<const int32_t> get_choice_rows() const { return got(mxq_routing_get_choice_rows); }
    memory_of<const float> get_row_weights() const { return got(mxq_routing_get_row_weights); }

private:
    template <class T>
    memory_of<T> got(mxq_status (*getter)(const mxq_routing*, T**, uint64_t*)) const {
        memory_of<T> out;
        check(getter(get(), &out.data, &out.bytes));
        return out;
    }
    routing& checked(mxq_status status) {
        check(status);
        return *this;
    }
    static mxq_routing* create(int64_t tokens, int32_t choices, int32_t experts) {
        mxq_routing* raw = nullptr;
        check(mxq_routing_create(tokens, choices, experts, &raw));
        return raw;
    }
};

inline void route(const context& on, const quantize_options& options, const routing& choices, workspace work = {},
                  void* stream = nullptr) {
    check(mxq_route(on.get(), options.get(), choices.get(), work.data, work.bytes, stream));
}
inline plan route_query(const context& on, const quantize_options& options, const routing& choices) {
    mxq_plan* raw = nullptr;
    check(mxq_route_query(on.get(), options.get(), choices.get(), &raw));
    return plan(raw);
}

inline tensor& tensor::set_routing_rows(const routing& of) & {
    return checked(mxq_tensor_set_routing_rows(get(), of.get()));
}
inline tensor& tensor::set_routing_groups(const routing& of) & {
    return checked(mxq_tensor_set_routing_groups(get(), of.get()));
}

// The residual may be an empty tensor: none.
inline void combine(const context& on, const quantize_options& options, const routing& choices, const tensor& in,
                    const tensor& residual, const tensor& out, workspace work = {}, void* stream = nullptr) {
    check(mxq_combine(on.get(), options.get(), choices.get(), in.get(), residual.get(), out.get(), work.data, work.bytes,
                      stream));
}
inline plan combine_query(const context& on, const quantize_options& options, const routing& choices, const tensor& in,
                          const tensor& residual, const tensor& out) {
    mxq_plan* raw = nullptr;
    check(mxq_combine_query(on.get(), options.get(), choices.get(), in.get(), residual.get(), out.get(), &raw));
    return plan(raw);
}

// Tensors that are empty are not wanted.
inline void combine_backward(const context& on, const quantize_options& options, const routing& choices, const tensor& d_out,
                             const tensor& in, const tensor& d_in, const tensor& d_weights, workspace work = {},
                             void* stream = nullptr) {
    check(mxq_combine_backward(on.get(), options.get(), choices.get(), d_out.get(), in.get(), d_in.get(), d_weights.get(),
                               work.data, work.bytes, stream));
}
inline plan combine_backward_query(const context& on, const quantize_options& options, const routing& choices,
                                   const tensor& d_out, const tensor& in, const tensor& d_in, const tensor& d_weights) {
    mxq_plan* raw = nullptr;
    check(mxq_combine_backward_query(on.get(), options.get(), choices.get(), d_out.get(), in.get(), d_in.get(),
                                     d_weights.get(), &raw));
    return plan(raw);
}

// ---- Expert layer ------------------------------------------------------------------------------------------------------

// The format and scaling of rows; format 0: plain.
struct row_format {
    mxq_format format = 0;
    mxq_scaling scaling = 0;
};

class expert_layer_options
    : public detail::options<mxq_expert_layer_options, mxq_expert_layer_options_create, mxq_expert_layer_options_destroy> {
public:
    expert_layer_options& set_activate_options(const activate_options& activate) & {
        check(mxq_expert_layer_options_set_activate_options(made(), activate.get()));
        return *this;
    }
    expert_layer_options set_activate_options(const activate_options& activate) && { return std::move(set_activate_options(activate)); }
    expert_layer_options& set_row_format(mxq_format format, mxq_scaling scaling) & {
        check(mxq_expert_layer_options_set_row_format(made(), format, scaling));
        return *this;
    }
    expert_layer_options set_row_format(mxq_format format, mxq_scaling scaling) && { return std::move(set_row_format(format, scaling)); }
    expert_layer_options& set_quantize_options(const quantize_options& quantize) & {
        check(mxq_expert_layer_options_set_quantize_options(made(), quantize.get()));
        return *this;
    }
    expert_layer_options set_quantize_options(const quantize_options& quantize) && { return std::move(set_quantize_options(quantize)); }
    expert_layer_options& set_inner_format(mxq_format format) & {
        check(mxq_expert_layer_options_set_inner_format(made(), format));
        return *this;
    }
    expert_layer_options set_inner_format(mxq_format format) && { return std::move(set_inner_format(format)); }
    expert_layer_options& set_gate_up_bias(mxq_format format, const void* bias, uint64_t bytes) & {
        check(mxq_expert_layer_options_set_gate_up_bias(made(), format, bias, bytes));
        return *this;
    }
    expert_layer_options set_gate_up_bias(mxq_format format, const void* bias, uint64_t bytes) && { return std::move(set_gate_up_bias(format, bias, bytes)); }
    expert_layer_options& set_down_bias(mxq_format format, const void* bias, uint64_t bytes) & {
        check(mxq_expert_layer_options_set_down_bias(made(), format, bias, bytes));
        return *this;
    }
    expert_layer_options set_down_bias(mxq_format format, const void* bias, uint64_t bytes) && { return std::move(set_down_bias(format, bias, bytes)); }
    expert_layer_options& set_residual(const tensor& residual) & {
        check(mxq_expert_layer_options_set_residual(made(), residual.get()));
        return *this;
    }
    expert_layer_options set_residual(const tensor& residual) && { return std::move(set_residual(residual)); }
    expert_layer_options& set_weights_first(bool first) & {
        check(mxq_expert_layer_options_set_weights_first(made(), first));
        return *this;
    }
    expert_layer_options set_weights_first(bool first) && { return std::move(set_weights_first(first)); }
    expert_layer_options& set_exact_products(bool exact) & {
        check(mxq_expert_layer_options_set_exact_products(made(), exact));
        return *this;
    }
    expert_layer_options set_exact_products(bool exact) && { return std::move(set_exact_products(exact)); }
    expert_layer_options& set_row_invariant(bool row_invariant) & {
        check(mxq_expert_layer_options_set_row_invariant(made(), row_invariant));
        return *this;
    }
    expert_layer_options set_row_invariant(bool row_invariant) && { return std::move(set_row_invariant(row_invariant)); }

    activate_options get_activate_options() const {
        activate_options out = activate_options().set_activation(MXQ_ACTIVATION_SWIGLU);
        read([&](auto* from) { return mxq_expert_layer_options_get_activate_options(from, out.get()); });
        return out;
    }
    row_format get_row_format() const {
        row_format out;
        read([&](auto* from) { return mxq_expert_layer_options_get_row_format(from, &out.format, &out.scaling); });
        return out;
    }
    quantize_options get_quantize_options() const {
        quantize_options out = quantize_options().set_source_part(0);
        read([&](auto* from) { return mxq_expert_layer_options_get_quantize_options(from, out.get()); });
        return out;
    }
    mxq_format get_inner_format() const { return got(mxq_expert_layer_options_get_inner_format); }
    product_bias get_gate_up_bias() const { return bias(mxq_expert_layer_options_get_gate_up_bias); }
    product_bias get_down_bias() const { return bias(mxq_expert_layer_options_get_down_bias); }
    // Returns the residual, or an empty tensor where there is none.
    tensor get_residual() const {
        tensor out(MXQ_FORMAT_F32, 0, 0);
        int32_t has_residual = 0;
        read([&](auto* from) { return mxq_expert_layer_options_get_residual(from, &has_residual, out.get()); });
        return has_residual != 0 ? std::move(out) : tensor();
    }
    bool get_weights_first() const { return got(mxq_expert_layer_options_get_weights_first) != 0; }
    bool get_exact_products() const { return got(mxq_expert_layer_options_get_exact_products) != 0; }
    bool get_row_invariant() const { return got(mxq_expert_layer_options_get_row_invariant) != 0; }

private:
    product_bias bias(decltype(&mxq_expert_layer_options_get_down_bias) getter) const {
        product_bias out;
        read([&](auto* from) { return getter(from, &out.format, &out.values.data, &out.values.bytes); });
        return out;
    }
};

inline void expert_layer(const context& on, const expert_layer_options& options, const tensor& x, const routing& choices,
                         const tensor& gate_up, const tensor& down, const tensor& out, workspace work = {},
                         void* stream = nullptr) {
    check(mxq_expert_layer(on.get(), options.get(), x.get(), choices.get(), gate_up.get(), down.get(), out.get(), work.data,
                           work.bytes, stream));
}
inline plan expert_layer_query(const context& on, const expert_layer_options& options, const tensor& x,
                               const routing& choices, const tensor& gate_up, const tensor& down, const tensor& out) {
    mxq_plan* raw = nullptr;
    check(mxq_expert_layer_query(on.get(), options.get(), x.get(), choices.get(), gate_up.get(), down.get(), out.get(), &raw));
    return plan(raw);
}

inline void activate_backward(const context& on, const activate_options& options, const tensor& gradient, const tensor& in,
                              const tensor& out, workspace work = {}, void* stream = nullptr) {
    check(mxq_activate_backward(on.get(), options.get(), gradient.get(), in.get(), out.get(), work.data, work.bytes, stream));
}
inline plan activate_backward_query(const context& on, const activate_options& options, const tensor& gradient,
                                    const tensor& in, const tensor& out) {
    mxq_plan* raw = nullptr;
    check(mxq_activate_backward_query(on.get(), options.get(), gradient.get(), in.get(), out.get(), &raw));
    return plan(raw);
}

}  // namespace mxq

#endif
