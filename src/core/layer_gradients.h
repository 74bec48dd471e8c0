// Holds what kernels of the expert layer's gradients receive.
#pragma once
#include "core/layer_problem.h"

namespace mxq {

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
