// Checks the layer of examples/expert_parallel. The bits of each token are those of one GPU that sums for each rank, rounds
// to BF16, and adds the ranks in order. Errors are against double precision. Faults spoil nothing. Ranks are threads on one
// GPU, or processes over NCCL.
//
//     expert_parallel_checks threads        worlds of 1, 2 and 4 ranks on one GPU
//     expert_parallel_checks nccl           the world that the environment names; one rank sends to itself
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "problem.hpp"

namespace {

// Where CUDA is played by the host (host_cuda.cpp), the library's CPU context computes, and nothing can be replayed.
#ifdef EXPERT_PARALLEL_ON_HOST
constexpr bool on_host = true;
#else
constexpr bool on_host = false;
#endif

int passed = 0, failed = 0;
bool speaks = true;  // one rank of several processes

void expect(bool holds, const std::string& what) {
    ++(holds ? passed : failed);
    if (speaks || !holds) std::printf("%s  %s\n", holds ? "pass" : "FAIL", what.c_str());
}

struct Case {
    Problem problem;
    Recipe recipe;
    bool in_graph = false;
};

// Holds the results of all ranks, or of those of this process: the numbers of the others stay 0.
struct Results {
    std::vector<uint16_t> y, dx;  // BF16
    std::vector<float> weight_gradients, d_up, d_down;
    int64_t dropped = 0, wire_bytes = 0;
    std::string implementation;

