// Times the matrices of a block of gpt-oss-20b on a GPU, decode and prefill: attention's in BF16, the experts' in MXFP4 as
// the checkpoint has them (gpt_oss.c), activations in BF16. Beside it the same block with the experts' weights in BF16.
//
//     x --qkv--> q --o--> y --expert layer--> the weighted sum of the experts of each token
//
// Attention over the context, normalization and the router are left out; its choices are given, drawn anew for each of the
// CUDA graphs that take turns, so that weights come from memory. The expert layer is one call, which routes on the device.
//
//     gpt_oss_block_cuda [tokens ...]     1 4 16 64 256 1024 4096 unless said
//     gpt_oss_block_cuda check            compares tokens with double precision, and times nothing
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mxq/mxq.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/cuda.hpp"

namespace {

constexpr int kHidden = 2880, kQkv = 5120, kHeads = 4096, kNeurons = 2880, kExperts = 32, kTop = 4, kBlocks = 24;
using bf16 = __nv_bfloat16;

// ---- Kernels ---------------------------------------------------------------------------------------------------------

unsigned blocks_for(uint64_t threads) { return unsigned((threads + 255) / 256); }

__device__ uint32_t hash(uint64_t i, uint32_t seed) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + seed;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    return uint32_t(x >> 32);
}

__global__ void fill_bytes(uint8_t* to, uint64_t bytes, uint32_t seed, uint32_t least, uint32_t values) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < bytes) to[i] = uint8_t(least + hash(i, seed) % values);
}

__global__ void fill_numbers(bf16* to, uint64_t count, uint32_t seed, float scale) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) to[i] = __float2bfloat16(scale * (float(hash(i, seed)) * 0x1p-31f - 1));
}

float activation(float gate, float up) {
    gate = fminf(gate, 7), up = fmaxf(fminf(up, 7), -7);
    return gate / (1 + expf(-1.702f * gate)) * (up + 1);
}

// ---- The block -------------------------------------------------------------------------------------------------------

// A tensor with memory of its own.
struct Matrix {
    mxq::tensor tensor;
    Buffer codes, scales;
    uint64_t bytes;

    explicit Matrix(mxq::tensor made) : tensor(std::move(made)) {
        const auto [code_bytes, scale_bytes] = tensor.required_bytes();
        bytes = code_bytes + scale_bytes;
        if (scale_bytes == 0)
            tensor.set_data(codes.reserve(code_bytes), code_bytes);
        else
            tensor.set_part(MXQ_PART_ROWWISE, codes.reserve(code_bytes), code_bytes, scales.reserve(scale_bytes),
                            scale_bytes);
    }
    bf16* numbers() const { return codes.as<bf16>(); }
};

Matrix rows(int64_t count, int64_t cols) { return Matrix(mxq::tensor(MXQ_FORMAT_BF16, count, cols)); }

Matrix drawn(Matrix matrix, uint32_t seed, float scale) {
    const uint64_t count = matrix.bytes / sizeof(bf16);
    fill_numbers<<<blocks_for(count), 256>>>(matrix.numbers(), count, seed, scale);
    return matrix;
}

Matrix mxfp4_experts(int64_t outputs, int64_t inputs, uint32_t seed) {
    Matrix matrix(mxq::tensor(MXQ_FORMAT_MXFP4, kExperts, outputs, inputs));
    const auto [code_bytes, scale_bytes] = matrix.tensor.required_bytes();
    fill_bytes<<<blocks_for(code_bytes), 256>>>(matrix.codes.as<uint8_t>(), code_bytes, seed, 0, 256);
    fill_bytes<<<blocks_for(scale_bytes), 256>>>(matrix.scales.as<uint8_t>(), scale_bytes, seed + 1, 118,
                                                 3);  // 2^-9 to 2^-7
    return matrix;
}

struct Weights {
    Matrix qkv = drawn(rows(kQkv, kHidden), 1, 0.03f), o = drawn(rows(kHidden, kHeads), 2, 0.03f);
    Matrix gate_up_bias = drawn(rows(kExperts, 2 * kNeurons), 3, 1), down_bias = drawn(rows(kExperts, kHidden), 4, 1);
};

struct Experts {
    Matrix gate_up, down;
};

Experts mxfp4() { return {mxfp4_experts(2 * kNeurons, kHidden, 5), mxfp4_experts(kHidden, kNeurons, 7)}; }

// Makes BF16 of the same numbers.
Matrix widened(const mxq::context& context, const Matrix& from, int64_t outputs, int64_t inputs) {
    Matrix wide(mxq::tensor(MXQ_FORMAT_BF16, kExperts, outputs, inputs));
    mxq::dequantize(context, {}, from.tensor, wide.tensor);
    return wide;
}

// Which expert each choice of a token is for, and the routing that the layer fills.
struct Route {
    Buffer ids, weights, memory;
    std::vector<int32_t> experts;  // of choice kTop * token + i
    mxq::routing routing;
    int used = 0;  // experts that are chosen

