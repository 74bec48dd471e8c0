// Compares a feed-forward layer of a mixture-of-experts model, and two of its gradients, computed with operands in
// microscaling formats, with the same in double precision.

#include "layer.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace {

struct Row {
    Setting setting;
    const char *weights, *activations, *rounding;
    double up_db, layer_db;  // SQNR that an exact implementation gives; 0: not checked
};

constexpr int32_t floor_ = MXQ_SCALE_ROUNDING_FLOOR, rceil = MXQ_SCALE_ROUNDING_RCEIL;
constexpr Storage e4m3{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32}, e4m3_tile{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32};
constexpr Storage e4m3_128{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128},
    e4m3_128_tile{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128};
constexpr Storage e5m2{MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_1X32}, e5m2_tile{MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32};
constexpr Storage e2m3{MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32}, e3m2{MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_1X32};
constexpr Storage fp4{MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32}, nvfp4{MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16};
constexpr Storage bf16{MXQ_FORMAT_BF16, MXQ_SCALING_NONE};

const Row rows[] = {
    {{e4m3, e4m3, rceil}, "MXFP8 E4M3 1x32", "the same", "RCEIL", 32.32, 34.41},
    {{e4m3_tile, e4m3, rceil}, "MXFP8 E4M3 32x32", "1x32", "RCEIL", 32.32, 34.41},
    {{e4m3_128_tile, e4m3_128, rceil}, "MXFP8 E4M3 128x128", "1x128", "RCEIL", 32.32, 34.41},
    {{e4m3, e4m3, floor_}, "MXFP8 E4M3 1x32", "the same", "FLOOR", 29.86, 28.02},
    {{e4m3_tile, e4m3, floor_}, "MXFP8 E4M3 32x32", "1x32", "FLOOR", 30.26, 28.16},
    {{e4m3_128_tile, e4m3_128, floor_}, "MXFP8 E4M3 128x128", "1x128", "FLOOR", 30.66, 28.35},
    {{e5m2, e5m2, rceil}, "MXFP8 E5M2 1x32", "the same", "RCEIL", 26.08, 20.03},
    {{e5m2_tile, e5m2, rceil}, "MXFP8 E5M2 32x32", "1x32", "RCEIL", 0, 0},
    {{e5m2, e5m2, floor_}, "MXFP8 E5M2 1x32", "the same", "FLOOR", 25.56, 17.77},
    {{e4m3, bf16, rceil}, "MXFP8 E4M3 1x32", "BF16", "RCEIL", 34.89, 36.00},
    {{fp4, e4m3, rceil}, "MXFP4", "MXFP8 E4M3", "RCEIL", 21.23, 16.96},
    {{fp4, bf16, rceil}, "MXFP4", "BF16", "RCEIL", 21.38, 17.48},
    {{nvfp4, bf16, rceil}, "NVFP4", "BF16", "", 23.61, 26.47},
    {{nvfp4, nvfp4, rceil}, "NVFP4", "NVFP4", "", 20.86, 23.30},
    {{e2m3, e2m3, rceil}, "MXFP6 E2M3", "the same", "RCEIL", 30.26, 32.38},
    {{e3m2, e3m2, rceil}, "MXFP6 E3M2", "the same", "RCEIL", 26.07, 20.03},
};

// The gradients of `down`: how all operands are stored, and the SQNR that an exact implementation gives.
constexpr Setting gradient_setting = {e4m3, e4m3, rceil};
constexpr double input_gradient_db = 29.59, weight_gradient_db = 30.58;
constexpr double expert_gradient_db[] = {29.79, 31.56, 29.25, 32.28};

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
        if (flag == "--check")
            arguments.check = true;
        else if (flag == "--device" && has_value)
            arguments.device = argv[++i];
        else if (flag == "--data" && has_value)
            arguments.data = argv[++i];
        else
            throw std::runtime_error("usage: moe_layer [--device cpu|cuda] [--data FILE] [--check]");
    }
    if (!arguments.device.empty() && arguments.device != "cpu" && arguments.device != "cuda")
        throw std::runtime_error("--device takes cpu or cuda, got " + arguments.device);
    return arguments;
}

Device open_device(const std::string& wanted) {
    if (wanted != "cpu") try {
            mxq::context context(MXQ_DEVICE_CUDA);
            return {std::move(context), cuda_memory()};
        } catch (const std::exception& error) {
            if (wanted == "cuda") throw;
            std::printf("No CUDA device is used (%s).\n", error.what());
        }
    return {mxq::context(MXQ_DEVICE_CPU), host_memory()};
}

