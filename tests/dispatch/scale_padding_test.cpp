// Bytes of swizzled scales that belong to no scale: a foreign writer may leave anything there. Every implementation of every
// verb that reads swizzled scales writes the same bytes whatever they are. Only what cuBLASLt reads by itself is left out:
// the implementations `cublaslt` and `cublaslt_grouped`.
#include "../formats.h"
#include "dispatch/choice.h"

#include <map>
#include <optional>

using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

enum class Fill { zeros, ones, random };
constexpr Fill all_fills[] = {Fill::zeros, Fill::ones, Fill::random};

// Describes the input of a verb: one part with swizzled scales, or plain numbers.
struct Source {
    oracle::Spec spec;
    testing::Dims dims;
    int32_t part = MXQ_PART_ROWWISE;
    oracle::Groups groups{};  // of rows; without ends: no groups
    Bytes plain{};
    oracle::Part stored{};
    Bytes is_scale{};  // 1 for each byte that belongs to a scale

    bool grouped() const { return !groups.ends.empty(); }
};

const oracle::Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE),
                   f16 = testing::spec_of(MXQ_FORMAT_F16, MXQ_SCALING_NONE),
                   mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);

bool is_plain(const oracle::Spec& spec) { return spec.format <= MXQ_FORMAT_BF16; }

void mark_scales(Source& source, const oracle::Placement& placement, int64_t rows, int64_t cols) {
    const int64_t bytes = oracle::scale_bytes(source.spec.format);
    oracle::each_scale(placement, rows, cols, [&](int64_t i, int64_t j) {
        for (int64_t b = 0; b < bytes; ++b) source.is_scale[static_cast<size_t>(placement.scale(i, j) * bytes + b)] = 1;
    });
}

Source make_source(const oracle::Spec& spec, testing::Dims dims, int32_t part, const oracle::Groups& groups, uint64_t seed) {
    Source out{spec, dims, part, groups};
    const oracle::Floats x = cases::values(cases::Values::normal, dims.shape().count(), seed);
    if (is_plain(spec)) {
        out.plain = oracle::store(spec.format, x);
        return out;
    }
    const bool columnwise = part == MXQ_PART_COLUMNWISE;
    if (out.grouped()) {
        out.stored = oracle::quantize_groups(spec, x, dims.rows, dims.cols, groups, part, true).on(0);
        out.is_scale.assign(out.stored.scales.size(), 0);
        const oracle::GroupLayout layout(spec, dims.rows, dims.cols, groups, part, true);
        for (size_t g = 0; g < groups.ends.size(); ++g)
            mark_scales(out, layout.placement(g), layout.line_rows(g), layout.line_cols(g));
        return out;
    }
    out.stored = oracle::quantize(spec, x, dims.shape(), part, true);
    out.is_scale.assign(out.stored.scales.size(), 0);
    const int64_t rows = columnwise ? dims.cols : dims.rows, cols = columnwise ? dims.rows : dims.cols;
    for (int64_t e = 0; e < dims.shape().experts; ++e)
        mark_scales(out, oracle::placement_of(spec, e, rows, cols, true), rows, cols);
    return out;
}

oracle::Part filled(const Source& source, Fill fill) {
    oracle::Part out = source.stored;
    cases::Random random(11);
    for (size_t i = 0; i < out.scales.size(); ++i)
        if (!source.is_scale[i])
            out.scales[i] = fill == Fill::zeros ? 0 : fill == Fill::ones ? 0xFF : static_cast<uint8_t>(random.bits());
    return out;
}

// A source in a device's memory.
class Input {
public:
    Input(testing::Device& device, const Source& source, Fill fill) {
        if (is_plain(source.spec)) {
            tensor = testing::make_tensor(source.spec.format, source.dims);
            data_ = std::make_unique<Buffer>(device, source.plain);
            ok(mxq_tensor_set_data(tensor, data_->data(), data_->bytes()));
        } else {
            tensor = testing::make_tensor(source.spec, source.dims, true);
            part_ = std::make_unique<testing::InputPart>(device, tensor, source.spec, source.part, filled(source, fill));
        }
        if (source.grouped()) set_groups(device, tensor, source.groups);
    }
    // The ends are on the host as well, which some implementations want.
    void set_groups(testing::Device& device, mxq_tensor* of, const oracle::Groups& groups) {
        if (!ends_) ends_ = std::make_unique<testing::DeviceEnds>(device, groups.ends);
        host_ends_.assign(groups.ends.begin(), groups.ends.end());
        ends_->set(of, groups);
        ok(mxq_tensor_set_host_ends(of, host_ends_.data(), 4 * host_ends_.size()));
    }

