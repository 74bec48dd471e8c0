// Operators whose arguments are no lists, for eager calls: torch takes tensors one by one, and a text, in a third of the
// time.
//
// An operand is one part of a quantized tensor, codes, scales and the number above them, or a plain tensor. Integers are a
// text: those of _operands.py with spaces between them, which is read once, when a call of its kind is made for the first
// time.
#ifndef MXQ_PYTHON_TORCH_FLAT_H
#define MXQ_PYTHON_TORCH_FLAT_H

#include <tuple>

#include "torch_kept.h"
#include "torch_parts.h"

namespace mxq_python {

// How a result is made: its type, what is there, and the options of a product.
struct Head {
    mxq_format dtype;
    bool has_ends, cover_rows, has_bias, exact, row_invariant;
    int32_t sm_count;
    explicit Head(int64_t word) {
        Fields fields(word);
        dtype = fields.take(2);
        has_ends = fields.flag();
        cover_rows = fields.flag();
        has_bias = fields.flag();
        exact = fields.flag();
        row_invariant = fields.flag();
        sm_count = fields.take(16);
    }
};

using Optional = std::optional<Tensor>;

inline std::optional<View> view_on(const Optional& tensor, const Device& device, const char* what) {
    return tensor ? std::optional<View>(view_on(*tensor, device, what)) : std::nullopt;
}

// Reads the integers of a text one after another.
class Text {
public:
    explicit Text(const std::string& text) : at_(text.c_str()) {}
    int64_t word() {
        char* end = nullptr;
        const int64_t found = std::strtoll(at_, &end, 10);
        if (end == at_) refuse("an operator of mxq got too few integers, expected those that mxq.torch gives");
        at_ = end;
        return found;
    }
    float number() {
        char* end = nullptr;
        const float found = std::strtof(at_, &end);
        at_ = end;
        return found;
    }

private:
    const char* at_;
};

// The arrays of an operand as a call has them.
struct Given {
    View codes;
    std::optional<View> scales, number;
};

// The descriptor of an operand, whose memory each call sets.
struct KeptOperand {
    Word word;
    Operand operand;

    KeptOperand(Text& from, const Given& given, const char* what, Order order, const View* ends) : word(from.word()) {
        if (!word.spec.format) {
            operand = plain_operand(given.codes, what, order);
            word.groups = {};  // zero is no alignment
            return;
        }
        operand.transposed = word.transposed;
        operand.shape.resize(word.dims);
        for (int64_t& size : operand.shape) size = from.word();
        if (ends) word.groups.ends = *ends;
        operand.tensor = word.spec.describe(operand.shape.data(), word.dims, ends ? &word.groups : nullptr);
        if (word.transposed) std::swap(operand.shape.end()[-1], operand.shape.end()[-2]);
    }

    void set(const Given& given) {
        if (!word.spec.format) return set_plain(operand, given.codes, false);
        if (!given.scales || !given.number != !word.number)
            refuse("an operator of mxq got too few arrays, expected those that mxq.torch gives");
        const auto part = static_cast<mxq_part>(word.parts);
        set_part(operand.tensor, word.spec, part, given.codes, *given.scales, false);
        if (given.number) set_number(operand.tensor, part, word.number, *given.number);
    }

    // Gives the rows their groups. cover_rows: of a plain operand.
    void set_groups(const View& ends, bool cover_rows) {
        word.groups.ends = ends;
        if (!word.spec.format) word.groups.cover_rows = cover_rows;
        word.groups.set(operand.tensor);
    }
};

// A plain result, whose memory each call makes.
struct KeptResult {
    Operand operand;
    mxq_format format;
    bool zero;

    KeptResult(const Shape& shape, mxq_format format, bool zero)
        : operand{new_tensor(format, shape.data(), static_cast<int>(shape.size())), false, shape, 0},
          format(format),
          zero(zero) {
        operand.bytes = count_of(shape) * (format == MXQ_FORMAT_F32 ? 4 : 2);
    }

    Tensor make(const Device& device) {
        Tensor out = new_tensor_on(device, operand.shape, dtype_of(format));
        if (zero) TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(out.get()));
        operand.tensor.set_data(operand.bytes ? out.data_ptr() : nullptr, operand.bytes);
        return out;
    }
};

// ---- Quantize ----------------------------------------------------------------------------------------------------------

struct KeptQuantize {
    Word word;
    mxq_part part;
    Operand source;
    mxq::tensor target;
    PartShape shape;
    mxq::quantize_options options;
    uint64_t workspace = 0;

    KeptQuantize(int64_t given, const View& x) : word(given), part(word.parts), source(plain_operand(x, "x", Order::rows)) {
        if (part != MXQ_PART_ROWWISE && part != MXQ_PART_COLUMNWISE)
            refuse("an operator of mxq got two parts, expected one part of the result; take torch.ops.mxq_native.quantize");
        if (word.rounding) options.set_scale_rounding(word.rounding);
        target = word.spec.describe(x.shape.data(), x.dims, nullptr);
        shape = part_shape(target, word.spec, x, part, nullptr);
    }
};

inline NewPart quantized(const Tensor& x, int64_t word) {
    Call call(x);
    const View view = view_of(x);
    Key key{{}};
    key.add(word), key.add(view);
    Kept<KeptQuantize> kept(key, [&] { return KeptQuantize(word, view); });
    set_plain(kept->source, view, false);
    NewPart out = new_part(call.device, kept->target, kept->word.spec, kept->part, kept->shape);
    quantize(call.place(), kept->options, kept->source.tensor, kept->target, &kept->workspace);
    kept.keep();
    return out;
}

