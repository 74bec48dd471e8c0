#include "../catch.h"

extern "C" int mxq_use_from_c(void);

TEST_CASE("header: a C99 program includes it and quantizes") { CHECK(mxq_use_from_c() == 0); }
