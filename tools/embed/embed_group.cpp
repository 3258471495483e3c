#include "tools/embed/embed_group.h"

#include <fmt/format.h>

#include <utility>

#include "base/result.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

void EmbedGroup::Add(OptionList& list) {
  threads.AddThreads(list);
  threads.settings.Add(list, SessionTopic::kPlacement);
  list.Integer("-c,--ctx-size", &context, {1, std::numeric_limits<int32_t>::max()},
               "Most tokens of a text", "as many as the model has");
  list.Flag("--truncate", &truncate,
            "Cut texts of more tokens than that; without it they are an error");
  list.Integer("-b,--batch-size", &batch, {1, 1 << 20},
               "Tokens of short texts that are computed together; no result depends on it");
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
}

Result<std::unique_ptr<Embedder>> EmbedGroup::Open(const std::string& path,
                                                   std::optional<Pooling> pooling) const {
  KVANT_ASSIGN(const SessionOptions asked, threads.settings.Options());
  KVANT_ASSIGN(auto opened, Model::Open(path, model.Options()));
  return Embedder::Create(std::move(opened), {.threads = asked.threads,
                                              .placement = asked.placement,
                                              .context = context.value_or(0),
                                              .batch_tokens = batch,
                                              .pooling = pooling,
                                              .cancel = &CancelFlag()});
}

Error At(const InputText& text, const Error& error) {
  return {error.code, fmt::format("{}: {}", text.where, error.message)};
}

}  // namespace kvant::tools
