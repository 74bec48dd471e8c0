// Prints the cuBLASLt that the library finds, or why it finds none.
#include "cuda/cublaslt/library.h"

#include <cstdio>

int main() {
    const mxq::cuda::lt::Library& found = mxq::cuda::lt::library();
    std::puts(found.missing.empty() ? mxq::cuda::lt::description(found).c_str() : found.missing.c_str());
    return found.missing.empty() ? 0 : 1;
}