    testing::Tensor tensor;

private:
    std::unique_ptr<Buffer> data_;
    std::unique_ptr<testing::InputPart> part_;
    std::unique_ptr<testing::DeviceEnds> ends_;
    std::vector<int32_t> host_ends_;
};

// Plain memory of a tensor.
class Output {
public:
    Output(testing::Device& device, int32_t format, testing::Dims dims) : tensor(testing::make_tensor(format, dims)) {
        uint64_t bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
        data_ = std::make_unique<Buffer>(device, static_cast<size_t>(bytes));
        ok(mxq_tensor_set_data(tensor, data_->data(), data_->bytes()));
    }
    Bytes bytes() const { return data_->read(); }

    testing::Tensor tensor;

private:
    std::unique_ptr<Buffer> data_;
};

// ---- Conversions ---------------------------------------------------------------------------------------------------------

struct Conversion {
    std::string verb;
    Source in;
    oracle::Spec to{};      // of quantized numbers that are written; a plain format: plain ones
    bool swizzled = false;  // of what is written
    int64_t alignment = 1;  // of its groups, rowwise
};

// Returns what the implementation writes; nothing where it declines.
std::optional<Bytes> convert(testing::Device& device, const Conversion& c, testing::Verb verb, testing::Query query,
                             const std::string& name, Fill fill) {
    Input in(device, c.in, fill);
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_implementation(options, name.c_str()));
    std::unique_ptr<Output> plain;
    std::unique_ptr<testing::OutputPart> part;
    testing::Tensor quantized;
    if (is_plain(c.to)) {
        plain = std::make_unique<Output>(device, c.to.format, c.in.dims);
    } else {
        quantized = testing::make_tensor(c.to, c.in.dims, c.swizzled);
        oracle::Groups groups = c.in.groups;
        groups.rowwise = c.alignment;
        if (c.in.grouped()) in.set_groups(device, quantized, groups);
        part = std::make_unique<testing::OutputPart>(device, quantized, c.to, c.in.part, testing::is_nvfp4(c.to));
    }
    mxq_tensor* out = plain ? plain->tensor : quantized;
    testing::Plan plan;
    const mxq_status status = query(device.context, options, in.tensor, out, plan.out());
    if (status == MXQ_STATUS_UNSUPPORTED) return std::nullopt;
    ok(status);
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(verb(device.context, options, in.tensor, out, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(),
            nullptr));
    return plain ? plain->bytes() : part->bytes();
}

std::vector<Conversion> conversions() {
    const oracle::Ends ends{40, 40, 127, 150};
    std::vector<Conversion> out;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
            for (bool grouped : {false, true}) {
                if (!testing::can_swizzle(spec, grouped && part == MXQ_PART_COLUMNWISE)) continue;
                for (int64_t cols : {288, 99}) {
                    const Source in = make_source(spec, {std::nullopt, 150, cols}, part,
                                                  grouped ? oracle::Groups{ends} : oracle::Groups{}, out.size() + 1);
                    out.push_back({"dequantize", in, bf16});
                    out.push_back({"requantize", in, mxfp8, true});
                    out.push_back({"unswizzle_scales", in, spec});
                    if (!grouped) continue;
                    out.push_back({"pad_groups", in, spec, true, 64});
                    out.push_back({"unpad_groups", in, spec, true});
                }
            }
    return out;
}

// ---- Products ------------------------------------------------------------------------------------------------------------

struct Product {
    Source a, b;
    int32_t transpose_a, transpose_b, d_format;
    testing::Dims d;

    std::string text() const {
        const auto one = [](const oracle::Spec& spec) {
            return is_plain(spec) ? mxq_format_name(spec.format) : testing::describe(spec);
        };
        return one(a.spec) + " x " + one(b.spec) + ", D " + std::to_string(d.rows) + "x" + std::to_string(d.cols) + ", A " +
               std::to_string(a.dims.rows) + "x" + std::to_string(a.dims.cols) + ", transposes " +
               std::to_string(transpose_a) + std::to_string(transpose_b) + (a.grouped() ? ", groups" : "");
    }
};

