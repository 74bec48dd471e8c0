// The passes that make operands fit block-scaled tensor cores: what they plan is what cuBLASLt takes, and every byte of
// codes and scales that they write, and none beside them. On CUDA the kernels run, on any chip; on the CPU the same
// arithmetic of places, and the CPU's swizzle_scales.
#include "../formats.h"
#include "../numerics/formats.h"
#include "cublaslt_recorder.h"
#include "core/groups.h"
#include "cpu/implementations.h"
#include "cuda/block_scaled/widen_codes.h"
#include "cuda/cublaslt/arrays.h"
#include "numerics/packing.h"
#include "numerics/rebase.h"

using namespace mxq;
using namespace mxq::cuda;
using testing::Bytes;
using testing::ok;

namespace {

std::vector<oracle::Spec> specs() {
    std::vector<oracle::Spec> out;
    for (int32_t format : testing::mx_formats)
        for (int32_t scaling :
             {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128, MXQ_SCALING_ROW})
            out.push_back(testing::spec_of(format, scaling));
    for (int32_t scaling : {MXQ_SCALING_1X16, MXQ_SCALING_16X16}) out.push_back(testing::spec_of(MXQ_FORMAT_NVFP4, scaling));
    return out;
}

bool is_nvfp4(const oracle::Spec& spec) { return spec.format == MXQ_FORMAT_NVFP4; }
bool is_wide(const oracle::Spec& spec) { return spec.scaling == MXQ_SCALING_1X128 || spec.scaling == MXQ_SCALING_128X128; }

// Returns the codes that a pass should write.
oracle::Spec widened(oracle::Spec spec) {
    if (!is_nvfp4(spec) && spec.format != MXQ_FORMAT_MXFP8_E5M2) spec.format = MXQ_FORMAT_MXFP8_E4M3;
    return spec;
}

void check_same(const ScaleLayout& a, const ScaleLayout& b) {
    CHECK(a.columns == b.columns);
    CHECK(a.matrix_scales == b.matrix_scales);
    CHECK(a.block == b.block);
    CHECK(a.tile_rows == b.tile_rows);
    CHECK(a.swizzled == b.swizzled);
    CHECK(a.bytes == b.bytes);
    CHECK(a.repeat == b.repeat);
    CHECK(a.group_rows == b.group_rows);
    CHECK(a.group_stride == b.group_stride);
}

// Checks that a pass plans to write what the tensor would be if it had come that way.
void check_planned(const GemmOperand& planned, const GemmOperand& wanted) {
    CHECK(planned.format == wanted.format);
    CHECK(planned.element == wanted.element);
    CHECK(planned.bits == wanted.bits);
    CHECK(planned.matrices == wanted.matrices);
    CHECK(planned.lines == wanted.lines);
    CHECK(planned.length == wanted.length);
    CHECK(planned.line_bytes == wanted.line_bytes);
    CHECK(planned.units.codes == wanted.units.codes);
    CHECK(planned.units.scales == wanted.units.scales);
    check_same(planned.layout, wanted.layout);
}

}  // namespace