    explicit Results(const Problem& p)
        : y(size_t(p.tokens * p.shape.width)),
          dx(y.size()),
          weight_gradients(size_t(p.tokens * p.shape.top)),
          d_up(size_t(p.shape.experts * p.shape.width * p.shape.hidden)),
          d_down(d_up.size()) {}
};

float value(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float out;
    std::memcpy(&out, &wide, sizeof out);
    return out;
}

template <class T>
void download(std::vector<T>& to, int64_t first, const void* from, int64_t count) {
    check(cudaMemcpy(to.data() + first, from, size_t(count) * sizeof(T), cudaMemcpyDeviceToHost));
}

// Captures a step while all tokens choose expert 0, and replays it with the choices of the problem.
void replay(Transport& transport, Streams streams, Layer& layer, const RankData& data, const std::function<void()>& step) {
    const auto bytes = size_t(data.tokens) * sizeof(int32_t) * size_t(data.top);
    std::vector<std::byte> choices(bytes);
    check(cudaMemcpy(choices.data(), data.experts.get(), bytes, cudaMemcpyDeviceToHost));
    check(cudaMemset(data.experts.get(), 0, bytes));
    check(cudaDeviceSynchronize());
    layer.set_timed(false);
    step();
    transport.wait(streams.compute);
    transport.meet();
    if (transport.captures()) check(cudaStreamBeginCapture(streams.compute, cudaStreamCaptureModeRelaxed));
    transport.meet();
    step();
    transport.meet();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (transport.captures()) {
        check(cudaStreamEndCapture(streams.compute, &graph));
        check(cudaGraphInstantiate(&executable, graph, 0));
    }
    transport.meet();
    check(cudaMemcpy(data.experts.get(), choices.data(), bytes, cudaMemcpyHostToDevice));
    check(cudaMemset(data.y.get(), 0xFF, size_t(data.tokens) * sizeof(bf16)));
    check(cudaDeviceSynchronize());
    transport.meet();
    if (transport.captures()) check(cudaGraphLaunch(executable, streams.compute));
    transport.meet();
    transport.wait(streams.compute);
    if (executable) check(cudaGraphExecDestroy(executable));
    if (graph) check(cudaGraphDestroy(graph));
}

void run_rank(const Case& c, Transport& transport, Streams streams, Results& results) {
    const Problem& p = c.problem;
    const int rank = transport.rank(), ranks = transport.size();
    int device = 0;
    check(cudaGetDevice(&device));
    const mxq::context context = on_host ? mxq::context(MXQ_DEVICE_CPU) : mxq::context(MXQ_DEVICE_CUDA, device);
    const RankData data(p, rank, ranks);
    Layer layer(context, transport, streams, p.shape, c.recipe, data.up.as<bf16>(), data.down.as<bf16>());
    const auto step = [&] {
        layer.forward(data.input(), data.y.as<bf16>());
        layer.backward(data.dy.as<bf16>(), data.gradients());
    };
    if (c.in_graph) {
        replay(transport, streams, layer, data, step);
    } else {
        step();
        transport.wait(streams.compute);
    }
    const int64_t first = p.first_token(rank, ranks), matrices = p.shape.experts / ranks * p.shape.width * p.shape.hidden;
    download(results.y, first * p.shape.width, data.y.get(), data.tokens * p.shape.width);
    download(results.dx, first * p.shape.width, data.dx.get(), data.tokens * p.shape.width);
    download(results.weight_gradients, first * p.shape.top, data.weight_gradients.get(), data.tokens * p.shape.top);
    download(results.d_up, rank * matrices, data.d_up.get(), matrices);
    download(results.d_down, rank * matrices, data.d_down.get(), matrices);
    if (transport.captures()) results.implementation = layer.implementations();
    {
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        results.dropped += layer.dropped();
        if (!c.in_graph) results.wire_bytes += layer.take_figures().wire_bytes;
    }
    transport.wait(streams.compute);  // before memory goes that others copy from
}

Results run_threads(const Case& c, int ranks) {
    const auto world = local_world(ranks, std::chrono::seconds(60));
    const Stream compute, travel;
    int device = 0;
    check(cudaGetDevice(&device));
    Results results(c.problem);
    std::vector<std::thread> threads;
    std::vector<std::string> messages(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                check(cudaSetDevice(device));
                run_rank(c, *join(world, rank), {compute, travel}, results);
            } catch (const std::exception& error) {
                messages[size_t(rank)] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& message : messages)
        if (!message.empty()) throw std::runtime_error(message);
    return results;
}

uint16_t rounded(float sum) {
    const bf16 value = __float2bfloat16_rn(sum);
    uint16_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Adds numbers of BF16, or of float, of one rank after another.
struct Sum {
    std::vector<float> sum;
    void add(const std::vector<uint16_t>& of_rank) {
        sum.resize(of_rank.size());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += value(of_rank[i]);
    }
    std::vector<uint16_t> bits() const {
        std::vector<uint16_t> out(sum.size());
        std::transform(sum.begin(), sum.end(), out.begin(), rounded);
        return out;
    }
};

// What one device gives that has the experts of one rank after another: a layer for each with all tokens, whose results are
// added in order. Nothing travels.
Results reference(const Case& c, int ranks) {
    Case part = c;
    part.recipe.exchange = Exchange::kTokens;
    Results all(c.problem);
    Sum y, dx;
    const int32_t own = c.problem.shape.experts / ranks;
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
        std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<float>());
    };
    for (int rank = 0; rank < ranks; ++rank) {
        part.problem.kept_from = rank * own, part.problem.kept_to = (rank + 1) * own;
        const Results results = run_threads(part, 1);
        y.add(results.y), dx.add(results.dx);
        add(all.weight_gradients, results.weight_gradients), add(all.d_up, results.d_up), add(all.d_down, results.d_down);
    }
    all.y = y.bits(), all.dx = dx.bits();
    return all;
}