// A product's operands with each fill of the padding.
class Operands {
public:
    Operands(testing::Device& device, const Product& product) : device_(device), product_(product) {
        for (Fill fill : all_fills) {
            a_.push_back(std::make_unique<Input>(device, product.a, fill));
            b_.push_back(std::make_unique<Input>(device, product.b, fill));
            if (product.b.grouped()) a_.back()->set_groups(device, b_.back()->tensor, product.b.groups);  // a's own ends
        }
    }
    // Returns what the implementation writes; nothing where it declines.
    std::optional<Bytes> multiply(const std::string& name, Fill fill) const {
        const mxq_tensor *a = a_[size_t(fill)]->tensor, *b = b_[size_t(fill)]->tensor;
        Output d(device_, product_.d_format, product_.d);
        const bool grouped = product_.a.grouped();
        auto options = testing::gemm_options(product_.transpose_a, product_.transpose_b, 0, name.c_str());
        testing::Plan plan;
        const auto query = grouped ? mxq_grouped_gemm_query : mxq_gemm_query;
        const mxq_status status = query(device_.context, options, a, b, d.tensor, plan.out());
        if (status == MXQ_STATUS_UNSUPPORTED) return std::nullopt;
        ok(status);
        Buffer workspace(device_, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        const auto verb = grouped ? mxq_grouped_gemm : mxq_gemm;
        ok(verb(device_.context, options, a, b, d.tensor, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(),
                nullptr));
        return d.bytes();
    }

private:
    testing::Device& device_;
    const Product& product_;
    std::vector<std::unique_ptr<Input>> a_, b_;
};

// Pairs of which at least one has swizzled scales.
std::vector<std::pair<oracle::Spec, oracle::Spec>> pairs() {
    std::vector<std::pair<oracle::Spec, oracle::Spec>> out;
    for (const oracle::Spec& spec : testing::all_formats()) {
        if (!testing::can_swizzle(spec)) continue;
        out.emplace_back(spec, spec);
        if (oracle::tile_of(spec.scaling).height > 1 || spec.scaling == MXQ_SCALING_ROW) continue;
        for (const oracle::Spec& plain : {bf16, f16}) out.emplace_back(plain, spec);
        if (oracle::is_mx(spec.format)) out.emplace_back(mxfp8, spec);
    }
    return out;
}

// The part of A or B that the transposes read, `across`: of B, the other one.
int32_t part_of(bool along_rows, bool across = false) {
    return along_rows != across ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
}

void add_dense(std::vector<Product>& out, const oracle::Spec& a, const oracle::Spec& b) {
    // Few rows and many; contractions of less than a tile of scales, of whole ones and of one and a bit.
    const int64_t sizes[][3] = {{5, 64, 96}, {16, 160, 544}, {37, 70, 32}, {200, 136, 288}};
    for (const auto& [m, n, k] : sizes)
        for (int which = 0; which < 4; ++which) {  // (N,T), (N,N), (T,N), (N,N) across the rows of the weights
            const bool t = which == 2, u = which == 0, across = which == 3;
            const auto seed = static_cast<uint64_t>(out.size()) + 1;
            const int32_t format = out.size() % 2 ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
            out.push_back({make_source(a, {std::nullopt, t ? k : m, t ? m : k}, part_of(t), {}, seed),
                           make_source(b, {std::nullopt, u ? n : k, u ? k : n}, part_of(!u, across), {}, seed + 1000),
                           t ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                           u ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                           format,
                           {std::nullopt, m, n}});
        }
}

void add_grouped(std::vector<Product>& out, const oracle::Spec& a, const oracle::Spec& b) {
    const oracle::Ends some{40, 40, 127, 150}, few{1, 3, 8, 8, 9}, whole{128, 256};
    const int64_t n = 72, k = 160;
    for (const oracle::Ends& ends : {some, few, whole})
        for (int which = 0; which < 3; ++which) {  // (N,T), (N,N), (N,N) across
            const bool u = which == 0;
            const auto seed = static_cast<uint64_t>(out.size()) + 1;
            const auto count = std::optional<int64_t>(static_cast<int64_t>(ends.size()));
            out.push_back({make_source(a, {std::nullopt, ends.back() + 1, k}, MXQ_PART_ROWWISE, {ends}, seed),
                           make_source(b, {count, u ? n : k, u ? k : n}, part_of(!u, which == 2), {}, seed + 1000),
                           MXQ_TRANSPOSE_N,
                           u ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                           MXQ_FORMAT_BF16,
                           {std::nullopt, ends.back() + 1, n}});
        }
    if (oracle::is_fp8(a.format) || oracle::is_fp8(b.format)) return;  // has no swizzled scales of grouped columns
    for (const oracle::Ends& ends : {some, few, whole}) {
        const auto seed = static_cast<uint64_t>(out.size()) + 1;
        const auto count = std::optional<int64_t>(static_cast<int64_t>(ends.size()));
        const auto source = [&](const oracle::Spec& spec, int64_t cols, uint64_t number) {
            return make_source(spec, {std::nullopt, ends.back(), cols}, MXQ_PART_COLUMNWISE, {ends}, number);
        };
        out.push_back({source(a, 96, seed),
                       source(b, n, seed + 1000),
                       MXQ_TRANSPOSE_T,
                       MXQ_TRANSPOSE_N,
                       MXQ_FORMAT_F32,
                       {count, 96, n}});
    }
}

bool reads_scales_itself(const std::string& name) { return name != "cublaslt" && name != "cublaslt_grouped"; }

const std::vector<std::string>& implementations_of(const std::string& verb) {
    static const auto table = mxq::verb_table();
    for (const mxq::VerbNames& names : table)
        if (names.verb == verb) return names.implementations;
    throw std::logic_error("no verb " + verb);
}

// Runs every product by every implementation that takes it. Returns how many ran.
int64_t compare_products(testing::Device& device, const std::string& verb, const std::vector<Product>& products) {
    int64_t ran = 0;
    for (const Product& product : products) {
        const Operands operands(device, product);
        for (const std::string& name : implementations_of(verb)) {
            if (!reads_scales_itself(name)) continue;
            const auto expected = operands.multiply(name, Fill::zeros);
            if (!expected) continue;
            ++ran;
            for (Fill fill : {Fill::ones, Fill::random}) {
                INFO(name << ", " << product.text() << ", fill " << static_cast<int>(fill));
                CHECK(testing::difference(operands.multiply(name, fill).value(), *expected) == "");
            }
        }
    }
    return ran;
}

const std::map<std::string, std::pair<testing::Verb, testing::Query>> verbs = {
    {"dequantize", {mxq_dequantize, mxq_dequantize_query}},
    {"requantize", {mxq_requantize, mxq_requantize_query}},
    {"unswizzle_scales", {mxq_unswizzle_scales, mxq_unswizzle_scales_query}},
    {"pad_groups", {mxq_pad_groups, mxq_pad_groups_query}},
    {"unpad_groups", {mxq_unpad_groups, mxq_unpad_groups_query}},
};

}  // namespace

