// The pass that gives MX operands scales of 128, byte for byte against the contract: formats, scales and their layouts, tiles,
// experts, groups of both kinds, ragged shapes. On CUDA the kernel runs; on the CPU the same arithmetic of places, thread by
// thread.
#include "../formats.h"
#include "../oracle_product.h"
#include "../numerics/formats.h"
#include "core/validate.h"
#include "core/groups.h"
#include "cuda/rebase/rebase.h"
#include "numerics/packing.h"

#include <cstring>

using mxq::GroupStart;
using mxq::Grouping;
using namespace mxq::cuda;
using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

// ---- The kernel, without a GPU ---------------------------------------------------------------------------------------

template <class E>
void rebase_piece(const uint8_t* from, int count, const mxq::RebaseBlock<E>& block, uint8_t* to) {
    uint32_t codes[16] = {}, words[4], packed[2] = {};
    for (int i = 0; i < count; ++i) codes[i] = mxq::load_code<E::bits>(from, i);
    for (int w = 0; w < 4; ++w) {
        const uint32_t* const four = codes + 4 * w;
        words[w] = four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24;
        if constexpr (E::bits == 6) words[w] = mxq::six_bits_to_e4m3<E>(words[w]);
        packed[w / 2] |= (four[0] | four[1] << 4 | four[2] << 8 | four[3] << 12) << (w % 2 * 16);
    }
    if constexpr (E::bits == 4) mxq::rebase_e2m1(packed, block, words);
    else mxq::rebase_16<E>(words, block);
    std::memcpy(to, words, sizeof words);
}

uint32_t scales_of(const RebaseCall& call, const RebaseTile& tile, int line, int column) {
    if (line >= tile.lines) return 0;
    const mxq::ScaleLayout& layout = call.from.layout;
    const uint8_t* const from = call.from.scales + tile.scales + column * tile.next_scales +
                                scales_of_line(layout, static_cast<uint32_t>(line));
    const int scaled = tile.scaled - column * kRebaseTile;
    const bool words = has_scale_words(call);
    uint32_t word = 0;
    for (int half = 0; half < 2; ++half) word |= scale_word(load_scales(layout, words, from, scaled, half), words, scaled, half);
    return word;
}

// What a block of threads has to do: `first` is its first line in the tiles, the first of which is `tile`.
template <class E>
void rebase_block_of_threads(const RebaseCall& call, const RebaseTile& tile, int first) {
    const bool share = call.to.layout.tile_rows > 1;
    uint32_t of_tiles[kRebaseTiles] = {};
    for (int column = 0; column < kRebaseTiles; ++column)
        for (int line = 0; line < kRebaseTile; ++line)
            of_tiles[column] = std::max(of_tiles[column],
                                        mxq::cuda::rebase_line_scale<E>(call, scales_of(call, tile, line, column)));
    mxq::RebaseBlock<E> blocks[kRebaseLines][kRebaseLength / 32];
    for (int thread = 0; thread < kRebaseThreads; ++thread) {
        const int in_block = rebase_scale_line(thread), line = first + in_block, column = rebase_scale_tile(thread);
        const bool exists = tile.length > column * kRebaseTile;
        const uint32_t word = scales_of(call, tile, line, column);
        const uint32_t largest = share ? of_tiles[column] : mxq::cuda::rebase_line_scale<E>(call, word);
        float* const to = reinterpret_cast<float*>(call.to.scales) + tile.to_scales + column * tile.next_to_scales;
        if (thread % 2 == 0 && (share ? line == 0 : exists && line < tile.to_lines))
            to[share ? 0 : line] = exists && line < tile.lines ? mxq::scale_value(largest) : 0.0f;
        for (int i = 0; i < 2; ++i) {
            const uint32_t scale = word >> (thread % 2 * 16 + i * 8) & 0xFF;
            blocks[in_block][thread % (2 * kRebaseTiles) * 2 + i] = mxq::rebase_block<E>(scale, largest);
        }
    }
    for (int thread = 0; thread < kRebaseThreads && !call.keeps_codes; ++thread)
        for (int i = 0; i < kRebaseAccesses; ++i) {
            const int in_block = rebase_line(thread, i), line = first + in_block, code = rebase_code(thread);
            if (line >= tile.to_lines || tile.length <= code / kRebaseTile * kRebaseTile) continue;
            const int count = line < tile.lines ? std::max(std::min(tile.length - code, kRebaseCodes), 0) : 0;
            rebase_piece<E>(call.from.codes + tile.codes + line * call.from.line_bytes + code / 8 * E::bits, count,
                            blocks[in_block][code / 32], call.to.codes + tile.to_codes + line * call.to.line_bytes + code);
        }
}

