// The entry of the unit test program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "cuda/driver.h"
#include "engine/model/offload_layers.h"
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
  // Attention of all sessions whose options allow it is then computed by a device: the driver's if
  // the value is "driver", otherwise the one that the tests emulate (list_suites.cmake).
  if (const char* offload = std::getenv("KVANT_TEST_OFFLOAD")) {
    if (std::string_view(offload) != "driver") {
      setenv(kvant::cuda::Driver::kLibraryVariable, kvant::test::kFakeCudaDriver, 1);
    }
    kvant::SetDefaultOffload(kvant::Offload::kAttention);
  }
  return RUN_ALL_TESTS();
}
