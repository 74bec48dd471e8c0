// What cublaslt_rebase asks of cuBLASLt: that it is nothing which the library does not take on 9.0, and that every group is
// looked for where the pass has written it.
#include "../catch.h"
#include "cublaslt_recorder.h"
#include "cuda/cublaslt/group_entry.h"
#include "cuda/cublaslt/cublaslt_rebase.h"

using namespace mxq;
using namespace mxq::cuda;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

constexpr int newest = 131000;

oracle::Spec mx(int32_t format, int32_t scaling = MXQ_SCALING_1X32) { return testing::spec_of(format, scaling); }

RebasedProduct rebased_at_workspace(const GemmProblem& p) {
    return rebased_product(p, kRebaseTarget).at(reinterpret_cast<void*>(workspace));
}

MatmulDescription described(const GemmProblem& p, int version = newest) {
    const RebasedProduct rebased = rebased_at_workspace(p);
    MatmulDescription matmul{};
    const bool grouped = p.grouping != Grouping::None;
    const Machine where = machine(90, version);
    const Reason reason = grouped ? describe_grouped(rebased.product, where, rebased_in_groups(p), matmul)
                                  : describe(rebased.product, where, matmul);
    CHECK(reason.text() == "");
    CHECK_FALSE(matmul.a.packs);  // all scales lie as the library wants them
    CHECK_FALSE(matmul.b.packs);
    return matmul;
}

bool in_workspace(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) >= workspace; }

}  // namespace

TEST_CASE("cublaslt rebase: every pair of formats, transpose and layout of scales") {
    int ran = 0;
    for (int32_t a : testing::mx_formats)
        for (int32_t b : testing::mx_formats)
            for (int which = 0; which < 8; ++which) {
                if (a == MXQ_FORMAT_MXFP8_E5M2 && b == a) continue;
                Case c{mx(a), mx(b)};
                c.transpose_a = which & 1, c.transpose_b = which & 2, c.swizzled = which & 4;
                c.sizes = {256, 384, 500};
                const MatmulDescription matmul = described(dense(c), 130100);
                CHECK(matmul.k == 512);
                CHECK(matmul.a.mode == (c.transpose_a ? ScaleMode::Vec128 : ScaleMode::Block128));
                CHECK(matmul.b.mode == ScaleMode::Vec128);
                CHECK(matmul.a.type == (b == MXQ_FORMAT_MXFP8_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3));
                CHECK(matmul.d == at(d_data));
                ++ran;
            }
    CHECK(ran == 24 * 8);
}

TEST_CASE("cublaslt rebase: codes stay where lines are whole blocks of 128") {
    for (int32_t scaling : {MXQ_SCALING_1X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128, MXQ_SCALING_ROW})
        for (int64_t k : {128, 160, 256, 416}) {
            Case c{mx(MXQ_FORMAT_MXFP8_E4M3), mx(MXQ_FORMAT_MXFP8_E4M3, scaling)};
            c.sizes = {64, 96, k};
            const RebasedProduct rebased = rebased_at_workspace(dense(c));
            CHECK_FALSE(rebased.a.keeps_codes);
            CHECK(rebased.b.keeps_codes == (scaling != MXQ_SCALING_1X32 && k % 128 == 0));
            CHECK(rebased.product.k == round_up(k, 128));
            CHECK(rebased.product.b.line_bytes == round_up(k, 128));
        }
}

TEST_CASE("cublaslt rebase: one scale for each line of both operands multiplies sums") {
    const auto modes = [](int32_t a, int32_t b, Sizes sizes, bool transpose_a = false) {
        Case c{mx(MXQ_FORMAT_MXFP8_E4M3, a), mx(MXQ_FORMAT_MXFP8_E4M3, b)};
        c.sizes = sizes, c.transpose_a = transpose_a;
        const MatmulDescription matmul = described(dense(c));
        CHECK(in_workspace(matmul.a.scales));
        CHECK(in_workspace(matmul.b.scales));
        return std::pair(matmul.b.mode, matmul.a.mode);
    };
    using enum ScaleMode;
    const int32_t row = MXQ_SCALING_ROW, blocks = MXQ_SCALING_1X32;
    CHECK(modes(row, row, {64, 96, 256}) == std::pair(OuterVec, OuterVec));
    CHECK(modes(row, row, {64, 96, 256}, true) == std::pair(OuterVec, OuterVec));
    CHECK(modes(row, row, {62, 96, 256}) == std::pair(Vec128, Vec128));   // whose D is moved
    CHECK(modes(row, row, {64, 96, 160}) == std::pair(Vec128, Block128));  // whose codes are
    CHECK(modes(blocks, row, {64, 96, 256}) == std::pair(Vec128, Vec128));
    CHECK(modes(row, blocks, {64, 96, 256}) == std::pair(Vec128, Block128));
    Case c{mx(MXQ_FORMAT_MXFP8_E4M3, row), mx(MXQ_FORMAT_MXFP8_E4M3, row)};
    c.sizes = {64, 96, 256};
    const GemmProblem p = dense(c);
    const RebasedProduct rebased = rebased_at_workspace(p);
    CHECK(rebased.product.a.codes == p.a.codes);
    CHECK(rebased.product.b.codes == p.b.codes);
    CHECK(rebased.bytes == 256 + 512);  // 64 and 96 floats
}

