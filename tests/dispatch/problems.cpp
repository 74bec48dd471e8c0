#include "problems.h"

namespace problems {

namespace {

constexpr int32_t both_parts = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;

Problem conversion(const std::string& text, testing::Verb verb, testing::Query query, std::function<void(Scene&)> set_up) {
    auto named = [](Scene& scene, const std::string& name) {
        ok(mxq_quantize_options_set_implementation(scene.options(), name.c_str()));
        return scene.options();
    };
    return {text, std::move(set_up),
            [=](Scene& s, const std::string& name, mxq_plan** plan) { return query(s.device.context, named(s, name), s.in, s.out, plan); },
            [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
                return verb(s.device.context, named(s, name), s.in, s.out, workspace, bytes, nullptr);
            }};
}

Problem product(const std::string& text, bool grouped, int32_t a, int32_t b, std::function<void(Scene&)> set_up) {
    return {text, std::move(set_up),
            [=](Scene& s, const std::string& name, mxq_plan** plan) {
                auto options = testing::gemm_options(a, b, 0, name.c_str());
                return (grouped ? mxq_grouped_gemm_query : mxq_gemm_query)(s.device.context, options, s.in, s.second, s.out, plan);
            },
            [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
                auto options = testing::gemm_options(a, b, 0, name.c_str());
                return (grouped ? mxq_grouped_gemm : mxq_gemm)(s.device.context, options, s.in, s.second, s.out, workspace, bytes, nullptr);
            },
            true};
}

// ---- Conversions ---------------------------------------------------------------------------------------------------------

const testing::Dims sizes[] = {{std::nullopt, 160, 256}, {std::nullopt, 150, 99}};

oracle::Floats values_of(testing::Dims dims) { return cases::values(cases::Values::normal, dims.shape().count(), 5); }

std::map<int32_t, oracle::Part> content_of(const oracle::Spec& spec, testing::Dims dims, bool swizzled, int32_t parts) {
    std::map<int32_t, oracle::Part> content;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) content[part] = oracle::quantize(spec, values_of(dims), dims.shape(), part, swizzled);
    return content;
}

std::map<int32_t, oracle::Part> grouped_content_of(const oracle::Spec& spec, const oracle::Floats& x, testing::Dims dims,
                                                   int32_t parts, int64_t alignment) {
    std::map<int32_t, oracle::Part> content;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part)
            content[part] = oracle::quantize_groups(spec, x, dims.rows, dims.cols, {groups.ends, alignment}, part, false).on(0);
    return content;
}

void add_quantize(Problems& problems, const oracle::Spec& base) {
    for (const oracle::Spec& spec : testing::ways_of(base))
        for (int32_t input : {MXQ_FORMAT_F32, MXQ_FORMAT_BF16})
            for (int32_t parts = MXQ_PART_ROWWISE; parts <= both_parts; ++parts)
                for (int64_t group_of : {0, 32})
                    for (const testing::Dims& dims : sizes) {
                        if (spec.hadamard && dims.cols % 16) continue;
                        Bytes x = oracle::store(input, values_of(dims));
                        problems["quantize"].push_back(conversion(testing::describe(spec), mxq_quantize, mxq_quantize_query, [=](Scene& s) {
                            s.in = s.plain_in(input, dims, x);
                            s.out = s.quantized_out(spec, dims, false, parts, testing::is_nvfp4(spec), group_of);
                            s.of_format = std::make_unique<testing::Options>(s.device, spec);
                        }));
                    }
}

void add_requantize(Problems& problems, const oracle::Spec& base) {
    const oracle::Spec from = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    const auto content = content_of(from, sizes[0], false, MXQ_PART_ROWWISE);
    for (const oracle::Spec& to : testing::ways_of(base))
        for (int32_t parts : {both_parts, int32_t(MXQ_PART_COLUMNWISE)})
            problems["requantize"].push_back(conversion(testing::describe(to), mxq_requantize, mxq_requantize_query, [=](Scene& s) {
                s.in = s.quantized_in(from, sizes[0], false, content);
                s.out = s.quantized_out(to, sizes[0], false, parts, testing::is_nvfp4(to));
                s.of_format = std::make_unique<testing::Options>(s.device, to);
            }));
}

