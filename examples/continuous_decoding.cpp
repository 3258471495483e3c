// Appends a prompt, generates, goes back to a checkpoint and generates again: the second time gives
// the same tokens, since a rewound sequence is what it was.
//
//   continuous_decoding model.gguf "ROMEO:"
#include <kvant/session.h>
#include <kvant/tokenizer.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using kvant::TokenId;

// Appends the likeliest token; the error if it does not fit.
kvant::Status GenerateNextToken(kvant::Session& session) {
  const auto logits = session.logits();
  const auto likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
  const auto token = static_cast<TokenId>(likeliest);
  return session.Append({&token, 1});
}

kvant::Status Run(const std::string& path, const std::string& prompt) {
  KVANT_ASSIGN(const auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto session, kvant::Session::Create(model, {}));
  KVANT_ASSIGN(const auto tokens, model->tokenizer().Encode(prompt, {.add_special = true}));

  KVANT_TRY(session->Append(tokens));
  for (int i = 0; i < 10; ++i) KVANT_TRY(GenerateNextToken(*session));
  const int64_t checkpoint = session->length();

  const auto text_of = [&](int64_t first) {
    const auto all = session->tokens().subspan(static_cast<size_t>(first));
    return model->tokenizer().Decode({all.begin(), all.end()}, {.special = false});
  };
  std::vector<std::string> continuations;
  for (int time = 0; time < 2; ++time) {
    for (int i = 0; i < 5; ++i) KVANT_TRY(GenerateNextToken(*session));
    continuations.push_back(text_of(checkpoint));
    std::printf("%s\n--- %d tokens\n", text_of(0).c_str(), static_cast<int>(session->length()));
    KVANT_TRY(session->Rewind(checkpoint));
    KVANT_TRY(session->ComputeLogits());
  }
  if (continuations[0] == continuations[1]) return {};
  return kvant::Error{kvant::ErrorCode::kInvalid,
                      "'" + continuations[0] + "' became '" + continuations[1] + "'"};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: continuous_decoding MODEL PROMPT\n");
    return 2;
  }
  const kvant::Status status = Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "continuous_decoding: %s\n", status.error().message.c_str());
  return 1;
}
