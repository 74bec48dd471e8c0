// Arrays of torch and of XLA as the library's descriptors take them: what the operators and the handlers have in common.
//
// An operand comes as its arrays and integers, which _operands.py writes: 0 for a plain one, 31 for the transpose of one; of
// a quantized one its word, whose bits are listed at Word, and its sizes. Its arrays are, of each part, codes, scales, and
// what NVFP4 has above its scales.
#ifndef MXQ_PYTHON_ARRAYS_H
#define MXQ_PYTHON_ARRAYS_H

#include <array>
#include <cstdint>
#include <mxq/mxq.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mxq_python {

enum class Element { f32, f16, bf16, byte, i32, i64, other };

// Refuses a call in the words of the Python package.
struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};
[[noreturn]] inline void refuse(const std::string& message) { throw refusal(message); }

using Shape = std::vector<int64_t>;

// The memory of an array. Strides count elements.
struct View {
    void* data = nullptr;
    Element element = Element::other;
    int dims = 0;
    std::array<int64_t, 3> shape{}, strides{};

    int64_t size(int from_last) const { return shape[dims - from_last]; }
    int64_t count() const {
        int64_t product = 1;
        for (int i = 0; i < dims; i++) product *= shape[i];
        return product;
    }
    int item() const {
        switch (element) {
            case Element::f32:
            case Element::i32: return 4;
            case Element::f16:
            case Element::bf16: return 2;
            case Element::i64: return 8;
            default: return 1;
        }
    }
    uint64_t bytes() const { return static_cast<uint64_t>(count()) * item(); }
    // The address, which is NULL where there are no bytes.
    void* address() const { return count() ? data : nullptr; }
    bool gapless() const {
        int64_t step = 1;
        if (!count()) return true;
        for (int i = dims - 1; i >= 0; i--) {
            if (shape[i] != 1 && strides[i] != step) return false;
            step *= shape[i];
        }
        return true;
    }
};

inline std::string text_of(const int64_t* sizes, int dims) {
    std::string text = "(";
    for (int i = 0; i < dims; i++) text += (i ? ", " : "") + std::to_string(sizes[i]);
    return text + (dims == 1 ? ",)" : ")");
}

inline mxq_format plain_format(const View& view, const char* what) {
    switch (view.element) {
        case Element::f32: return MXQ_FORMAT_F32;
        case Element::f16: return MXQ_FORMAT_F16;
        case Element::bf16: return MXQ_FORMAT_BF16;
        default:
            refuse(std::string(what) +
                   " has another dtype, expected float32, float16 or bfloat16; convert it to one of them");
    }
}

inline mxq::tensor new_tensor(mxq_format format, const int64_t* shape, int dims) {
    return dims == 3 ? mxq::tensor(format, shape[0], shape[1], shape[2]) : mxq::tensor(format, shape[0], shape[1]);
}

inline mxq_type end_type(const View& ends, const char* what) {
    if (ends.dims != 1 || (ends.element != Element::i32 && ends.element != Element::i64) || !ends.gapless())
        refuse(std::string(what) + " has shape " + text_of(ends.shape.data(), ends.dims) +
               " or another dtype, expected one dimension of int32 or int64");
    if (!ends.count())
        refuse(std::string(what) + " is empty, expected one end for each group; pass None where there are no groups");
    return ends.element == Element::i32 ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64;
}

// Groups of rows as mxq.Groups has them.
struct Groups {
    View ends;
    bool cover_rows = false;
    int32_t row_alignment = 1, column_alignment = 0;

    void set(mxq::tensor& tensor) const {
        const mxq_type type = end_type(ends, "groups.ends");
        tensor.set_groups(ends.data, ends.bytes(), type, static_cast<int32_t>(ends.count()));
        if (row_alignment != 1 || column_alignment != 0) tensor.set_group_alignment(row_alignment, column_alignment);
        if (cover_rows) tensor.set_groups_cover_rows(true);
    }
};

// An operand, whose shape is the one that the product sees.
struct Operand {
    mxq::tensor tensor;
    bool transposed = false;
    Shape shape;
    uint64_t bytes = 0;  // of a plain one

