// The program's manners: help, version, wrong use of every kind as a new user would try it. One
// clear line on stderr, nothing on stdout, the right exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/models.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const char* const kCommands[] = {"run",  "inspect",    "tokenize", "logits",  "bench",
                                 "hash", "perplexity", "score",    "imatrix", "serve"};

// The run failed with this code and one line that contains `part`.
void ExpectFailure(const std::vector<std::string>& arguments, int code, const std::string& part,
                   const ProgramInput& input = {}) {
  const ProgramRun run = RunProgram(arguments, input);
  SCOPED_TRACE(testing::PrintToString(arguments));
  EXPECT_EQ(run.code, code) << run.error;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.error_lines(), 1u) << run.error;
  EXPECT_THAT(run.error, StartsWith("kvant: "));
  EXPECT_THAT(run.error, HasSubstr(part));
}

TEST(Usage, HelpOfTheProgramAndOfEveryCommand) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"-h"}, {"help"}}) {
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.code, 0);
    EXPECT_EQ(run.error, "");
    for (const char* command : kCommands) EXPECT_THAT(run.out, HasSubstr(command));
  }
  for (const std::string command : kCommands) {
    const ProgramRun run = RunProgram({command, "--help"});
    EXPECT_EQ(run.code, 0);
    EXPECT_THAT(run.out, StartsWith("Usage: kvant " + command + " MODEL"));
    EXPECT_THAT(run.out, HasSubstr("\nExamples\n"));
    EXPECT_EQ(RunProgram({"help", command}).out, run.out);
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Usage, VersionNamesEverything) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run = RunProgram({"--version"});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, StartsWith("kvant 0."));
  for (const char* part : {"commit", "compiler", "scalar", "fmt", "xxHash", "CLI11"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
}

TEST(Usage, UnknownWordsGetASuggestion) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  ExpectFailure({"rnu"}, 2, "did you mean 'run'");
  ExpectFailure({"cht"}, 2, "did you mean 'chat'");
  ExpectFailure({"tokenise"}, 2, "did you mean 'tokenize'");
  ExpectFailure({"qqqqqq"}, 2, "unknown command 'qqqqqq' (see");
  ExpectFailure({"model.gguf"}, 2, "did you mean 'kvant run model.gguf'");
  ExpectFailure({"shakespeare"}, 2, "did you mean 'kvant run shakespeare'");
  ExpectFailure({"--verison"}, 2, "--verison");
  ExpectFailure({"run", "m.gguf", "--tmep", "1"}, 2, "--tmep; did you mean --temp?");
  ExpectFailure({"run", "m.gguf", "--temperatur", "1"}, 2, "did you mean --temp?");
  ExpectFailure({"run", "m.gguf", "--max-new-tokens", "1"}, 2, "did you mean --predict?");
  ExpectFailure({"run", "m.gguf", "--num-beams=2"}, 2, "did you mean --beams?");
  ExpectFailure({"run", "m.gguf", "-abc"}, 2, "unknown option -abc (see");
  ExpectFailure({"run", "m.gguf", "-temp", "1"}, 2, "-temp; did you mean --temp?");
  ExpectFailure({"run", "m.gguf", "--xyzzy"}, 2, "unknown option --xyzzy (see");
  ExpectFailure({"bench", "m.gguf", "-p", "4", "--repetition", "1"}, 2, "--repetitions?");
  const ProgramRun nothing = RunProgram({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.out, "");
  EXPECT_THAT(nothing.error, HasSubstr("kvant run"));
}

TEST(Usage, OneIsNotPlural) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  ExpectFailure({"score", "shakespeare", "-p", ""}, 2, "the text has 1 token, expected at least 2");
  ExpectFailure({"template", "shakespeare"}, 2, "MESSAGES.json, found 1 argument (see");
}