MXQ_EACH_DEVICE("padding of swizzled scales: nothing that reads them writes other bytes for it") {
    std::map<std::string, int64_t> ran;
    for (const Conversion& c : conversions())
        for (const std::string& name : implementations_of(c.verb)) {
            const auto [verb, query] = verbs.at(c.verb);
            const auto expected = convert(device, c, verb, query, name, Fill::zeros);
            if (!expected) continue;
            ++ran[c.verb];
            for (Fill fill : {Fill::ones, Fill::random}) {
                INFO(c.verb << " by " << name << ", " << testing::describe(c.in.spec) << ", part " << c.in.part << ", "
                            << c.in.dims.cols << " columns" << (c.in.grouped() ? ", groups" : ""));
                CHECK(testing::difference(convert(device, c, verb, query, name, fill).value(), *expected) == "");
            }
        }
    for (const auto& [verb, unused] : verbs) {
        INFO(verb);
        CHECK(ran[verb] >= (verb == "pad_groups" || verb == "unpad_groups" ? 58 * 2 : 120 * 2));
    }
}

MXQ_EACH_DEVICE("padding of swizzled scales: no product of our own depends on it") {
    std::vector<Product> products;
    for (const auto& [a, b] : pairs()) add_dense(products, a, b);
    CHECK(products.size() == pairs().size() * 16);
    CHECK(compare_products(device, "gemm", products) >= (device.is_cpu() ? 1000 : 2000));
}

MXQ_EACH_DEVICE("padding of swizzled scales: no grouped product of our own depends on it") {
    std::vector<Product> products;
    for (const auto& [a, b] : pairs()) add_grouped(products, a, b);
    CHECK(compare_products(device, "grouped_gemm", products) >= (device.is_cpu() ? 700 : 1400));
}
