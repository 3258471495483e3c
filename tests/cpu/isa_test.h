// Shared by the kernel tests: one run per instruction set that this machine can use, and memory
// whose end is guarded.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cpu/dispatch.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::test {

// Half an ulp of one: the relative error of one rounded operation.
inline constexpr double kRounding = 0x1p-24;

// Kernels of instruction sets that this machine may lack, in another form that it has; null where
// it lacks that too.
struct IsaVariant {
  const char* name;
  const KernelTable* (*kernels)();
};
const KernelTable* AvxVnniModelKernels();  // avxvnni_model_test.cpp
const KernelTable* AmxModelKernels();      // amx_model_test.cpp
inline constexpr IsaVariant kIsaVariants[] = {{"avxvnni_model", AvxVnniModelKernels},
                                              {"amx_model", AmxModelKernels}};

inline std::vector<std::string> UsableIsas() {
  std::vector<std::string> names;
  for (const IsaReport& report : ReportIsas()) {
    if (report.supported) names.emplace_back(report.name);
  }
  for (const IsaVariant& variant : kIsaVariants) {
    if (variant.kernels() != nullptr) names.emplace_back(variant.name);
  }
  return names;
}

inline const KernelTable& KernelsNamed(const std::string& name) {
  for (const IsaVariant& variant : kIsaVariants) {
    if (name == variant.name) return *variant.kernels();
  }
  return *ChooseKernels(name).value();
}

// A test that runs once for every usable instruction set.
class IsaTest : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& kernels() const { return kernels_; }
  const KernelTable& reference() const { return reference_; }

 private:
  const KernelTable& kernels_ = KernelsNamed(GetParam());
  const KernelTable& reference_ = *ChooseKernels("scalar").value();
};

inline std::string IsaTestName(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

// An array that ends at an inaccessible page, so that reading or writing past its end faults
// whatever instruction does it.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t count) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t usable = (count * sizeof(T) + page - 1) / page * page;
    bytes_ = usable + page;
    void* block = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    block_ = static_cast<std::byte*>(block);
    if (mprotect(block_ + usable, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(block_ + usable - count * sizeof(T));
  }
  explicit GuardedArray(const std::vector<T>& values) : GuardedArray(values.size()) {
    if (!values.empty()) std::memcpy(data_, values.data(), count_ * sizeof(T));
  }
  ~GuardedArray() { munmap(block_, bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }
  std::vector<T> ToVector() const { return {begin(), end()}; }

 private:
  size_t count_;
  size_t bytes_ = 0;
  std::byte* block_ = nullptr;
  T* data_ = nullptr;
};

// Equal bits, with any NaN equal to any other.
inline bool SameBits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

inline void ExpectSameBits(std::span<const float> actual, std::span<const float> expected,
                           const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(SameBits(actual[i], expected[i]))
        << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
}

}  // namespace kvant::cpu::test

#define KVANT_FOR_EACH_ISA(fixture)                                                         \
  INSTANTIATE_TEST_SUITE_P(Isa, fixture, testing::ValuesIn(kvant::cpu::test::UsableIsas()), \
                           kvant::cpu::test::IsaTestName)