TEST(Usage, NoModelOrTooManyArguments) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::string command : {"run", "inspect", "tokenize", "bench", "hash"}) {
    ExpectFailure({command}, 2, "no model given");
  }
  ExpectFailure({"logits", "-o", "x.npy"}, 2, "no model given");
  ExpectFailure({"run", "a.gguf", "b.gguf"}, 2, "unexpected argument 'b.gguf'");
  ExpectFailure({"run", "-m", "a.gguf", "b.gguf"}, 2, "unexpected argument 'b.gguf'");
  ExpectFailure({"run", "a.gguf", "Once"}, 2,
                "the model is 'a.gguf', and a text comes with -p (see");
  ExpectFailure({"inspect", "a.gguf", "Once"}, 2, "the model is 'a.gguf' (see");
  ExpectFailure({"run", ""}, 2, "empty");
  ExpectFailure({"run", "a.gguf", "-n"}, 2, "needs a value");
}

TEST(Usage, FilesThatAreNoModels) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  std::ofstream(folder / "empty.gguf").close();
  std::ofstream(folder / "text.gguf") << "This is a text file, not a model.\n";
  std::ofstream(folder / "locked.gguf") << "GGUF";
  chmod((folder / "locked.gguf").c_str(), 0);
  for (const std::string command : {"run", "inspect", "tokenize", "logits", "bench", "hash"}) {
    const auto expect = [&](const std::string& path, const std::string& part) {
      std::vector<std::string> arguments = {command, path};
      if (command == "tokenize") arguments.insert(arguments.end(), {"-p", "x"});
      if (command == "logits") {
        arguments.insert(arguments.end(), {"--tokens", "1", "-o", folder / "out.npy"});
      }
      ExpectFailure(arguments, 1, path + ": ");
      ExpectFailure(arguments, 1, part);
    };
    expect(folder / "missing.gguf",
           "expected a GGUF file or a model that comes with kvant (dialog");
    expect(folder.path().string(), "directory");
    expect("/dev/null", "/dev/null");
    expect(folder / "empty.gguf", "empty");
    expect(folder / "text.gguf", "GGUF");
    if (geteuid() != 0) expect(folder / "locked.gguf", "Permission denied");
    EXPECT_FALSE(std::filesystem::exists(folder / "out.npy"));
  }
}

// One wording in every command.
TEST(Usage, NamesThatNoModelHasAndFoldersToConvert) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string text = folder / "text";
  std::ofstream(text) << "[]";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "llama3"},
        {"run", "shakespeare", "--draft", "llama3", "-n", "1"},
        {"chat", "llama3"},
        {"inspect", "llama3"},
        {"tokenize", "llama3", "-p", "x"},
        {"template", "llama3", text},
        {"logits", "llama3", "--tokens", "1", "-o", folder / "l.npy"},
        {"bench", "llama3"},
        {"hash", "llama3"},
        {"perplexity", "llama3", text},
        {"score", "llama3", "-f", text},
        {"imatrix", "llama3", text, "-o", folder / "i"},
        {"seq", "-m", "llama3", "-p", "stats"},
        {"quantize", "llama3", folder / "q.gguf", "Q4_0"},
        {"split", "llama3", folder / "s", "--max-size", "1M"},
        {"merge", "llama3", folder / "m.gguf"}}) {
    ExpectFailure(arguments, 1,
                  "kvant: llama3: expected a GGUF file or a model that comes with kvant (dialogue, "
                  "lfm2-tiny, number-words, qwen35-tiny, shakespeare)");
    ExpectFailure(arguments, 1, ", found no such file\n");
  }
  std::ofstream(folder / "config.json") << "{}";
  ExpectFailure({"run", folder.path().string()}, 1,
                "a folder of Hugging Face; 'kvant convert " + folder.path().string() +
                    " model.gguf' makes a GGUF file of it");
}