void add_dequantize(Problems& problems, const oracle::Spec& base, int32_t hadamard) {
    oracle::Spec spec = base;
    spec.hadamard = hadamard;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        for (const testing::Dims& dims : sizes) {
            if (hadamard && (dims.cols % 16 || dims.rows % 16)) continue;
            const auto content = content_of(spec, dims, false, part);
            const int32_t output = part == MXQ_PART_ROWWISE ? MXQ_FORMAT_BF16 : MXQ_FORMAT_F32;
            problems["dequantize"].push_back(conversion(testing::describe(spec), mxq_dequantize, mxq_dequantize_query, [=](Scene& s) {
                s.in = s.quantized_in(spec, dims, false, content);
                s.out = s.plain_out(output, dims);
            }));
        }
}

void add_amax(Problems& problems, const oracle::Spec& spec) {
    if (!testing::is_nvfp4(spec) && spec.scaling != MXQ_SCALING_TENSOR) return;
    for (const testing::Dims& dims : sizes) {
        Bytes x = oracle::store(MXQ_FORMAT_BF16, values_of(dims));
        problems["amax"].push_back(conversion(testing::describe(spec), mxq_amax, mxq_amax_query, [=](Scene& s) {
            s.in = s.plain_in(MXQ_FORMAT_BF16, dims, x);
            s.out = s.quantized_out(spec, dims, false, both_parts, true);
        }));
    }
}

void add_convert(Problems& problems) {
    for (int32_t from : cases::plain_formats)
        for (int32_t to : cases::plain_formats) {
            Bytes x = oracle::store(from, values_of(sizes[1]));
            problems["convert"].push_back(conversion("", mxq_convert, mxq_convert_query, [=](Scene& s) {
                s.in = s.plain_in(from, sizes[1], x);
                s.out = s.plain_out(to, sizes[1]);
            }));
        }
}

void add_swizzle(Problems& problems, const oracle::Spec& spec) {
    if (!testing::can_swizzle(spec)) return;
    for (bool to_swizzled : {true, false}) {
        const auto content = content_of(spec, sizes[1], !to_swizzled, both_parts);
        problems[to_swizzled ? "swizzle_scales" : "unswizzle_scales"].push_back(
            conversion(testing::describe(spec), to_swizzled ? mxq_swizzle_scales : mxq_unswizzle_scales,
                       to_swizzled ? mxq_swizzle_scales_query : mxq_unswizzle_scales_query, [=](Scene& s) {
                           s.in = s.quantized_in(spec, sizes[1], !to_swizzled, content);
                           s.out = s.quantized_out(spec, sizes[1], to_swizzled, both_parts, false);
                       }));
    }
}

void add_pad(Problems& problems, const oracle::Spec& spec) {
    for (bool pads : {true, false}) {
        const int64_t from = pads ? 1 : 64, to = pads ? 64 : 1;
        const auto content = grouped_content_of(spec, values_of(sizes[0]), sizes[0], both_parts, from);
        problems[pads ? "pad_groups" : "unpad_groups"].push_back(
            conversion(testing::describe(spec), pads ? mxq_pad_groups : mxq_unpad_groups,
                       pads ? mxq_pad_groups_query : mxq_unpad_groups_query, [=](Scene& s) {
                           s.in = s.quantized_in(spec, sizes[0], false, content, from);
                           s.out = s.quantized_out(spec, sizes[0], false, both_parts, false, to);
                       }));
    }
}

using ActivateOptions = testing::Handle<mxq_activate_options, mxq_activate_options_destroy>;

// Returns options of activate. They are made for each call, since they copy those of quantize.
ActivateOptions activate_options(Scene& scene, int32_t kind, const std::string& name) {
    ActivateOptions options;
    ok(mxq_activate_options_create(options.out()));
    ok(mxq_activate_options_set_activation(options, kind));
    if (scene.of_format) ok(mxq_activate_options_set_quantize_options(options, *scene.of_format));
    ok(mxq_activate_options_set_implementation(options, name.c_str()));
    return options;
}

Problem activation(const std::string& text, int32_t kind, std::function<void(Scene&)> set_up) {
    return {text, std::move(set_up),
            [=](Scene& s, const std::string& name, mxq_plan** plan) {
                return mxq_activate_query(s.device.context, activate_options(s, kind, name), s.in, s.out, plan);
            },
            [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
                return mxq_activate(s.device.context, activate_options(s, kind, name), s.in, s.out, workspace, bytes, nullptr);
            }};
}