void print_introduction(const Model& m, const Device& device, const std::string& data) {
    const double weights = 2.0 * m.experts * m.hidden * m.width;
    std::printf(
        R"(
A mixture-of-experts feed-forward layer with its numbers in microscaling formats
================================================================================
The layer holds %d experts. Each token goes to one expert, is multiplied with that expert's `up` matrix (%d -> %d),
passes GELU, and is multiplied with its `down` matrix (%d -> %d). The weights and the %d tokens are real ones, from
a small sentence encoder (%s).

MXFP8 stores 8 bits a number instead of the 16 of BF16, in blocks of 32 numbers that share one power-of-two scale;
MXFP6 and MXFP4 store 6 and 4; NVFP4 stores 4 in blocks of 16, whose scales are FP8 numbers below one amax for each
expert. Here weights, and tokens and hidden activations where they do not stay in BF16, are quantized so, and both
products are taken by libmxq's grouped GEMM over the experts' unequal groups of tokens:)",
        int(m.experts), int(m.width), int(m.hidden), int(m.hidden), int(m.width), int(m.tokens), data.c_str());
    int32_t begin = 0;
    for (int32_t end : m.ends) std::printf(" %d", end - begin), begin = end;
    std::printf(
        R"(.

SQNR, the signal-to-quantization-noise ratio, tells how much of the result survives: 10 log10 of the energy of the
exact result (the same layer in double precision) over the energy of the difference. 20 dB is an error of 10%%,
30 dB one of 3%%, 40 dB one of 1%%; more is better. `up` is the result after the first matrix, `layer` that of the
whole layer; `max err` is the largest single difference.

  weights   format, and the numbers that share a scale: some along a row, or a square. E4M3 has 3 bits of mantissa,
            E5M2 has 2 and a wider range
  scale     how a power-of-two scale is chosen: RCEIL leaves room for the largest number, FLOOR may clip it
  size      weights with their scales, as a share of the %.1f MB that BF16 takes
  exact     the row above with mxq_gemm_options_set_exact_products. It stands where the default products round more
            than sums: MX operands on Hopper's tensor cores for FP8, which have no scales of 32 numbers, so that these
            are moved into the numbers until 128 share one. Where it does not stand, the default products are exact
  time      weights: quantize both weights, once a model. activ.: quantize tokens and hidden activations, every step.
            GEMM: both products, every step. Median of 5 calls, as the host sees them.

Running on %s.
)",
        2 * weights * 1e-6, device.context.description());
}

struct Figures {
    double up_db, layer_db;
};

Figures print_row(const Model& model, const Reference& reference, const Row& row, const QuantizedRun& run) {
    const double bf16_bytes = 4.0 * model.experts * model.hidden * model.width;
    const Figures figures = {sqnr_db(reference.up, run.up), sqnr_db(reference.output, run.output)};
    std::printf("%-18s %-10s %-5s | %8.2f %8.3f | %8.2f %8.3f | %6.2f%% | %8.3f %8.3f %8.3f\n", row.weights, row.activations,
                row.rounding, figures.up_db, largest_error(reference.up, run.up), figures.layer_db,
                largest_error(reference.output, run.output), 100 * run.weight_bytes / bf16_bytes, run.weights.ms,
                run.activations.ms, run.products.ms);
    return figures;
}

Setting exactly(Setting setting) {
    setting.exact_products = true;
    return setting;
}

struct Gradient {
    std::string name;
    double db, largest_error, expected_db;
};

std::vector<Gradient> compare_gradients(const Model& model, const Reference& reference, const GradientRun& run) {
    const std::span<const double> exact = reference.weight_gradient, result = run.weight;
    std::vector<Gradient> gradients = {
        {"the input", sqnr_db(reference.input_gradient, run.input), largest_error(reference.input_gradient, run.input),
         input_gradient_db},
        {"the weights", sqnr_db(exact, result), largest_error(exact, result), weight_gradient_db},
    };
    const size_t size = model.width * model.hidden;
    for (size_t e = 0; e < size_t(model.experts); ++e) {
        const auto a = exact.subspan(e * size, size), b = result.subspan(e * size, size);
        gradients.push_back({"the weights, expert " + std::to_string(e), sqnr_db(a, b), largest_error(a, b),
                             e < std::size(expert_gradient_db) ? expert_gradient_db[e] : 0});
    }
    return gradients;
}

