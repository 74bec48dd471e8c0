#include "support.h"

#include <cctype>
#include <functional>
#include <utility>

namespace tools {
namespace {

// A format with one of its scalings.
struct Kind {
    int32_t format, scaling;  // MXQ_FORMAT_*; MXQ_SCALING_*, NONE for plain formats
    std::string scaling_name;

    bool is_plain() const { return scaling == MXQ_SCALING_NONE; }
};

struct Shape {
    int64_t experts, rows, cols;  // experts 0: two dimensions
};

constexpr int32_t kBothParts = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;

Tensor make(const Kind& kind, int32_t parts, Shape shape = {0, kRows, kCols}) {
    mxq_tensor* tensor = nullptr;
    if (shape.experts) mxq_tensor_create_3d(kind.format, shape.experts, shape.rows, shape.cols, &tensor);
    else mxq_tensor_create_2d(kind.format, shape.rows, shape.cols, &tensor);
    if (kind.is_plain()) return Tensor(tensor);
    mxq_tensor_set_scaling(tensor, kind.scaling);
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) mxq_tensor_set_part(tensor, part, nullptr, 0, nullptr, 0);
    return Tensor(tensor);
}

Tensor grouped(Tensor tensor, int32_t alignment) {
    mxq_tensor_set_groups(tensor.get(), nullptr, 0, MXQ_TYPE_INT32, kGroups);
    mxq_tensor_set_group_alignment(tensor.get(), alignment, 0);
    return tensor;
}

const Kind f32{MXQ_FORMAT_F32, MXQ_SCALING_NONE, ""}, bf16{MXQ_FORMAT_BF16, MXQ_SCALING_NONE, ""};
const Kind mxfp8{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32, "1x32"}, nvfp4{MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16, "1x16"};

const std::string scaling_prefix = "MXQ_SCALING_", bound_prefix = "MXQ_BOUND_";

// Returns "1x32" for "MXQ_SCALING_1X32" without its prefix.
std::string short_name(const std::string& constant, const std::string& prefix) {
    std::string name = constant.substr(prefix.size());
    for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
    return name;
}

// Returns "exact_products" for MXQ_BOUND_EXACT_PRODUCTS, and "" for MXQ_BOUND_NONE.
std::string bound_name(int32_t bound) {
    for (int32_t i = 0; const char* constant = mxq_constant_name(i); i++) {
        int64_t value = MXQ_BOUND_NONE;
        if (std::string(constant).rfind(bound_prefix, 0) != 0 || mxq_constant(constant, &value)) continue;
        if (value == bound && value != MXQ_BOUND_NONE) return short_name(constant, bound_prefix);
    }
    return "";
}

std::vector<Kind> kinds_of(int32_t format) {
    std::vector<Kind> kinds;
    mxq_tensor* tensor = nullptr;
    mxq_tensor_create_2d(format, kRows, kCols, &tensor);
    const Tensor owner(tensor);
    for (int32_t i = 0; const char* constant = mxq_constant_name(i); i++) {
        int64_t scaling = 0;
        if (std::string(constant).rfind(scaling_prefix, 0) != 0 || mxq_constant(constant, &scaling)) continue;
        if (mxq_tensor_set_scaling(tensor, int32_t(scaling)) == MXQ_STATUS_OK)
            kinds.push_back({format, int32_t(scaling), short_name(constant, scaling_prefix)});
    }
    if (kinds.empty()) kinds.push_back({format, MXQ_SCALING_NONE, ""});
    return kinds;
}

// Makes queries of one verb and collects their answers.
class Asker {
public:
    Asker(mxq_context* context, std::string verb, std::vector<Answer>& answers)
        : context_(context), verb_(std::move(verb)), answers_(answers) {}

    using ConvertQuery = decltype(&mxq_quantize_query);
    void convert(ConvertQuery query, const Kind& kind, const char* use, const Tensor& in, const Tensor& out) {
        mxq_plan* plan = nullptr;
        const mxq_status status = query(context_, nullptr, in.get(), out.get(), &plan);
        add(kind, use, status, Plan(plan));
    }

    using ProductQuery = decltype(&mxq_gemm_query);
    void multiply(ProductQuery query, const Kind& kind, const char* use, const GemmOptions& options, const Tensor& a,
                  const Tensor& b, const Tensor& d) {
        mxq_plan* plan = nullptr;
        const mxq_status status = query(context_, options.get(), a.get(), b.get(), d.get(), &plan);
        add(kind, use, status, Plan(plan));
    }

    // A setter has refused the kind.
    void refuse(const Kind& kind, mxq_status status) { add(kind, "", status, Plan(nullptr)); }

private:
    void add(const Kind& kind, const char* use, mxq_status status, const Plan& plan) {
        Answer answer{verb_, mxq_format_name(kind.format), kind.scaling_name, use, "", "", "", 0};
        answer.implementation = mxq_plan_implementation(plan.get());
        answer.reason = status == MXQ_STATUS_OK ? mxq_plan_reason(plan.get()) : last_reason();
        answer.bound = bound_name(mxq_plan_bound(plan.get()));
        answer.workspace_bytes = mxq_plan_workspace_bytes(plan.get());
        answers_.push_back(std::move(answer));
    }