// A program that lies in build/PRESET of a checkout finds those of build/models.
TEST(Usage, FetchedModelsAreKnownByName) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  for (const char* name : {"build/release", "build/models/small", "build/models/speech",
                           "build/models/begun", "build/models/.packages"}) {
    fs::create_directories(folder / name);
  }
  const std::string program = folder / "build/release/kvant";
  fs::copy_file(kProgramPath, program);
  fs::copy_file(SmallModel(), folder / "build/models/small/small.gguf");
  std::ofstream(folder / "build/models/begun/begun.gguf.begun") << "GGUF";
  std::ofstream(folder / "build/models/speech/config.json") << "{}";
  EXPECT_EQ(test::Run(program.c_str(), {"hash", "small"}, {}).code, 0);
  EXPECT_THAT(test::Run(program.c_str(), {"hash", "begun"}, {}).error,
              HasSubstr("begun: expected a GGUF file or one of './dev models' (small), found no "
                        "such file\n"));
  const std::string speech = fs::canonical(folder / "build/models/speech").string();
  EXPECT_THAT(test::Run(program.c_str(), {"hash", "speech"}, {}).error,
              HasSubstr(speech + ": a folder of Hugging Face; 'kvant convert " + speech));
}

TEST(Usage, ImpossibleNumbers) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const auto expect = [](std::vector<std::string> options, const std::string& part) {
    options.insert(options.begin(), {"run", SmallModel()});
    ExpectFailure(options, 2, part);
  };
  expect({"-t", "0"}, "kvant: -t, --threads: expected a whole number from 1 to 1024, found '0'");
  expect({"-t0"}, "kvant: -t, --threads: expected a whole number from 1 to 1024, found '0'");
  expect({"--threads", "0"}, "kvant: --threads: expected a whole number from 1 to 1024");
  expect({"--n-predict=x"}, "kvant: --n-predict: expected a whole number from -1 to 1073741824");
  expect({"-ub", "0"}, "kvant: -ub, --chunk: expected a whole number from 1 to 1073741824");
  expect({"--temp", "1e9"}, "--temp: expected a number from -1000000 to 1000000, found '1e9'");
  expect({"-t", "99999"}, "--threads");
  expect({"-c", "-5"}, "--ctx-size");
  expect({"-c", "1e9"}, "found '1e9'");
  expect({"-n", "abc"}, "--predict: expected a whole number");
  expect({"-n", "-7"}, "--predict");
  expect({"-n", ""}, "--predict");
  expect({"-n=x"}, "kvant: -n, --predict: expected a whole number from -1 to");
  expect({"-n", "99999999999999999999"}, "--predict");
  expect({"--temp", "nan"}, "--temp: expected a number");
  expect({"--temp", "inf"}, "--temp");
  expect({"--temp="}, "--temp");
  expect({"--top-p", "2"}, "--top-p: expected a number from 0 to 1, found '2'");
  expect({"--min-p", "-0.1"}, "--min-p");
  expect({"--mirostat", "3"}, "--mirostat: expected a whole number from 0 to 2, found '3'");
  expect({"--dry-base", "0.5"}, "--dry-base: expected a number from 1 to 1000000, found '0.5'");
  expect({"--samplers", "top_k;top_z"}, "--samplers: expected names of samplers, of penalties (e)");
  expect({"--typical", "x"}, "--typical");
  expect({"--repeat-penalty", "0"}, "--repeat-penalty");
  expect({"--repeat-last-n", "-2"}, "--repeat-last-n");
  expect({"--top-k", "1.5"}, "--top-k");
  expect({"-s", "-2"}, "--seed");
  expect({"--chunk", "0"}, "--chunk");
  expect({"--kv-type", "q3"}, "--kv-type");
  expect({"-ctk", "f64"}, "kvant: -ctk, --cache-type-k: ");
  expect({"-ctk=f64"}, "kvant: -ctk, --cache-type-k: ");
  expect({"--kv-type-k", "f64"}, "kvant: --kv-type-k: ");
  for (const char* bias : {"5", "x+1", "5+", "5+x", "5+nan", "5+-1", "99999+1"}) {
    expect({"--logit-bias", bias}, "logit-bias");
  }
  ExpectFailure({"bench", SmallModel(), "-p", "0", "-n", "0"}, 2, "no test");
  ExpectFailure({"bench", SmallModel(), "-p", "-1"}, 2, "--n-prompt");
  ExpectFailure({"bench", SmallModel(), "-r", "0"}, 2, "--repetitions");
  ExpectFailure({"bench", SmallModel(), "-o", "xml"}, 2, "expected md, csv, json");
}

