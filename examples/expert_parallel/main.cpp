// Times a layer of experts spread over GPUs, in BF16 and in MXFP8, one process a GPU:
//
//     ./launch.sh 2 ./expert_parallel            or mpirun, torchrun, srun with EP_ID_FILE set
#include <algorithm>
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
    int spare;  // SMs that products leave to transfers
    int timeout;
    int dies;  // a rank that ends after its first step
    bool own_rows;
};

Arguments parse(int argc, char** argv) {
    std::map<std::string, int64_t> values{{"--tokens", 32768},     {"--width", 7168}, {"--hidden", 2048},
                                          {"--experts", 32},       {"--top", 4},      {"--world", 0},
                                          {"--steps", 10},         {"--spare", 16},   {"--dies", -1},
                                          {"--timeout-ms", 60000}, {"--own-rows", 0}};
    for (int i = 1; i < argc; i += 2) {
        const auto argument = values.find(argv[i]);
        if (argument == values.end() || i + 1 == argc)
            throw std::runtime_error(std::string("an unknown argument, or one without its number: ") + argv[i]);
        argument->second = std::atoll(argv[i + 1]);
    }
    const auto number = [&](const char* name) { return int32_t(values.at(name)); };
    const Shape shape{values.at("--width"), values.at("--hidden"), number("--experts"), number("--top")};
    return {{shape, values.at("--tokens")}, number("--world"), number("--steps"),        number("--spare"),
            number("--timeout-ms"),         number("--dies"),  number("--own-rows") != 0};
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

// Returns the bytes a second that leave a rank when every rank sends every other one as many: what the link gives.
double link_rate(Transport& transport, cudaStream_t stream, int64_t bytes_each, int steps) {
    const int size = transport.size();
    std::vector<Segment> segments;
    for (int peer = 0; peer < size; ++peer) segments.push_back({peer, peer, 1});
    Buffer from, to;
    const Lane lane{from.reserve(uint64_t(size * bytes_each)), to.reserve(uint64_t(size * bytes_each)), bytes_each};
    const auto step = [&] { transport.exchange(segments, segments, {&lane, 1}, stream); };
    step();
    transport.wait(stream);
    return double(std::max(size - 1, 1) * bytes_each) / (median_ms(transport, stream, steps, step) / 1e3);
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

struct Row {
    const char* name;
    bool quantized, halves;
};
constexpr Row rows[] = {
    {"BF16", false, false}, {"BF16, halves", false, true}, {"MXFP8", true, false}, {"MXFP8, halves", true, true}};

void print_row(const Arguments& arguments, const Row& row, const std::string& implementation, double link,
               const std::vector<std::array<float, 9>>& all) {
    float slowest = 0;
    double wire = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        const auto& [ms, quantize, exchange, product, other, megabytes, y, dx, dw] = all[rank];
        std::printf("%-14s %4zu %9.3f %9.3f %9.3f %9.3f %9.3f %9.1f %9.1f %8.1f %6.1f %6.1f\n", row.name, rank, ms, quantize,
                    exchange, product, other, megabytes, exchange > 0 ? megabytes / exchange : 0.0, y, dx, dw);
        slowest = std::max(slowest, ms);
        wire += megabytes;
    }
    std::printf(
        "%-14s  all %9.3f ms, %.2f million tokens a second, %.1f MB on the wire, link %.1f GB/s a rank, products by %s\n",
        row.name, slowest, double(arguments.problem.tokens) / slowest / 1e3, wire, link / 1e9, implementation.c_str());
}

void run_rank(const Arguments& arguments, Transport& transport, Streams streams) {
    const Problem& problem = arguments.problem;
    const int rank = transport.rank(), ranks = transport.size();
    int device = 0, multiprocessors = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    const mxq::context context(MXQ_DEVICE_CUDA, device);
    const RankData data(problem, rank, ranks);
    const Exact exact(problem, data, rank, ranks);
    const int64_t each = data.tokens * problem.shape.top / ranks * problem.shape.width;
    const double link = link_rate(transport, streams.travel, std::max<int64_t>(each, 1), arguments.steps);
    if (rank == 0)
        std::printf(
            "%d ranks, %s\n%-14s rank   step ms  quantize  exchange   product     other   wire MB      GB/s     y dB  dx dB "
            " dw dB\n",
            ranks, context.description(), "");
    for (const Row& row : rows) {
        Recipe recipe;
        recipe.quantized = row.quantized;
        recipe.parts = row.halves ? 2 : 1;
        if (row.halves && arguments.spare > 0) recipe.sm_count = std::max(multiprocessors - arguments.spare, 2);
        Layer layer(context, transport, row.halves ? streams : Streams{streams.compute, streams.compute}, problem.shape,
                    recipe, data.up.as<bf16>(), data.down.as<bf16>());
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
        layer.take_figures();
        step();
        transport.wait(streams.compute);
        const Figures figures = layer.take_figures();
        layer.set_timed(false);
        const float ms = median_ms(transport, streams.compute, arguments.steps, step);
        const Accuracy accuracy = compare(exact, data, problem.shape);
        const auto all =
            of_all_ranks(transport,
                         std::array<float, 9>{ms, figures.ms[kQuantize], figures.ms[kExchange], figures.ms[kProduct],
                                              figures.ms[kOther], float(double(figures.wire_bytes) / 1e6),
                                              float(accuracy.y.db()), float(accuracy.dx.db()), float(accuracy.dw.db())},
                         streams.travel);
        if (rank == 0) print_row(arguments, row, layer.implementation(), link, all);
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
