// What is asked of cuBLASLt, down to the last attribute, against what its manual demands: for chips that are not here too.
//
// The manual asks for: "TN" form alone for FP8 and FP4; compute and scale type fp32; VEC32_UE8M0 and VEC16_UE4M3 with tiled scales;
// fp32 scales of 128: (ceil(k / 128), lines), and of 128 x 128 with ceil(k / 128) rounded up to 4; everything at multiples of
// 16 bytes; C is D with D's layout where it is in place; groups: arrays of pointers, sizes on the device, scales as arrays of
// pointers but for SCALAR_32F, alpha and beta as arrays of pointers where both batch strides are 1.
#include "../catch.h"
#include "cublaslt_recorder.h"
#include "cuda/cublaslt/arrays.h"

using namespace mxq;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

constexpr int blackwell = 100, hopper = 90, newest = 131000;
constexpr int newest_groups[] = {newest, 130602};  // on 9.0, and on 10.x and 11.0
const float one = 1, zero = 0;
constexpr uintptr_t bias_data = 0x380000000;
const cudaStream_t stream = at<CUstream_st>(0x77), heuristic_stream = at<CUstream_st>(0x55);

// Attributes of an operation in the manual's words; every one that is set, and no other.
struct Expected {
    Attributes attributes{{CUBLASLT_MATMUL_DESC_TRANSA, bytes_of(int32_t(CUBLAS_OP_T))},
                          {CUBLASLT_MATMUL_DESC_TRANSB, bytes_of(int32_t(CUBLAS_OP_N))}};

    Expected& scales(int32_t mode_a, const void* a, int32_t mode_b, const void* b) {
        attributes[CUBLASLT_MATMUL_DESC_FAST_ACCUM] = bytes_of(int8_t(0));
        if (mode_a != 0) attributes[CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = bytes_of(mode_a);  // 0 is the default, from before 12.8 on
        if (mode_b != 0) attributes[CUBLASLT_MATMUL_DESC_B_SCALE_MODE] = bytes_of(mode_b);
        attributes[CUBLASLT_MATMUL_DESC_A_SCALE_POINTER] = bytes_of(a);
        attributes[CUBLASLT_MATMUL_DESC_B_SCALE_POINTER] = bytes_of(b);
        return *this;
    }
    // Our B is their A. Only plain numbers are stored across the contraction.
    Expected& across(bool a, bool b) {
        if (b) attributes[CUBLASLT_MATMUL_DESC_TRANSA] = bytes_of(int32_t(CUBLAS_OP_N));
        if (a) attributes[CUBLASLT_MATMUL_DESC_TRANSB] = bytes_of(int32_t(CUBLAS_OP_T));
        return *this;
    }
    Expected& device_factors() {
        attributes[CUBLASLT_MATMUL_DESC_POINTER_MODE] = bytes_of(int32_t(CUBLASLT_POINTER_MODE_DEVICE));
        return *this;
    }
    Expected& bias(const void* values, cudaDataType type) {
        attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] = bytes_of(int32_t(CUBLASLT_EPILOGUE_BIAS));
        attributes[CUBLASLT_MATMUL_DESC_BIAS_POINTER] = bytes_of(values);
        attributes[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = bytes_of(int32_t(type));
        return *this;
    }
    Expected& alpha_per_group() {
        attributes[39] = bytes_of(int64_t(1));  // CUBLASLT_MATMUL_DESC_ALPHA_BATCH_STRIDE
        attributes[40] = bytes_of(int64_t(1));  // CUBLASLT_MATMUL_DESC_BETA_BATCH_STRIDE
        return *this;
    }
};

Attributes preferences(uint32_t alignment) {
    return {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes_of(uint64_t(32) << 20)},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes_of(alignment)},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes_of(alignment)},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes_of(alignment)},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes_of(alignment)}};
}

Attributes group_preferences(int64_t rows, int64_t columns, int64_t depth) {
    Attributes expected = preferences(16);
    expected[14] = bytes_of(rows);     // CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS
    expected[15] = bytes_of(columns);  // CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS
    expected[13] = bytes_of(depth);    // CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM
    return expected;
}

