#pragma once

#include "backend.h"
#include "report.h"

void bench_quantize(Backend& backend, const Arguments& arguments, Report& report);
void bench_dequantize(Backend& backend, const Arguments& arguments, Report& report);
void bench_swizzle(Backend& backend, const Arguments& arguments, Report& report);
void bench_formats(Backend& backend, const Arguments& arguments, Report& report);
void bench_groups(Backend& backend, const Arguments& arguments, Report& report);
void bench_gemm(Backend& backend, const Arguments& arguments, Report& report);
