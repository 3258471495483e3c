// kvant tokenize: text to token ids and back, with the model's own vocabulary.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tools/commands.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kTokenizeHelp = {
    "MODEL [-p TEXT | -f FILE | -] [OPTIONS]",
    "Prints the token ids of a text on one line, separated by spaces. The text is taken as it is,\n"
    "nothing is trimmed; an empty text gives an empty line. No BOS is added unless asked. The "
    "file\n"
    "may hold a vocabulary alone. With --decode, ids become text again: the text that was "
    "tokenized,\n"
    "byte for byte, if the vocabulary can spell it. What it cannot spell is lost, and a note says "
    "so.\n"
    "Uncased BERT (WordPiece) forgets case, accents and white space, too, and some vocabularies\n"
    "compose accents (Unicode NFC).",
    "  kvant tokenize model.gguf -p \"Hello world\"\n"
    "  kvant tokenize model.gguf -f book.txt | wc -w\n"
    "  kvant tokenize model.gguf --special -p \"<|im_start|>user\"\n"
    "  echo \"15043 3186\" | kvant tokenize model.gguf --decode -\n",
};

struct TokenizeOptions {
  ModelGroup model;
  TextGroup text;
  bool json = false;
  bool bos = false;
  bool special = false;
  bool decode = false;
  bool target = false;
};

// Ids separated by white space or commas, brackets around them allowed.
Result<std::vector<TokenId>> ParseIds(std::string_view text, int32_t vocab_size) {
  std::vector<TokenId> ids;
  while (true) {
    const size_t begin = text.find_first_not_of(" \t\r\n,[]");
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n,[]"));
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id >= vocab_size) {
      return MakeError(ErrorCode::kInvalid, "--decode: expected token ids from 0 to {}, found '{}'",
                       vocab_size - 1, word.substr(0, 40));
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

// --bos means what a model sees in front of a prompt: BOS, or whatever its metadata adds.
Result<Encoding> Encode(const Tokenizer& tokenizer, const std::string& text,
                        const TokenizeOptions& options) {
  const SpecialTokens& special = tokenizer.special();
  EncodeOptions encode;
  encode.parse_special = options.special;
  encode.add_special = options.bos && (special.add_bos || special.cls.has_value());
  KVANT_ASSIGN(Encoding out, tokenizer.EncodeAndCount(text, encode));
  if (options.bos && !encode.add_special) {
    if (!special.bos.has_value()) {
      return MakeError(ErrorCode::kInvalid, "--bos: this vocabulary has no BOS token");
    }
    out.ids.insert(out.ids.begin(), *special.bos);
  }
  return out;
}

std::string ToJson(const Tokenizer& tokenizer, const Encoding& encoding) {
  Json out;
  out["count"] = encoding.ids.size();
  out["ids"] = encoding.ids;
  out["pieces"] = Json::array();
  for (const TokenId id : encoding.ids) {
    out["pieces"].push_back(tokenizer.TokenBytes(id, {.special = true}));
  }
  out["unknown_characters"] = encoding.unknown_characters;
  return Dump(out) + "\n";
}

Status Decode(const Tokenizer& tokenizer, const std::string& text, const TokenizeOptions& options,
              ResultStream& out) {
  KVANT_ASSIGN(const auto ids, ParseIds(text, tokenizer.vocab_size()));
  const auto unknown = std::count(ids.begin(), ids.end(), tokenizer.special().unk);
  if (unknown > 0) {
    Note(fmt::format("{} of the {} ids {} the unknown token: the text that {} for is lost", unknown,
                     ids.size(), unknown == 1 ? "is" : "are",
                     unknown == 1 ? "it stands" : "they stand"));
  }
  const std::string decoded = tokenizer.Decode(ids, {.special = options.special});
  if (options.json) {
    const Json object = {{"text", decoded}, {"unknown_tokens", unknown}};
    out.Write(Dump(object) + "\n");
  } else {
    out.Write(decoded);
    out.EndLineOnTerminal();
  }
  return {};
}

Status Tokenize(const TokenizeOptions& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.text.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "no text given: use -p TEXT, -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(positionals.model, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  KVANT_ASSIGN(auto tokenizer, Tokenizer::Create(file, options.model.Options().tokenizer));
  KVANT_ASSIGN(auto target, Tokenizer::CreateTarget(file));
  if (target != nullptr && (options.target || options.decode)) tokenizer = std::move(target);
  if (options.decode) return Decode(*tokenizer, *text, options, out);
  KVANT_ASSIGN(const Encoding encoding, Encode(*tokenizer, *text, options));
  if (encoding.unknown_characters > 0) {
    Note(
        fmt::format("the vocabulary cannot spell {} of the text's characters: --decode will not "
                    "give {} back",
                    encoding.unknown_characters, encoding.unknown_characters == 1 ? "it" : "them"));
  }
  out.Write(options.json ? ToJson(*tokenizer, encoding)
                         : fmt::format("{}\n", fmt::join(encoding.ids, " ")));
  return {};
}

}  // namespace

int TokenizeCommand(CommandLine& line) {
  TokenizeOptions options;
  OptionList list;
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.text.Add(list, "Text", "text, or the ids to decode");
  list.Group("Tokens");
  list.Flag("--bos", &options.bos, "Put BOS (or what the vocabulary uses) in front");
  list.Flag("--special", &options.special,
            "Read control tokens such as <|im_end|> in the text; with --decode, show them");
  list.Flag("--decode", &options.decode, "Turn ids into text");
  list.Flag(
      "--target", &options.target,
      "For translators: read the text as a translation, not as a source; --decode always does");
  list.Group("Output");
  list.Flag("--json", &options.json,
            "Print one JSON object: count, ids, pieces, unknown_characters");
  if (const auto code = line.Parse(list, kTokenizeHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  const Status status = Tokenize(options, positionals, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