// y by mxq_expert_layer, of which there is one for each rank: nothing of the example computes it.
std::vector<uint16_t> y_of_expert_layers(const Problem& p, const Recipe& recipe, int ranks) {
    int device = 0;
    check(cudaGetDevice(&device));
    const mxq::context context = on_host ? mxq::context(MXQ_DEVICE_CPU) : mxq::context(MXQ_DEVICE_CUDA, device);
    const RankData data(p, 0, 1);
    const auto numbers = uint64_t(p.tokens * p.shape.width), slots = uint64_t(p.tokens * p.shape.top);
    const int64_t own = p.shape.experts / ranks, matrix = p.shape.width * p.shape.hidden;
    const mxq::tensor x =
        mxq::tensor(MXQ_FORMAT_BF16, p.tokens, p.shape.width).set_data(data.x.get(), numbers * sizeof(bf16));
    const mxq::tensor y =
        mxq::tensor(MXQ_FORMAT_BF16, p.tokens, p.shape.width).set_data(data.y.get(), numbers * sizeof(bf16));
    auto options = mxq::expert_layer_options()
                       .set_activate_options(mxq::activate_options().set_activation(MXQ_ACTIVATION_SILU))
                       .set_row_format(recipe.format, recipe.rows);
    Sum sum;
    for (int rank = 0; rank < ranks; ++rank) {
        Buffer memory, up_memory, down_memory, workspace;
        const auto weights = [&](const Buffer& of_all, int64_t rows, int64_t cols, Buffer& to) {
            const mxq::tensor in =
                mxq::tensor(MXQ_FORMAT_BF16, own, rows, cols)
                    .set_data(of_all.as<bf16>() + rank * own * matrix, uint64_t(own * matrix) * sizeof(bf16));
            mxq::tensor out = mxq::tensor(recipe.format, own, rows, cols).set_scaling(recipe.weights);
            const uint64_t bytes = out.total_bytes(MXQ_PART_ROWWISE);
            out.set_memory(MXQ_PART_ROWWISE, to.reserve(bytes), bytes);
            const uint64_t room = mxq::quantize_query(context, {}, in, out).workspace_bytes();
            mxq::quantize(context, {}, in, out, {workspace.reserve(room), room});
            return out;
        };
        const mxq::tensor up = weights(data.up, p.shape.hidden, p.shape.width, up_memory);
        const mxq::tensor down = weights(data.down, p.shape.width, p.shape.hidden, down_memory);
        mxq::routing routing = mxq::routing(p.tokens, p.shape.top, p.shape.experts)
                                   .set_local_experts(int32_t(rank * own), int32_t(own))
                                   .set_ids(data.experts.get(), slots * sizeof(int32_t), MXQ_TYPE_INT32)
                                   .set_weights(MXQ_FORMAT_F32, data.weights.get(), slots * sizeof(float));
        routing.set_memory(memory.reserve(routing.required_bytes()), routing.required_bytes());
        const uint64_t room = mxq::expert_layer_query(context, options, x, routing, up, down, y).workspace_bytes();
        mxq::expert_layer(context, options, x, routing, up, down, y, {workspace.reserve(room), room});
        check(cudaDeviceSynchronize());
        std::vector<uint16_t> of_rank(static_cast<size_t>(numbers));
        download(of_rank, 0, data.y.get(), int64_t(numbers));
        sum.add(of_rank);
    }
    return sum.bits();
}

// The ranks whose results a check sees: how to run a case there, and which tokens and experts are of this process.
struct World {
    std::string name;
    int ranks;
    std::function<Results(const Case&)> run;
    int first_rank, last_rank;  // of this process, the last one included
};

template <class T>
size_t different(const std::vector<T>& a, const std::vector<T>& b, int64_t first, int64_t last) {
    size_t count = 0;
    for (int64_t i = first; i < last; ++i) count += std::memcmp(&a[size_t(i)], &b[size_t(i)], sizeof(T)) != 0;
    return count;
}

// Products that keep the bits of a row whatever other rows there are.
const char* implementation_for_bits(bool quantized) {
    if (on_host) return nullptr;
    int device = 0, major = 0, minor = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    if (major != 9 || minor != 0) return "mma_bf16";
    return quantized ? "wgmma_fp8_sm90" : "wgmma_plain_sm90";
}

class Checks {
public:
    Checks(World world, Problem problem) : world_(std::move(world)), problem_(problem) {
        recipe_.implementation = implementation_for_bits(true);
    }

