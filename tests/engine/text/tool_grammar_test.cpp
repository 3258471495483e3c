// Grammars of calls: whatever is generated under them is read back as calls of the tools, with
// arguments of the right types, by the reader that knows nothing of grammars.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "kvant/model.h"
#include "kvant/tool_calls.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/text/tool_templates.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

const std::shared_ptr<const Model>& SmallModel() {
  static const auto model =
      Model::Open(SourcePath("models/shakespeare/shakespeare.gguf"), OwnGemm());
  return *model;
}

ToolFormat FormatOf(std::string_view source) {
  const auto made = ChatTemplate::Parse(*SmallModel(), "test", source);
  EXPECT_TRUE(made.ok());
  const auto format = DetectToolFormat(*made);
  EXPECT_TRUE(format.ok());
  return format.ok() ? *format : ToolFormat();
}

// A text of random tokens that the grammar allows, behind `begin`; `has_ended`: whether it is
// complete in time.
std::string RandomText(const Tokenizer& tokenizer, const GrammarText& text, std::mt19937& random,
                       bool* has_ended, const std::string& begin = "") {
  const auto grammar = Grammar::Create(text, tokenizer);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message << "\n" << text.text;
  if (!grammar.ok()) return "";
  auto stage = (*grammar)->NewStage(tokenizer.vocab_size());
  EXPECT_TRUE(stage.ok());
  std::string out = begin;
  std::vector<TokenId> first = *tokenizer.Encode(begin, {.parse_special = true});
  for (size_t step = 0; step < 400; ++step) {
    std::vector<float> row(static_cast<size_t>(tokenizer.vocab_size()), 0);
    EXPECT_TRUE((*stage)->Apply({}, row).ok());
    std::vector<TokenId> allowed;
    for (size_t i = 0; i < row.size(); ++i) {
      if (!std::isinf(row[i])) allowed.push_back(static_cast<TokenId>(i));
    }
    if (step < first.size()) {
      EXPECT_EQ(std::ranges::count(allowed, first[step]), 1) << begin << " token " << step;
      (*stage)->Accept(first[step], TokenFrom::kText);
      continue;
    }
    if (allowed.empty()) ADD_FAILURE() << "no token is allowed behind " << out;
    if (allowed.empty()) return out;
    for (const TokenId token : allowed) {
      if (!tokenizer.is_end_of_generation(token)) continue;
      *has_ended = true;
      if (allowed.size() == 1 || random() % 2 == 0) return out;
    }
    const TokenId token = allowed[random() % allowed.size()];
    if (tokenizer.is_end_of_generation(token)) return out;
    out += tokenizer.TokenBytes(token, {.special = true});
    (*stage)->Accept(token, TokenFrom::kText);
  }
  *has_ended = false;
  return out;
}

void ExpectArguments(const ToolCall& call, const std::string& where) {
  const auto json = nlohmann::json::parse(call.arguments, nullptr, false);
  ASSERT_TRUE(json.is_object()) << where;
  if (call.name == "stop") {
    EXPECT_TRUE(json.empty()) << where;
    return;
  }
  ASSERT_EQ(call.name, "order") << where;
  EXPECT_TRUE(json.at("size") == "small" || json.at("size") == "large") << where;
  EXPECT_TRUE(json.at("count").is_number()) << where;
  for (const auto& [key, value] : json.items()) {
    EXPECT_TRUE(key == "size" || key == "count" || key == "hot") << where;
    if (key == "hot") {
      EXPECT_TRUE(value.is_boolean()) << where;
    }
  }
}

TEST(ToolGrammar, MakesCallsThatAreReadBack) {
  std::mt19937 random(3);
  const Tokenizer& tokenizer = SmallModel()->tokenizer();
  int several = 0;
  for (const ToolTemplate& row : kToolTemplates) {
    SCOPED_TRACE(row.format);
    const ToolFormat format = FormatOf(row.source);
    int complete = 0;
    for (const std::string_view choice : {"required", "order", "stop"}) {
      const auto text = ToolGrammar(format, kOrderTools, ToolChoice::Of(choice), tokenizer);
      ASSERT_TRUE(text.ok()) << text.error().message;
      for (int i = 0; i < 8; ++i) {
        bool has_ended = false;
        const std::string answer = RandomText(tokenizer, *text, random, &has_ended);
        if (!has_ended) continue;
        ++complete;
        ToolAnswer read(format, kOrderTools,
                        format.opens_in_prompt ? format.call_open : "<|start|>assistant", {});
        read.Push(answer);
        read.Finish();
        EXPECT_EQ(read.content(), "") << answer;
        ASSERT_FALSE(read.calls().empty()) << answer;
        several += read.calls().size() > 1 ? 1 : 0;
        for (const ToolCall& call : read.calls()) {
          EXPECT_TRUE(call.is_complete) << answer;
          ExpectArguments(call, answer);
          if (choice != "required") {
            EXPECT_EQ(call.name, choice);
          }
        }
      }
    }
    EXPECT_GT(complete, 6);
  }
  EXPECT_GT(several, 3);
}

