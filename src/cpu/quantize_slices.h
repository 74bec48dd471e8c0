// Divides a quantize problem into slices, which are the problem itself or one for each of its groups: kernels know no groups.
//
//     rows        group 0   group 1            group 3        as the caller counts them
//     slice          0         1                  3           a matrix of its own: pointers at the group's start in the input
//     rectangles   0 1 2      3 4                 5           and in each part, lines and lengths with that part's padding
#pragma once
#include <algorithm>
#include <vector>

#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/engine.h"
#include "cpu/kernels.h"
#include "cpu/partition.h"

namespace mxq::cpu {

// Returns whether scales stand for whole K-major rows, or for more.
inline bool has_whole_lines(const QuantizeProblem& problem) { return problem.tile.length == 0; }

// Returns whether every K-major row has one scale byte, in which its maximum has no room.
inline bool has_line_bytes(const QuantizeProblem& problem) { return problem.tile.is_row() && problem.format->is_mx(); }

// Returns where quantize gathers maxima before it encodes. FP8 scales of whole K-major rows are made from the current maxima
// in the end: the maxima are gathered in the memory of these scales.
inline Maxima maxima_for_quantize(const QuantizeProblem& problem, const QuantizedPart& part) {
    if (problem.compute_amax) return {part.amax, part.scope_stride, 0};
    if (!has_whole_lines(problem)) return {};
    if (has_line_bytes(problem)) return {part.amax, part.lines, 1};
    float* const first = problem.quantization_scale ? part.amax : reinterpret_cast<float*>(part.scales);
    return {first, part.layout.matrix_scales, part.layout.line_stride};
}

// Calls body(part) for the parts that the problem has.
template <class Body>
void for_each_part(const QuantizeProblem& problem, const Body& body) {
    if (problem.has_rowwise) body(problem.rowwise);
    if (problem.has_columnwise) body(problem.columnwise);
}

using MaximaOf = Maxima (*)(const QuantizeProblem&, const QuantizedPart&);

class Slices {
public:
    Slices(const QuantizeProblem& problem, MaximaOf maxima_of) : problem_(problem), maxima_of_(maxima_of) {
        if (!problem.grouped.set()) {
            whole_ = slice_of(problem);
            return;
        }
        groups_ = read_groups(problem.grouped, "out");
        source_ = group_starts(groups_, problem.source.group_units());
        rowwise_ = group_starts(groups_, problem.rowwise.units);
        columnwise_ = group_starts(groups_, problem.columnwise.units);
        first_rectangle_.reserve(groups_.size() + 1);
        first_rectangle_.push_back(0);
        for (const Group& group : groups_)
            first_rectangle_.push_back(first_rectangle_.back() + grid_of_rows(padded(group.rows)).count());
    }

    // Returns how many maxima a part has, one after another: those of whole K-major rows, or the global ones of NVFP4.
    int64_t maxima_count(const QuantizedPart& part) const {
        const bool grouped = problem_.grouped.set(), whole = has_whole_lines(problem_);
        const int64_t groups = problem_.grouped.groups.count;
        if (problem_.tile.is_row()) {
            if (!grouped) return part.matrices * part.lines;
            return part.columnwise ? groups * part.lines : rowwise_.back().codes;
        }
        const bool has_scope = whole ? part.layout.matrix_scales != 0 : part.scope_stride != 0;
        return !has_scope ? 1 : grouped ? groups : part.matrices;
    }

    // Sets the scales of K-major rows that only pad a group to +0, where every K-major row has one scale.
    void clear_padding(const QuantizedPart& part) const {
        if (part.columnwise || part.layout.line_stride == 0) return;
        auto* const scales = reinterpret_cast<float*>(part.scales);
        for (size_t g = 0; g < groups_.size(); g++)
            std::fill(scales + rowwise_[g].codes + groups_[g].rows, scales + rowwise_[g + 1].codes, 0.0f);
    }

