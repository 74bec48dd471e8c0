// The MoE layer's weights and tokens as the file holds them, and the layer and its gradients in double precision, for
// comparison.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../common/safetensors.h"

struct Model {
    explicit Model(const std::string& path);

    safetensors::File file;
    int64_t experts, tokens, width, hidden;               // numbers per token: width outside, hidden between `up` and `down`
    std::vector<int32_t> ends;                            // expert e has the tokens from ends[e - 1] up to ends[e]
    const uint8_t *token_data, *up_weight, *down_weight;  // BF16
    const uint8_t* grad_output;                           // BF16, (tokens, width): gradient of the layer's output
    std::vector<float> up_bias, down_bias;

    int expert_of(int64_t token) const;
};

struct Reference {
    std::vector<double> up;      // (tokens, hidden): the output of `up`, bias included
    std::vector<double> hidden;  // (tokens, hidden): GELU of the output of `up`, the input of `down`
    std::vector<double> output;  // (tokens, width): the output of the layer

    // Gradients of `down`:
    std::vector<double> input_gradient;   // (tokens, hidden)
    std::vector<double> weight_gradient;  // (experts, width, hidden)
};

Reference reference_layer(const Model& model);

// Returns a product with the bias of its expert added to each token.
std::vector<double> add_bias(const Model& model, std::span<const float> product, std::span<const float> bias);

double gelu(double x);

// Returns the signal-to-quantization-noise ratio in dB: 10 log10 of the reference's energy over the energy of the
// difference.
double sqnr_db(std::span<const double> reference, std::span<const double> result);
double largest_error(std::span<const double> reference, std::span<const double> result);