template <Grouping grouping>
void rebase_scope(const RebaseCall& call, const RebaseScope& scope, int64_t lines, int64_t blocks) {
    const mxq::cuda::RebaseGrid grid = rebase_grid(call);
    for (uint32_t down = 0; down < mxq::ceil_div(lines, kRebaseLines); ++down)
        for (uint32_t across = 0; across < blocks; ++across) {
            const RebaseTile tile = rebase_tile<grouping>(call, grid, scope, down / kRebaseHalves, across * kRebaseTiles);
            for_each_element([&]<class E>(E) {
                if (format_of<E> != call.from.format) return;
                rebase_block_of_threads<E>(call, tile, static_cast<int>(down % kRebaseHalves) * kRebaseLines);
            });
        }
}

void rebase_on_host(const RebaseCall& call) {
    if (call.grouping == Grouping::None) {
        for (uint32_t e = 0; e < call.from.matrices; ++e)
            rebase_scope<Grouping::None>(call, {e, 0, {}, {}}, call.to.lines, blocks_across(call));
        return;
    }
    const auto groups = mxq::read_groups(call.grouped, "a");
    const auto from = mxq::group_starts(groups, call.from.units), to = mxq::group_starts(groups, call.to.units);
    for (size_t g = 0; g < groups.size(); ++g) {
        const RebaseScope scope{0, static_cast<uint32_t>(groups[g].rows), from[g], to[g]};
        if (call.grouping == Grouping::Rows) rebase_scope<Grouping::Rows>(call, scope, scope.rows, blocks_across(call));
        else rebase_scope<Grouping::Contraction>(call, scope, call.from.lines, mxq::ceil_div(scope.rows, kRebaseLength));
    }
}

// ---- What must come out ----------------------------------------------------------------------------------------------

int32_t rebased_format(const oracle::Spec& spec) {
    return spec.format == MXQ_FORMAT_MXFP8_E5M2 ? MXQ_FORMAT_MXFP8_E5M2 : MXQ_FORMAT_MXFP8_E4M3;
}

// One expert or group of the source, as the oracle lays it out: codes that exist, and their scales.
struct Source {
    const oracle::Spec& spec;
    const oracle::Part& part;
    oracle::Placement placement;
    int64_t lines, length;

    uint8_t code(int64_t i, int64_t j) const {
        const uint8_t* const row = part.codes.data() + placement.first_byte + i * placement.row_bytes;
        return oracle::get_code(row, oracle::code_bits(spec.format), placement.first_code + j);
    }
    int scale(int64_t i, int64_t j) const {
        if (i >= lines || j >= length || !placement.has_scale(i, j)) return 0;
        return static_cast<int>(oracle::get_scale(spec.format, part.scales.data(), placement.scale(i, j)));
    }
};

// Codes and scales on poison, and where a scope's go.
struct Expected {
    Bytes codes, scales;
    void put_scale(int64_t at, float value) { std::memcpy(&scales[static_cast<size_t>(at) * 4], &value, 4); }
};

