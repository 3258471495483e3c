// The calls of kvant/kvant.h on tokenizers, streams of text and chat templates.
#include "engine/capi/handles.h"
#include "formats/gguf.h"
#include "kvant/prompt.h"

namespace kvant::capi {
namespace {

constexpr kvant_template_options kTemplateDefaults = {
    .struct_size = sizeof(kvant_template_options),
    .add_generation_prompt = 1,
    .enable_thinking = -1,
    .tools = nullptr,
    .variables = nullptr,
    .now = INT64_MIN,
};

// A tokenizer without a model, and the file that its pieces lie in.
struct FileTokenizer {
  explicit FileTokenizer(formats::GgufFile opened) : file(std::move(opened)) {}
  formats::GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
};

DecodeOptions DecodeFlags(uint32_t flags) { return {.special = (flags & KVANT_SHOW_SPECIAL) != 0}; }

Status CheckFlags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return MakeError(ErrorCode::kInvalid, "flags: expected a sum of flags in {}, found {}", known,
                   flags);
}

Status CheckToken(const Tokenizer& tokenizer, kvant_token token) {
  if (token >= 0 && token < tokenizer.vocab_size()) return {};
  return MakeError(ErrorCode::kInvalid, "token: expected 0 to {}, found {}",
                   tokenizer.vocab_size() - 1, token);
}

Status GiveTokens(const std::vector<TokenId>& ids, kvant_token** tokens, size_t* count) {
  *tokens = Copy<kvant_token>(ids);
  *count = ids.size();
  return {};
}

Status GiveText(std::string_view bytes, char** text, size_t* size) {
  *text = CopyText(bytes);
  if (size != nullptr) *size = bytes.size();
  return {};
}

Status GiveTemplate(const kvant_model& model, Result<ChatTemplate> made, kvant_template** out) {
  KVANT_ASSIGN(ChatTemplate chat_template, std::move(made));
  return Give(
      out, std::make_unique<kvant_template>(kvant_template{model.model, std::move(chat_template)}));
}

Result<ChatText> Render(const kvant_template* handle, const char* messages, size_t size,
                        const kvant_template_options* options) {
  KVANT_TRY(Need(handle, "template"));
  KVANT_ASSIGN(const std::string_view text, Text(messages, size, "messages"));
  KVANT_ASSIGN(const ChatRenderOptions render, ReadRender(options));
  return handle->chat_template.RenderJson(text, render);
}

Status ShowPiece(kvant_text_stream& stream, const char** piece, size_t* size) {
  *piece = stream.piece.c_str();
  if (size != nullptr) *size = stream.piece.size();
  return {};
}

}  // namespace

Result<ChatRenderOptions> ReadRender(const kvant_template_options* options) {
  KVANT_ASSIGN(const auto given, ReadStruct(options, kTemplateDefaults, "template options"));
  ChatRenderOptions render;
  render.add_generation_prompt = given.add_generation_prompt != 0;
  render.tools = TextOrNone(given.tools);
  render.variables = TextOrNone(given.variables);
  if (given.enable_thinking >= 0) render.enable_thinking = given.enable_thinking != 0;
  if (given.now != INT64_MIN) render.now = given.now;
  return render;
}

}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

// ---- Tokenizers ---------------------------------------------------------------------------------

kvant_status kvant_tokenizer_of_model(const kvant_model* model, kvant_tokenizer** tokenizer) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    const std::shared_ptr<const Tokenizer> shared(model->model, &model->model->tokenizer());
    return Give(tokenizer, std::make_unique<kvant_tokenizer>(kvant_tokenizer{shared}));
  });
}

kvant_status kvant_tokenizer_open(const char* path, kvant_tokenizer** tokenizer) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    *tokenizer = nullptr;
    KVANT_TRY(Need(path, "path"));
    KVANT_ASSIGN(auto file, formats::GgufFile::Open(path, FileAccess::kMap,
                                                    formats::UnreadableTensors::kListed));
    const auto both = std::make_shared<FileTokenizer>(std::move(file));
    KVANT_ASSIGN(both->tokenizer, Tokenizer::Create(both->file));
    const std::shared_ptr<const Tokenizer> shared(both, both->tokenizer.get());
    return Give(tokenizer, std::make_unique<kvant_tokenizer>(kvant_tokenizer{shared}));
  });
}