// The gradient of the result is `in`, and what was activated `second`.
Problem activation_gradient(const std::string& text, int32_t kind, std::function<void(Scene&)> set_up) {
    return {text, std::move(set_up),
            [=](Scene& s, const std::string& name, mxq_plan** plan) {
                return mxq_activate_backward_query(s.device.context, activate_options(s, kind, name), s.in, s.second, s.out, plan);
            },
            [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
                return mxq_activate_backward(s.device.context, activate_options(s, kind, name), s.in, s.second, s.out, workspace,
                                             bytes, nullptr);
            }};
}

void add_activate_backward(Problems& problems, const oracle::Spec& spec) {
    for (int32_t parts = MXQ_PART_ROWWISE; parts <= both_parts; ++parts)
        for (int64_t group_of : {0, 32})
            for (const testing::Dims& dims : sizes) {
                const testing::Dims wide{std::nullopt, dims.rows, 2 * dims.cols};
                Bytes d = oracle::store(MXQ_FORMAT_BF16, values_of(dims)), x = oracle::store(MXQ_FORMAT_BF16, values_of(wide));
                const int32_t kind = 1 + static_cast<int32_t>(problems["activate_backward"].size() % 4);
                problems["activate_backward"].push_back(activation_gradient(testing::describe(spec), kind, [=](Scene& s) {
                    s.in = s.plain_in(MXQ_FORMAT_BF16, dims, d), s.second = s.plain_in(MXQ_FORMAT_BF16, wide, x);
                    s.out = s.quantized_out(spec, wide, false, parts, testing::is_nvfp4(spec), group_of);
                    s.of_format = std::make_unique<testing::Options>(s.device, spec);
                }));
            }
}

void add_activate(Problems& problems, const oracle::Spec& spec) {
    for (int32_t parts = MXQ_PART_ROWWISE; parts <= both_parts; ++parts)
        for (int64_t group_of : {0, 32})
            for (const testing::Dims& dims : sizes) {
                const testing::Dims in_dims{std::nullopt, dims.rows, 2 * dims.cols};
                Bytes x = oracle::store(MXQ_FORMAT_BF16, values_of(in_dims));
                const int32_t kind = 1 + static_cast<int32_t>(problems["activate"].size() % 4);
                problems["activate"].push_back(activation(testing::describe(spec), kind, [=](Scene& s) {
                    s.in = s.plain_in(MXQ_FORMAT_BF16, in_dims, x);
                    s.out = s.quantized_out(spec, dims, false, parts, testing::is_nvfp4(spec), group_of);
                    s.of_format = std::make_unique<testing::Options>(s.device, spec);
                }));
            }
}

Problems activations() {
    Problems problems;
    for (const oracle::Spec& spec : testing::all_formats()) add_activate(problems, spec), add_activate_backward(problems, spec);
    for (int32_t from : cases::plain_formats)
        for (int32_t to : cases::plain_formats)
            for (int32_t kind = MXQ_ACTIVATION_SWIGLU; kind <= MXQ_ACTIVATION_SQUARED_RELU; ++kind)
                for (const testing::Dims& dims : sizes) {
                    const testing::Dims in_dims{std::nullopt, dims.rows, (kind < MXQ_ACTIVATION_SILU ? 2 : 1) * dims.cols};
                    Bytes x = oracle::store(from, values_of(in_dims));
                    problems["activate"].push_back(activation("", kind, [=](Scene& s) {
                        s.in = s.plain_in(from, in_dims, x);
                        s.out = s.plain_out(to, dims);
                    }));
                    if (kind >= MXQ_ACTIVATION_SILU) continue;
                    Bytes d = oracle::store(from, values_of(dims));
                    problems["activate_backward"].push_back(activation_gradient("", kind, [=](Scene& s) {
                        s.in = s.plain_in(from, dims, d), s.second = s.plain_in(from, in_dims, x);
                        s.out = s.plain_out(to, in_dims);
                    }));
                }
    return problems;
}

// ---- The expert layer ----------------------------------------------------------------------------------------------------

