// Draws calls: the seed and the number of a call determine all of it.
#ifndef MXQ_TESTS_SEARCH_DRAW_H
#define MXQ_TESTS_SEARCH_DRAW_H

#include "call.h"

namespace search {

extern const std::vector<std::string> verbs;

// Draws what a verb of the layer adds, and the shape of one with a routing.
void draw_layer(Call& call, cases::Random& random);

// Returns a call of this verb, or of any verb but those of the layer for ""; with the formats and scalings of `like`, if any.
Call draw_call(uint64_t seed, int64_t number, const std::string& verb, const Call* like = nullptr);

// Returns a call of a verb of the layer.
Call draw_layer_call(uint64_t seed, int64_t number);

}  // namespace search

#endif