TEST_CASE("block scaled: a plan has what swizzled MXFP8 and NVFP4 tensors have") {
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (bool swizzled : {false, true})
            for (int which = 0; which < 5; ++which) {  // (N,T), (N,N), (T,N), groups of rows, along the contraction
                recorder::GroupCase c;
                c.a = c.b = spec;
                if (spec.format == MXQ_FORMAT_MXFP8_E5M2) c.b = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, spec.scaling);
                c.sizes = {256, 384, 256};
                c.transpose_a = which == 2, c.transpose_b = which == 0 || which == 3;
                c.per_group = is_nvfp4(spec);
                if (which == 4) c.a_columnwise = c.b_columnwise = is_wide(spec) ? 128 : 32;
                const auto problem = [&](const recorder::GroupCase& of) {
                    return which < 3    ? recorder::dense(of)
                           : which == 3 ? recorder::by_rows(of)
                                        : recorder::by_contraction(of);
                };
                recorder::GroupCase as_wanted = c;
                as_wanted.a = widened(c.a), as_wanted.b = widened(c.b), as_wanted.swizzled = true;
                c.swizzled = swizzled;
                const GemmProblem p = problem(c), wanted = problem(as_wanted);
                const BlockScaledProduct planned = block_scaled_product(p);
                INFO(testing::describe(spec) << ", swizzled " << swizzled << ", case " << which);
                const bool widens = !is_nvfp4(spec) && p.a.bits != 8;
                CHECK(planned.moves() == (!swizzled || widens));
                CHECK(planned.a.moves_codes == widens);
                CHECK(planned.a.swizzles == !swizzled);
                check_planned(planned.product.a, wanted.a);
                check_planned(planned.product.b, wanted.b);
                CHECK(planned.product.k == wanted.k);

                // All that moves lies in the workspace, one behind the other, and the rest where it was.
                const BlockScaledProduct moved = planned.at(recorder::at(recorder::workspace));
                uintptr_t next = recorder::workspace;
                for (const auto* operand : {&moved.a, &moved.b}) {
                    const GemmOperand &from = operand->from, &to = operand->to;
                    const auto expect = [&](bool moves, const uint8_t* before, const uint8_t* now, int64_t bytes) {
                        CHECK(now == (moves ? recorder::at<uint8_t>(next) : before));
                        if (moves) next += uintptr_t(round_up(bytes, 256));
                    };
                    expect(operand->moves_codes, from.codes, to.codes, to.matrices * to.lines * to.line_bytes);
                    expect(operand->swizzles, from.scales, to.scales, to.matrices * to.layout.matrix_scales);
                }
                CHECK(next == recorder::workspace + planned.bytes);
                CHECK(moved.product.a.codes == moved.a.to.codes);
                CHECK(moved.product.b.scales == moved.b.to.scales);

                // cuBLASLt takes it, one product or groups, and with the offsets of a query too.
                for (const GemmProblem& product : {planned.product, moved.product}) {
                    lt::MatmulDescription matmul{};
                    const lt::Machine where = recorder::machine(100, which < 3 ? 131000 : 130602);
                    const Reason reason =
                        which < 3 ? describe(product, where, matmul) : describe_grouped(product, where, {}, matmul);
                    CHECK(reason.text() == "");
                    CHECK(matmul.b.mode == (is_nvfp4(spec) ? lt::ScaleMode::Vec16 : lt::ScaleMode::Vec32));
                    CHECK(matmul.b.type == (is_nvfp4(spec)                         ? CUDA_R_4F_E2M1
                                            : spec.format == MXQ_FORMAT_MXFP8_E5M2 ? CUDA_R_8F_E5M2
                                                                                   : CUDA_R_8F_E4M3));
                }
                ++ran;
            }
    CHECK(ran == (5 * 5 + 2) * 2 * 5);
}

TEST_CASE("block scaled: lines that are no whole blocks are copied, those of NVFP4 are not") {
    const auto plan = [](const oracle::Spec& a, const oracle::Spec& b, int64_t k) {
        recorder::Case c{a, b};
        c.sizes.k = k;
        return block_scaled_product(recorder::dense(c));
    };
    const BlockScaledProduct ragged = plan(recorder::mxfp8(), recorder::mxfp8_e5m2(), 500);
    CHECK(ragged.a.moves_codes);
    CHECK(ragged.b.moves_codes);
    CHECK(ragged.product.k == 512);
    CHECK(ragged.product.a.line_bytes == 512);
    CHECK(ragged.product.b.element == Element::E5M2);
    CHECK(plan(recorder::mxfp8(), recorder::mxfp8(), 496).b.moves_codes);  // whole 16 bytes are not enough
    CHECK(plan(recorder::mxfp8(), recorder::mxfp8(), 496).product.k == 512);
    const auto mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    const BlockScaledProduct beside = plan(mxfp4, recorder::mxfp8(), 512);
    CHECK(beside.a.moves_codes);
    CHECK_FALSE(beside.b.moves_codes);  // it is as it must be
    CHECK_FALSE(beside.b.swizzles);
    CHECK_FALSE(plan(recorder::mxfp8(), recorder::mxfp8(), 512).moves());
    CHECK_FALSE(plan(recorder::nvfp4(), recorder::nvfp4(), 500).moves());
    GemmProblem odd = recorder::dense({recorder::mxfp8(), recorder::mxfp8()});
    odd.b.codes += 8;
    CHECK(block_scaled_product(odd).b.moves_codes);
    CHECK_FALSE(block_scaled_product(odd).a.moves_codes);
}