TEST(Usage, TextFromTwoPlaces) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::string command : {"run", "tokenize"}) {
    ExpectFailure({command, SmallModel(), "-p", "a", "-f", "b"}, 2, "exclude each other");
    ExpectFailure({command, SmallModel(), "-p", "a", "-"}, 2, "exclude each other");
    ExpectFailure({command, SmallModel(), "-f", "/nonexistent/file"}, 1, "/nonexistent/file");
    ExpectFailure({command, SmallModel(), "-f", "/"}, 1, "/: cannot read");
  }
  ExpectFailure({"tokenize", SmallModel()}, 2, "no text given");
}

TEST(Usage, LogitsArguments) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string out = folder / "x.npy";
  ExpectFailure({"logits", SmallModel(), "--tokens", "1"}, 2, "-o OUT.npy");
  ExpectFailure({"logits", SmallModel(), "-o", out}, 2, "--tokens");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1", "-p", "a", "-o", out}, 2, "--tokens");
  for (const char* tokens : {"", ",", "1,", "1,,2", "a", "1 2", "1,99999999999"}) {
    ExpectFailure({"logits", SmallModel(), "--tokens", tokens, "-o", out}, 2, "--tokens");
  }
  ExpectFailure({"logits", SmallModel(), "--tokens", "1,100000000", "-o", out}, 2, "100000000");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1,-1", "-o", out}, 2, "-1");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1,2", "-c", "1", "-o", out}, 1, "context");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1", "-o", "/dev/full"}, 1,
                "No space left on device");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1", "-o", folder / "no/x.npy"}, 1,
                "No such file");
  ExpectFailure({"logits", SmallModel(), "--tokens", "1", "-o", folder.path().string()}, 1,
                "directory");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Usage, OptionsWithoutMeaningAreNotedAndAccepted) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::vector<std::vector<std::string>> ignored = {
      {"-ngl", "99"},  {"--n-gpu-layers", "99"}, {"-fa"},
      {"-fa", "on"},   {"--flash-attn"},         {"-b", "512"},
      {"-tb", "2"},    {"--batch-size", "64"},   {"--no-warmup"},
      {"--simple-io"}, {"--log-disable"},        {"--color"},
      {"-no-cnv"},     {"--no-display-prompt"},  {"-cmoe"},
      {"-ncmoe", "4"}, {"-fit", "on"},           {"-kvu"},
      {"--swa-full"},  {"--no-repack"},          {"--no-perf"},
      {"--jinja"},     {"--no-mmproj"}};
  for (std::vector<std::string> options : ignored) {
    options.insert(options.begin(), {"run", "-n", "1"});
    options.push_back(SmallModel());
    const ProgramRun run = RunProgram(options);
    EXPECT_EQ(run.code, 0) << run.error;
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_THAT(run.error,
                HasSubstr(options[3].substr(0, options[3].find('=')) + " has no effect"));
  }
}

// A model is found although a folder of its name lies here.
TEST(Usage, AFolderOfAModelsNameIsNoModel) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const ProgramRun run = RunShell("cd '" + folder.path().string() +
                                  "' && mkdir shakespeare && \"$KVANT\" run shakespeare -n 1");
  EXPECT_EQ(run.code, 0) << run.error;
}

