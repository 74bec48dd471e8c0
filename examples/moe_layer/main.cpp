// A feed-forward layer of a mixture-of-experts model with its operands in MXFP8, compared with double precision.

#include "layer.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace {

struct Row {
    Setting setting;
    const char *weights, *rounding, *element;
    double up_db, layer_db;  // what an exact implementation gives; 0: not asserted
};

constexpr int32_t floor_ = MXQ_SCALE_ROUNDING_FLOOR, rceil = MXQ_SCALE_ROUNDING_RCEIL;
constexpr int32_t e4m3 = MXQ_FORMAT_MXFP8_E4M3, e5m2 = MXQ_FORMAT_MXFP8_E5M2;
constexpr int32_t row32 = MXQ_SCALING_1X32, tile32 = MXQ_SCALING_32X32;

const Row rows[] = {
    {{e4m3, rceil, row32}, "1x32", "RCEIL", "E4M3", 32.32, 34.41},
    {{e4m3, rceil, tile32}, "32x32", "RCEIL", "E4M3", 32.32, 34.41},
    {{e4m3, floor_, row32}, "1x32", "FLOOR", "E4M3", 29.86, 28.02},
    {{e4m3, floor_, tile32}, "32x32", "FLOOR", "E4M3", 30.26, 28.16},
    {{e5m2, rceil, row32}, "1x32", "RCEIL", "E5M2", 26.08, 20.03},
    {{e5m2, rceil, tile32}, "32x32", "RCEIL", "E5M2", 0, 0},
    {{e5m2, floor_, row32}, "1x32", "FLOOR", "E5M2", 25.56, 17.77},
    {{e5m2, floor_, tile32}, "32x32", "FLOOR", "E5M2", 0, 0},
};
constexpr double tolerance_db = 0.05;

struct Arguments {
    std::string device;  // "cpu", "cuda", or empty: CUDA where there is a device
    std::string data = MXQ_EXAMPLE_DATA;
    bool check = false;
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string flag = argv[i];
        const bool has_value = i + 1 < argc;
        if (flag == "--check") arguments.check = true;
        else if (flag == "--device" && has_value) arguments.device = argv[++i];
        else if (flag == "--data" && has_value) arguments.data = argv[++i];
        else throw std::runtime_error("usage: moe_layer [--device cpu|cuda] [--data FILE] [--check]");
    }
    if (!arguments.device.empty() && arguments.device != "cpu" && arguments.device != "cuda")
        throw std::runtime_error("--device takes cpu or cuda, got " + arguments.device);
    return arguments;
}

Device open_device(const std::string& wanted) {
    using namespace mxq_handles;
    if (wanted != "cpu") try {
            Context context = make<Context>(mxq_context_create, MXQ_DEVICE_CUDA, 0, nullptr);
            return {std::move(context), cuda_memory()};
        } catch (const std::exception& error) {
            if (wanted == "cuda") throw;
            std::printf("No CUDA device is used (%s).\n", error.what());
        }
    return {make<Context>(mxq_context_create, MXQ_DEVICE_CPU, 0, nullptr), host_memory()};
}

void print_introduction(const Model& m, const Device& device, const std::string& data) {
    const double weights = 2.0 * m.experts * m.hidden * m.width;
    std::printf(
        R"(
A mixture-of-experts feed-forward layer with its numbers in MXFP8
=================================================================
The layer holds %d experts. Each token goes to one expert, is multiplied with that expert's `up` matrix (%d -> %d),
passes GELU, and is multiplied with its `down` matrix (%d -> %d). The weights and the %d tokens are real ones, from
a small sentence encoder (%s).

MXFP8 stores 8 bits a number instead of the 16 of BF16, in blocks of 32 numbers that share one power-of-two scale.
Here weights, tokens and hidden activations are quantized to it, and both products are taken by libmxq's grouped
GEMM over the experts' unequal groups of tokens:)",
        int(m.experts), int(m.width), int(m.hidden), int(m.hidden), int(m.width), int(m.tokens), data.c_str());
    int32_t begin = 0;
    for (int32_t end : m.ends) std::printf(" %d", end - begin), begin = end;
    std::printf(
        R"(.

SQNR, the signal-to-quantization-noise ratio, tells how much of the result survives: 10 log10 of the energy of the
exact result (the same layer in double precision) over the energy of the difference. 20 dB is an error of 10%%,
30 dB one of 3%%, 40 dB one of 1%%; more is better. `up` is the result after the first matrix, `layer` that of the
whole layer; `max err` is the largest single difference.

  weights   numbers that share a scale: 32 along a row, or a square of 32 x 32 (tokens are always 1x32)
  scale     how the shared scale is chosen: RCEIL leaves room for the largest number, FLOOR may clip it
  element   what the 8 bits are: E4M3 has 3 bits of mantissa, E5M2 has 2 and a wider range
  size      weights with their scales, as a share of the %.1f MB that BF16 takes
  time      weights: quantize both weights, once a model. activ.: quantize tokens and hidden activations, every step.
            GEMM: both products, every step. Median of 5 calls, as the host sees them.

Running on %s.
)",
        2 * weights * 1e-6, mxq_context_description(device.context.get()));
}

