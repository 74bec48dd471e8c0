// mxq_gemm_options_set_row_invariant: the bits of a row of D are the same in batches of any size and order, in groups, with
// other rows of NaN and huge numbers, on any number of SMs, by calls and by graphs.
#include "gemm_operands.h"

#include <algorithm>
#include <map>
#include <set>

#ifdef MXQ_TESTS_CUDA
#include "../cuda/graph.h"
#endif

using namespace products;
using testing::ok;
using testing::Bytes;

namespace {

constexpr int64_t rows_drawn = 2000, rows_poisoned = 50, batches = 14;

struct Shape {
    int64_t n, k;
};

// Rows of A, each of which is so many bytes of codes (or numbers) and of scales.
struct Rows {
    oracle::Spec spec;
    int64_t count = 0;
    Bytes codes, scales;
    oracle::Part part;  // what all rows share

    Rows(const oracle::Spec& spec, int64_t k, const oracle::Floats& x) : spec(spec), count(static_cast<int64_t>(x.size()) / k) {
        if (is_plain(spec)) {
            codes = stored_numbers(spec.format, x);
        } else {
            part = oracle::quantize(spec, x, {1, count, k}, MXQ_PART_ROWWISE, false);
            codes = part.codes, scales = part.scales;
        }
    }
    bool shares_scales() const { return spec.scaling == MXQ_SCALING_TENSOR; }
    void append(int64_t row, Bytes& to_codes, Bytes& to_scales) const {
        const auto take = [&](const Bytes& from, Bytes& to) {
            const auto bytes = static_cast<int64_t>(from.size()) / count;
            to.insert(to.end(), from.begin() + row * bytes, from.begin() + (row + 1) * bytes);
        };
        take(codes, to_codes);
        if (!shares_scales()) take(scales, to_scales);
    }
};

oracle::Floats drawn_values(cases::Random& random, int64_t count, float poison) {
    oracle::Floats x(static_cast<size_t>(count));
    for (float& value : x) value = random.normal();
    if (poison != 0)
        for (size_t i = 0; i < x.size(); i += 7) x[i] = poison;
    return x;
}

// A batch: which rows it has, in which order, and where its groups end. Row numbers below 0 are poisoned rows.
struct Batch {
    std::vector<int64_t> rows;
    oracle::Ends ends;  // empty: no groups
    int32_t sm_count = 0;
    bool captured = false;  // in a graph, which is replayed
};

Batch draw_batch(cases::Random& random, int64_t number) {
    constexpr int64_t sizes[] = {1, 2, 3, 8, 17, 33, 64, 65, 96, 128, 129, 257, 700, rows_drawn};
    static_assert(std::size(sizes) == batches);
    Batch batch;
    const int64_t size = sizes[number];
    for (int64_t i = 0; i < size; ++i)
        batch.rows.push_back(random.below(8) == 0 ? -1 - random.below(rows_poisoned) : random.below(rows_drawn));
    if (number % 2) batch.ends = testing::draw_ends(random, size, 1 + random.below(5));
    if (!batch.ends.empty()) batch.ends.back() = size;
    batch.sm_count = number % 3 == 2 ? 1 + static_cast<int32_t>(random.below(132)) : 0;
    batch.captured = number % 4 == 1;
    return batch;
}

// Multiplies batches of rows with one B, whose matrices are all alike where there are groups.
class Product {
public:
    Product(testing::Device& device, const oracle::Spec& a, const oracle::Spec& b, const Shape& shape, uint64_t seed)
        : device_(device), n(shape.n), k(shape.k), random_(seed), rows_(a, k, drawn_values(random_, rows_drawn * k, 0)),
          nan_(a, k, drawn_values(random_, rows_poisoned * k, NAN)), huge_(a, k, drawn_values(random_, rows_poisoned * k, 3e38f)),
          b_spec_(b), b_values_(drawn_values(random_, n * k, 0)) {}

