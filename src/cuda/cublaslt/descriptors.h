// cuBLASLt's descriptors of a product: the operation and the layouts of its matrices. Making them takes the library twenty
// calls, so a product that is made again keeps its own, and only its pointers are set anew.
#pragma once
#include <memory>

#include "cuda/cublaslt/description.h"
#include "cuda/cublaslt/library.h"

namespace mxq::cuda::lt {

// Where the device finds the sizes of groups: int32_t, one a group.
struct GroupSizes {
    int32_t *m, *n, *k;
    int32_t *a_ld, *b_ld, *d_ld;
    bool operator==(const GroupSizes&) const = default;
};

// Throws where the library function `what` did not succeed.
void check(const Api& api, cublasStatus_t status, const char* what);

// A descriptor of the library's own making: their sizes differ between versions.
template <class Handle>
class Descriptor {
public:
    explicit Descriptor(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
    ~Descriptor() { clear(); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    // Returns where a create function of the library stores a descriptor, which replaces the one that is here.
    Handle* renew() {
        clear();
        return &handle_;
    }
    Handle handle() const { return handle_; }

private:
    void clear() {
        if (handle_) destroy_(handle_);
        handle_ = nullptr;
    }
    cublasStatus_t (*destroy_)(Handle);
    Handle handle_ = nullptr;
};

// Describes a product. Before it is used, point_at must have succeeded. C is D itself, with D's layout, as in-place products
// must have it.
class Descriptors {
public:
    Descriptors(const Api& api, const MatmulDescription& p);

    // Sets the pointers of a product that is alike in all else. `sizes`: NULL without groups, and in a query.
    void point_at(const MatmulDescription& p, const GroupSizes* sizes);

    cublasLtMatmulDesc_t operation() const { return operation_.handle(); }
    cublasLtMatrixLayout_t a() const { return a_.handle(); }
    cublasLtMatrixLayout_t b() const { return b_.handle(); }
    cublasLtMatrixLayout_t d() const { return d_.handle(); }

private:
    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value);
    void describe_operation(const MatmulDescription& p);
    void describe_matrices(const MatmulDescription& p);
    void describe_groups(const MatmulDescription& p, const GroupSizes& sizes);

    const Api& api_;
    Descriptor<cublasLtMatmulDesc_t> operation_;
    Descriptor<cublasLtMatrixLayout_t> a_, b_, d_;
    GroupSizes sizes_{};  // of the layouts of groups
};

}  // namespace mxq::cuda::lt
