// Declares the targets of fuzzing: a function for each verb, for descriptors, options and environment variables.
#ifndef MXQ_TESTS_FUZZ_TARGETS_H
#define MXQ_TESTS_FUZZ_TARGETS_H

#include "input.h"

#include <span>

namespace fuzz {

struct Target {
    const char* name;
    void (*run)(Input&);
};

std::span<const Target> targets();

// These take a tensor to another one.
void quantize(Input&);
void requantize(Input&);
void dequantize(Input&);
void amax(Input&);
void convert(Input&);
void groups(Input&);
void scales(Input&);
// These multiply tensors.
void gemm(Input&);
void grouped_gemm(Input&);
// These are the steps of an expert layer, and the layer.
void activate(Input&);
void activate_backward(Input&);
void route(Input&);
void combine(Input&);
void expert_layer(Input&);
// Descriptors with wild numbers and addresses, which setters, getters, sizes and queries must not read.
void descriptors(Input&);
// Environment variables, read when a context is created.
void environment(Input&);

}  // namespace fuzz

#endif