    // Returns false, with the reason in mxq_last_error, where nothing that promises invariant rows takes the product.
    bool is_supported() {
        Batch one{{0}, {}, 0};
        return run(one, true).empty();
    }
    int64_t row_bytes() const { return n * (format_ == MXQ_FORMAT_F32 ? 4 : 2); }
    const std::set<std::string>& implementations() const { return implementations_; }
    void set_format_of_d(int32_t format) { format_ = format; }
    // Runs the implementation of this name from now on; "": the one that dispatch chooses.
    void force(const std::string& name) { forced_ = name; }
    Bytes run(const Batch& batch, bool query_alone = false) {
        const auto count = static_cast<int64_t>(batch.rows.size());
        const auto groups = static_cast<int64_t>(batch.ends.size());
        Bytes codes, scales;
        for (int64_t row : batch.rows) {
            if (row >= 0) rows_.append(row, codes, scales);
            else (row % 2 ? nan_ : huge_).append(-1 - row, codes, scales);
        }
        Operand a = operand(rows_, {std::nullopt, count, k}, codes, scales);
        Bytes stored(batch.ends.size() * sizeof(int64_t));
        if (groups) std::memcpy(stored.data(), batch.ends.data(), stored.size());
        const testing::Buffer ends(device_, stored);
        if (groups) ok(testing::set_ends(a.tensor, ends.data(), MXQ_TYPE_INT64, static_cast<int32_t>(groups)));
        Operand b = operand_b(groups);
        testing::Output d(device_, format_, {std::nullopt, count, n}, 0, nullptr);
        const auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, forced_.empty() ? nullptr : forced_.c_str());
        ok(mxq_gemm_options_set_row_invariant(options, 1));
        const auto query = groups ? mxq_grouped_gemm_query : mxq_gemm_query;
        if (!device_.is_cpu() && batch.sm_count) {
            ok(mxq_gemm_options_set_sm_count(options, batch.sm_count));  // some kernels cannot keep to it
            if (query(device_.context, options, a.tensor, b.tensor, d.tensor, nullptr) != MXQ_STATUS_OK)
                ok(mxq_gemm_options_set_sm_count(options, 0));
        }
        testing::Plan plan;
        if (query(device_.context, options, a.tensor, b.tensor, d.tensor, plan.out()) != MXQ_STATUS_OK) return {1};
        if (query_alone) return {};
        implementations_.insert(mxq_plan_implementation(plan));
        const auto verb = groups ? mxq_grouped_gemm : mxq_gemm;
        if (device_.is_cpu() || !batch.captured)
            testing::run_product(device_, verb, query, options, a.tensor, b.tensor, d.tensor);
        else
            replay(verb, options, a.tensor, b.tensor, d.tensor, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        return d.bytes();
    }

private:
    void replay([[maybe_unused]] testing::ProductVerb verb, [[maybe_unused]] mxq_gemm_options* options,
                [[maybe_unused]] mxq_tensor* a, [[maybe_unused]] mxq_tensor* b, [[maybe_unused]] mxq_tensor* d,
                [[maybe_unused]] size_t workspace_bytes) {
#ifdef MXQ_TESTS_CUDA
        testing::Buffer workspace(device_, workspace_bytes);
        testing::Stream stream;
        testing::Graph graph(stream, [&] {
            ok(verb(device_.context, options, a, b, d, workspace_bytes ? workspace.data() : nullptr, workspace_bytes, stream.handle));
        });
        graph.replay();
#endif
    }
    const oracle::Part& quantized_b(int64_t matrices) {
        const auto [at, is_new] = b_parts_.try_emplace(matrices);
        if (!is_new) return at->second;
        oracle::Floats all;
        for (int64_t i = 0; i < matrices; ++i) all.insert(all.end(), b_values_.begin(), b_values_.end());
        return at->second = oracle::quantize(b_spec_, all, {matrices, n, k}, MXQ_PART_ROWWISE, false);
    }
    Operand operand(const Rows& rows, testing::Dims dims, const Bytes& codes, const Bytes& scales) {
        Operand out;
        if (is_plain(rows.spec)) {
            out.tensor = testing::make_tensor(rows.spec.format, dims);
            out.data = std::make_unique<testing::Buffer>(device_, codes);
            ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
            return out;
        }
        oracle::Part part = rows.part;
        part.codes = codes;
        if (!rows.shares_scales()) part.scales = scales;
        out.tensor = testing::make_tensor(rows.spec, dims, false);
        out.part = std::make_unique<testing::InputPart>(device_, out.tensor, rows.spec, MXQ_PART_ROWWISE, part);
        return out;
    }
    Operand operand_b(int64_t groups) {
        const std::optional<int64_t> matrices = groups ? std::optional<int64_t>(groups) : std::nullopt;
        const testing::Dims dims{matrices, n, k};
        if (is_plain(b_spec_)) {
            oracle::Floats all;
            for (int64_t i = 0; i < std::max<int64_t>(groups, 1); ++i) all.insert(all.end(), b_values_.begin(), b_values_.end());
            return make_plain(device_, b_spec_.format, all, dims, 0);
        }
        Operand out;
        out.tensor = testing::make_tensor(b_spec_, dims, false);
        out.part = std::make_unique<testing::InputPart>(device_, out.tensor, b_spec_, MXQ_PART_ROWWISE,
                                                        quantized_b(std::max<int64_t>(groups, 1)));
        return out;
    }