    void transpose() {
        transposed = !transposed;
        std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    }
};

// Elements from one row to the next, or nothing where no row stride describes the strides.
inline std::optional<int64_t> row_stride(const View& view, bool transposed) {
    std::array<int64_t, 3> shape = view.shape, strides = view.strides;
    const int last = view.dims - 1;
    if (transposed) std::swap(shape[last], shape[last - 1]), std::swap(strides[last], strides[last - 1]);
    const int64_t rows = shape[last - 1], cols = shape[last], experts = view.dims == 3 ? shape[0] : 1;
    if (rows == 0 || cols == 0 || experts == 0) return cols;
    if (cols > 1 && strides[last] != 1) return std::nullopt;
    const int64_t stride = rows > 1 ? strides[last - 1] : experts > 1 ? strides[0] : cols;
    if (stride < cols || (experts > 1 && strides[0] != rows * stride)) return std::nullopt;
    return stride;
}

// How a plain array may lie: row-major, or as the operand A or B of a product, of which a transposed view is welcome.
enum class Order { rows, a, b };

// Gives a plain operand its memory.
inline void set_plain(Operand& operand, const View& view, bool written) {
    void* data = operand.bytes ? view.data : nullptr;
    written ? operand.tensor.set_data(data, operand.bytes) : operand.tensor.set_const_data(data, operand.bytes);
}

// A plain array as it is read: A as it is and B as a transposed view, where an array can be read either way.
inline Operand plain_operand(const View& view, const char* what, Order order, bool written = false) {
    const mxq_format format = plain_format(view, what);
    if (view.dims != 2 && view.dims != 3)
        refuse(std::string(what) + " has shape " + text_of(view.shape.data(), view.dims) +
               ", expected 2 dimensions (rows, cols) or 3 (experts, rows, cols); reshape it");
    const int last = view.dims - 1;
    for (const bool transposed : {order == Order::b, order != Order::b}) {
        if (transposed && order == Order::rows) continue;
        const std::optional<int64_t> stride = row_stride(view, transposed);
        if (!stride) continue;
        std::array<int64_t, 3> shape = view.shape;
        if (transposed) std::swap(shape[last], shape[last - 1]);
        Operand out{new_tensor(format, shape.data(), view.dims), transposed,
                    Shape(view.shape.begin(), view.shape.begin() + view.dims), 0};
        if (*stride != shape[last]) out.tensor.set_row_stride(*stride);
        const int64_t lines = (view.dims == 3 ? shape[0] : 1) * shape[last - 1];
        out.bytes = lines && shape[last] ? ((lines - 1) * *stride + shape[last]) * view.item() : 0;
        set_plain(out, view, written);
        return out;
    }
    refuse(std::string(what) + " has shape " + text_of(view.shape.data(), view.dims) + " and strides of " +
           text_of(view.strides.data(), view.dims) + " elements, expected row-major; make a contiguous copy");
}

// The integer of a plain operand that is read as its transpose.
constexpr int64_t transposed_plain = 31;

// Fields of an integer, from its lowest bits on.
class Fields {
public:
    explicit Fields(int64_t word) : left_(static_cast<uint64_t>(word)) {}
    int32_t take(int bits) {
        const auto field = static_cast<int32_t>(left_ & ((uint64_t{1} << bits) - 1));
        left_ >>= bits;
        return field;
    }
    bool flag() { return take(1) != 0; }

private:
    uint64_t left_;
};

// Takes the arrays and the integers of a call one after another.
template <class Arrays>
class Reader {
public:
    Reader(const Arrays& arrays, const int64_t* words, size_t count) : arrays_(arrays), words_(words), count_(count) {}
    int64_t word() {
        if (at_ == count_) refuse("an operator of mxq got too few integers, expected those that mxq.torch and mxq.jax give");
        return words_[at_++];
    }
    View array() {
        if (array_ == arrays_.size())
            refuse("an operator of mxq got too few arrays, expected those that mxq.torch and mxq.jax give");
        return arrays_[array_++];
    }
    size_t arrays_taken() const { return array_; }

private:
    const Arrays& arrays_;
    const int64_t* words_;
    size_t count_, at_ = 0, array_ = 0;
};