void kvant_tokenizer_free(kvant_tokenizer* tokenizer) { Free(tokenizer); }

kvant_status kvant_tokenizer_get_info(const kvant_tokenizer* tokenizer,
                                      kvant_tokenizer_info* info) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    const SpecialTokens& special = tokenizer->tokenizer->special();
    kvant_tokenizer_info values = {};
    values.kind = tokenizer->tokenizer->kind();
    values.vocab_size = tokenizer->tokenizer->vocab_size();
    values.bos = special.bos.value_or(-1);
    values.eos = special.eos.value_or(-1);
    values.eot = special.eot.value_or(-1);
    values.unk = special.unk.value_or(-1);
    values.sep = special.sep.value_or(-1);
    values.pad = special.pad.value_or(-1);
    values.mask = special.mask.value_or(-1);
    values.cls = special.cls.value_or(-1);
    values.add_bos = special.add_bos ? 1 : 0;
    values.add_eos = special.add_eos ? 1 : 0;
    return WriteStruct(info, values, "info");
  });
}

kvant_status kvant_tokenizer_encode(const kvant_tokenizer* tokenizer, const char* text, size_t size,
                                    uint32_t flags, kvant_token** tokens, size_t* count) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(tokens, "tokens"));
    KVANT_TRY(Need(count, "count"));
    KVANT_TRY(CheckFlags(flags, KVANT_ADD_SPECIAL | KVANT_PARSE_SPECIAL));
    KVANT_ASSIGN(const std::string_view given, Text(text, size, "text"));
    KVANT_ASSIGN(const auto ids, tokenizer->tokenizer->Encode(
                                     given, {.add_special = (flags & KVANT_ADD_SPECIAL) != 0,
                                             .parse_special = (flags & KVANT_PARSE_SPECIAL) != 0}));
    return GiveTokens(ids, tokens, count);
  });
}

kvant_status kvant_tokenizer_prompt(const kvant_tokenizer* tokenizer, const char* text, size_t size,
                                    kvant_token** tokens, size_t* count) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(tokens, "tokens"));
    KVANT_TRY(Need(count, "count"));
    KVANT_ASSIGN(const std::string_view given, Text(text, size, "text"));
    KVANT_ASSIGN(const auto ids, PromptTokens(*tokenizer->tokenizer, given));
    return GiveTokens(ids, tokens, count);
  });
}

kvant_status kvant_tokenizer_decode(const kvant_tokenizer* tokenizer, const kvant_token* tokens,
                                    size_t count, uint32_t flags, char** text, size_t* size) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(text, "text"));
    KVANT_TRY(CheckFlags(flags, KVANT_SHOW_SPECIAL));
    KVANT_ASSIGN(const auto ids, Array(tokens, count, "tokens"));
    for (const kvant_token id : ids) KVANT_TRY(CheckToken(*tokenizer->tokenizer, id));
    return GiveText(tokenizer->tokenizer->Decode(ids, DecodeFlags(flags)), text, size);
  });
}

kvant_status kvant_tokenizer_token_bytes(const kvant_tokenizer* tokenizer, kvant_token token,
                                         uint32_t flags, char** bytes, size_t* size) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(bytes, "bytes"));
    KVANT_TRY(CheckFlags(flags, KVANT_SHOW_SPECIAL));
    KVANT_TRY(CheckToken(*tokenizer->tokenizer, token));
    return GiveText(tokenizer->tokenizer->TokenBytes(token, DecodeFlags(flags)), bytes, size);
  });
}

const char* kvant_tokenizer_piece(const kvant_tokenizer* tokenizer, kvant_token token,
                                  size_t* size) {
  if (size != nullptr) *size = 0;
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->tokenizer->vocab_size()) {
    return nullptr;
  }
  const std::string_view piece = tokenizer->tokenizer->piece(token);
  if (size != nullptr) *size = piece.size();
  return piece.data() == nullptr ? "" : piece.data();
}

uint32_t kvant_tokenizer_flags(const kvant_tokenizer* tokenizer, kvant_token token) {
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->tokenizer->vocab_size()) return 0;
  uint32_t flags = 0;
  if (tokenizer->tokenizer->is_control(token)) flags |= KVANT_IS_CONTROL;
  if (tokenizer->tokenizer->is_end_of_generation(token)) flags |= KVANT_IS_END;
  return flags;
}

