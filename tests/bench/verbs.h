// The verbs of a program: main.cpp runs them, and each program has a list of its own.
#pragma once

#include <span>

#include "backend.h"
#include "report.h"

struct Verb {
    const char* name;
    void (*bench)(Backend&, const Arguments&, Report&);
};

const char* program_name();
std::span<const Verb> verbs();

void bench_quantize(Backend& backend, const Arguments& arguments, Report& report);
void bench_dequantize(Backend& backend, const Arguments& arguments, Report& report);
void bench_swizzle(Backend& backend, const Arguments& arguments, Report& report);
void bench_formats(Backend& backend, const Arguments& arguments, Report& report);
void bench_groups(Backend& backend, const Arguments& arguments, Report& report);
void bench_gemm(Backend& backend, const Arguments& arguments, Report& report);
void bench_rebase(Backend& backend, const Arguments& arguments, Report& report);
void bench_cublaslt(Backend& backend, const Arguments& arguments, Report& report);