    Route(int tokens, std::mt19937& random) : experts(size_t(tokens) * kTop), routing(tokens, kTop, kExperts) {
        for (int t = 0; t < tokens; ++t)
            for (int i = 0; i < kTop;) {
                const auto chosen = int32_t(random() % kExperts);
                const auto begin = experts.begin() + t * kTop, end = begin + i;
                if (std::find(begin, end, chosen) == end) experts[size_t(t * kTop + i++)] = chosen;
            }
        for (int32_t e = 0; e < kExperts; ++e) used += std::find(experts.begin(), experts.end(), e) != experts.end();
        const std::vector<float> equal(experts.size(), 1.0f / kTop);
        routing.set_ids(upload(ids, experts), experts.size() * sizeof(int32_t), MXQ_TYPE_INT32);
        routing.set_weights(MXQ_FORMAT_F32, upload(weights, equal), equal.size() * sizeof(float));
        const uint64_t bytes = routing.required_bytes();
        routing.set_memory(memory.reserve(bytes), bytes);
    }
    template <class T>
    static void* upload(Buffer& to, const std::vector<T>& from) {
        const uint64_t bytes = from.size() * sizeof(T);
        void* const memory = to.reserve(bytes);
        check(cudaMemcpy(memory, from.data(), bytes, cudaMemcpyHostToDevice));
        return memory;
    }
};

// The activations of so many tokens on their way through the block.
class Block {
public:
    Block(const mxq::context& context, const Weights& weights, int tokens)
        : context_(context),
          weights_(weights),
          tokens_(tokens),
          x_(drawn(rows(tokens, kHidden), 9, 1)),
          q_(rows(tokens, kQkv)),
          y_(rows(tokens, kHidden)),
          out_(rows(tokens, kHidden)) {
        mxq::activate_options activation;
        activation.set_activation(MXQ_ACTIVATION_SWIGLU_CLAMPED).set_gate_layout(MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP);
        layer_.set_activate_options(activation);
        layer_.set_gate_up_bias(MXQ_FORMAT_BF16, weights.gate_up_bias.numbers(), weights.gate_up_bias.bytes);
        layer_.set_down_bias(MXQ_FORMAT_BF16, weights.down_bias.numbers(), weights.down_bias.bytes);
    }

    // Enqueues the block, whose workspace has to be there: run it once before it is captured.
    void run(const Experts& experts, const Route& route, cudaStream_t stream) {
        multiply(x_.tensor, weights_.qkv.tensor, q_.tensor, stream);
        mxq::tensor heads(MXQ_FORMAT_BF16, tokens_, kHeads);  // q's first columns in place of attention's result
        heads.set_row_stride(kQkv).set_const_data(q_.numbers(), q_.bytes);
        multiply(heads, weights_.o.tensor, y_.tensor, stream);
        const auto plan = mxq::expert_layer_query(context_, layer_, y_.tensor, route.routing, experts.gate_up.tensor,
                                                  experts.down.tensor, out_.tensor);
        mxq::expert_layer(context_, layer_, y_.tensor, route.routing, experts.gate_up.tensor, experts.down.tensor,
                          out_.tensor, workspace_of(plan), stream);
        experts_by_ = plan.implementation();
    }
    const std::string& experts_by() const { return experts_by_; }
    const Matrix& y() const { return y_; }
    const Matrix& out() const { return out_; }

private:
    mxq::workspace workspace_of(const mxq::plan& plan) {
        const uint64_t bytes = plan.workspace_bytes();
        return {bytes ? workspace_.reserve(bytes) : nullptr, bytes};
    }
    void multiply(const mxq::tensor& a, const mxq::tensor& b, const mxq::tensor& d, cudaStream_t stream) {
        mxq::gemm(context_, {}, a, b, d, workspace_of(mxq::gemm_query(context_, {}, a, b, d)), stream);
    }

    const mxq::context& context_;
    const Weights& weights_;
    int tokens_;
    Matrix x_, q_, y_, out_;
    mxq::expert_layer_options layer_;
    Buffer workspace_;
    std::string experts_by_;
};

// ---- Times -----------------------------------------------------------------------------------------------------------

