// One problem for each way through each verb, and all that a call of it needs on a device. Each implementation takes some.
//
// Products multiply small integers that every format holds exactly, under scales that are powers of two: whatever the order
// of the sums, nothing is rounded before D, so that products too have one right answer in bits.
#ifndef MXQ_TESTS_DISPATCH_PROBLEMS_H
#define MXQ_TESTS_DISPATCH_PROBLEMS_H

#include "../formats.h"
#include "../verbs/routing.h"

#include <functional>

namespace problems {

using testing::Buffer;
using testing::Bytes;
using testing::ok;

inline const oracle::Groups groups{{40, 40, 127, 150}};
inline constexpr int32_t host_ends[] = {40, 40, 127, 150};

// All that one call needs on a device.
struct Scene {
    explicit Scene(testing::Device& device) : device(device) { ok(mxq_quantize_options_create(bare.out())); }

    mxq_quantize_options* options() const { return of_format ? static_cast<mxq_quantize_options*>(*of_format) : bare; }
    Buffer& keep(const Bytes& content) { return *inputs.emplace_back(std::make_unique<Buffer>(device, content)); }

    // Tensors with their buffers. `group_of`: has the groups, with this rowwise alignment; 0: has none.
    testing::Tensor plain_in(int32_t format, testing::Dims dims, const Bytes& content, int64_t group_of = 0) {
        auto tensor = grouped(testing::make_tensor(format, dims), group_of);
        const Buffer& data = keep(content);
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
        return tensor;
    }
    testing::Tensor plain_out(int32_t format, testing::Dims dims, int64_t group_of = 0) {
        auto tensor = grouped(testing::make_tensor(format, dims), group_of);
        uint64_t bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
        data = std::make_unique<Buffer>(device, static_cast<size_t>(bytes));
        ok(mxq_tensor_set_data(tensor, data->data(), data->bytes()));
        return tensor;
    }
    testing::Tensor quantized_in(const oracle::Spec& spec, testing::Dims dims, bool swizzled,
                                 const std::map<int32_t, oracle::Part>& content, int64_t group_of = 0) {
        auto tensor = grouped(testing::make_tensor(spec, dims, swizzled), group_of);
        for (const auto& [part, stored] : content)
            parts_in.push_back(std::make_unique<testing::InputPart>(device, tensor, spec, part, stored));
        return tensor;
    }
    testing::Tensor quantized_out(const oracle::Spec& spec, testing::Dims dims, bool swizzled, int32_t parts, bool with_amax,
                                  int64_t group_of = 0) {
        auto tensor = grouped(testing::make_tensor(spec, dims, swizzled), group_of);
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
            if (parts & part)
                parts_out.push_back(std::make_unique<testing::OutputPart>(device, tensor, spec, part, with_amax));
        return tensor;
    }

    Bytes written() const {
        Bytes all = data ? data->read() : Bytes{};
        for (const auto& part : parts_out) {
            Bytes bytes = part->bytes();
            all.insert(all.end(), bytes.begin(), bytes.end());
        }
        if (routing) {
            const Bytes bytes = routing->written();
            all.insert(all.end(), bytes.begin(), bytes.end());
        }
        return all;
    }

    testing::Device& device;
    testing::Tensor in, second, out;  // second: B of a product
    std::unique_ptr<testing::Options> of_format;
    std::unique_ptr<testing::DeviceRouting> routing;

private:
    testing::Tensor grouped(testing::Tensor tensor, int64_t alignment) {
        if (!alignment) return tensor;
        if (!ends) ends = std::make_unique<testing::DeviceEnds>(device, groups.ends);
        ends->set(tensor, {groups.ends, alignment});
        ok(mxq_tensor_set_host_ends(tensor, host_ends, sizeof host_ends));
        return tensor;
    }

    testing::QuantizeOptions bare;
    std::unique_ptr<testing::DeviceEnds> ends;
    std::vector<std::unique_ptr<Buffer>> inputs;
    std::vector<std::unique_ptr<testing::InputPart>> parts_in;
    std::vector<std::unique_ptr<testing::OutputPart>> parts_out;
    std::unique_ptr<Buffer> data;
};

// One call: how to set it up on a device, and how to make it with an implementation's name.
struct Problem {
    std::string text;
    std::function<void(Scene&)> set_up;
    std::function<mxq_status(Scene&, const std::string&, mxq_plan**)> query;
    std::function<mxq_status(Scene&, const std::string&, void*, uint64_t)> run;
    bool is_product = false;
};
using Problems = std::map<std::string, std::vector<Problem>>;  // by verb

Problems of_quantize();
Problems of_requantize();
Problems of_other_conversions();  // and of the steps of an expert layer
Problems of_activations();
Problems of_gemm();
Problems of_grouped_gemm();

// Returns why the implementation of this name does not take a problem that is set up; nothing where it takes it.
std::optional<std::string> reason_to_decline(Scene& scene, const Problem& problem, const std::string& name);

// Returns what the implementation of this name writes.
Bytes result(testing::Device& device, const Problem& problem, const std::string& name);

}  // namespace problems

#endif
