#include "sgemm.h"

#include <dlfcn.h>

std::unique_ptr<Sgemm> Sgemm::open(int threads) {
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    auto out = std::make_unique<Sgemm>();
    out->cblas_ = reinterpret_cast<Cblas>(dlsym(library, "cblas_sgemm"));
    auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
    if (!out->cblas_ || !set_threads) return nullptr;
    set_threads(threads);
    return out;
}

void Sgemm::operator()(int m, int n, int k, const float* a, const float* b, float* c) const {
    constexpr int row_major = 101, as_is = 111, transposed = 112;
    cblas_(row_major, as_is, transposed, m, n, k, 1.0f, a, k, b, k, 0.0f, c, n);
}