    testing::Device& device_;
    int64_t n, k;
    int32_t format_ = MXQ_FORMAT_F32;  // of D
    cases::Random random_;
    Rows rows_, nan_, huge_;
    oracle::Spec b_spec_;
    oracle::Floats b_values_;
    std::map<int64_t, oracle::Part> b_parts_;  // by matrices
    std::string forced_;
    std::set<std::string> implementations_;
};

// Returns the product of all drawn rows.
Bytes product_of_all(Product& product) {
    Batch all;
    for (int64_t i = 0; i < rows_drawn; ++i) all.rows.push_back(i);
    return product.run(all);
}

// Returns how many rows of batches have other bits than all drawn rows in one product; `compared` counts them.
int64_t rows_that_differ(Product& product, cases::Random& random, int64_t& compared) {
    const Bytes expected = product_of_all(product);
    const int64_t row_bytes = product.row_bytes();
    int64_t differ = 0;
    for (int64_t number = 0; number < batches; ++number) {
        const Batch batch = draw_batch(random, number);
        const Bytes got = product.run(batch);
        for (size_t i = 0; i < batch.rows.size(); ++i) {
            if (batch.rows[i] < 0) continue;
            ++compared;
            differ += !std::equal(got.begin() + static_cast<int64_t>(i) * row_bytes,
                                  got.begin() + static_cast<int64_t>(i + 1) * row_bytes,
                                  expected.begin() + batch.rows[i] * row_bytes);
        }
    }
    return differ;
}

std::vector<oracle::Spec> specs_of_a() {
    return {plain, plain_spec(MXQ_FORMAT_F16), testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
            testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
            testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW),
            testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)};
}

std::vector<oracle::Spec> specs_of_b() {
    return {plain, plain_spec(MXQ_FORMAT_F16), testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
            testing::spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32), testing::spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32),
            testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
            testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128),
            testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)};
}

struct Counts {
    int pairs = 0;
    int64_t compared = 0;
};

void check_pair(testing::Device& device, const oracle::Spec& a, const oracle::Spec& b, const Shape& shape, uint64_t seed, Counts& counts,
                const std::vector<int32_t>& formats = {MXQ_FORMAT_F32}) {
    Product product(device, a, b, shape, seed);
    if (!product.is_supported()) return;
    cases::Random random(seed + 1000);
    int64_t compared = 0, differ = 0;
    for (int32_t format : formats) {
        product.set_format_of_d(format);
        differ += rows_that_differ(product, random, compared);
    }
    std::string names;
    for (const auto& name : product.implementations()) names += " " + name;
    INFO(text(a, b) << ", n " << shape.n << ", k " << shape.k << ", by" << names);
    CHECK(differ == 0);
    ++counts.pairs;
    counts.compared += compared;
}

