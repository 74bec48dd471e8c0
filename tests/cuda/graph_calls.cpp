#include "graph_calls.h"

namespace graph_calls {

namespace {

using oracle::Spec;

constexpr int32_t row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE;
constexpr int32_t all_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE, MXQ_PART_BOTH};

const Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE),
           mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
           nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
bool is_plain(const Spec& spec) { return spec.format <= MXQ_FORMAT_BF16; }
// Returns whether fp32 scales change from code to code across the rows of a part.
bool has_scales_of_rows(const Spec& spec) {
    return oracle::is_fp8(spec.format) && (spec.scaling == MXQ_SCALING_ROW || spec.scaling == MXQ_SCALING_1X128);
}

std::string text_of(const Spec& spec, const testing::Dims& dims, int32_t parts, bool swizzled, int64_t grouped) {
    return (is_plain(spec) ? mxq_format_name(spec.format) : testing::describe(spec)) + ", parts " + std::to_string(parts) +
           (swizzled ? ", swizzled" : "") + (grouped ? ", groups" : "") + ", " + std::to_string(dims.experts.value_or(1)) +
           " x " + std::to_string(dims.rows) + "x" + std::to_string(dims.cols);
}

// A quantized tensor of a call: its parts, layout, shape and groups.
struct Form {
    Spec spec;
    Size size;
    int32_t parts;
    bool swizzled;
    int64_t grouped;  // 0: without groups

    std::string text() const { return text_of(spec, size.dims, parts, swizzled, grouped); }
};

// Calls visit(form) for every layout and size, with and without groups, that the specification can have with these parts.
template <class Visit>
void each_form(const Spec& spec, int32_t parts, Visit visit) {
    for (const Size& size : sizes)
        for (bool swizzled : {false, true})
            for (int64_t grouped : {0, 1}) {
                if (grouped && !size.takes_groups()) continue;
                if (swizzled && !testing::can_swizzle(spec, grouped && (parts & column))) continue;
                if (spec.hadamard && ((parts & row) == 0 || size.dims.cols % 16)) continue;
                visit(Form{spec, size, parts, swizzled, grouped});
            }
}

// A list that grows; each call is written by a function that says whether something takes it.
class List {
public:
    List(testing::Device& device, int64_t one_of) : device_(device), one_of_(one_of) {}
    template <class Make>
    void add(const std::string& verb, const std::string& text, size_t offset, Make make) {
        if (added_++ % one_of_) return;
        auto call = std::make_unique<Call>(device_, verb, text, offset);
        if (make(*call)) calls.push_back(std::move(call));
    }
    int32_t next_plain() { return cases::plain_formats[number_++ % 3]; }

    Calls calls;

private:
    testing::Device& device_;
    const int64_t one_of_;
    int64_t added_ = 0;
    int number_ = 0;
};

void add_quantize(List& list, const Spec& spec, int32_t parts) {
    each_form(spec, parts, [&](const Form& f) {
        list.add("quantize", f.text(), f.size.offset, [&](Call& c) {
            return c.converts(mxq_quantize, mxq_quantize_query, &spec, c.plain(list.next_plain(), f.size.dims, Role::in),
                              c.quantized(spec, f.size.dims, f.swizzled, parts, Role::out, f.grouped));
        });
    });
}

void add_dequantize(List& list, const Spec& spec, int32_t part) {
    each_form(spec, part, [&](const Form& f) {
        list.add("dequantize", f.text(), f.size.offset, [&](Call& c) {
            return c.converts(mxq_dequantize, mxq_dequantize_query, nullptr,
                              c.quantized(spec, f.size.dims, f.swizzled, part, Role::in, f.grouped),
                              c.plain(list.next_plain(), f.size.dims, Role::out));
        });
    });
}

// From this specification to MXFP8, and from MXFP8 to it, in both parts and layouts.
void add_requantize(List& list, const Spec& spec, int32_t part) {
    const auto add = [&](const Spec& from, int32_t from_part, const Spec& to, int32_t to_parts) {
        each_form(from, from_part, [&](const Form& f) {
            const bool swizzled = f.swizzled && testing::can_swizzle(to, f.grouped && (to_parts & column));
            list.add("requantize", f.text() + " to " + testing::describe(to), f.size.offset, [&](Call& c) {
                return c.converts(mxq_requantize, mxq_requantize_query, &to,
                                  c.quantized(from, f.size.dims, f.swizzled, from_part, Role::in, f.grouped),
                                  c.quantized(to, f.size.dims, swizzled, to_parts, Role::out, f.grouped));
            });
        });
    };
    add(spec, part, mxfp8, MXQ_PART_BOTH);
    add(mxfp8, part, spec, MXQ_PART_BOTH);
}