void check_call(const Call& call, const Expected& expected, const Layout& a, const Layout& b, const Layout& d) {
    CHECK(call.operation.compute == CUBLAS_COMPUTE_32F);
    CHECK(call.operation.scale == CUDA_R_32F);
    CHECK(call.operation.attributes.size() == expected.attributes.size());
    CHECK(call.operation.attributes == expected.attributes);
    CHECK((call.a == a));
    CHECK((call.b == b));
    CHECK((call.c == d));
    CHECK((call.d == d));
}

// Asks and multiplies as `cublaslt` does, and compares both with the same expectations.
void check_dense(const GemmProblem& p, const Machine& where, const Expected& expected, const Layout& a, const Layout& b,
                 const Layout& d, const void* a_data, const void* b_data) {
    Recording recording;
    {
        Session session(api(), where, heuristic_stream);
        MatmulDescription matmul{};
        REQUIRE(describe(p, where, matmul).text() == "");
        const Session::Choice choice = session.choose(matmul);
        REQUIRE(choice.declines.text() == "");
        const Factors factors{&one, p.reads_d() ? &one : &zero};
        session.multiply(matmul, *choice.algorithm, nullptr, factors, at(workspace), stream);
    }
    CHECK(recording.live == 0);
    REQUIRE(recording.heuristics.size() == 1);
    REQUIRE(recording.matmuls.size() == 1);
    check_call(recording.heuristics[0], expected, a, b, d);
    CHECK(recording.heuristics[0].preference == preferences(256));
    CHECK(recording.heuristics[0].for_stream);
    CHECK(recording.heuristics[0].stream == heuristic_stream);
    const Call& call = recording.matmuls[0];
    check_call(call, expected, a, b, d);
    CHECK(call.a_data == a_data);
    CHECK(call.b_data == b_data);
    CHECK(call.c_data == at(d_data));
    CHECK(call.d_data == at(d_data));
    CHECK(call.alpha == &one);
    CHECK(call.beta == (p.reads_d() ? &one : &zero));
    CHECK(call.workspace == at(workspace));
    CHECK(call.workspace_bytes == size_t(32) << 20);
    CHECK(call.stream == stream);
    CHECK(call.algorithm == 1);
}

struct Transposes {
    bool a, b;
    uintptr_t a_codes, a_scales, b_codes, b_scales;  // the parts that it reads
};
const Transposes forward{false, true, a_rows, a_row_scales, b_rows, b_row_scales};
const Transposes input_gradient{false, false, a_rows, a_row_scales, b_columns, b_column_scales};
const Transposes weight_gradient{true, false, a_columns, a_column_scales, b_columns, b_column_scales};
const Transposes all_cases[] = {forward, input_gradient, weight_gradient};

struct FormatCase {
    oracle::Spec a, b;
    int machine;
    cudaDataType a_type, b_type;  // in cuBLASLt's order
    int32_t a_mode, b_mode;       // likewise: A is our B
    bool swizzled;
    bool device_alpha = false;
};

std::vector<FormatCase> formats() {
    using testing::spec_of;
    const oracle::Spec e5m2 = spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_TENSOR);
    const auto e4 = CUDA_R_8F_E4M3, e5 = CUDA_R_8F_E5M2;
    return {
        {mxfp8(), mxfp8(), blackwell, e4, e4, 2, 2, true},
        {mxfp8_e5m2(), mxfp8(), blackwell, e4, e5, 2, 2, true},
        {spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32), mxfp8(), 120, e4, e4, 2, 2, true},
        {mxfp8(), spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW), blackwell, e4, e4, 2, 2, true},
        {nvfp4(), nvfp4(), blackwell, CUDA_R_4F_E2M1, CUDA_R_4F_E2M1, 1, 1, true, true},
        {fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR), hopper, e4, e4, 0, 0, false},
        {fp8(MXQ_SCALING_TENSOR), e5m2, 89, e5, e4, 0, 0, false},
        {fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_ROW), hopper, e4, e4, 3, 3, false},
        {fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128), hopper, e4, e4, 5, 4, true},
        {fp8(MXQ_SCALING_128X128), fp8(MXQ_SCALING_1X128), hopper, e4, e4, 4, 5, true},
        {fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_1X128), hopper, e4, e4, 4, 4, true},
    };
}

