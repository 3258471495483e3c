// Output files appear whole or not at all, keep what was there until then, leave nothing behind
// when the process is killed, and report a full disk.
#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant {
namespace {

using testing::HasSubstr;

std::string Text(const std::string& path) {
  const std::vector<std::byte> bytes = test::ReadFile(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void WriteText(const std::string& path, std::string_view text) {
  test::WriteFile(path, std::as_bytes(std::span(text)));
}

mode_t Mode(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_mode & 07777;
}

size_t FileCount(const test::TemporaryFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(OutputFile, AppearsAtCommit) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->Write("hello ", 6).ok());
  ASSERT_TRUE(file->Write("world", 5).ok());
  EXPECT_EQ(file->position(), 11u);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Text(path), "hello world");
  EXPECT_EQ(FileCount(folder), 1u) << "no temporary file is left";
}

TEST(OutputFile, KeepsTheOldFileWithoutCommit) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  WriteText(path, "old");
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write(std::vector<std::byte>(3 << 20)).ok());
    EXPECT_EQ(Text(path), "old");
  }
  EXPECT_EQ(Text(path), "old");
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(OutputFile, ReplacesTheOldFileAndKeepsItsMode) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  WriteText(path, "old");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write("new", 3).ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Text(path), "new");
  EXPECT_EQ(Mode(path), 0640u);
}

using Temporary = OutputFile::Temporary;

// A process writes a part of the file and is killed.
void KillAWriter(const std::string& path, Temporary temporary) {
  const pid_t child = fork();
  if (child == 0) {
    auto file = OutputFile::Create(path, temporary);
    if (!file.ok() || !file->Write(std::vector<std::byte>(3 << 20)).ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the file could not be written";
}

TEST(OutputFile, AKilledWriterLeavesNothing) {
  test::TemporaryFolder folder;
  KillAWriter(folder / "a", Temporary::kUnnamedIfPossible);
  // On a file system without unnamed files the next writer removes what is left.
  ASSERT_TRUE(OutputFile::Create(folder / "a").ok());
  EXPECT_EQ(FileCount(folder), 0u);
  WriteText(folder / "a", "old");
  KillAWriter(folder / "a", Temporary::kUnnamedIfPossible);
  EXPECT_EQ(Text(folder / "a"), "old");
}

TEST(OutputFile, RemovesWhatAKilledWriterLeft) {
  test::TemporaryFolder folder;
  const std::string long_name = folder / std::string(250, 'x');
  for (const std::string& path : {folder / "a", long_name}) {
    KillAWriter(path, Temporary::kNamed);
    EXPECT_EQ(FileCount(folder), 1u) << "this is what a named temporary leaves";
    ASSERT_TRUE(OutputFile::Create(path, Temporary::kNamed).ok());
    EXPECT_EQ(FileCount(folder), 0u);
  }
}

TEST(OutputFile, KeepsWhatALiveWriterHas) {
  test::TemporaryFolder folder;
  auto first = OutputFile::Create(folder / "a", Temporary::kNamed);
  auto second = OutputFile::Create(folder / "a", Temporary::kNamed);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(FileCount(folder), 2u);
  ASSERT_TRUE(first->Write("first", 5).ok());
  ASSERT_TRUE(second->Write("second", 6).ok());
  ASSERT_TRUE(first->Commit().ok());
  EXPECT_EQ(Text(folder / "a"), "first");
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(Text(folder / "a"), "second");
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(OutputFile, RemovesNothingThatOnlyResemblesATemporary) {
  test::TemporaryFolder folder;
  for (const char* name : {"a.kvant-abcde", "a.kvant-abcdefg", "a.kvant-abc-ef", "b.kvant-abcdef",
                           "a.kvant", "a.XXXXXX", "ba.kvant-abcdef"}) {
    WriteText(folder / name, "mine");
  }
  std::filesystem::create_directory(folder / "a.kvant-ABCDEF");
  std::filesystem::create_symlink(folder / "a.kvant", folder / "a.kvant-abcde1");
  const size_t before = FileCount(folder);
  ASSERT_TRUE(OutputFile::Create(folder / "a", Temporary::kNamed).ok());
  ASSERT_TRUE(OutputFile::Create(folder / "a").ok());
  EXPECT_EQ(FileCount(folder), before);
}

TEST(OutputFile, NamedTemporariesGiveTheSameFiles) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  const mode_t old_mask = umask(027);
  for (const mode_t mode : {mode_t{0640}, mode_t{0600}}) {
    auto file = OutputFile::Create(path, Temporary::kNamed);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("new", 3).ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(Text(path), "new");
    EXPECT_EQ(Mode(path), mode);
    EXPECT_EQ(FileCount(folder), 1u);
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }
  umask(old_mask);
}

TEST(OutputFile, ANewFileHasTheModeOfTheMask) {
  test::TemporaryFolder folder;
  const mode_t old_mask = umask(027);
  auto file = OutputFile::Create(folder / "a");
  umask(old_mask);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Mode(folder / "a"), 0640u);
}

// Sizes around the buffer, in pieces that do not divide it.
TEST(OutputFile, WritesPiecesOfEverySize) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> expected;
  constexpr size_t kBuffer = size_t{1} << 20;
  uint8_t value = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, kBuffer - 1, kBuffer, kBuffer + 1,
                            size_t{7}, 3 * kBuffer + 5, size_t{3}}) {
    const std::vector<std::byte> piece(size, std::byte{++value});
    ASSERT_TRUE(file->Write(piece).ok());
    expected.insert(expected.end(), piece.begin(), piece.end());
    EXPECT_EQ(file->position(), expected.size());
  }
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_TRUE(test::ReadFile(path) == expected);
}