struct Table {
    std::vector<Figures> exact;                                // of each of `rows`, with exact products
    std::vector<std::pair<const Row*, Figures>> rounded = {};  // with the default products, where these are not exact
};

Table print_table(const Model& model, Device& device, const Reference& reference) {
    std::fputs(R"(
                                    |        up         |       layer       |         |         time (ms)
weights            activations scale |  SQNR dB  max err |  SQNR dB  max err |    size |  weights  activ.     GEMM
------------------------------------+-------------------+-------------------+---------+---------------------------
)",
               stdout);
    Table table;
    std::string quantize, products, exact_products;
    for (const Row& row : rows) {
        const QuantizedRun run = run_layer(model, device, row.setting);
        const Figures figures = print_row(model, reference, row, run);
        quantize = run.activations.implementation.empty() ? quantize : run.activations.implementation;
        (run.products.exact ? exact_products : products) = run.products.implementation;
        if (run.products.exact) {
            table.exact.push_back(figures);
            continue;
        }
        table.rounded.push_back({&row, figures});
        const QuantizedRun exact = run_layer(model, device, exactly(row.setting));
        table.exact.push_back(print_row(model, reference, {row.setting, "  exact", "", "", 0, 0}, exact));
        exact_products = exact.products.implementation;
    }
    std::printf("\nImplementations: quantize by `%s`, exact grouped GEMM by `%s`%s%s%s.\n", quantize.c_str(),
                exact_products.c_str(), products.empty() ? "" : ", others by `", products.c_str(),
                products.empty() ? "" : "`");
    if (table.rounded.empty()) std::printf("All products are exact here.\n");
    return table;
}

// Prints the layer as one call, which gives the numbers of the first row of the table.
Figures print_one_call(const Model& model, Device& device, const Reference& reference) {
    const OneCall run = run_one_call(model, device, exactly(rows[0].setting));
    const double db = sqnr_db(reference.output, run.output);
    std::printf("\nThe first row as one call of mxq_expert_layer, with exact products: %.2f dB, %.3f ms, by `%s`.\n", db,
                run.layer.ms, run.layer.implementation.c_str());
    return {0, db};
}

struct Gradients {
    std::vector<Gradient> exact, rounded = {};
};

void print_gradients(const std::vector<Gradient>& gradients, const char* products) {
    for (const Gradient& g : gradients)
        std::printf("%-22s %8s | %8.2f %10.2e\n", g.name.c_str(), products, g.db, g.largest_error);
}

void print_time(const GradientRun& run, const char* products) {
    std::printf("Time, %s: %.3f ms to quantize by `%s`, %.3f ms for both grouped GEMMs by `%s`.\n", products,
                run.quantize.ms, run.quantize.implementation.c_str(), run.products.ms, run.products.implementation.c_str());
}

Gradients print_backward(const Model& model, Device& device, const Reference& reference) {
    std::fputs(R"(
Backward: a real gradient of the layer's output, times the weights of `down`, is the gradient of its input; transposed,
times the hidden activations, that of its weights, where the sums run over each expert's tokens. Blocks always run along
the sums, so the weights are quantized down their columns, and each expert's tokens are padded to whole blocks of 32.
All operands are MXFP8 E4M3 1x32 with RCEIL; the exact hidden activations are what is quantized.

gradient of            products |  SQNR dB    max err
--------------------------------+--------------------
)",
               stdout);
    const GradientRun run = run_gradients(model, device, gradient_setting, reference.hidden);
    const char* const products = run.products.exact ? "exact" : "default";
    std::vector<Gradient> figures = compare_gradients(model, reference, run);
    print_gradients(figures, products);
    if (run.products.exact) {
        std::printf("\n");
        print_time(run, products);
        return {std::move(figures)};
    }
    const GradientRun exact = run_gradients(model, device, exactly(gradient_setting), reference.hidden);
    Gradients gradients{compare_gradients(model, reference, exact), std::move(figures)};
    print_gradients(gradients.exact, "exact");
    std::printf("\n");
    print_time(run, products);
    print_time(exact, "exact");
    return gradients;
}

// The rows of the table that print_conclusion compares.
enum : size_t { kBest = 0, kTile = 1, kFloor = 3, kE5m2 = 6, kMxfp4 = 11, kNvfp4 = 12 };