cudaDataType d_type(int32_t format) {
    return format == MXQ_FORMAT_F32 ? CUDA_R_32F : format == MXQ_FORMAT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace

TEST_CASE("cublaslt recorder: every format, transpose and type of D, one product") {
    int ran = 0;
    for (const FormatCase& f : formats())
        for (const Transposes& t : all_cases)
            for (int32_t format : {MXQ_FORMAT_BF16, MXQ_FORMAT_F16, MXQ_FORMAT_F32}) {
                const bool accumulate = format == MXQ_FORMAT_F32;
                const GemmProblem p = dense({f.a, f.b, format, t.a, t.b, f.swizzled, accumulate});
                Expected expected;
                expected.scales(f.a_mode, at(t.b_scales), f.b_mode, at(t.a_scales));
                if (f.device_alpha) expected.device_factors();
                INFO(testing::describe(f.a) << " x " << testing::describe(f.b) << ", transposes " << t.a << t.b);
                check_dense(p, machine(f.machine, newest), expected, {f.a_type, 512, 384, 512}, {f.b_type, 512, 256, 512},
                            {d_type(format), 384, 256, 384}, at(t.b_codes), at(t.a_codes));
                ran++;
            }
    CHECK(ran == 99);
}

TEST_CASE("cublaslt recorder: 16-bit operands, any alignment") {
    const Case c{bf16(), bf16(), MXQ_FORMAT_F32};
    check_dense(dense(c), machine(80, 130100), {}, {CUDA_R_16BF, 512, 384, 512}, {CUDA_R_16BF, 512, 256, 512},
                {CUDA_R_32F, 384, 256, 384}, at(b_rows), at(a_rows));

    Recording recording;
    GemmProblem odd = dense(c);
    odd.a.codes += 2, odd.b.codes += 32, odd.d.data = at(d_data + 4), odd.d.row_stride = 385;
    MatmulDescription matmul{};
    REQUIRE(describe(odd, machine(80, 130100), matmul).text() == "");
    Session(api(), machine(80, 130100), nullptr).choose(matmul);
    Attributes expected = preferences(4);
    expected[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = bytes_of(uint32_t(32));
    expected[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] = bytes_of(uint32_t(2));
    REQUIRE(recording.heuristics.size() == 1);
    CHECK(recording.heuristics[0].preference == expected);
    CHECK(recording.heuristics[0].d.ld == 385);
}

TEST_CASE("cublaslt recorder: 16-bit operands, every transpose") {
    int ran = 0;
    for (bool a : {false, true})
        for (bool b : {false, true}) {
            INFO("transposes " << a << b);
            const GemmProblem p = dense({bf16(), bf16(), MXQ_FORMAT_F32, a, b});
            check_dense(p, machine(80, 130100), Expected().across(a, !b),
                        b ? Layout{CUDA_R_16BF, 512, 384, 512} : Layout{CUDA_R_16BF, 384, 512, 384},
                        a ? Layout{CUDA_R_16BF, 256, 512, 256} : Layout{CUDA_R_16BF, 512, 256, 512},
                        {CUDA_R_32F, 384, 256, 384}, at(b_rows), at(a_rows));
            ran++;
        }
    CHECK(ran == 4);

    // Products that differ in their transposes alone are not the same to the session.
    Recording recording;
    Session session(api(), machine(80, 130100), nullptr);
    for (bool a : {false, true})
        for (bool b : {false, true}) {
            Case c{bf16(), bf16(), MXQ_FORMAT_F32, a, b};
            c.sizes = {512, 512, 512};
            session.choose(matmul_of(c, 80));
        }
    CHECK(recording.heuristics.size() == 4);
}

// A bias has an element for each of their rows, in D's type with plain operands, in 16 bits with narrow ones.
TEST_CASE("cublaslt recorder: a bias, in the type that the manual has for it") {
    int ran = 0;
    for (int32_t format : {MXQ_FORMAT_BF16, MXQ_FORMAT_F16, MXQ_FORMAT_F32})
        for (bool narrow : {false, true}) {
            if (!narrow && format == MXQ_FORMAT_F16) continue;  // of bf16 operands cuBLASLt makes none
            const oracle::Spec spec = narrow ? fp8(MXQ_SCALING_TENSOR) : bf16();
            GemmProblem p = dense({spec, spec, format, false, true, false});
            const int32_t type = narrow && format == MXQ_FORMAT_F32 ? MXQ_FORMAT_BF16 : format;
            p.bias = {at(bias_data), type};
            const cudaDataType codes = narrow ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
            Expected expected;
            expected.bias(at(bias_data), d_type(type));
            if (narrow) expected.scales(0, at(b_row_scales), 0, at(a_row_scales));
            check_dense(p, machine(hopper, newest), expected, {codes, 512, 384, 512}, {codes, 512, 256, 512},
                        {d_type(format), 384, 256, 384}, at(b_rows), at(a_rows));
            ran++;
        }
    CHECK(ran == 5);
}

TEST_CASE("cublaslt recorder: a query without pointers asks for aligned ones") {
    GemmProblem p = dense({mxfp8(), mxfp8()});
    p.a.codes = p.a.scales = p.b.codes = p.b.scales = nullptr;
    p.d.data = nullptr;
    Recording recording;
    MatmulDescription matmul{};
    REQUIRE(describe(p, machine(blackwell, newest), matmul).text() == "");
    CHECK(Session(api(), machine(blackwell, newest), nullptr).choose(matmul).declines.text() == "");
    REQUIRE(recording.heuristics.size() == 1);
    const Call& call = recording.heuristics[0];
    CHECK(call.preference == preferences(256));
    CHECK(call.operation.attributes.at(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) == bytes_of(at(256)));
}

// Scales of 128 that are compact are copied into the workspace first: the part that does not fit, and no other.
TEST_CASE("cublaslt recorder: which fp32 scales are copied") {
    const auto packs = [](const oracle::Spec& a, const oracle::Spec& b, Case c) {
        c.a = a, c.b = b;
        const GemmProblem p = dense(c);
        MatmulDescription matmul{};
        REQUIRE(describe(p, machine(hopper, newest), matmul).text() == "");
        const WorkspaceLayout layout = workspace_layout(p, matmul);
        CHECK(layout.packed_b - layout.packed_a == (matmul.b.packs ? 256u * 4 * 4 : 0));
        return std::pair(matmul.b.packs, matmul.a.packs);  // ours: a, b
    };
    const oracle::Spec lines = fp8(MXQ_SCALING_1X128), tiles = fp8(MXQ_SCALING_128X128);
    Case swizzled, compact;
    compact.swizzled = false;
    CHECK(packs(lines, tiles, swizzled) == std::pair(false, false));
    CHECK(packs(lines, tiles, compact) == std::pair(true, false));  // 4 tiles along k: the same either way
    compact.sizes.k = 400;
    CHECK(packs(lines, tiles, compact) == std::pair(true, false));
    compact.sizes.k = 640;
    const GemmProblem p = dense({lines, tiles, MXQ_FORMAT_BF16, false, true, false, false, compact.sizes});
    MatmulDescription matmul{};
    REQUIRE(describe(p, machine(hopper, newest), matmul).text() == "");
    const WorkspaceLayout layout = workspace_layout(p, matmul);
    CHECK(layout.packed_b - layout.packed_a == 256u * 5 * 4);
    CHECK(layout.bytes - layout.packed_b == 256u);  // 3 rows of 8 floats
}

// ---- Groups ----------------------------------------------------------------------------------------------------------------

namespace {

struct GroupExpected {
    FormatCase format;
    bool alpha_array = false;
    bool scale_arrays = true;
    bool a_across = false, b_across = false;  // ours
};

void check_grouped(const GemmProblem& p, const Machine& where, const GroupExpected& e, int64_t m, int64_t n, int64_t k) {
    Recording recording;
    MatmulDescription matmul{};
    REQUIRE(describe_grouped(p, where, {}, matmul).text() == "");
    const GroupArrays on_device = group_arrays(at(arrays), p.groups.count);
    const void* const alpha = e.alpha_array ? static_cast<const void*>(on_device.alphas) : on_device.alpha;
    const void* const beta = e.alpha_array ? static_cast<const void*>(on_device.betas) : on_device.beta;
    {
        Session session(api(), where, heuristic_stream);
        const Session::Choice choice = session.choose(matmul);
        REQUIRE(choice.declines.text() == "");
        session.multiply(with_arrays(matmul, on_device), *choice.algorithm, &on_device.sizes, {alpha, beta},
                         at(workspace), stream);
    }
    CHECK(recording.live == 0);
    REQUIRE(recording.heuristics.size() == 1);
    REQUIRE(recording.matmuls.size() == 1);
    CHECK(recording.heuristics[0].preference == group_preferences(m, n, k));

    Expected expected;
    expected.device_factors().across(e.a_across, e.b_across);
    if (e.alpha_array) expected.alpha_per_group();
    if (e.format.a_mode >= 0)
        expected.scales(e.format.a_mode, e.scale_arrays ? on_device.a_scales : at<const void>(b_row_scales), e.format.b_mode,
                        e.scale_arrays ? on_device.b_scales : at<const void>(a_row_scales));
    const GroupSizes& sizes = on_device.sizes;
    const int groups = p.groups.count;
    const Call& call = recording.matmuls[0];
    const auto operand = [&](cudaDataType type, bool across, const int32_t* lines, const int32_t* ld) {
        return Layout{type, 0, 0, 0, groups, across ? lines : sizes.k, across ? sizes.k : lines, ld};
    };
    check_call(call, expected, operand(e.format.a_type, e.b_across, sizes.m, sizes.a_ld),
               operand(e.format.b_type, e.a_across, sizes.n, sizes.b_ld),
               {d_type(p.d.format), 0, 0, 0, groups, sizes.m, sizes.n, sizes.d_ld});
    CHECK(call.a_data == on_device.a);
    CHECK(call.b_data == on_device.b);
    CHECK(call.c_data == on_device.d);
    CHECK(call.d_data == on_device.d);
    CHECK(call.alpha == alpha);
    CHECK(call.beta == beta);
}

GroupCase group_case(const FormatCase& f) {
    GroupCase c;
    c.a = f.a, c.b = f.b, c.swizzled = f.swizzled;
    return c;
}

const auto e4m3 = CUDA_R_8F_E4M3;
const FormatCase mx_groups{mxfp8(), mxfp8(), blackwell, e4m3, e4m3, 2, 2, true};
const FormatCase square_groups{
    mxfp8(), testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32), blackwell, e4m3, e4m3, 2, 2, true};
const FormatCase nv_groups{nvfp4(), nvfp4(), blackwell, CUDA_R_4F_E2M1, CUDA_R_4F_E2M1, 1, 1, true};
const FormatCase bf16_groups{bf16(), bf16(), hopper, CUDA_R_16BF, CUDA_R_16BF, -1, -1, false};
FormatCase tensor_groups(int where, int32_t mode) {
    return {fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR), where, e4m3, e4m3, mode, mode, false};
}
const FormatCase wide_groups{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128), hopper, e4m3, e4m3, 5, 4, true};
const FormatCase wide_both{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_1X128), hopper, e4m3, e4m3, 4, 4, false};

}  // namespace

