// The suite "layer": an expert layer by one call and by single verbs, and mxq_route for many numbers of choices.
#pragma once

#include "options.h"
#include "rates.h"

// Prints its tables. Returns whether no row failed.
bool print_layer_suite(Device& device, const std::vector<Library>& libraries, const Settings& settings);