void add_route(Problems& problems, const testing::Choices& choices, int32_t id_type) {
    const auto named = [](Scene& s, const std::string& name) {
        ok(mxq_quantize_options_set_implementation(s.options(), name.c_str()));
        return s.options();
    };
    problems["route"].push_back(
        {"", [=](Scene& s) { s.routing = std::make_unique<testing::DeviceRouting>(s.device, choices, id_type); },
         [=](Scene& s, const std::string& name, mxq_plan** plan) {
             return mxq_route_query(s.device.context, named(s, name), s.routing->handle, plan);
         },
         [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
             return mxq_route(s.device.context, named(s, name), s.routing->handle, workspace, bytes, nullptr);
         }});
    const Bytes rows = oracle::store(MXQ_FORMAT_BF16, cases::values(cases::Values::normal, choices.rows() * 96, 3));
    problems["combine"].push_back(
        {"", [=](Scene& s) {
             s.routing = std::make_unique<testing::DeviceRouting>(s.device, choices, id_type);
             ok(s.routing->route());
             s.in = s.plain_in(MXQ_FORMAT_BF16, {std::nullopt, choices.rows(), 96}, rows);
             s.out = s.plain_out(MXQ_FORMAT_F32, {std::nullopt, choices.tokens, 96});
         },
         [=](Scene& s, const std::string& name, mxq_plan** plan) {
             return mxq_combine_query(s.device.context, named(s, name), s.routing->handle, s.in, nullptr, s.out, plan);
         },
         [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
             return mxq_combine(s.device.context, named(s, name), s.routing->handle, s.in, nullptr, s.out, workspace, bytes, nullptr);
         }});
    const Bytes sums = oracle::store(MXQ_FORMAT_F32, cases::values(cases::Values::normal, choices.tokens * 96, 4));
    problems["combine_backward"].push_back(
        {"", [=](Scene& s) {
             s.routing = std::make_unique<testing::DeviceRouting>(s.device, choices, id_type);
             ok(s.routing->route());
             s.in = s.plain_in(MXQ_FORMAT_F32, {std::nullopt, choices.tokens, 96}, sums);
             s.second = s.plain_in(MXQ_FORMAT_BF16, {std::nullopt, choices.rows(), 96}, rows);
             s.out = s.plain_out(MXQ_FORMAT_F32, {std::nullopt, choices.tokens, choices.choices});
         },
         [=](Scene& s, const std::string& name, mxq_plan** plan) {
             return mxq_combine_backward_query(s.device.context, named(s, name), s.routing->handle, s.in, s.second, nullptr, s.out, plan);
         },
         [=](Scene& s, const std::string& name, void* workspace, uint64_t bytes) {
             return mxq_combine_backward(s.device.context, named(s, name), s.routing->handle, s.in, s.second, nullptr, s.out, workspace,
                                         bytes, nullptr);
         }});
}

// ---- Products ------------------------------------------------------------------------------------------------------------

// -3 .. 3, all of them among any seven neighbours of a row or a column, so that every block has a 3.
oracle::Floats integers(testing::Dims dims) {
    oracle::Floats out;
    for (int64_t i = 0; i < dims.shape().experts * dims.rows; ++i)
        for (int64_t j = 0; j < dims.cols; ++j) out.push_back(static_cast<float>((i * 3 + j * 2) % 7 - 3));
    return out;
}

// With scales that are powers of two for such values.
oracle::Spec exact(oracle::Spec spec) {
    spec.power_of_two = oracle::is_fp8(spec.format);
    if (testing::is_nvfp4(spec)) spec.amax = {6 * 448};
    return spec;
}

const oracle::Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE), f16 = testing::spec_of(MXQ_FORMAT_F16, MXQ_SCALING_NONE);
bool is_plain(const oracle::Spec& spec) { return spec.format <= MXQ_FORMAT_BF16; }

// Returns the integers as numbers of a plain format; of F16 257 times as large, so that they have more bits than BF16's.
Bytes numbers_of(const oracle::Spec& spec, oracle::Floats x) {
    if (spec.format == MXQ_FORMAT_F16)
        for (float& value : x) value *= 257;
    return oracle::store(spec.format, x);
}

void require_exact(const oracle::Floats& decoded, const oracle::Floats& x, size_t count) {
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count), decoded.begin()))
        throw std::logic_error("a format does not hold these integers exactly");
}