TEST_CASE("cublaslt recorder: groups of rows") {
    int ran = 0;
    for (bool transpose_b : {true, false}) {
        const auto check = [&](const GroupExpected& e, GroupCase c) {
            c.transpose_b = transpose_b;
            check_grouped(by_rows(c), machine(e.format.machine, newest_groups[e.format.machine >= blackwell]), e, 384, 64, 512);
            ran++;
        };
        check({mx_groups}, group_case(mx_groups));
        check({square_groups}, group_case(square_groups));
        check({nv_groups}, group_case(nv_groups));
        GroupCase per_group = group_case(nv_groups);
        per_group.per_group = true;
        check({nv_groups, true}, per_group);
        check({bf16_groups, false, true, false, !transpose_b}, group_case(bf16_groups));
        if (transpose_b) check({tensor_groups(hopper, 0), false, false}, group_case(tensor_groups(hopper, 0)));
        for (int where : {hopper, blackwell}) {
            GroupCase scales = group_case(tensor_groups(where, 6));
            scales.per_group = true;
            check({tensor_groups(where, 6)}, scales);
        }
        GroupCase wide = group_case(wide_groups);
        check({wide_groups}, wide);
        wide.a_alignment = 16, wide.d_alignment = 2;
        check({wide_groups}, wide);
        wide.d = MXQ_FORMAT_F32, wide.accumulate = true;
        check({wide_groups}, wide);
    }
    CHECK(ran == 21);
}

