// Times a layer of experts spread over GPUs, in BF16 and in MXFP8, one process a GPU:
//
//     ./launch.sh 2 ./expert_parallel            or mpirun, torchrun, srun with EP_ID_FILE set
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "problem.hpp"

namespace {

struct Arguments {
    Problem problem{{7168, 2048, 32, 4}, 32768};
    int world = 0;  // ranks that are threads on one GPU; 0: NCCL
    int steps = 10;
    int spare = 16;  // multiprocessors that products leave to what travels beside them
    int timeout = 60000;
    int dies = -1;  // a rank that ends after its first step
    bool own_rows = false;
};

Arguments parse(int argc, char** argv) {
    Arguments a;
    const std::pair<const char*, int64_t*> longs[] = {
        {"--tokens", &a.problem.tokens}, {"--width", &a.problem.shape.width}, {"--hidden", &a.problem.shape.hidden}};
    const std::pair<const char*, int*> ints[] = {{"--experts", &a.problem.shape.experts},
                                                 {"--top", &a.problem.shape.top},
                                                 {"--world", &a.world},
                                                 {"--steps", &a.steps},
                                                 {"--spare", &a.spare},
                                                 {"--timeout-ms", &a.timeout},
                                                 {"--dies", &a.dies}};
    for (int i = 1; i < argc; ++i) {
        bool known = std::strcmp(argv[i], "--own-rows") == 0;
        if (known) a.own_rows = true;
        for (const auto& [name, value] : longs)
            if (std::strcmp(argv[i], name) == 0 && i + 1 < argc) known = true, *value = std::atoll(argv[++i]);
        for (const auto& [name, value] : ints)
            if (!known && std::strcmp(argv[i], name) == 0 && i + 1 < argc) known = true, *value = std::atoi(argv[++i]);
        if (!known) throw std::runtime_error(std::string("unknown argument ") + argv[i]);
    }
    return a;
}

// Gives each rank's numbers to all ranks.
template <size_t count>
std::vector<std::array<float, count>> of_all_ranks(Transport& transport, const std::array<float, count>& mine,
                                                   cudaStream_t stream) {
    std::vector<std::array<float, count>> all(size_t(transport.size()));
    Buffer from, to;
    check(cudaMemcpyAsync(from.reserve(sizeof mine), &mine, sizeof mine, cudaMemcpyHostToDevice, stream));
    transport.gather(from.as<int32_t>(), to.reserve<int32_t>(count * all.size()), count, stream);
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

// Compares the rank's first and last token, and one unit of its first expert, with the layer in double.
struct Accuracy {
    Sqnr y, dx, dw;
};
Accuracy compare(const Problem& problem, const RankData& data, int rank, int ranks) {
    Accuracy accuracy;
    const auto [width, hidden, experts, top] = problem.shape;
    const int64_t first = problem.first_token(rank, ranks);
    for (const int64_t t : {int64_t(0), data.tokens - 1}) {
        if (data.tokens == 0) break;
        const TokenReference exact = reference_of_token(problem, first + t);
        const auto y = download(data.y.as<bf16>() + t * width, width), dx = download(data.dx.as<bf16>() + t * width, width);
        for (int64_t c = 0; c < width; ++c) {
            accuracy.y.add(__bfloat162float(y[c]), exact.y[c]);
            accuracy.dx.add(__bfloat162float(dx[c]), exact.dx[c]);
        }
    }
    const UnitReference exact = reference_of_unit(problem, rank * experts / ranks, 1);
    const auto up = download(data.d_up.as<float>() + width, width), down = download(data.d_down.as<float>(), width * hidden);
    for (int64_t c = 0; c < width; ++c) {
        accuracy.dw.add(up[c], exact.up[c]);
        accuracy.dw.add(down[c * hidden + 1], exact.down[c]);
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
        recipe.sm_count = row.halves ? std::max(multiprocessors - arguments.spare, 2) : 0;
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
        const Accuracy accuracy = compare(problem, data, rank, ranks);
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
