// Cutting by PCRE2 (with its JIT compiler where there is one). The table is in
// pre_tokenizer_rows.cpp.
#include "engine/tokenizer/pre_tokenizers.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/result.h"
#include "engine/tokenizer/unicode.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

// \s and \S as the property White_Space: PCRE2's own also take in U+180E. Both forms may stand
// inside and outside of brackets.
std::string WithUnicodeSpaces(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += R"(\p{White_Space})";
    } else if (escaped == 'S') {
      out += R"(\P{White_Space})";
    } else {
      out += '\\';
      out += escaped;
    }
  }
  return out;
}

const PreTokenizerRow* FindRow(std::string_view name) {
  for (const PreTokenizerRow& row : PreTokenizerRows()) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return &row;
  }
  return nullptr;
}

constexpr std::string_view kThreesPrefix = "(*threes)";
constexpr std::string_view kOpenThreesPrefix = "(*open-threes)";

// The places where text[begin, end) is cut into threes of characters from the right, ascending.
std::vector<size_t> ThreesFromRight(std::string_view text, size_t begin, size_t end) {
  std::vector<size_t> cuts;
  int characters = 0;
  for (size_t i = end; i-- > begin;) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) continue;
    if (++characters % 3 == 0) cuts.push_back(i);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace

// One compiled expression.
class PreTokenizer::Pattern {
 public:
  // How a match is cut further.
  enum class Groups : uint8_t { kNone, kThrees, kOpenThrees };

  explicit Pattern(std::string_view source) {
    for (const auto& [prefix, cut] : {std::pair{kThreesPrefix, Groups::kThrees},
                                      std::pair{kOpenThreesPrefix, Groups::kOpenThrees}}) {
      if (!source.starts_with(prefix)) continue;
      groups_ = cut;
      source.remove_prefix(prefix.size());
    }
    const std::string pattern = WithUnicodeSpaces(source);
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    code_.reset(pcre2_compile(Bytes(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &error_offset, nullptr));
    KVANT_CHECK(code_ != nullptr);                       // the table's expressions are our own
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it pcre2_match interprets
    limits_.reset(pcre2_match_context_create(nullptr));
    KVANT_CHECK(limits_ != nullptr);
    // A run of white space may be as long as the text; the interpreter counts its characters.
    pcre2_set_match_limit(limits_.get(), std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(limits_.get(), std::numeric_limits<uint32_t>::max());
  }

  // Cuts the word text[begin, end) and appends the ends of its parts. `text` is valid UTF-8.
  void Cut(std::string_view text, size_t begin, size_t end, pcre2_match_data* match,
           std::vector<size_t>& ends) const {
    const std::string_view word = text.substr(begin, end - begin);
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match);
    size_t position = 0;  // everything before it has been cut
    size_t search = 0;
    while (search < word.size()) {
      // Whatever kept the search from finishing, the rest of the word stays in one piece.
      const int rc = pcre2_match(code_.get(), Bytes(word), word.size(), search, PCRE2_NO_UTF_CHECK,
                                 match, limits_.get());
      if (rc < 0 || found[1] <= found[0]) break;
      search = found[1];
      const bool stays = groups_ != Groups::kNone && rc > 1;  // as it is, with what is around it
      if (stays) continue;
      const auto cut = [&](size_t at) {
        if (at > position) ends.push_back(begin + at);
        position = at;
      };
      if (groups_ != Groups::kOpenThrees) cut(found[0]);
      if (groups_ != Groups::kNone) {
        for (const size_t at : ThreesFromRight(word, found[0], found[1])) cut(at);
      }
      if (groups_ != Groups::kOpenThrees) cut(found[1]);
    }
    if (position < word.size()) ends.push_back(end);
  }

 private:
  static PCRE2_SPTR Bytes(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
  }
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  Groups groups_ = Groups::kNone;
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_context, FreeContext> limits_;
};

PreTokenizer::PreTokenizer(const PreTokenizerRow& row) : row_(row) {
  for (const std::string_view pattern : row.patterns) {
    patterns_.push_back(std::make_unique<Pattern>(pattern));
  }
}

PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(std::string_view name) {
  const PreTokenizerRow* row = FindRow(name.empty() ? "default" : name);
  if (row != nullptr) return std::unique_ptr<PreTokenizer>(new PreTokenizer(*row));
  std::string known;
  for (const PreTokenizerRow& r : PreTokenizerRows()) {
    for (const std::string_view n : r.names) {
      if (!known.empty()) known += ", ";
      known += n;
    }
  }
  return MakeError(ErrorCode::kNotSupported, "unknown pre-tokenizer {}; known are {}",
                   formats::Quoted(name), known);
}

std::vector<size_t> PreTokenizer::SplitValid(std::string_view text) const {
  struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(2, nullptr));
  std::vector<size_t> ends;
  std::vector<size_t> words{text.size()};
  if (match == nullptr) return words;  // out of memory: one word
  for (const auto& pattern : patterns_) {
    ends.clear();
    size_t begin = 0;
    for (const size_t end : words) {
      pattern->Cut(text, begin, end, match.get(), ends);
      begin = end;
    }
    words.swap(ends);
  }
  return words;
}

std::vector<size_t> PreTokenizer::Split(std::string_view text) const {
  if (text.empty()) return {};
  if (IsValidUtf8(text)) return SplitValid(text);

  // Cut a copy in which U+FFFD stands for every invalid part, and translate the places back.
  std::string valid;
  struct Shift {
    size_t valid_begin;  // from here on...
    size_t text_begin;   // ...this place in the copy is this place in the text
  };
  std::vector<Shift> shifts{{0, 0}};
  for (size_t i = 0; i < text.size();) {
    const size_t run = ValidUtf8Prefix(text.substr(i));
    valid.append(text.substr(i, run));
    i += run;
    if (i == text.size()) break;
    valid.append(kReplacementUtf8);
    i += DecodeUtf8(text.substr(i)).size;
    shifts.push_back({valid.size(), i});
  }
  std::vector<size_t> ends = SplitValid(valid);
  size_t s = 0;
  for (size_t& end : ends) {
    while (s + 1 < shifts.size() && shifts[s + 1].valid_begin <= end) ++s;
    end = end - shifts[s].valid_begin + shifts[s].text_begin;
  }
  return ends;
}

}  // namespace kvant