// Strides of factors count where there are more groups than one: a single group has plain pointers.
TEST_CASE("cublaslt recorder: one group") {
    GroupCase c = group_case(nv_groups);
    c.groups = 1, c.per_group = true;
    check_grouped(by_rows(c), machine(blackwell, 130602), {nv_groups}, 384, 256, 512);
    c.groups = 2;
    check_grouped(by_rows(c), machine(blackwell, 130602), {nv_groups, true}, 384, 128, 512);
}

TEST_CASE("cublaslt recorder: groups along the contraction") {
    const auto check = [](const GroupExpected& e, GroupCase c) {
        c.d = MXQ_FORMAT_F32, c.accumulate = true;
        check_grouped(by_contraction(c), machine(e.format.machine, newest_groups[e.format.machine >= blackwell]), e, 384, 256, 128);
    };
    check({mx_groups}, group_case(mx_groups));
    check({square_groups}, group_case(square_groups));
    GroupCase nv = group_case(nv_groups);
    nv.a_columnwise = nv.b_columnwise = 32, nv.per_group = true;
    check({nv_groups, true}, nv);
    GroupCase scales = group_case(tensor_groups(hopper, 6));
    scales.per_group = true;
    check({tensor_groups(hopper, 6)}, scales);
    check({wide_both}, group_case(wide_both));

    GroupCase plain = group_case(bf16_groups);
    plain.d = MXQ_FORMAT_F32;
    GemmProblem p = by_contraction(plain);
    const int32_t ends[] = {128, 128, 136, 512};
    p.host_ends = ends;
    check_grouped(p, machine(hopper, newest), {bf16_groups, false, true, true, true}, 384, 256, 128);
}