// Describes a quantized tensor: its format and options, not its memory.
struct Spec {
    mxq_format format = 0;
    mxq_scaling scaling = 0;
    mxq_scope scope = MXQ_SCOPE_TENSOR;
    int32_t scale_max = 448;
    bool swizzled = false;

    bool is_fp8() const { return format == MXQ_FORMAT_FP8_E4M3 || format == MXQ_FORMAT_FP8_E5M2; }

    mxq::tensor describe(const int64_t* shape, int dims, const Groups* groups) const {
        mxq::tensor out = new_tensor(format, shape, dims);
        if (scaling) out.set_scaling(scaling);
        if (scope != MXQ_SCOPE_TENSOR) out.set_scope(scope);
        if (scale_max != 448) out.set_scale_max(scale_max);
        if (groups) groups->set(out);
        if (swizzled) out.set_swizzled(true);
        return out;
    }
};

inline void set_number(mxq::tensor& tensor, mxq_part part, int32_t kind, const View& number) {
    if (number.element != Element::f32 || !number.gapless())
        refuse("an amax or a decode scale has another dtype, expected float32");
    auto* data = static_cast<float*>(number.address());
    kind == 1 ? tensor.set_amax(part, data, number.bytes()) : tensor.set_decode_scale(part, data, number.bytes());
}

// The codes and scales of a part, and its number where there is one.
inline void set_part(mxq::tensor& tensor, const Spec& spec, mxq_part part, const View& codes, const View& scales,
                     bool written) {
    if (codes.element != Element::byte || !codes.gapless())
        refuse("codes have another dtype or gaps, expected contiguous bytes");
    if (scales.element != (spec.is_fp8() ? Element::f32 : Element::byte) || !scales.gapless())
        refuse(std::string("scales have another dtype or gaps, expected contiguous ") +
               (spec.is_fp8() ? "float32" : "bytes"));
    written ? tensor.set_part(part, codes.address(), codes.bytes(), scales.address(), scales.bytes())
            : tensor.set_const_part(part, codes.address(), codes.bytes(), scales.address(), scales.bytes());
}

// Holds what the integer argument of an operator says about a quantized operand. `number` says which fp32 number comes with it: 0 for
// none, 1 for an amax, 2 for a decode scale.
struct Word {
    Spec spec;
    bool transposed = false;
    int32_t number = 0, parts = 0, dims = 2;
    Groups groups;
    mxq_scale_rounding rounding = 0;

    explicit Word(int64_t word) {
        Fields fields(word);
        spec.format = fields.take(5);
        spec.scaling = fields.take(5);
        spec.scope = fields.take(2);
        spec.swizzled = fields.flag();
        spec.scale_max = fields.take(10);
        transposed = fields.flag();
        number = fields.take(2);
        parts = fields.take(2);
        dims = fields.flag() ? 3 : 2;
        groups.cover_rows = fields.flag();
        groups.row_alignment = fields.take(8);
        groups.column_alignment = fields.take(8);
        rounding = fields.take(3);
    }
};

// The next operand of a call. ends: of its groups, if it has some.
template <class Arrays>
Operand next_operand(Reader<Arrays>& from, const char* what, Order order, const View* ends) {
    const int64_t integer = from.word();
    if (!integer || integer == transposed_plain) {
        Operand plain = plain_operand(from.array(), what, integer ? Order::rows : order);
        if (integer) plain.transpose();
        return plain;
    }
    Word word(integer);
    Operand out{{}, word.transposed, Shape(word.dims), 0};
    for (int64_t& size : out.shape) size = from.word();
    if (ends) word.groups.ends = *ends;
    out.tensor = word.spec.describe(out.shape.data(), word.dims, ends ? &word.groups : nullptr);
    for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(word.parts & part)) continue;
        const View codes = from.array(), scales = from.array();
        set_part(out.tensor, word.spec, part, codes, scales, false);
        if (word.number) set_number(out.tensor, part, word.number, from.array());
    }
    if (word.transposed) {
        out.transposed = false;
        out.transpose();
    }
    return out;
}

}  // namespace mxq_python

#endif
