// Conversations in the library: answers are those of a model without a cache, whatever was undone,
// forked, moved to a larger runner, or saved; forks share the cache; refusals change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "kvant/conversation.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

class Conversations : public testing::Test {
 protected:
  static const std::shared_ptr<const Model>& TheModel() {
    static const auto model =
        Model::Open(SourcePath("models/shakespeare/shakespeare.gguf"), OwnGemm());
    return *model;
  }

  // Sessions whose bits do not depend on the passes.
  static SessionOptions Strict(int64_t sequences) {
    SessionOptions options = Options(KvType::kF16, sequences);
    options.threads = 1;
    options.context = 512;
    options.strict = true;
    return options;
  }

  static ConversationOptions Greedy() {
    ConversationOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 10;
    return options;
  }

  static ChatTemplate Template() { return *ChatTemplate::Named(*TheModel(), "chatml"); }

  // Counts the runners that are opened.
  std::unique_ptr<Conversation> Open(const ConversationOptions& options = Greedy()) {
    auto made = Conversation::Create(
        TheModel(),
        [this](int64_t sequences) {
          ++opened_;
          return Runner::Create(TheModel(), Strict(sequences));
        },
        Template(), options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? std::move(*made) : nullptr;
  }

  static AnswerReport Answer(Conversation& conversation, const AnswerSink& sink = {}) {
    const auto report = conversation.Answer(sink);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.ok() ? *report : AnswerReport();
  }
  static std::string Say(Conversation& conversation, const std::string& text) {
    conversation.AddUser(text);
    Answer(conversation);
    return conversation.entries().back().message.content;
  }

  // The last answer of a conversation whose tokens are all computed again each time.
  static std::string WithoutCache(const std::vector<std::string>& texts,
                                  ConversationOptions options = Greedy()) {
    auto made = Conversation::Create(
        TheModel(),
        [](int64_t sequences) {
          SessionOptions without = Strict(sequences);
          without.kv_cache = false;
          return Runner::Create(TheModel(), without);
        },
        Template(), std::move(options));
    EXPECT_TRUE(made.ok()) << made.error().message;
    std::string last;
    for (const std::string& text : texts) last = Say(**made, text);
    return last;
  }

  int opened_ = 0;
};

TEST_F(Conversations, ComputeOnlyWhatIsNew) {
  const auto conversation = Open();
  std::string shown;
  conversation->AddUser("Who is there?");
  const AnswerReport first = Answer(*conversation, {.take = [&](AnswerPart, std::string_view text) {
    shown += text;
    return true;
  }});
  EXPECT_EQ(first.generated_tokens, 10);
  EXPECT_EQ(first.finish_reason, FinishReason::kLength);
  EXPECT_EQ(shown, conversation->entries().back().message.content);
  EXPECT_EQ(shown, WithoutCache({"Who is there?"}));
  conversation->AddUser("Speak.");
  const AnswerReport second = Answer(*conversation);
  EXPECT_GE(second.reused_tokens, first.conversation_tokens - 1);
  EXPECT_EQ(second.reused_tokens + second.processed_tokens + second.generated_tokens,
            second.conversation_tokens);
  EXPECT_EQ(conversation->entries().back().message.content,
            WithoutCache({"Who is there?", "Speak."}));
  EXPECT_EQ(opened_, 1);
}

TEST_F(Conversations, GoBackAndAgain) {
  const auto conversation = Open();
  const std::string first = Say(*conversation, "Who is there?");
  const std::string second = Say(*conversation, "Speak.");
  EXPECT_TRUE(conversation->DropAnswer());
  EXPECT_FALSE(conversation->DropAnswer());  // the last message is the user's now
  EXPECT_EQ(Answer(*conversation).processed_tokens, 1);
  EXPECT_EQ(conversation->entries().back().message.content, second);
  EXPECT_TRUE(conversation->Edit("Go on."));
  Answer(*conversation);
  EXPECT_EQ(conversation->entries().back().message.content,
            WithoutCache({"Who is there?", "Go on."}));
  EXPECT_EQ(conversation->Undo(), "Go on.");
  EXPECT_EQ(conversation->entries().size(), 2u);
  EXPECT_EQ(conversation->Undo(), "Who is there?");
  EXPECT_EQ(conversation->Undo(), std::nullopt);
  EXPECT_FALSE(conversation->Edit("Speak."));
  EXPECT_EQ(Say(*conversation, "Who is there?"), first);
}

// ---- Forks --------------------------------------------------------------------------------------

TEST_F(Conversations, ForksShareWhatTheyHaveInCommon) {
  auto conversation = Open();
  Say(*conversation, std::string(300, 'a'));
  const uint64_t used = conversation->runner().stats().kv_bytes_used;
  auto fork = conversation->Fork();
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  EXPECT_EQ(&conversation->runner(), &(*fork)->runner());
  EXPECT_EQ((*fork)->runner().stats().kv_bytes_used, used);
  // Both go on apart, as a conversation alone does.
  (*fork)->AddUser("Speak.");
  EXPECT_GT(Answer(**fork).reused_tokens, 32);
  const std::string alone = WithoutCache({std::string(300, 'a'), "Speak."});
  EXPECT_EQ((*fork)->entries().back().message.content, alone);
  EXPECT_EQ(conversation->entries().size(), 2u);
  EXPECT_EQ(Say(*conversation, "Go on."), WithoutCache({std::string(300, 'a'), "Go on."}));
  conversation.reset();
  (*fork)->DropAnswer();
  EXPECT_EQ(Answer(**fork).processed_tokens, 1);
  EXPECT_EQ((*fork)->entries().back().message.content, alone);
  ExpectOk((*fork)->runner().Check());
}

TEST_F(Conversations, ForksOfForksMoveToLargerRunners) {
  std::vector<std::unique_ptr<Conversation>> all;
  all.push_back(Open());
  Say(*all.front(), std::string(300, 'a'));
  for (size_t i = 0; i < 5; ++i) {
    auto fork = all[i / 2]->Fork();
    ASSERT_TRUE(fork.ok()) << fork.error().message;
    all.push_back(std::move(*fork));
  }
  EXPECT_EQ(opened_, 4);  // for 1, 2, 4 and 8 sequences
  EXPECT_EQ(all.front()->runner().stats().sequences, 6);
  // Blocks are still shared, and answers still compute what is new alone.
  EXPECT_EQ(all.front()->runner().stats().kv_blocks_copied, 0u);
  const std::string alone = WithoutCache({std::string(300, 'a'), "Speak."});
  for (const auto& conversation : all) {
    conversation->AddUser("Speak.");
    EXPECT_GT(Answer(*conversation).reused_tokens, 32);
    EXPECT_EQ(conversation->entries().back().message.content, alone);
  }
  ExpectOk(all.front()->runner().Check());
}

TEST_F(Conversations, SeedsTellForksApart) {
  ConversationOptions options = Greedy();
  options.sampling.temperature = 1.5;
  options.sampling.seed = 3;
  const auto conversation = Open(options);
  auto same = conversation->Fork();
  auto other = conversation->Fork(4);
  ASSERT_TRUE(same.ok() && other.ok());
  const std::string text = Say(*conversation, "Who is there?");
  EXPECT_EQ(Say(**same, "Who is there?"), text);
  EXPECT_NE(Say(**other, "Who is there?"), text);
  options.sampling.seed = 4;
  EXPECT_EQ(Say(*Open(options), "Who is there?"), (*other)->entries().back().message.content);
}

TEST_F(Conversations, LiveInARunnerOfOthers) {
  const std::shared_ptr<Runner> runner = OpenRunner(TheModel(), Strict(2));
  const SequenceId other = NewSequence(*runner);
  {
    auto made = Conversation::Create(runner, Template(), Greedy());
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(Say(**made, "Who is there?"), WithoutCache({"Who is there?"}));
    const auto fork = (*made)->Fork();
    ASSERT_FALSE(fork.ok());
    EXPECT_EQ(fork.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(Conversation::Create(runner, Template(), Greedy()).error().code,
              ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(runner->stats().sequences, 1);
  ExpectOk(runner->FreeSequence(other));
}

// ---- Beams --------------------------------------------------------------------------------------

TEST_F(Conversations, TakeTheirTokensAlongToBeams) {
  const auto conversation = Open();
  Say(*conversation, std::string(300, 'a'));
  ExpectOk(conversation->SetBeams(3));
  EXPECT_EQ(opened_, 2);
  conversation->AddUser("Speak.");
  EXPECT_GT(Answer(*conversation).reused_tokens, 32);
  ConversationOptions options = Greedy();
  options.beams = 3;
  const auto searched = Open(options);
  searched->AddUser(std::string(300, 'a'));
  ExpectOk(searched->Add(conversation->entries()[1].message));
  EXPECT_EQ(Say(*searched, "Speak."), conversation->entries().back().message.content);
  EXPECT_FALSE(conversation->SetBeams(0).ok());
  EXPECT_EQ(conversation->beams(), 3);
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST_F(Conversations, EndWhereTheyAreTold) {
  std::atomic<bool> cancel = false;
  ConversationOptions options = Greedy();
  options.cancel = &cancel;
  const auto conversation = Open(options);
  conversation->AddUser("Who is there?");
  cancel = true;
  AnswerReport report = Answer(*conversation);
  EXPECT_EQ(report.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(conversation->entries().size(), 1u);
  cancel = false;
  report = Answer(*conversation, {.progress = [](int64_t, int64_t) { return false; }});
  EXPECT_EQ(report.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(conversation->entries().size(), 1u);
  report = Answer(*conversation, {.take = [](AnswerPart, std::string_view) { return false; }});
  EXPECT_EQ(report.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(report.generated_tokens, 10);
  conversation->DropAnswer();
  Answer(*conversation);
  EXPECT_EQ(conversation->entries().back().message.content, WithoutCache({"Who is there?"}));
}

TEST_F(Conversations, KnowWhenTheContextIsFull) {
  const auto conversation = Open();
  Say(*conversation, "Who is there?");
  conversation->AddUser(std::string(4000, 'a'));
  const auto refused = conversation->Answer({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kContextFull);
  EXPECT_TRUE(conversation->Undo().has_value());
  EXPECT_EQ(Say(*conversation, "Speak."), WithoutCache({"Who is there?", "Speak."}));
}

TEST_F(Conversations, ShiftOnlyWhatCanForget) {
  const auto recurrent = SeededModel("lfm2").Open(OwnGemm());
  ConversationOptions options = Greedy();
  options.context_shift = true;
  const auto refused =
      Conversation::Create(std::shared_ptr<Runner>(OpenRunner(recurrent, Options(KvType::kF16, 1))),
                           *ChatTemplate::Named(*recurrent, "chatml"), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
}

// ---- Messages as JSON ---------------------------------------------------------------------------

constexpr const char* kWithCalls = R"([
  {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
  {"role": "assistant", "content": "c", "reasoning_content": "r",
   "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]},
  {"role": "tool", "content": [{"type": "text", "text": "parts"}], "tool_call_id": "7"}])";

TEST_F(Conversations, TakeMessagesOfJson) {
  const auto conversation = Open();
  ExpectOk(conversation->AddJson(kWithCalls));
  EXPECT_EQ(conversation->system(), "s");
  ASSERT_EQ(conversation->entries().size(), 3u);
  const ChatMessage& answer = conversation->entries()[1].message;
  EXPECT_EQ(answer.content, "c");
  EXPECT_EQ(answer.reasoning, "r");
  EXPECT_EQ(answer.members,
            R"({"tool_calls":[{"function":{"name":"f","arguments":{"z":1,"a":2}}}]})");
  // Templates see them.
  const auto chat_template = ChatTemplate::Parse(
      *TheModel(), "test",
      "{% for m in messages %}{{ m.role }} {% if m.tool_calls %}{{ m.tool_calls | tojson }}"
      "{% elif m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}"
      "{{ m.tool_call_id }}{% endif %};{% endfor %}");
  ASSERT_TRUE(chat_template.ok()) << chat_template.error().message;
  const auto messages = MessagesOfJson(kWithCalls);
  ASSERT_TRUE(messages.ok());
  EXPECT_EQ(*chat_template->Render(*messages),
            R"(system s;user u;assistant [{"function": {"name": "f", "arguments": )"
            R"({"z": 1, "a": 2}}}];tool parts7;)");
}

TEST_F(Conversations, RefuseOtherMessages) {
  const auto conversation = Open();
  for (const auto& [json, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", "the messages: not valid JSON"},
           {"{}", "expected a JSON array"},
           {"[1]", "expected objects, found a JSON number"},
           {R"([{"content": "c"}])", "role: expected a text in each"},
           {R"([{"role": "user"}, {"role": "owner"}])", "found 'owner'"},
           {R"([{"role": "user"}, {"role": "system"}])", "found 'system'"},
           {std::string(100000, '['), "nested deeper"}}) {
    const Status status = conversation->AddJson(json);
    ASSERT_FALSE(status.ok()) << json.substr(0, 40);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(status.error().message, HasSubstr(message));
    EXPECT_TRUE(conversation->entries().empty());
  }
  EXPECT_FALSE(conversation->Add({"user", "", "", "[1]"}).ok());
  EXPECT_FALSE(conversation->Add({"system", "", ""}).ok());
  EXPECT_FALSE(conversation->SetLast({"user", "", ""}).ok());
  conversation->AddUser("a");
  EXPECT_FALSE(conversation->SetLast({"assistant", "", ""}).ok());
  ExpectOk(conversation->SetLast({"user", "b", ""}));
  EXPECT_EQ(conversation->entries().back().message.content, "b");
}

// ---- Files --------------------------------------------------------------------------------------

TEST_F(Conversations, GoOnFromFiles) {
  const TemporaryFolder folder;
  const std::string path = folder / "chat.json";
  std::string note = "x";
  {
    const auto conversation = Open();
    Say(*conversation, "Who is there?");
    ExpectOk(conversation->Save(path, &note));
    EXPECT_EQ(note, "");
  }
  const auto conversation = Open();
  Say(*conversation, "Something else.");
  ExpectOk(conversation->Load(path, &note));
  EXPECT_EQ(note, "");
  conversation->AddUser("Speak.");
  EXPECT_GT(Answer(*conversation).reused_tokens, 10);
  EXPECT_EQ(conversation->entries().back().message.content,
            WithoutCache({"Who is there?", "Speak."}));
  EXPECT_EQ(conversation->runner().stats().sequences, 1);
}

TEST_F(Conversations, KeepToolsInFiles) {
  const TemporaryFolder folder;
  const std::string path = folder / "chat.json";
  std::string note;
  const auto conversation = Open();
  ExpectOk(conversation->AddJson(kWithCalls));
  ExpectOk(conversation->Save(path, &note));
  const auto again = Open();
  ExpectOk(again->Load(path, &note));
  EXPECT_EQ(again->system(), "s");
  ASSERT_EQ(again->entries().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again->entries()[i].message.role, conversation->entries()[i].message.role);
    EXPECT_EQ(again->entries()[i].message.members, conversation->entries()[i].message.members);
  }
}

TEST_F(Conversations, StayWhatTheyAreWhereFilesAreWrong) {
  const TemporaryFolder folder;
  const std::string path = folder / "chat.json";
  const auto conversation = Open();
  Say(*conversation, "Who is there?");
  std::string note;
  const std::string deep = R"({"kvant_chat": )" + std::string(200000, '[');
  for (const std::string& text :
       {deep + std::string(200000, ']') + "}", std::string("{}"), std::string()}) {
    WriteFile(path, std::as_bytes(std::span(text)));
    const Status status = conversation->Load(path, &note);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(conversation->entries().size(), 2u);
  }
  EXPECT_EQ(Say(*conversation, "Speak."), WithoutCache({"Who is there?", "Speak."}));
}

}  // namespace
}  // namespace kvant::test