    void run() {
        const Results plain = world_.run({problem_, recipe_});
        same_as_reference(plain, {problem_, recipe_}, "(" + plain.implementation + ")");
        expert_layers(plain);
        wire(plain, recipe_);
        other_recipes();
        accuracy();
        overlap(plain);
        capacity(plain);
        faults();
    }

private:
    void say(bool holds, const std::string& what) { expect(holds, world_.name + ": " + what); }

    std::pair<int64_t, int64_t> own_tokens(const Problem& p) const {
        return {p.first_token(world_.first_rank, world_.ranks), p.first_token(world_.last_rank + 1, world_.ranks)};
    }
    std::pair<int64_t, int64_t> own_weights() const {
        const int64_t of_rank = problem_.shape.experts / world_.ranks * problem_.shape.width * problem_.shape.hidden;
        return {world_.first_rank * of_rank, (world_.last_rank + 1) * of_rank};
    }

    void same_as_reference(const Results& results, const Case& c, const std::string& what) {
        const Results one = reference(c, world_.ranks);
        same_tokens(results, one, c.problem, "as one device " + what);
        near_gradients(results, one, "as one device " + what);
    }
    void check_case(const Problem& p, const Recipe& recipe, const std::string& what) {
        same_as_reference(world_.run({p, recipe}), {p, recipe}, what);
    }

    void same_tokens(const Results& a, const Results& b, const Problem& p, const std::string& what) {
        const auto [first, last] = own_tokens(p);
        const int64_t width = p.shape.width, top = p.shape.top;
        const size_t y = different(a.y, b.y, first * width, last * width),
                     dx = different(a.dx, b.dx, first * width, last * width),
                     w = different(a.weight_gradients, b.weight_gradients, first * top, last * top);
        say(y + dx + w == 0, "tokens have the same bits " + what + " (of y " + std::to_string(y) + ", of dx " +
                                 std::to_string(dx) + ", of weights " + std::to_string(w) + " others)");
    }

    void near_gradients(const Results& a, const Results& b, const std::string& what) {
        Sqnr sqnr;
        const auto [first, last] = own_weights();
        for (int64_t i = first; i < last; ++i)
            sqnr.add(a.d_up[size_t(i)], b.d_up[size_t(i)]), sqnr.add(a.d_down[size_t(i)], b.d_down[size_t(i)]);
        const size_t others = different(a.d_up, b.d_up, first, last) + different(a.d_down, b.d_down, first, last);
        const double db = sqnr.error == 0 ? 999 : sqnr.db();
        say(others == 0 || (sqnr.signal > 0 && db >= 60), "gradients of weights " + what +
                                                              " within 60 dB: " + std::to_string(db) + " dB, " +
                                                              std::to_string(others) + " other bits");
    }

    // The products of mxq_expert_layer are the best ones, which one implementation for all sizes need not be.
    void expert_layers(const Results& plain) {
        const auto [first, last] = own_tokens(problem_);
        const int64_t width = problem_.shape.width;
        const std::vector<uint16_t> y = y_of_expert_layers(problem_, recipe_, world_.ranks);
        const size_t others = different(plain.y, y, first * width, last * width);
        Sqnr sqnr;
        for (int64_t i = first * width; i < last * width; ++i) sqnr.add(value(plain.y[size_t(i)]), value(y[size_t(i)]));
        const double db = others == 0 ? 999 : sqnr.db();
        say(on_host ? others == 0 : db >= 30, "y of mxq_expert_layer, one for each rank: " + std::to_string(db) + " dB, " +
                                                  std::to_string(others) + " other bits");
    }

