// A grammar as a stage of the chain of logits, and the notations by name.
#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/grammar/free_text.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/regex_syntax.h"
#include "engine/grammar/schema/json_schema.h"
#include "kvant/grammar.h"
#include "kvant/tokenizer.h"

namespace kvant {
namespace {

using grammar::BoundState;
using grammar::BoundText;
using grammar::FreeTextOptions;
using grammar::GrammarBuilder;
using grammar::Matcher;
using Built = std::unique_ptr<grammar::Grammar>;

constexpr size_t kChoicesMax = 100'000;
constexpr size_t kBoundTextsMax = 8;  // a few kinds of thoughts, and none

Result<Built> BuildRegex(const std::string& text) {
  GrammarBuilder builder;
  KVANT_ASSIGN(const grammar::ExprId expr, grammar::ParseRegex(text, builder.pool()));
  const grammar::RuleId root = builder.AddRule();
  builder.Define(root, builder.Regex(expr));
  return builder.Build(root);
}

Result<Built> BuildChoices(const std::vector<std::string>& choices) {
  if (choices.empty() || choices.size() > kChoicesMax) {
    return MakeError(ErrorCode::kInvalid, "choices: expected 1 to {} texts, found {}", kChoicesMax,
                     choices.size());
  }
  GrammarBuilder builder;
  const std::vector<std::string_view> texts(choices.begin(), choices.end());
  const grammar::RuleId root = builder.AddRule();
  builder.Define(root, builder.Regex(builder.pool().OneOf(texts)));
  return builder.Build(root);
}

Result<Built> BuildGrammar(const GrammarText& text, const Tokenizer& tokenizer) {
  switch (text.kind) {
    case GrammarText::Kind::kGbnf: return grammar::ParseGbnf(text.text, &tokenizer);
    case GrammarText::Kind::kRegex: return BuildRegex(text.text);
    case GrammarText::Kind::kChoices: return BuildChoices(text.choices);
    case GrammarText::Kind::kJson:
      return grammar::ParseJsonSchema(R"({"type": "object"})", {.compact = text.json_compact});
    case GrammarText::Kind::kJsonSchema:
      return grammar::ParseJsonSchema(
          text.text, {.compact = text.json_compact, .allows_unknown = text.json_allows_unknown});
  }
  return MakeError(ErrorCode::kInvalid, "grammar: expected a kind, found {}",
                   static_cast<int>(text.kind));
}

// The tokens that are shown by a name, but for those that end a text.
BoundText::Names ControlNames(const Tokenizer& tokenizer) {
  BoundText::Names names;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id) || tokenizer.is_end_of_generation(id)) continue;
    names.emplace_back(id, tokenizer.TokenBytes(id, {.special = true}));
  }
  return names;
}

class GrammarStage final : public CopiedLogitStage<GrammarStage> {
 public:
  GrammarStage(std::shared_ptr<BoundText> text, size_t vocab)
      : text_(std::move(text)), state_(text_->Begin()), bits_(Matcher::WordsFor(vocab)) {}

  Status Apply(const LogitText& /*text*/, std::span<float> row) override {
    KVANT_TRY(status_);
    KVANT_TRY(text_->Mask(state_, bits_));
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    for (size_t word = 0; word < bits_.size(); ++word) {
      const uint64_t bits = bits_[word];
      if (bits == ~uint64_t{0}) continue;
      const size_t end = std::min(row.size(), (word + 1) * 64);
      if (bits == 0) {
        std::ranges::fill(row.subspan(word * 64, end - word * 64), kNone);
        continue;
      }
      for (size_t i = word * 64; i < end; ++i) {
        row[i] = (bits >> (i % 64) & 1) != 0 ? row[i] : kNone;
      }
    }
    // Rows of a model may be longer than its vocabulary.
    for (size_t i = bits_.size() * 64; i < row.size(); ++i) row[i] = kNone;
    return {};
  }

  bool ends_text() const override { return true; }
  bool IsOver() const override { return text_->IsOver(state_); }
  void Guess(size_t most, Guesses which, std::vector<TokenId>& tokens) const override {
    text_->Guess(state_, most, which, tokens);
  }

  void Accept(TokenId token, TokenFrom from) override {
    if (from == TokenFrom::kPrompt || !status_.ok()) return;
    const Result<bool> moved = text_->Advance(state_, token);
    if (!moved.ok()) {
      status_ = moved.error();
    } else if (!*moved) {
      status_ =
          MakeError(ErrorCode::kInvalid,
                    "grammar: expected a token that goes on with the text, found token {}", token);
    }
  }

 private:
  std::shared_ptr<BoundText> text_;
  BoundState state_;
  Status status_;  // of the tokens so far
  std::vector<uint64_t> bits_;
};

}  // namespace

// All that texts share. A text with thoughts before it has another BoundText than one without.
struct Grammar::Parts {
  GrammarText text;
  std::shared_ptr<Matcher> matcher;
  BoundText::Names control;
  std::mutex mutex;
  std::vector<std::shared_ptr<BoundText>> texts;  // made so far
};

Grammar::Grammar(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Grammar::~Grammar() = default;

const GrammarText& Grammar::text() const { return parts_->text; }

Result<std::shared_ptr<const Grammar>> Grammar::Create(const GrammarText& text,
                                                       const Tokenizer& tokenizer) {
  KVANT_ASSIGN(Built built, BuildGrammar(text, tokenizer));
  auto parts = std::make_unique<Parts>();
  parts->matcher = std::make_shared<Matcher>(std::move(built), tokenizer.trie(),
                                             tokenizer.special().end_of_generation);
  parts->control = ControlNames(tokenizer);
  parts->text = text;
  std::shared_ptr<const Grammar> made(new Grammar(std::move(parts)));
  KVANT_TRY(made->NewStage(tokenizer.vocab_size()));  // looks at the triggers
  return made;
}

Result<std::unique_ptr<LogitStage>> Grammar::NewStage(int32_t vocab_size,
                                                      const FreeThoughts& thoughts) const {
  const size_t vocab = parts_->matcher->vocab();
  if (vocab_size < static_cast<int32_t>(vocab)) {
    return MakeError(ErrorCode::kInvalid, "grammar: expected logits of {} tokens, found {}", vocab,
                     vocab_size);
  }
  FreeTextOptions options;
  for (const auto& [open, close] : thoughts.marks) options.marks.push_back({open, close});
  options.must_open = thoughts.must_open;
  options.opened = thoughts.opened;
  const GrammarTriggers& triggers = parts_->text.triggers;
  options.waits = !triggers.empty();
  options.words = triggers.words;
  options.tokens = triggers.tokens;
  options.patterns = triggers.patterns;
  options.full_patterns = triggers.full_patterns;
  const std::lock_guard lock(parts_->mutex);
  auto& texts = parts_->texts;
  auto text = std::find_if(texts.begin(), texts.end(),
                           [&](const auto& made) { return made->options() == options; });
  if (text == texts.end()) {
    KVANT_ASSIGN(auto made, BoundText::Create(parts_->matcher, parts_->control, options));
    if (texts.size() == kBoundTextsMax) texts.erase(texts.begin());
    text = texts.insert(texts.end(), std::move(made));
  }
  return std::unique_ptr<LogitStage>(std::make_unique<GrammarStage>(*text, vocab));
}

}  // namespace kvant
