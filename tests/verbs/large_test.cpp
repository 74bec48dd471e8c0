// Tests tensors of more than 2^31 elements and 2^32 bytes, 70000 x 32768 on a CUDA device, where 32-bit indices would wrap.
#include "product.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("large: more than 2^31 elements", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

using testing::Bytes;
using testing::ok;

namespace {

constexpr int64_t rows = 70000, cols = 32768, period = 67;  // rows repeat after `period`, which is no multiple of a tile
constexpr int64_t some_rows[] = {0, 1, 65535, 65536, rows - 2, rows - 1};    // row 65536 starts at 2^31
constexpr int64_t some_columns[] = {0, 1, 30678, 30679, cols - 2, cols - 1};  // transposed, 2^31 lies in column 30678

void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Device memory without canaries, since an image of it on the host would be too large.
struct Memory {
    explicit Memory(uint64_t bytes) : bytes(bytes) {
        void* block = nullptr;
        cuda_ok(cudaMalloc(&block, bytes));
        data = static_cast<uint8_t*>(block);
        cuda_ok(cudaMemset(data, testing::poison, bytes));
    }
    ~Memory() { cudaFree(data); }
    Memory(const Memory&) = delete;
    Bytes read(int64_t first, int64_t count) const {
        Bytes out(static_cast<size_t>(count));
        cuda_ok(cudaMemcpy(out.data(), data + first, out.size(), cudaMemcpyDeviceToHost));
        return out;
    }