void print_conclusion(const std::vector<Figures>& f, const std::vector<Gradient>& gradients) {
    const Figures &best = f[kBest], &tile = f[kTile], &floor = f[kFloor], &of_e5m2 = f[kE5m2], &of_mxfp4 = f[kMxfp4],
                  &of_nvfp4 = f[kNvfp4];
    const auto percent = [](double db) { return 100 * std::pow(10, -db / 20); };
    std::printf(
        R"(
What to conclude: with E4M3 and RCEIL, libmxq's default, half the bytes of BF16 cost an error of %.1f%% in `up` and
%.1f%% in the layer. FLOOR clips the largest numbers of a block, and tokens have outliers: it loses %.1f dB and %.1f dB.
E5M2 spends a bit on range that the shared scale already gives: it loses %.1f dB and %.1f dB. Squares of 32 x 32 for
the weights change the figures by %.2f dB and %.2f dB, and give a matrix and its transpose the same quantized values,
which a product and its gradient then share. With activations in BF16, weights of 4 bits cost %.1f%% of the layer in
MXFP4 and %.1f%% in NVFP4, whose smaller blocks and finer scales are worth their half bit. The gradients of `down`,
with all operands in E4M3 and RCEIL, have an error of %.1f%% for its input and %.1f%% for its weights.
)",
        percent(best.up_db), percent(best.layer_db), best.up_db - floor.up_db, best.layer_db - floor.layer_db,
        best.up_db - of_e5m2.up_db, best.layer_db - of_e5m2.layer_db, std::abs(best.up_db - tile.up_db),
        std::abs(best.layer_db - tile.layer_db), percent(of_mxfp4.layer_db), percent(of_nvfp4.layer_db),
        percent(gradients[0].db), percent(gradients[1].db));
}

// Compares figures with those of an exact implementation, and counts those that differ.
struct Check {
    int asserted = 0, wrong = 0;

    void compare(const std::string& what, double db, double expected) {
        if (expected == 0) return;
        ++asserted;
        if (std::abs(db - expected) <= tolerance_db) return;
        ++wrong;
        std::printf("check: %s: %.3f dB, expected %.2f\n", what.c_str(), db, expected);
    }
    void compare(const Row& row, const Figures& figures, const char* products) {
        const std::string name = std::string(row.weights) + ", " + row.activations + " " + row.rounding + products;
        compare(name + ", up", figures.up_db, row.up_db);
        compare(name + ", layer", figures.layer_db, row.layer_db);
    }
    void compare(const std::vector<Gradient>& gradients, const char* products) {
        for (const Gradient& g : gradients) compare("gradient of " + g.name + products, g.db, g.expected_db);
    }
    void print(const char* of) const {
        std::printf(
            "check: %d SQNR figures%s compared with those of an exact implementation, %d differ by more than %.2f dB\n",
            asserted, of, wrong, tolerance_db);
    }
};

// Checks all figures and returns how many differ.
int check_figures(const Table& table, const Figures& one_call, const Gradients& gradients) {
    Check exact, rounded;
    for (size_t i = 0; i < std::size(rows); ++i) exact.compare(rows[i], table.exact[i], "");
    exact.compare("the layer as one call", one_call.layer_db, rows[0].layer_db);
    exact.compare(gradients.exact, "");
    exact.print("");
    for (const auto& [row, figures] : table.rounded) {
        Row expected = *row;
        // FLOOR clips a hidden activation just below a power of two by an eighth, and one just above it not at all. The
        // largest activations are within 0.1% of 2, so that the last bits of the first product decide half a dB of the
        // layer.
        if (row->setting.rounding == floor_) expected.layer_db = 0;
        rounded.compare(expected, figures, ", default products");
    }
    rounded.compare(gradients.rounded, ", default products");
    if (rounded.asserted > 0) rounded.print(" of default products");
    return exact.wrong + rounded.wrong;
}

int run(const Arguments& arguments) {
    const Model model(arguments.data);
    Device device = open_device(arguments.device);
    print_introduction(model, device, arguments.data);
    const Reference reference = reference_layer(model);
    const Table table = print_table(model, device, reference);
    const Figures one_call = print_one_call(model, device, reference);
    const Gradients gradients = print_backward(model, device, reference);
    print_conclusion(table.exact, gradients.exact);
    return arguments.check && check_figures(table, one_call, gradients) ? 1 : 0;
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
