// Repairs calls that were drawn or shrunk, so that each keeps the rules of the contract.
#include "values.h"

namespace search {
namespace {

bool is_nvfp4(const Side& side) { return side.format == MXQ_FORMAT_NVFP4; }
bool is_fp8(const Side& side) { return !side.plain() && oracle::is_fp8(side.format); }
bool is_mx(const Side& side) { return !side.plain() && oracle::is_mx(side.format); }
bool takes_stochastic(const Side& side) { return testing::takes_stochastic(testing::spec_of(side.format, side.scaling)); }
bool takes_hadamard(const Side& side) { return testing::takes_hadamard(testing::spec_of(side.format, side.scaling)); }

int64_t power_of_two(int64_t alignment, int64_t least) {
    int64_t out = least;
    while (out < alignment && out < 128) out *= 2;
    return out;
}

int64_t least_columnwise(const Side& side) { return testing::least_columnwise(testing::spec_of(side.format, side.scaling)); }

int64_t columnwise(const Side& side) {
    return side.columnwise ? side.columnwise : oracle::columnwise_alignment(testing::spec_of(side.format, side.scaling));
}

void repair_side(Side& side, bool grouped) {
    side.grouped = side.grouped && grouped;
    if (side.plain()) {
        side.scaling = MXQ_SCALING_NONE;
        side.swizzled = false;
        side.parts = MXQ_PART_ROWWISE;
        side.columnwise = 0;
    } else {
        side.gap = 0;
        bool takes = false;
        for (const oracle::Spec& known : testing::all_formats())
            takes |= known.format == side.format && known.scaling == side.scaling;
        if (!takes) side.scaling = oracle::default_scaling(side.format);
        const bool grouped_columns = side.grouped && side.parts & MXQ_PART_COLUMNWISE;
        side.swizzled = side.swizzled && testing::can_swizzle(testing::spec_of(side.format, side.scaling), grouped_columns);
        if (side.columnwise) side.columnwise = power_of_two(side.columnwise, least_columnwise(side));
    }
    if (!side.grouped) side.rowwise = 1, side.columnwise = 0;
    side.rowwise = power_of_two(side.rowwise, 1);
}

void make_quantized(Side& side) {
    if (side.plain())
        side = {MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32, side.swizzled, side.parts, side.grouped, side.rowwise};
}
void make_plain(Side& side) {
    if (!side.plain()) side = {MXQ_FORMAT_F32, MXQ_SCALING_NONE, false, MXQ_PART_ROWWISE, side.grouped, side.rowwise};
}

void repair_alike(Call& call) {
    Side &in = call.first, &out = call.second;
    const bool pads = call.verb == "pad_groups", unpads = call.verb == "unpad_groups";
    out.format = in.format;
    out.scaling = in.scaling;
    out.parts = in.parts;
    in.grouped = out.grouped = call.groups.has_value();
    if (pads || unpads) {
        out.swizzled = in.swizzled;
    } else {
        if (is_fp8(in) && oracle::tile_of(in.scaling).width != 128) in.scaling = out.scaling = MXQ_SCALING_1X128;
        if (is_fp8(in) && call.groups) in.parts = out.parts = MXQ_PART_ROWWISE;
        out.rowwise = in.rowwise, out.columnwise = in.columnwise;
    }
    for (Side* side : {&in, &out}) repair_side(*side, call.groups.has_value());
    in.swizzled = pads || unpads ? in.swizzled : call.verb == "unswizzle_scales";
    out.swizzled = pads || unpads ? in.swizzled : call.verb == "swizzle_scales";
    Side &narrow = pads ? in : out, &wide = pads ? out : in;
    if (!pads && !unpads) return;
    wide.rowwise = std::max(narrow.rowwise, wide.rowwise);
    if (!in.plain() && columnwise(wide) < columnwise(narrow)) wide.columnwise = columnwise(narrow);
}

int blocking(const Side& side) {
    if (is_fp8(side)) return oracle::tile_of(side.scaling).width == 128 ? 128 : 1;
    return is_nvfp4(side) ? 16 : 32;
}

void repair_product(Call& call) {
    Side &a = call.first, &b = call.second, &d = call.d;
    const bool grouped = call.verb == "grouped_gemm";
    call.shape.resize(3, 1);
    if (grouped && !call.groups) call.groups.emplace();
    if (!grouped) call.groups.reset();
    make_plain(d);
    if (call.contracts_groups()) call.transpose_b = MXQ_TRANSPOSE_N;
    const bool fp8_with_blocks = is_fp8(a) && (is_mx(b) || is_nvfp4(b));
    if (!a.plain() && !b.plain() && blocking(a) != blocking(b) && !fp8_with_blocks)
        b.format = a.format, b.scaling = a.scaling;
    a.grouped = grouped;
    b.grouped = call.contracts_groups();
    d.grouped = d.grouped && grouped && !call.contracts_groups();
    for (Side* side : {&a, &b, &d}) repair_side(*side, grouped);
    a.parts |= call.transpose_a == MXQ_TRANSPOSE_N ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
    if (!call.reads_b_by_rows()) b.parts |= call.transpose_b == MXQ_TRANSPOSE_T ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
    for (Side* side : {&a, &b, &d}) repair_side(*side, grouped);
    if (call.accumulate) d.format = MXQ_FORMAT_F32, call.beta = 0;
    if (call.contracts_groups()) call.bias = 0;
}

void repair_conversion(Call& call) {
    if (call.is_routed()) return;
    Side &in = call.first, &out = call.second;
    const std::string& verb = call.verb;
    const bool pads = verb == "pad_groups" || verb == "unpad_groups",
               swizzles = verb == "swizzle_scales" || verb == "unswizzle_scales";
    if (pads && !call.groups) call.groups.emplace();
    if (verb == "convert") call.groups.reset();
    if (call.groups && call.shape.size() == 3) call.shape.erase(call.shape.begin());
    if (verb == "quantize" || verb == "amax" || verb == "convert" || call.is_activation())
        make_plain(in);
    else if (!pads)
        make_quantized(in);
    if (verb == "dequantize" || verb == "convert")
        make_plain(out);
    else if (!pads && !call.is_activation())
        make_quantized(out);
    if (verb == "amax" && !is_nvfp4(out))
        out.scaling = MXQ_SCALING_TENSOR, out.format = is_fp8(out) ? out.format : MXQ_FORMAT_FP8_E4M3;
    if (pads || swizzles) return repair_alike(call);
    if (!in.plain()) in.grouped = call.groups.has_value();
    if (!out.plain()) out.grouped = call.groups.has_value();
    for (Side* side : {&in, &out}) repair_side(*side, call.groups.has_value());
}

// ---- Hadamard transforms -----------------------------------------------------------------------------------------------

void drop_masks(Side& side) {
    if (!side.transforms(MXQ_PART_ROWWISE)) side.rowwise_mask = Side{}.rowwise_mask;
    if (!side.transforms(MXQ_PART_COLUMNWISE)) side.columnwise_mask = Side{}.columnwise_mask;
}

// Leaves the transforms that a tensor of these sizes can have.
void repair_transforms(Side& side, int64_t rows, int64_t cols) {
    if (!takes_hadamard(side)) side.hadamard = 0;
    if (cols % 16) side.hadamard &= ~MXQ_PART_ROWWISE;
    if (!side.grouped && rows % 16) side.hadamard &= ~MXQ_PART_COLUMNWISE;
    side.hadamard &= side.parts;
    drop_masks(side);
}

int32_t mask_of(const Side& side, int32_t part) {
    return part == MXQ_PART_ROWWISE ? side.rowwise_mask : side.columnwise_mask;
}

void set_transform(Side& side, int32_t part, bool transforms, int32_t mask) {
    side.hadamard = transforms ? side.hadamard | part : side.hadamard & ~part;
    (part == MXQ_PART_ROWWISE ? side.rowwise_mask : side.columnwise_mask) = mask;
    drop_masks(side);
}

// Gives both operands of a product the transform that a has, or none where b cannot have it.
void repair_product_transforms(Call& call) {
    Side &a = call.first, &b = call.second;
    const bool a_t = call.transpose_a == MXQ_TRANSPOSE_T, b_t = call.transpose_b == MXQ_TRANSPOSE_T;
    const int32_t of_a = a_t ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE, of_b = b_t ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
    repair_transforms(a, a_t ? call.k() : call.m(), a_t ? call.m() : call.k());
    const bool both = a.transforms(of_a) && takes_hadamard(b) && !call.reads_b_by_rows();
    if (!both) set_transform(a, of_a, false, 0);
    set_transform(b, of_b, both, mask_of(a, of_a));
    if (call.reads_b_by_rows()) set_transform(b, MXQ_PART_ROWWISE, false, 0);
    repair_transforms(b, b_t ? call.n() : call.k(), b_t ? call.k() : call.n());
}

void repair_conversion_transforms(Call& call) {
    Side &in = call.first, &out = call.second;
    if ((call.verb != "dequantize" && call.verb != "requantize") || !(in.parts & call.source)) call.source = 0;
    repair_transforms(in, call.rows(), call.cols());
    repair_transforms(out, call.rows(), call.cols());
    if (!in.plain() && call.verb != "dequantize" && call.verb != "requantize") {
        out.hadamard = in.hadamard;
        out.rowwise_mask = in.rowwise_mask, out.columnwise_mask = in.columnwise_mask;
    }
    if (call.verb != "requantize") return;
    const int32_t part = call.source_part();
    const bool passes = out.parts == part && out.transforms(part) && mask_of(in, part) == mask_of(out, part) &&
                        !(in.grouped && part == MXQ_PART_COLUMNWISE);
    if (!passes) set_transform(in, part, false, 0);
}

void repair_options(Call& call) {
    const bool quantizes = call.quantizes() && !call.second.plain(), amax = call.verb == "amax";
    const Side &in = call.first, &out = call.second;
    if (!quantizes || !is_mx(out)) call.rounding = call.nonfinite = 0;
    if (!quantizes || !is_nvfp4(out)) call.four_over_six = 0;
    if (!quantizes || !takes_stochastic(out) || call.four_over_six) call.stochastic = false;
    if (!quantizes || !(is_nvfp4(out) || is_fp8(out))) call.compute_amax = false;
    if (!quantizes || !is_fp8(out) || out.scaling != MXQ_SCALING_TENSOR) call.given_scale = false;
    if (!quantizes || !is_fp8(out) || call.given_scale) call.power_of_two = false, call.epsilon = 0;
    const bool columns_of_groups = in.grouped && call.source_part() == MXQ_PART_COLUMNWISE;
    if (call.verb != "dequantize" || !testing::is_e2m1(testing::spec_of(in.format, in.scaling)) || (columns_of_groups && in.hadamard)) call.keep_hadamard = false;


    const bool reads = !quantizes && !amax;
    if (!is_nvfp4(in) && !is_nvfp4(out)) call.t256 = false;
    const auto shares = [](const Side& side) { return is_nvfp4(side) || is_fp8(side); };
    if (!shares(in) && !shares(out)) call.per_expert = false;
    const bool decodes = call.verb == "dequantize" || call.verb == "requantize" || call.is_product();
    if (!decodes || !(is_nvfp4(in) || (reads && is_nvfp4(out)))) call.decode_scale = false;
    call.starts = call.starts && call.verb == "pad_groups";
    call.host_ends = call.host_ends && call.verb == "grouped_gemm";
    const bool given = quantizes && is_nvfp4(call.second) && !call.compute_amax;
    call.own_amax = call.own_amax && given && call.second.parts == MXQ_PART_BOTH;
    call.own_ends = call.own_ends && call.group_count() > 0;
    call.cover = call.cover && call.groups && call.group_count() > 0 && call.ends().back() == call.rows();
    call.same_rows = call.same_rows && call.is_product() && !call.contracts_groups();
    if (call.is_product()) return;
    call.transpose_a = MXQ_TRANSPOSE_N, call.transpose_b = MXQ_TRANSPOSE_T;
    call.alpha = 1, call.beta = 0, call.sm_count = 0;
    call.accumulate = call.exact = false;
    if (call.is_layer()) return;
    call.bias = 0;
    call.second_values = {};
    call.d = {};
}

// Leaves the gaps and lists that a tensor which is read can have.
void repair_apart(Side& side, bool reads, bool has_experts, bool takes_list, bool per_expert) {
    if (side.plain() || side.grouped || !reads) side.code_line = side.code_expert = side.scale_line = side.scale_expert = 0;
    const bool is_tensor = side.scaling == MXQ_SCALING_TENSOR, one_for_all = is_tensor && !per_expert;
    side.listed = side.listed && !side.grouped && reads && has_experts && takes_list && !one_for_all;
    if (side.swizzled || is_tensor) side.scale_line = 0;
    if (!has_experts || side.listed) side.code_expert = side.scale_expert = 0;
    if (one_for_all) side.scale_expert = 0;
}

void repair_apart(Call& call) {
    const bool swizzles = call.verb == "swizzle_scales" || call.verb == "unswizzle_scales",
               decodes = call.verb == "dequantize" || call.verb == "requantize",
               encodes = call.verb == "quantize" || call.verb == "amax" || call.verb == "convert" || call.is_activation(),
               product = call.is_product();
    const bool experts_of_b = call.verb == "grouped_gemm" && !call.contracts_groups();
    repair_apart(call.first, swizzles || decodes || encodes || product, !product && call.shape.size() == 3,
                 decodes || encodes, call.per_expert);
    repair_apart(call.second, product, experts_of_b, true, call.per_expert);
}

// Leaves rows by index to plain matrices that are read, whose groups have no padding.
void repair_indices(Call& call) {
    const bool product = call.is_product(), reads = call.verb == "quantize" || call.verb == "amax" || call.verb == "convert" ||
                                                    call.verb == "pad_groups" || product;
    const bool experts_of_b = call.verb == "grouped_gemm" && !call.contracts_groups();
    const auto repair_side_indices = [&](Side& side, bool is_read) {
        const bool takes = is_read && side.plain() && !(side.grouped && side.rowwise != 1);
        side.indexed = takes ? std::max<int64_t>(side.indexed, 0) : 0;
        if (side.indexed) side.listed = side.memory = false;
    };
    repair_side_indices(call.first, reads && (product || call.shape.size() == 2));
    repair_side_indices(call.second, product && !experts_of_b);
    call.d.indexed = 0;
}

// Leaves blocks of memory to tensors of which the call has all that is in such a block.
void repair_memory(Call& call) {
    const bool pads = call.verb == "pad_groups" || call.verb == "unpad_groups",
               swizzles = call.verb == "swizzle_scales" || call.verb == "unswizzle_scales";
    for (Side* side : {&call.first, &call.second, &call.d})
        side->memory = side->memory && !side->listed && !swizzles && !(pads && is_nvfp4(*side)) && call.broken.empty();
    if (call.verb == "amax") call.second.memory = false;
}

}  // namespace

void repair(Call& call) {
    for (int64_t& size : call.shape) size = std::max<int64_t>(size, 0);
    if (call.is_product())
        repair_product(call);
    else
        repair_conversion(call);
    if (call.is_product()) call.source = 0;
    repair_layer(call);
    call.is_product() ? repair_product_transforms(call) : repair_conversion_transforms(call);
    repair_options(call);
    repair_apart(call);
    repair_memory(call);
    repair_indices(call);
    if (!call.groups) call.ends_type = MXQ_TYPE_INT32;
    if (call.first.plain() && is_raw(call.values)) call.values.kind = "normal";
    if ((call.second.plain() || call.is_layer()) && is_raw(call.second_values)) call.second_values.kind = "normal";
    for (Values* values : {&call.values, &call.second_values})
        if (values->keep.size() != 4 || values->kind == "zeros") values->keep.clear();
}

}  // namespace search
