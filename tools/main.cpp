// The program: a table of commands, and what the word before them may be (--help, --version).
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted by Ctrl+C. stdout carries only the
// result, errors are one line on stderr.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/Version.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/version.h"
#include "cpu/dispatch.h"
#include "tools/commands.h"
#include "tools/options/llama_words.h"
#include "tools/options/model_names.h"
#include "tools/options/nearest_word.h"
#include "tools/terminal/console.h"
#include "tools/terminal/lost_file.h"

namespace kvant::tools {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*function)(CommandLine& line);
};

constexpr Command kCommands[] = {
    {"run", "Generate text with a model and stream it", RunCommand},
    {"chat", "Talk with a model", ChatCommand},
    {"serve", "Serve a model over HTTP, as OpenAI's and llama-server's interfaces", ServeCommand},
    {"transcribe", "Write down what is said in sound files, with times", TranscribeCommand},
    {"embed", "Turn texts into vectors with an embedding model", EmbedCommand},
    {"rerank", "Order documents by how well they answer a query", RerankCommand},
    {"inspect", "Show what is in a model file, and the memory a run will need", InspectCommand},
    {"tokenize", "Turn text into token ids and back", TokenizeCommand},
    {"template", "Show the text and the tokens that a chat template makes of messages",
     TemplateCommand},
    {"logits", "Write the logits of every position to a NumPy file", LogitsCommand},
    {"bench", "Measure the speed of prefill and decode", BenchCommand},
    {"perplexity", "Measure how well a model predicts a text, also beside another model",
     PerplexityCommand},
    {"score", "Print the log-probability of every token of a text", ScoreCommand},
    {"imatrix", "Collect the importance matrix that quantizers use", ImatrixCommand},
    {"seq", "Run a program of operations on sequences: fork, reorder, rewind, save ...",
     SeqCommand},
    {"hash", "Print the hashes of all tensors, or check them", HashCommand},
    {"convert", "Convert a Hugging Face folder to a GGUF file", ConvertCommand},
    {"quantize", "Quantize a model to fewer bits", QuantizeCommand},
    {"split", "Cut a model into several files", SplitCommand},
    {"merge", "Join the shards of a model to one file", MergeCommand},
};

std::string ProgramHelp() {
  std::string out =
      "kvant runs GGUF language models on the CPU.\n"
      "\n"
      "Usage: kvant COMMAND [ARGUMENTS]\n"
      "\n"
      "Commands\n";
  for (const Command& command : kCommands) {
    out += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  return out +
         "\n"
         "Options\n"
         "  -h, --help  Show this help; 'kvant COMMAND --help' shows those of a command\n"
         "  --version   Show version, commit, compiler, instruction sets and libraries\n"
         "\n"
         "Environment\n"
         "  KVANT_ISA          Instruction set to use, such as avx2 or scalar, in place of the "
         "best\n"
         "  KVANT_CUDA_DRIVER  Library of NVIDIA's driver, in place of libcuda.so.1\n"
         "  KVANT_FLOAT_GEMM   Products of float matrices: panels, onednn, openblas or own\n"
         "  KVANT_API_KEY      A key that kvant serve asks for\n"
         "  KVANT_PORT         Port of kvant serve, in place of 8080\n"
         "  NO_COLOR           If not empty, kvant chat shows no colours\n"
         "  XDG_STATE_HOME     Folder of kvant/chat_history, in place of ~/.local/state\n"
         "\n"
         "Examples\n"
         "  kvant chat\n"
         "  kvant run shakespeare -p \"ROMEO:\"\n"
         "  kvant run model.gguf -p \"Once upon a time\"\n"
         "  kvant inspect model.gguf\n"
         "  kvant bench model.gguf -p 512 -n 128\n";
}

std::string ProgramVersion() {
  const VersionInfo& version = Version();
  std::vector<std::string> isas;
  for (const cpu::IsaReport& report : cpu::ReportIsas()) {
    if (report.compiled) {
      isas.push_back(std::string(report.name) + (report.supported ? "" : " (not on this CPU)"));
    }
  }
  auto libraries = version.libraries;
  libraries.emplace_back("CLI11", CLI11_VERSION);
  std::vector<std::string> library_texts;
  for (const auto& [name, number] : libraries) library_texts.push_back(name + " " + number);
  return fmt::format(
      "kvant {}\n"
      "commit            {}\n"
      "compiler          {}, {}\n"
      "instruction sets  {}\n"
      "libraries         {}\n",
      version.version, version.commit, version.compiler, version.build_type, fmt::join(isas, ", "),
      fmt::join(library_texts, ", "));
}

int UnknownCommand(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  if (word.starts_with('-')) {
    if (const std::string_view advice = OptionAdvice("", word); !advice.empty()) {
      return Fail(fmt::format("{}: {} (see 'kvant --help')", word, advice), kExitUsage);
    }
    return Fail(fmt::format("unknown option {} before the command (see 'kvant --help')", word),
                kExitUsage);
  }
  if (const std::string_view advice = CommandAdvice(word); !advice.empty()) {
    return Fail(fmt::format("unknown command '{}': {} (see 'kvant --help')", word, advice),
                kExitUsage);
  }
  std::error_code error;
  const auto model = FindModel(word);
  const bool found = model.ok() && std::filesystem::is_regular_file(*model, error);
  if (found || word.ends_with(".gguf")) {
    return Fail(fmt::format("'{}' is no command; did you mean 'kvant run {}'?", word, word),
                kExitUsage);
  }
  const std::string nearest = Nearest(word, names);
  const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  return Fail(fmt::format("unknown command '{}'{} (see 'kvant --help')", word, hint), kExitUsage);
}

int Print(const std::string& text) {
  ResultStream out;
  out.Write(text);
  return out.Finish(kExitDone);
}

int Main(std::vector<std::string> words) {
  OpenStandardStreams();
  CatchSignals();
  EndAtLostFiles();
  ShowLog();
  if (words.empty()) {
    WriteError(ProgramHelp());
    return kExitUsage;
  }
  if (words[0] == "help" && words.size() > 1) {  // help COMMAND = COMMAND --help
    words = {words[1], "--help"};
  }
  const std::string& word = words[0];
  if (word == "--help" || word == "-h" || word == "help") return Print(ProgramHelp());
  if (word == "--version" || word == "version") return Print(ProgramVersion());
  if (word == "--list-commands") {  // for shell completion
    std::string names;
    for (const Command& command : kCommands) names += std::string(command.name) + "\n";
    return Print(names);
  }
  for (const Command& command : kCommands) {
    if (word != command.name) continue;
    CommandLine line(word, {words.begin() + 1, words.end()});
    return command.function(line);
  }
  return UnknownCommand(word);
}

// Turns exceptions of the standard library, thrown where memory or threads run out, into messages.
int MainWithoutExceptions(std::vector<std::string> words) {
  try {
    return Main(std::move(words));
  } catch (const std::bad_alloc&) {
    return Fail("out of memory");
  } catch (const std::exception& error) {  // no more threads, a path that no call accepts
    return Fail(error.what());
  }
}

// Under a limit of memory OpenBLAS's threads may have found none to begin with, and the end of the
// program would wait for them for ever. Everything of our own has been closed by now.
int End(int code) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) _exit(code);
  return code;
}

}  // namespace
}  // namespace kvant::tools

int main(int argc, char** argv) {
  return kvant::tools::End(kvant::tools::MainWithoutExceptions({argv + 1, argv + argc}));
}