struct Target {
    int64_t first_code, line_bytes;              // of the scope, and from line to line
    int64_t first_scale, line_step, block_step;  // in floats
    int64_t lines, length;                       // that are written; `length` a multiple of 128
    int32_t tile_lines;
    int64_t zeros = 0;                           // behind the last scale of a row of tiles
};

float scale_of(int largest) { return std::ldexp(1.0f, largest - 127); }

uint8_t moved(const Source& s, int64_t i, int64_t j, int largest) {
    const int scale = s.scale(i, j - j % 32);
    if (scale == 255) return 0x7F;  // of what is left of the last block, too
    if (i >= s.lines || j >= s.length) return 0;
    const double value = oracle::decode_element(s.spec.format, s.code(i, j));
    return oracle::encode_element(rebased_format(s.spec), std::ldexp(value, scale - largest));
}

// `keeps`: scales of 128 as they are.
void expect_tile(const Source& s, const Target& t, int64_t line, int64_t code, bool keeps, Expected& out) {
    int largest = 0;
    for (int64_t i = line; i < std::min(line + t.tile_lines, s.lines); ++i)
        for (int64_t j = code; j < code + 128; j += 32)
            if (const int scale = s.scale(i, j); scale != 255 || keeps) largest = std::max(largest, scale);
    if (!keeps) largest = std::max(largest - oracle::rebase_headroom(s.spec.format), 1);
    const float value = keeps && largest == 255 ? mxq::bits_float(0x7FFFFFFF) : line < s.lines ? scale_of(largest) : 0.0f;
    const int64_t at = t.first_scale + line / t.tile_lines * t.line_step + code / 128 * t.block_step;
    out.put_scale(at, value);
    for (int64_t i = 0; code + 128 == t.length && i < t.zeros; ++i) out.put_scale(at + 1 + i, 0.0f);
    for (int64_t i = line; !keeps && i < std::min(line + t.tile_lines, t.lines); ++i)
        for (int64_t j = code; j < code + 128; ++j)
            out.codes[static_cast<size_t>(t.first_code + i * t.line_bytes + j)] = moved(s, i, j, largest);
}

void expect_scope(const Source& s, const Target& t, bool keeps, Expected& out) {
    for (int64_t line = 0; line < t.lines; line += t.tile_lines)
        for (int64_t code = 0; code < t.length; code += 128) expect_tile(s, t, line, code, keeps, out);
}

// ---- Cases -----------------------------------------------------------------------------------------------------------

// Values over many powers of two, a NaN here and there: scales far apart in a tile, some of them 255.
oracle::Floats wide_values(size_t count, int64_t row, uint64_t seed) {
    cases::Random random(seed);
    oracle::Floats x(count);
    int shift = 0;
    for (size_t i = 0; i < count; ++i) {
        if (static_cast<int64_t>(i) % row % 32 == 0) shift = -static_cast<int>(random.below(random.below(3) ? 6 : 24));
        x[i] = random.below(900) == 0 ? NAN : std::ldexp(random.normal(), shift);
    }
    return x;
}

struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> buffers;
    oracle::Part stored;
};

// Runs the pass and compares every byte that it may write, and every byte that it may not.
void check_call(testing::Device& device, RebaseCall call, int32_t tile_lines, int32_t line_unit, const Expected& expected) {
    call.to = mxq::cuda::rebased_operand(call, {tile_lines, line_unit, 4, false});
    Buffer codes(device, expected.codes.size()), scales(device, expected.scales.size());
    if (!call.keeps_codes) {
        REQUIRE(mxq::cuda::rebased_code_bytes(call.to) == codes.bytes());
        call.to.codes = static_cast<uint8_t*>(codes.data());
    }
    REQUIRE(mxq::cuda::rebased_scale_bytes(call.to) == scales.bytes());
    call.to.scales = static_cast<uint8_t*>(scales.data());
    if (device.is_cpu()) rebase_on_host(call);
    else mxq::cuda::rebase(*device.context, call, nullptr);
    CHECK(testing::difference(scales.read(), expected.scales) == "");
    CHECK(testing::difference(codes.read(), expected.codes) == "");
}