// Replays the block with each of the routes, alternating. Returns the median microseconds of one.
float microseconds(Block& block, const Experts& experts, const std::vector<Route>& routes) {
    constexpr int rounds = 12;
    check(cudaDeviceSynchronize());  // what was drawn on the default stream is there
    const Stream stream;
    std::vector<cudaGraphExec_t> graphs;
    for (const Route& route : routes) {
        block.run(experts, route, stream);
        check(cudaStreamSynchronize(stream));
        cudaGraph_t graph;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        block.run(experts, route, stream);
        check(cudaStreamEndCapture(stream, &graph));
        check(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0));
        check(cudaGraphDestroy(graph));
    }
    std::vector<float> times;
    for (int round = 0; round < rounds; ++round)
        for (const cudaGraphExec_t graph : graphs) {
            Event begin, end;
            begin.record(stream);
            check(cudaGraphLaunch(graph, stream));
            end.record(stream);
            check(cudaStreamSynchronize(stream));
            if (round > 1) times.push_back(1e3f * end.ms_since(begin));
        }
    for (const cudaGraphExec_t graph : graphs) check(cudaGraphExecDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void time_block(const mxq::context& context, const std::vector<int>& counts) {
    const Weights weights;
    const Experts four_bits = mxfp4();
    const Experts wide{widened(context, four_bits.gate_up, 2 * kNeurons, kHidden),
                       widened(context, four_bits.down, kHidden, kNeurons)};
    std::printf("%s\n%8s %12s %14s %12s %12s %8s  %s\n", context.description(), "tokens", "MXFP4, us", "tokens/s of 24",
                "weights GB/s", "BF16, us", "ratio", "experts by");
    for (const int tokens : counts) {
        std::mt19937 random(1);
        std::vector<Route> routes;
        double used = 0;
        for (int i = 0; i < 4; ++i) used += routes.emplace_back(tokens, random).used / 4.0;
        Block block(context, weights, tokens);
        const float wide_us = microseconds(block, wide, routes), us = microseconds(block, four_bits, routes);
        const double bytes = double(weights.qkv.bytes + weights.o.bytes) +
                             used / kExperts * double(four_bits.gate_up.bytes + four_bits.down.bytes);
        std::printf("%8d %12.1f %14.0f %12.0f %12.1f %8.2f  %s\n", tokens, us, tokens / (kBlocks * us * 1e-6),
                    bytes / us * 1e-3, wide_us, wide_us / us, block.experts_by().c_str());
    }
}

// ---- Check -----------------------------------------------------------------------------------------------------------

std::vector<float> download(const bf16* from, uint64_t count) {
    std::vector<bf16> raw(count);
    check(cudaMemcpy(raw.data(), from, count * sizeof(bf16), cudaMemcpyDeviceToHost));
    std::vector<float> out(count);
    for (uint64_t i = 0; i < count; ++i) out[i] = __bfloat162float(raw[i]);
    return out;
}

// Returns weights * in + bias of one expert, in double.
std::vector<double> product(const Matrix& weights, const Matrix& bias, int32_t expert, int64_t outputs,
                            const std::vector<double>& in) {
    const auto inputs = int64_t(in.size());
    const auto w = download(weights.numbers() + expert * outputs * inputs, uint64_t(outputs * inputs));
    const auto b = download(bias.numbers() + expert * outputs, uint64_t(outputs));
    std::vector<double> out(b.begin(), b.end());
    for (int64_t n = 0; n < outputs; ++n)
        for (int64_t k = 0; k < inputs; ++k) out[size_t(n)] += double(w[size_t(n * inputs + k)]) * in[size_t(k)];
    return out;
}

// Compares what the experts make of the first and of the last token. Returns whether both are as near as BF16 between the
// products allows.
bool check_block(const mxq::context& context) {
    constexpr int tokens = 9;
    constexpr double least_db = 40;
    const Weights weights;
    const Experts experts = mxfp4();
    const Matrix gate_up = widened(context, experts.gate_up, 2 * kNeurons, kHidden),
                 down = widened(context, experts.down, kHidden, kNeurons);
    std::mt19937 random(1);
    const Route route(tokens, random);
    Block block(context, weights, tokens);
    block.run(experts, route, nullptr);
    check(cudaDeviceSynchronize());
    bool good = true;
    for (const int token : {0, tokens - 1}) {
        const auto y = download(block.y().numbers() + token * kHidden, kHidden);
        const auto out = download(block.out().numbers() + token * kHidden, kHidden);
        std::vector<double> sum(kHidden), hidden(kNeurons);
        for (int i = 0; i < kTop; ++i) {
            const int32_t expert = route.experts[size_t(token * kTop + i)];
            const auto both = product(gate_up, weights.gate_up_bias, expert, 2 * kNeurons, {y.begin(), y.end()});
            for (size_t j = 0; j < kNeurons; ++j) hidden[j] = activation(float(both[2 * j]), float(both[2 * j + 1]));
            const auto of_expert = product(down, weights.down_bias, expert, kHidden, hidden);
            for (size_t c = 0; c < kHidden; ++c) sum[c] += of_expert[c] / kTop;
        }
        double signal = 0, noise = 0;
        for (size_t c = 0; c < kHidden; ++c) signal += sum[c] * sum[c], noise += (sum[c] - out[c]) * (sum[c] - out[c]);
        const double db = 10 * std::log10(signal / noise);
        std::printf("token %d, experts by %s: %.1f dB beside double precision, at least %.0f\n", token,
                    block.experts_by().c_str(), db, least_db);
        good = good && db >= least_db;
    }
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const mxq::context context(MXQ_DEVICE_CUDA);
        if (argc == 2 && std::string(argv[1]) == "check") return check_block(context) ? 0 : 1;
        std::vector<int> counts;
        for (int i = 1; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
        for (const int tokens : counts)
            if (tokens < 1) return std::fprintf(stderr, "usage: gpt_oss_block_cuda [check | tokens ...]\n"), 2;
        time_block(context, counts.empty() ? std::vector<int>{1, 4, 16, 64, 256, 1024, 4096} : counts);
        return 0;
    } catch (const std::exception& error) {
        return std::fprintf(stderr, "gpt_oss_block_cuda: %s\n", error.what()), 1;
    }
}