void add_amax(List& list, const Spec& spec) {
    if (!testing::is_nvfp4(spec) && spec.scaling != MXQ_SCALING_TENSOR) return;
    for (bool per_matrix : {false, true}) {
        Spec scoped = spec;
        scoped.per_matrix = per_matrix;
        each_form(scoped, MXQ_PART_BOTH, [&](const Form& f) {
            if (f.swizzled) return;
            list.add("amax", f.text(), f.size.offset, [&](Call& c) {
                return c.converts(mxq_amax, mxq_amax_query, nullptr, c.plain(list.next_plain(), f.size.dims, Role::in),
                                  c.quantized(scoped, f.size.dims, false, MXQ_PART_BOTH, Role::out, f.grouped, true));
            });
        });
    }
}

void add_layouts(List& list, const Spec& spec, int32_t part) {
    each_form(spec, part, [&](const Form& f) {
        if (f.swizzled && testing::can_swizzle(spec, f.grouped && part == column))
            for (bool to_swizzled : {true, false})
                list.add(to_swizzled ? "swizzle_scales" : "unswizzle_scales", f.text(), f.size.offset, [&](Call& c) {
                    return c.converts(to_swizzled ? mxq_swizzle_scales : mxq_unswizzle_scales,
                                      to_swizzled ? mxq_swizzle_scales_query : mxq_unswizzle_scales_query, nullptr,
                                      c.quantized(spec, f.size.dims, !to_swizzled, part, Role::in, f.grouped),
                                      c.quantized(spec, f.size.dims, to_swizzled, part, Role::out, f.grouped));
                });
        if (!f.grouped) return;
        for (bool pads : {true, false})
            list.add(pads ? "pad_groups" : "unpad_groups", f.text(), f.size.offset, [&](Call& c) {
                const int64_t wide = 64, narrow = 1;
                return c.converts(pads ? mxq_pad_groups : mxq_unpad_groups,
                                  pads ? mxq_pad_groups_query : mxq_unpad_groups_query, nullptr,
                                  c.quantized(spec, f.size.dims, f.swizzled, part, Role::in, pads ? narrow : wide),
                                  c.quantized(spec, f.size.dims, f.swizzled, part, Role::out, pads ? wide : narrow));
            });
    });
}

void add_plain(List& list, const Size& size) {
    for (int32_t from : cases::plain_formats) {
        for (int32_t to : cases::plain_formats)
            list.add("convert", text_of(testing::spec_of(from, 0), size.dims, row, false, 0), size.offset, [&](Call& c) {
                return c.converts(mxq_convert, mxq_convert_query, nullptr, c.plain(from, size.dims, Role::in),
                                  c.plain(to, size.dims, Role::out));
            });
        if (!size.takes_groups()) continue;
        for (bool pads : {true, false})
            list.add(pads ? "pad_groups" : "unpad_groups", text_of(testing::spec_of(from, 0), size.dims, row, false, 1),
                     size.offset, [&](Call& c) {
                         return c.converts(pads ? mxq_pad_groups : mxq_unpad_groups,
                                           pads ? mxq_pad_groups_query : mxq_unpad_groups_query, nullptr,
                                           c.plain(from, size.dims, Role::in, pads ? 1 : 32),
                                           c.plain(from, size.dims, Role::out, pads ? 32 : 1));
                     });
    }
}

// ---- Products ------------------------------------------------------------------------------------------------------------

struct Shape {
    int64_t m, n, k;
    size_t offset;
};

// Which matrices a product reads transposed; `across`: weights by the rows that lie across the contraction.
struct Way {
    bool a_transposed, b_transposed, across;
};
constexpr Way ways[] = {{false, true, false}, {false, false, false}, {true, false, false}, {false, false, true}};

class Products {
public:
    Products(List& list, const Spec& a, const Spec& b) : list_(list), a_(a), b_(b) {}