Expected poisoned(int64_t codes, int64_t floats) {
    return {Bytes(static_cast<size_t>(codes), testing::poison), Bytes(static_cast<size_t>(floats) * 4, testing::poison)};
}

std::vector<oracle::Spec> mx_specs() {
    std::vector<oracle::Spec> out;
    for (int32_t format : testing::mx_formats)
        for (int32_t scaling :
             {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128, MXQ_SCALING_ROW})
            out.push_back(testing::spec_of(format, scaling));
    return out;
}

bool is_wide(const oracle::Spec& spec) { return oracle::tile_of(spec.scaling).width >= 128; }

mxq::GemmOperand view(const testing::Tensor& a, const testing::Tensor& b, const testing::Tensor& d, bool transposed) {
    auto options = testing::gemm_options(transposed ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                         transposed ? MXQ_TRANSPOSE_N : MXQ_TRANSPOSE_T);
    return mxq::validate_gemm(*testing::any_context(), options, a, b, d, mxq::Check::Query).a;
}

}  // namespace

MXQ_EACH_DEVICE("rebase: matrices and experts") {
    const int64_t shapes[][3] = {{1, 1, 16}, {1, 130, 96}, {1, 128, 256}, {2, 33, 400}, {3, 129, 131}, {1, 260, 544}};
    int ran = 0;
    for (const oracle::Spec& spec : mx_specs())
        for (const auto& [experts, lines, k] : shapes)
            for (int which = 0; which < 8; ++which) {
                const bool columnwise = which & 1, swizzled = which & 2;
                const int32_t tile_lines = which & 4 ? 128 : 1, line_unit = which & 1 ? 4 : 1;
                const bool keeps = is_wide(spec) && k % 128 == 0 && spec.format <= MXQ_FORMAT_MXFP8_E5M2 &&
                                   (tile_lines == 1 || spec.scaling == MXQ_SCALING_128X128) && line_unit == 1;
                const int32_t part = columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
                const testing::Dims dims{experts, columnwise ? k : lines, columnwise ? lines : k};
                const size_t count = dims.shape().count();
                const auto x = wide_values(count, dims.cols, static_cast<uint64_t>(++ran));
                const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
                testing::Tensor tensor = testing::make_tensor(spec, {std::nullopt, dims.rows, dims.cols}, swizzled);
                Buffer codes(device, stored.codes, ran % 3 == 0 ? 1 : 0), scales(device, stored.scales, ran % 4);
                const testing::Dims other_dims{std::nullopt, columnwise ? k : 16, columnwise ? 16 : k};
                testing::Tensor other = testing::make_tensor(spec, other_dims, swizzled);
                testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, lines, 16});

                RebaseCall call{};
                call.from = view(tensor, other, d, columnwise);
                call.from.matrices = experts;
                call.from.codes = static_cast<uint8_t*>(codes.data());
                call.from.scales = static_cast<uint8_t*>(scales.data());
                call.keeps_codes = keeps;
                const int64_t to_lines = mxq::round_up(lines, line_unit), columns = oracle::ceil_div(k, 128);
                const int64_t stride = mxq::round_up(columns, 4), tile_rows = oracle::ceil_div(to_lines, 128);
                const int64_t matrix_scales = tile_lines == 1 ? columns * to_lines : tile_rows * stride;
                Expected expected = poisoned(keeps ? 0 : experts * to_lines * columns * 128, experts * matrix_scales);
                for (int64_t e = 0; e < experts; ++e) {
                    const Source source{spec, stored, oracle::placement_of(spec, e, lines, k, swizzled), lines, k};
                    const Target target{e * to_lines * columns * 128, columns * 128, e * matrix_scales,
                                        tile_lines == 1 ? 1 : stride, tile_lines == 1 ? to_lines : 1, to_lines, columns * 128,
                                        tile_lines, tile_lines == 1 ? 0 : stride - columns};
                    expect_scope(source, target, keeps, expected);
                }
                INFO(testing::describe(spec) << ", " << experts << " x " << lines << " x " << k << ", case " << which);
                check_call(device, call, tile_lines, line_unit, expected);
            }
    CHECK(ran == 25 * 6 * 8);
}

