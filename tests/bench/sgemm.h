// OpenBLAS, where it is installed: looked up at run time, so that nothing links it.
#pragma once

#include <memory>

class Sgemm {
public:
    static std::unique_ptr<Sgemm> open(int threads);  // null where there is no libopenblas.so.0

    // c = a b^T, all row-major
    void operator()(int m, int n, int k, const float* a, const float* b, float* c) const;

private:
    using Cblas = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                           const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
    Cblas cblas_ = nullptr;
};
