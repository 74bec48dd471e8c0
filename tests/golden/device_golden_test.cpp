// Compares every device with the golden vectors, through the public API.
#include "../formats.h"
#include "golden.h"

using namespace golden;
using testing::Buffer;
using testing::ok;

namespace {

testing::Dims dims(const safetensors::Tensor& tensor) {
    oracle::Shape s = shape(tensor);
    return {tensor.shape.size() == 3 ? std::optional(s.experts) : std::nullopt, s.rows, s.cols};
}

oracle::Part quantize(testing::Device& device, const oracle::Spec& spec, const safetensors::Tensor& x, int32_t part, bool swizzled) {
    auto in = testing::make_tensor(plain_format(x), dims(x));
    auto out = testing::make_tensor(spec, dims(x), swizzled);
    Buffer data(device, bytes(x));
    testing::PartBuffers buffers(device, out, part);
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    uint64_t amax_bytes = 0;
    ok(mxq_tensor_required_amax_bytes(out, part, &amax_bytes));
    Buffer amax(device, spec.amax.empty() ? oracle::Bytes(static_cast<size_t>(amax_bytes), testing::poison) : testing::bytes_of(spec.amax));
    if (amax_bytes) ok(mxq_tensor_set_amax(out, part, reinterpret_cast<float*>(amax.data()), amax.bytes()));
    testing::run(device, mxq_quantize, mxq_quantize_query, testing::Options(device, spec), in, out);
    return {buffers.codes->read(), buffers.scales->read(), oracle::load(MXQ_FORMAT_F32, amax.read().data(), amax.bytes() / 4)};
}

// Compares a part with the named vectors of its codes and scales, and of its amax where there is one. Returns how many.
int compare(const safetensors::File& vectors, const oracle::Part& part, const std::string& codes, const std::string& scales,
            const std::string& amax = "") {
    CHECK(testing::difference(part.codes, bytes(vectors.at(codes))) == "");
    CHECK(testing::difference(part.scales, bytes(vectors.at(scales))) == "");
    if (!amax.empty()) CHECK(testing::difference(testing::bytes_of(part.amax), bytes(vectors.at(amax))) == "");
    return amax.empty() ? 2 : 3;
}

}  // namespace

MXQ_EACH_DEVICE("golden: quantize gives every byte of mx_rowwise") {
    const auto& vectors = file("mx_rowwise");
    int compared = 0;
    for (Name format : mx_formats)
        for (Name rounding : roundings)
            for (const auto& [name, x] : vectors.tensors()) {
                if (name.rfind("x/", 0) != 0) continue;
                std::string prefix = std::string(format.text) + "/" + rounding.text + "/" + name.substr(2);
                if (!vectors.contains(prefix + ".codes")) continue;
                INFO(prefix);
                auto part = quantize(device, {format.value, MXQ_SCALING_1X32, rounding.value}, x, MXQ_PART_ROWWISE, false);
                compared += compare(vectors, part, prefix + ".codes", prefix + ".scales");
            }
    CHECK(compared == 2 * 5 * 4 * 11);
}

