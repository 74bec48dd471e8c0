// Calls of every verb with every format, part and layout of scales, with groups, experts and empty tensors, each in memory
// of its own. graph_test.cpp captures them all.
#ifndef MXQ_TESTS_GRAPH_CALLS_H
#define MXQ_TESTS_GRAPH_CALLS_H

#include "../formats.h"

#include <functional>
#include <tuple>

namespace graph_calls {

using testing::Buffer;
using testing::Bytes;
using testing::ok;

inline constexpr int rounds = 3;  // of contents and of ends of groups
inline constexpr int32_t group_count = 4;

// Tells the kinds of memory that a captured call reads.
enum class Content { plain, codes, scales, amax, ends };

// Returns ends of groups, some of them empty, in every round others.
inline Bytes ends_of(int64_t rows, int round) {
    const int64_t of_rounds[rounds][group_count] = {{rows / 4, rows / 4, rows - rows / 3, rows - rows / 8},
                                                    {0, 0, 0, rows},
                                                    {std::min<int64_t>(1, rows), rows / 2, rows, rows}};
    Bytes out(4 * group_count);
    for (size_t g = 0; g < group_count; ++g) {
        const auto end = static_cast<int32_t>(of_rounds[round][g]);
        std::memcpy(&out[4 * g], &end, 4);
    }
    return out;
}

// Returns finite numbers of moderate size.
inline Bytes numbers_of(Content content, int32_t format, size_t bytes, int round) {
    cases::Random random(static_cast<uint64_t>(round) * 97 + bytes);
    if (content == Content::plain)
        return cases::plain_values(format, cases::Values::normal, bytes / static_cast<size_t>(oracle::plain_bytes(format)),
                                   random.bits());
    if (content == Content::amax || (content == Content::scales && oracle::is_fp8(format))) {
        oracle::Floats out(bytes / 4);
        for (float& value : out) value = (content == Content::amax ? 5.0f : 1.0f) + random.uniform() / 2;
        return testing::bytes_of(out);
    }
    Bytes out(bytes);
    for (auto& byte : out) {
        if (content == Content::scales)
            byte = static_cast<uint8_t>((format == MXQ_FORMAT_NVFP4 ? 0x28 : 118) + random.below(16));
        else
            byte = static_cast<uint8_t>(oracle::code_bits(format) == 8 ? (random.bits() & 0x80) | random.below(0x78)
                                                                       : random.bits());
    }
    return out;
}

inline const Bytes& content_of(Content content, int32_t format, size_t bytes, int round) {
    static std::map<std::tuple<Content, int32_t, size_t, int>, Bytes> kept;
    const auto [at, is_new] = kept.try_emplace({content, format, bytes, round});
    if (is_new) at->second = numbers_of(content, format, bytes, round);
    return at->second;
}

enum class Role { in, out };

class Call {
public:
    // `offset` 1 takes all buffers the alignment that wide loads need.
    Call(testing::Device& device, std::string verb, std::string text, size_t offset)
        : verb(std::move(verb)), text(std::move(text)), device_(device), offset_(offset) {}

    // Tensors with their buffers. `grouped`: the rowwise alignment of its groups, and if above 1 the columnwise one is 128;
    // 0: has none.
    mxq_tensor* plain(int32_t format, testing::Dims dims, Role role, int64_t grouped = 0) {
        mxq_tensor* tensor = keep(testing::make_tensor(format, dims), dims, grouped, 0);
        uint64_t bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
        const Buffer& data = buffer(role, Content::plain, format, bytes, static_cast<size_t>(oracle::plain_bytes(format)));
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
        return tensor;
    }
    // `with_amax`: FP8 has one too.
    mxq_tensor* quantized(const oracle::Spec& spec, testing::Dims dims, bool swizzled, int32_t parts, Role role,
                          int64_t grouped = 0, bool with_amax = false) {
        mxq_tensor* tensor = keep(testing::make_tensor(spec, dims, swizzled), dims, grouped, grouped > 1 ? 128 : 0);
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            if (!(parts & part)) continue;
            uint64_t codes = 0, scales = 0, amax = 0;
            ok(mxq_tensor_required_bytes(tensor, part, &codes, &scales));
            ok(mxq_tensor_required_amax_bytes(tensor, part, &amax));
            const Buffer &c = buffer(role, Content::codes, spec.format, codes, 1),
                         &s = buffer(role, Content::scales, spec.format, scales, testing::scale_offset(spec, 1));
            ok(mxq_tensor_set_part(tensor, part, c.data(), c.bytes(), s.data(), s.bytes()));
            if (!testing::is_nvfp4(spec) && !with_amax) continue;
            const Buffer& a = buffer(role, Content::amax, spec.format, amax, 4);
            ok(mxq_tensor_set_amax(tensor, part, static_cast<float*>(a.data()), a.bytes()));
        }
        testing::transform_declared_parts(tensor, spec);
        return tensor;
    }

