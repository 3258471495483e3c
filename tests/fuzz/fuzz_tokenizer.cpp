// Fuzzes the tokenizers: a vocabulary and a text, both from the input. Whatever they are, the
// vocabulary is refused in one clean line, or every text becomes ids within it.
//
// The input is lines, so that seeds can be written by hand:
//   MODEL                 llama, gpt2, gemma4, bert, t5, rwkv or marian
//   PRE                   a pre-tokenizer; for marian the model of its pieces may stand behind it
//   -                     what follows are the pieces of marian, whose list is what came before
//   T S PIECE             without the spaces: type '0' to '6', a character as the score, the piece
//   +LEFT RIGHT           a merge
//   #HEX                  bytes of the table by which texts are normalized; more lines, more bytes
//   ^  ~                  a space in front of texts; fewer spaces in them
//   =                     the rest is the text
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "kvant/token_text.h"
#include "kvant/tokenizer.h"
#include "tests/formats/gguf_bytes.h"

namespace {

using kvant::TokenId;
using kvant::Tokenizer;
using kvant::formats::GgufFile;
using kvant::formats::GgufType;
using kvant::test::Bytes;

void Require(bool promise) {
  if (!promise) __builtin_trap();
}

struct Pieces {
  std::vector<std::string_view> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;
};

struct Input {
  std::string_view model;
  std::string_view pre;
  std::string_view model_of_pieces;
  Pieces list;
  Pieces pieces;
  std::vector<std::string_view> merges;
  std::vector<uint8_t> charsmap;
  bool add_space_prefix = false;
  bool merge_spaces = false;
  std::string_view text;
};

// The bytes that pairs of hexadecimal digits stand for; any other character is like a digit, too.
void AppendHex(std::string_view digits, std::vector<uint8_t>& bytes) {
  const auto value = [](char c) { return (c & 0xF) + (c >= 'A' ? 9 : 0); };
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(value(digits[i]) * 16 + value(digits[i + 1])));
  }
}

Input ReadInput(std::string_view rest) {
  const auto next_line = [&] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    return line;
  };
  Input input;
  input.model = next_line();
  input.pre = next_line();
  const size_t space = input.pre.find(' ');
  if (space != std::string_view::npos) {
    input.model_of_pieces = input.pre.substr(space + 1);
    input.pre = input.pre.substr(0, space);
  }
  Pieces* list = &input.list;
  while (!rest.empty()) {
    const std::string_view line = next_line();
    if (line == "=") break;
    if (line == "-") list = &input.pieces;
    if (line.starts_with('+')) {
      input.merges.push_back(line.substr(1));
    } else if (line.starts_with('#')) {
      AppendHex(line.substr(1), input.charsmap);
    } else if (line == "^") {
      input.add_space_prefix = true;
    } else if (line == "~") {
      input.merge_spaces = true;
    } else if (line.size() >= 2) {
      list->types.push_back(line[0] - '0');
      list->scores.push_back(static_cast<float>(line[1]));
      list->texts.push_back(line.substr(2));
    }
  }
  input.text = rest;
  return input;
}

// The keys of one vocabulary, which begin with `prefix`.
void AddVocabulary(const std::string& prefix, std::string_view model, const Pieces& pieces,
                   const Input& input, std::vector<Bytes>& metadata) {
  using kvant::test::ArrayEntry;
  using kvant::test::Key;
  metadata.push_back(Key(prefix + "model", GgufType::kString).String(model));
  Bytes tokens = ArrayEntry(prefix + "tokens", GgufType::kString, pieces.texts.size());
  for (const std::string_view piece : pieces.texts) tokens.String(piece);
  metadata.push_back(tokens);
  Bytes types = ArrayEntry(prefix + "token_type", GgufType::kInt32, pieces.types.size());
  for (const int32_t type : pieces.types) types.Number(type);
  metadata.push_back(types);
  Bytes scores = ArrayEntry(prefix + "scores", GgufType::kFloat32, pieces.scores.size());
  for (const float score : pieces.scores) scores.Number(score);
  metadata.push_back(scores);
  if (!input.charsmap.empty()) {
    metadata.push_back(
        ArrayEntry(prefix + "precompiled_charsmap", GgufType::kUint8, input.charsmap.size()));
    for (const uint8_t byte : input.charsmap) metadata.back().Number(byte);
  }
  const auto flag = [&](const std::string& key) {
    metadata.push_back(Key(prefix + key, GgufType::kBool).Number(uint8_t{1}));
  };
  if (input.add_space_prefix) flag("add_space_prefix");
  if (input.merge_spaces) flag("remove_extra_whitespaces");
}

Bytes MakeFile(const Input& input) {
  using kvant::test::ArrayEntry;
  using kvant::test::Key;
  std::vector<Bytes> metadata;
  AddVocabulary("tokenizer.ggml.", input.model, input.list, input, metadata);
  if (!input.pieces.texts.empty()) {
    AddVocabulary("tokenizer.ggml.pieces.", input.model_of_pieces, input.pieces, input, metadata);
  }
  metadata.push_back(Key("tokenizer.ggml.pre", GgufType::kString).String(input.pre));
  Bytes merges = ArrayEntry("tokenizer.ggml.merges", GgufType::kString, input.merges.size());
  for (const std::string_view merge : input.merges) merges.String(merge);
  metadata.push_back(merges);
  return kvant::test::File(metadata, {}, 0);
}

bool IsOneLine(std::string_view message) {
  return std::none_of(message.begin(), message.end(), [](char c) { return c >= 0 && c < ' '; });
}

// A stream shows equal text whatever pieces the bytes come in.
void CheckStream(std::string_view bytes) {
  kvant::Utf8Stream whole;
  std::string expected = whole.Push(bytes);
  expected += whole.Finish();
  kvant::Utf8Stream parts;
  std::string shown;
  for (const char c : bytes) shown += parts.Push(std::string_view(&c, 1));
  shown += parts.Finish();
  Require(shown == expected);
}

// A text that is trimmed is the same token by token.
void CheckTrimmed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool special,
                  const std::string& expected) {
  kvant::TokenText text(tokenizer, {}, {.special = special, .ignore_end = true});
  std::string shown;
  for (const TokenId id : ids) text.Push(id, shown);
  Require(shown + text.Finish() == expected);
}

void CheckEncoding(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool add : {false, true}) {
    for (const bool parse : {false, true}) {
      const auto ids = tokenizer.Encode(text, {.add_special = add, .parse_special = parse});
      Require(ids.ok());
      std::string bytes;
      for (const TokenId id : *ids) {
        Require(id >= 0 && id < tokenizer.vocab_size());
        bytes += tokenizer.TokenBytes(id, {.special = parse});
      }
      const std::string decoded = tokenizer.Decode(*ids, {.special = parse});
      // Where texts are trimmed they are UTF-8, too: a byte that is none is replaced by three.
      Require(decoded.size() <= bytes.size() * (tokenizer.trims_texts() ? 3 : 1));
      CheckStream(bytes);
      if (tokenizer.trims_texts()) CheckTrimmed(tokenizer, *ids, parse, decoded);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Input input = ReadInput(std::string_view(reinterpret_cast<const char*>(data), size));
  const Bytes bytes = MakeFile(input);
  const auto file = GgufFile::Parse(bytes.span(), "fuzz");
  if (!file.ok()) return 0;
  const auto tokenizer = Tokenizer::Create(*file);
  if (!tokenizer.ok()) {
    Require(tokenizer.error().message.starts_with("fuzz: ") &&
            IsOneLine(tokenizer.error().message));
    return 0;
  }
  CheckEncoding(**tokenizer, input.text);
  return 0;
}
