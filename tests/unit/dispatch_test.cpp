// dispatch/implementation.h: the order of a list, the reasons of those that decline, and the workspace.
#include "../catch.h"
#include "dispatch/implementation.h"

#include <mxq/mxq.h>

using namespace mxq;

namespace {

struct Problem {
    int size;
};

const Implementation<Problem> small{"small", [](const Context&, const Problem& p) -> std::string {
                                        return p.size < 10 ? "" : "needs a size below 10";
                                    },
                                    nullptr, nullptr};
const Implementation<Problem> even{"even", [](const Context&, const Problem& p) -> std::string {
                                       return p.size % 2 == 0 ? "" : "needs an even size";
                                   },
                                   [](const Context&, const Problem& p) { return uint64_t(p.size); }, nullptr};
const Implementation<Problem>* const both[] = {&small, &even};
const ImplementationList<Problem> list{both, 2};
const Context context;

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
    CHECK(&choose(list, context, Problem{4}, "") == &small);
    CHECK(&choose(list, context, Problem{12}, "") == &even);
    CHECK(&choose(list, context, Problem{4}, "even") == &even);
    CHECK(workspace_need(small, context, Problem{4}) == 0);
    CHECK(workspace_need(even, context, Problem{4}) == 4);
}

TEST_CASE("dispatch: a refusal has every reason") {
    const std::string all = failure(MXQ_STATUS_UNSUPPORTED, [] { choose(list, context, Problem{11}, ""); });
    CHECK(all.find("small: needs a size below 10; even: needs an even size") != std::string::npos);
    const std::string one = failure(MXQ_STATUS_UNSUPPORTED, [] { choose(list, context, Problem{12}, "small"); });
    CHECK(one.find("small: needs") != std::string::npos);
    CHECK(one.find("even") == std::string::npos);
    const std::string unknown = failure(MXQ_STATUS_UNSUPPORTED, [] { choose(list, context, Problem{4}, "odd"); });
    CHECK(unknown.find("\"odd\", expected one of: small, even") != std::string::npos);
}

TEST_CASE("dispatch: a workspace is there, large enough and aligned") {
    alignas(256) char memory[512];
    check_workspace(0, nullptr, 0);
    check_workspace(512, memory, 512);
    CHECK(failure(MXQ_STATUS_BUFFER_TOO_SMALL, [&] { check_workspace(512, memory, 511); }).find("511 bytes, expected at least 512") !=
          std::string::npos);
    CHECK(failure(MXQ_STATUS_MISSING_BUFFER, [&] { check_workspace(512, nullptr, 512); }).find("workspace is NULL") !=
          std::string::npos);
    CHECK(failure(MXQ_STATUS_MISALIGNED, [&] { check_workspace(256, memory + 16, 256); }).find("multiple of 256") !=
          std::string::npos);
}
