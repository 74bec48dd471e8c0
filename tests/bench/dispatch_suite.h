// Times random products by every implementation that takes them: the suite "dispatch".
#pragma once

#include "options.h"

// Prints its table, and writes the JSON where the settings have one. Returns whether no implementation failed.
bool print_dispatch_suite(Device& device, const Library& library, const Settings& settings, const std::string& command);
