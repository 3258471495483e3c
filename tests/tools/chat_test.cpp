// kvant chat through pipes: standard output has the answers and nothing else, a turn computes only
// what is new, and going back, saving and loading change no answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"
#include "tests/tools/sequences.h"

namespace kvant::test {
namespace {

// Chats on one thread, with answers of a few of the likeliest tokens.
class Chat : public Sequences {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    model_ = Shakespeare();
  }

  ProgramRun Talk(const std::string& lines, const Words& options = {}) const {
    return RunProgram(With({"chat", model_, "-t", "1", "--chat-template", "chatml", "--temp", "0",
                            "-n", "12", "--strict"},
                           With(options_, options)),
                      {.text = lines});
  }

  // The output of a talk that succeeds.
  std::string Answers(const std::string& lines, const Words& options = {}) const {
    const ProgramRun run = Talk(lines, options);
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  }

  // The lines of --stats of a talk that succeeds.
  std::vector<json> Stats(const std::string& lines, const Words& options = {}) const {
    const ProgramRun run = Talk(lines, With({"--stats"}, options));
    EXPECT_EQ(run.code, 0) << run.error;
    std::string stats;
    std::istringstream error(run.error);
    for (std::string line; std::getline(error, line);) {
      if (line.starts_with('{')) stats += line + "\n";  // others are notes
    }
    return Lines(stats);
  }

  std::string model_;
  Words options_;  // of every talk
};

TEST_F(Chat, PrintsAnswersOnly) {
  const ProgramRun run = Talk("Who is there?\nSpeak.\n");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.error, "");
  const std::string first = Answers("Who is there?\n");
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(run.out.starts_with(first)) << run.out;
  EXPECT_GT(run.out.size(), first.size());
  EXPECT_EQ(Answers("Speak.\n", {"-p", "Who is there?"}), run.out);
  EXPECT_EQ(Answers("Speak.\n", {"-p", "Who is there?", "-st"}), first);
  EXPECT_EQ(Answers("", {}), "");
}

// The last line may lack its end, and may come with those of Windows; a backslash joins lines.
TEST_F(Chat, TakesLines) {
  const std::string one = Answers("Who is there?\n");
  EXPECT_EQ(Answers("Who is there?"), one);
  EXPECT_EQ(Answers("\n\nWho is there?\r\n  \n"), one);
  const std::string joined = Answers("Who\\\nis there?\n");
  EXPECT_EQ(Answers("", {"-e", "-p", "Who\\nis there?"}), joined);
  EXPECT_EQ(Answers("//help\n"), Answers("", {"-p", "//help"}));
}

// A text as a chat shows it: without blanks before it, and with the end of its last line.
std::string Shown(std::string text) {
  text.erase(0, text.find_first_not_of(" \n"));
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

TEST_F(Chat, IsRunWithATemplate) {
  const ProgramRun run =
      RunModel({"--chat", "--chat-template", "chatml", "-p", "Speak.", "-sys", "You are a king.",
                "--temp", "0", "-n", "12", "--strict", "--json"});
  ASSERT_EQ(run.code, 0) << run.error;
  const std::string text = Shown(Lines(run.out).front()["text"]);
  EXPECT_EQ(Answers("Speak.\n", {"-sys", "You are a king."}), text);
  EXPECT_EQ(Answers("/system You are a king.\nSpeak.\n"), text);
  ExpectRefused(RunModel({"-sys", "x"}), 2, "-sys, --system-prompt: expected --chat with it");
  ExpectRefused(RunModel({"-cnv"}), 2, "--chat answers one message");
}

// A file without a template is no wrong use of the program.
TEST_F(Chat, TellsWhereThereIsNoTemplate) {
  for (const Words& words :
       {Words{"chat", model_, "-p", "x", "--single-turn"}, {"run", model_, "--chat", "-p", "x"}}) {
    ExpectRefused(RunProgram(words), 1,
                  model_ +
                      ": expected a chat template in tokenizer.chat_template, found none; "
                      "--chat-template chatml takes one that comes with kvant, and 'kvant "
                      "run' continues a text without one");
  }
}

TEST_F(Chat, CanDoWithoutATemplate) {
  const auto text = [this](const Words& options) {
    const ProgramRun run =
        RunModel(With({"--temp", "0", "-n", "12", "--strict", "--json"}, options));
    EXPECT_EQ(run.code, 0) << run.error;
    return Lines(run.out).front()["text"].get<std::string>();
  };
  const std::string plain = text({"-p", "You are a king.\nSpeak.\n"});
  const Words message = {"--chat", "--no-chat-template", "-sys", "You are a king.", "-p", "Speak."};
  EXPECT_EQ(text(message), plain);
  ExpectRefused(Talk("Speak.\n", {"--no-chat-template"}), 2, "--chat-template");
  ExpectRefused(RunModel({"--no-chat-template"}), 2, "--no-chat-template: expected --chat with it");
}

// ---- The cache ----------------------------------------------------------------------------------

void ExpectOnlyNewTokens(const std::vector<json>& turns) {
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0]["reused_tokens"], 0);
  for (size_t i = 1; i < turns.size(); ++i) {
    // The last token of an answer may not have been computed.
    EXPECT_GE(turns[i]["reused_tokens"], turns[i - 1]["conversation_tokens"].get<int>() - 1) << i;
    EXPECT_EQ(turns[i]["replayed_tokens"], 0);
    EXPECT_EQ(turns[i]["reused_tokens"].get<int>() + turns[i]["processed_tokens"].get<int>() +
                  turns[i]["generated_tokens"].get<int>(),
              turns[i]["conversation_tokens"]);
  }
}