// ---- What is written -------------------------------------------------------------------------------------------------------

namespace {

// Widens sixteen codes, of which `count` exist, as a thread of the kernel does.
template <class E>
void widen_piece(const uint8_t* from, int64_t count, uint8_t* to) {
    uint32_t codes[16] = {}, words[4], packed[2] = {};
    for (int i = 0; i < count; ++i) codes[i] = load_code<E::bits>(from, i);
    for (int w = 0; w < 4; ++w) {
        const uint32_t* const four = codes + 4 * w;
        words[w] = four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24;
        if constexpr (E::bits == 6) words[w] = six_bits_to_e4m3<E>(words[w]);
        packed[w / 2] |= (four[0] | four[1] << 4 | four[2] << 8 | four[3] << 12) << (w % 2 * 16);
    }
    if constexpr (E::bits == 4) rebase_e2m1(packed, rebase_block<E>(127, 127), words);
    if constexpr (E::bits == 6) rebase_16<E>(words, rebase_block<E>(127, 127));
    std::memcpy(to, words, sizeof words);
}

void widen_block(const BlockScaledOperand& operand, const WidenTile& tile) {
    const GemmOperand &from = operand.from, &to = operand.to;
    with_element(from.element, [&]<class E>(E) {
        for (int64_t line = 0; line < std::min<int64_t>(tile.lines, kWidenLines); ++line)
            for (int64_t code = 0; code < kWidenLength && code < round_up(tile.codes, kMxBlock); code += 16) {
                const int64_t row = tile.matrix * from.lines + tile.line + line, at = tile.code + code;
                widen_piece<E>(from.codes + row * from.line_bytes + at / 8 * E::bits,
                               std::min<int64_t>(tile.codes - code, 16), to.codes + row * to.line_bytes + at);
            }
    });
}

void widen_on_host(const BlockScaledOperand& operand) {
    const auto blocks = [&](int64_t matrix, const GroupStart& start, int64_t rows, int64_t lines, int64_t codes) {
        for (int64_t down = 0; down < ceil_div(lines, kWidenLines); ++down)
            for (int64_t across = 0; across < ceil_div(codes, kWidenLength); ++across)
                widen_block(operand, widen_tile(operand, matrix, start, rows, down, across));
    };
    if (operand.grouping == Grouping::None) {
        for (int64_t e = 0; e < operand.from.matrices; ++e) blocks(e, {}, 0, operand.from.lines, operand.to.length);
        return;
    }
    const auto groups = read_groups(operand.grouped, "a");
    const auto starts = group_starts(groups, operand.from.units);
    for (size_t g = 0; g < groups.size(); ++g)
        if (operand.grouping == Grouping::Rows)
            blocks(0, starts[g], groups[g].rows, groups[g].rows, operand.to.length);
        else
            blocks(0, starts[g], groups[g].rows, operand.from.lines, groups[g].rows);
}

void move(testing::Device& device, const BlockScaledOperand& operand) {
    if (!device.is_cpu()) return move_operand(*device.context, operand, nullptr);
    if (operand.moves_codes) widen_on_host(operand);
    if (operand.swizzles) cpu::swizzle_scales.run(*device.context, swizzle_of(operand), {nullptr, nullptr});
}

// One expert or group of the source: its codes as the oracle lays them out, and where they go.
struct Scope {
    oracle::Placement placement;
    int64_t lines, length;
    int64_t to, to_length;  // first byte, and codes that are written of every line
};

// Returns the codes that must come out, on poison.
Bytes expected_codes(const oracle::Spec& spec, const oracle::Part& stored, const GemmOperand& to,
                     const std::vector<Scope>& scopes) {
    Bytes out(static_cast<size_t>(to.matrices * to.lines * to.line_bytes), testing::poison);
    const int32_t format = widened(spec).format;
    for (const Scope& s : scopes)
        for (int64_t i = 0; i < s.lines; ++i)
            for (int64_t j = 0; j < s.to_length; ++j) {
                uint8_t code = 0;
                if (j < s.length) {
                    const uint8_t* const row = stored.codes.data() + s.placement.first_byte + i * s.placement.row_bytes;
                    code = oracle::get_code(row, oracle::code_bits(spec.format), s.placement.first_code + j);
                    if (format != spec.format)
                        code = oracle::encode_element(format, oracle::decode_element(spec.format, code));
                }
                out[static_cast<size_t>(s.to + i * to.line_bytes + j)] = code;
            }
    return out;
}

// Runs the passes over one operand of a product and compares all bytes of the workspace. `swizzled`: its scales in tiles.
void check_moved(testing::Device& device, GemmProblem p, Side side, const oracle::Part& stored, const oracle::Spec& spec,
                 const Bytes& swizzled, const std::function<std::vector<Scope>(const GemmOperand& to)>& scopes) {
    testing::Buffer codes(device, stored.codes), scales(device, stored.scales);
    GemmOperand& operand = side == Side::A ? p.a : p.b;
    operand.codes = static_cast<uint8_t*>(codes.data());
    operand.scales = static_cast<uint8_t*>(scales.data());
    const BlockScaledProduct planned = block_scaled_product(p);
    testing::Buffer workspace(device, static_cast<size_t>(planned.bytes));
    const BlockScaledProduct moved = planned.at(workspace.data());
    const BlockScaledOperand& one = side == Side::A ? moved.a : moved.b;
    move(device, one);
    Bytes expected(workspace.bytes(), testing::poison);
    const auto put = [&](const uint8_t* at, const Bytes& bytes) {
        const auto first = static_cast<size_t>(at - static_cast<uint8_t*>(workspace.data()));
        REQUIRE(first + bytes.size() <= expected.size());
        std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(first));
    };
    if (one.moves_codes) put(one.to.codes, expected_codes(spec, stored, one.to, scopes(one.to)));
    if (one.swizzles) put(one.to.scales, swizzled);
    CHECK(testing::difference(workspace.read(), expected) == "");
}

