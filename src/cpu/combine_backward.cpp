// The CPU implementation of combine_backward: a choice at a time.
#include <algorithm>

#include "core/context.h"
#include "core/group_view.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kPartials = 256;  // sums of products, of the columns that are as far apart

// Returns where a row begins; a matrix without columns may be at NULL.
template <class T>
T* row_of(const PlainMatrix& matrix, int64_t row) {
    return matrix.cols == 0 ? nullptr : static_cast<T*>(matrix.data) + row * matrix.row_stride;
}

// Stores the gradient of a row: that of its token times the weight.
void store_gradient(const CombineBackwardProblem& p, int64_t token, int64_t row, float weight) {
    with_plain(p.d_out.format, [&]<class From>(From) {
        with_plain(p.d_in.format, [&]<class To>(To) {
            const From* const from = row_of<From>(p.d_out, token);
            To* const to = row_of<To>(p.d_in, row);
            for (int64_t i = 0; i < p.d_out.cols; i++) to[i] = from_float<To>(multiply_rn(weight, to_float(from[i])));
        });
    });
}

// Returns the sum of the products of the token's gradient and a row, as a tree.
float sum_products(const CombineBackwardProblem& p, int64_t token, int64_t row) {
    float sums[kPartials] = {};
    with_plain(p.d_out.format, [&]<class A>(A) {
        with_plain(p.in.format, [&]<class B>(B) {
            const A* const a = row_of<A>(p.d_out, token);
            const B* const b = row_of<B>(p.in, row);
            for (int64_t first = 0; first < p.in.cols; first += kPartials) {
                const int64_t count = std::min(kPartials, p.in.cols - first);
                for (int64_t i = 0; i < count; i++)
                    sums[i] = add_rn(sums[i], multiply_rn(to_float(a[first + i]), to_float(b[first + i])));
            }
        });
    });
    for (int64_t distance = kPartials / 2; distance > 0; distance /= 2)
        for (int64_t i = 0; i < distance; i++) sums[i] = add_rn(sums[i], sums[i + distance]);
    return sums[0];
}

void run_choice(const CombineBackwardProblem& p, int64_t choice) {
    const int64_t token = choice / p.choices, row = p.choice_rows[choice];
    if (p.has_d_in && row >= 0) store_gradient(p, token, row, p.weights.at(choice));
    if (p.has_d_weights)
        row_of<float>(p.d_weights, token)[choice - token * p.choices] =
            row < 0 ? 0.0f : from_float<float>(sum_products(p, token, row));
}

void run(const Context& context, const CombineBackwardProblem& problem, const Launch&) {
    const int64_t count = problem.tokens * problem.choices;
    for_each_index(context.cpu->pool(), count, count * problem.d_out.cols,
                   [&](int64_t choice, int /*worker*/) { run_choice(problem, choice); });
}

}  // namespace

const CombineBackwardImplementation combine_backward = {.name = "cpu", .declines = needs_cpu, .run = run};

}  // namespace mxq::cpu
