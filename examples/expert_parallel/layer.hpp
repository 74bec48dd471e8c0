// A layer of experts, two matrices each, spread over ranks: y = sum over a token's choices of weight * down silu(up x).
//
//     count slots | counts to all | quantize, order by expert | codes, scales to the experts | up, silu, down | back | sum
//
// Rows of an expert arrive one source after another, where its group of rows lies, so that products read what arrived. The
// backward pass takes the same way with the gradients of y, and makes the weight gradients of requantized rows.
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

struct Recipe {
    bool quantized = true;                 // MXFP8 E4M3 in products and on the way to the experts; else BF16
    const char* implementation = nullptr;  // of the products; else the best one
    int32_t sm_count = 0;                  // SMs that products take; 0: all
    int32_t parts = 1;                     // of the tokens, one travelling while another is multiplied
    int32_t capacity = 0;                  // rows for an expert from one part of a rank's tokens; 0: as many as choose it
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
enum Stage { kQuantize, kExchange, kProduct, kOther, kStages };
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

    // Both enqueue, but without a capacity forward() first waits for counts. backward() goes with the last forward().
    void forward(const Tokens& tokens, bf16* y);
    void backward(const bf16* dy, const Gradients& gradients);

    // Returns the figures since the last call, after a wait. Not for passes in a CUDA graph: see set_timed.
    Figures take_figures();
    void set_timed(bool timed);
    // Returns the implementation of the last product, and counts slots of the last forward() that found no place.
    const std::string& implementation() const;
    int64_t dropped() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};