namespace {

// The values of a rebased matrix: codes (lines, length) under scales (length / 128, lines) or (tile rows, columns by fours).
oracle::Floats rebased_values(const oracle::Spec& spec, const Bytes& codes, const Bytes& scales, int64_t lines, int64_t k,
                              int32_t tile_lines) {
    const int64_t columns = oracle::ceil_div(k, 128), stride = mxq::round_up(columns, 4);
    oracle::Floats out;
    for (int64_t i = 0; i < lines; ++i)
        for (int64_t j = 0; j < k; ++j) {
            float scale;
            const int64_t at = tile_lines == 1 ? j / 128 * lines + i : i / 128 * stride + j / 128;
            std::memcpy(&scale, &scales[static_cast<size_t>(at) * 4], 4);
            const uint8_t code = codes[static_cast<size_t>(i * columns * 128 + j)];
            out.push_back(static_cast<float>(oracle::decode_element(rebased_format(spec), code) * scale));
        }
    return out;
}

struct Rebased {
    oracle::Floats before, after, errors;
};

Rebased rebase_lines(testing::Device& device, const oracle::Spec& spec, const oracle::Floats& x, int64_t lines, int64_t k,
                     int32_t tile_lines) {
    const oracle::Part stored = oracle::quantize(spec, x, {1, lines, k}, MXQ_PART_ROWWISE, true);
    testing::Tensor tensor = testing::make_tensor(spec, {std::nullopt, lines, k}, true);
    const testing::InputPart buffers(device, tensor, spec, MXQ_PART_ROWWISE, stored);
    testing::Tensor other = testing::make_tensor(spec, {std::nullopt, 16, k}, true);
    testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, lines, 16});
    RebaseCall call{};
    call.from = view(tensor, other, d, false);
    call.to = mxq::cuda::rebased_operand(call, {tile_lines, 1, 4, false});
    Buffer codes(device, mxq::cuda::rebased_code_bytes(call.to)), scales(device, mxq::cuda::rebased_scale_bytes(call.to));
    call.to.codes = static_cast<uint8_t*>(codes.data());
    call.to.scales = static_cast<uint8_t*>(scales.data());
    if (device.is_cpu()) rebase_on_host(call);
    else mxq::cuda::rebase(*device.context, call, nullptr);
    Rebased out;
    out.before = oracle::lines(spec, stored, {1, lines, k}, MXQ_PART_ROWWISE, true);
    out.after = rebased_values(spec, codes.read(), scales.read(), lines, k, tile_lines);
    out.errors = oracle::rebase_errors(spec, stored.scales, oracle::placement_of(spec, 0, lines, k, true), out.before, lines, k,
                                       tile_lines);
    return out;
}

}  // namespace