    // Counts what leaves its rank from the routes alone: a token for each other rank that has one of its experts.
    void wire(const Results& results, const Recipe& recipe) {
        if (world_.first_rank != 0 || world_.last_rank != world_.ranks - 1) return;  // what returns comes from others
        const int32_t own = problem_.shape.experts / world_.ranks;
        const bool of_tokens = recipe.exchange == Exchange::kTokens;
        std::set<std::pair<int64_t, int32_t>> tokens;
        int64_t choices = 0;
        for (int rank = 0; rank < world_.ranks; ++rank)
            each_choice(problem_, rank, world_.ranks, [&](int64_t t, int32_t expert) {
                if (expert / own == rank) return;
                tokens.insert({t, expert / own});
                ++choices;
            });
        const int64_t width = problem_.shape.width, top = problem_.shape.top, bf16_row = 2 * width;
        const int64_t row = recipe.quantized() ? width + width / 32 : bf16_row,
                      back = recipe.quantized_back ? row : bf16_row;
        const auto padded = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
        const int64_t expected =
            of_tokens ? int64_t(tokens.size()) * (2 * padded(row) + padded(8 * top) + 2 * padded(back) + padded(4 * top))
                      : choices * (4 * bf16_row + 8);
        say(results.wire_bytes == expected,
            "bytes on the wire: " + std::to_string(results.wire_bytes) + ", expected " + std::to_string(expected));
    }

    // What else travels: BF16 as tokens and as choices, rows that come back quantized, and other scales.
    void other_recipes() {
        Recipe recipe;
        recipe.format = MXQ_FORMAT_BF16, recipe.implementation = implementation_for_bits(false);
        check_case(problem_, recipe, "in BF16");
        recipe.exchange = Exchange::kChoices;
        const Results choices = world_.run({problem_, recipe});
        wire(choices, recipe);
        recipe = recipe_;
        recipe.quantized_back = true;
        wire(world_.run({problem_, recipe}), recipe);
        recipe = recipe_;
        recipe.weights = MXQ_SCALING_ROW;
        check_case(problem_, recipe, "with weights of ROW scales");
        recipe.rows = recipe.columns = MXQ_SCALING_ROW;
        check_case(problem_, recipe, "with ROW scales everywhere");
        recipe.format = MXQ_FORMAT_FP8_E4M3, recipe.weights = MXQ_SCALING_128X128;
        recipe.rows = MXQ_SCALING_1X128, recipe.columns = MXQ_SCALING_ROW;
        check_case(problem_, recipe, "in FP8 1x128, along the columns with ROW scales");
    }

    template <class Found>
    static void each_choice(const Problem& p, int rank, int ranks, Found found) {
        std::vector<int32_t> experts(size_t(p.shape.top));
        std::vector<float> weights(experts.size());
        for (int64_t t = p.first_token(rank, ranks); t < p.first_token(rank + 1, ranks); ++t) {
            p.route(t, experts.data(), weights.data());
            for (const int32_t expert : experts) found(t, expert);
        }
    }

    void accuracy() {
        Recipe bf16_tokens, bf16_choices, back;
        bf16_tokens.format = bf16_choices.format = MXQ_FORMAT_BF16;
        bf16_choices.exchange = Exchange::kChoices;
        back.quantized_back = true;
        for (const Recipe& recipe : {Recipe{}, back, bf16_tokens, bf16_choices}) {
            const Results results = world_.run({problem_, recipe});
            Sqnr y, dx, w, dw;
            const auto [first, last] = own_tokens(problem_);
            const int64_t width = problem_.shape.width, hidden = problem_.shape.hidden, top = problem_.shape.top;
            for (int64_t t = first; t < last; t += 13) {
                const TokenReference exact = reference_of_token(problem_, t);
                for (int64_t c = 0; c < width; ++c) {
                    y.add(value(results.y[size_t(t * width + c)]), exact.y[size_t(c)]);
                    dx.add(value(results.dx[size_t(t * width + c)]), exact.dx[size_t(c)]);
                }
                for (int64_t j = 0; j < top; ++j)
                    w.add(results.weight_gradients[size_t(t * top + j)], exact.weight_gradients[size_t(j)]);
            }
            const auto of_rank = problem_.shape.experts / world_.ranks;
            for (int64_t e = world_.first_rank * of_rank; e < (world_.last_rank + 1) * of_rank; ++e) {
                const int64_t unit = (7 * e + 3) % hidden;
                const UnitReference exact = reference_of_unit(problem_, int32_t(e), unit);
                for (int64_t c = 0; c < width; ++c) {
                    dw.add(results.d_up[size_t((e * hidden + unit) * width + c)], exact.up[size_t(c)]);
                    dw.add(results.d_down[size_t((e * width + c) * hidden + unit)], exact.down[size_t(c)]);
                }
            }
            char text[160];
            std::snprintf(text, sizeof text, "%s against double: y %.1f, dx %.1f, weights %.1f, gradients %.1f dB (%s)",
                          recipe.quantized_back ? "MXFP8 both ways"
                          : recipe.quantized()  ? "MXFP8"
                                                : "BF16",
                          y.db(), dx.db(), w.db(), dw.db(), results.implementation.c_str());
            const double least = recipe.quantized() ? 22 : 38;
            say(std::min({y.db(), dx.db(), w.db(), dw.db()}) >= least, text);
        }
    }

