// Mapped files: the bytes are those of the file either way of access, and everything that is not a
// readable regular file is refused with its reason.
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <vector>

#include "kvant/lost_mapping.h"
#include "tests/temporary_folder.h"

namespace kvant {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::TestWithParam<FileAccess> {
 protected:
  void ExpectError(const std::string& path, std::string_view reason) {
    const auto file = MappedFile::Open(path, GetParam());
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.error().code, ErrorCode::kIo);
    EXPECT_THAT(file.error().message, testing::StartsWith(path + ": "));
    EXPECT_THAT(file.error().message, HasSubstr(reason));
  }

  test::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Access, MappedFileTest,
                         testing::Values(FileAccess::kMap, FileAccess::kRead),
                         [](const auto& test) {
                           return test.param == FileAccess::kMap ? "Map" : "Read";
                         });

TEST_P(MappedFileTest, GivesTheBytes) {
  std::vector<std::byte> bytes(10001);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  test::WriteFile(folder_ / "a", bytes);
  auto file = MappedFile::Open(folder_ / "a", GetParam());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->path(), folder_ / "a");
  EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->bytes().data()) % 4096, 0u);

  MappedFile moved = std::move(*file);
  EXPECT_TRUE(file->bytes().empty());
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_TRUE(std::ranges::equal(assigned.bytes(), bytes));
}

// The bytes are the same where parts are mapped and others read; pages of scattered parts are those
// of the file, which changes below them.
TEST_P(MappedFileTest, ScatteredPartsHaveTheBytes) {
  std::vector<std::byte> bytes(10 * 4096 + 100);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  test::WriteFile(folder_ / "a", bytes);
  const std::vector<FilePart> parts = {{7 * 4096 + 1, 100'000}, {1000, 4096}, {2 * 4096, 3 * 4096}};
  const auto file = MappedFile::Open(folder_ / "a", GetParam(), {}, parts);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes));
  EXPECT_STREQ(MappedFileAt(file->bytes().data() + 3 * 4096), (folder_ / "a").c_str());
  EXPECT_TRUE(file->Lock().ok());
  WillRead(file->bytes().subspan(2 * 4096 + 5, 100));
  std::fstream(folder_ / "a", std::ios::in | std::ios::out).seekp(3 * 4096).put('!');
  EXPECT_EQ(file->bytes()[3 * 4096], std::byte{'!'});
  std::fstream(folder_ / "a", std::ios::in | std::ios::out).seekp(6 * 4096).put('!');
  EXPECT_EQ(file->bytes()[6 * 4096] == std::byte{'!'}, GetParam() == FileAccess::kMap);
}

TEST_P(MappedFileTest, AnEmptyFileIsEmpty) {
  test::WriteFile(folder_ / "a", {});
  auto file = MappedFile::Open(folder_ / "a", GetParam());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(file->Lock().ok());
}

TEST_P(MappedFileTest, RefusesWhatIsNoFile) {
  ExpectError(folder_ / "absent", "No such file or directory");
  ExpectError(folder_ / "absent/a", "No such file or directory");
  ExpectError(folder_.path().string(), "is a directory");
  ExpectError("/dev/null", "not a regular file");
  ExpectError("", "No such file or directory");
  test::WriteFile(folder_ / "a", {});
  ExpectError(folder_ / "a/b", "Not a directory");
}

// Nobody writes to the pipe; opening must not wait for somebody.
TEST_P(MappedFileTest, RefusesAPipe) {
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectError(path, "not a regular file");
}

TEST_P(MappedFileTest, RefusesAFileWithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = folder_ / "a";
  test::WriteFile(path, {});
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectError(path, "Permission denied");
}

TEST_P(MappedFileTest, FollowsLinks) {
  const std::byte bytes[] = {std::byte{1}, std::byte{2}};
  test::WriteFile(folder_ / "a", bytes);
  std::filesystem::create_symlink(folder_ / "a", folder_ / "link");
  auto file = MappedFile::Open(folder_ / "link", GetParam());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes));
  std::filesystem::remove(folder_ / "a");
  ExpectError(folder_ / "link", "No such file or directory");
}

// ---- Files that become shorter ------------------------------------------------------------------

TEST(MappedFileAt, NamesTheFileOfAnAddress) {
  test::TemporaryFolder folder;
  test::WriteFile(folder / "a", std::vector<std::byte>(10000));
  test::WriteFile(folder / "b", std::vector<std::byte>(5000));
  auto a = MappedFile::Open(folder / "a");
  ASSERT_TRUE(a.ok());
  const std::byte* const first = a->bytes().data();
  {
    const auto b = MappedFile::Open(folder / "b");
    const auto read = MappedFile::Open(folder / "b", FileAccess::kRead);
    ASSERT_TRUE(b.ok() && read.ok());
    EXPECT_STREQ(MappedFileAt(b->bytes().data() + 4999), (folder / "b").c_str());
    EXPECT_EQ(MappedFileAt(read->bytes().data()), nullptr);
    EXPECT_STREQ(MappedFileAt(first), (folder / "a").c_str());
  }
  EXPECT_STREQ(MappedFileAt(first + 9999), (folder / "a").c_str());
  EXPECT_EQ(MappedFileAt(&a), nullptr);
  EXPECT_EQ(MappedFileAt(nullptr), nullptr);
  MappedFile moved = std::move(*a);
  EXPECT_STREQ(MappedFileAt(first), (folder / "a").c_str());
  moved = MappedFile();
  EXPECT_EQ(MappedFileAt(first), nullptr);
  // Many come and go.
  for (int i = 0; i < 100; ++i) {
    const auto again = MappedFile::Open(folder / (i % 2 == 0 ? "a" : "b"));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(MappedFileAt(again->bytes().data()), again->path());
  }
}

[[noreturn]] void TouchWhatIsLost(const std::string& path) {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* fault, void*) {
    const char* const lost = MappedFileAt(fault->si_addr);
    if (lost == nullptr) _exit(1);
    if (write(STDERR_FILENO, lost, std::strlen(lost)) < 0) _exit(2);
    _exit(7);
  };
  sigaction(SIGBUS, &action, nullptr);
  const auto file = MappedFile::Open(path);
  std::filesystem::resize_file(path, 0);
  const volatile std::byte* const last = file->bytes().data() + 20000;
  static_cast<void>(*last);
  _exit(3);
}

TEST(MappedFileAt, TellsASignalHandlerWhichFileIsLost) {
  test::TemporaryFolder folder;
  const std::string path = folder / "model";
  test::WriteFile(path, std::vector<std::byte>(30000));
  EXPECT_EXIT(TouchWhatIsLost(path), testing::ExitedWithCode(7), path);
}

}  // namespace
}  // namespace kvant