// Programs of llama.cpp and commands of its like, and options of its that kvant does not have: one
// line tells what to do instead.
TEST(Usage, WordsOfOtherProgramsAreAnswered) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const auto& [word, answer] : std::vector<std::pair<std::string, std::string>>{
           {"llama-server", "'kvant serve' is the server"},
           {"llama-cli", "'kvant chat' talks, and 'kvant run' continues a text"},
           {"main", "'kvant chat' talks, and 'kvant run' continues a text"},
           {"llama-bench", "'kvant bench' measures the speed"},
           {"llama-quantize", "'kvant quantize' makes a model smaller"},
           {"convert_hf_to_gguf.py", "'kvant convert' makes a GGUF file of a folder"},
           {"pull", "downloads are not there yet; 'hf download' fetches a file"},
           {"list", "there is no store of models: each command takes the path of a GGUF file, or"},
           {"rm", "there is no store of models"},
           {"hf.co/a/b", "downloads are not there yet: fetch the file first"},
           {"https://a/b.gguf", "downloads are not there yet: fetch the file first"}}) {
    ExpectFailure({word}, 2, "unknown command '" + word + "': " + answer);
  }
  struct Row {
    std::vector<std::string> words;
    std::string answer;
  };
  for (const Row& row : std::vector<Row>{
           {{"run", "-cnv"}, "-cnv: 'kvant chat' holds conversations, and --chat answers one"},
           {{"run", "-i"}, "-i: 'kvant chat' holds conversations"},
           {{"run", "-if"}, "-if: 'kvant chat' holds conversations"},
           {{"run", "-mli"}, "-mli: 'kvant chat' holds conversations; Alt+Enter"},
           {{"run", "-st"}, "-st: --chat answers one message"},
           {{"chat", "-no-cnv"}, "-no-cnv: 'kvant run' continues a text"},
           {{"chat", "-np", "2"}, "-np: 'kvant run --prompts FILE' generates several texts"},
           {{"bench", "-cnv"}, "-cnv: 'kvant chat' holds conversations (see"},
           {{"run", "--port", "80"}, "--port: 'kvant serve' is the server, and has it (see"},
           {{"run", "--lora", "x"}, "--lora: LoRA adapters are not there yet (see"},
           {{"run", "-hf", "x"}, "-hf: downloads are not there yet: fetch the file first"},
           {{"run", "-dr", "x"}, "-dr: downloads are not there yet"},
           {{"run", "--override-kv", "x"}, "--override-kv: 'kvant quantize IN OUT COPY"}}) {
    ExpectFailure(row.words, 2, "kvant: " + row.answer);
  }
  ExpectFailure({"-hf", "a/b"}, 2, "kvant: -hf: downloads are not there yet: fetch the file first");
  for (const char* name : {"hf.co/a/b:Q4_K_M", "https://a/b.gguf", "hf://a/b"}) {
    ExpectFailure({"run", name}, 1,
                  std::string("kvant: ") + name + ": downloads are not there yet");
    ExpectFailure({"chat", name}, 1,
                  std::string("kvant: ") + name + ": downloads are not there yet");
  }
  // Words that are near only: --part is not --pre.
  ExpectFailure({"tokenize", "m.gguf", "--part"}, 2, "unknown option --part (see");
  ExpectFailure({"run", "m.gguf", "--rpompt", "x"}, 2, "--rpompt; did you mean --prompt?");
}

// Options of llama.cpp have their meaning here, too.
TEST(Usage, LlamaCppsWords) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const auto text = [](std::vector<std::string> options) {
    options.insert(options.begin(),
                   {"run", "shakespeare", "-t", "1", "-p", "ROMEO:", "--temp", "0"});
    const ProgramRun run = RunProgram(options);
    EXPECT_EQ(run.code, 0) << run.error;
    EXPECT_EQ(run.error, "");
    return run.out;
  };
  const std::string plain = text({"-n", "8"});
  EXPECT_EQ(text({"-n=8"}), plain);
  EXPECT_EQ(text({"-n=8", "-ub", "2"}), plain);
  EXPECT_EQ(text({"-n=8", "--temperature", "0"}), plain);
  EXPECT_EQ(text({"-n=8", "-md", "shakespeare", "--draft-max", "3"}), plain);
  EXPECT_EQ(text({"-n=8", "-ctk=f16"}), plain);
  const std::string stopped = text({"-n", "40", "--stop", "woman"});
  EXPECT_THAT(stopped, testing::Not(HasSubstr("woman")));
  EXPECT_EQ(text({"-n", "40", "-r", "woman"}), stopped);
  EXPECT_EQ(text({"-n", "60", "-c", "24", "--keep", "2"}),
            text({"-n", "60", "-c", "24", "--context-shift", "--keep", "2"}));
}