oracle::Floats values(size_t count, uint64_t seed) {
    cases::Random random(seed);
    oracle::Floats x(count);
    for (float& value : x)
        value = random.below(500) == 0 ? NAN : std::ldexp(random.normal(), -static_cast<int>(random.below(12)));
    return x;
}

constexpr int64_t kRows = 700;
const oracle::Ends all_ends[] = {{100, 100, 129, 256, 256, 511}, {0, 300}, {1, 2, 3, 4, 300, 301, 302}, {17, 684}};

}  // namespace

MXQ_EACH_DEVICE("block scaled: matrices and experts") {
    const int64_t shapes[][3] = {{1, 1, 16}, {1, 130, 96}, {2, 33, 400}, {3, 129, 131}, {1, 260, 544}};
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const auto& [experts, lines, k] : shapes)
            for (bool columnwise : {false, true})
                for (bool swizzled : {false, true}) {
                    if (is_nvfp4(spec) && swizzled) continue;  // nothing moves
                    const testing::Dims dims{experts, columnwise ? k : lines, columnwise ? lines : k};
                    const int32_t part = columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
                    const oracle::Floats x = values(dims.shape().count(), static_cast<uint64_t>(++ran));
                    const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
                    const testing::Dims flat{std::nullopt, dims.rows, dims.cols},
                        other{std::nullopt, columnwise ? k : 16, columnwise ? 16 : k};
                    testing::Tensor a = testing::make_tensor(spec, flat, swizzled),
                                    b = testing::make_tensor(spec, other, swizzled);
                    testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, lines, 16});
                    auto options = testing::gemm_options(columnwise ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                         columnwise ? MXQ_TRANSPOSE_N : MXQ_TRANSPOSE_T);
                    GemmProblem p = validate_gemm(*testing::any_context(), options, a, b, d, Check::Query);
                    p.a.matrices = experts;  // as B of groups has them
                    INFO(testing::describe(spec) << ", " << experts << " x " << lines << " x " << k << ", columnwise "
                                                 << columnwise << ", swizzled " << swizzled);
                    const Bytes tiles = oracle::quantize(spec, x, dims.shape(), part, true).scales;
                    check_moved(device, p, Side::A, stored, spec, tiles, [&](const GemmOperand& to) {
                        std::vector<Scope> scopes;
                        for (int64_t e = 0; e < experts; ++e)
                            scopes.push_back({oracle::placement_of(spec, e, lines, k, swizzled), lines, k,
                                              e * lines * to.line_bytes, to.line_bytes});
                        return scopes;
                    });
                }
    CHECK(ran == 25 * 5 * 4 + 2 * 5 * 2);
}

