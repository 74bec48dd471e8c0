// Every device against the golden vectors, through the public API.
#include "../api.h"
#include "golden.h"

using namespace golden;
using testing::Buffer;
using testing::ok;

namespace {

testing::Dims dims(const safetensors::Tensor& tensor) {
    oracle::Shape s = shape(tensor);
    return {tensor.shape.size() == 3 ? std::optional(s.experts) : std::nullopt, s.rows, s.cols};
}

oracle::Part quantize(testing::Device& device, oracle::Spec spec, const safetensors::Tensor& x, int32_t part, bool swizzled) {
    auto in = testing::make_tensor(plain_format(x), dims(x));
    auto out = testing::make_quantized(spec, dims(x), swizzled);
    Buffer data(device, bytes(x));
    testing::PartBuffers buffers(device, out, part);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    ok(mxq_quantize(device.context, testing::quantize_options(spec), in, out, nullptr, 0, nullptr));
    return {buffers.codes->read(), buffers.scales->read()};
}

}  // namespace

MXQ_EACH_DEVICE("golden: quantize gives every byte of mx_rowwise") {
    const auto& vectors = file("mx_rowwise");
    int compared = 0;
    for (Name format : formats)
        for (Name rounding : roundings)
            for (const auto& [name, x] : vectors.tensors()) {
                if (name.rfind("x/", 0) != 0) continue;
                std::string prefix = std::string(format.text) + "/" + rounding.text + "/" + name.substr(2);
                if (!vectors.contains(prefix + ".codes")) continue;
                INFO(prefix);
                auto part = quantize(device, {format.value, MXQ_SCALING_1X32, rounding.value}, x, MXQ_PART_ROWWISE, false);
                CHECK(testing::difference(part.codes, bytes(vectors.at(prefix + ".codes"))) == "");
                CHECK(testing::difference(part.scales, bytes(vectors.at(prefix + ".scales"))) == "");
                compared += 2;
            }
    CHECK(compared == 2 * 2 * 4 * 11);
}

MXQ_EACH_DEVICE("golden: quantize gives every byte of layout") {
    const auto& vectors = file("layout");
    int compared = 0;
    auto compare = [&](const std::string& prefix, oracle::Spec spec, int32_t part, const safetensors::Tensor& x) {
        INFO(prefix);
        auto compact = quantize(device, spec, x, part, false), swizzled = quantize(device, spec, x, part, true);
        CHECK(testing::difference(compact.codes, bytes(vectors.at(prefix + ".codes"))) == "");
        CHECK(testing::difference(compact.scales, bytes(vectors.at(prefix + ".scales"))) == "");
        CHECK(testing::difference(swizzled.codes, compact.codes) == "");
        CHECK(testing::difference(swizzled.scales, bytes(vectors.at(prefix + ".swizzled"))) == "");
        compared += 3;
    };
    for (Name format : formats)
        for (Name rounding : {roundings[0], roundings[3]}) {
            std::string head = std::string(format.text) + "/" + rounding.text + "/";
            for (Name part : parts) {
                for (const char* input : {"mat", "experts"})
                    compare(head + part.text + "/" + input, {format.value, MXQ_SCALING_1X32, rounding.value}, part.value,
                            vectors.at(std::string("x/") + input));
                if (format.value == MXQ_FORMAT_MXFP8_E4M3)
                    compare(head + "tile32/experts." + part.text, {format.value, MXQ_SCALING_32X32, rounding.value},
                            part.value, vectors.at("x/experts"));
            }
        }
    CHECK(compared == 60);
}

MXQ_EACH_DEVICE("golden: swizzle and unswizzle give every byte of layout") {
    const auto& vectors = file("layout");
    int compared = 0;
    for (const auto& [name, scales] : vectors.tensors()) {
        if (name.rfind("swizzle/", 0) != 0 || name.find(".scales") == std::string::npos) continue;
        INFO(name);
        testing::Dims dims{std::nullopt, scales.shape[0], scales.shape[1] * 32};
        oracle::Bytes swizzled = bytes(vectors.at(name.substr(0, name.size() - 6) + "swizzled"));
        auto compact_tensor = testing::make_quantized({}, dims, false), swizzled_tensor = testing::make_quantized({}, dims, true);
        Buffer from(device, bytes(scales)), to(device, swizzled.size()), back(device, scales.bytes);

        ok(mxq_tensor_set_part(compact_tensor, MXQ_PART_ROWWISE, nullptr, 0, from.data(), from.bytes()));
        ok(mxq_tensor_set_part(swizzled_tensor, MXQ_PART_ROWWISE, nullptr, 0, to.data(), to.bytes()));
        ok(mxq_swizzle_scales(device.context, nullptr, compact_tensor, swizzled_tensor, nullptr, 0, nullptr));
        CHECK(testing::difference(to.read(), swizzled) == "");

        ok(mxq_tensor_set_part(compact_tensor, MXQ_PART_ROWWISE, nullptr, 0, back.data(), back.bytes()));
        ok(mxq_unswizzle_scales(device.context, nullptr, swizzled_tensor, compact_tensor, nullptr, 0, nullptr));
        CHECK(testing::difference(back.read(), bytes(scales)) == "");
        compared += 2;
    }
    CHECK(compared == 14);
}
