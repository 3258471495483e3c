#include "engine/tokenizer/token_flags.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <string>

#include "engine/tokenizer/kinds.h"

namespace kvant {

// A model has the first row whose `name` it bears.
struct StrippingRow {
  enum class Bearer : uint8_t { kPreTokenizer, kWithinModelName };
  enum class Side : uint8_t { kLeft, kRight };
  enum class Tokens : uint8_t { kTheseOnly, kAllButThese };
  Bearer bearer;
  std::string_view name;
  Side side;
  Tokens which;
  std::span<const std::string_view> tokens;
};

namespace {

constexpr std::string_view kMask[] = {"<mask>"};
constexpr std::string_view kPhi3Plain[] = {"<unk>", "<s>", "<|endoftext|>"};

using enum StrippingRow::Bearer;
using Side = StrippingRow::Side;
using Tokens = StrippingRow::Tokens;

constexpr StrippingRow kStrippingRows[] = {
    {kPreTokenizer, "jina-v2-de", Side::kLeft, Tokens::kTheseOnly, kMask},
    {kPreTokenizer, "jina-v2-es", Side::kLeft, Tokens::kTheseOnly, kMask},
    {kPreTokenizer, "jina-v2-code", Side::kLeft, Tokens::kTheseOnly, kMask},
    {kPreTokenizer, kMaskedPiecesPre, Side::kLeft, Tokens::kTheseOnly, kMask},
    {kWithinModelName, "phi-3", Side::kRight, Tokens::kAllButThese, kPhi3Plain},
    {kWithinModelName, "phi 3", Side::kRight, Tokens::kAllButThese, kPhi3Plain},
    {kWithinModelName, "phi3", Side::kRight, Tokens::kAllButThese, kPhi3Plain},
};

std::string LowerModelName(const formats::GgufFile& file) {
  std::string name;
  if (const auto value = file.GetString("general.name"); value.ok() && *value) {
    name = std::string(**value);
  }
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

Result<TokenFlags> TokenFlags::Read(const VocabularyKeys& keys, std::string_view pre,
                                    size_t vocab) {
  TokenFlags flags;
  const formats::GgufFile& file = keys.file();
  bool has_keys = false;
  for (size_t i = 0; i < kTokenFlagKeys.size() && keys.prefix() == kVocabularyPrefix; ++i) {
    KVANT_ASSIGN(const formats::GgufArray* ids,
                 file.GetArray(kTokenFlagKeys[i], formats::GgufType::kInt32));
    if (ids == nullptr) continue;
    has_keys = true;
    for (uint64_t k = 0; k < ids->count; ++k) {
      int32_t id = 0;
      std::memcpy(&id, ids->data + k * sizeof id, sizeof id);
      if (id < 0 || static_cast<size_t>(id) >= vocab) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is {}, but the vocabulary has {} tokens",
                         file.path(), kTokenFlagKeys[i], k, id, vocab);
      }
      flags.ids_[i].push_back(id);
    }
    std::ranges::sort(flags.ids_[i]);
  }
  if (has_keys) return flags;
  const std::string model = LowerModelName(file);
  const auto* row = std::ranges::find_if(kStrippingRows, [&](const StrippingRow& r) {
    return r.bearer == kPreTokenizer ? pre == r.name : model.find(r.name) != std::string::npos;
  });
  if (row != std::end(kStrippingRows)) flags.row_ = row;
  return flags;
}

bool TokenFlags::Has(TokenFlag flag, TokenId id) const {
  return std::ranges::binary_search(ids_[static_cast<size_t>(flag)], id);
}

bool TokenFlags::HasAny(TokenId id) const {
  return std::ranges::any_of(ids_,
                             [id](const auto& ids) { return std::ranges::binary_search(ids, id); });
}

void TokenFlags::Mark(SpecialToken& token) const {
  token.strip_left = Has(TokenFlag::kStripLeft, token.id);
  token.strip_right = Has(TokenFlag::kStripRight, token.id);
  token.single_word = Has(TokenFlag::kSingleWord, token.id);
  if (row_ == nullptr) return;
  const bool is_listed = std::ranges::find(row_->tokens, token.text) != row_->tokens.end();
  const bool strips = is_listed == (row_->which == Tokens::kTheseOnly);
  (row_->side == Side::kLeft ? token.strip_left : token.strip_right) = strips;
}

}  // namespace kvant