// word: that of the result, of one part.
inline std::tuple<Tensor, Tensor> quantize_part(Tensor x, int64_t word) {
    return guarded([&] {
        NewPart out = quantized(x, word);
        if (out.amaxes) refuse("the result has amaxes; take torch.ops.mxq_native.quantize_part_with_amaxes");
        return std::tuple<Tensor, Tensor>(std::move(out.codes), std::move(out.scales));
    });
}

// Quantizes one part, and returns its codes, scales and the amaxes of NVFP4.
inline std::tuple<Tensor, Tensor, Tensor> quantize_part_with_amaxes(Tensor x, int64_t word) {
    return guarded([&] {
        NewPart out = quantized(x, word);
        if (!out.amaxes) refuse("the result has no amaxes; take torch.ops.mxq_native.quantize_part");
        return std::tuple<Tensor, Tensor, Tensor>(std::move(out.codes), std::move(out.scales), std::move(*out.amaxes));
    });
}

// ---- Dequantize --------------------------------------------------------------------------------------------------------

struct KeptDequantize {
    KeptOperand source;
    KeptResult out;
    uint64_t workspace = 0;
};

// call: the head, then the integers of the operand. ends: of its groups.
inline Tensor dequantize_part(Tensor codes, Tensor scales, std::string call, Optional number, Optional ends) {
    return guarded([&] {
        Call on(codes);
        const Device& device = on.device;
        const Given q{view_of(codes), view_on(scales, device, "a tensor"), view_on(number, device, "a tensor")};
        const std::optional<View> rows = view_on(ends, device, "groups.ends");
        Key key(call);
        if (rows) key.add(*rows);
        Kept<KeptDequantize> kept(key, [&] {
            Text from(call);
            const Head head(from.word());
            KeptOperand source(from, q, "q", Order::rows, rows ? &*rows : nullptr);
            KeptResult out(source.operand.shape, head.dtype, rows && !head.cover_rows);
            return KeptDequantize{std::move(source), std::move(out)};
        });
        if (rows) kept->source.set_groups(*rows, false);
        kept->source.set(q);
        Tensor out = kept->out.make(device);
        dequantize(on.place(), kept->source.operand.tensor, kept->out.operand.tensor, &kept->workspace);
        kept.keep();
        return out;
    });
}

// ---- Products ----------------------------------------------------------------------------------------------------------

struct KeptProduct {
    Head head;
    float alpha;
    KeptOperand a, b;
    KeptResult out;
    Shape bias_shape;
    uint64_t workspace = 0;

    static KeptProduct make(Text from, const Given& left, const Given& right, const std::optional<View>& ends) {
        const Head head(from.word());
        const float alpha = from.number();
        KeptOperand a(from, left, "a", Order::a, ends ? &*ends : nullptr), b(from, right, "b", Order::b, nullptr);
        if (ends) a.set_groups(*ends, head.cover_rows);
        const int64_t groups = ends ? ends->count() : 0;
        const Shape shape = product_shape(a.operand, b.operand, groups);
        KeptResult out(shape, head.dtype, ends && !a.operand.transposed && !head.cover_rows);
        Shape bias_shape = groups ? Shape{groups, shape.back()} : Shape{shape.back()};
        return {head, alpha, std::move(a), std::move(b), std::move(out), std::move(bias_shape)};
    }
};

// Holds a product's bias, and the ends of a's groups where it is a grouped product.
struct Besides {
    Optional bias, ends;
};

// call: the head, alpha, then the integers of a and of b.
inline Tensor product_of(Call& on, const Given& left, const Given& right, const std::string& call, const Besides& besides) {
    const auto view = [&](const Optional& tensor) { return view_on(tensor, on.device, "a tensor"); };
    const std::optional<View> rows = view(besides.ends), added = view(besides.bias);
    Key key(call);
    if (!left.scales) key.add(left.codes);
    if (!right.scales) key.add(right.codes);
    if (rows) key.add(*rows);
    Kept<KeptProduct> kept(key, [&] { return KeptProduct::make(Text(call), left, right, rows); });
    if (rows) kept->a.set_groups(*rows, kept->head.cover_rows);
    kept->a.set(left);
    kept->b.set(right);
    if (added) check_bias(*added, kept->bias_shape);
    const Product how{rows.has_value(), kept->head.exact, kept->head.row_invariant, kept->head.sm_count, kept->alpha, added};
    Tensor out = kept->out.make(on.device);
    multiply(on.place(), how, kept->a.operand, kept->b.operand, kept->out.operand.tensor, &kept->workspace);
    kept.keep();
    return out;
}

inline Tensor product(Tensor a, Optional a_scales, Tensor b, Optional b_scales, std::string call) {
    return guarded([&] {
        Call on(a);
        const auto view = [&](const auto& tensor) { return view_on(tensor, on.device, "a tensor"); };
        return product_of(on, {view(a), view(a_scales), {}}, {view(b), view(b_scales), {}}, call, {});
    });
}

// Multiplies a and b with a bias, groups of a, and the fp32 numbers above their scales, each of them optional.
inline Tensor product_with(Tensor a, Optional a_scales, Tensor b, Optional b_scales, std::string call, Optional bias,
                           Optional ends, Optional a_number, Optional b_number) {
    return guarded([&] {
        Call on(a);
        const auto view = [&](const auto& tensor) { return view_on(tensor, on.device, "a tensor"); };
        const Given left{view(a), view(a_scales), view(a_number)}, right{view(b), view(b_scales), view(b_number)};
        return product_of(on, left, right, call, {std::move(bias), std::move(ends)});
    });
}

}  // namespace mxq_python

#endif