    // Calls body(slice, rectangle, worker) for every rectangle of every slice.
    template <class Body>
    void for_each(ThreadPool& pool, const Body& body) const {
        const Source& in = problem_.source;
        if (!problem_.grouped.set()) {
            for_each_rectangle(pool, grid_of(in.matrices, in.rows, in.cols, transposes(problem_)),
                               [&](const Rectangle& at, int worker) { body(whole_, at, worker); });
            return;
        }
        for_each_index(pool, first_rectangle_.back(), in.rows * in.cols, [&](int64_t index, int worker) {
            const auto above = std::upper_bound(first_rectangle_.begin(), first_rectangle_.end(), index);
            const auto g = size_t(above - first_rectangle_.begin() - 1);
            body(slice_of(g), grid_of_rows(padded(groups_[g].rows)).at(index - first_rectangle_[g]), worker);
        });
    }

    void gather(const Engine& engine) const {
        for_each(engine.pool(), [&](const QuantizeSlice& slice, const Rectangle& region, int) {
            engine.kernels().gather_maxima(slice, region);
        });
    }

private:
    Grid grid_of_rows(int64_t rows) const { return grid_of(1, rows, problem_.source.cols, transposes(problem_)); }

    // Returns the rows of a group in the part that pads it most.
    int64_t padded(int64_t rows) const {
        const int64_t rowwise = problem_.has_rowwise ? round_up(rows, problem_.rowwise.units.codes) : 0;
        const int64_t columnwise = problem_.has_columnwise ? round_up(rows, problem_.columnwise.units.codes) : 0;
        return std::max(rowwise, columnwise);
    }

    QuantizeSlice slice_of(const QuantizeProblem& problem) const {
        return {problem, problem.has_rowwise ? maxima_of_(problem, problem.rowwise) : Maxima{},
                problem.has_columnwise ? maxima_of_(problem, problem.columnwise) : Maxima{}, 0, 0};
    }

    QuantizeSlice slice_of(size_t g) const {
        const int64_t rows = groups_[g].rows;
        QuantizeProblem problem = problem_;
        Source& source = problem.source;
        if (source.is_quantized()) source.quantized = part_of_group(source.quantized, source_[g], rows);
        else if (!source.is_plain()) source = group_of(source, source_[g], rows);
        else source.plain = rows_of(source.plain, source_[g].codes, rows);
        source.rows = rows;
        if (problem.has_rowwise) problem.rowwise = padded_part(problem.rowwise, rowwise_[g], rows);
        if (problem.has_columnwise) problem.columnwise = padded_part(problem.columnwise, columnwise_[g], rows);
        const ScaleLayout& layout = problem.has_rowwise ? problem.rowwise.layout : problem.columnwise.layout;
        if (problem.quantization_scale) problem.quantization_scale += int64_t(g) * layout.group_index_stride;
        QuantizeSlice slice = slice_of(problem);
        slice.first_row = rowwise_[g].codes;
        slice.first_chunk = columnwise_[g].codes / kNvBlock;
        return slice;
    }

    // Returns a group as a part, with the padding of its codes and with the columns of scales that are stored.
    static QuantizedPart padded_part(const QuantizedPart& part, const GroupStart& start, int64_t rows) {
        if (!part.codes) {  // it has an amax alone
            QuantizedPart bare = part;
            bare.amax +=
                start.index * (part.layout.block == MXQ_MAX_DIM ? part.layout.group_index_stride : part.scope_stride);
            return bare;
        }
        QuantizedPart group = part_of_group(part, start, rows);
        const int64_t stored = round_up(rows, part.units.codes);
        (part.columnwise ? group.length : group.lines) = stored;
        const bool has_tiles = !part.layout.swizzled && part.layout.tile_rows != 1;
        if (part.columnwise) group.layout.columns = ceil_div(has_tiles ? rows : stored, part.layout.block);
        return group;
    }

    const QuantizeProblem& problem_;
    const MaximaOf maxima_of_;
    QuantizeSlice whole_{};
    std::vector<Group> groups_;
    std::vector<GroupStart> source_, rowwise_, columnwise_;
    std::vector<int64_t> first_rectangle_;
};

}  // namespace mxq::cpu
