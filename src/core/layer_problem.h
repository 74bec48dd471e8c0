// Holds what kernels of the expert layer receive: routing, gathered rows, weighted sums and their gradients.
#pragma once
#include "core/problem.h"

namespace mxq {

// The weight of each choice, or none.
struct ChoiceWeights {
    const void* values;
    int32_t format;  // MXQ_FORMAT_F32 or BF16; 0: none
    MXQ_HD bool set() const { return format != 0; }

    // Returns the weight of a choice, 1 where there are none.
    MXQ_HOST float at(int64_t choice) const {
        if (!set()) return 1.0f;
        return format == MXQ_FORMAT_F32 ? static_cast<const float*>(values)[choice]
                                        : to_float(static_cast<const Bf16*>(values)[choice]);
    }
};

// Sorts the choices of all tokens by expert. Choice i is one of token i / choices.
struct RouteProblem {
    int64_t tokens;
    int32_t choices, experts;
    int32_t first, count;  // the experts of this rank
    const void* ids;
    int32_t id_type;  // MXQ_TYPE_*
    ChoiceWeights weights;
    int32_t* ends;         // of each expert of this rank
    int32_t* row_tokens;   // of each row; -1 past the last end
    int32_t* choice_rows;  // of each choice; -1 where it is dropped
    float* row_weights;    // of each row, where there are weights; 0 past the last end
    int32_t* dropped;      // NULL: not wanted

    MXQ_HD int64_t rows() const { return tokens * choices; }
};

// Copies rows by index, which lie `from_stride` bytes apart, to rows `to_stride` bytes apart.
struct GatherProblem {
    const uint8_t* from;
    uint8_t* to;
    int64_t from_stride, to_stride;
    int64_t rows, row_bytes;
    RowIndices by_index;

    uint64_t bytes() const { return uint64_t(rows * to_stride); }
};

// Sums the rows of each token's choices: out[t] = residual[t] + sum over j of weight[t, j] * in[row of (t, j)], j ascending.
struct CombineProblem {
    int64_t tokens;
    int32_t choices;
    const int32_t* choice_rows;
    ChoiceWeights weights;  // none: 1
    PlainMatrix in, out;
    PlainMatrix residual;
    bool has_residual;
};
inline bool is_nothing(const CombineProblem& p) { return p.out.elements() == 0; }

// The gradients of a CombineProblem: d_in[row of (t, j)] = weight[t, j] * d_out[t], and d_weights[t, j] the sum of the
// products of d_out[t] and in[row of (t, j)].
struct CombineBackwardProblem {
    int64_t tokens;
    int32_t choices;
    const int32_t* choice_rows;
    int64_t rows;  // that choices may have
    ChoiceWeights weights;
    PlainMatrix d_out, in, d_in, d_weights;
    bool has_d_in, has_d_weights;  // `in` is there for the weights
};
inline bool is_nothing(const CombineBackwardProblem& p) { return p.tokens == 0; }

}  // namespace mxq
