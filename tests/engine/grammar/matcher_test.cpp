// A Matcher against a slow recogniser that looks at whole texts: random grammars, and
// vocabularies whose tokens end inside characters.
#include "engine/grammar/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/gbnf.h"

namespace kvant::grammar {
namespace {

// ---- A recogniser of whole texts ----------------------------------------------------------------

// A grammar as a tree; rules refer to each other by number.
struct SlowNode {
  enum class Kind : uint8_t { kText, kClass, kRule, kSequence, kEither, kRepeat } kind;
  std::string text = {};  // kText: bytes; kClass: characters of one byte, one of them
  size_t rule = 0;
  std::vector<SlowNode> parts = {};
  int least = 0, most = 0;  // -1: no limit
};

class SlowRecogniser {
 public:
  SlowRecogniser(const std::vector<SlowNode>& rules, std::string text)
      : rules_(rules), text_(std::move(text)) {
    // The least fixed point of all rules at all places: recursion of any kind is no trouble.
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (size_t rule = 0; rule < rules_.size(); ++rule) {
        for (size_t begin = 0; begin <= text_.size(); ++begin) {
          const Found found = Match(rules_[rule], begin);
          Found& known = known_[{rule, begin}];
          const size_t before = known.ends.size();
          known.ends.insert(found.ends.begin(), found.ends.end());
          if (known.ends.size() != before || found.is_open != known.is_open) changed_ = true;
          known.is_open = known.is_open || found.is_open;
        }
      }
    }
  }

  bool IsComplete() { return known_[{0, 0}].ends.contains(text_.size()); }
  // Whether something may follow the text that makes it complete, or it is complete.
  bool IsBeginning() { return IsComplete() || known_[{0, 0}].is_open; }

 private:
  struct Found {
    std::set<size_t> ends;
    bool is_open = false;  // the text ends before this does
  };

  Found Match(const SlowNode& node, size_t begin) {
    using Kind = SlowNode::Kind;
    Found found;
    const size_t left = text_.size() - begin;
    switch (node.kind) {
      case Kind::kText: {
        const size_t shared = std::min(left, node.text.size());
        if (text_.compare(begin, shared, node.text, 0, shared) != 0) break;
        if (shared == node.text.size()) {
          found.ends.insert(begin + shared);
        } else {
          found.is_open = true;
        }
        break;
      }
      case Kind::kClass:
        if (left == 0) {
          found.is_open = true;
        } else if (node.text.find(text_[begin]) != std::string::npos) {
          found.ends.insert(begin + 1);
        }
        break;
      case Kind::kRule: found = known_[{node.rule, begin}]; break;
      case Kind::kSequence: {
        found.ends = {begin};
        for (const SlowNode& part : node.parts) found = Then(found, part);
        break;
      }
      case Kind::kEither:
        for (const SlowNode& part : node.parts) {
          const Found one = Match(part, begin);
          found.ends.insert(one.ends.begin(), one.ends.end());
          found.is_open = found.is_open || one.is_open;
        }
        break;
      case Kind::kRepeat: {
        Found now;
        now.ends = {begin};
        if (node.least == 0) found.ends = {begin};
        const int rounds = node.most >= 0 ? node.most : node.least + static_cast<int>(left) + 2;
        for (int round = 1; round <= rounds; ++round) {
          now = Then(now, node.parts[0]);
          if (round >= node.least) found.ends.insert(now.ends.begin(), now.ends.end());
          found.is_open = found.is_open || now.is_open;
        }
        break;
      }
    }
    return found;
  }

  Found Then(const Found& before, const SlowNode& part) {
    Found after;
    after.is_open = before.is_open;
    for (const size_t end : before.ends) {
      const Found one = Match(part, end);
      after.ends.insert(one.ends.begin(), one.ends.end());
      after.is_open = after.is_open || one.is_open;
    }
    return after;
  }

  const std::vector<SlowNode>& rules_;
  std::string text_;
  std::map<std::pair<size_t, size_t>, Found> known_;
  bool changed_ = false;
};

// ---- Random grammars ----------------------------------------------------------------------------

class RandomGrammar {
 public:
  explicit RandomGrammar(uint32_t seed) : random_(seed) {
    const size_t count = 1 + Below(4);
    rules_.resize(count);
    for (size_t rule = 0; rule < count; ++rule) {
      // The last alternative is a text, so that every rule ends.
      SlowNode either{SlowNode::Kind::kEither};
      for (size_t i = 0; i < 1 + Below(2); ++i) either.parts.push_back(Node(3));
      either.parts.push_back(Text());
      rules_[rule] = std::move(either);
    }
  }

  const std::vector<SlowNode>& rules() const { return rules_; }

  std::string Gbnf() const {
    std::string out;
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      out += Name(rule) + " ::= " + Write(rules_[rule]) + "\n";
    }
    return out;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }
  static std::string Name(size_t rule) {
    return rule == 0 ? "root" : "rule-" + std::to_string(rule);
  }

