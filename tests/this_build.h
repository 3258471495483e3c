// The build that the test program was linked in. Tests may be compiled in another one: see
// tests/CMakeLists.txt.
#pragma once

namespace kvant::test {

extern const char* const kProgramPath;     // kvant, "" where it is not built
extern const char* const kFakeCudaDriver;  // tests/cuda/fake_driver.cpp, a shared library
extern const bool kSanitized;              // by the address or thread sanitizer

}  // namespace kvant::test
