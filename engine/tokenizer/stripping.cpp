#include "engine/tokenizer/stripping.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string>

#include "engine/tokenizer/kinds.h"

namespace kvant {
namespace {

enum class Side : uint8_t { kLeft, kRight };
enum class Tokens : uint8_t { kTheseOnly, kAllButThese };

// A model has the first row whose `name` it bears.
struct StrippingRow {
  enum class Name : uint8_t { kPreTokenizer, kWithinModelName };
  Name kind;
  std::string_view name;
  Side side;
  Tokens which;
  std::span<const std::string_view> tokens;
};

constexpr std::string_view kMask[] = {"<mask>"};
constexpr std::string_view kPhi3Plain[] = {"<unk>", "<s>", "<|endoftext|>"};

using enum StrippingRow::Name;

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

void MarkStripping(const formats::GgufFile& file, std::string_view pre,
                   std::vector<SpecialToken>& tokens) {
  const std::string model = LowerModelName(file);
  const auto* row = std::find_if(
      std::begin(kStrippingRows), std::end(kStrippingRows), [&](const StrippingRow& r) {
        return r.kind == kPreTokenizer ? pre == r.name : model.find(r.name) != std::string::npos;
      });
  if (row == std::end(kStrippingRows)) return;
  for (SpecialToken& token : tokens) {
    const bool is_listed =
        std::find(row->tokens.begin(), row->tokens.end(), token.text) != row->tokens.end();
    const bool strips = is_listed == (row->which == Tokens::kTheseOnly);
    (row->side == Side::kLeft ? token.strip_left : token.strip_right) = strips;
  }
}

}  // namespace kvant
