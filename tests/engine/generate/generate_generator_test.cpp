// The generation loop on a scripted sequence and a toy vocabulary: stop texts, UTF-8, limits.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/generator.h"
#include "kvant/random.h"
#include "kvant/stop_text.h"

namespace kvant {
namespace {

// Every piece stands for its own bytes; token 0 is BOS, token 1 the end token.
class ToyTokenizer final : public Tokenizer {
 public:
  explicit ToyTokenizer(std::vector<std::string> pieces) : storage_(std::move(pieces)) {
    storage_.insert(storage_.begin(), {"<s>", "</s>"});
    for (const std::string& piece : storage_) pieces_.push_back(piece);
    types_.assign(pieces_.size(), PieceType::kNormal);
    types_[0] = types_[1] = PieceType::kControl;
    special_.bos = 0;
    special_.eos = 1;
    special_.end_of_generation = {1};
  }
  Result<std::vector<TokenId>> Encode(std::string_view, const EncodeOptions&) const override {
    return MakeError(ErrorCode::kNotSupported, "the toy vocabulary only decodes");
  }
  std::string TokenBytes(TokenId id, DecodeOptions options) const override {
    if (id < 2 && !options.special) return "";
    return storage_[static_cast<size_t>(id)];
  }
  std::string Decode(std::span<const TokenId> ids, DecodeOptions options) const override {
    std::string text;
    for (const TokenId id : ids) text += TokenBytes(id, options);
    return text;
  }
  const char* kind() const override { return "toy"; }

 private:
  std::vector<std::string> storage_;
};

// After the prompt, logits name the script's tokens one after the other.
class Script final : public SequenceHost {
 public:
  Script(std::vector<TokenId> script, int32_t vocab, int64_t context = 1000)
      : script_(std::move(script)), logits_(static_cast<size_t>(vocab)), context_(context) {}

  Status Step(std::span<const StepInput> inputs, const StepOptions&) override {
    const StepInput& input = inputs.front();
    if (input.logits == Logits::kAll) return OneWay();
    appended.insert(appended.end(), input.tokens.begin(), input.tokens.end());
    ++calls;
    if (calls == fail_at) return MakeError(fail_code, "scripted failure");
    std::fill(logits_.begin(), logits_.end(), 0.0f);
    logits_[static_cast<size_t>(script_[next_])] = 10;
    if (next_ + 1 < script_.size()) ++next_;
    return {};
  }
  Result<SequenceId> NewSequence() override { return OneWay(); }
  Status FreeSequence(SequenceId) override { return OneWay(); }
  Result<SequenceId> Fork(SequenceId) override { return OneWay(); }
  Status Reorder(std::span<const SequenceId>, std::span<const int>) override { return OneWay(); }
  Status Rewind(SequenceId, int64_t, Replay) override { return OneWay(); }
  Status Prune(SequenceId, int64_t, int64_t, PrunePositions) override { return OneWay(); }
  Result<int64_t> ReusePrefix(SequenceId, std::span<const TokenId>) override { return int64_t{0}; }
  std::span<const float> logits(SequenceId) const override { return logits_; }
  int64_t length(SequenceId) const override { return static_cast<int64_t>(appended.size()); }
  int64_t context() const override { return context_; }
  int64_t sequences_max() const override { return 1; }
  PromptCut prompt_cut() const override { return {.chunk = INT64_MAX, .few_rows = 1}; }

  std::vector<TokenId> appended;
  int calls = 0;
  int fail_at = -1;
  ErrorCode fail_code = ErrorCode::kCancelled;

 private:
  static Error OneWay() {
    return MakeError(ErrorCode::kNotSupported, "a script is one sequence that goes forward");
  }