class ChatCache : public Chat {
 protected:
  // Turns compute what is new; a conversation that is computed again as a whole, after a restart
  // without its tokens, goes on with the same text, and so does one with them.
  void ExpectExact() const {
    const std::string talk = "ab a\nb b a\nab\n";
    ExpectOnlyNewTokens(Stats(talk));
    const std::string path = folder_ / "saved.json";
    const std::string bare = folder_ / "bare.json";
    const std::string before = Answers("ab a\nb b a\n/save " + path + "\n");
    std::filesystem::copy_file(path, bare, std::filesystem::copy_options::overwrite_existing);
    const std::string all = Answers(talk);
    ASSERT_TRUE(all.starts_with(before));
    const std::string last = all.substr(before.size());
    EXPECT_EQ(Answers("ab\n", {"--load", path}), last);
    const ProgramRun again = Talk("ab\n", {"--load", bare, "--stats"});
    EXPECT_EQ(again.code, 0);
    EXPECT_EQ(again.out, last);
    EXPECT_THAT(again.error, HasSubstr("\"reused_tokens\":0"));
    EXPECT_THAT(again.error, HasSubstr("the tokens will be computed again"));
    // Going back and again.
    EXPECT_EQ(Answers("ab a\nb b a\nb\n/undo\nab\n/regen\n"),
              before + Answers("b\n", {"--load", path}) + last + last);
  }
};

TEST_F(ChatCache, FullAttention) { ExpectExact(); }

TEST_F(ChatCache, Windows) {
  model_ = folder_ / "windows.gguf";
  TinyShape shape = MixedShape(/*window=*/48);
  shape.context = 1024;
  TinyModelWriter(shape).Write(model_);
  ExpectExact();
}

TEST_F(ChatCache, RecurrentLayers) {
  SeededModel recurrent("lfm2");
  const auto path = recurrent.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  model_ = *path;
  // Only tokens that have a text: a, b, a blank, ab and a blank with ab.
  options_ = {"-c", "1024"};
  for (int id = 0; id < 64; ++id) {
    const bool spelt = id >= 4 && id <= 8;
    if (!spelt) options_ = With(options_, {"--logit-bias", std::to_string(id) + "-inf"});
  }
  ExpectExact();
}

TEST_F(ChatCache, Int8) {
  model_ = Shakespeare();
  const std::string talk = "Who is there?\nSpeak.\nGo on.\n";
  ExpectOnlyNewTokens(Stats(talk, {"--kv-type", "q8"}));
}

TEST_F(Chat, RegenComputesOneToken) {
  const auto turns = Stats("Who is there?\n/regen\n");
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[1]["processed_tokens"], 1);
  EXPECT_EQ(turns[1]["messages"], 2);
}

TEST_F(Chat, EditsTheLastMessage) {
  const std::string first = Answers("Who is there?\n");
  const std::string edited = Answers("Speak, man.\n");
  EXPECT_EQ(Answers("Who is there?\n/edit Speak, man.\n"), first + edited);
  EXPECT_EQ(Answers("Who is there?\n/reset\nSpeak, man.\n"), first + edited);
}

TEST_F(Chat, ReadsAFileBeforeAMessage) {
  const std::string path = Write("note.txt", "A king.");
  EXPECT_EQ(Answers("/read " + path + "\nSpeak.\n"), Answers("A king.\\\nSpeak.\n"));
  ExpectRefused(Talk("/read " + (folder_ / "none") + "\n"), 1, "no such file");
}

