// Times a layer of experts spread over GPUs, in BF16 and in eight bits, one process a GPU:
//
//     ./launch.sh 2 ./expert_parallel            or mpirun, torchrun, srun with EP_ID_FILE set
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <unistd.h>

#include "problem.hpp"

namespace {

struct Arguments {
    Problem problem;
    int world;  // ranks that are threads on one GPU; 0: NCCL
    int steps;
    std::string recipes;  // names of those that run, each between commas
    bool overlap;
    int timeout;
    int dies;  // a rank that ends after its first step
    bool own_rows;
};

Arguments parse(int argc, char** argv) {
    std::map<std::string, int64_t> values{{"--tokens", 32768},     {"--width", 7168}, {"--hidden", 2048},
                                          {"--experts", 32},       {"--top", 4},      {"--world", 0},
                                          {"--steps", 10},         {"--overlap", 0},  {"--dies", -1},
                                          {"--timeout-ms", 60000}, {"--own-rows", 0}};
    std::string recipes;
    for (int i = 1; i < argc; i += 2) {
        const bool is_recipes = argv[i] == std::string("--recipes");
        const auto argument = values.find(argv[i]);
        if ((argument == values.end() && !is_recipes) || i + 1 == argc)
            throw std::runtime_error(std::string("an unknown argument, or one without its value: ") + argv[i]);
        if (is_recipes)
            recipes = std::string(",") + argv[i + 1] + ",";
        else
            argument->second = std::atoll(argv[i + 1]);
    }
    const auto number = [&](const char* name) { return int32_t(values.at(name)); };
    const Shape shape{values.at("--width"), values.at("--hidden"), number("--experts"), number("--top")};
    return {{shape, values.at("--tokens")}, number("--world"),      number("--steps"), recipes,
            number("--overlap") != 0,       number("--timeout-ms"), number("--dies"),  number("--own-rows") != 0};
}

// Gives each rank's numbers to all ranks.
template <size_t count>
std::vector<std::array<float, count>> of_all_ranks(Transport& transport, const std::array<float, count>& mine,
                                                   cudaStream_t stream) {
    std::vector<std::array<float, count>> all(size_t(transport.size()));
    Buffer from, to;
    check(cudaMemcpyAsync(from.reserve(sizeof mine), &mine, sizeof mine, cudaMemcpyHostToDevice, stream));
    transport.gather(from.as<int32_t>(), to.reserve<int32_t>(count * all.size()), count, stream);
    transport.wait(stream);  // a copy to a vector would keep the host, whoever is gone
    check(cudaMemcpyAsync(all.data(), to.get(), sizeof mine * all.size(), cudaMemcpyDeviceToHost, stream));
    transport.wait(stream);
    return all;
}

// Returns the median milliseconds of a step on the stream.
template <class Step>
float median_ms(Transport& transport, cudaStream_t stream, int steps, Step step) {
    std::vector<float> times;
    for (int i = 0; i < steps; ++i) {
        Event begin, end;
        begin.record(stream);
        step();
        end.record(stream);
        transport.wait(stream);
        times.push_back(end.ms_since(begin));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// Returns the bytes a second that leave a rank when every rank sends every other one as many: what the link gives. A world
// of one sends to itself.
double link_rate(Transport& transport, cudaStream_t stream, int steps) {
    constexpr int64_t bytes_each = 256 << 20;
    const int size = transport.size();
    std::vector<Segment> segments;
    for (int peer = 0; peer < size; ++peer)
        if (size == 1 || peer != transport.rank()) segments.push_back({peer, peer, 1});
    Buffer from, to;
    const Lane lane{from.reserve(uint64_t(size * bytes_each)), to.reserve(uint64_t(size * bytes_each)), bytes_each};
    const auto step = [&] { transport.exchange(segments, segments, {&lane, 1}, stream); };
    step();
    transport.wait(stream);
    return double(int64_t(segments.size()) * bytes_each) / (median_ms(transport, stream, steps, step) / 1e3);
}

template <class T>
std::vector<T> download(const T* from, int64_t count) {
    std::vector<T> out(static_cast<size_t>(count));
    check(cudaMemcpy(out.data(), from, size_t(count) * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
}

// The layer in double for the rank's first and last token, and for one unit of its first expert.
struct Exact {
    std::vector<std::pair<int64_t, TokenReference>> tokens;  // by their number on the rank
    UnitReference unit;

    Exact(const Problem& problem, const RankData& data, int rank, int ranks)
        : unit(reference_of_unit(problem, rank * problem.shape.experts / ranks, 1)) {
        for (int64_t t = 0; t < data.tokens; t += std::max<int64_t>(data.tokens - 1, 1))
            tokens.emplace_back(t, reference_of_token(problem, problem.first_token(rank, ranks) + t));
    }
};

struct Accuracy {
    Sqnr y, dx, dw;
};
Accuracy compare(const Exact& exact, const RankData& data, const Shape& shape) {
    Accuracy accuracy;
    const int64_t width = shape.width, hidden = shape.hidden;
    for (const auto& [t, token] : exact.tokens) {
        const auto y = download(data.y.as<bf16>() + t * width, width), dx = download(data.dx.as<bf16>() + t * width, width);
        for (int64_t c = 0; c < width; ++c) {
            accuracy.y.add(__bfloat162float(y[c]), token.y[c]);
            accuracy.dx.add(__bfloat162float(dx[c]), token.dx[c]);
        }
    }
    const auto up = download(data.d_up.as<float>() + width, width), down = download(data.d_down.as<float>(), width * hidden);
    for (int64_t c = 0; c < width; ++c) {
        accuracy.dw.add(up[c], exact.unit.up[c]);
        accuracy.dw.add(down[c * hidden + 1], exact.unit.down[c]);
    }
    return accuracy;
}

struct Named {
    const char *name, *what;
    Recipe recipe;
};
// Scalings are those of rows, of columns and of weights.
constexpr Recipe in_eight_bits(mxq_format format, mxq_scaling rows, mxq_scaling columns, mxq_scaling weights) {
    return {.format = format, .rows = rows, .columns = columns, .weights = weights};
}
constexpr mxq_scaling k128 = MXQ_SCALING_1X128, kRow = MXQ_SCALING_ROW;
const Named recipes[] = {
    {"bf16-choices", "BF16, each choice", {.format = MXQ_FORMAT_BF16, .exchange = Exchange::kChoices}},
    {"bf16", "BF16", {.format = MXQ_FORMAT_BF16}},
    {"mxfp8", "MXFP8", {}},
    {"mxfp8-weights", "MXFP8, ROW weights", {.weights = kRow}},
    {"mxfp8-back", "the same, both ways", {.weights = kRow, .quantized_back = true}},
    {"mxfp8-128", "MXFP8 1x128, ROW", in_eight_bits(MXQ_FORMAT_MXFP8_E4M3, k128, kRow, kRow)},
    {"mxfp8-row", "MXFP8 ROW", in_eight_bits(MXQ_FORMAT_MXFP8_E4M3, kRow, kRow, kRow)},
    {"fp8", "FP8 1x128, ROW", in_eight_bits(MXQ_FORMAT_FP8_E4M3, k128, kRow, MXQ_SCALING_128X128)},
};

// Indexes the results of a rank: milliseconds of a step and of its stages, megabytes sent in a step, the rate of the exchange
// alone in GB/s, and signal over error in dB.
enum Found { kStep, kStagesFrom, kMegabytes = kStagesFrom + kStages, kRate, kY, kDx, kDw, kFound };
using Findings = std::array<float, kFound>;

void print_row(const Arguments& arguments, const Named& row, const std::string& implementations, double link,
               const std::vector<Findings>& all) {
    float slowest = 0;
    double wire = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        std::printf("%-19s %4zu", row.what, rank);
        for (int i = 0; i <= kMegabytes; ++i) std::printf(" %9.3f", all[rank][size_t(i)]);
        std::printf(" %8.1f %5.2f %7.1f %6.1f %6.1f\n", all[rank][kRate], all[rank][kRate] * 1e9 / link, all[rank][kY],
                    all[rank][kDx], all[rank][kDw]);
        slowest = std::max(slowest, all[rank][kStep]);
        wire += all[rank][kMegabytes];
    }
    std::printf("%-19s  all %9.3f ms, %.2f million tokens a second, %.1f MB on the wire, products by %s\n", row.what,
                slowest, double(arguments.problem.tokens) / slowest / 1e3, wire, implementations.c_str());
}

// Returns the median of each stage over so many steps, and what left the rank in one.
template <class Step>
Figures median_figures(Transport& transport, cudaStream_t stream, Layer& layer, int steps, Step step) {
    std::vector<Figures> found;
    layer.take_figures();
    for (int i = 0; i < steps; ++i) {
        step();
        transport.wait(stream);
        found.push_back(layer.take_figures());
    }
    Figures median = found.front();
    for (int stage = 0; stage < kStages; ++stage) {
        std::nth_element(found.begin(), found.begin() + steps / 2, found.end(),
                         [&](const Figures& a, const Figures& b) { return a.ms[stage] < b.ms[stage]; });
        median.ms[stage] = found[size_t(steps / 2)].ms[stage];
    }
    return median;
}

// Returns the gigabytes a second that leave the rank where it exchanges one layer's messages after another.
double exchange_rate(Transport& transport, cudaStream_t stream, Layer& layer, int steps) {
    constexpr int exchanges = 4;
    layer.take_figures();
    const float ms = median_ms(transport, stream, steps, [&] {
        for (int i = 0; i < exchanges; ++i) layer.exchange_again();
    });
    return double(layer.take_figures().wire_bytes) / steps / ms / 1e6;
}

void run_recipe(const Arguments& arguments, const Named& row, const mxq::context& context, Transport& transport,
                Streams streams, const RankData& data, const Exact& exact, double link) {
    const Problem& problem = arguments.problem;
    const int rank = transport.rank();
    Recipe recipe = row.recipe;
    recipe.overlap = arguments.overlap;
    Layer layer(context, transport, streams, problem.shape, recipe, data.up.as<bf16>(), data.down.as<bf16>());
    const auto step = [&] {
        layer.forward(data.input(), data.y.as<bf16>());
        layer.backward(data.dy.as<bf16>(), data.gradients());
    };
    step();
    transport.wait(streams.compute);
    if (rank == arguments.dies) {
        if (arguments.world == 0) _exit(9);
        throw std::runtime_error("rank " + std::to_string(rank) + ": ends, as --dies asks");
    }
    const Figures figures = median_figures(transport, streams.compute, layer, arguments.steps, step);
    layer.set_timed(false);
    Findings mine{};
    mine[kStep] = median_ms(transport, streams.compute, arguments.steps, step);
    std::copy(figures.ms, figures.ms + kStages, &mine[kStagesFrom]);
    const Accuracy accuracy = compare(exact, data, problem.shape);
    mine[kMegabytes] = float(double(figures.wire_bytes) / 1e6);
    mine[kRate] = float(exchange_rate(transport, streams.compute, layer, arguments.steps));
    mine[kY] = float(accuracy.y.db()), mine[kDx] = float(accuracy.dx.db()), mine[kDw] = float(accuracy.dw.db());
    const auto all = of_all_ranks(transport, mine, streams.travel);
    if (rank == 0) print_row(arguments, row, layer.implementations(), link, all);
}

void run_rank(const Arguments& arguments, Transport& transport, Streams streams) {
    const Problem& problem = arguments.problem;
    const int rank = transport.rank(), ranks = transport.size();
    int device = 0;
    check(cudaGetDevice(&device));
    const mxq::context context(MXQ_DEVICE_CUDA, device);
    const RankData data(problem, rank, ranks);
    const Exact exact(problem, data, rank, ranks);
    const double link = link_rate(transport, streams.travel, arguments.steps);
    if (rank == 0)
        std::printf(
            "%d ranks, %s, link %.1f GB/s a rank\n%-19s rank   step ms  quantize    counts  exchange   product     "
            "other   wire MB     GB/s  link    y dB  dx dB  dw dB\n",
            ranks, context.description(), link / 1e9, "");
    for (const Named& row : recipes) {
        const bool wanted =
            arguments.recipes.empty() || arguments.recipes.find("," + std::string(row.name) + ",") != std::string::npos;
        if (wanted) run_recipe(arguments, row, context, transport, streams, data, exact, link);
    }
}

// Runs the ranks of one process as threads. Returns how many failed.
int run_threads(const Arguments& arguments) {
    const auto world = local_world(arguments.world, std::chrono::milliseconds(arguments.timeout));
    const Stream compute, travel;
    std::vector<std::thread> threads;
    std::vector<int> failed(size_t(arguments.world), 0);
    for (int rank = 0; rank < arguments.world; ++rank)
        threads.emplace_back([&, rank] {
            try {
                run_rank(arguments, *join(world, rank), {compute, travel});
            } catch (const std::exception& error) {
                std::fprintf(stderr, "expert_parallel: %s\n", error.what());
                failed[size_t(rank)] = 1;
            }
        });
    for (std::thread& thread : threads) thread.join();
    return int(std::count(failed.begin(), failed.end(), 1));
}

int run(const Arguments& arguments) {
    const Shape& shape = arguments.problem.shape;
    const Identity who = identity_from_environment();
    const int ranks = arguments.world > 0 ? arguments.world : who.size;
    if (shape.width % 128 != 0 || shape.hidden % 128 != 0 || shape.experts % ranks != 0 || shape.top > shape.experts)
        throw std::runtime_error(
            "width and hidden are multiples of 128, experts one of the ranks, and top is at most experts");
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        throw std::runtime_error("MXQ_STATUS_NO_DEVICE: no CUDA device");
    if (arguments.world > 0) return run_threads(arguments);
    if (who.local_rank >= devices)
        throw std::runtime_error("rank " + std::to_string(who.rank) + " needs GPU " + std::to_string(who.local_rank) +
                                 ", but there are " + std::to_string(devices) +
                                 ": start as many processes on a host as it has GPUs");
    check(cudaSetDevice(who.local_rank));
    const auto transport = nccl_transport(who, arguments.own_rows, std::chrono::milliseconds(arguments.timeout));
    const Stream compute, travel;
    run_rank(arguments, *transport, {compute, travel});
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "expert_parallel: %s\n", error.what());
        return 2;
    }
}
