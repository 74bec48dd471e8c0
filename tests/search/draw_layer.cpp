// Draws the routing, activation and gradients of a call of the layer's verbs.
#include "draw.h"
#include "pick.h"
#include "values.h"

namespace search {
namespace {

using cases::Random;

void draw_activation(Call& call, Random& random) {
    call.activation = static_cast<int32_t>(random.below(9));
    if (call.verb == "activate_backward") call.activation %= 5;
    call.gate_layout = static_cast<int32_t>(random.below(5));
    if (one_in(random, 2)) {
        const float alphas[] = {1, 1.702f, 0, -1, 1e-30f}, limits[] = {0.5f, 7, INFINITY, 0x1p-149f},
                    addends[] = {0, 1, -0.0f, 1e30f};
        call.clamp_alpha = pick(random, alphas), call.clamp_limit = pick(random, limits),
        call.clamp_addend = pick(random, addends);
    }
    const int32_t formats[] = {0, 0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16};
    call.bias = pick(random, formats), call.row_weights = pick(random, formats);
    call.bias_gradient = one_in(random, 2), call.weight_gradient = one_in(random, 2);
    if (one_in(random, 20)) {  // rows of which the CPU makes several pieces
        call.shape = {1 + random.below(4), 1000 + random.below(1200)};
        call.groups.reset();
    }
}

// Draws how many tokens there are and how many choices each has.
void draw_choices(Call& call, Random& random) {
    const int64_t choices[] = {1, 1, 2, 3, 4, 8, 9}, tokens[] = {1, 2, 16, 31, 64, 129, 257};
    int64_t& count = call.shape[0];
    count = one_in(random, 12) ? 0 : one_in(random, 2) ? pick(random, tokens) : 1 + random.below(40);
    call.shape[1] = pick(random, choices);
    const char* const ways[] = {"uniform", "uniform", "one", "few", "dropped", "none", "sorted"};
    call.ids = pick(random, ways);
    call.id_type = one_in(random, 2) ? MXQ_TYPE_INT64 : MXQ_TYPE_INT32;
    const int32_t formats[] = {0, MXQ_FORMAT_F32, MXQ_FORMAT_BF16};
    call.choice_weights = pick(random, formats);
}

void draw_local_experts(Call& call, Random& random, int64_t experts) {
    if (!one_in(random, 3)) return;
    call.local_experts = 1 + random.below(experts);
    call.first_expert = random.below(experts - call.local_experts + 1);
}

void draw_route(Call& call, Random& random) {
    const int64_t experts[] = {1, 2, 8, 31, 32, 128, 129, 256, 1000, 1024, 4095, MXQ_MAX_GROUPS};
    call.shape[2] = pick(random, experts);
    if (one_in(random, 40)) call.shape[0] = 1000 + random.below(9000 / call.shape[1]);
    if (one_in(random, 300)) call.shape = {1 + random.below(90'000), 1, 1 + random.below(40)};
    call.counts_dropped = one_in(random, 2);
    draw_local_experts(call, random, call.shape[2]);
}

void draw_sums(Call& call, Random& random) {
    const int64_t columns[] = {0, 1, 7, 16, 64, 255, 256, 257, 1024, 1032, 2056, 4100};
    call.shape[2] = one_in(random, 2) ? pick(random, columns) : 1 + random.below(100);
    while (call.shape[0] * call.shape[1] * call.shape[2] > 60'000) call.shape[0] /= 2;
    call.residual = one_in(random, 2);
    call.weight_gradient = !one_in(random, 3), call.row_gradient = !one_in(random, 3);
    call.computed = one_in(random, 2);
    draw_local_experts(call, random, 8);
}

}  // namespace

void draw_layer(Call& call, cases::Random& random) {
    if (call.is_activation()) return draw_activation(call, random);
    call.shape = {1, 1, 1};
    draw_choices(call, random);
    call.verb == "route" ? draw_route(call, random) : draw_sums(call, random);
}

}  // namespace search