  std::vector<TokenId> script_;
  size_t next_ = 0;
  std::vector<float> logits_;
  int64_t context_;
};

struct Outcome {
  Generation generation;
  std::vector<std::string> pieces;
  std::vector<TokenId> appended;
};

const std::vector<TokenId> kPrompt = {0};

Sampler Greedy(const Tokenizer& tokenizer) {
  SamplingOptions options;
  options.temperature = 0;
  return *Sampler::Create(options, tokenizer.vocab_size());
}

// Generates text whose tokens are exactly `pieces`, then the end token.
Outcome GeneratePieces(const std::vector<std::string>& pieces, GenerateOptions options = {},
                       int64_t context = 1000) {
  const ToyTokenizer tokenizer(pieces);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < pieces.size(); ++i) ids.push_back(static_cast<TokenId>(i + 2));
  ids.push_back(1);
  Script script(ids, tokenizer.vocab_size(), context);
  Sampler sampler = Greedy(tokenizer);
  Outcome outcome;
  auto result =
      Generate(script, 0, tokenizer, sampler, kPrompt, options, [&](std::string_view piece) {
        outcome.pieces.emplace_back(piece);
        return true;
      });
  EXPECT_TRUE(result.ok());
  if (result.ok()) outcome.generation = *result;
  outcome.appended = script.appended;
  std::string joined;
  for (const std::string& piece : outcome.pieces) joined += piece;
  EXPECT_EQ(joined, outcome.generation.text);
  return outcome;
}

GenerateOptions StopAt(std::vector<std::string> texts) {
  GenerateOptions options;
  options.stop_texts = std::move(texts);
  return options;
}

TEST(Generator, TheTextSoFarStaysWhenMemoryEnds) {
  const ToyTokenizer tokenizer({"a", "b", "c"});
  Script script({2, 3, 4}, tokenizer.vocab_size());
  script.fail_at = 3;
  script.fail_code = ErrorCode::kOutOfMemory;
  Sampler sampler = Greedy(tokenizer);
  const auto result = Generate(script, 0, tokenizer, sampler, kPrompt, {}, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, FinishReason::kMemory);
  EXPECT_EQ(result->text, "ab");
}

TEST(Generator, StreamsUntilTheEndToken) {
  const Outcome outcome = GeneratePieces({"Once", " upon", " a time"});
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"Once", " upon", " a time"}));
  EXPECT_EQ(outcome.generation.ids, (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kStop);
  EXPECT_EQ(outcome.appended, (std::vector<TokenId>{0, 2, 3, 4}));
  EXPECT_EQ(outcome.generation.prefill_tokens, 1);
  EXPECT_EQ(outcome.generation.decode_tokens, 3);
}

TEST(Generator, CharactersSplitOverTokensComeWhole) {
  const Outcome outcome = GeneratePieces({"a\xe2", "\x82", "\xac", "\xf0\x9f", "\x98\x80z"});
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"a", "\xe2\x82\xac", "\xf0\x9f\x98\x80z"}));
}

TEST(Generator, UnfinishedCharacterAtTheEndIsReplaced) {
  EXPECT_EQ(GeneratePieces({"a", "\xe2\x82"}).generation.text, "a\xef\xbf\xbd");
}

TEST(Generator, StopTextInsideOneToken) {
  const Outcome outcome = GeneratePieces({"one ", "two STOP three", "four"}, StopAt({"STOP"}));
  EXPECT_EQ(outcome.generation.text, "one two ");
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kStopText);
  EXPECT_EQ(outcome.generation.ids.size(), 2u);
}

TEST(Generator, StopTextSplitOverTokensIsHeldBack) {
  const Outcome outcome = GeneratePieces({"x <", "|e", "nd|> y"}, StopAt({"<|end|>"}));
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"x "}));
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kStopText);
}

TEST(Generator, BeginningThatIsNoStopTextIsReleased) {
  const Outcome outcome = GeneratePieces({"x <", "|e", "ach", " <|e"}, StopAt({"<|end|>"}));
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"x ", "<|each", " ", "<|e"}));
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kStop);
}

TEST(Generator, StopTextThroughACharacter) {
  const Outcome outcome = GeneratePieces({"a\xe2", "\x82\xac", "b"}, StopAt({"\xe2\x82\xac"}));
  EXPECT_EQ(outcome.generation.text, "a");
}

TEST(Generator, MaxTokens) {
  GenerateOptions options;
  options.max_tokens = 2;
  const Outcome outcome = GeneratePieces({"a", "b", "c"}, options);
  EXPECT_EQ(outcome.generation.text, "ab");
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kLength);
  EXPECT_EQ(outcome.appended.size(), 2u);  // the last token is not computed in vain
  options.max_tokens = 0;
  const Outcome nothing = GeneratePieces({"a"}, options);
  EXPECT_EQ(nothing.generation.text, "");
  EXPECT_EQ(nothing.generation.finish_reason, FinishReason::kLength);
  EXPECT_EQ(nothing.generation.prefill_tokens, 1);
}

TEST(Generator, FullContext) {
  const Outcome outcome = GeneratePieces({"a", "b", "c", "d"}, {}, 3);
  // Three positions: the prompt and two tokens; the third token's logits are still known.
  EXPECT_EQ(outcome.generation.text, "abc");
  EXPECT_EQ(outcome.generation.finish_reason, FinishReason::kContext);
}

TEST(Generator, IgnoredEndTokenIsNeverChosen) {
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = 4;
  const Outcome outcome = GeneratePieces({"a", "b"}, options);
  EXPECT_EQ(outcome.generation.ids.size(), 4u);
  for (const TokenId id : outcome.generation.ids) EXPECT_NE(id, 1);
}