MXQ_EACH_DEVICE("block scaled: groups") {
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const oracle::Ends& ends_of_groups : all_ends)
            for (int which = 0; which < 4; ++which) {
                const bool swizzled = which & 1, along = which & 2;
                if (is_nvfp4(spec) && swizzled) continue;
                const int32_t part = along ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
                const int64_t cols = along ? 132 : 528;
                const oracle::Groups groups{ends_of_groups, along ? 1 : int64_t{1} << (ran % 8),
                                            is_wide(spec) ? 128 : int64_t{32} << (ran % 3)};
                const int64_t count = groups.count();
                testing::DeviceEnds ends(device, groups.ends, ran % 2);
                const oracle::Floats x = values(static_cast<size_t>(kRows * cols), static_cast<uint64_t>(++ran));
                const oracle::Part stored =
                    oracle::quantize_groups(spec, x, kRows, cols, groups, part, swizzled).on(oracle::untouchable);
                testing::Tensor a = testing::make_tensor(spec, {std::nullopt, kRows, cols}, swizzled);
                ends.set(a, groups);
                testing::Tensor b = testing::make_tensor(
                    spec, along ? testing::Dims{std::nullopt, kRows, 16} : testing::Dims{count, 16, cols}, swizzled);
                if (along) ends.set(b, groups);
                testing::Tensor d = testing::make_tensor(
                    MXQ_FORMAT_F32, along ? testing::Dims{count, cols, 16} : testing::Dims{std::nullopt, kRows, 16});
                auto options = testing::gemm_options(along ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                     along ? MXQ_TRANSPOSE_N : MXQ_TRANSPOSE_T);
                const GemmProblem p = validate_grouped_gemm(*testing::any_context(), options, a, b, d, Check::Query);
                INFO(testing::describe(spec) << ", " << count << " groups, alignments " << groups.rowwise << " "
                                             << groups.columnwise << ", case " << which);
                const Bytes tiles =
                    oracle::quantize_groups(spec, x, kRows, cols, groups, part, true).on(testing::poison).scales;
                check_moved(device, p, Side::A, stored, spec, tiles, [&](const GemmOperand& to) {
                    const oracle::GroupLayout layout(spec, kRows, cols, groups, part, swizzled);
                    const auto starts = oracle::padded_starts(groups.ends, along ? groups.columnwise : groups.rowwise);
                    std::vector<Scope> scopes;
                    for (size_t g = 0; g < groups.ends.size(); ++g) {
                        const int64_t rows = oracle::group_rows(groups.ends, g);
                        if (along)
                            scopes.push_back({layout.placement(g), cols, layout.padded(g), starts[g], layout.padded(g)});
                        else
                            scopes.push_back({layout.placement(g), rows, cols, starts[g] * to.line_bytes, to.line_bytes});
                    }
                    return scopes;
                });
            }
    CHECK(ran == 25 * 4 * 4 + 2 * 4 * 2);
}