// Content is free up to the mark of a call, wherever in a token it begins.
TEST(ToolGrammar, LeavesContentBeforeCallsFree) {
  std::mt19937 random(4);
  int formats = 0;
  const Tokenizer& tokenizer = SmallModel()->tokenizer();
  for (const ToolTemplate& row : kToolTemplates) {
    SCOPED_TRACE(row.format);
    const ToolFormat format = FormatOf(row.source);
    const bool has_channels = format.form == ToolFormat::Form::kChannels;
    std::string begin = format.section_open.empty() ? format.call_open : format.section_open;
    begin = "Well, < so\n" + begin.substr(0, begin.find('\n'));
    if (has_channels) begin = "<|channel|>commentary to=functions.";
    if (format.opens_in_prompt) begin = "all\nWell, < so";
    // The vocabulary has spaces for U+2581.
    if (tokenizer.Decode(*tokenizer.Encode(begin, {}), {}) != begin) continue;
    ++formats;
    const auto text = ToolGrammar(format, kOrderTools, {}, tokenizer);
    ASSERT_TRUE(text.ok()) << text.error().message;
    int complete = 0;
    for (int i = 0; i < 8; ++i) {
      bool has_ended = false;
      const std::string answer = RandomText(tokenizer, *text, random, &has_ended, begin);
      if (!has_ended) continue;
      ++complete;
      ToolAnswer read(format, kOrderTools,
                      format.opens_in_prompt ? format.call_open : "<|start|>assistant", {});
      read.Push(answer);
      read.Finish();
      if (format.opens_in_prompt) {
        EXPECT_TRUE(read.content().starts_with("Well, < so")) << answer;
        continue;
      }
      EXPECT_EQ(read.content(), has_channels ? "" : "Well, < so") << answer;
      ASSERT_FALSE(read.calls().empty()) << answer;
      for (const ToolCall& call : read.calls()) ExpectArguments(call, answer);
    }
    EXPECT_GT(complete, 2);
  }
  EXPECT_GE(formats, 9);
  // Without a mark an answer is a call or begins in another way.
  const ToolFormat bare = {.name = "bare", .arguments_key = "parameters"};
  const auto text = ToolGrammar(bare, kOrderTools, {}, tokenizer);
  ASSERT_TRUE(text.ok()) << text.error().message;
  for (int i = 0; i < 20; ++i) {
    bool has_ended = false;
    const std::string answer =
        RandomText(tokenizer, *text, random, &has_ended, i % 2 == 0 ? "{" : "\n a {");
    if (!has_ended) continue;
    ToolAnswer read(bare, kOrderTools, "", {});
    read.Push(answer);
    read.Finish();
    EXPECT_EQ(read.calls().empty(), i % 2 != 0) << answer;
  }
}

// Marks that are control tokens are written as these tokens.
TEST(ToolGrammar, WritesControlTokens) {
  std::vector<std::string> tokens = {"</s>", "[TOOL_CALLS]", "[ARGS]"};
  std::vector<int32_t> types = {kControl, kControl, kControl};
  for (const char* text : {"order", "stop", "{", "}", "\"", "size", "count", "hot", ":", ",",
                           "small", "large", "1", "2", "true", "false", "a"}) {
    tokens.emplace_back(text);
    types.push_back(kNormal);
  }
  const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("gpt2")
                                                    .String("tokenizer.ggml.pre", "gpt-2")
                                                    .Tokens(tokens)
                                                    .Types(types)
                                                    .Merges({})
                                                    .U32("tokenizer.ggml.eos_token_id", 0));
  ASSERT_TRUE(tokenizer.result.ok());
  const ToolFormat format = {.name = "args",
                             .form = ToolFormat::Form::kNamed,
                             .call_open = "[TOOL_CALLS]",
                             .name_close = "[ARGS]"};
  std::mt19937 random(9);
  for (const char* choice : {"required", "auto"}) {
    const auto text = ToolGrammar(format, kOrderTools, ToolChoice::Of(choice), *tokenizer);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_THAT(text->text, HasSubstr("<[1]>"));
    EXPECT_THAT(text->text, HasSubstr("<[2]>"));
    int complete = 0;
    for (int i = 0; i < 20; ++i) {
      bool has_ended = false;
      const std::string begin = std::string(choice) == "auto" ? "a[TOOL_CALLS]" : "";
      const std::string answer = RandomText(*tokenizer, *text, random, &has_ended, begin);
      if (!has_ended) continue;
      ++complete;
      ToolAnswer read(format, kOrderTools, "", {});
      read.Push(answer);
      read.Finish();
      EXPECT_EQ(read.content(), begin.substr(0, begin.find('['))) << answer;
      ASSERT_FALSE(read.calls().empty()) << answer;
      for (const ToolCall& call : read.calls()) ExpectArguments(call, answer);
    }
    EXPECT_GT(complete, 5);
  }
}