Counts check_pairs(testing::Device& device) {
    Counts counts;
    uint64_t seed = 1;
    for (const auto& a : specs_of_a())
        for (const auto& b : specs_of_b()) check_pair(device, a, b, {136, 384}, ++seed, counts);
    return counts;
}

// Lists the pairs that engines serve with.
std::vector<std::pair<oracle::Spec, oracle::Spec>> served_pairs() {
    const auto mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    const auto square = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128);
    return {{plain, testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)}, {plain, testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16)},
            {mxfp8, mxfp8}, {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128), square}, {plain, square}};
}

}  // namespace

MXQ_CUDA_DEVICE("row invariant: each row has the same bits in any batch") {
    const Counts counts = check_pairs(device);
    CHECK(counts.pairs >= 30);
    CHECK(counts.compared >= counts.pairs * int64_t(2500));
}

MXQ_CUDA_DEVICE("row invariant: each row has the same bits in any batch, of pairs that are served, with more columns and longer sums") {
    Counts counts;
    uint64_t seed = 500;
    for (const auto& [a, b] : served_pairs())
        for (const Shape& shape : {Shape{456, 1440}, Shape{1024, 1024}, Shape{72, 4128}})
            check_pair(device, a, b, shape, ++seed, counts, {MXQ_FORMAT_F32, MXQ_FORMAT_BF16});
    CHECK(counts.pairs == 15);
}

// Its kernels for tiles of 16 tokens have another instruction, and contractions of 4096 and more are cut into pieces, of
// which thread blocks have one, some or all.
MXQ_CUDA_DEVICE("row invariant: weights_sm90 sums alike in tiles of any size, whoever has the pieces of a contraction") {
    if (std::string(mxq_context_description(device.context)).find("sm_90") == std::string::npos) MXQ_SKIP("not an sm_90 device");
    uint64_t seed = 900;
    int64_t compared = 0;
    for (const auto& [a, b] : served_pairs()) {
        if (a.format == MXQ_FORMAT_FP8_E4M3) continue;
        for (const Shape& shape : {Shape{136, 4096}, Shape{584, 6272}}) {
            Product product(device, a, b, shape, ++seed);
            product.force("weights_sm90");
            const Bytes expected = product_of_all(product);
            for (const int64_t rows : {1, 8, 16, 20, 40, 64, 150, 400})
                for (const int32_t sm_count : {0, 1, 7, 40}) {
                    Batch batch{{}, {}, sm_count};
                    for (int64_t row = 0; row < rows; ++row) batch.rows.push_back(row);
                    const Bytes got = product.run(batch);
                    INFO(text(a, b) << ", n " << shape.n << ", k " << shape.k << ", " << rows << " rows, " << sm_count
                                    << " SMs");
                    REQUIRE(static_cast<int64_t>(got.size()) == rows * product.row_bytes());
                    CHECK(std::equal(got.begin(), got.end(), expected.begin()));
                    compared += rows;
                }
        }
    }
    CHECK(compared == 4 * 2 * 4 * 699);
}

TEST_CASE("row invariant: each row has the same bits in any batch on the CPU", "[cpu]") {
    const Counts counts = check_pairs(testing::cpu());
    CHECK(counts.pairs >= 30);
    CHECK(counts.compared >= counts.pairs * int64_t(2500));
}

TEST_CASE("row invariant: groups along the contraction are refused", "[cpu]") {
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 64, 32}), b = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 64, 16});
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {2, 32, 16});
    const int32_t ends[] = {32, 64};
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(a), static_cast<mxq_tensor*>(b)}) ok(testing::set_ends(tensor, ends, MXQ_TYPE_INT32, 2));
    const auto options = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N);
    ok(mxq_grouped_gemm_query(testing::any_context(), options, a, b, d, nullptr));
    ok(mxq_gemm_options_set_row_invariant(options, 1));
    CHECK(mxq_grouped_gemm_query(testing::any_context(), options, a, b, d, nullptr) == MXQ_STATUS_UNSUPPORTED);
    CHECK(std::string(mxq_last_error()).find("mxq_gemm_options_set_row_invariant") != std::string::npos);
}