    void overlap(const Results& plain) {
        Recipe recipe = recipe_;
        recipe.overlap = true;
        const Results results = world_.run({problem_, recipe});
        same_tokens(results, plain, problem_, "where rows return during other products");
        near_gradients(results, plain, "where rows return during other products");
    }

    void capacity(const Results& plain) {
        Recipe recipe = recipe_;
        recipe.capacity = int32_t(problem_.tokens);
        const Results enough = world_.run({problem_, recipe});
        say(enough.dropped == 0, "a large capacity drops nothing");
        same_tokens(enough, plain, problem_, "with a capacity");
        near_gradients(enough, plain, "with a capacity");
        if (!on_host) {
            const Results replayed = world_.run({problem_, recipe, true});
            same_tokens(replayed, enough, problem_, "from a CUDA graph");
            near_gradients(replayed, enough, "from a CUDA graph");
        }
        small_capacity(plain);
    }

    void small_capacity(const Results& plain) {
        Recipe recipe = recipe_;
        recipe.capacity = int32_t(problem_.tokens / world_.ranks / 2);
        const Results few = world_.run({problem_, recipe});
        int64_t dropped = 0;
        size_t others = 0, whole = 0;
        const int64_t width = problem_.shape.width;
        const int32_t own = problem_.shape.experts / world_.ranks;
        for (int rank = world_.first_rank; rank <= world_.last_rank; ++rank) {
            std::vector<std::set<int64_t>> tokens_of_ranks(static_cast<size_t>(world_.ranks));
            std::set<int64_t> lost;
            each_choice(problem_, rank, world_.ranks, [&](int64_t t, int32_t e) {
                std::set<int64_t>& there = tokens_of_ranks[size_t(e / own)];
                if (there.count(t) == 0 && int64_t(there.size()) >= recipe.capacity) lost.insert(t);
                there.insert(t);
            });
            for (const auto& there : tokens_of_ranks)
                dropped += std::max<int64_t>(int64_t(there.size()) - recipe.capacity, 0);
            for (int64_t t = problem_.first_token(rank, world_.ranks); t < problem_.first_token(rank + 1, world_.ranks);
                 ++t) {
                if (lost.count(t) != 0) continue;
                ++whole;
                others += different(few.y, plain.y, t * width, (t + 1) * width);
            }
        }
        say(few.dropped == dropped && dropped > 0 && whole > 0 && others == 0,
            "a small capacity drops " + std::to_string(few.dropped) + " tokens at ranks, expected " +
                std::to_string(dropped) + ", and leaves " + std::to_string(whole) + " tokens as they were (" +
                std::to_string(others) + " other bits)");
    }

    void faults() {
        Problem p = problem_;
        p.first_rank_idle = true;
        check_case(p, recipe_, "where rank 0 has no tokens");
        p = problem_;
        p.routing = Routing::kFirstExperts;
        check_case(p, recipe_, "where all choose the first experts");
        p.routing = Routing::kWithoutExpert1;
        const Results without = world_.run({p, recipe_});
        same_as_reference(without, {p, recipe_}, "where nobody chooses expert 1");
        const auto matrix = problem_.shape.width * problem_.shape.hidden;
        const auto zeros = [&](const std::vector<float>& d) {
            return std::all_of(d.begin() + matrix, d.begin() + 2 * matrix, [](float v) { return v == 0; });
        };
        say(zeros(without.d_up) && zeros(without.d_down), "its gradients are zeros");
        nan();
    }