// Before any tensor core: what is left of the products, and of the bound.
MXQ_EACH_DEVICE("rebase: what products lose") {
    const int64_t m = 48, n = 144, k = 640;
    for (int32_t format : testing::mx_formats)
        for (int outliers : {1, 1000}) {
            cases::Random random(static_cast<uint64_t>(format));
            oracle::Floats x, y;
            for (int64_t i = 0; i < m * k; ++i)
                x.push_back(random.normal() * static_cast<float>(i % k % 100 == 7 ? outliers : 1));
            for (int64_t i = 0; i < n * k; ++i) y.push_back(random.normal());
            const auto spec = testing::spec_of(format, MXQ_SCALING_1X32);
            const Rebased a = rebase_lines(device, spec, x, m, k, 1), b = rebase_lines(device, spec, y, n, k, 128);
            auto sums = oracle::product(a.before.data(), k, b.before.data(), k, m, n, k);
            oracle::add_rebase_errors(sums, a.before.data(), a.errors.data(), b.before.data(), b.errors.data(), m, n, k);
            const auto moved = oracle::product(a.after.data(), k, b.after.data(), k, m, n, k);
            double signal = 0, error = 0;
            int outside = 0, changed = 0;
            for (size_t i = 0; i < sums.size(); ++i) {
                const double off = moved[i].value - sums[i].value;
                signal += sums[i].value * sums[i].value, error += off * off;
                outside += std::fabs(off) > sums[i].rebased + 1e-12 * sums[i].magnitude;
            }
            for (size_t i = 0; i < a.before.size(); ++i) {
                const double off = std::fabs(static_cast<double>(a.after[i]) - a.before[i]);
                outside += off > a.errors[i];
                changed += off != 0;
            }
            INFO(testing::describe(spec) << ", outliers " << outliers);
            CHECK(outside == 0);
            CHECK((error == 0 || 10 * std::log10(signal / error) >= 95));
            if (outliers > 1 && format == MXQ_FORMAT_MXFP8_E4M3) CHECK(changed > 0);
        }
}

namespace {

constexpr int64_t kRows = 700;

// More groups than a warp has lanes, every other one empty.
oracle::Ends many_ends() {
    oracle::Ends ends;
    for (int64_t g = 0; g < 70; ++g) ends.push_back((g + 1) / 2 * 20);
    return ends;
}
const oracle::Ends all_ends[] = {
    {100, 100, 129, 256, 256, 511}, {0, 300}, {1, 2, 3, 4, 300, 301, 302}, {17, 684}, many_ends()};

// Ends on the device that are clamped to the ones given: those of empty groups lie before.
oracle::Ends disordered(const testing::Device& device, oracle::Ends ends) {
    for (size_t g = ends.size(); !device.is_cpu() && --g > 0;)
        if (ends[g] == ends[g - 1]) ends[g] -= ends[g] / 2 + 1;
    return ends;
}

Operand grouped_operand(testing::Device& device, const oracle::Spec& spec, int64_t cols, const oracle::Groups& groups,
                        int32_t part, bool swizzled, const testing::DeviceEnds& ends, uint64_t seed) {
    Operand out;
    const auto x = wide_values(static_cast<size_t>(kRows * cols), cols, seed);
    out.stored = oracle::quantize_groups(spec, x, kRows, cols, groups, part, swizzled).on(oracle::untouchable);
    out.tensor = testing::make_tensor(spec, {std::nullopt, kRows, cols}, swizzled);
    out.buffers = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, out.stored);
    ends.set(out.tensor, groups);
    return out;
}

}  // namespace