TEST_F(Chat, SearchesWithBeams) {
  const ProgramRun run = RunModel({"--chat", "--chat-template", "chatml", "-p", "Speak.", "-n",
                                   "12", "--strict", "--beams", "3"});
  ASSERT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(Answers("/beams 3\nSpeak.\n"), Shown(run.out));
  const auto turns = Stats("Who is there?\nSpeak.\n", {"--beams", "2"});
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_GT(turns[1]["reused_tokens"], 20);
  // A talk that begins without beams keeps its tokens where they are asked for.
  const auto later = Stats("Who is there?\n/beams 2\nSpeak.\n/beams 5\nSpeak.\n");
  ASSERT_EQ(later.size(), 3u);
  for (const size_t turn : {1u, 2u}) {
    EXPECT_GE(later[turn]["reused_tokens"], later[turn - 1]["held_tokens"]) << turn;
  }
  ExpectRefused(Talk("/beams 0\n"), 2, "/beams: expected a number from 1 to 64, found '0'");
}

// ---- Settings -----------------------------------------------------------------------------------

TEST_F(Chat, SetsWhatOptionsSet) {
  EXPECT_EQ(Answers("/set predict 4\nSpeak.\n"), Answers("Speak.\n", {"-n", "4"}));
  EXPECT_EQ(Answers("/set num_predict 4\nSpeak.\n"), Answers("Speak.\n", {"-n", "4"}));
  const Words sampled = {"--temp", "0.9", "--seed", "7", "--top-k", "50"};
  EXPECT_EQ(Answers("/set parameter temperature 0.9\n/set seed 7\n/set --top_k 50\nSpeak.\n"),
            Answers("Speak.\n", sampled));
  EXPECT_NE(Answers("Speak.\n", sampled), Answers("Speak.\n"));
  const std::string plain = Answers("Speak.\n", sampled);
  std::smatch word_match;  // the text depends on the instruction set, and a setting is a line
  ASSERT_TRUE(std::regex_search(plain, word_match, std::regex("[A-Za-z]{3}")));
  const std::string word = word_match.str();
  const Words stop_option = With(sampled, {"--stop", word});
  const std::string stopped = Answers("Speak.\n", stop_option);
  EXPECT_NE(stopped, plain);
  EXPECT_EQ(Answers("/set stop " + word + "\nSpeak.\n", sampled), stopped);
  EXPECT_EQ(Answers("/set stop -\nSpeak.\n", stop_option), plain);
}

TEST_F(Chat, RefusesWrongSettings) {
  ExpectRefused(Talk("/set temprature 1\n"), 2, "unknown setting 'temprature'; did you mean temp?");
  ExpectRefused(Talk("/set top-p 7\n"), 2, "--top-p: expected a number from 0 to 1, found '7'");
  ExpectRefused(Talk("/set temp\n"), 2, "/set: expected /set NAME VALUE");
  ExpectRefused(Talk("/set num_ctx 9\n"), 2, "num-ctx: can only be set when the program begins");
  ExpectRefused(Talk("/set stop x\n", {"--beams", "2"}), 2,
                "not possible together with stop texts");
}

TEST_F(Chat, ShowsWhatIsSet) {
  const ProgramRun run = Talk("/system A king.\nSpeak.\n/set temp 0.5\n/show\n/set\n");
  EXPECT_EQ(run.code, 0) << run.error;
  for (const char* part : {"shakespeare.gguf (gemma3 ", " Q8_0)", "2 messages", "A king.",
                           "temp 0.5", "predict 12", "repeat-last-n, "}) {
    EXPECT_THAT(run.error, HasSubstr(part));
  }
}

TEST_F(Chat, KnowsOtherNamesOfItsCommands) {
  EXPECT_EQ(Answers("Who is there?\n/clear\nSpeak.\n/bye\nMore.\n"),
            Answers("Who is there?\n/reset\nSpeak.\n/exit\n"));
}

// ---- Drafts -------------------------------------------------------------------------------------

TEST_F(Chat, DraftsChangeNoAnswer) {
  const std::string talk = "Who is there?\nSpeak.\n";
  const Words longer = {"-n", "48"};
  const std::string plain = Answers(talk, longer);
  EXPECT_EQ(Answers(talk, With(longer, {"--draft", "ngram"})), plain);
  const Words always = With(longer, {"--draft", "shakespeare", "--draft-always"});
  EXPECT_EQ(Answers(talk, always), plain);
  for (const json& turn : Stats(talk, always)) {
    EXPECT_GT(turn["drafted_tokens"], 20);
    EXPECT_EQ(turn["accepted_tokens"], turn["drafted_tokens"]);
  }
  EXPECT_FALSE(Stats(talk).front().contains("drafted_tokens"));
  ExpectRefused(Talk(talk, {"--draft", "ngram", "--beams", "2"}), 2,
                "--draft: not possible together with --beams");
  ExpectRefused(Talk(talk, {"--draft-always"}), 2, "--draft-always: expected --draft with it");
  ExpectRefused(Talk(talk, {"--draft", "ngram", "--no-kv-cache"}), 2, "--draft: not possible");
}

