// Holds what the kernels that keep codes as codes ask of a source's lines: a thread's eight codes of a line are all there or
// none, and can be read at once.
#pragma once
#include "core/error.h"
#include "cuda/tile/code_patch.cuh"
#include "dispatch/reason.h"

namespace mxq::cuda {

// Returns whether all lines of a part are whole aligned pieces of 16 bytes.
inline bool has_whole_pieces(const QuantizedPart& part, bool grouped) {
    return code_access(part, grouped).bytes >= 16 && part.length % (8 * 16 / part.bits) == 0;
}

// Returns whether values over their scale may be 7 or more, beyond what E2M1 codes of requantize_via_f16.h take.
inline bool reaches_seven(const QuantizeProblem& problem) {
    // FLOOR and EVEN give values up to 8, SATURATE Inf.
    const bool below_seven = problem.scale_rounding == ScaleRounding::Rceil || problem.scale_rounding == ScaleRounding::Ceil;
    return !below_seven || problem.nonfinite == Nonfinite::Saturate;
}

// Returns why the source's lines do not serve; empty where they do. A scale above the blocks' that the caller gives may be
// anything: then no thread may have lines that exist beside such that do not.
inline Reason declines_source_lines(const QuantizeProblem& problem) {
    const Source& source = problem.source;
    const QuantizedPart& from = source.quantized;
    const bool grouped = problem.grouped.set();
    if (from.columnwise && grouped) return "needs a source without groups or a rowwise one, found groups along its lines";
    const int64_t length = from.columnwise ? source.rows : source.cols, lines = from.columnwise ? source.cols : source.rows;
    if (length % kPatchPositions != 0)
        return [length] {
            return format_text("needs lines of a multiple of %d codes in the source, found %lld", kPatchPositions,
                               (long long)length);
        };
    if (from.decode_scale && (grouped || lines % kPatchLines != 0))
        return [] {
            return format_text("needs an amax, or a multiple of %d lines without groups, found a decode scale", kPatchLines);
        };
    const int bytes = code_access(from, grouped).bytes;
    if (bytes < from.bits)
        return [bits = from.bits, bytes] {
            return format_text("needs lines of the source that are aligned to %d bytes, found %d", bits, bytes);
        };
    return "";
}

}  // namespace mxq::cuda
