// How often a command opens the file of its model: once. A file with interleaved rows is unpacked
// as a whole each time it is opened, and with --no-mmap it is read as a whole.
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

#include <thread>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tests/temporary_folder.h"
#include "tests/tools/sequences.h"

namespace kvant::test {
namespace {

// Counts how often a file is opened, by any process. The kernel puts events that are alike together
// until someone has read them, so a thread reads each as it comes.
class OpenCounter {
 public:
  explicit OpenCounter(const std::string& path)
      : events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)), end_(eventfd(0, EFD_CLOEXEC)) {
    watched_ = inotify_add_watch(events_, path.c_str(), IN_OPEN) >= 0;
    reader_ = std::thread([this] { ReadEvents(); });
  }
  ~OpenCounter() {
    Count();
    close(events_);
    close(end_);
  }
  OpenCounter(const OpenCounter&) = delete;
  OpenCounter& operator=(const OpenCounter&) = delete;

  bool watched() const { return watched_; }

  // Ends the counting.
  int Count() {
    if (reader_.joinable()) {
      eventfd_write(end_, 1);
      reader_.join();
    }
    return count_;
  }

 private:
  void ReadEvents() {
    bool ended = false;
    while (!ended) {
      pollfd both[] = {{events_, POLLIN, 0}, {end_, POLLIN, 0}};
      poll(both, 2, -1);
      ended = both[1].revents != 0;
      alignas(inotify_event) char buffer[4096];
      for (ssize_t size; (size = read(events_, buffer, sizeof(buffer))) > 0;) {
        count_ += static_cast<int>(size / static_cast<ssize_t>(sizeof(inotify_event)));
      }
    }
  }

  int events_;
  int end_;
  bool watched_ = false;
  int count_ = 0;
  std::thread reader_;
};

// The model with the keys of its first layer as zeros in Q8_0_R8, whose rows are interleaved.
void WriteInterleaved(const std::string& path) {
  const auto model = formats::GgufFile::Open(Shakespeare());
  ASSERT_TRUE(model.ok());
  constexpr uint32_t kQ8_0R8 = 208;
  const formats::GgufTensor* const keys = model->FindTensor("blk.0.attn_k.weight");
  ASSERT_NE(keys, nullptr);
  const std::vector<std::byte> zeros(static_cast<size_t>(keys->n_values() / 32 * 34));
  formats::GgufWriter writer;
  for (const auto& [key, value] : model->metadata()) writer.AddValue(std::string(key), value);
  for (formats::GgufTensor tensor : model->tensors()) {
    if (tensor.name == keys->name) {
      tensor.type = quant::TensorType{kQ8_0R8};
      tensor.size_bytes = zeros.size();
    }
    ASSERT_TRUE(writer.AddTensor(tensor).ok());
  }
  ASSERT_TRUE(writer.Begin(path).ok());
  for (const formats::GgufTensor& tensor : model->tensors()) {
    const bool replaced = tensor.name == keys->name;
    ASSERT_TRUE(
        writer.WriteTensor(replaced ? zeros : std::span(tensor.data, tensor.size_bytes)).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(ModelOpens, TheCounterCounts) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  OpenCounter counter(folder / "file");
  ASSERT_TRUE(counter.watched());
  for (int i = 0; i < 3; ++i) {
    std::ifstream file(folder / "file");
    EXPECT_TRUE(file.is_open());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(counter.Count(), 3);
}

TEST(ModelOpens, EveryCommandOpensItsModelOnce) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const TemporaryFolder folder;
  std::filesystem::copy_file(Shakespeare(), folder / "plain.gguf");
  WriteInterleaved(folder / "interleaved.gguf");
  std::ofstream(folder / "text.txt") << std::string(600, 'a');
  std::ofstream(folder / "prompts.jsonl") << "{\"prompt\": \"The\"}\n{\"prompt\": \"A\"}\n";
  const std::vector<std::vector<std::string>> commands = {
      {"run", "-p", "The", "-n", "2"},
      {"run", "-p", "The", "-n", "2", "--no-mmap"},
      {"run", "-p", "The", "-n", "2", "--no-model-defaults"},
      {"run", "-p", "The", "-n", "2", "--beams", "2"},
      {"run", "--prompts", folder / "prompts.jsonl", "-n", "2"},
      {"run", "--prompts", folder / "prompts.jsonl", "-n", "2", "--beams", "2"},
      {"chat", "-p", "The", "-n", "2", "--single-turn", "--no-chat-template"},
      {"logits", "-p", "The", "-o", folder / "logits.npy"},
      {"bench", "-p", "4", "-n", "2", "--repetitions", "1"},
      {"perplexity", "-f", folder / "text.txt", "-c", "64"},
  };
  for (const char* name : {"plain.gguf", "interleaved.gguf"}) {
    for (std::vector<std::string> arguments : commands) {
      arguments.insert(arguments.begin() + 1, folder / name);
      OpenCounter counter(folder / name);
      ASSERT_TRUE(counter.watched());
      const ProgramRun run = RunProgram(arguments);
      const std::string command = fmt::format("{}", fmt::join(arguments, " "));
      EXPECT_EQ(run.code, 0) << command << "\n" << run.error;
      EXPECT_EQ(counter.Count(), 1) << command;
    }
  }
}

}  // namespace
}  // namespace kvant::test
