// dispatch/ asks implementations in the order of a list, collects the reasons of those that decline, and checks workspaces.
#include "../catch.h"
#include "../paths.h"
#include "api/verb.h"

#include <mxq/mxq.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

using namespace mxq;

namespace {

struct Problem {
    int size;
};

int reasons_written = 0;

const Implementation<Problem> small{"small", [](const Context&, const Problem& p) -> Reason {
                                        if (p.size < 10) return {};
                                        return [] {
                                            reasons_written++;
                                            return std::string("needs a size below 10");
                                        };
                                    }};
const Implementation<Problem> even{"even", [](const Context&, const Problem& p) -> Reason {
                                       return p.size % 2 == 0 ? "" : "needs an even size";
                                   },
                                   [](const Context&, const Problem& p) { return uint64_t(p.size); }};
const Implementation<Problem>* const both[] = {&small, &even};
const Verb<Problem> verb{"grow", both, 2};

// Describes a problem once and finds the description when it runs.
int described = 0, ran_with = 0;
const Implementation<Problem> described_once{.name = "described_once",
                                             .run = [](const Context&, const Problem&, const Launch& launch) {
                                                 ran_with = *static_cast<const int*>(launch.state);
                                             },
                                             .prepare = [](const Context&, const Problem& p) -> Prepared {
                                                 described++;
                                                 if (p.size == 0) return {"needs a size", 0, nullptr};
                                                 return {{}, 512, std::make_shared<int>(p.size)};
                                             }};
const Implementation<Problem>* const one[] = {&described_once};
const Verb<Problem> costly{"grow", one, 1};
const Context context;
const Wanted any{};

Wanted named(const char* name) { return {name, "MXQ_IMPL"}; }
const Implementation<Problem>* chosen(int size, const Wanted& wanted) { return ask(verb, context, Problem{size}, wanted).implementation; }

template <class Body>
std::string failure(mxq_status status, const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        CHECK(error.status() == status);
        return error.what();
    }
    FAIL("nothing was refused");
    return "";
}

}  // namespace

TEST_CASE("dispatch: the first that takes it, or the one that was asked for") {
    CHECK(chosen(4, any) == &small);
    CHECK(chosen(12, any) == &even);
    CHECK(chosen(4, named("even")) == &even);
    CHECK(chosen(11, any) == nullptr);
    CHECK(chosen(12, named("small")) == nullptr);
    CHECK(chosen(4, named("odd")) == nullptr);
    CHECK(ask(verb, context, Problem{4}, any).prepared.workspace_bytes == 0);
    CHECK(ask(verb, context, Problem{12}, any).prepared.workspace_bytes == 12);
}