MXQ_EACH_DEVICE("rebase: groups of rows") {
    int ran = 0;
    for (const oracle::Spec& spec : mx_specs())
        for (const oracle::Ends& ends_of_groups : all_ends)
            for (int which = 0; which < 4; ++which) {
                const bool swizzled = which & 1;
                const int64_t k = which & 2 ? 640 : 528, alignment = int64_t{1} << (ran % 8);
                const bool keeps = is_wide(spec) && k == 640 && spec.format <= MXQ_FORMAT_MXFP8_E5M2;
                const oracle::Groups groups{ends_of_groups, alignment};
                const int64_t count = groups.count(), columns = oracle::ceil_div(k, 128);
                testing::DeviceEnds ends(device, disordered(device, groups.ends), ran % 2);
                Operand a = grouped_operand(device, spec, k, groups, MXQ_PART_ROWWISE, swizzled, ends,
                                            static_cast<uint64_t>(++ran));
                testing::Tensor b = testing::make_tensor(spec, {count, 16, k}, swizzled);
                testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, kRows, 16});

                RebaseCall call{};
                auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
                const auto p = mxq::validate_grouped_gemm(*testing::any_context(), options, a.tensor, b, d, mxq::Check::Query);
                call.from = p.a;
                call.grouping = Grouping::Rows;
                call.grouped = {p.groups, p.group_rows};
                call.keeps_codes = keeps;
                const int32_t unit = ran % 3 == 0 ? 1 : 4;
                const int64_t bound = oracle::padded_bound(kRows, count, unit);
                Expected expected = poisoned(keeps ? 0 : bound * columns * 128, columns * bound);
                const oracle::GroupLayout layout(spec, kRows, k, groups, MXQ_PART_ROWWISE, swizzled);
                const auto starts = oracle::padded_starts(groups.ends, unit);
                for (size_t g = 0; g < groups.ends.size(); ++g) {
                    const Source source{spec, a.stored, layout.placement(g), oracle::group_rows(groups.ends, g), k};
                    const int64_t rows = starts[g + 1] - starts[g];
                    const Target target{starts[g] * columns * 128, columns * 128, columns * starts[g], 1, rows, rows,
                                        columns * 128, 1};
                    expect_scope(source, target, keeps, expected);
                }
                INFO(testing::describe(spec) << ", " << count << " groups, k " << k << ", alignment " << alignment
                                             << ", case " << which);
                check_call(device, call, 1, unit, expected);
            }
    CHECK(ran == 25 * 5 * 4);
}

MXQ_EACH_DEVICE("rebase: groups along the contraction") {
    int ran = 0;
    for (const oracle::Spec& spec : mx_specs())
        for (const oracle::Ends& ends_of_groups : all_ends)
            for (int which = 0; which < 4; ++which) {
                const bool swizzled = which & 1;
                const int64_t lines = which & 2 ? 132 : 33, alignment = is_wide(spec) ? 128 : int64_t{32} << (ran % 3);
                const bool keeps = is_wide(spec) && spec.format <= MXQ_FORMAT_MXFP8_E5M2;
                const oracle::Groups groups{ends_of_groups, 1, alignment};
                const int64_t count = groups.count();
                testing::DeviceEnds ends(device, disordered(device, groups.ends), ran % 2);
                Operand a = grouped_operand(device, spec, lines, groups, MXQ_PART_COLUMNWISE, swizzled, ends,
                                            static_cast<uint64_t>(++ran));
                testing::Tensor b = testing::make_tensor(spec, {std::nullopt, kRows, 16}, swizzled);
                ends.set(b, groups);
                testing::Tensor d = testing::make_tensor(MXQ_FORMAT_F32, {count, lines, 16});

                auto options = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N);
                const auto p = mxq::validate_grouped_gemm(*testing::any_context(), options, a.tensor, b, d, mxq::Check::Query);
                RebaseCall call{};
                call.from = p.a;
                call.grouping = Grouping::Contraction;
                call.grouped = {p.groups, p.group_rows};
                call.keeps_codes = keeps;
                const int64_t capacity = oracle::padded_bound(kRows, count, 128);
                Expected expected = poisoned(keeps ? 0 : lines * capacity, lines * capacity / 128);
                const oracle::GroupLayout layout(spec, kRows, lines, groups, MXQ_PART_COLUMNWISE, swizzled);
                const auto starts = oracle::padded_starts(groups.ends, 128);
                for (size_t g = 0; g < groups.ends.size(); ++g) {
                    const Source source{spec, a.stored, layout.placement(g), lines, layout.padded(g)};
                    const Target target{starts[g], capacity, starts[g] / 128 * lines, 1, lines, lines,
                                        starts[g + 1] - starts[g], 1};
                    expect_scope(source, target, keeps, expected);
                }
                INFO(testing::describe(spec) << ", " << count << " groups, lines " << lines << ", alignment " << alignment
                                             << ", case " << which);
                check_call(device, call, 1, 1, expected);
            }
    CHECK(ran == 25 * 5 * 4);
}