TEST(OutputFile, SurvivesMoves) {
  test::TemporaryFolder folder;
  auto created = OutputFile::Create(folder / "a");
  ASSERT_TRUE(created.ok());
  ASSERT_TRUE(created->Write("a", 1).ok());
  OutputFile first = std::move(*created);
  auto other = OutputFile::Create(folder / "b");
  ASSERT_TRUE(other.ok());
  *other = std::move(first);
  ASSERT_TRUE(other->Write("b", 1).ok());
  ASSERT_TRUE(other->Commit().ok());
  EXPECT_EQ(Text(folder / "a"), "ab");
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));
}

TEST(OutputFile, ReportsAFullDisk) {
  KVANT_SKIP_WITHOUT("/dev/full");
  auto small = OutputFile::Create("/dev/full");
  ASSERT_TRUE(small.ok());
  ASSERT_TRUE(small->Write("a", 1).ok()) << "small writes are buffered";
  const Status at_commit = small->Commit();
  ASSERT_FALSE(at_commit.ok());
  EXPECT_EQ(at_commit.error().code, ErrorCode::kIo);
  EXPECT_EQ(at_commit.error().message, "/dev/full: cannot write: No space left on device");

  auto large = OutputFile::Create("/dev/full");
  ASSERT_TRUE(large.ok());
  const Status at_write = large->Write(std::vector<std::byte>(2 << 20));
  ASSERT_FALSE(at_write.ok());
  EXPECT_THAT(at_write.error().message, HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full")) << "it was not replaced";
}

TEST(OutputFile, WritesIntoAPipe) {
  test::TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = Text(path); });
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_TRUE(file->Write("through", 7).ok());
    EXPECT_TRUE(file->Commit().ok());
  }
  reader.join();
  EXPECT_EQ(received, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(OutputFile, WritesIntoAFileWithoutAName) {
  const int fd = memfd_create("kvant-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->Write("head", 4).ok());
    ASSERT_TRUE(file->Reserve(8).ok());
    ASSERT_TRUE(file->WriteAt(4, std::as_bytes(std::span("tail", 4))).ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  char text[9] = {};
  EXPECT_EQ(pread(fd, text, 8, 0), 8);
  EXPECT_STREQ(text, "headtail");
  close(fd);
}

TEST(OutputFile, RefusesImpossiblePaths) {
  test::TemporaryFolder folder;
  const auto expect = [](const std::string& path, std::string_view reason) {
    const auto file = OutputFile::Create(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.error().code, ErrorCode::kIo);
    EXPECT_THAT(file.error().message, HasSubstr(reason));
  };
  expect(folder.path().string(), "is a directory");
  expect(folder / "absent/a", "No such file or directory");
  WriteText(folder / "file", "x");
  expect(folder / "file/a", "Not a directory");
}

}  // namespace
}  // namespace kvant