struct Figures {
    double up_db, layer_db;
};

Figures print_row(const Model& model, const Reference& reference, const Row& row, const QuantizedRun& run) {
    const double bf16_bytes = 4.0 * model.experts * model.hidden * model.width;
    const Figures figures = {sqnr_db(reference.up, run.up), sqnr_db(reference.output, run.output)};
    std::printf("%-7s %-6s %-7s | %8.2f %8.3f | %8.2f %8.3f | %6.2f%% | %8.3f %8.3f %8.3f\n", row.weights, row.rounding,
                row.element, figures.up_db, largest_error(reference.up, run.up), figures.layer_db,
                largest_error(reference.output, run.output), 100 * run.weight_bytes / bf16_bytes, run.weight_ms,
                run.activation_ms, run.product_ms);
    return figures;
}

// The rows compared: E4M3 RCEIL 1x32 with its 32x32, FLOOR and E5M2 siblings.
void print_conclusion(const std::vector<Figures>& f) {
    const Figures &best = f[0], &tile = f[1], &floor = f[2], &wide = f[4];
    const auto percent = [](double db) { return 100 * std::pow(10, -db / 20); };
    std::printf(
        R"(
What to conclude: with E4M3 and RCEIL, libmxq's default, half the bytes of BF16 cost an error of %.1f%% in `up` and
%.1f%% in the layer. FLOOR clips the largest numbers of a block, and tokens have outliers: it loses %.1f dB and %.1f dB.
E5M2 spends a bit on range that the shared scale already gives: it loses %.1f dB and %.1f dB. Squares of 32 x 32 for
the weights change the figures by %.2f dB and %.2f dB, and give a matrix and its transpose the same quantized values,
which a product and its gradient then share.
)",
        percent(best.up_db), percent(best.layer_db), best.up_db - floor.up_db, best.layer_db - floor.layer_db,
        best.up_db - wide.up_db, best.layer_db - wide.layer_db, std::abs(best.up_db - tile.up_db),
        std::abs(best.layer_db - tile.layer_db));
}

// How many rows differ from what an exact implementation gives.
int check_figures(const std::vector<Figures>& figures) {
    int asserted = 0, wrong = 0;
    const auto compare = [&](const Row& row, const char* what, double db, double expected) {
        if (expected == 0) return;
        ++asserted;
        if (std::abs(db - expected) <= tolerance_db) return;
        ++wrong;
        std::printf("check: %s %s %s, %s: %.3f dB, expected %.2f\n", row.weights, row.rounding, row.element, what, db,
                    expected);
    };
    for (size_t i = 0; i < std::size(rows); ++i) {
        compare(rows[i], "up", figures[i].up_db, rows[i].up_db);
        compare(rows[i], "layer", figures[i].layer_db, rows[i].layer_db);
    }
    std::printf(
        "check: %d SQNR figures compared with those of an exact implementation, %d differ by more than %.2f dB\n",
        asserted, wrong, tolerance_db);
    return wrong;
}

int run(const Arguments& arguments) {
    const Model model(arguments.data);
    Device device = open_device(arguments.device);
    print_introduction(model, device, arguments.data);
    const Reference reference = reference_layer(model);

    std::fputs(R"(
                       |        up         |       layer       |         |         time (ms)
weights scale  element |  SQNR dB  max err |  SQNR dB  max err |    size |  weights  activ.     GEMM
-----------------------+-------------------+-------------------+---------+---------------------------
)",
               stdout);
    std::vector<Figures> figures;
    QuantizedRun last;
    for (const Row& row : rows) {
        last = run_layer(model, device, row.setting);
        figures.push_back(print_row(model, reference, row, last));
    }
    std::printf("\nImplementations: quantize by `%s`, grouped GEMM by `%s`.\n", last.quantize_implementation.c_str(),
                last.gemm_implementation.c_str());
    print_conclusion(figures);
    return arguments.check && check_figures(figures) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "moe_layer: %s\n", error.what());
        return 2;
    }
}