// ---- A full context -----------------------------------------------------------------------------

// A search does not look for stop texts.
TEST_F(Chat, SearchesWithoutStopTexts) {
  ExpectRefused(Talk("Speak.\n", {"--beams", "2", "--stop", "x"}), 2,
                "--stop: not possible together with --beams");
  ExpectRefused(Talk("/beams 2\n", {"--stop", "x"}), 2,
                "/beams: not possible together with --stop");
}

TEST_F(Chat, ConversationBeyondTheContextIsAnError) {
  const std::string line = "Who is there, and what does he want of us?\n";
  const ProgramRun run = Talk(line + line + line, {"-c", "96"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.error_lines(), 1u) << run.error;
  EXPECT_THAT(run.error, HasSubstr("and the context has room for 96; --context-shift forgets"));
  EXPECT_FALSE(run.out.empty());
  const ProgramRun shifted = Talk(line + line + line, {"-c", "96", "--context-shift"});
  EXPECT_EQ(shifted.code, 0) << shifted.error;
  EXPECT_THAT(shifted.error, HasSubstr("at the beginning left out from now on"));
}

TEST_F(Chat, AnswerThatFillsTheContextEnds) {
  const Words endless = {"-c", "96", "-n", "-1", "--ignore-eos"};
  const ProgramRun run = Talk("Speak.\n", endless);
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.error, "kvant: note: the context of 96 tokens is full: the answer ends here\n");
  const auto turns =
      Stats("Speak.\nMore.\n", {"-c", "96", "-n", "150", "--ignore-eos", "--context-shift"});
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0]["generated_tokens"], 150);
  EXPECT_EQ(turns[1]["generated_tokens"], 150);
}

TEST_F(Chat, RecurrentModelsCannotShift) {
  SeededModel recurrent("lfm2");
  const auto path = recurrent.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  model_ = *path;
  ExpectRefused(Talk("ab\n", {"--context-shift"}), 1,
                "--context-shift: a full context cannot move on with this model: its recurrent");
}

// ---- Variables of the template ------------------------------------------------------------------

TEST_F(Chat, TellsTheTemplateVariables) {
  const std::string source = Write(
      "variables.jinja",
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ mood|default('calm') }}"
      "{% if enable_thinking is defined and not enable_thinking %} quick{% endif %}: ");
  const auto prompt = [&](const Words& options) {
    const ProgramRun run = RunModel(
        With({"--chat", "--chat-template", source, "-p", "Speak.", "-n", "0", "--json", "--echo"},
             options));
    EXPECT_EQ(run.code, 0) << run.error;
    return Lines(run.out).front()["text"].get<std::string>();
  };
  EXPECT_THAT(prompt({}), HasSubstr("calm: "));
  EXPECT_THAT(prompt({"--chat-template-kwargs", "{\"mood\": \"angry\"}"}), HasSubstr("angry: "));
  for (const Words& off : {Words{"--reasoning", "off"},
                           {"-rea", "off"},
                           {"--reasoning-budget", "0"},
                           {"--chat-template-kwargs", "{\"enable_thinking\": false}"}}) {
    EXPECT_THAT(prompt(off), HasSubstr("calm quick: ")) << off[0];
  }
  EXPECT_EQ(prompt({"-rea", "auto"}), prompt({}));
  const Words talk = {"--chat-template", source};
  EXPECT_EQ(Answers("Speak.\n", With(talk, {"--chat-template-kwargs", "{\"mood\": \"calm\"}"})),
            Answers("Speak.\n", talk));
  ExpectRefused(
      RunModel({"--chat", "-p", "x", "--chat-template", source, "--chat-template-kwargs", "[1]"}),
      2, "--chat-template-kwargs: expected a JSON object");
  ExpectRefused(RunModel({"-p", "x", "-rea", "off"}), 2, "--reasoning: expected --chat with it");
}

// ---- Reasoning ----------------------------------------------------------------------------------