TEST(Generator, EchoComesFirstAndIsNoPlaceForStopTexts) {
  const ToyTokenizer tokenizer({"STOP", " go"});
  Script script({3, 1}, tokenizer.vocab_size());
  Sampler sampler = Greedy(tokenizer);
  GenerateOptions options = StopAt({"STOP"});
  options.echo = true;
  const std::vector<TokenId> prompt = {0, 2};
  const auto result = Generate(script, 0, tokenizer, sampler, prompt, options, nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "STOP go");
}

TEST(Generator, PrefillInSlicesReportsProgress) {
  const ToyTokenizer tokenizer({"a"});
  Script script({1}, tokenizer.vocab_size());
  Sampler sampler = Greedy(tokenizer);
  GenerateOptions options;
  options.prefill_slice = 3;
  std::vector<int64_t> done;
  options.on_prefill = [&](int64_t count) { done.push_back(count); };
  const std::vector<TokenId> prompt(7, 2);
  ASSERT_TRUE(Generate(script, 0, tokenizer, sampler, prompt, options, nullptr).ok());
  EXPECT_EQ(done, (std::vector<int64_t>{3, 6, 7}));
  EXPECT_EQ(script.appended, prompt);
}

TEST(Generator, CancellingKeepsWhatThereIs) {
  const ToyTokenizer tokenizer({"a", "b", "c"});
  Script script({2, 3, 4, 1}, tokenizer.vocab_size());
  script.fail_at = 3;  // kCancelled, as a session reports it in the middle of a step
  Sampler sampler = Greedy(tokenizer);
  const auto result = Generate(script, 0, tokenizer, sampler, kPrompt, {}, nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "ab");
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);

  std::atomic<bool> cancel{true};
  GenerateOptions options;
  options.cancel = &cancel;
  EXPECT_EQ(GeneratePieces({"a"}, options).generation.finish_reason, FinishReason::kCancelled);
}

TEST(Generator, TextFunctionCanEndIt) {
  const ToyTokenizer tokenizer({"a", "b", "c"});
  Script script({2, 3, 4, 1}, tokenizer.vocab_size());
  Sampler sampler = Greedy(tokenizer);
  const auto result = Generate(script, 0, tokenizer, sampler, kPrompt, {},
                               [](std::string_view piece) { return piece != "b"; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
}

TEST(Generator, ErrorsPassThrough) {
  const ToyTokenizer tokenizer({"a"});
  Sampler sampler = Greedy(tokenizer);
  Script script({2}, tokenizer.vocab_size(), 4);
  const auto empty = Generate(script, 0, tokenizer, sampler, {}, {}, nullptr);
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalid);
  const std::vector<TokenId> prompt(5, 2);
  const auto too_long = Generate(script, 0, tokenizer, sampler, prompt, {}, nullptr);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::kContextFull);
  EXPECT_TRUE(script.appended.empty());
  script.fail_at = 1;
  script.fail_code = ErrorCode::kOutOfMemory;
  const auto failed = Generate(script, 0, tokenizer, sampler, kPrompt, {}, nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kOutOfMemory);
}

// Whatever the stop texts and the cuts, the filter shows the text before the first completed stop
// text, and holds back no more than a beginning of one.
TEST(StopTextFilter, RandomCutsAgreeWithSearchingTheWholeText) {
  Xoshiro256 random(3);
  const auto word = [&](uint64_t length_max) {
    std::string text;
    for (uint64_t n = random.Below(length_max + 1); n > 0; --n) {
      text += static_cast<char>('a' + random.Below(3));
    }
    return text;
  };
  for (int round = 0; round < 1000; ++round) {
    const std::string text = word(30);
    std::vector<std::string> stops;
    for (uint64_t n = random.Below(4); n > 0; --n) stops.push_back(word(5));
    // The shortest beginning of the text that ends with a stop text, less that stop text.
    std::string expected = text;
    bool stopped = false;
    for (size_t end = 1; end <= text.size() && !stopped; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (!stop.empty() && text.substr(0, end).ends_with(stop)) {
          longest = std::max(longest, stop.size());
        }
      }
      if (longest == 0) continue;
      stopped = true;
      expected = text.substr(0, end - longest);
    }
    StopTextFilter filter(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min<size_t>(1 + random.Below(4), text.size() - at);
      shown += filter.Push(std::string_view(text).substr(at, count));
      ASSERT_TRUE(expected.starts_with(shown));
      at += count;
    }
    shown += filter.Finish();
    EXPECT_EQ(shown, expected) << text;
    EXPECT_EQ(filter.stopped(), stopped);
  }
}

}  // namespace
}  // namespace kvant