// 256 rows in 4 ragged groups take 268 with their padding to fours, whatever pads A and D.
TEST_CASE("cublaslt recorder: the room for scales of ragged groups") {
    for (int alignment : {1, 2, 16}) {
        GroupCase c = group_case(wide_groups);
        c.a_alignment = c.d_alignment = alignment;
        const GemmProblem p = by_rows(c);
        MatmulDescription matmul{};
        REQUIRE(describe_grouped(p, machine(hopper, newest), {}, matmul).text() == "");
        CHECK(packed_floats(p, Side::A) == 268 * 4);
        const WorkspaceLayout layout = workspace_layout(p, matmul);
        CHECK(layout.packed_b - layout.packed_a == 4352u);  // 268 * 4 floats
    }
}

// ---- The arrays on the device ----------------------------------------------------------------------------------------------

namespace {

struct Group {
    GroupStart first, second;
    int64_t rows;
};

std::vector<Group> walk(const GroupedCall& call, const std::vector<int64_t>& ends) {
    std::vector<Group> groups;
    Group next{};
    int64_t before = 0;
    for (int64_t end : ends) {
        next.rows = end - before;
        groups.push_back(next);
        next.first.skip(call.p.a.units, next.rows);
        next.second.skip(second_units(call), next.rows);
        before = end;
    }
    return groups;
}

void check_entry(const GroupEntry& got, const GroupEntry& expected) {
    CHECK(got.a == expected.a);
    CHECK(got.b == expected.b);
    CHECK(got.a_scales == expected.a_scales);
    CHECK(got.b_scales == expected.b_scales);
    CHECK(got.d == expected.d);
    CHECK(got.m == expected.m);
    CHECK(got.n == expected.n);
    CHECK(got.k == expected.k);
}

const std::vector<int64_t> ragged{100, 100, 129, 256};  // 100, 0, 29, 127 rows

}  // namespace

