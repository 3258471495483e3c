// Available memory, over made-up files of the kernel and of control groups.
#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace kvant {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A folder with files as Linux writes them.
class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() {
    files_ = {folder_ / "meminfo", folder_ / "self_cgroup", folder_ / "groups"};
    Write("meminfo",
          "MemTotal:        8388608 kB\nMemFree:          524288 kB\n"
          "MemAvailable:    4194304 kB\n");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(folder_ / name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  test::TemporaryFolder folder_;
  MemoryFiles files_;
};

TEST_F(AvailableMemoryTest, WithoutGroupsIsWhatTheSystemHas) {
  EXPECT_EQ(AvailableMemory(files_), 4096 * kMiB);
}

TEST_F(AvailableMemoryTest, WithoutFilesIsUnlimited) {
  EXPECT_EQ(AvailableMemory({"/nowhere/a", "/nowhere/b", "/nowhere/c"}), UINT64_MAX);
}

TEST_F(AvailableMemoryTest, AContainerHasItsLimitAtTheRoot) {
  Write("self_cgroup", "0::/\n");
  Write("groups/memory.max", "1073741824\n");
  Write("groups/memory.stat", "anon 104857600\nfile 734003200\nshmem 52428800\nshmem_thp 7\n");
  EXPECT_EQ(AvailableMemory(files_), (1024 - 100 - 50) * kMiB);
}

TEST_F(AvailableMemoryTest, TheTightestGroupCounts) {
  Write("self_cgroup", "0::/system.slice/model.service\n");
  Write("groups/system.slice/memory.max", "536870912\n");
  Write("groups/system.slice/memory.stat", "anon 104857600\n");
  Write("groups/system.slice/model.service/memory.max", "1073741824\n");
  EXPECT_EQ(AvailableMemory(files_), (512 - 100) * kMiB);
  Write("groups/system.slice/model.service/memory.max", "104857600\n");
  EXPECT_EQ(AvailableMemory(files_), 100 * kMiB);
}

TEST_F(AvailableMemoryTest, NoLimitAndALargerOneChangeNothing) {
  Write("self_cgroup", "0::/a/b\n");
  Write("groups/a/memory.max", "max\n");
  Write("groups/a/b/memory.max", "1099511627776\n");
  EXPECT_EQ(AvailableMemory(files_), 4096 * kMiB);
}

TEST_F(AvailableMemoryTest, MoreUsedThanAllowedLeavesNothing) {
  Write("self_cgroup", "0::/a\n");
  Write("groups/a/memory.max", "1000\n");
  Write("groups/a/memory.stat", "anon 2000\n");
  EXPECT_EQ(AvailableMemory(files_), 0u);
}

TEST_F(AvailableMemoryTest, TheFirstVersionOfGroupsIsRead) {
  Write("self_cgroup", "12:pids:/docker/x\n4:memory:/docker/x\n1:name=systemd:/docker/x\n");
  Write("groups/memory/memory.limit_in_bytes", "1073741824\n");
  Write("groups/memory/memory.stat", "rss 1\ntotal_rss 104857600\ntotal_shmem 0\n");
  EXPECT_EQ(AvailableMemory(files_), (1024 - 100) * kMiB);
}

TEST(AvailableMemory, OfThisMachineIsTold) {
  EXPECT_GT(AvailableMemory(), 0u);
  EXPECT_LT(AvailableMemory(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace kvant
