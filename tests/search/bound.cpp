#include "bound.h"

#include <algorithm>
#include <set>
#include <utility>

namespace search {

using testing::canary, testing::guard_bytes, testing::ok, testing::poison;

namespace {

// Returns the next place at which a buffer may begin whose offset is 0.
size_t aligned(size_t at) { return (at + 255) / 256 * 256; }

size_t offset_of(const Call& call, const std::string& name, int64_t element) {
    const auto found = call.offsets.find(name);
    return found == call.offsets.end() ? 0 : static_cast<size_t>(found->second * element);
}

// Returns whether NULL serves where the buffer has no bytes. Elsewhere NULL clears what was set.
bool needs_no_pointer(const std::string& name) {
    for (const char* end : {".data", ".codes", ".scales"})
        if (name.ends_with(end)) return true;
    return false;
}

// Returns whether a buffer says what the call does, so that a query needs it too.
bool is_of_options(const std::string& name) {
    return name == "bias" || name == "seed_offset" || name == "out.quantization_scale" || name == "row_weights";
}

struct Entry {
    const char* verb;
    testing::Verb run;
    testing::Query query;
};
const Entry entries[] = {{"quantize", mxq_quantize, mxq_quantize_query},
                         {"dequantize", mxq_dequantize, mxq_dequantize_query},
                         {"requantize", mxq_requantize, mxq_requantize_query},
                         {"convert", mxq_convert, mxq_convert_query},
                         {"amax", mxq_amax, mxq_amax_query},
                         {"swizzle_scales", mxq_swizzle_scales, mxq_swizzle_scales_query},
                         {"unswizzle_scales", mxq_unswizzle_scales, mxq_unswizzle_scales_query},
                         {"pad_groups", mxq_pad_groups, mxq_pad_groups_query},
                         {"unpad_groups", mxq_unpad_groups, mxq_unpad_groups_query}};

const Entry& entry_of(const std::string& verb) {
    for (const Entry& entry : entries)
        if (entry.verb == verb) return entry;
    throw std::runtime_error("\"" + verb + "\": no such verb");
}

// Returns the bytes of each expert of a list; 0 for a list of no addresses.
uint64_t bytes_of(const void* const* addresses, const Lying& lying) {
    return addresses ? static_cast<uint64_t>(lying.expert_bytes()) : 0;
}

float* floats(const Pointer& pointer) { return reinterpret_cast<float*>(pointer.address); }

}  // namespace

mxq_quantize_options* made(testing::QuantizeOptions& options) {
    if (!options) ok(mxq_quantize_options_create(options.out()));
    return options;
}

Bound::Bound(Runner& runner, const Problem& problem, const std::string& implementation)
    : runner(runner), problem(problem), context(runner.device->context), stream(runner.arena->stream()) {
    lay_out();
    set_pointers();
    tensors.resize(problem.tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) create(i, problem.tensors[i].dims);
    make_options();
    ask_for(implementation);
    point();
}

void Bound::ask_for(const std::string& implementation) {
    if (problem.call.is_product())
        ok(mxq_gemm_options_set_implementation(gemm_options, implementation.c_str()));
    else if (problem.call.is_activation())
        ok(mxq_activate_options_set_implementation(activate_options, implementation.c_str()));
    else if (options || !implementation.empty())
        ok(mxq_quantize_options_set_implementation(made(options), implementation.c_str()));
}

// ---- Memory ------------------------------------------------------------------------------------------------------------

void Bound::lay_out() {
    size_t at = 0;
    const auto add = [&](const std::string& name, size_t first) {
        rooms[name] = {first, image(name).before.size()};
        at = rooms[name].end();
        order_.push_back(name);
    };
    for (const TensorPlan& tensor : problem.tensors) {
        size_t distance = guard_bytes;
        for (const std::string& name : block_of(problem, tensor)) add(name, aligned(at + std::exchange(distance, 0)));
    }
    for (const auto& [name, image] : problem.images)
        if (!rooms.count(name)) add(name, aligned(at + guard_bytes) + offset_of(problem.call, name, image.element));
    workspace_.first = aligned(at + guard_bytes);
}

// A block that mxq_tensor_set_memory divides is one room.
std::vector<Room> Bound::rooms_in_memory() const {
    std::vector<Room> out;
    std::map<std::string, size_t> ends;  // of blocks, by their first buffer
    std::set<std::string> others;        // the other buffers of blocks
    for (const TensorPlan& tensor : problem.tensors)
        for (const auto block = block_of(problem, tensor); const std::string& name : block)
            if (name == block.front())
                ends[name] = rooms.at(block.back()).end();
            else
                others.insert(name);
    for (const auto& [name, room] : rooms) {
        if (others.count(name)) continue;
        const auto found = ends.find(name);
        out.push_back({room.first, (found == ends.end() ? room.end() : found->second) - room.first});
    }
    out.push_back(workspace_);
    return out;
}

void Bound::set_pointers() {
    runner.arena->reserve(workspace_.end() + guard_bytes, rooms_in_memory());
    workspace = {workspace_.bytes ? runner.arena->device(workspace_.first) : nullptr, workspace_.bytes};
    for (const auto& [name, room] : rooms) {
        const bool null = room.bytes == 0 && problem.call.values.seed % 2 && needs_no_pointer(name);
        pointers[name] = {null ? nullptr : runner.arena->device(room.first), room.bytes};
    }
}

void Bound::add_workspace(uint64_t bytes) {
    workspace_.bytes = static_cast<size_t>(bytes);
    set_pointers();
    point();
}

void Bound::forget_memory() {
    in_blocks_ = false;
    for (auto& [name, pointer] : pointers)
        if (!is_of_options(name)) pointer = {};
    point();
}

void Bound::invent_memory() {
    constexpr uint64_t bytes = uint64_t{1} << 40;
    uint64_t address = uint64_t{1} << 45;
    for (auto& [name, pointer] : pointers) {
        if (is_of_options(name)) continue;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nothing has and nobody reads.
        pointer = {reinterpret_cast<uint8_t*>(address + offset_of(problem.call, name, image(name).element)), bytes};
        address += 2 * bytes;
    }
    point();
}

void Bound::fill() const {
    const Arena& arena = *runner.arena;
    arena.allow(workspace_.end() + guard_bytes);
    std::memset(arena.host(0), canary, workspace_.first);
    for (const auto& [name, room] : rooms)
        if (room.bytes) std::memcpy(arena.host(room.first), image(name).before.data(), room.bytes);
    arena.send(workspace_.first);
    arena.fill(workspace_, poison);
    arena.fill({workspace_.end(), guard_bytes}, canary);
    size_t end = 0;
    for (const std::string& name : order_) {
        arena.forbid(end, rooms.at(name).first);
        end = rooms.at(name).end();
    }
    arena.forbid(end, workspace_.first);
    arena.forbid(workspace_.end(), workspace_.end() + guard_bytes);
}

void Bound::read() const {
    const Arena& arena = *runner.arena;
    arena.allow(workspace_.end() + guard_bytes);
    arena.receive({0, workspace_.first});
    if (workspace_.bytes) arena.receive({workspace_.end(), guard_bytes});
    check_canaries();
}

void Bound::check_canaries() const {
    const auto check = [&](const std::string& before, size_t first, const std::string& behind, size_t end) {
        const uint8_t* const bytes = runner.arena->host(0);
        size_t i = first;
        while (i < end && bytes[i] == canary) ++i;
        if (i < end)
            throw std::runtime_error("a write " + std::to_string(i - first) + " bytes behind " + before + " and " +
                                     std::to_string(end - i) + " before " + behind);
    };
    std::string before = "the start";
    size_t end = 0;
    for (const std::string& name : order_) {
        check(before, end, name, rooms.at(name).first);
        before = name;
        end = rooms.at(name).end();
    }
    check(before, end, "the workspace", workspace_.first);
    if (workspace_.bytes) check("the workspace", workspace_.end(), "the end", workspace_.end() + guard_bytes);
}

std::span<const uint8_t> Bound::content(const std::string& name) const {
    const Room& room = rooms.at(name);
    return {runner.arena->host(room.first), room.bytes};
}

bool Bound::workspace_is_poison() const {
    runner.arena->receive(workspace_);
    const uint8_t* const first = runner.arena->host(workspace_.first);
    return std::all_of(first, first + workspace_.bytes, [](uint8_t byte) { return byte == poison; });
}

// ---- Descriptors and options -------------------------------------------------------------------------------------------

void Bound::create(size_t number, testing::Dims dims) {
    const TensorPlan& plan = problem.tensors[number];
    tensors[number] = plan.side.plain() ? testing::make_tensor(plan.side.format, dims)
                                        : testing::make_tensor(plan.spec, dims, plan.side.swizzled);
    if (plan.side.gap) ok(mxq_tensor_set_row_stride(tensors[number], dims.cols + plan.side.gap));
    if (!plan.side.has_gaps()) return;
    for (int32_t part : both_parts) {
        testing::Distances codes = code_lying(plan, part).apart, scales = scale_lying(plan, part).apart;
        if (plan.side.listed) codes.matrix = scales.matrix = 0;
        ok(mxq_tensor_set_strides(tensors[number], part, codes.line, codes.matrix, scales.line, scales.matrix));
    }
}

// Returns the addresses of the experts of a buffer; NULL where there are none.
const void* const* Bound::addresses_of(const std::string& buffer, const Lying& lying) {
    std::vector<const void*>& addresses = lists_[buffer];
    const uint8_t* const first = at(buffer).address;
    addresses.clear();
    for (int64_t e = 0; first && e < lying.lines.matrices; ++e) addresses.push_back(first + lying.place_of(e));
    return addresses.empty() ? nullptr : addresses.data();
}

void Bound::point_part_list(size_t number, int32_t part) {
    const TensorPlan& plan = problem.tensors[number];
    const std::string prefix = plan.name + "." + part_name(part);
    const Lying of_codes = code_lying(plan, part), of_scales = scale_lying(plan, part);
    const void* const* const codes = addresses_of(prefix + ".codes", of_codes);
    const void* const* const scales = addresses_of(prefix + ".scales", of_scales);
    ok(mxq_tensor_set_part_list(tensors[number], part, of_codes.lines.matrices, codes, bytes_of(codes, of_codes), scales,
                                bytes_of(scales, of_scales)));
}

bool Bound::drop_address(int64_t at) {
    std::vector<const void**> all;
    for (auto& [buffer, addresses] : lists_)
        if (has(buffer) && image(buffer).used)
            for (const void*& address : addresses) all.push_back(&address);
    if (all.empty()) return false;
    *all[static_cast<size_t>(at) % all.size()] = nullptr;
    return true;
}

void Bound::point_groups(size_t number) {
    const Side& side = problem.tensors[number].side;
    const Call& call = problem.call;
    mxq_tensor* const tensor = tensors[number];
    const Bytes& on_host = image("ends").before;
    const bool own =
        call.own_ends && number > 0 && problem.tensors[0].side.grouped && runner.device->is_cpu() && at("ends").address;
    ok(testing::set_ends(tensor, own ? on_host.data() : at("ends").address, call.ends_type,
                         static_cast<int32_t>(call.group_count())));
    ok(mxq_tensor_set_group_alignment(tensor, static_cast<int32_t>(side.rowwise), static_cast<int32_t>(side.columnwise)));
    if (call.cover) ok(mxq_tensor_set_groups_cover_rows(tensor, 1));
    if (call.host_ends && number == 0) ok(mxq_tensor_set_host_ends(tensor, on_host.data(), on_host.size()));
}

// Gives the tensor one block of memory. Throws where the library asks for another size than the oracle's buffers have.
void Bound::point_block(size_t number, const std::vector<std::string>& block) {
    const TensorPlan& plan = problem.tensors[number];
    for (int32_t part : both_parts) {  // a part that has a decode scale gets no amax
        const std::string scale = plan.name + "." + part_name(part) + ".decode_scale";
        if (has(scale)) ok(mxq_tensor_set_decode_scale(tensors[number], part, floats(at(scale)), at(scale).bytes));
    }
    uint64_t asked = 0, expected = 0;
    for (const std::string& buffer : block) expected += aligned(rooms.at(buffer).bytes);
    ok(mxq_tensor_total_bytes(tensors[number], plan.side.parts, &asked));
    if (asked != expected)
        throw std::runtime_error(plan.name + " needs " + std::to_string(asked) + " bytes in all, expected " +
                                 std::to_string(expected));
    ok(mxq_tensor_set_memory(tensors[number], plan.side.parts, runner.arena->device(rooms.at(block[0]).first), expected));
}

bool Bound::is_read_only(const TensorPlan& plan) const {
    const auto found = problem.images.find(plan.name + ".data");
    const bool is_written = found != problem.images.end() && found->second.written;
    return problem.call.read_only && plan.name != "out" && plan.name != "d" && !is_written;
}

namespace {

uint64_t exact_index_bytes(const TensorPlan& plan) {
    return static_cast<uint64_t>(plan.dims.rows) * (index_type_of(plan) == MXQ_TYPE_INT32 ? 4 : 8);
}

}  // namespace

void Bound::point_data(size_t number) {
    const TensorPlan& plan = problem.tensors[number];
    mxq_tensor* const tensor = tensors[number];
    const Pointer data = at(plan.name + ".data");
    if (plan.side.indexed) {
        const Pointer indices = at(plan.name + ".row_indices");
        ok(mxq_tensor_set_row_indices(tensor, indices.address, indices.address ? exact_index_bytes(plan) : 0, index_type_of(plan),
                                      source_rows_of(plan)));
    }
    if (plan.side.listed) {
        const Lying lying = data_lying(plan);
        const void* const* const addresses = addresses_of(plan.name + ".data", lying);
        ok(mxq_tensor_set_data_list(tensor, lying.lines.matrices, addresses, bytes_of(addresses, lying)));
    } else {
        ok(is_read_only(plan) ? mxq_tensor_set_const_data(tensor, data.address, data.bytes)
                              : mxq_tensor_set_data(tensor, data.address, data.bytes));
    }
}

void Bound::point_part(size_t number, int32_t part) {
    const TensorPlan& plan = problem.tensors[number];
    mxq_tensor* const tensor = tensors[number];
    const std::string prefix = plan.name + "." + part_name(part);
    const Pointer codes = at(prefix + ".codes"), scales = at(prefix + ".scales");
    if (plan.side.listed)
        point_part_list(number, part);
    else if (is_read_only(plan))
        ok(mxq_tensor_set_const_part(tensor, part, codes.address, codes.bytes, scales.address, scales.bytes));
    else
        ok(mxq_tensor_set_part(tensor, part, codes.address, codes.bytes, scales.address, scales.bytes));
}

void Bound::point_tensor(size_t number) {
    const TensorPlan& plan = problem.tensors[number];
    mxq_tensor* tensor = tensors[number];
    const std::string name = plan.name + ".";
    if (plan.side.grouped) point_groups(number);
    std::vector<std::string> block;
    if (in_blocks_) block = block_of(problem, plan);
    if (!block.empty()) {
        point_block(number, block);
    } else if (plan.side.plain()) {
        point_data(number);
    }
    for (int32_t part : both_parts) {
        const std::string prefix = name + part_name(part);
        const Pointer starts = at(prefix + ".starts"), ends = at(prefix + ".ends");
        if (block.empty() && has(prefix + ".scales")) point_part(number, part);
        if (has(prefix + ".amax") && std::find(block.begin(), block.end(), prefix + ".amax") == block.end())
            ok(mxq_tensor_set_amax(tensor, part, floats(at(prefix + ".amax")), at(prefix + ".amax").bytes));
        if (has(prefix + ".decode_scale"))
            ok(mxq_tensor_set_decode_scale(tensor, part, floats(at(prefix + ".decode_scale")),
                                           at(prefix + ".decode_scale").bytes));
        if (has(prefix + ".starts"))
            ok(mxq_tensor_set_padded_groups(tensor, part, starts.address, starts.bytes, ends.address, ends.bytes));
    }
    const Pointer scale = at(name + "quantization_scale");
    if (has(name + "quantization_scale")) ok(mxq_tensor_set_quantization_scale(tensor, floats(scale), scale.bytes));
}

void Bound::point() {
    for (size_t i = 0; i < tensors.size(); ++i) point_tensor(i);
    if (problem.call.is_routed()) point_routing();
    if (has("bias") && problem.call.is_product())
        ok(mxq_gemm_options_set_bias(gemm_options, problem.call.bias, at("bias").address, at("bias").bytes));
    if (has("seed_offset"))
        ok(mxq_quantize_options_set_stochastic_rounding(options,
                                                        reinterpret_cast<const uint64_t*>(at("seed_offset").address), 16));
    if (problem.call.is_activation()) point_activation();
}

void Bound::set_limit(int64_t sm_count) { ok(mxq_gemm_options_set_sm_count(gemm_options, static_cast<int32_t>(sm_count))); }

void Bound::make_options() {
    const Call& call = problem.call;
    if (call.is_product()) {
        gemm_options = testing::gemm_options(call.transpose_a, call.transpose_b, call.accumulate);
        ok(mxq_gemm_options_set_alpha(gemm_options, call.alpha));
        ok(mxq_gemm_options_set_beta(gemm_options, call.beta));
        ok(mxq_gemm_options_set_exact_products(gemm_options, call.exact));
        ok(mxq_gemm_options_set_row_invariant(gemm_options, call.same_rows));
        if (!runner.device->is_cpu()) set_limit(call.sm_count);
        return;
    }
    if (call.is_activation()) make_activation();
    if (call.is_routed()) make_routing();
    if (call.rounding) ok(mxq_quantize_options_set_scale_rounding(made(options), call.rounding));
    if (call.nonfinite) ok(mxq_quantize_options_set_nonfinite(made(options), call.nonfinite));
    if (call.four_over_six) ok(mxq_quantize_options_set_four_over_six(made(options), call.four_over_six));
    if (call.keep_hadamard) ok(mxq_quantize_options_set_undo_hadamard(made(options), 0));
    if (call.source) ok(mxq_quantize_options_set_source_part(made(options), call.source));
    if (call.stochastic) made(options);
    if (call.quantizes() && !call.compute_amax && call.second.format == MXQ_FORMAT_NVFP4)
        ok(mxq_quantize_options_set_compute_amax(made(options), 0));
    if (call.power_of_two) ok(mxq_quantize_options_set_power_of_two_scales(made(options), 1));
    if (call.epsilon != 0) ok(mxq_quantize_options_set_amax_epsilon(made(options), call.epsilon));
}

// ---- Calls -------------------------------------------------------------------------------------------------------------

mxq_status Bound::query(mxq_plan** plan) const {
    if (problem.call.is_layer()) return query_layer(plan);
    if (!problem.call.is_product()) return entry_of(problem.call.verb).query(context, options, tensors[0], tensors[1], plan);
    const auto ask = problem.call.verb == "gemm" ? mxq_gemm_query : mxq_grouped_gemm_query;
    return ask(context, gemm_options, tensors[0], tensors[1], tensors[2], plan);
}

mxq_status Bound::run() const {
    if (problem.call.is_layer()) return run_layer();
    if (!problem.call.is_product())
        return entry_of(problem.call.verb)
            .run(context, options, tensors[0], tensors[1], workspace.address, workspace.bytes, stream);
    const auto multiply = problem.call.verb == "gemm" ? mxq_gemm : mxq_grouped_gemm;
    return multiply(context, gemm_options, tensors[0], tensors[1], tensors[2], workspace.address, workspace.bytes, stream);
}

}  // namespace search
