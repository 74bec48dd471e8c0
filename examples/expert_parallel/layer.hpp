// A layer of experts, two matrices each, spread over ranks: y = sum over a token's choices of weight * down silu(up x).
//
//     ranks of each token, counts to all | quantize, pack by rank | to the ranks
//     rows by expert | up, silu, down | sum of a token's experts | back | sum over ranks
//
// A token travels once to each rank that has one of its experts, with its experts and weights, and comes back as one row:
// the sum of that rank's experts. The backward pass takes the same way with the gradients of y, and makes the weight
// gradients of requantized rows.
#pragma once

#include <mxq/mxq.hpp>
#include <optional>
#include <vector>

#include "../common/cuda.hpp"
#include "kernels.hpp"
#include "transport.hpp"

struct Shape {
    int64_t width, hidden;  // of the tokens, and between an expert's two matrices: multiples of 128
    int32_t experts, top;   // of all ranks, each of which has as many; choices of a token
};

// Chooses the exchange: send a token once to each rank (kTokens), or once for each of its choices (kChoices).
enum class Exchange { kTokens, kChoices };

struct Recipe {
    mxq_format format = MXQ_FORMAT_MXFP8_E4M3;  // of products, and on the way to the experts; or BF16
    mxq_scaling rows = MXQ_SCALING_1X32;        // of tokens, activations and their gradients, along the rows
    mxq_scaling columns = MXQ_SCALING_1X32;     // of the same along the columns, for the gradients of the weights
    mxq_scaling weights = MXQ_SCALING_1X32;     // of the experts' matrices
    Exchange exchange = Exchange::kTokens;
    bool quantized_back = false;           // rows come back quantized, too
    bool overlap = false;                  // what returns travels during the products of the weight gradients
    int32_t capacity = 0;                  // tokens that go from a rank to each rank; 0: as many as there are
    const char* implementation = nullptr;  // of the products; else the best one
    bool quantized() const { return format != MXQ_FORMAT_BF16; }
};

// On the device; gradients of the weights are F32, what else belongs to tokens is BF16.
struct Tokens {
    const bf16* x;
    const int32_t* experts;  // (tokens, top)
    const float* weights;    // (tokens, top)
    int64_t count;
};
struct Gradients {
    bf16* x;           // (tokens, width)
    float* weights;    // (tokens, top)
    float *up, *down;  // of the rank's experts: (experts, hidden, width), (experts, width, hidden)
};

// Holds what a pass took: milliseconds of the stream that did it, by kind of work, and bytes that left the rank.
enum Stage { kQuantize, kCounts, kExchange, kProduct, kOther, kStages };
struct Figures {
    float ms[kStages] = {};
    int64_t wire_bytes = 0;
};

class Layer {
public:
    // up and down: BF16 weights of the rank's experts, (experts, hidden, width) and (experts, width, hidden). They stay
    // there.
    Layer(const mxq::context& context, Transport& transport, Streams streams, const Shape& shape, const Recipe& recipe,
          const bf16* up, const bf16* down);
    ~Layer();

    // Both enqueue, but without a capacity forward() waits for counts. backward() goes with the last forward().
    void forward(const Tokens& tokens, bf16* y);
    void backward(const bf16* dy, const Gradients& gradients);

    // Exchanges once more, there and back, what the last backward() exchanged: for timing.
    void exchange_again();

    // Returns the figures since the last call, after a wait. Not for passes in a CUDA graph: see set_timed.
    Figures take_figures();
    void set_timed(bool timed);
    // Returns the implementations of the products, and counts tokens of the last forward() that found no place at a rank.
    std::string implementations() const;
    int64_t dropped() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};