  SlowNode Text() {
    static const std::vector<std::string> kTexts = {"a", "b", "ab", "ba", "c", "é", "aé", "€"};
    return {SlowNode::Kind::kText, kTexts[Below(kTexts.size())]};
  }

  SlowNode Node(int depth) {
    const size_t kind = depth == 0 ? Below(3) : Below(6);
    switch (kind) {
      case 0: return Text();
      case 1: return {SlowNode::Kind::kClass, Below(2) == 0 ? "ab" : "bc"};
      case 2: {
        SlowNode node{SlowNode::Kind::kRule};
        node.rule = Below(rules_.size());
        return node;
      }
      case 3:
      case 4: {
        SlowNode node{kind == 3 ? SlowNode::Kind::kSequence : SlowNode::Kind::kEither};
        for (size_t i = 0; i < 1 + Below(3); ++i) node.parts.push_back(Node(depth - 1));
        return node;
      }
      default: {
        SlowNode node{SlowNode::Kind::kRepeat};
        node.parts.push_back(Node(depth - 1));
        node.least = static_cast<int>(Below(3));
        node.most = Below(2) == 0 ? -1 : node.least + static_cast<int>(Below(3));
        if (node.most == 0) node.most = 1;
        return node;
      }
    }
  }

  static std::string Write(const SlowNode& node) {
    using Kind = SlowNode::Kind;
    std::string out;
    switch (node.kind) {
      case Kind::kText: return "\"" + node.text + "\"";
      case Kind::kClass: return "[" + node.text + "]";
      case Kind::kRule: return Name(node.rule);
      case Kind::kSequence:
        for (const SlowNode& part : node.parts) out += " " + Write(part);
        return "(" + out + " )";
      case Kind::kEither:
        for (const SlowNode& part : node.parts) out += (out.empty() ? "" : " | ") + Write(part);
        return "(" + out + ")";
      case Kind::kRepeat:
        out = "(" + Write(node.parts[0]) + "){" + std::to_string(node.least);
        if (node.most != node.least) out += ",";
        if (node.most >= 0 && node.most != node.least) out += std::to_string(node.most);
        return out + "}";
    }
    return out;
  }

  std::mt19937 random_;
  std::vector<SlowNode> rules_;
};

// Texts of up to four bytes; token 0 ends a text.
std::vector<std::string> RandomVocabulary(std::mt19937& random) {
  static const std::vector<std::string> kBytes = {"a",    "b",    "c",    "\xc3", "\xa9",
                                                  "\xe2", "\x82", "\xac", "d"};
  std::vector<std::string> texts = {""};
  texts.insert(texts.end(), kBytes.begin(), kBytes.end());
  for (int i = 0; i < 120; ++i) {
    std::string text;
    for (size_t length = 1 + random() % 4; length > 0; --length) {
      text += random() % 3 == 0 ? kBytes[random() % kBytes.size()] : kBytes[random() % 3];
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

bool Has(std::span<const uint64_t> bits, size_t token) {
  return (bits[token / 64] >> (token % 64) & 1) != 0;
}

TEST(Grammar, MasksAreThoseOfASlowRecogniser) {
  int64_t compared = 0;
  int64_t allowed = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    const RandomGrammar made(seed);
    SCOPED_TRACE(made.Gbnf());
    auto grammar = ParseGbnf(made.Gbnf(), nullptr);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    std::mt19937 random(seed);
    const std::vector<std::string> texts = RandomVocabulary(random);
    Matcher matcher(std::move(*grammar), std::make_shared<const TokenTrie>(texts), {0});
    std::vector<uint64_t> bits(Matcher::WordsFor(texts.size()));
    for (int walk = 0; walk < 2; ++walk) {
      MatchState state = matcher.Begin();
      std::string text;
      while (text.size() < 9) {
        ASSERT_TRUE(matcher.Mask(state, bits).ok());
        std::vector<size_t> open;
        EXPECT_EQ(Has(bits, 0), SlowRecogniser(made.rules(), text).IsComplete()) << text;
        for (size_t token = 1; token < texts.size(); ++token) {
          const bool expected = SlowRecogniser(made.rules(), text + texts[token]).IsBeginning();
          ASSERT_EQ(Has(bits, token), expected) << "'" << text << "' then '" << texts[token] << "'";
          ++compared;
          if (!expected) continue;
          ++allowed;
          open.push_back(token);
        }
        if (open.empty()) {
          EXPECT_TRUE(Has(bits, 0));
          break;
        }
        const size_t token = open[random() % open.size()];
        const auto moved = matcher.Advance(state, static_cast<TokenId>(token));
        ASSERT_TRUE(moved.ok() && *moved) << text << texts[token];
        text += texts[token];
      }
    }
  }
  EXPECT_GT(compared, 50000);
  EXPECT_GT(allowed, 5000);
}

}  // namespace
}  // namespace kvant::grammar