// A tokenizer that puts a blank in front of every text puts none in front of marks.
TEST(ToolGrammar, MarksHaveNoBlankInFront) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\u2581", "\u2581<", "call"};
  std::vector<int32_t> types = {kNormal, kControl, kControl, kNormal, kNormal, kNormal};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(kByte);
  }
  const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("llama")
                                                    .Tokens(tokens)
                                                    .Types(types)
                                                    .Scores(std::vector<float>(tokens.size(), -1))
                                                    .U32("tokenizer.ggml.bos_token_id", 1)
                                                    .U32("tokenizer.ggml.eos_token_id", 2));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->Encode("<call>", {})->front(), {}).front(), ' ');
  const ToolFormat format = {.name = "marks", .call_open = "<call>", .call_close = "</call>"};
  const auto text = ToolGrammar(format, kOrderTools, {}, *tokenizer);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_THAT(text->triggers.words, testing::ElementsAre("<call>"));
  const auto grammar = Grammar::Create(*text, *tokenizer);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE((*grammar)->NewStage(tokenizer->vocab_size()).ok());
  std::mt19937 random(2);
  const auto required = ToolGrammar(format, kOrderTools, ToolChoice::Of("required"), *tokenizer);
  ASSERT_TRUE(required.ok()) << required.error().message;
  bool has_ended = false;
  EXPECT_TRUE(RandomText(*tokenizer, *required, random, &has_ended).starts_with("<call>"));
}

TEST(ToolGrammar, AllowsOneCallWhereThatIsAsked) {
  std::mt19937 random(5);
  const Tokenizer& tokenizer = SmallModel()->tokenizer();
  const ToolFormat format = FormatOf(kToolTemplates[0].source);
  ToolChoice choice = ToolChoice::Of("required");
  choice.is_parallel = false;
  const auto text = ToolGrammar(format, kOrderTools, choice, tokenizer);
  ASSERT_TRUE(text.ok());
  for (int i = 0; i < 10; ++i) {
    bool has_ended = false;
    const std::string answer = RandomText(tokenizer, *text, random, &has_ended);
    ToolAnswer read(format, kOrderTools, "", {});
    read.Push(answer);
    read.Finish();
    EXPECT_LE(read.calls().size(), 1u) << answer;
  }
}

TEST(ToolGrammar, RefusesWhatItCannotKeep) {
  const Tokenizer& tokenizer = SmallModel()->tokenizer();
  const ToolFormat format = FormatOf(kToolTemplates[0].source);
  const auto message = [&](const std::string& tools, const char* choice) {
    const auto text = ToolGrammar(format, tools, ToolChoice::Of(choice), tokenizer);
    return text.ok() ? "" : text.error().message;
  };
  EXPECT_THAT(message(kOrderTools, "nothing"), HasSubstr("found 'nothing'"));
  EXPECT_THAT(message("", "required"), HasSubstr("at least one"));
  EXPECT_THAT(message("{}", "auto"), HasSubstr("expected a JSON array"));
  const auto tool = [](const char* parameters, const char* strict) {
    return std::string(R"([{"type": "function", "function": {"name": "f", "strict": )") + strict +
           R"(, "parameters": )" + parameters + "}}]";
  };
  const char* const odd = R"({"type": "object", "properties": {"a": {"minimun": 3}}})";
  const ToolFormat json = FormatOf("{{ messages[0].content }}");
  const auto strict = ToolGrammar(json, tool(odd, "true"), {}, tokenizer);
  ASSERT_FALSE(strict.ok());
  EXPECT_THAT(strict.error().message, HasSubstr("tool f: /parameters"));
  EXPECT_THAT(strict.error().message, HasSubstr("properties/a/minimun"));
  EXPECT_TRUE(ToolGrammar(json, tool(odd, "false"), {}, tokenizer).ok());
}

}  // namespace
}  // namespace kvant::test
