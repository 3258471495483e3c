// Output files appear whole or not at all, keep what was there until then, leave nothing behind
// when the process is killed, report a full disk, and reach the system in pieces.
#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <random>
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
    ASSERT_TRUE(file->Write(std::vector<std::byte>(5 << 20)).ok());
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
    if (!file.ok() || !file->Write(std::vector<std::byte>(5 << 20)).ok()) _exit(1);
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

constexpr size_t kPiece = OutputFile::kPieceBytes;

std::vector<std::byte> RandomBytes(size_t size) {
  std::minstd_rand random(static_cast<uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  return bytes;
}

TEST(OutputFile, WritesPiecesOfEverySize) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> expected;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1000}, kPiece - 1001, kPiece - 1, kPiece, size_t{1}, kPiece,
        kPiece + 1, size_t{7}, kPiece - 8, 3 * kPiece + 5, size_t{3}}) {
    const std::vector<std::byte> bytes = RandomBytes(size);
    ASSERT_TRUE(file->Write(bytes).ok());
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(file->position(), expected.size());
  }
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_TRUE(test::ReadFile(path) == expected);
}

// Threads take ranges of a reserved file in order; the first bytes were written before.
void WriteReserved(OutputFile& file, std::span<const std::byte> bytes, size_t head, size_t range) {
  ASSERT_TRUE(file.Write(bytes.first(head)).ok());
  ASSERT_TRUE(file.Reserve(bytes.size()).ok());
  std::atomic<size_t> next{head};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next.fetch_add(range); at < bytes.size(); at = next.fetch_add(range)) {
        const auto part = bytes.subspan(at, std::min(range, bytes.size() - at));
        EXPECT_TRUE(file.WriteAt(at, part).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OutputFile, FillsReservedFilesFromSeveralThreads) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  const std::vector<std::byte> bytes = RandomBytes(3 * kPiece + 1);
  struct Case {
    size_t size, head, range;
  };
  constexpr size_t kAll = 3 * kPiece + 1;
  for (const auto& [size, head, range] :
       {Case{1, 0, kPiece}, Case{1, 1, kPiece}, Case{kPiece - 1, 100, 36'864},
        Case{kPiece, 0, 1'000'003}, Case{kPiece, kPiece - 1, kPiece},
        Case{kPiece + 1, kPiece, 36'864}, Case{kPiece + 1, kPiece + 1, kPiece},
        Case{3 * kPiece, 0, kPiece}, Case{kAll, kPiece - 1, 36'864}, Case{kAll, kPiece, 1'000'003},
        Case{kAll, kPiece + 1, kPiece}, Case{kAll, 100, 2 * kPiece + 1}}) {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok());
    WriteReserved(*file, std::span(bytes).first(size), head, range);
    ASSERT_TRUE(file->Commit().ok());
    const std::vector<std::byte> found = test::ReadFile(path);
    ASSERT_EQ(found.size(), size);
    EXPECT_EQ(std::memcmp(found.data(), bytes.data(), size), 0)
        << size << " bytes, " << head << " before, in ranges of " << range;
  }
}

TEST(OutputFile, FillsAReservedFileFromItsEnd) {
  test::TemporaryFolder folder;
  const std::vector<std::byte> bytes = RandomBytes(2 * kPiece + 12'345);
  auto file = OutputFile::Create(folder / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Reserve(bytes.size()).ok());
  constexpr size_t kRange = 100'000;
  for (size_t end = bytes.size(); end > 0; end -= std::min(end, kRange)) {
    const size_t begin = end - std::min(end, kRange);
    ASSERT_TRUE(file->WriteAt(begin, std::span(bytes).subspan(begin, end - begin)).ok());
  }
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_TRUE(test::ReadFile(folder / "a") == bytes);
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
  const Status at_write = large->Write(std::vector<std::byte>(OutputFile::kPieceBytes));
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

// A file without a name shows what has reached the system.
TEST(OutputFile, GivesTheSystemWholePieces) {
  const int fd = memfd_create("kvant-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto size = [&] {
    struct stat info {};
    EXPECT_EQ(fstat(fd, &info), 0);
    return static_cast<size_t>(info.st_size);
  };
  const auto byte = [&](size_t position) {
    std::byte value{};
    EXPECT_EQ(pread(fd, &value, 1, static_cast<off_t>(position)), 1);
    return value;
  };
  const std::vector<std::byte> ones(2 * kPiece, std::byte{1});
  auto file = OutputFile::Create(fmt::format("/proc/self/fd/{}", fd));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write(std::span(ones).first(kPiece - 1)).ok());
  EXPECT_EQ(size(), 0u);
  ASSERT_TRUE(file->Write(std::span(ones).first(kPiece + 2)).ok());
  EXPECT_EQ(size(), 2 * kPiece);
  ASSERT_TRUE(file->Reserve(4 * kPiece).ok());
  const uint64_t at = file->position();
  ASSERT_TRUE(file->WriteAt(3 * kPiece, std::span(ones).first(kPiece - 1)).ok());
  ASSERT_TRUE(file->WriteAt(at, std::span(ones).first(3 * kPiece - at - 1)).ok());
  EXPECT_EQ(byte(2 * kPiece), std::byte{0});
  EXPECT_EQ(byte(3 * kPiece), std::byte{0});
  ASSERT_TRUE(file->WriteAt(3 * kPiece - 1, std::span(ones).first(1)).ok());
  EXPECT_EQ(byte(2 * kPiece), std::byte{1});
  EXPECT_EQ(byte(3 * kPiece), std::byte{0});
  ASSERT_TRUE(file->WriteAt(4 * kPiece - 1, std::span(ones).first(1)).ok());
  EXPECT_EQ(byte(4 * kPiece - 1), std::byte{1});
  EXPECT_TRUE(file->Commit().ok());
  close(fd);
}

// Writes beyond `bytes` of any file fail while it lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(size_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST(OutputFile, ReportsThePieceThatFails) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a";
  const std::vector<std::byte> bytes = RandomBytes(2 * kPiece);
  for (const Temporary temporary : {Temporary::kUnnamedIfPossible, Temporary::kNamed}) {
    const auto expect_failure = [&](const Status& status) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kIo);
      EXPECT_EQ(status.error().message, path + ": cannot write: File too large");
    };
    {
      auto appended = OutputFile::Create(path, temporary);
      auto reserved = OutputFile::Create(path, temporary);
      ASSERT_TRUE(appended.ok() && reserved.ok() && reserved->Reserve(2 * kPiece).ok());
      const FileSizeLimit limit(kPiece + 5);  // within the second piece
      ASSERT_TRUE(appended->Write(std::span(bytes).first(kPiece + 6)).ok());
      expect_failure(appended->Commit());
      ASSERT_TRUE(reserved->WriteAt(kPiece, std::span(bytes).first(kPiece - 1)).ok());
      ASSERT_TRUE(reserved->WriteAt(0, std::span(bytes).first(kPiece)).ok());
      expect_failure(reserved->WriteAt(2 * kPiece - 1, std::span(bytes).first(1)));
      auto too_large = OutputFile::Create(path, temporary);
      ASSERT_TRUE(too_large.ok() && too_large->Write(std::span(bytes).first(100)).ok());
      expect_failure(too_large->Reserve(2 * kPiece));
      auto at_once = OutputFile::Create(path, temporary);
      ASSERT_TRUE(at_once.ok());
      expect_failure(at_once->Write(bytes));
    }
    EXPECT_EQ(FileCount(folder), 0u);
  }
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