// Checks pairs of implementations of which the first is the faster one where both take a problem: lists must ask it first.
TEST_CASE("dispatch: in the lists, better implementations stand before those that take more") {
    struct Order {
        const char *verb, *better, *worse;
    };
    const Order orders[] = {
        {"quantize", "quantize_rowwise", "quantize_fp4_groups"},
        {"quantize", "quantize_fp4_groups", "quantize_fp4_pairs"},
        {"quantize", "quantize_rowwise", "quantize_tile"},
        {"quantize", "quantize_fp4_pairs", "quantize_tile"},
        {"quantize", "quantize_fp4_pairs", "quantize_fp4"},
        {"quantize", "quantize_columns", "quantize_tile"},
        {"quantize", "quantize_groups", "quantize_tile"},
        {"quantize", "quantize_tile", "quantize_fp4"},
        {"activate", "activate_rowwise", "activate_tile"},
        {"activate", "activate_tile", "activate_quantize"},
        {"activate_backward", "activate_backward_tile", "activate_backward_quantize"},
        {"requantize", "requantize_transpose", "requantize_codes"},
        {"requantize", "requantize_codes", "requantize_values"},
        {"requantize", "requantize_values", "quantize_fp4"},
        {"gemm", "cublaslt", "cublaslt_swizzle"},
        {"gemm", "cublaslt_swizzle", "cublaslt_rebase"},
        {"gemm", "cublaslt_rebase", "splitk_sm90"},
        {"gemm", "splitk_sm90", "wgmma_fp8_sm90"},
        {"gemm", "wgmma_fp8_sm90", "wgmma_bf16_sm90"},
        {"gemm", "wgmma_bf16_sm90", "mma_bf16"},
        {"gemm", "cublaslt", "wgmma_plain_sm90"},
        {"gemm", "wgmma_plain_sm90", "mma_bf16"},
        {"gemm", "cublaslt_widen", "wgmma_plain_widen"},
        {"gemm", "wgmma_plain_widen", "mma_bf16_widen"},
        {"gemm", "wgmma_fp8_transpose", "wgmma_plain_widen"},
        {"gemm", "mma_bf16_widen", "mma_bf16"},
        {"gemm", "mma_bf16_transpose", "mma_bf16"},
        {"gemm", "mma_bf16_rows", "mma_bf16"},
        {"gemm", "weights_sm90", "wgmma_blocks_sm90"},
        {"gemm", "wgmma_blocks_sm90", "mma_bf16_transpose"},
        {"gemm", "wgmma_blocks_sm90", "mma_bf16"},
        {"grouped_gemm", "mma_bf16_rows", "mma_bf16"},
        {"grouped_gemm", "weights_sm90", "wgmma_blocks_sm90"},
        {"grouped_gemm", "wgmma_blocks_sm90", "mma_bf16_transpose"},
        {"grouped_gemm", "wgmma_blocks_sm90", "mma_bf16"},
        {"grouped_gemm", "cublaslt_grouped", "cublaslt_grouped_swizzle"},
        {"grouped_gemm", "cublaslt_grouped_swizzle", "cublaslt"},
        {"grouped_gemm", "cublaslt", "cublaslt_swizzle"},
        {"grouped_gemm", "cublaslt_swizzle", "cublaslt_grouped_rebase"},
        {"grouped_gemm", "cublaslt_grouped_rebase", "wgmma_fp8_sm90"},
        {"grouped_gemm", "wgmma_fp8_sm90", "wgmma_bf16_sm90"},
        {"grouped_gemm", "wgmma_bf16_sm90", "mma_bf16"},
        {"grouped_gemm", "cublaslt_grouped", "wgmma_plain_sm90"},
        {"grouped_gemm", "wgmma_plain_sm90", "cublaslt"},
        {"grouped_gemm", "wgmma_plain_widen", "cublaslt_grouped_widen"},
        {"grouped_gemm", "cublaslt_grouped_widen", "cublaslt_widen"},
        {"grouped_gemm", "cublaslt_widen", "mma_bf16_widen"},
        {"grouped_gemm", "wgmma_fp8_transpose", "wgmma_plain_widen"},
        {"grouped_gemm", "mma_bf16_widen", "mma_bf16"},
        {"grouped_gemm", "mma_bf16_transpose", "mma_bf16"},
    };
    std::map<std::string, std::vector<std::string>> lists;
    for (const VerbNames& verb : verb_table()) lists[verb.verb] = verb.implementations;
    const auto place = [&](const Order& order, const char* name) {
        const auto& names = lists.at(order.verb);
        const auto found = std::find(names.begin(), names.end(), name);
        INFO(order.verb << ": " << name);
        REQUIRE(found != names.end());
        return found - names.begin();
    };
    int compared = 0;
    for (const Order& order : orders) {
        INFO(order.verb << ": " << order.better << " before " << order.worse);
        CHECK(place(order, order.better) < place(order, order.worse));
        ++compared;
    }
    CHECK(compared == 50);
    for (const auto& [name, list] : lists) CHECK(list.back() == "cpu");
}

TEST_CASE("dispatch: a reason is written where somebody reads it, and not before") {
    reasons_written = 0;
    const auto choice = ask(verb, context, Problem{12}, any);
    REQUIRE(choice.declined().size() == 1);
    CHECK(reasons_written == 0);
    CHECK(choice.declined()[0].reason.text() == "needs a size below 10");
    CHECK(reasons_written == 1);
    CHECK(Reason("").empty());
    CHECK(Reason().text() == "");
}