    void dense(const Way& way, const Shape& s) {
        const auto [m, n, k, offset] = s;
        add("gemm", way, s, false, [=, this, &way](Call& c, bool swizzled) {
            return std::tuple{operand(c, a_, {std::nullopt, way.a_transposed ? k : m, way.a_transposed ? m : k},
                                      way.a_transposed, swizzled, 0),
                              operand(c, b_, {std::nullopt, way.b_transposed ? n : k, way.b_transposed ? k : n},
                                      way.b_transposed == way.across, swizzled, 0),
                              c.plain(number_ % 2 ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16, {std::nullopt, m, n}, Role::out)};
        });
    }
    void grouped(const Way& way, const Shape& s) {
        const auto [m, n, k, offset] = s;
        const int64_t experts = group_count;
        add("grouped_gemm", way, s, true, [=, this, &way](Call& c, bool swizzled) {
            if (way.a_transposed)
                return std::tuple{operand(c, a_, {std::nullopt, m, k}, true, swizzled, 1),
                                  operand(c, b_, {std::nullopt, m, n}, true, swizzled, 1),
                                  c.plain(MXQ_FORMAT_F32, {experts, k, n}, Role::out)};
            return std::tuple{operand(c, a_, {std::nullopt, m, k}, false, swizzled, 1),
                              operand(c, b_, {experts, way.b_transposed ? n : k, way.b_transposed ? k : n},
                                      way.b_transposed == way.across, swizzled, 0),
                              c.plain(number_ % 2 ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16, {std::nullopt, m, n}, Role::out)};
        });
    }

private:
    static mxq_tensor* operand(Call& c, const Spec& spec, testing::Dims dims, bool columnwise, bool swizzled,
                               int64_t grouped) {
        if (is_plain(spec)) return c.plain(spec.format, dims, Role::in, grouped);
        const bool can = testing::can_swizzle(spec, grouped && columnwise);
        return c.quantized(spec, dims, swizzled && can, columnwise ? column : row, Role::in, grouped);
    }
    template <class Operands>
    void add(const char* verb, const Way& way, const Shape& s, bool grouped, Operands operands) {
        const bool swizzled = ++number_ % 2, exact = number_ % 3 == 0;
        const std::string text = text_of(a_, {std::nullopt, s.m, s.k}, 0, swizzled, grouped) + " x " +
                                 text_of(b_, {std::nullopt, s.n, s.k}, 0, swizzled, 0);
        list_.add(verb, text, s.offset, [&](Call& c) {
            const auto [a, b, d] = operands(c, swizzled);
            const int32_t at = way.a_transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                          bt = way.b_transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N;
            return c.multiplies(grouped, exact ? testing::exact_gemm_options(at, bt, 0) : testing::gemm_options(at, bt), a,
                                b, d);
        });
    }

    List& list_;
    const Spec a_, b_;
    int number_ = 0;
};

void add_products(List& list, const Spec& a, const Spec& b) {
    const Shape shapes[] = {{136, 64, 160, 0}, {148, 70, 100, 1}, {8, 64, 288, 0}};
    const Shape empty[] = {{0, 64, 64, 0}, {64, 0, 64, 0}, {64, 64, 0, 0}};
    Products products(list, a, b);
    for (const Way& way : ways) {
        if (way.across && has_scales_of_rows(b)) continue;  // CUDA has none of these
        for (const Shape& shape : shapes) products.dense(way, shape), products.grouped(way, shape);
        if (a.format != b.format || way.across) continue;
        for (const Shape& shape : empty) products.dense(way, shape), products.grouped(way, shape);
    }
}

}  // namespace

Calls conversions(testing::Device& device, int64_t one_of) {
    List list(device, one_of);
    for (const Spec& base : testing::all_formats()) {
        for (int32_t parts : all_parts)
            for (const Spec& spec : testing::ways_of(base)) add_quantize(list, spec, parts);
        for (int32_t part : {row, column}) {
            for (const Spec& spec : testing::ways_of(base))
                if (!spec.stochastic && spec.four_over_six == MXQ_FOUR_OVER_SIX_NONE) add_dequantize(list, spec, part);
            add_requantize(list, base, part);
            add_layouts(list, base, part);
        }
        add_amax(list, base);
    }
    for (const Size& size : sizes) add_plain(list, size);
    return std::move(list.calls);
}

Calls products(testing::Device& device, int64_t one_of) {
    List list(device, one_of);
    for (const Spec& spec : testing::all_formats())
        for (const auto& [a, b] : {std::pair{spec, spec}, {spec, bf16}, {bf16, spec}}) add_products(list, a, b);
    add_products(list, bf16, bf16);
    return std::move(list.calls);
}

}  // namespace graph_calls
