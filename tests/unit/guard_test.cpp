// api/guard.h turns every exception into a status and a message, so that none leaves the library.
#include "../catch.h"
#include "api/guard.h"
#include "core/options.h"
#include "core/tensor.h"

#include <mxq/mxq.h>

#include <cstring>
#include <new>
#include <stdexcept>

TEST_CASE("guard: what is thrown, and what the caller gets") {
    auto message = [] { return std::string(mxq_last_error()); };
    CHECK(mxq::guard("f", [] {}) == MXQ_STATUS_OK);
    CHECK(mxq::guard("f", [] { throw mxq::Error(MXQ_STATUS_SHAPE_MISMATCH, "text"); }) == MXQ_STATUS_SHAPE_MISMATCH);
    CHECK(message() == "f: text");
    CHECK(mxq::guard("g", [] { throw std::bad_alloc(); }) == MXQ_STATUS_OUT_OF_MEMORY);
    CHECK(message().find("g: out of host memory") == 0);
    CHECK(mxq::guard("h", [] { throw std::logic_error("a fault"); }) == MXQ_STATUS_INTERNAL_ERROR);
    CHECK(message().find("a fault") != std::string::npos);
    CHECK(mxq::guard("h", [] { throw 42; }) == MXQ_STATUS_INTERNAL_ERROR);
    CHECK(message().find("h: ") == 0);
}

// The memory of these objects stays with the test, as that of a freed one need not.
TEST_CASE("guard: a handle that was destroyed is refused, and is not destroyed again") {
    alignas(mxq_tensor) unsigned char memory[sizeof(mxq_tensor)];
    mxq_tensor* const tensor = new (memory) mxq_tensor;
    CHECK(mxq::is_alive(tensor));
    tensor->~mxq_tensor();
    CHECK(mxq::tag_of(memory) == mxq::Kind::Destroyed);
    CHECK(mxq_tensor_set_scope(tensor, MXQ_SCOPE_TENSOR) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(std::string(mxq_last_error()).find("tensor was destroyed, expected a tensor") != std::string::npos);
    mxq_tensor_destroy(tensor);
    CHECK(std::string(mxq_last_error()).find("mxq_tensor_destroy: tensor was destroyed") == 0);
    std::memset(memory, 0xAB, sizeof memory);
    CHECK(mxq_tensor_set_scope(tensor, MXQ_SCOPE_TENSOR) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(std::string(mxq_last_error()).find("tensor is no handle of libmxq") != std::string::npos);
}

TEST_CASE("guard: a long message is cut, not overrun") {
    std::string text(100000, 'x');
    CHECK(mxq::guard("f", [&] { throw mxq::Error(MXQ_STATUS_UNSUPPORTED, text); }) == MXQ_STATUS_UNSUPPORTED);
    CHECK(std::string(mxq_last_error()).size() < text.size());
    CHECK(std::string(mxq_last_error()).rfind("f: xxx", 0) == 0);
}

TEST_CASE("guard: a creation that fails leaves NULL") {
    int value = 0, *out = &value;
    CHECK(mxq::guard_create(&out, []() -> int* { throw std::bad_alloc(); }) == MXQ_STATUS_OUT_OF_MEMORY);
    CHECK(out == nullptr);
    CHECK(mxq::guard_create(static_cast<int**>(nullptr), [&] { return &value; }) == MXQ_STATUS_INVALID_ARGUMENT);
}
