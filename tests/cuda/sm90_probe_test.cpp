// Tensor maps, barriers, tile copies and wgmma of src/cuda/sm90 in one product: sm90_probe.cu. All numbers are small integers,
// so that every sum is exact in whatever order it is made.
#include "../device.h"
#include "sm90_probe.h"

#include <cstdlib>
#include <random>

namespace {

using testing::Buffer;
using testing::Bytes;
using testing::ProbeElement;

// Returns E4M3's code of an integer of at most four significant bits.
uint8_t e4m3(int value) {
    const int magnitude = std::abs(value), sign = value < 0 ? 0x80 : 0;
    if (magnitude == 0) return uint8_t(sign);
    int exponent = 0;
    while (magnitude >> (exponent + 1)) exponent++;
    return uint8_t(sign | (exponent + 7) << 3 | ((magnitude << 3 >> exponent) & 7));
}

// Returns BF16's bits of an integer of at most eight significant bits.
uint16_t bf16(int value) {
    const float number = float(value);
    uint32_t bits;
    std::memcpy(&bits, &number, 4);
    return uint16_t(bits >> 16);
}

Bytes encoded(ProbeElement element, const std::vector<int>& values) {
    Bytes bytes;
    for (const int value : values) {
        if (element == ProbeElement::E4M3)
            bytes.push_back(e4m3(value));
        else
            bytes.push_back(uint8_t(bf16(value))), bytes.push_back(uint8_t(bf16(value) >> 8));
    }
    return bytes;
}

struct Shape {
    int matrices, rows, cols, depth;
};

std::vector<float> product_on_device(ProbeElement element, const Shape& s, const std::vector<int>& a,
                                     const std::vector<int>& b) {
    std::vector<float> d(size_t(s.matrices) * s.rows * s.cols);
    const Buffer a_buffer(*testing::cuda(), encoded(element, a)), b_buffer(*testing::cuda(), encoded(element, b));
    const Buffer d_buffer(*testing::cuda(), d.size() * sizeof(float));
    testing::run_probe({element, s.matrices, s.rows, s.cols, s.depth, a_buffer.data(), b_buffer.data(),
                        static_cast<float*>(d_buffer.data())});
    std::memcpy(d.data(), d_buffer.read().data(), d.size() * sizeof(float));
    return d;
}

double element_of_product(const Shape& s, const std::vector<int>& a, const std::vector<int>& b, int matrix, int row,
                          int col) {
    double sum = 0;
    for (int k = 0; k < s.depth; k++)
        sum += double(a[size_t(row) * s.depth + k]) * b[(size_t(matrix) * s.cols + col) * s.depth + k];
    return sum;
}

// Counts the elements that the device has right; says which is the first that it has not.
size_t right_elements(const Shape& s, const std::vector<int>& a, const std::vector<int>& b, const std::vector<float>& d) {
    size_t right = 0, i = 0;
    for (int matrix = 0; matrix < s.matrices; matrix++)
        for (int row = 0; row < s.rows; row++)
            for (int col = 0; col < s.cols; col++, i++) {
                const double expected = element_of_product(s, a, b, matrix, row, col);
                if (d[i] == expected)
                    right++;
                else if (right == i)
                    UNSCOPED_INFO("the first wrong element: matrix " << matrix << ", row " << row << ", column " << col
                                                                     << ", " << d[i] << ", expected " << expected);
            }
    return right;
}

bool is_missing() { return !testing::cuda() || !testing::is_sm90(); }
constexpr const char* missing = "needs a device of compute capability 9.0";

std::vector<int> random_values(size_t count, int most, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int> values(count);
    for (int& value : values) value = int(random() % uint32_t(2 * most + 1)) - most;
    return values;
}

void check_random(ProbeElement element, int most) {
    // One tile of one step; edges on all sides, of several B; less than a step; more steps than the ring has stages.
    constexpr Shape shapes[] = {{1, 64, 64, 128}, {3, 150, 100, 336}, {1, 64, 64, 16}, {2, 65, 4, 384}, {1, 1, 68, 784}};
    for (const Shape& s : shapes) {
        const auto a = random_values(size_t(s.rows) * s.depth, most, 1);
        const auto b = random_values(size_t(s.matrices) * s.cols * s.depth, most, 2);
        const auto d = product_on_device(element, s, a, b);
        CAPTURE(s.matrices, s.rows, s.cols, s.depth);
        CHECK(right_elements(s, a, b, d) == d.size());
    }
}

// A tile of 64 rows whose element (row, k) is a digit of row * depth + k in base `base`: all digits together name the place.
std::vector<int> places(int depth, int base, int divisor) {
    std::vector<int> values(size_t(64) * depth);
    for (size_t i = 0; i < values.size(); i++) values[i] = int(i) / divisor % base;
    return values;
}

// A tile of 64 rows that picks element `first` + r of the contraction with row r.
std::vector<int> selectors(int depth, int first) {
    std::vector<int> values(size_t(64) * depth);
    for (int r = 0; r < 64; r++) values[size_t(r) * depth + first + r] = 1;
    return values;
}

// Reads a tile back through selectors, once as A and once as B, so that a row or a piece of 16 bytes that lies in the wrong
// place shows as the place that it came from. Returns the number of elements found in their own places.
size_t count_places(ProbeElement element, int depth, int base, int digits) {
    const Shape s{1, 64, 64, depth};
    size_t found = 0;
    for (int first = 0; first < depth; first += 64) {
        std::vector<int> as_a(64 * 64), as_b(64 * 64);
        for (int digit = 0, divisor = 1; digit < digits; digit++, divisor *= base) {
            const auto tile = places(depth, base, divisor), selector = selectors(depth, first);
            const auto a = product_on_device(element, s, tile, selector), b = product_on_device(element, s, selector, tile);
            for (int i = 0; i < 64 * 64; i++) as_a[i] += int(a[i]) * divisor, as_b[i] += int(b[i]) * divisor;
        }
        for (int row = 0; row < 64; row++)
            for (int k = 0; k < 64; k++)
                found += (as_a[row * 64 + k] == row * depth + first + k) + (as_b[k * 64 + row] == row * depth + first + k);
    }
    return found;
}

}  // namespace

TEST_CASE("sm90: products of E4M3 codes by TMA and wgmma are exact, edges and all", "[cuda]") {
    if (is_missing()) MXQ_SKIP(missing);
    check_random(ProbeElement::E4M3, 3);  // the largest sum is below 2^13, which FP8 tensor cores keep
}

TEST_CASE("sm90: products of BF16 elements by TMA and wgmma are exact, edges and all", "[cuda]") {
    if (is_missing()) MXQ_SKIP(missing);
    check_random(ProbeElement::Bf16, 15);
}

TEST_CASE("sm90: every element of a swizzled tile is taken from its own place", "[cuda]") {
    if (is_missing()) MXQ_SKIP(missing);
    CHECK(count_places(ProbeElement::E4M3, 128, 16, 4) == 2 * 64 * 128);
    CHECK(count_places(ProbeElement::Bf16, 64, 64, 2) == 2 * 64 * 64);
}