TEST_CASE("cublaslt group entry: groups of rows, MXFP8 with weights in 1x32 and 32x32") {
    for (const FormatCase& format : {mx_groups, square_groups}) {
        GroupCase c = group_case(format);
        c.d_alignment = 8;
        const GroupedCall call{by_rows(c), {}};
        const auto groups = walk(call, ragged);
        // 512 codes and 16 scales a line: 4 tiles of 512 bytes for 128 lines. A weight: 384 lines, 3 x 4 tiles.
        const int64_t starts[] = {0, 100, 100, 129}, group_tiles[] = {0, 1, 1, 2};
        const int64_t d_rows[] = {0, 104, 104, 136}, rows[] = {100, 0, 29, 127};
        for (int64_t g = 0; g < 4; g++)
            check_entry(entry_of_group(call, groups[g].first, groups[g].second, groups[g].rows),
                         {at(b_rows + g * 384 * 512), at(a_rows + starts[g] * 512), at(b_row_scales + g * 12 * 512),
                          at(a_row_scales + group_tiles[g] * 4 * 512), at(d_data + d_rows[g] * 384 * 2), 384, rows[g], 512});
    }
}

TEST_CASE("cublaslt group entry: groups of rows, 1x128 by 128x128 with packed scales") {
    GroupCase c = group_case(wide_groups);
    c.a_alignment = 2, c.d_alignment = 8;
    const GroupedCall call{by_rows(c), {at<float>(0x600000000), nullptr}};
    const auto groups = walk(call, ragged);
    const int64_t starts[] = {0, 100, 100, 130}, scales[] = {0, 100, 100, 132}, d_rows[] = {0, 104, 104, 136};
    const int64_t rows[] = {100, 0, 29, 127};
    for (int64_t g = 0; g < 4; g++)
        check_entry(entry_of_group(call, groups[g].first, groups[g].second, groups[g].rows),
                     {at(b_rows + g * 384 * 512), at(a_rows + starts[g] * 512), at(b_row_scales + g * 3 * 4 * 4),
                      at(0x600000000 + scales[g] * 4 * 4), at(d_data + d_rows[g] * 384 * 2), 384, rows[g], 512});
}

TEST_CASE("cublaslt group entry: groups along the contraction, MXFP8 and NVFP4") {
    GroupCase c = group_case(mx_groups);
    c.d = MXQ_FORMAT_F32, c.sizes.k = 256;
    const GroupedCall call{by_contraction(c), {}};
    const auto groups = walk(call, ragged);
    // Groups padded to 32: 128, 0, 32, 128 codes of every line; a tile of 4 scales each, 2 x 512 bytes for A's 256 lines.
    const int64_t starts[] = {0, 128, 128, 160}, tiles[] = {0, 1, 1, 2}, depths[] = {128, 0, 32, 128};
    for (int64_t g = 0; g < 4; g++) {
        const int64_t m = g == 1 ? 0 : 384, n = g == 1 ? 0 : 256;
        check_entry(entry_of_group(call, groups[g].first, groups[g].second, groups[g].rows),
                     {at(b_columns + starts[g]), at(a_columns + starts[g]), at(b_column_scales + tiles[g] * 3 * 512),
                      at(a_column_scales + tiles[g] * 2 * 512), at(d_data + g * 256 * 384 * 4), m, n, depths[g]});
    }

    GroupCase nv = group_case(nv_groups);
    nv.sizes.k = 256, nv.a_columnwise = nv.b_columnwise = 64;
    const GroupedCall fp4{by_contraction(nv), {}};
    const auto fp4_groups = walk(fp4, ragged);
    const GroupEntry last = entry_of_group(fp4, fp4_groups[3].first, fp4_groups[3].second, 127);
    check_entry(last, {at(b_columns + 192 / 2), at(a_columns + 192 / 2), at(b_column_scales + 3 * 3 * 512),
                        at(a_column_scales + 3 * 2 * 512), at(d_data + 3 * 256 * 384 * 2), 384, 256, 128});
}

