# Has most of the library read the headers of C++ once, which halves the time of a build that is not about speed: a build takes
# it with -DCMAKE_PROJECT_mxq_INCLUDE=this file. Other builds compile each file alone, and so find an include that is missing.
cmake_language(DEFER CALL target_precompile_headers mxq_objects PRIVATE
  <algorithm> <array> <atomic> <cmath> <cstdio> <cstring> <functional> <memory> <mutex> <string> <vector>)
