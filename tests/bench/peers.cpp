#include "peers.h"

#include <algorithm>
#include <utility>

#include "bare_cublaslt.h"
#include "sgemm.h"

namespace {

Peer sgemm_peer(Device& device, const Library& library, const Case& c, int threads) {
    if (device.stream()) throw LeftOut("OpenBLAS is a peer on the CPU alone");
    const std::shared_ptr<Sgemm> sgemm = Sgemm::open(threads);
    if (!sgemm) throw LeftOut("there is no libopenblas.so.0 here");
    const auto [m, n, k] = c.size;
    const auto make = [&](int64_t rows, int64_t cols) {
        return std::make_shared<Operand>(random_operand(device, library, {.format = MXQ_FORMAT_F32, .shape = {rows, cols}}));
    };
    const auto a = make(m, k), b = make(n, k), d = make(m, n);
    const auto data = [](const Operand& operand) { return static_cast<float*>(operand.data()); };
    return {"OpenBLAS sgemm", [=, m = int(m), n = int(n), k = int(k)] { (*sgemm)(m, n, k, data(*a), data(*b), data(*d)); }};
}

// A call of the library on operands that it keeps.
Peer library_peer(Device& device, const Library& library, const Case& c, const std::string& name) {
    const auto operands = std::make_shared<Operands>(Operands::make(device, library, c));
    const Prepared prepared = prepare(device, library, c, *operands);
    return {name + " by " + prepared.implementation, [operands, call = prepared.call] { call(); }};
}

Peer bf16_peer(Device& device, const Library& library, Case c) {
    c.from = c.to = parse_quantization("bf16");
    c.swizzled = c.per_expert = c.exact = false;
    c.implementation = c.groups > 0 ? "cublaslt_grouped" : "cublaslt";
    try {
        return library_peer(device, library, c, "BF16");
    } catch (const LeftOut&) {  // a cuBLASLt that takes no groups, or none
        c.implementation.clear();
        return library_peer(device, library, c, "BF16");
    }
}

// A call for each expert's matrix, on as many of them as are far beyond any cache.
Peer experts_peer(Device& device, const Library& library, Case c) {
    const int64_t experts = std::exchange(c.shape.experts, 0);
    std::vector<std::pair<std::shared_ptr<Operands>, Prepared>> calls;
    for (int64_t e = 0; e < std::min<int64_t>(experts, 8); ++e) {
        const auto operands = std::make_shared<Operands>(Operands::make(device, library, c));
        calls.emplace_back(operands, prepare(device, library, c, *operands));
    }
    return {"a call for each expert", [calls, experts] {
                for (int64_t e = 0; e < experts; ++e) calls[size_t(e) % calls.size()].second.call();
            }};
}

Scales scales_of(const Case& c) {
    const auto is = [](const Quantization& q, int32_t format, int32_t scaling) {
        return q.format->id == format && q.scaling == scaling;
    };
    const auto both = [&](int32_t format, int32_t scaling) {
        return is(c.from, format, scaling) && is(c.to, format, scaling);
    };
    const bool forward = c.transpose_a == MXQ_TRANSPOSE_N && c.transpose_b == MXQ_TRANSPOSE_T;
    if (forward && both(MXQ_FORMAT_BF16, MXQ_SCALING_NONE)) return Scales::None;
    if (forward && both(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)) return Scales::Tensor;
    if (forward && is(c.from, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128) && is(c.to, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128))
        return Scales::Wide;
    throw LeftOut("no bare call of cuBLASLt is made for this pair and transpose");
}

Peer cublaslt_peer(Device& device, const Library& library, const Case& c, const Operands& operands) {
    const Scales scales = scales_of(c);
    if (c.groups > 0 && scales == Scales::Wide && c.rowwise_alignment != 4)
        throw LeftOut("a bare call of cuBLASLt needs groups at multiples of 4 rows: --alignment 4x0");
    if (c.groups > 0 && scales == Scales::Tensor && !c.per_expert)
        throw LeftOut("a bare call of cuBLASLt needs a scale for each group: --scope expert");
    if (scales != Scales::Wide || c.swizzled)
        return {"a bare call", bare_cublaslt(device, library, operands, scales, c.size)};
    Case swizzled = c;  // the order that cuBLASLt wants
    swizzled.swizzled = true;
    const auto own = std::make_shared<Operands>(Operands::make(device, library, swizzled));
    const Call call = bare_cublaslt(device, library, *own, scales, c.size);
    return {"a bare call, swizzled", [own, call] { call(); }};
}

}  // namespace

Peer peer_of(Device& device, const Library& library, const Case& c, const Operands& operands, int threads) {
    if (c.peer == "experts") return experts_peer(device, library, c);
    if (c.peer == "sgemm") return sgemm_peer(device, library, c, threads);
    if (c.peer == "bf16") return bf16_peer(device, library, c);
    if (c.peer == "cublaslt") return cublaslt_peer(device, library, c, operands);
    return {};
}