TEST_CASE("cublaslt rebase: rows of one D by fours") {
    Case c{mxfp8(), mxfp8()};
    c.sizes = {255, 384, 512};
    const MatmulDescription matmul = described(dense(c));
    CHECK(matmul.n == 256);
    CHECK(matmul.b.lines == 256);
    CHECK(in_workspace(matmul.d));
    GemmProblem p = dense(c);
    const RebasedProduct rebased = rebased_at_workspace(p);
    CHECK(rebased.moves_d);
    CHECK(rebased.product.d.row_stride == p.n);
    CHECK(reinterpret_cast<uintptr_t>(rebased.product.d.data) + 256 * 384 * 2 <= workspace + rebased.bytes);
    p.beta = 1, p.d.format = MXQ_FORMAT_F32;
    CHECK_FALSE(rebased_at_workspace(p).moves_d);
}

// A query plans with a workspace at 0: what it describes is the run's, elsewhere in memory.
TEST_CASE("cublaslt rebase: a description made without a workspace serves a call with one") {
    int compared = 0;
    for (int64_t m : {255, 256})
        for (bool wide : {false, true}) {
            Case c{mx(MXQ_FORMAT_MXFP8_E4M3, wide ? MXQ_SCALING_1X128 : MXQ_SCALING_1X32), mx(MXQ_FORMAT_MXFP4)};
            c.sizes = {m, 384, 512};
            const GemmProblem p = dense(c);
            MatmulDescription planned{};
            CHECK(describe(rebased_product(p, kRebaseTarget).product, machine(90, newest), planned).text() == "");
            const RebasedProduct rebased = rebased_at_workspace(p);
            point_at(rebased.product, planned);
            const MatmulDescription called = described(p);
            CHECK(planned.a.data == called.a.data);
            CHECK(planned.a.scales == called.a.scales);
            CHECK(planned.b.data == called.b.data);
            CHECK(planned.b.scales == called.b.scales);
            CHECK(planned.d == called.d);
            CHECK(in_workspace(planned.a.data));
            CHECK(in_workspace(planned.d) == (m == 255));
            CHECK(rebased.b.to.codes == planned.a.data);
            ++compared;
        }
    CHECK(compared == 4);
}

TEST_CASE("cublaslt rebase: scales of 128 leave the codes where they are") {
    for (bool swizzled : {false, true}) {
        Case c{mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128), mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128)};
        c.swizzled = swizzled;
        MatmulDescription matmul = described(dense(c));
        CHECK(matmul.b.data == at(a_rows));
        CHECK(matmul.a.data == at(b_rows));
        CHECK(matmul.a.mode == ScaleMode::Block128);
        CHECK(in_workspace(matmul.a.scales));
        c.b.scaling = MXQ_SCALING_1X128;
        CHECK(described(dense(c)).a.mode == ScaleMode::Vec128);
        c.a.scaling = MXQ_SCALING_128X128;
        CHECK(described(dense(c)).b.data == at(a_rows));
        c.sizes.k = 400;  // no whole blocks
        CHECK(in_workspace(described(dense(c)).b.data));
        c.sizes = {254, 384, 512};  // rows of D
        CHECK(in_workspace(described(dense(c)).b.data));
        CHECK(described(dense(c)).a.data == at(b_rows));
        c.sizes = {256, 384, 512}, c.a = mx(MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_1X128);
        CHECK(in_workspace(described(dense(c)).b.data));
    }
}

