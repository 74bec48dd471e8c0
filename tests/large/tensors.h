// Tensors whose rows repeat, in memory without a copy on the host, and the comparison of what a call makes of many rows with what
// it makes of one period of them.
#ifndef MXQ_TESTS_LARGE_TENSORS_H
#define MXQ_TESTS_LARGE_TENSORS_H

#include "../formats.h"
#include "repeated.h"

#include <functional>
#include <list>

namespace large {

using oracle::Spec;
using testing::Bytes;
using testing::Device;
using testing::Dims;
using testing::ok;
using testing::Repetition;

// A multiple of every tile and block of threads along the rows, so that a period of rows has whole ones.
inline constexpr int64_t period = 256;
inline constexpr int64_t cols = 2048;
// More than 2^31 and 2^32 elements with so many columns.
inline constexpr int64_t beyond_31 = (int64_t{1} << 20) + period, beyond_32 = (int64_t{1} << 21) + period;

// Memory of a device, full of poison.
class Memory {
public:
    Memory(Device& device, uint64_t bytes);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Bytes read(uint64_t first, uint64_t count) const;
    Bytes read() const { return read(0, bytes); }

    Device& device;
    const uint64_t bytes;
    uint8_t* data = nullptr;
};

// Fill memory with lines that repeat, and count what differs from them; on the CPU, too.
void repeat(const Memory& to, const Bytes& lines_of_one_period, uint64_t lines);
uint64_t differences(const Memory& big, const Memory& small, uint64_t lines);
// Counts bytes that differ between two places of one device.
uint64_t differences(const Memory& a, uint64_t from_a, const Memory& b, uint64_t from_b, uint64_t bytes);

// What a call has written: so many lines, each of which repeats.
struct Written {
    std::string name;
    std::shared_ptr<Memory> memory;
    uint64_t lines;
};

// The tensors of one call of so many rows, with their memory.
class Scene {
public:
    Scene(Device& device, int64_t rows) : device(device), rows(rows) {}

    // A plain tensor whose rows repeat. Integers from -2 to 2 make sums exact; else they are of a normal distribution.
    enum class Numbers { normal, integers };
    mxq_tensor* plain_in(int32_t format, int64_t width, Numbers numbers, uint64_t seed = 1, int64_t times = 1);
    // `lines`: as many runs of rows, each of which repeats.
    mxq_tensor* plain_out(const char* name, int32_t format, int64_t width, int64_t times = 1, uint64_t lines = 1);
    // A quantized tensor that a call writes, and a later one of the scene may read.
    mxq_tensor* quantized(const char* name, const Spec& spec, int64_t width, int32_t parts, bool swizzled, int64_t times = 1);
    // A tensor of another shape, quantized or plain, which is the same for any number of rows.
    // Experts have equal matrices.
    mxq_tensor* same(const Spec& spec, Dims dims, int32_t part, uint64_t seed);
    // A tensor that has one part of another one.
    mxq_tensor* part_of(const mxq_tensor* tensor, const Spec& spec, int64_t width, int32_t part, bool swizzled);

    std::shared_ptr<Memory> memory(uint64_t bytes) { return kept_.emplace_back(std::make_shared<Memory>(device, bytes)); }
    void write(const std::string& name, const std::shared_ptr<Memory>& memory, uint64_t lines) { written.push_back({name, memory, lines}); }

    Device& device;
    const int64_t rows;
    std::vector<Written> written;

private:
    mxq_tensor* keep(testing::Tensor tensor) { return tensors_.emplace_back(std::move(tensor)); }

    std::list<testing::Tensor> tensors_;
    std::vector<std::shared_ptr<Memory>> kept_;
};

// Calls run with as much workspace as query asks for. Both take (context, ..., workspace or plan).
template <class Query, class Run>
std::string call(Scene& scene, Query query, Run run) {
    testing::Plan plan;
    ok(query(plan.out()));
    const auto workspace = scene.memory(mxq_plan_workspace_bytes(plan));
    ok(run(workspace->bytes ? workspace->data : nullptr, workspace->bytes));
    return mxq_plan_implementation(plan);
}
std::string convert(Scene& scene, testing::Verb run, testing::Query query, const mxq_quantize_options* options,
                    const mxq_tensor* in, const mxq_tensor* out);

// Runs a call on the device with each number of rows, and compares it with one period of rows there and on the CPU. Returns how
// many outputs were compared. `device` is the CPU where the test looks at itself, with few rows.
using Make = std::function<void(Scene&)>;
int check(const std::string& what, Device& device, const std::vector<int64_t>& rows, const Make& make);

// Numbers of rows for a device: more than 2^31 and 2^32 elements on CUDA, some periods on the CPU.
std::vector<int64_t> rows_for(const Device& device);
// Returns why this device does not have the memory, or "".
std::string lacks_memory(const Device& device, uint64_t bytes);

}  // namespace large

// Defines a case of large tensors on CUDA, which runs where its tag is named, and one of few rows on the CPU.
#define MXQ_LARGE_(function, name, bytes)                                                           \
    static void function(testing::Device& device);                                                  \
    TEST_CASE("large: " name " · cpu", "[cpu]") { function(testing::cpu()); }                       \
    TEST_CASE("large: " name " · cuda", "[.large][cuda]") {                                         \
        if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA");                  \
        if (const auto why = large::lacks_memory(*testing::cuda(), bytes); !why.empty()) MXQ_SKIP(why); \
        function(*testing::cuda());                                                                 \
    }                                                                                               \
    static void function([[maybe_unused]] testing::Device& device)
#define MXQ_LARGE(name, bytes) MXQ_LARGE_(MXQ_JOIN(large_case, __LINE__), name, bytes)

#endif