// ---- Streams ------------------------------------------------------------------------------------

kvant_status kvant_text_stream_new(const kvant_tokenizer* tokenizer, const char* const* stop_texts,
                                   size_t count, uint32_t flags, kvant_text_stream** stream) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(stream, "stream"));
    KVANT_TRY(CheckFlags(flags, KVANT_SHOW_SPECIAL | KVANT_IGNORE_END));
    KVANT_ASSIGN(const auto stops, ReadTexts(stop_texts, count, "stop_texts"));
    const TokenText::Options options{.special = (flags & KVANT_SHOW_SPECIAL) != 0,
                                     .ignore_end = (flags & KVANT_IGNORE_END) != 0};
    return Give(stream,
                std::make_unique<kvant_text_stream>(kvant_text_stream{
                    tokenizer->tokenizer, TokenText(*tokenizer->tokenizer, stops, options), {}}));
  });
}

void kvant_text_stream_free(kvant_text_stream* stream) { Free(stream); }

kvant_status kvant_text_stream_push(kvant_text_stream* stream, kvant_token token,
                                    const char** piece, size_t* size, kvant_stream_state* state) {
  return Call(stream, [&]() -> Status {
    KVANT_TRY(Need(stream, "stream"));
    KVANT_TRY(Need(piece, "piece"));
    if (token < 0)
      return MakeError(ErrorCode::kInvalid, "token: expected 0 or more, found {}", token);
    stream->piece.clear();
    const TokenText::State now = stream->text.Push(token, stream->piece);
    if (state != nullptr) *state = static_cast<kvant_stream_state>(now);
    return ShowPiece(*stream, piece, size);
  });
}

kvant_status kvant_text_stream_finish(kvant_text_stream* stream, const char** piece, size_t* size) {
  return Call(stream, [&]() -> Status {
    KVANT_TRY(Need(stream, "stream"));
    KVANT_TRY(Need(piece, "piece"));
    stream->piece = stream->text.Finish();
    return ShowPiece(*stream, piece, size);
  });
}

// ---- Chat templates -----------------------------------------------------------------------------

kvant_status kvant_template_options_default(kvant_template_options* options, size_t size) {
  return FillDefault(options, size, kTemplateDefaults);
}

kvant_status kvant_template_of_model(const kvant_model* model, kvant_template** out) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(out, "out"));
    return GiveTemplate(*model, ChatTemplate::OfModel(*model->model), out);
  });
}

kvant_status kvant_template_named(const kvant_model* model, const char* name_or_path,
                                  kvant_template** out) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(name_or_path, "name_or_path"));
    KVANT_TRY(Need(out, "out"));
    return GiveTemplate(*model, ChatTemplate::Named(*model->model, name_or_path), out);
  });
}

kvant_status kvant_template_parse(const kvant_model* model, const char* name, const char* source,
                                  size_t size, kvant_template** out) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(name, "name"));
    KVANT_TRY(Need(out, "out"));
    KVANT_ASSIGN(const std::string_view text, Text(source, size, "source"));
    return GiveTemplate(*model, ChatTemplate::Parse(*model->model, name, text), out);
  });
}

void kvant_template_free(kvant_template* chat_template) { Free(chat_template); }

kvant_status kvant_template_render(const kvant_template* chat_template, const char* messages,
                                   size_t messages_size, const kvant_template_options* options,
                                   char** text, size_t* size) {
  return Call(chat_template, [&]() -> Status {
    KVANT_TRY(Need(text, "text"));
    KVANT_ASSIGN(const ChatText out, Render(chat_template, messages, messages_size, options));
    return GiveText(out.text, text, size);
  });
}

kvant_status kvant_template_tokens(const kvant_template* chat_template, const char* messages,
                                   size_t messages_size, const kvant_template_options* options,
                                   kvant_token** tokens, size_t* count) {
  return Call(chat_template, [&]() -> Status {
    KVANT_TRY(Need(tokens, "tokens"));
    KVANT_TRY(Need(count, "count"));
    KVANT_ASSIGN(const ChatText out, Render(chat_template, messages, messages_size, options));
    KVANT_ASSIGN(const auto ids, chat_template->chat_template.Tokens(out));
    return GiveTokens(ids, tokens, count);
  });
}
