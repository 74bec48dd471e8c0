#include "draw.h"

#include "broken.h"
#include "pick.h"
#include "values.h"

namespace search {

const std::vector<std::string> verbs = {
    "quantize",   "dequantize",      "requantize", "convert",      "amax",  "swizzle_scales", "unswizzle_scales",
    "pad_groups", "unpad_groups",    "gemm",       "grouped_gemm", "route", "activate",       "activate_backward",
    "combine",    "combine_backward"};

namespace {

using cases::Random;

// ---- Shapes ------------------------------------------------------------------------------------------------------------

int64_t draw_size(Random& random) {
    const int64_t corners[] = {16, 32, 64, 128, 256},
                  primes[] = {2, 3, 5, 7, 13, 17, 29, 31, 37, 61, 67, 127, 131, 193, 257, 509, 1021};
    switch (random.below(12)) {
        case 0: return random.below(2);
        case 1:
        case 2: return 1 + random.below(20);
        case 3:
        case 4: return pick(random, corners) + random.below(3) - 1;
        case 5: return pick(random, primes);
        case 6:
        case 7: return 16 * (1 + random.below(16));
        case 8:
        case 9: return pick(random, corners);
        case 10: return 1 + random.below(300);
        default: return 128 * (1 + random.below(6)) + (random.below(2) ? 0 : random.below(40));
    }
}

int64_t product_of(const std::vector<int64_t*>& sizes) {
    int64_t all = 1;
    for (const int64_t* size : sizes) all *= std::max<int64_t>(*size, 1);
    return all;
}

// Makes the largest sizes smaller until their product is at most `most`.
void limit(const std::vector<int64_t*>& sizes, int64_t most) {
    while (product_of(sizes) > std::max<int64_t>(most, 1)) {
        int64_t& largest =
            **std::max_element(sizes.begin(), sizes.end(), [](const int64_t* a, const int64_t* b) { return *a < *b; });
        largest = largest % 32 == 0 && largest > 32 ? (largest / 2 + 31) / 32 * 32 : largest / 2;
    }
}

// Draws few rows: as many as kernels of few rows take, or as many as the CPU may cut into few.
int64_t draw_few_rows(Random& random) { return 1 + random.below(one_in(random, 3) ? 100 : 34); }

// Draws few rows and columns with a contraction that kernels of few rows pass over in parts.
void draw_long_lines(Call& call, Random& random) {
    call.shape = {draw_few_rows(random), 1 + random.below(8), 1000 + random.below(8000)};
    limit({&call.shape[2]}, std::max<int64_t>(250'000 / (call.shape[0] * call.shape[1]), 600));
}

void draw_shape(Call& call, Random& random) {
    call.shape = {draw_size(random), draw_size(random)};
    if (call.is_product()) {
        call.shape.push_back(draw_size(random));
        if (one_in(random, 3)) call.shape[0] = draw_few_rows(random);  // which have kernels of their own
        if (one_in(random, 20)) return draw_long_lines(call, random);
    } else if (one_in(random, 5)) {
        call.shape.insert(call.shape.begin(), one_in(random, 8) ? 0 : 1 + random.below(one_in(random, 10) ? 40 : 4));
    }
    std::vector<int64_t*> sizes;
    for (int64_t& size : call.shape) sizes.push_back(&size);
    if (call.is_product())
        limit(sizes, one_in(random, 150)  ? 20'000'000
                     : one_in(random, 40) ? 3'000'000
                     : one_in(random, 12) ? 500'000
                                          : 40'000);
    else
        limit(sizes, one_in(random, 200) ? 400'000 : one_in(random, 20) ? 60'000 : 6'000);
}

// Makes the output at least 16 MiB, which the CPU writes past its caches; mostly in a format that needs few elements for it.
void draw_huge_shape(Call& call, Random& random) {
    Side& out = call.second;
    int64_t bits = 32;
    if (call.verb == "dequantize") {
        out.format = MXQ_FORMAT_F32;
    } else {
        if (!one_in(random, 8)) out.format = MXQ_FORMAT_MXFP8_E4M3, out.scaling = MXQ_SCALING_1X32;
        out.parts = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;
        bits = 2 * oracle::code_bits(out.format);
    }
    const int64_t elements = (int64_t{16} << 20) * 8 / bits, widths[] = {61, 256, 1000, 2048, 4100};
    const int64_t cols = pick(random, widths);
    call.shape = {oracle::ceil_div(elements, cols) + random.below(100), cols};
}

// Makes so many columns beside few rows that a device takes the tiles that it takes for large products.
void draw_wide_product(Call& call, Random& random) {
    const int64_t rows[] = {65, 127, 128, 129, 150}, columns[] = {16'896, 16'912, 17'001};
    call.shape = {pick(random, rows), pick(random, columns), 16 * (1 + random.below(3))};
    call.transpose_a = MXQ_TRANSPOSE_N, call.transpose_b = MXQ_TRANSPOSE_T;
    if (one_in(random, 2)) call.first = {MXQ_FORMAT_BF16};
}

// Makes so few rows and columns beside the contraction that blocks of a device share it.
void draw_deep_product(Call& call, Random& random) {
    const int64_t many[] = {65, 100, 127, 128, 129, 130, 160, 200, 255, 256, 257, 300};
    if (!call.groups) call.shape[0] = pick(random, many);
    call.shape[1] = 1 + random.below(140), call.shape[2] = 32 * (14 + random.below(120));
    const int64_t rows = std::max(call.shape[0], 30 * std::max<int64_t>(call.group_count(), 1));
    limit({&call.shape[1], &call.shape[2]}, 12'000'000 / rows);
    call.transpose_a = MXQ_TRANSPOSE_N, call.transpose_b = MXQ_TRANSPOSE_T;
    const int32_t formats[] = {call.first.format, call.first.format, MXQ_FORMAT_BF16, MXQ_FORMAT_F16};
    if (const int32_t format = pick(random, formats); format != call.first.format) call.first = {format};
}

// Keeps the memory of a call small: each group may be padded to 128 rows, and of a product has a matrix of B or of D.
void limit_groups(Call& call) {
    const int64_t groups = std::max<int64_t>(call.group_count(), 1),
                  padded = std::max<int64_t>(oracle::padded_bound(call.rows(), groups, 128), 1);
    if (!call.is_product()) return limit({&call.shape.back()}, 2'000'000 / padded);
    int64_t &m = call.shape[0], &n = call.shape[1], &k = call.shape[2];
    if (call.contracts_groups()) {
        limit({&m}, 2'000'000 / padded);
        limit({&n}, 2'000'000 / padded);
    } else {
        limit({&k}, 2'000'000 / padded);
        limit({&n}, 2'000'000 / padded);
    }
    limit({&m, &n}, 200'000 / (call.contracts_groups() ? groups : 1));
    if (!call.contracts_groups()) limit({&n, &k}, 400'000 / groups);
}

// ---- Groups ------------------------------------------------------------------------------------------------------------

// Groups that divide at most `rows` rows; some are empty, and rows may be left over.
GroupRuns draw_groups(Random& random, int64_t rows) {
    GroupRuns out;
    if (one_in(random, 15)) return out;
    if (one_in(random, 8)) return {{std::clamp<int64_t>(rows - random.below(3), 1, MXQ_MAX_GROUPS), 1}};
    const int64_t most = one_in(random, 4) ? 40 : 6;
    int64_t left = rows;
    for (int64_t i = 1 + random.below(most); i > 0; --i) {
        const int64_t sizes[] = {0, 1, 16, 32, 128, 127 + random.below(3), random.below(left + 1), random.below(left + 1), left / i};
        const int64_t size = std::min(left, pick(random, sizes));
        out.push_back({1, size});
        left -= size;
    }
    if (one_in(random, 2)) out.push_back({1, left});
    return out;
}

// Thousands of groups: of one row each, or most of them empty.
void draw_many_groups(Call& call, Random& random) {
    const int64_t count = one_in(random, 2) ? MXQ_MAX_GROUPS : 200 + random.below(3000), width = 1 + random.below(12);
    const bool empty = one_in(random, 2);
    const int64_t rows = empty ? 1 + random.below(300) : count + random.below(3);
    if (call.is_product()) {
        call.shape = {rows, width, 1 + random.below(6)};
        if (call.contracts_groups()) call.shape = {1 + random.below(4), 1 + random.below(4), rows};
    } else {
        call.shape = {rows, width};
    }
    call.groups = empty ? GroupRuns{{count / 2, 0}, {1, random.below(rows)}, {count - count / 2 - 2, 0}, {1, rows}}
                        : GroupRuns{{count, 1}};
}

int64_t draw_alignment(Random& random) {
    const int64_t alignments[] = {1, 1, 2, 8, 16, 32, 64, 128};
    return pick(random, alignments);
}

void draw_side_groups(Side& side, Random& random, bool always) {
    side.grouped = always || one_in(random, 2);
    side.rowwise = one_in(random, 2) ? 1 : draw_alignment(random);
    side.columnwise = one_in(random, 2) ? 0 : draw_alignment(random);
}

// ---- Tensors -----------------------------------------------------------------------------------------------------------

Side draw_quantized(Random& random) {
    const oracle::Spec& spec = pick(random, testing::all_formats());
    Side side;
    side.format = spec.format;
    side.scaling = spec.scaling;
    const int32_t fp8_scalings[] = {MXQ_SCALING_TENSOR, MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128,
                                    MXQ_SCALING_128X128};
    switch (random.below(8)) {
        case 0:
        case 1:
            side.format = pick(random, testing::mx_formats);
            side.scaling = one_in(random, 4) ? MXQ_SCALING_ROW : MXQ_SCALING_1X32;
            break;
        case 2:
        case 3:
            side.format = MXQ_FORMAT_NVFP4;
            side.scaling = one_in(random, 3) ? MXQ_SCALING_16X16 : MXQ_SCALING_1X16;
            break;
        case 4: side.format = pick(random, testing::fp8_formats), side.scaling = pick(random, fp8_scalings); break;
        default: break;  // any format with any scaling
    }
    side.swizzled = one_in(random, 2);
    side.parts = static_cast<int32_t>(1 + random.below(3));
    return side;
}

Side draw_plain_side(Random& random) {
    const int64_t gaps[] = {0, 0, 0, 1, 3, 8, 16, 64};
    Side side;
    side.format = pick(random, cases::plain_formats);
    side.gap = pick(random, gaps);
    return side;
}

Values draw_values_of(Random& random, bool plain, bool is_product, bool four_over_six) {
    Values values;
    values.seed = random.bits() % 1'000'000;
    if (four_over_six && one_in(random, 2)) {
        values.kind = "even";
        return values;
    }
    const char* of_products[] = {"normal", "normal", "sizes", "ties", "planted", "equal", "zeros"};
    const char* raw_of_products[] = {"raw_mid", "raw_mid", "raw_mid", "raw", "raw_edge", "opposite"};
    if (!plain && one_in(random, 2))
        values.kind = is_product ? pick(random, raw_of_products) : pick(random, raw_kinds);
    else
        values.kind = is_product ? pick(random, of_products) : pick(random, plain_kinds);
    return values;
}

// Draws values and scales of both operands of a product far from 1, so that their sums leave fp32's range, or nearly do, before
// or after the factors of lines bring them back.
void draw_far_operands(Call& call, Random& random) {
    const auto far = [&](const Side& side) {
        const char* kinds[] = {"opposite", "opposite", "raw_edge"};
        return Values{side.plain() ? "far" : pick(random, kinds), random.bits() % 1'000'000, {}};
    };
    call.values = far(call.first);
    call.second_values = far(call.second);
}

// Draws the Hadamard transforms of both operands, mostly the same ones; repair() takes away those that a verb refuses.
void draw_hadamard(Call& call, Random& random) {
    if (!one_in(random, 3)) return;
    for (Side* side : {&call.first, &call.second}) {
        side->hadamard = static_cast<int32_t>(1 + random.below(3));
        if (one_in(random, 2)) side->rowwise_mask = static_cast<int32_t>(random.bits() & 0xFFFF);
        side->columnwise_mask = one_in(random, 2) ? side->rowwise_mask : static_cast<int32_t>(random.bits() & 0xFFFF);
    }
    if (!one_in(random, 4)) {
        const Side& in = call.first;
        call.second.hadamard = in.hadamard;
        call.second.rowwise_mask = in.rowwise_mask, call.second.columnwise_mask = in.columnwise_mask;
    }
    if (call.verb == "requantize" && one_in(random, 2)) {  // from a transformed part to the same one alone
        call.second.format = one_in(random, 2) ? MXQ_FORMAT_NVFP4 : MXQ_FORMAT_MXFP4;
        call.second.scaling = oracle::default_scaling(call.second.format);
        call.second.parts = call.first.read_part();
    }
    if (one_in(random, 4)) return;
    for (int64_t& size : call.shape) size = oracle::ceil_div(size, 16) * 16;  // which a transform needs
}

// Draws gaps, and lists of experts, of what is read; repair() takes away those that a verb refuses.
void draw_apart(Call& call, Random& random) {
    const int64_t gaps[] = {0, 0, 1, 2, 3, 16, 61};
    for (Side* side : {&call.first, &call.second}) {
        if (one_in(random, 4)) side->indexed = 1 + random.below(5);
        if (!one_in(random, 3)) continue;
        for (int64_t* gap : {&side->code_line, &side->code_expert, &side->scale_line, &side->scale_expert})
            *gap = pick(random, gaps);
        side->listed = side->plain() || one_in(random, 3);
    }
}

// ---- Options -----------------------------------------------------------------------------------------------------------

void draw_options(Call& call, Random& random) {
    call.rounding = static_cast<int32_t>(random.below(5));
    call.nonfinite = static_cast<int32_t>(random.below(3));
    call.four_over_six = static_cast<int32_t>(random.below(5) % 3);
    call.keep_hadamard = one_in(random, 3);
    call.stochastic = one_in(random, 3);
    if (call.stochastic) call.four_over_six = 0;
    call.compute_amax = one_in(random, 2);
    call.given_scale = one_in(random, 3);
    call.own_amax = one_in(random, 2);
    call.power_of_two = one_in(random, 3);
    const float epsilons[] = {0.5f, 1e-30f, 1e30f, 0x1p-149f};
    call.epsilon = one_in(random, 3) ? pick(random, epsilons) : 0;
    call.per_expert = one_in(random, 2);
    call.t256 = one_in(random, 3);
    call.decode_scale = one_in(random, 3);
    call.source = static_cast<int32_t>(random.below(3));
}

void draw_product_options(Call& call, Random& random) {
    const int32_t transposes[] = {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T};
    call.transpose_a = pick(random, transposes);
    call.transpose_b = pick(random, transposes);
    const float alphas[] = {1, 1, 1, 0.3f, -3e5f, 0, 1e-40f, -1, 0x1p100f}, betas[] = {0, 0, 0, 1, -0.7f, 1e4f};
    call.alpha = pick(random, alphas);
    call.beta = pick(random, betas);
    call.accumulate = one_in(random, 5);
    if (call.accumulate) call.beta = 0;
    call.exact = one_in(random, 3);
    const int32_t biases[] = {0, 0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16};
    call.bias = pick(random, biases);
    const int64_t limits[] = {1, 2, 3, 20, 131, 1024};
    if (one_in(random, 12)) call.sm_count = pick(random, limits);
    call.same_rows = one_in(random, 6);
}

// The names of all buffers that calls have; a call ignores those that it has not.
const char* const buffer_names[] = {
    "data",         "rowwise.codes",     "rowwise.scales",       "columnwise.codes",        "columnwise.scales",
    "rowwise.amax", "columnwise.amax",   "rowwise.decode_scale", "columnwise.decode_scale", "rowwise.starts",
    "rowwise.ends", "columnwise.starts", "columnwise.ends",      "quantization_scale"};

void draw_offsets(Call& call, Random& random) {
    if (one_in(random, 2)) return;
    const int64_t offsets[] = {1, 2, 3, 4, 8, 16, 5, 7};
    const int64_t shared = pick(random, offsets);
    const bool all = one_in(random, 2);
    std::vector<std::string> tensors =
        call.is_product() ? std::vector<std::string>{"a", "b", "d"} : std::vector<std::string>{"in", "out"};
    if (call.is_layer()) tensors = {"in", "out", "gradient", "residual", "d_out", "d_in", "d_weights", "routing"};
    for (const std::string& tensor : tensors)
        for (const char* buffer : buffer_names)
            if (all || one_in(random, 3)) call.offsets[tensor + "." + buffer] = all ? shared : pick(random, offsets);
    if (call.is_layer())
        for (const char* name :
             {"row_weights", "bias_gradient", "row_weight_gradient", "routing.ids", "routing.weights", "routing.memory",
              "routing.dropped", "routing.ends", "routing.row_tokens", "routing.choice_rows"})
            if (all || one_in(random, 3)) call.offsets[name] = all ? shared : pick(random, offsets);
    if (all || one_in(random, 3)) call.offsets["ends"] = call.offsets["bias"] = call.offsets["seed_offset"] = shared;
}

// Returns whether a product has F16 where devices take it: as A, beside F16 or quantized numbers.
bool is_f16_of_devices(const Call& call) {
    return call.first.format == MXQ_FORMAT_F16 && (call.second.format == MXQ_FORMAT_F16 || !call.second.plain());
}

const char* draw_verb(Random& random) {
    static const char* const weighted[] = {
        "quantize",   "quantize",   "quantize", "quantize",       "dequantize",       "dequantize",  "requantize",
        "requantize", "requantize", "convert",  "amax",     "swizzle_scales", "unswizzle_scales", "pad_groups",  "unpad_groups",
        "gemm",       "gemm",       "gemm",     "grouped_gemm",   "grouped_gemm",     "grouped_gemm"};
    return pick(random, weighted);
}

}  // namespace

Call draw_call(uint64_t seed, int64_t number, const std::string& verb, const Call* like) {
    Random random(seed * 0xD1342543DE82EF95u + static_cast<uint64_t>(number));
    for (int i = 0; i < 8; ++i) random.bits();
    Call call;
    call.verb = verb.empty() ? draw_verb(random) : verb;
    const bool plain_in = call.verb == "quantize" || call.verb == "amax" || call.verb == "convert" ||
                          ((call.verb == "pad_groups" || call.verb == "unpad_groups") && one_in(random, 2)) ||
                          (call.is_product() && one_in(random, 6)) || call.is_layer();
    call.first = plain_in ? draw_plain_side(random) : draw_quantized(random);
    const bool pads = call.verb == "pad_groups" || call.verb == "unpad_groups",
               plain_out = call.verb == "dequantize" || call.verb == "convert" || (pads && plain_in) ||
                           (call.is_product() && one_in(random, 6)) || call.is_routed() ||
                           (call.is_activation() && one_in(random, 3));
    call.second = plain_out ? draw_plain_side(random) : draw_quantized(random);
    call.d = draw_plain_side(random);
    if (call.is_product()) draw_product_options(call, random);
    if (call.is_product() && one_in(random, 2))
        call.second.format = call.first.format, call.second.scaling = call.first.scaling;
    if (call.is_product() && !one_in(random, 4))  // what tensor cores multiply too
        for (Side* side : {&call.first, &call.second})
            if (side->plain() && !is_f16_of_devices(call)) side->format = MXQ_FORMAT_BF16;

    if (like) {
        call.first.format = like->first.format, call.first.scaling = like->first.scaling;
        call.second.format = like->second.format, call.second.scaling = like->second.scaling;
    }
    repair(call);  // which decides about the transposes of a product, and so what its groups divide
    draw_shape(call, random);
    if (!call.is_product()) draw_options(call, random);
    draw_hadamard(call, random);
    const bool groups =
        call.verb == "grouped_gemm" || call.verb == "pad_groups" || call.verb == "unpad_groups" || one_in(random, 3);
    if (groups && !call.is_routed()) {
        if (call.shape.size() == 3 && !call.is_product()) call.shape.erase(call.shape.begin());
        call.groups = draw_groups(random, call.rows());
        if (one_in(random, 150)) draw_many_groups(call, random);
        call.ends_type = one_in(random, 2) ? MXQ_TYPE_INT64 : MXQ_TYPE_INT32;
        for (Side* side : {&call.first, &call.second, &call.d}) draw_side_groups(*side, random, false);
        call.host_ends = one_in(random, 3);
        call.starts = one_in(random, 2);
        call.cover = one_in(random, 2);
        call.own_ends = one_in(random, 3);
    }
    if (call.is_layer()) draw_layer(call, random);
    if (call.groups || call.is_product()) limit_groups(call);
    if (call.verb == "gemm" && one_in(random, 250)) draw_wide_product(call, random);
    if (call.is_product() && !call.contracts_groups() && one_in(random, 100)) draw_deep_product(call, random);
    const bool converts = call.verb == "quantize" || call.verb == "requantize" || call.verb == "dequantize";
    if (converts && !call.groups && one_in(random, 700)) draw_huge_shape(call, random);
    call.values = draw_values_of(random, plain_in, call.is_product(),
                                 call.verb == "quantize" && call.second.format == MXQ_FORMAT_NVFP4 && call.four_over_six);
    if (call.values.kind == "even") call.compute_amax = !one_in(random, 4);
    call.second_values = draw_values_of(random, call.second.plain(), call.is_product(), false);
    if (call.is_product() && one_in(random, 12)) draw_far_operands(call, random);
    draw_offsets(call, random);
    call.read_only = one_in(random, 4);
    const bool breaks = one_in(random, 9);
    if (!breaks || one_in(random, 8)) draw_apart(call, random);
    for (Side* side : {&call.first, &call.second, &call.d}) side->memory = !breaks && one_in(random, 4);
    if (breaks && call.is_layer()) call.first.listed = false;
    repair(call);
    if (!breaks) return call;
    call.sm_count = 0, call.same_rows = false;  // which a device may refuse before it finds what is broken
    const bool listed = call.first.listed || call.second.listed;
    for (Side* side : {&call.first, &call.second})  // other rules are about tensors in one piece
        if (!listed) side->code_line = side->code_expert = side->scale_line = side->scale_expert = 0;
    call.broken = listed ? "expert" : pick(random, rules_for(call));
    call.broken_at = random.below(16);
    return call;
}

Call draw_layer_call(uint64_t seed, int64_t number) {
    const char* const of_layer[] = {"route", "activate", "activate_backward", "combine", "combine_backward"};
    return draw_call(seed, number, of_layer[number % 5]);
}

}  // namespace search