TEST_CASE("dispatch: a call prepares once, and the run gets what was prepared") {
    alignas(256) char memory[512];
    described = ran_with = 0;
    const Call call{context, {}, {}};
    run_verb(costly, call, Problem{7}, {memory, sizeof memory}, nullptr);
    CHECK(described == 1);
    CHECK(ran_with == 7);
    CHECK(failure(MXQ_STATUS_UNSUPPORTED, [&] { run_verb(costly, call, Problem{0}, {memory, 512}, nullptr); }) ==
          "no implementation takes this (described_once: needs a size); change what they name");
    CHECK(failure(MXQ_STATUS_BUFFER_TOO_SMALL, [&] { run_verb(costly, call, Problem{7}, {memory, 511}, nullptr); })
              .find("expected at least 512") != std::string::npos);
}

namespace {

struct Lying {
    Addresses at;
    bool same_rows = false;
};
Addresses addresses_of(const Lying& p) { return p.at; }
bool is_row_invariant(const Lying& p) { return p.same_rows; }

const Implementation<Lying> near{.name = "near", .declines = [](const Context&, const Lying&) -> Reason { return {}; }},
    far{.name = "far", .declines = near.declines, .reads = Addresses::Strided},
    anywhere{.name = "anywhere", .declines = near.declines, .reads = Addresses::Listed};
const Implementation<Lying>* const three[] = {&near, &far, &anywhere};

}  // namespace

TEST_CASE(
    "dispatch: lines and experts that lie apart are declined before an implementation that needs them in one piece is "
    "asked") {
    const Verb<Lying> reading{"read", three, 3};
    const auto reason = [&](Addresses at) {
        const auto choice = ask(reading, context, Lying{at}, any);
        return std::string(choice.implementation->name) + " " + text_of(choice.declined());
    };
    CHECK(reason(Addresses::Dense) == "near ");
    CHECK(reason(Addresses::Strided) ==
          "far near: needs contiguous rows and experts, found strides (mxq_tensor_set_strides)");
    CHECK(reason(Addresses::Listed) ==
          "anywhere near, far: needs contiguous experts, found a list of them (mxq_tensor_set_part_list or _data_list)");
    CHECK(ask(reading, context, Lying{Addresses::Listed}, named("far")).implementation == nullptr);
}

TEST_CASE("dispatch: rows that must be invariant are declined by those that promise none, who say what asks for them") {
    const Implementation<Lying> keeps{.name = "keeps", .declines = near.declines, .keeps_rows = [](const Lying&) { return true; }};
    const Implementation<Lying>* const two[] = {&near, &keeps};
    const std::string reason = "near: cannot promise the same bits for a row whatever the others are (leave row_invariant at 0)";
    const auto choice = ask(Verb<Lying>{"read", two, 2}, context, Lying{Addresses::Dense, true}, any);
    CHECK(choice.implementation == &keeps);
    CHECK(text_of(choice.declined()) == reason);
    CHECK(ask(Verb<Lying>{"read", two, 2}, context, Lying{Addresses::Dense}, any).implementation == &near);
}

TEST_CASE("dispatch: the class of bound of an implementation that names one") {
    Implementation<Problem> product = small;
    product.bound = [](const Context&, const Problem& p) -> int32_t { return p.size < 5 ? MXQ_BOUND_EXACT_PRODUCTS : MXQ_BOUND_REBASED; };
    CHECK(bound_of(product, context, Problem{4}) == MXQ_BOUND_EXACT_PRODUCTS);
    CHECK(bound_of(product, context, Problem{5}) == MXQ_BOUND_REBASED);
    CHECK(bound_of(even, context, Problem{4}) == MXQ_BOUND_NONE);
}

TEST_CASE("dispatch: the reason of a choice") {
    auto reason = [](int size, const Wanted& wanted) { return reason_of(wanted, ask(verb, context, Problem{size}, wanted).declined()); };
    CHECK(reason(4, any) == "");
    CHECK(reason(12, any) == "small: needs a size below 10");
    CHECK(reason(12, named("even")) == "asked for by MXQ_IMPL");
    const Decline declined[] = {{"a", "x"}, {"b", "y"}, {"c", "y"}, {"d", "y"}, {"e", "x"}};
    CHECK(text_of(declined) == "a: x; b, c, d: y; e: x");
    CHECK(text_of({}) == "");
}