    mxq_context* context_;
    std::string verb_;
    std::vector<Answer>& answers_;
};

void ask_quantize(Asker& ask, const Kind& kind) {
    if (kind.is_plain()) return ask.convert(mxq_quantize_query, kind, "to mxfp8_e4m3", make(kind, 0), make(mxfp8, 0));
    ask.convert(mxq_quantize_query, kind, "rowwise", make(bf16, 0), make(kind, MXQ_PART_ROWWISE));
    ask.convert(mxq_quantize_query, kind, "columnwise", make(bf16, 0), make(kind, MXQ_PART_COLUMNWISE));
    ask.convert(mxq_quantize_query, kind, "both parts", make(bf16, 0), make(kind, kBothParts));
}

void ask_requantize(Asker& ask, const Kind& kind) {
    const auto from_to = [&](const char* use, int32_t from, int32_t to) {
        ask.convert(mxq_requantize_query, kind, use, make(kind, from), make(kind, to));
    };
    from_to("to columnwise", MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE);
    from_to("to rowwise", MXQ_PART_COLUMNWISE, MXQ_PART_ROWWISE);
}

void ask_dequantize(Asker& ask, const Kind& kind) {
    if (kind.is_plain()) return ask.convert(mxq_dequantize_query, kind, "from mxfp8_e4m3", make(mxfp8, 0), make(kind, 0));
    ask.convert(mxq_dequantize_query, kind, "rowwise", make(kind, MXQ_PART_ROWWISE), make(bf16, 0));
    ask.convert(mxq_dequantize_query, kind, "columnwise", make(kind, MXQ_PART_COLUMNWISE), make(bf16, 0));
}

void ask_amax(Asker& ask, const Kind& kind) {
    if (kind.is_plain()) return ask.convert(mxq_amax_query, kind, "for nvfp4", make(kind, 0), make(nvfp4, 0));
    ask.convert(mxq_amax_query, kind, "", make(bf16, 0), make(kind, 0));
}

void ask_convert(Asker& ask, const Kind& kind) {
    ask.convert(mxq_convert_query, kind, "", make(kind, 0), make(bf16, 0));
}

// Asks about compact and swizzled scales of a kind, where it has the latter.
void ask_layouts(Asker& ask, const Kind& kind, Asker::ConvertQuery query, bool to_swizzled) {
    const Tensor compact = make(kind, kBothParts), swizzled = make(kind, kBothParts);
    const mxq_status status = mxq_tensor_set_swizzled(swizzled.get(), 1);
    if (status != MXQ_STATUS_OK && !kind.is_plain()) return ask.refuse(kind, status);
    ask.convert(query, kind, "", to_swizzled ? compact : swizzled, to_swizzled ? swizzled : compact);
}

void ask_swizzle(Asker& ask, const Kind& kind) { ask_layouts(ask, kind, mxq_swizzle_scales_query, true); }
void ask_unswizzle(Asker& ask, const Kind& kind) { ask_layouts(ask, kind, mxq_unswizzle_scales_query, false); }

void ask_pad(Asker& ask, const Kind& kind) {
    ask.convert(mxq_pad_groups_query, kind, "", grouped(make(kind, kBothParts), 1), grouped(make(kind, kBothParts), 128));
}

void ask_unpad(Asker& ask, const Kind& kind) {
    ask.convert(mxq_unpad_groups_query, kind, "", grouped(make(kind, kBothParts), 128), grouped(make(kind, kBothParts), 1));
}

struct Transposes {
    const char* name;
    int32_t a, b;
};
const Transposes transposes[] = {{"(N,T)", MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T},
                                 {"(N,N)", MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N},
                                 {"(T,N)", MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N}};

GemmOptions gemm_options(const Transposes& pair) {
    mxq_gemm_options* options = nullptr;
    mxq_gemm_options_create(&options);
    mxq_gemm_options_set_transpose(options, pair.a, pair.b);
    return GemmOptions(options);
}

// All matrices are square, so that every transpose fits.
void ask_gemm(Asker& ask, const Kind& kind) {
    for (const Transposes& pair : transposes)
        ask.multiply(mxq_gemm_query, kind, pair.name, gemm_options(pair), make(kind, 0), make(kind, 0), make(f32, 0));
}

void ask_grouped_gemm(Asker& ask, const Kind& kind) {
    const Shape per_group{kGroups, kRows, kCols};
    for (const Transposes& pair : transposes) {
        const bool along_contraction = pair.a == MXQ_TRANSPOSE_T;  // the groups divide the contraction: D has a matrix for each
        const Tensor a = grouped(make(kind, 0), 1);
        const Tensor b = along_contraction ? grouped(make(kind, 0), 1) : make(kind, 0, per_group);
        const Tensor d = along_contraction ? make(f32, 0, per_group) : make(f32, 0);
        ask.multiply(mxq_grouped_gemm_query, kind, pair.name, gemm_options(pair), a, b, d);
    }
}

const std::pair<const char*, void (*)(Asker&, const Kind&)> verbs[] = {
    {"quantize", ask_quantize},
    {"requantize", ask_requantize},
    {"dequantize", ask_dequantize},
    {"convert", ask_convert},
    {"amax", ask_amax},
    {"swizzle_scales", ask_swizzle},
    {"unswizzle_scales", ask_unswizzle},
    {"pad_groups", ask_pad},
    {"unpad_groups", ask_unpad},
    {"gemm", ask_gemm},
    {"grouped_gemm", ask_grouped_gemm},
};

}  // namespace

std::vector<Answer> ask_all(mxq_context* context) {
    std::vector<Answer> answers;
    for (const auto& [name, ask] : verbs) {
        Asker asker(context, name, answers);
        for (int32_t format = 1; mxq_format_name(format); format++)
            for (const Kind& kind : kinds_of(format)) ask(asker, kind);
    }
    return answers;
}

}  // namespace tools