    // Ask for the workspace and keep how to run the call; false where no implementation takes it.
    bool converts(testing::Verb run, testing::Query query, const oracle::Spec* options_of, mxq_tensor* in, mxq_tensor* out) {
        if (options_of) options_ = std::make_unique<testing::Options>(device_, *options_of);
        mxq_quantize_options* options = options_ ? static_cast<mxq_quantize_options*>(*options_) : nullptr;
        return asks([=, this](mxq_plan** plan) { return query(device_.context, options, in, out, plan); },
                    [=, this](void* workspace, uint64_t bytes, void* stream) {
                        return run(device_.context, options, in, out, workspace, bytes, stream);
                    });
    }
    bool multiplies(bool grouped, testing::GemmOptions of_product, mxq_tensor* a, mxq_tensor* b, mxq_tensor* d) {
        product_options_ = std::move(of_product);
        mxq_gemm_options* options = product_options_;
        const auto query = grouped ? mxq_grouped_gemm_query : mxq_gemm_query;
        const auto run = grouped ? mxq_grouped_gemm : mxq_gemm;
        return asks([=, this](mxq_plan** plan) { return query(device_.context, options, a, b, d, plan); },
                    [=, this](void* workspace, uint64_t bytes, void* stream) {
                        return run(device_.context, options, a, b, d, workspace, bytes, stream);
                    });
    }
    void run(void* stream) const { ok(run_(stream)); }

    // Sets the inputs to those of a round, and all that is written to poison.
    void reset(int round) const {
        for (const Input& input : inputs_) {
            if (input.buffer->bytes() == 0) continue;
            const Bytes& bytes = input.content == Content::ends
                                     ? ends_of(input.rows, round)
                                     : content_of(input.content, input.format, input.buffer->bytes(), round);
            device_.to_device(input.buffer->data(), bytes.data(), bytes.size());
        }
        for (const Buffer* output : outputs_)
            if (output->bytes())
                device_.to_device(output->data(), Bytes(output->bytes(), testing::poison).data(), output->bytes());
    }
    Bytes result() const {
        Bytes all;
        for (const Buffer* output : outputs_) {
            const Bytes one = output->read();
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

    std::string verb, text, implementation;

private:
    struct Input {
        const Buffer* buffer;
        Content content;
        int32_t format;
        int64_t rows;
    };

    mxq_tensor* keep(testing::Tensor tensor, testing::Dims dims, int64_t grouped, int32_t columnwise) {
        if (grouped) {
            if (!ends_) {
                ends_ = std::make_unique<Buffer>(device_, ends_of(dims.rows, 0));
                inputs_.push_back({ends_.get(), Content::ends, 0, dims.rows});
            }
            ok(testing::set_ends(tensor, ends_->data(), MXQ_TYPE_INT32, group_count));
            ok(mxq_tensor_set_group_alignment(tensor, static_cast<int32_t>(grouped), columnwise));
        }
        tensors_.push_back(std::move(tensor));
        return tensors_.back();
    }
    const Buffer& buffer(Role role, Content content, int32_t format, uint64_t bytes, size_t unit) {
        const bool in = role == Role::in;
        buffers_.push_back(in ? std::make_unique<Buffer>(device_, content_of(content, format, bytes, 0), offset_ * unit)
                              : std::make_unique<Buffer>(device_, bytes, offset_ * unit));
        const Buffer* made = buffers_.back().get();
        if (in)
            inputs_.push_back({made, content, format, 0});
        else
            outputs_.push_back(made);
        return *made;
    }
    template <class Ask, class Run>
    bool asks(Ask ask, Run run) {
        testing::Plan plan;
        const mxq_status status = ask(plan.out());
        if (status == MXQ_STATUS_UNSUPPORTED) return false;
        ok(status);
        implementation = mxq_plan_implementation(plan);
        const uint64_t bytes = mxq_plan_workspace_bytes(plan);
        workspace_ = std::make_unique<Buffer>(device_, static_cast<size_t>(bytes));
        void* workspace = bytes ? workspace_->data() : nullptr;
        run_ = [=](void* stream) { return run(workspace, bytes, stream); };
        return true;
    }

    testing::Device& device_;
    size_t offset_;
    std::vector<testing::Tensor> tensors_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::unique_ptr<Buffer> ends_, workspace_;
    std::vector<Input> inputs_;
    std::vector<const Buffer*> outputs_;
    std::unique_ptr<testing::Options> options_;
    testing::GemmOptions product_options_;
    std::function<mxq_status(void*)> run_;
};

using Calls = std::vector<std::unique_ptr<Call>>;

// A shape, and whether all buffers are moved from aligned addresses.
struct Size {
    testing::Dims dims;
    size_t offset;
    bool takes_groups() const { return !dims.experts; }
};
inline const Size sizes[] = {{{std::nullopt, 136, 160}, 0}, {{std::nullopt, 148, 100}, 1}, {{3, 64, 96}, 0},
                             {{std::nullopt, 0, 64}, 0},    {{std::nullopt, 64, 0}, 0},    {{0, 32, 64}, 0}};

// The calls of all verbs, or one of so many.
Calls conversions(testing::Device& device, int64_t one_of = 1);
Calls products(testing::Device& device, int64_t one_of = 1);

}  // namespace graph_calls

#endif