// Sets an operand up: its rowwise part, or the columnwise one of a transposed tensor.
using Operand = std::function<testing::Tensor(Scene&)>;
Operand operand(const oracle::Spec& spec, testing::Dims dims, int32_t part, bool swizzled) {
    const oracle::Floats x = integers(dims);
    if (is_plain(spec)) return [=, bytes = numbers_of(spec, x)](Scene& s) { return s.plain_in(spec.format, dims, bytes); };
    const std::map<int32_t, oracle::Part> content{{part, oracle::quantize(spec, x, dims.shape(), part, swizzled)}};
    require_exact(oracle::dequantize(spec, content.at(part), dims.shape(), part, swizzled), x, x.size());
    return [=](Scene& s) { return s.quantized_in(spec, dims, swizzled, content); };
}
Operand grouped_operand(const oracle::Spec& spec, testing::Dims dims, int32_t part) {
    const oracle::Floats x = integers(dims);
    if (is_plain(spec)) return [=, bytes = numbers_of(spec, x)](Scene& s) { return s.plain_in(spec.format, dims, bytes, 1); };
    const auto content = grouped_content_of(spec, x, dims, part, 1);
    const auto decoded = oracle::dequantize_groups(spec, content.at(part), dims.rows, dims.cols, groups, part, false);
    require_exact(decoded, x, static_cast<size_t>(groups.ends.back() * dims.cols));
    return [=](Scene& s) { return s.quantized_in(spec, dims, false, content, 1); };
}

void add_gemm(Problems& problems, const oracle::Spec& a_spec, const oracle::Spec& b_spec) {
    const int64_t shapes[][3] = {{256, 128, 256}, {37, 70, 96}};
    int64_t number = 0;
    for (auto [a, b] : {std::pair{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N}, {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N}})
        for (auto [m, n, k] : shapes) {
            const int32_t d = ++number % 2 ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
            const bool t = a == MXQ_TRANSPOSE_T, u = b == MXQ_TRANSPOSE_T, swizzled = number % 3 == 0;
            auto in = operand(a_spec, {std::nullopt, t ? k : m, t ? m : k}, t ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE,
                              swizzled && !is_plain(a_spec) && testing::can_swizzle(a_spec));
            auto second = operand(b_spec, {std::nullopt, u ? n : k, u ? k : n}, u ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, false);
            problems["gemm"].push_back(product("", false, a, b, [=, m = m, n = n](Scene& s) {
                s.in = in(s), s.second = second(s), s.out = s.plain_out(d, {std::nullopt, m, n});
            }));
        }
}

void add_grouped_gemm(Problems& problems, const oracle::Spec& a_spec, const oracle::Spec& b_spec) {
    const auto count = std::optional<int64_t>(groups.count());
    const int64_t rows = 160, n = 128, k = 256;
    for (bool transpose_b : {true, false}) {
        auto in = grouped_operand(a_spec, {std::nullopt, rows, k}, MXQ_PART_ROWWISE);
        auto second = operand(b_spec, {count, transpose_b ? n : k, transpose_b ? k : n}, transpose_b ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, false);
        problems["grouped_gemm"].push_back(product("", true, MXQ_TRANSPOSE_N, transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, [=](Scene& s) {
            s.in = in(s), s.second = second(s), s.out = s.plain_out(MXQ_FORMAT_BF16, {std::nullopt, rows, n});
        }));
    }
    auto in = grouped_operand(a_spec, {std::nullopt, rows, k}, MXQ_PART_COLUMNWISE);
    auto second = grouped_operand(b_spec, {std::nullopt, rows, n}, MXQ_PART_COLUMNWISE);
    problems["grouped_gemm"].push_back(product("", true, MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, [=](Scene& s) {
        s.in = in(s), s.second = second(s), s.out = s.plain_out(MXQ_FORMAT_F32, {count, k, n});
    }));
}

// Products by weights that have their rowwise part alone, which is read MN-major.
void add_gemm_across(Problems& problems, const oracle::Spec& a_spec, const oracle::Spec& b_spec) {
    const int64_t shapes[][3] = {{256, 128, 256}, {37, 70, 96}};
    for (auto [m, n, k] : shapes) {
        auto in = operand(a_spec, {std::nullopt, m, k}, MXQ_PART_ROWWISE, false);
        auto second = operand(b_spec, {std::nullopt, k, n}, MXQ_PART_ROWWISE, false);
        problems["gemm"].push_back(product("", false, MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N, [=, m = m, n = n](Scene& s) {
            s.in = in(s), s.second = second(s), s.out = s.plain_out(MXQ_FORMAT_BF16, {std::nullopt, m, n});
        }));
    }
}
void add_grouped_gemm_across(Problems& problems, const oracle::Spec& a_spec, const oracle::Spec& b_spec) {
    const int64_t rows = 160, n = 128, k = 256;
    auto in = grouped_operand(a_spec, {std::nullopt, rows, k}, MXQ_PART_ROWWISE);
    auto second = operand(b_spec, {std::optional<int64_t>(groups.count()), k, n}, MXQ_PART_ROWWISE, false);
    problems["grouped_gemm"].push_back(product("", true, MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N, [=](Scene& s) {
        s.in = in(s), s.second = second(s), s.out = s.plain_out(MXQ_FORMAT_BF16, {std::nullopt, rows, n});
    }));
}

