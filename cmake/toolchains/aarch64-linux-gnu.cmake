# Compiles for 64-bit Arm with the cross compiler of Debian and Ubuntu (g++-aarch64-linux-gnu), and runs what it makes under
# qemu-user where that is installed: cmake -S . -B build --toolchain cmake/toolchains/aarch64-linux-gnu.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
find_program(MXQ_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
mark_as_advanced(MXQ_QEMU)
if(MXQ_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${MXQ_QEMU} -L /usr/aarch64-linux-gnu)
endif()

# Libraries and headers are those of the target; programs are those of this machine.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