namespace {

// Where the pass writes a group, and where the library is told to look for it.
void check_entries(const GemmProblem& p, const std::vector<int64_t>& rows) {
    const RebasedProduct rebased = rebased_at_workspace(p);
    described(p);
    const auto floats = [](const GemmOperand& operand) { return reinterpret_cast<const float*>(operand.scales); };
    const auto tile_at = [](const RebaseCall& pass, const RebaseScope& scope, uint32_t across) {
        const RebaseGrid grid = rebase_grid(pass);
        if (pass.grouping == Grouping::None) return rebase_tile<Grouping::None>(pass, grid, scope, 0, across);
        if (pass.grouping == Grouping::Rows) return rebase_tile<Grouping::Rows>(pass, grid, scope, 0, across);
        return rebase_tile<Grouping::Contraction>(pass, grid, scope, 0, across);
    };
    const auto codes_at = [&](const RebaseCall& pass, const RebaseScope& scope) {
        return pass.to.codes + tile_at(pass, scope, 0).to_codes;
    };
    const Sides packed = rebased_in_groups(p);
    const GroupedCall call{rebased.product,
                           {packed.a ? floats(rebased.product.a) : nullptr, packed.b ? floats(rebased.product.b) : nullptr}};
    const bool by_rows = p.grouping == Grouping::Rows;
    GroupStart first{}, second{}, from_a{}, from_b{};
    for (size_t g = 0; g < rows.size(); ++g) {
        const GroupEntry entry = entry_of_group(call, first, second, rows[g]);
        const RebaseScope a{0, uint32_t(rows[g]), from_a, first};
        const RebaseScope b = by_rows ? RebaseScope{uint32_t(g), 0, {}, {}} : RebaseScope{0, uint32_t(rows[g]), from_b, second};
        CHECK(entry.b == (rebased.a.keeps_codes ? p.a.codes + first.codes * (by_rows ? p.a.line_bytes : 1)
                                                 : codes_at(rebased.a, a)));
        CHECK(entry.a == codes_at(rebased.b, b));
        CHECK(entry.b_scales == floats(rebased.a.to) + tile_at(rebased.a, a, 0).to_scales);
        CHECK(entry.a_scales == floats(rebased.b.to) + tile_at(rebased.b, b, 0).to_scales);
        // The next block of scales: as many floats on as the library takes lines for.
        const int64_t lines = by_rows ? round_up(rows[g], 4) : entry.n;
        if (by_rows) CHECK(entry.n == rows[g]);
        if (rows[g] > 0) CHECK(tile_at(rebased.a, a, 1).to_scales == tile_at(rebased.a, a, 0).to_scales + lines);
        first.skip(rebased.a.to.units, rows[g]);
        second.skip(second_units(call), rows[g]);
        from_a.skip(p.a.units, rows[g]);
        from_b.skip(p.b.units, rows[g]);
    }
}

}  // namespace

// Ragged groups are multiplied as they are: D is written where it is.
TEST_CASE("cublaslt rebase: groups of rows") {
    int ran = 0;
    for (int alignment : {1, 2, 4, 16, 128})
        for (int d_alignment : {0, 2, 4, 32})
            for (int which = 0; which < 8; ++which) {
                GroupCase c;
                const bool wide = which & 1, accumulate = which & 4;
                c.a = mx(MXQ_FORMAT_MXFP8_E4M3, wide ? MXQ_SCALING_1X128 : MXQ_SCALING_1X32), c.b = mx(MXQ_FORMAT_MXFP4);
                c.a_alignment = alignment, c.d_alignment = d_alignment, c.transpose_b = which & 2;
                c.d = accumulate ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16, c.accumulate = accumulate;
                c.groups = 7, c.sizes = {1029, 384, 640};
                const GemmProblem p = by_rows(c);
                const RebasedProduct rebased = rebased_at_workspace(p);
                CHECK_FALSE(rebased.moves_d);
                CHECK(rebased.product.d.data == at(d_data));
                CHECK(rebased.product.d.group_unit == p.d.group_unit);
                CHECK(rebased.a.keeps_codes == wide);
                const int64_t rows = 1048;  // with up to 3 behind each group
                const uint64_t of_a = uint64_t(round_up(rows * 5 * 4, 256) + (wide ? 0 : round_up(rows * 640, 256)));
                CHECK(rebased.bytes == of_a + uint64_t(7 * 384 * 640 + round_up(7 * 3 * 8 * 4, 256)));
                check_entries(p, {100, 0, 133, 1, 3, 5, 787});
                ++ran;
            }
    CHECK(ran == 5 * 4 * 8);
}

TEST_CASE("cublaslt rebase: groups along the contraction") {
    for (int32_t a : {MXQ_SCALING_1X32, MXQ_SCALING_1X128, MXQ_SCALING_ROW})
        for (int32_t b : {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_128X128, MXQ_SCALING_ROW}) {
            GroupCase c;
            c.a = mx(MXQ_FORMAT_MXFP8_E4M3, a), c.b = mx(MXQ_FORMAT_MXFP8_E5M2, b);
            c.d = MXQ_FORMAT_F32;
            c.groups = 5, c.sizes = {256, 384, 1024};
            c.a_columnwise = a == MXQ_SCALING_1X32 ? 64 : 128;
            const GemmProblem p = by_contraction(c);
            CHECK(rebased_at_workspace(p).a.keeps_codes == (a != MXQ_SCALING_1X32));
            check_entries(p, {100, 0, 133, 1, 790});
        }
}
