// A layer's numbers and routes, which every rank makes alike, and what the layer gives in double precision.
#pragma once

#include <vector>

#include "layer.hpp"

enum class Routing { kEven, kFirstExperts, kWithoutExpert1 };

struct Problem {
    Shape shape;
    int64_t tokens;  // of all ranks
    Routing routing = Routing::kEven;
    int64_t nan_token = -1;                      // whose first number is NaN
    bool first_rank_idle = false;                // rank 0 of several has no tokens
    int32_t kept_from = 0, kept_to = INT32_MAX;  // experts; choices of others are none

    int64_t first_token(int rank, int ranks) const;
    void route(int64_t token, int32_t* experts, float* weights) const;
    Numbers x() const { return {1, 1}; }
    Numbers dy() const { return {2, 1}; }
    Numbers up() const { return {3, scale_of(shape.width)}; }
    Numbers down() const { return {4, scale_of(shape.hidden)}; }

private:
    static float scale_of(int64_t terms);  // keeps a sum of so many products near the size of one number
};

// Holds what a rank brings to the layer, and what the layer gives it.
struct RankData {
    int64_t tokens;
    int32_t top;
    Buffer x, dy, experts, weights, up, down, y, dx, weight_gradients, d_up, d_down;

    RankData(const Problem& problem, int rank, int ranks);
    Tokens input() const { return {x.as<bf16>(), experts.as<int32_t>(), weights.as<float>(), tokens}; }
    Gradients gradients() const {
        return {dx.as<bf16>(), weight_gradients.as<float>(), d_up.as<float>(), d_down.as<float>()};
    }
};

// In double, without a rounding between: y, dx and the gradients of the weights of one token.
struct TokenReference {
    std::vector<double> y, dx, weight_gradients;
};
TokenReference reference_of_token(const Problem& problem, int64_t token);

// The gradients of row `unit` of an expert's `up` and of column `unit` of its `down`.
struct UnitReference {
    std::vector<double> up, down;
};
UnitReference reference_of_unit(const Problem& problem, int32_t expert, int64_t unit);

// Signal over error, summed over pairs of numbers.
struct Sqnr {
    double signal = 0, error = 0;
    void add(double value, double exact) {
        signal += exact * exact;
        error += (value - exact) * (value - exact);
    }
    double db() const;
};
