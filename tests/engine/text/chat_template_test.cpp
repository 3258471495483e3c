// Conversations as text and tokens: what templates get, which template is taken, and that messages
// make no control tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvant/chat.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ids: 0 to 2 control tokens, 3 a user-defined one, then letters.
VocabularyFile SmallVocabulary() {
  return VocabularyFile("gpt2")
      .String("tokenizer.ggml.pre", "gpt-2")
      .Tokens({"<s>", "</s>", "<u>", "<t>", "<", ">", "s", "u", "t", "/", "a", "b"})
      .Types({kControl, kControl, kControl, kUserDefined, kNormal, kNormal, kNormal, kNormal,
              kNormal, kNormal, kNormal, kNormal})
      .Merges({})
      .U32("tokenizer.ggml.bos_token_id", 0)
      .U32("tokenizer.ggml.eos_token_id", 1);
}

std::vector<TokenId> TokensOf(const VocabularyFile& vocabulary, std::string_view source,
                              const std::vector<ChatMessage>& messages) {
  const TestTokenizer tokenizer = MakeTokenizer(vocabulary);
  EXPECT_TRUE(tokenizer.result.ok());
  const auto parsed = ChatTemplate::Parse(*tokenizer, "test", source);
  EXPECT_TRUE(parsed.ok());
  const auto ids = parsed->Tokens(messages);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : std::vector<TokenId>{};
}

constexpr std::string_view kTurns =
    "{% for m in messages %}<u>{{ m.content }}{{ eos_token }}{% endfor %}";

TEST(ChatTemplate, MakesControlTokensOfItsOwnTextOnly) {
  EXPECT_THAT(TokensOf(SmallVocabulary(), kTurns, {{"user", "ab", ""}}), ElementsAre(2, 10, 11, 1));
  EXPECT_THAT(TokensOf(SmallVocabulary(), kTurns, {{"user", "</s><u>", ""}}),
              ElementsAre(2, 4, 9, 6, 5, 4, 7, 5, 1));
  // Neither does a name that is half the template's; user-defined tokens are found anywhere.
  EXPECT_THAT(TokensOf(SmallVocabulary(), "<{{ messages[0].content }}>", {{"user", "u", ""}}),
              ElementsAre(4, 7, 5));
  EXPECT_THAT(TokensOf(SmallVocabulary(), kTurns, {{"user", "<t>", ""}}), ElementsAre(2, 3, 1));
  EXPECT_THAT(TokensOf(SmallVocabulary(), "{{ messages[0].content | replace('a', '<u>') }}",
                       {{"user", "<u>a", ""}}),
              ElementsAre(4, 7, 5, 2));
}

TEST(ChatTemplate, PutsBosInFrontOnce) {
  const VocabularyFile with_bos = SmallVocabulary().Bool("tokenizer.ggml.add_bos_token", true);
  const std::vector<ChatMessage> messages = {{"user", "a", ""}};
  EXPECT_THAT(TokensOf(with_bos, kTurns, messages), ElementsAre(0, 2, 10, 1));
  EXPECT_THAT(TokensOf(with_bos, "{{ bos_token }}<u>a", messages), ElementsAre(0, 2, 10));
  EXPECT_THAT(TokensOf(with_bos, "{{ messages[0].content }}", {{"user", "<s>", ""}}),
              ElementsAre(0, 4, 6, 5));
}

TEST(ChatTemplate, GetsMessagesToolsAndVariables) {
  const TestTokenizer tokenizer = MakeTokenizer(SmallVocabulary());
  const auto parsed = ChatTemplate::Parse(
      *tokenizer, "test",
      "{{ messages[0].role }} {{ messages[0].reasoning_content }} {{ tools }} {{ documents }} "
      "{{ add_generation_prompt }} {{ enable_thinking }} {{ x }} {{ strftime_now('%Y') }}");
  ASSERT_TRUE(parsed.ok());
  const std::vector<ChatMessage> messages = {{"assistant", "a", "why"}};
  auto text = parsed->Render(messages, {.now = 1'000'000'000});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "assistant why None None True   2001");
  ChatRenderOptions options = {.add_generation_prompt = false,
                               .tools = R"([{"b": 1, "a": 2}])",
                               .variables = R"({"x": [1.0]})",
                               .enable_thinking = false,
                               .now = 0};
  text = parsed->Render(messages, options);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "assistant why [{'b': 1, 'a': 2}] None False False [1.0] 1970");
  options.tools = "{}";
  EXPECT_THAT(parsed->Render(messages, options).error().message, HasSubstr("the tools: expected"));
}

TEST(ChatTemplate, IsTheFilesOwnOrNamed) {
  VocabularyFile vocabulary = SmallVocabulary();
  Bytes bytes = vocabulary.Build();
  auto file = formats::GgufFile::Parse(bytes.span(), "test.gguf");
  const TestTokenizer tokenizer = MakeTokenizer(vocabulary);
  EXPECT_THAT(ChatTemplate::OfFile(*file, *tokenizer).error().message,
              HasSubstr("a chat template in tokenizer.chat_template, found none"));

  vocabulary.String("tokenizer.chat_template", "a\n{% if %}");
  Bytes broken = vocabulary.Build();
  auto broken_file = formats::GgufFile::Parse(broken.span(), "test.gguf");
  const auto refused = ChatTemplate::OfFile(*broken_file, *tokenizer);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("tokenizer.chat_template: line 2: expected"));

  EXPECT_THAT(ChatTemplate::Named(*tokenizer, "/nothing").error().message, HasSubstr("chatml"));
  const std::vector<ChatMessage> messages = {{"system", "S", ""}, {"user", "U", ""}};
  for (const std::string_view name : ChatTemplate::BuiltInNames()) {
    const auto named = ChatTemplate::Named(*tokenizer, std::string(name));
    ASSERT_TRUE(named.ok()) << named.error().message;
    EXPECT_TRUE(named->Render(messages).ok());
  }
  EXPECT_EQ(*ChatTemplate::Named(*tokenizer, "chatml")->Render(messages),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(*ChatTemplate::Named(*tokenizer, "llama2")->Render(messages),
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]");
  EXPECT_EQ(*ChatTemplate::Named(*tokenizer, "gemma-it")->Render(messages),
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n");
}

}  // namespace
}  // namespace kvant::test
