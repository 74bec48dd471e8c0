// Formats and scalings by the names that the command line has for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct Format {
    int32_t id;
    const char* name;
    std::vector<int32_t> scalings;  // that it takes, its own first; none: plain numbers
    bool plain() const { return scalings.empty(); }
};

// An operand's format and scaling, "mxfp8_e4m3" or "mxfp8_e4m3:128x128".
struct Quantization {
    const Format* format;
    int32_t scaling;  // MXQ_SCALING_NONE where the format is plain
};

// Throws std::runtime_error for a name that there is not, and for a scaling that the format does not take.
Quantization parse_quantization(const std::string& text);
std::string text(const Quantization& quantization);  // without the scaling that is the format's own
int32_t parse_scaling(const std::string& name);
std::string scaling_text(int32_t scaling);  // "none" for MXQ_SCALING_NONE
