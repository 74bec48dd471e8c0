#include "memory.hpp"

#include <stdexcept>

std::unique_ptr<Memory> cuda_memory() { throw std::runtime_error("this example was built without the CUDA toolkit"); }