TEST_CASE("dispatch: a refusal has every reason") {
    auto refusal = [](int size, const Wanted& wanted) {
        return failure(MXQ_STATUS_UNSUPPORTED, [&] { require_choice(ask(verb, context, Problem{size}, wanted), verb, context, wanted); });
    };
    CHECK(refusal(11, any) == "no implementation takes this (small: needs a size below 10; even: needs an even size); change what they name");
    CHECK(refusal(12, named("small")) ==
          "MXQ_IMPL asks for an implementation that does not take this (small: needs a size below 10); change what it names, or "
          "leave MXQ_IMPL unset");
    CHECK(refusal(4, named("odd")).find("MXQ_IMPL is \"odd\", expected one of: small, even") == 0);
}

TEST_CASE("dispatch: every verb has its list, the CPU last") {
    std::vector<std::string> verbs;
    for (const VerbNames& row : verb_table()) {
        verbs.push_back(row.verb);
        REQUIRE(row.implementations.size() >= 2);
        CHECK(row.implementations.back() == "cpu");
    }
    CHECK(verbs == std::vector<std::string>{"quantize", "requantize", "dequantize", "convert", "amax", "swizzle_scales",
                                            "unswizzle_scales", "pad_groups", "unpad_groups", "gemm", "grouped_gemm", "route",
                                            "combine", "combine_backward", "activate", "activate_backward"});
}

TEST_CASE("dispatch: a workspace is there, large enough and aligned") {
    alignas(256) char memory[512];
    check_workspace(0, nullptr, 0);
    check_workspace(0, memory, 512);
    check_workspace(0, memory + 1, 0);
    CHECK(failure(MXQ_STATUS_MISSING_BUFFER, [&] { check_workspace(0, nullptr, 100); }).find("NULL with 100 bytes, expected NULL with 0: this call needs none") != std::string::npos);
    CHECK(failure(MXQ_STATUS_MISALIGNED, [&] { check_workspace(0, memory + 1, 100); }).find("multiple of 256") != std::string::npos);
    check_workspace(512, memory, 512);
    CHECK(failure(MXQ_STATUS_BUFFER_TOO_SMALL, [&] { check_workspace(512, memory, 511); }).find("511 bytes, expected at least 512") !=
          std::string::npos);
    CHECK(failure(MXQ_STATUS_MISSING_BUFFER, [&] { check_workspace(512, nullptr, 512); }).find("workspace is NULL") !=
          std::string::npos);
    for (int offset : {16, 128})
        CHECK(failure(MXQ_STATUS_MISALIGNED, [&] { check_workspace(256, memory + offset, 256); }).find("multiple of 256") !=
              std::string::npos);
}

// The table of src/cuda/README.md has a row for each implementation, whose first file defines it.
TEST_CASE("dispatch: the name that a plan prints leads to its file") {
    const auto cuda = std::filesystem::path(testing::header_path()).parent_path().parent_path().parent_path() / "src/cuda";
    std::ifstream page(cuda / "README.md");
    if (!page) {
        testing::skip_reason = "the source is not here";
        return;
    }
    std::map<std::string, std::string> files;  // by name
    for (std::string line; std::getline(page, line);) {
        const size_t second = line.find('|', 1), third = line.find('|', second + 1);
        if (line.empty() || line[0] != '|' || third == std::string::npos) continue;
        const size_t begin = line.find('`', second), end = line.find('`', begin + 1);
        if (end >= third) continue;
        for (size_t at = line.find('`'); at < second; at = line.find('`', at + 1)) {
            const size_t close = line.find('`', at + 1);
            files[line.substr(at + 1, close - at - 1)] = line.substr(begin + 1, end - begin - 1);
            at = close;
        }
    }
    int found = 0;
    for (const VerbNames& verb : verb_table())
        for (const std::string& name : verb.implementations) {
            if (name == "cpu") continue;
            INFO(verb.verb << ":" << name);
            REQUIRE(files.count(name) == 1);
            std::ifstream file(cuda / files.at(name));
            const std::string text{std::istreambuf_iterator<char>(file), {}};
            CHECK(text.find('"' + name + '"') != std::string::npos);
            ++found;
        }
    CHECK(found >= 40);
}