Problems conversions(void (*add)(Problems&, const oracle::Spec&)) {
    Problems problems;
    for (const oracle::Spec& spec : testing::all_formats()) add(problems, spec);
    return problems;
}

Problems other_conversions() {
    Problems problems = conversions([](Problems& to, const oracle::Spec& spec) {
        add_dequantize(to, spec, 0);
        if (testing::takes_hadamard(spec)) add_dequantize(to, spec, both_parts);
        add_amax(to, spec);
        add_swizzle(to, spec);
        add_pad(to, spec);
    });
    add_convert(problems);
    add_route(problems, testing::draw_choices(100, 4, 32, testing::Draw::uniform, 1), MXQ_TYPE_INT32);
    add_route(problems, testing::draw_choices(3000, 3, 40, testing::Draw::with_dropped, 2), MXQ_TYPE_INT64);
    return problems;
}

// Calls add(problems, a, b) for pairs of operands in either of their parts.
using AddProducts = void (*)(Problems&, const oracle::Spec&, const oracle::Spec&);
void add_pairs(Problems& problems, AddProducts add) {
    for (const oracle::Spec& spec : testing::all_formats()) {
        const oracle::Spec operand = exact(spec);
        for (const auto& [a, b] : {std::pair{operand, operand}, {operand, bf16}, {bf16, operand}}) add(problems, a, b);
    }
    for (int32_t activations : {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128})
        for (int32_t weights : {MXQ_FORMAT_MXFP4, MXQ_FORMAT_MXFP6_E3M2, MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_NVFP4})
            add(problems, exact(testing::spec_of(MXQ_FORMAT_FP8_E4M3, activations)),
                exact(testing::spec_of(weights, oracle::default_scaling(weights))));
    for (auto [weights, scaling] : {std::pair{MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32},
                                    {MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32},
                                    {MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16},
                                    {MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW},
                                    {MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128}})
        add(problems, f16, exact(testing::spec_of(weights, scaling)));
    add(problems, bf16, bf16);
}

// Calls add(problems, a, b) for pairs of operands of which weights have their rowwise part alone and are read MN-major.
void add_pairs_across(Problems& problems, AddProducts add) {
    for (auto [weights, scaling] : {std::pair{MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32},
                                    {MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32},
                                    {MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32},
                                    {MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR},
                                    {MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128},
                                    {MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16}}) {
        const oracle::Spec b = exact(testing::spec_of(weights, scaling));
        add(problems, bf16, b);
        add(problems, b, b);
    }
}

Problems products(AddProducts add, AddProducts add_across) {
    Problems problems;
    add_pairs(problems, add);
    add_pairs_across(problems, add_across);
    return problems;
}

}  // namespace

std::optional<std::string> reason_to_decline(Scene& scene, const Problem& problem, const std::string& name) {
    testing::Plan plan;
    const mxq_status status = problem.query(scene, name, plan.out());
    if (status == MXQ_STATUS_UNSUPPORTED) return mxq_last_error();
    ok(status);
    return std::nullopt;
}

Bytes result(testing::Device& device, const Problem& problem, const std::string& name) {
    Scene scene(device);
    problem.set_up(scene);
    testing::Plan plan;
    ok(problem.query(scene, name, plan.out()));
    if (mxq_plan_implementation(plan) != name) throw std::runtime_error("another implementation than " + name);
    if ((mxq_plan_bound(plan) != MXQ_BOUND_NONE) != problem.is_product) throw std::runtime_error("the wrong class of bound from " + name);
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(problem.run(scene, name, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes()));
    workspace.read();
    return scene.written();
}

Problems of_quantize() { return conversions(add_quantize); }
Problems of_requantize() { return conversions(add_requantize); }
Problems of_other_conversions() { return other_conversions(); }
Problems of_activations() { return activations(); }
Problems of_gemm() { return products(add_gemm, add_gemm_across); }
Problems of_grouped_gemm() { return products(add_grouped_gemm, add_grouped_gemm_across); }

}  // namespace problems
