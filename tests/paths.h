// Finds the files of the tests: where the build knew them, or where the environment says, for a tree that was built
// elsewhere.
#ifndef MXQ_TESTS_PATHS_H
#define MXQ_TESTS_PATHS_H

#include <cstdlib>
#include <string>

namespace testing {

inline std::string data_dir() {
    const char* moved = std::getenv("MXQ_TEST_DATA_DIR");
    return moved ? moved : MXQ_TEST_DATA_DIR;
}
inline std::string header_path() {
    const char* moved = std::getenv("MXQ_TEST_HEADER");
    return moved ? moved : MXQ_TEST_HEADER;
}

}  // namespace testing

#endif
