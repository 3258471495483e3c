// The entry of the unit test program.
#include <gtest/gtest.h>

#include "tests/this_build.h"

namespace kvant::test {

const char* const kProgramPath = KVANT_BINARY;
const char* const kFakeCudaDriver = KVANT_FAKE_CUDA_DRIVER;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool kSanitized = true;
#else
const bool kSanitized = false;
#endif

}  // namespace kvant::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
