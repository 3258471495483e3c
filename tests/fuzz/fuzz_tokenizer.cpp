// Fuzzes the tokenizers: a vocabulary and a text, both from the input. Whatever they are, the
// vocabulary is refused in one clean line, or every text becomes ids within it.
//
// The input is lines, so that seeds can be written by hand:
//   MODEL                 llama, gpt2, gemma4, bert, t5 or rwkv
//   PRE                   a pre-tokenizer
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

struct Input {
  std::string_view model;
  std::string_view pre;
  std::vector<std::string_view> pieces;
  std::vector<int32_t> types;
  std::vector<float> scores;
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
  while (!rest.empty()) {
    const std::string_view line = next_line();
    if (line == "=") break;
    if (line.starts_with('+')) {
      input.merges.push_back(line.substr(1));
    } else if (line.starts_with('#')) {
      AppendHex(line.substr(1), input.charsmap);
    } else if (line == "^") {
      input.add_space_prefix = true;
    } else if (line == "~") {
      input.merge_spaces = true;
    } else if (line.size() >= 2) {
      input.types.push_back(line[0] - '0');
      input.scores.push_back(static_cast<float>(line[1]));
      input.pieces.push_back(line.substr(2));
    }
  }
  input.text = rest;
  return input;
}

Bytes MakeFile(const Input& input) {
  using kvant::test::ArrayEntry;
  using kvant::test::Key;
  Bytes tokens = ArrayEntry("tokenizer.ggml.tokens", GgufType::kString, input.pieces.size());
  for (const std::string_view piece : input.pieces) tokens.String(piece);
  Bytes types = ArrayEntry("tokenizer.ggml.token_type", GgufType::kInt32, input.types.size());
  for (const int32_t type : input.types) types.Number(type);
  Bytes scores = ArrayEntry("tokenizer.ggml.scores", GgufType::kFloat32, input.scores.size());
  for (const float score : input.scores) scores.Number(score);
  Bytes merges = ArrayEntry("tokenizer.ggml.merges", GgufType::kString, input.merges.size());
  for (const std::string_view merge : input.merges) merges.String(merge);
  std::vector<Bytes> metadata = {Key("tokenizer.ggml.model", GgufType::kString).String(input.model),
                                 Key("tokenizer.ggml.pre", GgufType::kString).String(input.pre),
                                 tokens,
                                 types,
                                 scores,
                                 merges};
  if (!input.charsmap.empty()) {
    metadata.push_back(
        ArrayEntry("tokenizer.ggml.precompiled_charsmap", GgufType::kUint8, input.charsmap.size()));
    for (const uint8_t byte : input.charsmap) metadata.back().Number(byte);
  }
  const auto flag = [&](std::string_view key) {
    metadata.push_back(Key(key, GgufType::kBool).Number(uint8_t{1}));
  };
  if (input.add_space_prefix) flag("tokenizer.ggml.add_space_prefix");
  if (input.merge_spaces) flag("tokenizer.ggml.remove_extra_whitespaces");
  return kvant::test::File(metadata, {}, 0);
}

bool IsOneLine(std::string_view message) {
  return std::none_of(message.begin(), message.end(), [](char c) { return c >= 0 && c < ' '; });
}

// A stream shows the same whatever pieces the bytes come in.
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
      Require(tokenizer.Decode(*ids, {.special = parse}).size() <= bytes.size());
      CheckStream(bytes);
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