MXQ_EACH_DEVICE("golden: quantize gives every byte of layout") {
    const auto& vectors = file("layout");
    int compared = 0;
    auto compare = [&](const std::string& prefix, const oracle::Spec& spec, int32_t part, const safetensors::Tensor& x) {
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

MXQ_EACH_DEVICE("golden: quantize gives every byte of nvfp4") {
    const auto& vectors = file("nvfp4");
    int compared = 0;
    for (const auto& [name, x] : vectors.tensors()) {
        if (name.rfind("x/", 0) != 0 || name.find(".amax") != std::string::npos) continue;
        for (bool given : {false, true})
            for (Name scaling : nvfp4_scalings)
                for (FourOverSix way : four_over_six) {
                    std::string prefix = std::string(scaling.text) + "/" + way.text + "/" + name.substr(2);
                    INFO(prefix);
                    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_NVFP4, scaling.value);
                    spec.four_over_six = way.value, spec.nvfp4_t = way.t;
                    const auto& amax = vectors.at(name + ".amax");
                    if (given) spec.amax = oracle::load(MXQ_FORMAT_F32, amax.data, 1);
                    auto part = quantize(device, spec, x, MXQ_PART_ROWWISE, false);
                    compared += compare(vectors, part, prefix + ".codes", prefix + ".scales", name + ".amax");
                }
    }
    CHECK(compared == 2 * 6 * 2 * 5 * 3);
}

MXQ_EACH_DEVICE("golden: quantize gives every byte of fp8") {
    const auto& vectors = file("fp8");
    int compared = 0;
    for (Name format : fp8_formats)
        for (Name scaling : fp8_scalings)
            for (bool power_of_two : {false, true}) {
                std::string prefix = std::string(format.text) + "/" + scaling.text + (power_of_two ? "/pow2" : "/exact");
                INFO(prefix);
                oracle::Spec spec = testing::spec_of(format.value, scaling.value);
                spec.power_of_two = power_of_two;
                auto part = quantize(device, spec, vectors.at("x"), MXQ_PART_ROWWISE, false);
                compared += compare(vectors, part, prefix + ".codes", prefix + ".scale_inv", prefix + ".amax");
            }
    CHECK(compared == 3 * 2 * 4 * 2);
}

MXQ_EACH_DEVICE("golden: quantize gives every byte of contract") {
    const auto& vectors = file("contract");
    const auto& x = vectors.at("x");
    auto seed_offset = vectors.at("seed_offset").values<uint64_t>();
    int compared = 0;
    oracle::Spec spec = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    spec.stochastic = true, spec.seed = seed_offset[0], spec.offset = seed_offset[1];
    spec.amax = oracle::load(MXQ_FORMAT_F32, vectors.at("amax").data, 1);
    for (Name part : parts) {
        std::string prefix = std::string("sr/nvfp4/") + part.text;
        compared += compare(vectors, quantize(device, spec, x, part.value, false), prefix + ".codes", prefix + ".scales");
    }
    spec.format = MXQ_FORMAT_MXFP4, spec.scaling = MXQ_SCALING_1X32;
    spec.amax.clear();
    compared += compare(vectors, quantize(device, spec, x, MXQ_PART_ROWWISE, false), "sr/mxfp4/rowwise.codes", "sr/mxfp4/rowwise.scales");
    for (const char* mask : {"0000", "d7e8", "f52c"}) {
        oracle::Spec transformed = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
        transformed.hadamard = MXQ_PART_ROWWISE;
        transformed.rowwise_mask = static_cast<uint32_t>(std::stoul(mask, nullptr, 16));
        std::string prefix = std::string("hadamard/") + mask;
        INFO(prefix);
        compared += compare(vectors, quantize(device, transformed, x, MXQ_PART_ROWWISE, false), prefix + "/codes", prefix + "/scales", prefix + "/amax");
    }
    CHECK(compared == 3 * 2 + 3 * 3);
}

MXQ_EACH_DEVICE("golden: pad_groups and swizzle_scales give every byte of groups") {
    const auto& vectors = file("groups");
    auto ends32 = vectors.at("ends").values<int32_t>();
    oracle::Ends ends(ends32.begin(), ends32.end());
    const auto& x = vectors.at("x");
    testing::DeviceEnds device_ends(device, ends);
    int compared = 0;
    for (int32_t alignment : {16, 32, 128}) {
        std::string name = "pad" + std::to_string(alignment);
        oracle::Bytes rows = bytes(vectors.at(name + ".rows"));
        auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims(x)), out = testing::make_tensor(MXQ_FORMAT_BF16, dims(x));
        device_ends.set(in, {});
        device_ends.set(out, {{}, alignment});
        uint64_t bound = 0;
        ok(mxq_tensor_required_bytes(out, MXQ_PART_ROWWISE, &bound, nullptr));
        Buffer data(device, bytes(x)), padded(device, static_cast<size_t>(bound)), starts(device, ends.size() * 4), last(device, ends.size() * 4);
        ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
        ok(mxq_tensor_set_data(out, padded.data(), padded.bytes()));
        ok(mxq_tensor_set_padded_groups(out, MXQ_PART_ROWWISE, starts.data(), starts.bytes(), last.data(), last.bytes()));
        testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in, out);
        REQUIRE(bound >= rows.size());
        rows.resize(static_cast<size_t>(bound), testing::poison);
        CHECK(testing::difference(padded.read(), rows) == "");
        CHECK(testing::difference(starts.read(), bytes(vectors.at(name + ".starts"))) == "");
        CHECK(testing::difference(last.read(), bytes(vectors.at(name + ".ends"))) == "");
        compared += 3;
    }
    for (const char* name : {"rows/4", "rows/8"}) {
        const auto& scales = vectors.at(std::string(name) + ".scales");
        testing::Dims shape{std::nullopt, scales.shape[0], scales.shape[1] * 32};
        auto compact = testing::make_quantized({}, shape, false), swizzled = testing::make_quantized({}, shape, true);
        device_ends.set(compact, {});
        device_ends.set(swizzled, {});
        uint64_t bound = 0;
        ok(mxq_tensor_required_bytes(swizzled, MXQ_PART_ROWWISE, nullptr, &bound));
        oracle::Bytes expected = bytes(vectors.at(std::string(name) + ".swizzled"));
        expected.resize(oracle::swizzle_row_groups(bytes(scales), scales.shape[1], ends).size());
        expected.resize(static_cast<size_t>(bound), testing::poison);
        Buffer from(device, bytes(scales)), to(device, static_cast<size_t>(bound));
        ok(mxq_tensor_set_part(compact, MXQ_PART_ROWWISE, nullptr, 0, from.data(), from.bytes()));
        ok(mxq_tensor_set_part(swizzled, MXQ_PART_ROWWISE, nullptr, 0, to.data(), to.bytes()));
        testing::run(device, mxq_swizzle_scales, mxq_swizzle_scales_query, nullptr, compact, swizzled);
        CHECK(testing::difference(to.read(), expected) == "");
        ++compared;
    }
    for (const char* name : {"contraction/64", "contraction/200"}) {
        const auto& scales = vectors.at(std::string(name) + ".scales");
        auto block_ends = vectors.at(std::string(name) + ".block_ends").values<int32_t>();
        oracle::Ends rows;
        for (int32_t end : block_ends) rows.push_back(end * 32);
        // All groups have whole blocks of rows, so that the columnwise part has no padding.
        testing::Dims shape{std::nullopt, scales.shape[1] * 32, scales.shape[0]};
        auto compact = testing::make_quantized({}, shape, false), swizzled = testing::make_quantized({}, shape, true);
        testing::DeviceEnds contraction(device, rows);
        contraction.set(compact, {});
        contraction.set(swizzled, {});
        uint64_t compact_bound = 0, bound = 0;
        ok(mxq_tensor_required_bytes(compact, MXQ_PART_COLUMNWISE, nullptr, &compact_bound));
        ok(mxq_tensor_required_bytes(swizzled, MXQ_PART_COLUMNWISE, nullptr, &bound));
        // The library's lines of compact scales have room for any ends, so they are longer than those of the vector.
        const int64_t stride = static_cast<int64_t>(compact_bound) / scales.shape[0];
        oracle::Bytes spread(static_cast<size_t>(compact_bound), oracle::untouchable);
        for (int64_t i = 0; i < scales.shape[0]; ++i)
            std::memcpy(&spread[static_cast<size_t>(i * stride)], scales.data + i * scales.shape[1], static_cast<size_t>(scales.shape[1]));
        auto placed = oracle::swizzle_contraction_groups(scales.data, scales.shape[0], scales.shape[1], {block_ends.begin(), block_ends.end()});
        oracle::Bytes expected = bytes(vectors.at(std::string(name) + ".swizzled"));
        expected.resize(placed.size());
        expected.resize(static_cast<size_t>(bound), testing::poison);
        Buffer from(device, spread), to(device, static_cast<size_t>(bound));
        ok(mxq_tensor_set_part(compact, MXQ_PART_COLUMNWISE, nullptr, 0, from.data(), from.bytes()));
        ok(mxq_tensor_set_part(swizzled, MXQ_PART_COLUMNWISE, nullptr, 0, to.data(), to.bytes()));
        testing::run(device, mxq_swizzle_scales, mxq_swizzle_scales_query, nullptr, compact, swizzled);
        CHECK(testing::difference(to.read(), expected) == "");
        ++compared;
    }
    CHECK(compared == 13);
}