TEST(Usage, OptionsWithoutEffectAreRefused) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const auto refuse = [](std::vector<std::string> options, const std::string& message) {
    options.insert(options.begin(), {"run", "shakespeare", "-n", "1"});
    ExpectFailure(options, 2, message);
  };
  refuse({"--parallel", "2"}, "--parallel: expected --prompts with it");
  refuse({"--samples", "1"}, "--samples: expected --prompts with it");
  refuse({"--draft-tokens", "2"}, "--draft-tokens: expected --draft with it");
  refuse({"--draft-max", "2"}, "--draft-max: expected --draft with it");
  refuse({"--beams", "2", "--temp", "1"}, "--temp: expected --beam-sample with it");
  refuse({"--beams", "2", "-s", "1"}, "-s, --seed: expected --beam-sample with it");
  refuse({"--beams", "2", "--min-p", "1"}, "--min-p: not possible together with --beams");
  refuse({"--adaptive-target", "0.5"},
         "--adaptive-target: expected adaptive_p in --samplers with it");
  refuse({"--beams", "2", "--dry-multiplier", "1"}, "--dry-multiplier: not possible together");
  refuse({"--num-return", "1"}, "--num-return: expected --beams with it");
  refuse({"--session-rewind"}, "--session-rewind: expected --session with it");
  refuse({"--prompt-cache-all"}, "--prompt-cache-all: expected --prompt-cache with it");
  refuse({"--no-kv-rotation"}, "--no-kv-rotation: expected --kv-type q8 with it");
  refuse({"--no-kv-cache", "--kv-budget", "1G"}, "--kv-budget: not possible together with");
  refuse({"--no-kv-cache", "--source-kv-type", "q8"}, "--source-kv-type: not possible together");
  refuse({"--no-kv-cache", "--state-checkpoints", "2"},
         "--state-checkpoints: not possible together with");
  refuse({"--state-checkpoints", "4097"}, "--state-checkpoints: ");
}

// The name of a model that comes with kvant is taken wherever a model is.
TEST(Usage, EveryCommandKnowsModelsByName) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string text = folder / "text";
  std::ofstream stream(text);
  for (int i = 0; i < 8; ++i) stream << "To be, or not to be: that is the question.\n";
  stream.close();
  const std::string imatrix = folder / "i";
  const std::string npy = folder / "l.npy";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "shakespeare", "-n", "1"},
        {"inspect", "shakespeare"},
        {"tokenize", "shakespeare", "-p", "x"},
        {"logits", "shakespeare", "--tokens", "1", "-o", npy},
        {"bench", "shakespeare", "-p", "1", "-n", "0", "-r", "1", "--no-bounds"},
        {"hash", "shakespeare"},
        {"perplexity", "shakespeare", text, "-c", "4"},
        {"score", "shakespeare", "-f", text},
        {"imatrix", "shakespeare", text, "-c", "16", "-o", imatrix, "--chunks", "1"},
        {"seq", "-m", "shakespeare", "-p", "stats"},
        {"quantize", "shakespeare", "x", "Q4_0", "--dry-run", "--requantize"},
        {"split", "shakespeare", "x", "--max-size", "1M", "--dry-run"},
        {"merge", "shakespeare", folder / "merged"}}) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 0) << arguments[0] << ": " << run.error;
  }
}

// A word that looks like an option is the value of the option before it if that one takes a value.
TEST(Usage, ValuesAreTakenAsTheyAre) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const char* text : {"-fa", "--help", "-", "--", "-5 degrees", "", "[a,b]"}) {
    const ProgramRun run = RunProgram({"tokenize", SmallModel(), "-p", text});
    EXPECT_EQ(run.code, 0) << run.error;
    EXPECT_THAT(run.error, testing::AnyOf("", HasSubstr("cannot spell")));
    const ProgramRun attached =
        RunProgram({"tokenize", SmallModel(), std::string("--prompt=") + text});
    EXPECT_EQ(attached.out, run.out);
  }
  EXPECT_EQ(RunProgram({"tokenize", "-p", "x", "--", SmallModel()}).code, 0);
}

}  // namespace
}  // namespace kvant::test