TEST_F(Chat, HidesAndShowsReasoning) {
  const std::string thinks = Write(
      "thinks.jinja",
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: <think>\n");
  const Words options = {"--chat-template", thinks};
  EXPECT_EQ(Answers("Speak.\n", options), "\n");
  EXPECT_GT(Answers("Speak.\n", With(options, {"--reasoning", "show"})).size(), 2u);
  // An answer that leaves the section at once.
  const std::string done = Write("done.jinja",
                                 "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor "
                                 "%}assistant: <think></think>");
  EXPECT_GT(Answers("Speak.\n", {"--chat-template", done}).size(), 2u);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST_F(Chat, RefusesWhatItDoesNotKnow) {
  ExpectRefused(Talk("/regenn\n"), 2, "unknown command /regenn; did you mean /regen?;");
  ExpectRefused(Talk("/undo\n"), 2, "/undo: there is no message to take back");
  ExpectRefused(Talk("/undo now\n"), 2, "/undo: expected nothing behind it, found 'now'");
  ExpectRefused(Talk("/save\n"), 2, "/save: expected /save FILE");
  ExpectRefused(Talk("/save " + (folder_ / "none/at/all") + "\n"), 1, "none/at/all");
  ExpectRefused(Talk("", {"--reasoning", "maybe"}), 2, "expected show, hide or off");
  ExpectRefused(Talk("", {"--load", folder_ / "none"}), 1, "none: no such file");
  ExpectRefused(RunProgram({"chat", model_, "-n", "0"}), 2, "-n: expected -1 or at least 1");
  ExpectRefused(RunProgram({"chat", "a.gguf", "b.gguf"}), 2, "unexpected argument 'b.gguf'");
}

// Every field of a saved conversation, made something else.
TEST_F(Chat, SavedConversationsAreChecked) {
  const std::string path = folder_ / "saved.json";
  Answers("Who is there?\nSpeak.\n/save " + path + "\n");
  const json saved = json::parse(std::ifstream(path));
  const std::string changed = folder_ / "changed.json";
  const auto refuse = [&](const json& content, const std::string& message) {
    std::ofstream(changed) << content.dump();
    const ProgramRun run = Talk("Go on.\n", {"--load", changed});
    ExpectRefused(run, 1, message);
  };
  const std::vector<json> wrong = {-2, 1e30, 18446744073709551615u, "x", nullptr, {{"a", 1}}};
  for (const char* key : {"kvant_chat", "fingerprint", "system", "forgotten", "answers", "messages",
                          "template_ids"}) {
    for (const json& value : wrong) {
      if (value.is_string() && saved[key].is_string()) continue;
      json other = saved;
      other[key] = value;
      refuse(other, std::string(key) == "kvant_chat" ? "version" : key);
    }
  }
  for (const char* key : {"role", "content", "reasoning", "ids", "begin"}) {
    for (const json& value : wrong) {
      if (value.is_string() && std::string(key) != "role" && saved["messages"][1][key].is_string())
        continue;
      json other = saved;
      other["messages"][1][key] = value;
      refuse(other, key);
    }
  }
  json beyond = saved;
  beyond["template_ids"][0] = 1 << 30;
  refuse(beyond, "template_ids: expected ids from 0 to");
  beyond = saved;
  beyond["messages"][1]["begin"] = 100000;
  refuse(beyond, "begin: expected a number from -1 to");
  refuse(json::array(), "another file");
  std::ofstream(changed) << "{";
  ExpectRefused(Talk("", {"--load", changed}), 1, "another file");
}

// Tokens that are not those of the conversation are done without.
TEST_F(Chat, DamagedTokensAreComputedAgain) {
  const std::string path = folder_ / "saved.json";
  const std::string before = Answers("Who is there?\n/save " + path + "\n");
  const std::string last = Answers("Who is there?\nSpeak.\n").substr(before.size());
  auto bytes = ReadFile(path + ".kvs");
  bytes[bytes.size() / 2] ^= std::byte{1};
  WriteFile(path + ".kvs", bytes);
  const ProgramRun run = Talk("Speak.\n", {"--load", path});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, last);
  EXPECT_THAT(run.error, HasSubstr("the tokens will be computed again"));
  Answers("Go.\n/save " + (folder_ / "other.json") + "\n");
  std::filesystem::rename(folder_ / "other.json.kvs", path + ".kvs");
  EXPECT_EQ(Answers("Speak.\n", {"--load", path}), last);
}

TEST_F(Chat, CtrlCEndsALine) {
  const ProgramRun run =
      RunProgram({"chat", model_, "-t", "1", "--chat-template", "chatml", "-n", "-1", "-c",
                  "100000", "--ignore-eos", "-p", "Speak.", "--temp", "0", "-q"},
                 {.interrupt_after_ms = 700});
  EXPECT_EQ(run.code, 130);
}

}  // namespace
}  // namespace kvant::test
