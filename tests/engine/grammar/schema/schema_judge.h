// Texts judged by the grammar of a JSON schema, with a token for each byte.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/matcher.h"
#include "engine/grammar/schema/json_schema.h"

namespace kvant::grammar {

class SchemaJudge {
 public:
  explicit SchemaJudge(std::string_view schema, JsonSchemaForm form = {}) {
    auto built = ParseJsonSchema(schema, form);
    if (!built.ok()) {
      error_ = built.error().message;
      return;
    }
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();
    auto trie = std::make_shared<const TokenTrie>(std::move(texts));
    matcher_ =
        std::make_unique<Matcher>(std::move(*built), std::move(trie), std::vector<TokenId>{kEnd});
  }

  static constexpr TokenId kEnd = 256;

  // Empty if the schema is understood.
  const std::string& error() const { return error_; }
  Matcher& matcher() { return *matcher_; }

  bool Accepts(std::string_view text) {
    MatchState state = matcher_->Begin();
    const auto moved = matcher_->AdvanceBytes(state, text);
    EXPECT_TRUE(moved.ok()) << text;
    return moved.ok() && *moved && state.accepts;
  }

 private:
  std::string error_;
  std::unique_ptr<Matcher> matcher_;
};

// Expects that the schema accepts some texts and no others.
inline void ExpectTexts(std::string_view schema, const std::vector<std::string>& accepted,
                        const std::vector<std::string>& refused) {
  SchemaJudge judge(schema);
  ASSERT_EQ(judge.error(), "") << schema;
  for (const std::string& text : accepted)
    EXPECT_TRUE(judge.Accepts(text)) << schema << " " << text;
  for (const std::string& text : refused)
    EXPECT_FALSE(judge.Accepts(text)) << schema << " " << text;
}

}  // namespace kvant::grammar