    void nan() {
        Problem p = problem_;
        p.nan_token = p.tokens / 2 + 5;
        const Results clean = world_.run({problem_, recipe_}), spoiled = world_.run({p, recipe_});
        const auto [first, last] = own_tokens(p);
        const int64_t width = p.shape.width;
        size_t nans = 0, others = 0, elsewhere = 0;
        for (int64_t t = first; t < last; ++t)
            for (int64_t i = t * width; i < (t + 1) * width; ++i) {
                const bool is_nan = std::isnan(value(spoiled.y[size_t(i)]));
                if (t == p.nan_token)
                    nans += is_nan;
                else
                    elsewhere += is_nan || std::isnan(value(spoiled.dx[size_t(i)]));
                if (t != p.nan_token)
                    others += spoiled.y[size_t(i)] != clean.y[size_t(i)] || spoiled.dx[size_t(i)] != clean.dx[size_t(i)];
            }
        const bool is_here = p.nan_token >= first && p.nan_token < last;
        say(nans == (is_here ? size_t(width) : 0) && elsewhere == 0,
            "a NaN stays in its token: " + std::to_string(nans) + " numbers, " + std::to_string(elsewhere) + " elsewhere");
        say(others == 0, "and changes no bit of others (" + std::to_string(others) + ")");
    }

    const World world_;
    const Problem problem_;
    Recipe recipe_;
};

// A rank that ends: the other one says so in words, within its timeout.
void rank_that_dies() {
    const auto world = local_world(2, std::chrono::milliseconds(300));
    std::string message;
    std::thread other([&] {
        try {
            join(world, 0)->meet();
        } catch (const std::exception& error) {
            message = error.what();
        }
    });
    other.join();
    expect(message == "rank 0 of 2: another rank did not come within 300 ms", "a rank that does not come: " + message);
}

void check_threads(const Problem& problem) {
    rank_that_dies();
    for (const int ranks : {1, 2, 4})
        Checks({std::to_string(ranks) + " threads", ranks, [ranks](const Case& c) { return run_threads(c, ranks); }, 0,
                ranks - 1},
               problem)
            .run();
}

#ifdef EXPERT_PARALLEL_ON_HOST
void run(const std::string&, const Problem& problem) { check_threads(problem); }
#else
void run(const std::string& mode, const Problem& problem) {
    int devices = 0;
    const Identity who = identity_from_environment();
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices <= who.local_rank) {
        std::printf("skip  expert_parallel: it needs %d CUDA devices, found %d\n0 passed, 0 failed, 1 skipped\n",
                    who.local_rank + 1, devices);
        std::exit(0);
    }
    check(cudaSetDevice(who.local_rank));
    if (mode == "threads") return check_threads(problem);
    if (mode != "nccl") throw std::runtime_error("the first argument is threads or nccl");
    speaks = who.rank == 0;
    const auto transport = nccl_transport(who, who.size == 1, std::chrono::seconds(60));
    const Stream compute, travel;
    const auto over_nccl = [&](const Case& c) {
        Results results(c.problem);
        run_rank(c, *transport, {compute, travel}, results);
        return results;
    };
    Checks({"NCCL, rank " + std::to_string(who.rank) + " of " + std::to_string(who.size), who.size, over_nccl, who.rank,
            who.rank},
           problem)
        .run();
}
#endif

}  // namespace

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Problem problem{{256, 128, 8, 3}, 1024};
    try {
        if (argc > 2) problem.tokens = std::atoll(argv[2]);
        run(argc > 1 ? argv[1] : "threads", problem);
    } catch (const std::exception& error) {
        expect(false, std::string("it ran: ") + error.what());
    }
    if (speaks || failed > 0) std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
