#include "problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace {

uint64_t hash(uint64_t value) {
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD;
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53;
    return value ^ value >> 33;
}

template <class T>
void upload(Buffer& buffer, const std::vector<T>& values) {
    check(cudaMemcpy(buffer.reserve<T>(values.size()), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

// A choice of a token in double: what its expert computes for it.
struct Choice {
    int32_t expert;
    double weight;
    std::vector<double> h, dz;  // silu(z), without the weight, and the gradient of z
    double weight_gradient = 0;
};

double silu(double z) { return z / (1 + std::exp(-z)); }
double silu_slope(double z) {
    const double s = 1 / (1 + std::exp(-z));
    return s * (1 + z * (1 - s));
}

Choice compute(const Problem& problem, int64_t token, int32_t expert, double weight, int64_t first_unit, int64_t units) {
    const auto [width, hidden] = std::pair(problem.shape.width, problem.shape.hidden);
    const Numbers x = problem.x(), dy = problem.dy(), up = problem.up(), down = problem.down();
    Choice choice{expert, weight, {}, {}};
    for (int64_t u = first_unit; u < first_unit + units; ++u) {
        double z = 0, dh = 0;
        for (int64_t c = 0; c < width; ++c) {
            z += double(x(token * width + c)) * up((expert * hidden + u) * width + c);
            dh += double(dy(token * width + c)) * down((expert * width + c) * hidden + u);
        }
        choice.h.push_back(silu(z));
        choice.dz.push_back(weight * dh * silu_slope(z));
        choice.weight_gradient += dh * silu(z);
    }
    return choice;
}

}  // namespace

float Problem::scale_of(int64_t terms) { return std::ldexp(1.0f, -std::bit_width(uint64_t(terms)) / 2); }

int64_t Problem::first_token(int rank, int ranks) const {
    if (!first_rank_idle || ranks == 1) return tokens * rank / ranks;
    return rank == 0 ? 0 : tokens * (rank - 1) / (ranks - 1);
}

void Problem::route(int64_t token, int32_t* experts, float* weights) const {
    float sum = 0;
    for (int32_t j = 0; j < shape.top; ++j) {
        const auto chosen_before = [&](int32_t e) { return std::find(experts, experts + j, e) != experts + j; };
        uint64_t random = hash(uint64_t(token * shape.top + j + 1));
        weights[j] = float(64 + (random >> 40 & 255));
        sum += weights[j];
        experts[j] = routing == Routing::kFirstExperts ? j : int32_t(random % uint64_t(shape.experts));
        while (chosen_before(experts[j]) || (routing == Routing::kWithoutExpert1 && experts[j] == 1))
            experts[j] = (experts[j] + 1) % shape.experts;
    }
    for (int32_t j = 0; j < shape.top; ++j) weights[j] /= sum;
}

RankData::RankData(const Problem& problem, int rank, int ranks) {
    const Shape& shape = problem.shape;
    const int64_t first = problem.first_token(rank, ranks), own = shape.experts / ranks, matrix = shape.width * shape.hidden;
    tokens = problem.first_token(rank + 1, ranks) - first;
    top = shape.top;
    const auto numbers = uint64_t(tokens * shape.width), slots = uint64_t(tokens * shape.top), all = uint64_t(own * matrix);
    fill(problem.x(), uint64_t(first * shape.width), int64_t(numbers), x.reserve<bf16>(numbers), nullptr);
    fill(problem.dy(), uint64_t(first * shape.width), int64_t(numbers), dy.reserve<bf16>(numbers), nullptr);
    fill(problem.up(), uint64_t(rank) * all, int64_t(all), up.reserve<bf16>(all), nullptr);
    fill(problem.down(), uint64_t(rank) * all, int64_t(all), down.reserve<bf16>(all), nullptr);
    if (problem.nan_token >= first && problem.nan_token < first + tokens) {
        const bf16 nan = __float2bfloat16_rn(std::numeric_limits<float>::quiet_NaN());
        check(
            cudaMemcpy(x.as<bf16>() + (problem.nan_token - first) * shape.width, &nan, sizeof nan, cudaMemcpyHostToDevice));
    }
    std::vector<int32_t> chosen(slots);
    std::vector<float> shares(slots);
    for (int64_t t = 0; t < tokens; ++t) problem.route(first + t, &chosen[t * shape.top], &shares[t * shape.top]);
    for (int32_t& expert : chosen)
        if (expert < problem.kept_from || expert >= problem.kept_to) expert = -1;
    upload(experts, chosen);
    upload(weights, shares);
    y.reserve<bf16>(numbers), dx.reserve<bf16>(numbers), weight_gradients.reserve<float>(slots);
    d_up.reserve<float>(all), d_down.reserve<float>(all);
    check(cudaDeviceSynchronize());
}

TokenReference reference_of_token(const Problem& problem, int64_t token) {
    const auto [width, hidden] = std::pair(problem.shape.width, problem.shape.hidden);
    std::vector<int32_t> experts(size_t(problem.shape.top));
    std::vector<float> weights(experts.size());
    problem.route(token, experts.data(), weights.data());
    TokenReference out{std::vector<double>(size_t(width)), std::vector<double>(size_t(width)), {}};
    for (size_t j = 0; j < experts.size(); ++j) {
        const Choice choice = compute(problem, token, experts[j], weights[j], 0, hidden);
        for (int64_t c = 0; c < width; ++c)
            for (int64_t u = 0; u < hidden; ++u) {
                out.y[c] += choice.weight * choice.h[u] * problem.down()((choice.expert * width + c) * hidden + u);
                out.dx[c] += choice.dz[u] * problem.up()((choice.expert * hidden + u) * width + c);
            }
        out.weight_gradients.push_back(choice.weight_gradient);
    }
    return out;
}

UnitReference reference_of_unit(const Problem& problem, int32_t expert, int64_t unit) {
    const int64_t width = problem.shape.width;
    UnitReference out{std::vector<double>(size_t(width)), std::vector<double>(size_t(width))};
    std::vector<int32_t> experts(size_t(problem.shape.top));
    std::vector<float> weights(experts.size());
    for (int64_t token = 0; token < problem.tokens; ++token) {
        problem.route(token, experts.data(), weights.data());
        for (size_t j = 0; j < experts.size(); ++j) {
            if (experts[j] != expert) continue;
            const Choice choice = compute(problem, token, expert, weights[j], unit, 1);
            for (int64_t c = 0; c < width; ++c) {
                out.up[c] += choice.dz[0] * problem.x()(token * width + c);
                out.down[c] += choice.weight * choice.h[0] * problem.dy()(token * width + c);
            }
        }
    }
    return out;
}

double Sqnr::db() const { return 10 * std::log10(signal / error); }
