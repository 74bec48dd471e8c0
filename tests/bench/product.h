// Products of the library, ready to be called again and again, and their times.
#pragma once

#include <stdexcept>

#include "operands.h"
#include "report.h"

struct Size {
    int64_t m, n, k;
    int groups = 0;  // 0: one product
};

std::string text(const Size& size);

struct Operands {
    Operand a, b, d;
};

// y = x w^T in BF16, x with groups of rows where the size has any, each with a w of its own; D is padded as x is.
Operands forward_operands(Backend& backend, const Quantization& x, const Quantization& w, const Size& size);

struct ProductOptions {
    int32_t transpose_a = MXQ_TRANSPOSE_N, transpose_b = MXQ_TRANSPOSE_T;
    const char* implementation = nullptr;  // NULL: the best
};

// Keeps no operand: they stay with the caller.
class Product {
public:
    // Throws mxq_handles::Error where no implementation takes it.
    Product(Backend& backend, const Operands& operands, bool grouped, const ProductOptions& options = {});
    void enqueue() const;
    std::string implementation() const { return mxq_plan_implementation(plan_.get()); }
    bool grouped() const { return grouped_; }

private:
    Backend& backend_;
    const Operands& operands_;
    bool grouped_;
    mxq_handles::GemmOptions options_;
    mxq_handles::Plan plan_;
    std::shared_ptr<void> workspace_;
};

struct Peer {
    std::string name;
    std::function<void()> enqueue;  // empty: there is none
};

// The product in turns with its peer, which takes as many operations.
void measure_product(Backend& backend, Report& report, const std::string& name, const Size& size, const Product& product,
                     const Peer& peer);

// Where a verb needs a CUDA device and this is none, says so.
bool needs_cuda(Backend& backend, Report& report, const char* verb);

// Why a row is not there.
struct LeftOut : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs `row`; where it is LeftOut, or no implementation takes its products, says why.
void with_reason(Report& report, const std::string& name, const Size& size, const std::function<void()>& row);

// The products of a mixture of experts that the tables show, or the one of --size; each dense, then in 8 groups.
std::vector<Size> expert_sizes(const Arguments& arguments);
