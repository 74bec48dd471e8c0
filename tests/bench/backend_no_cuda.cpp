#include "backend.h"

#include <stdexcept>

std::unique_ptr<Backend> cuda_backend() {
    throw std::runtime_error("this benchmark was built without the CUDA toolkit");
}
