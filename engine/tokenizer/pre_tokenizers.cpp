// The table of pre-tokenizers, and cutting by PCRE2 (with its JIT compiler where there is one).
//
// Sources: the pre_tokenizer and normalizer entries of the models' tokenizer.json files (Digits,
// Punctuation and ByteLevel steps written out as the expressions they stand for), and llama.cpp for
// which names share one. No expression repeats a group, so none needs a growing stack, and none
// can backtrack over more than one run of characters, which makes all of them linear.
#include "engine/tokenizer/pre_tokenizers.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/result.h"
#include "engine/tokenizer/unicode.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

using Names = std::string_view;

// The step ByteLevel with use_regex: GPT-2's expression.
constexpr std::string_view kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Digits with individual_digits.
constexpr std::string_view kEachDigit = R"(\p{N})";

constexpr std::string_view kNewline = R"([\r\n])";

constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";

// CJK as the DeepSeek models cut it: U+4E00 to U+9FA5, U+0800 to U+4E00, Hangul and beyond.
constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

// Cased letters as DeepSeek LLM lists them.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF})"
    R"(\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D})"
    R"(\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5})"
    R"(\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59})"
    R"(\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128})"
    R"(\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149})"
    R"(\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE})"
    R"(\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"
    R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";

constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

// \s+$ in the original. This form finds the same and does not try every start within a run.
constexpr std::string_view kTrailingSpace = R"((?<!\s)\s++\z)";

// Llama 3, and GPT-4's cl100k: up to three digits make a word.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen2: as Llama 3 with single digits.
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek V3: letters with their marks, punctuation and symbols.
constexpr std::string_view kDeepseek3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Mistral's Tekken: words break where lower case turns to upper case.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-4o's o200k: as Tekken, with contractions kept at the word and up to three digits.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Falcon's first step, Punctuation with behavior "contiguous": category P and ASCII punctuation.
constexpr std::string_view kPunctuationRun = R"([\p{P}\$\+<=>\^~\|`]+)";
// llama.cpp's default has the same without the back-tick.
constexpr std::string_view kPunctuationRunDefault = R"([\p{P}\$\+<=>\^~\|]+)";

constexpr std::array kDefaultPatterns{kPunctuationRunDefault, kByteLevel,
                                      std::string_view(R"(\p{N}+)"), kThreeDigits};
constexpr std::array kByteLevelPatterns{kByteLevel};
constexpr std::array kDigitPatterns{kEachDigit, kByteLevel};
constexpr std::array kFalconPatterns{kPunctuationRun, kByteLevel, kThreeDigits};
constexpr std::array kLlama3Patterns{kLlama3};
constexpr std::array kQwen2Patterns{kQwen2};
constexpr std::array kTekkenPatterns{kTekken};
constexpr std::array kGpt4oPatterns{kGpt4o};
constexpr std::array kDeepseekCoderPatterns{kNewline, std::string_view(R"(\s?\p{L}+)"),
                                            std::string_view(R"(\s?\p{P}+)"), kDeepseekCjk,
                                            kEachDigit};
constexpr std::array kDeepseekLlmPatterns{kNewline,       kDeepseekLetters, kDeepseekPunctuation,
                                          kTrailingSpace, kDeepseekCjk,     kEachDigit};
constexpr std::array kDeepseek3Patterns{std::string_view(R"(\p{N}{1,3})"), kDeepseek3Cjk,
                                        kDeepseek3Words};

constexpr Names kDefaultNames[] = {"default"};
constexpr Names kGpt2Names[] = {
    "gpt-2",        "phi-2",    "jina-es", "jina-de", "jina-v1-en",  "jina-v2-es", "jina-v2-de",
    "jina-v2-code", "gigachat", "a.x-4.0", "mellum",  "roberta-bpe", "exaone4",    "jais"};
constexpr Names kNeoxNames[] = {"mpt", "olmo", "modern-bert"};
constexpr Names kStarcoderNames[] = {"starcoder", "refact", "granite-code", "smollm",
                                     "codeshell", "exaone", "minerva-7b"};
constexpr Names kCommandRNames[] = {"command-r"};
constexpr Names kFalconNames[] = {"falcon"};
constexpr Names kLlama3Names[] = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                  "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
constexpr Names kCl100kNames[] = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"};
constexpr Names kQwen2Names[] = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo"};
constexpr Names kTekkenNames[] = {"tekken"};
constexpr Names kGpt4oNames[] = {"gpt-4o", "llama4", "kanana2"};
constexpr Names kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr Names kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr Names kDeepseek3Names[] = {"deepseek-v3"};

constexpr PreTokenizerRow kRows[] = {
    {.names = kDefaultNames, .patterns = kDefaultPatterns},
    {.names = kGpt2Names, .patterns = kByteLevelPatterns},
    {.names = kNeoxNames, .patterns = kByteLevelPatterns, .normalize_nfc = true},
    {.names = kStarcoderNames, .patterns = kDigitPatterns},
    {.names = kCommandRNames, .patterns = kDigitPatterns, .normalize_nfc = true},
    {.names = kFalconNames, .patterns = kFalconPatterns},
    {.names = kLlama3Names, .patterns = kLlama3Patterns, .ignore_merges = true, .add_bos = true},
    {.names = kCl100kNames, .patterns = kLlama3Patterns},
    {.names = kQwen2Names, .patterns = kQwen2Patterns, .normalize_nfc = true},
    {.names = kTekkenNames, .patterns = kTekkenPatterns, .ignore_merges = true, .add_bos = true},
    {.names = kGpt4oNames, .patterns = kGpt4oPatterns},
    {.names = kDeepseekCoderNames, .patterns = kDeepseekCoderPatterns},
    {.names = kDeepseekLlmNames, .patterns = kDeepseekLlmPatterns},
    {.names = kDeepseek3Names, .patterns = kDeepseek3Patterns},
};

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
  for (const PreTokenizerRow& row : kRows) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const PreTokenizerRow> PreTokenizerRows() { return kRows; }

// One compiled expression.
class PreTokenizer::Pattern {
 public:
  explicit Pattern(std::string_view source) {
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
    while (position < word.size()) {
      // Whatever kept the search from finishing, the rest of the word stays in one piece.
      const int rc = pcre2_match(code_.get(), Bytes(word), word.size(), position,
                                 PCRE2_NO_UTF_CHECK, match, limits_.get());
      if (rc < 0 || found[1] <= found[0]) break;
      if (found[0] > position) ends.push_back(begin + found[0]);
      ends.push_back(begin + found[1]);
      position = found[1];
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
  for (const PreTokenizerRow& r : kRows) {
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
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
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