// Rows of plain numbers may be padded with anything: a group has its rows alone, wherever the padding of both sides puts them.
TEST_CASE("cublaslt group entry: groups along the contraction, BF16") {
    GroupCase c = group_case(bf16_groups);
    c.d = MXQ_FORMAT_F32, c.sizes.k = 256;
    GemmProblem p = by_contraction(c);
    p.a.units.codes = 4;
    const GroupedCall call{p, {}};
    const auto groups = walk(call, ragged);
    const int64_t a_starts[] = {0, 100, 100, 132}, b_starts[] = {0, 100, 100, 129}, depths[] = {100, 0, 29, 127};
    for (int64_t g = 0; g < 4; g++) {
        const int64_t m = g == 1 ? 0 : 384, n = g == 1 ? 0 : 256;
        check_entry(entry_of_group(call, groups[g].first, groups[g].second, groups[g].rows),
                     {at(b_rows + b_starts[g] * 384 * 2), at(a_rows + a_starts[g] * 256 * 2), nullptr, nullptr,
                      at(d_data + g * 256 * 384 * 4), m, n, depths[g]});
    }
}

// A group of its own, for one call each, lies where the arrays say.
TEST_CASE("cublaslt group entry: product_of_group agrees") {
    int compared = 0;
    const auto compare = [&](const GemmProblem& p) {
        const GroupedCall call{p, {}};
        for (const Group& g : walk(call, ragged)) {
            if (g.rows == 0) continue;
            const GroupEntry at_device = entry_of_group(call, g.first, g.second, g.rows);
            const int64_t d_row = p.grouping == Grouping::Rows ? g.second.codes : g.first.index * p.m;
            const GemmProblem one = product_of_group(p, g.first, g.second, d_row, g.rows);
            CHECK(one.grouping == Grouping::None);
            check_entry({one.b.codes, one.a.codes, one.b.scales, one.a.scales, one.d.data, one.n, one.m, one.k}, at_device);
            compared++;
        }
    };
    GroupCase c = group_case(mx_groups);
    c.sizes.k = 256;
    compare(by_rows(c));
    compare(by_contraction(c));
    GroupCase per_group = group_case(nv_groups);
    per_group.sizes.k = 256, per_group.per_group = true;
    compare(by_rows(per_group));
    compare(by_contraction(per_group));
    GroupCase scales = group_case(tensor_groups(hopper, 6));
    scales.sizes.k = 256, scales.per_group = true;
    compare(by_rows(scales));
    compare(by_contraction(scales));
    GroupCase plain = group_case(bf16_groups);
    plain.sizes.k = 256;
    compare(by_contraction(plain));
    plain.transpose_b = false;
    compare(by_rows(plain));
    CHECK(compared == 24);
    const GemmProblem p = by_rows(per_group);
    CHECK(product_of_group(p, {2, 0, 0, 0}, {2, 0, 0, 0}, 0, 5).b.amax == at<float>(b_amax) + 2);
}

TEST_CASE("cublaslt group entry: each group has its bias") {
    GroupCase c = group_case(mx_groups);
    c.sizes.k = 256;
    GemmProblem p = by_rows(c);
    p.bias.values = at(bias_data), p.bias.format = MXQ_FORMAT_BF16;
    int compared = 0;
    for (const Group& g : walk({p, {}}, ragged)) {
        const GemmProblem one = product_of_group(p, g.first, g.second, g.second.codes, g.rows);
        CHECK(one.bias.values == at(bias_data + static_cast<uintptr_t>(compared) * 384 * 2));
        compared++;
    }
    CHECK(compared == 4);
}