    uint8_t* data = nullptr;
    const uint64_t bytes;
};

struct PartMemory {
    PartMemory(mxq_tensor* tensor, int32_t part) : PartMemory(required(tensor, part)) { set(tensor, part); }
    void set(mxq_tensor* tensor, int32_t part) const {
        ok(mxq_tensor_set_part(tensor, part, codes.data, codes.bytes, scales.data, scales.bytes));
    }
    Memory codes, scales;

private:
    explicit PartMemory(std::pair<uint64_t, uint64_t> bytes) : codes(bytes.first), scales(bytes.second) {}
    static std::pair<uint64_t, uint64_t> required(mxq_tensor* tensor, int32_t part) {
        std::pair<uint64_t, uint64_t> bytes;
        ok(mxq_tensor_required_bytes(tensor, part, &bytes.first, &bytes.second));
        return bytes;
    }
};

// The input, kept as one period of rows. row() and column() return a whole line of it.
struct Input {
    Input() : bytes(cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, period * cols, 1)), values(oracle::load(MXQ_FORMAT_BF16, bytes.data(), period * cols)) {}
    oracle::Floats row(int64_t i) const {
        auto first = values.begin() + i % period * cols;
        return {first, first + cols};
    }
    oracle::Floats column(int64_t j) const {
        oracle::Floats out;
        for (int64_t i = 0; i < rows; ++i) out.push_back(values[static_cast<size_t>(i % period * cols + j)]);
        return out;
    }
    // Fills device memory with the period, over and over: each copy doubles what is there.
    void fill(const Memory& x) const {
        cuda_ok(cudaMemcpy(x.data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
        for (uint64_t have = bytes.size(), more; have < x.bytes; have += more) {
            more = std::min(have, x.bytes - have);
            cuda_ok(cudaMemcpy(x.data + have, x.data, more, cudaMemcpyDeviceToDevice));
        }
    }
    Bytes bytes;
    oracle::Floats values;
};

// A line that is checked: its number, its part when it is quantized alone, and the values that this part decodes to.
struct Line {
    int64_t number;
    oracle::Part part;
    oracle::Floats values;
};
Line make_line(int64_t number, const oracle::Floats& values) {
    auto length = static_cast<int64_t>(values.size());
    oracle::Part part = oracle::quantize_rowwise({}, values.data(), 1, length);
    oracle::Floats back = oracle::dequantize_rowwise(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32, part.codes.data(), part.scales.data(), 1, length);
    return {number, std::move(part), std::move(back)};
}

void check_lines(const PartMemory& part, const std::vector<Line>& lines, int64_t length, bool swizzled) {
    const int64_t blocks = oracle::ceil_div(length, 32);
    const Bytes scales = part.scales.read(0, static_cast<int64_t>(part.scales.bytes));
    for (const Line& line : lines) {
        const int64_t i = line.number;
        Bytes got;
        for (int64_t j = 0; j < blocks; ++j) {
            int64_t at = ((i / 128) * oracle::ceil_div(blocks, 4) + j / 4) * 512 + (i % 32) * 16 + i % 128 / 32 * 4 + j % 4;
            got.push_back(scales[static_cast<size_t>(swizzled ? at : i * blocks + j)]);
        }
        CAPTURE(i, length, swizzled);
        CHECK(testing::difference(got, line.part.scales) == "");
        CHECK(testing::difference(part.codes.read(i * length, length), line.part.codes) == "");
    }
}

}  // namespace

TEST_CASE("large: more than 2^31 elements", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    size_t free = 0, total = 0;
    cuda_ok(cudaMemGetInfo(&free, &total));
    if (free < size_t{12} << 30) MXQ_SKIP("less than 12 GB of device memory are free");
    testing::Device& device = *testing::cuda();
    const testing::Dims dims{std::nullopt, rows, cols};
    const Input input;
    std::vector<Line> row_lines, column_lines;
    for (int64_t i : some_rows) row_lines.push_back(make_line(i, input.row(i)));
    for (int64_t j : some_columns) column_lines.push_back(make_line(j, input.column(j)));

    auto x = testing::make_tensor(MXQ_FORMAT_BF16, dims);
    Memory x_data(rows * cols * 2);
    ok(mxq_tensor_set_data(x, x_data.data, x_data.bytes));
    input.fill(x_data);
    for (bool swizzled : {false, true}) {
        auto q = testing::make_quantized({}, dims, swizzled);
        PartMemory row(q, MXQ_PART_ROWWISE), column(q, MXQ_PART_COLUMNWISE);
        ok(mxq_quantize(device.context, nullptr, x, q, nullptr, 0, nullptr));
        check_lines(row, row_lines, cols, swizzled);
        check_lines(column, column_lines, rows, swizzled);
        if (!swizzled) {  // another kernel writes the rowwise part alone
            cuda_ok(cudaMemset(row.codes.data, testing::poison, row.codes.bytes));
            ok(mxq_tensor_clear_part(q, MXQ_PART_COLUMNWISE));
            ok(mxq_quantize(device.context, nullptr, x, q, nullptr, 0, nullptr));
            check_lines(row, row_lines, cols, swizzled);
            continue;
        }

        const int64_t n = 5;
        auto b = testing::make_quantized({}, {std::nullopt, n, cols}, false);
        const auto b_operand = testing::make_operand({}, n, cols, testing::Spread::normal, 2);
        testing::PartBuffers b_part(device, b, MXQ_PART_ROWWISE, b_operand.compact);
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, rows, n}, 0);
        const auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, q, b, d.tensor);
        const oracle::Floats products = d.values();
        for (const Line& line : row_lines) {
            auto first = products.begin() + line.number * n;
            CAPTURE(line.number);
            CHECK(oracle::check_product(oracle::product(line.values.data(), cols, b_operand.values.data(), cols, 1, n, cols), {first, first + n},
                                        MXQ_FORMAT_F32, oracle::bound_factor(promise, cols)) == "");
        }

        cuda_ok(cudaMemset(x_data.data, testing::poison, x_data.bytes));
        ok(mxq_dequantize(device.context, nullptr, q, x, nullptr, 0, nullptr));
        for (const Line& line : row_lines)
            CHECK(testing::difference(x_data.read(line.number * cols * 2, cols * 2), oracle::store(MXQ_FORMAT_BF16, line.values)) == "");
        cuda_ok(cudaMemset(x_data.data, testing::poison, x_data.bytes));
        ok(mxq_tensor_clear_part(q, MXQ_PART_ROWWISE));
        ok(mxq_dequantize(device.context, nullptr, q, x, nullptr, 0, nullptr));
        for (const Line& line : column_lines) {
            Bytes got(rows * 2);
            cuda_ok(cudaMemcpy2D(got.data(), 2, x_data.data + line.number * 2, cols * 2, 2, rows, cudaMemcpyDeviceToHost));
            CHECK(testing::difference(got, oracle::store(MXQ_FORMAT_BF16, line.values)) == "");
        }
    }
}

#endif
