#include "tools/serve/answer/vector_format.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <iterator>

namespace kvant::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are in the host's byte order");

void AppendVector(std::span<const float> values, std::string& text) {
  text += '[';
  for (const float value : values) {
    if (text.back() != '[') text += ',';
    fmt::format_to(std::back_inserter(text), "{}", value);
  }
  text += ']';
}

// RFC 4648, with '=' at the end.
void AppendBase64(std::span<const std::byte> bytes, std::string& text) {
  constexpr std::string_view kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr size_t kGroup = 3;
  for (size_t i = 0; i < bytes.size(); i += kGroup) {
    const auto rest = bytes.subspan(i);
    uint32_t bits = 0;
    for (size_t j = 0; j < kGroup; ++j) {
      bits = bits << 8 | (j < rest.size() ? std::to_integer<uint32_t>(rest[j]) : 0);
    }
    for (size_t j = 0; j <= kGroup; ++j) {
      text += j <= rest.size() ? kSigns[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
}

std::string UsageText(int64_t tokens) {
  return fmt::format("\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}}", tokens);
}

std::string QuotedText(std::string_view text) { return Dump(Json(std::string(text))); }

}  // namespace

std::string EmbeddingsText(const AnsweredVectors& vectors, VectorEncoding encoding,
                           std::string_view model, int64_t tokens) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  const size_t columns = vectors.values.size() / vectors.rows.size();
  for (size_t i = 0; i < vectors.rows.size(); ++i) {
    const auto vector = vectors.values.subspan(i * columns, columns);
    fmt::format_to(std::back_inserter(out),
                   "{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i > 0 ? "," : "", i);
    if (encoding == VectorEncoding::kBase64) {
      out += '"';
      AppendBase64(std::as_bytes(vector), out);
      out += '"';
    } else {
      AppendVector(vector, out);
    }
    out += '}';
  }
  return out + "],\"model\":" + QuotedText(model) + "," + UsageText(tokens) + "}";
}

std::string RowsText(const AnsweredVectors& vectors) {
  int64_t all = 0;
  for (const int64_t rows : vectors.rows) all += rows;
  const size_t columns = vectors.values.size() / static_cast<size_t>(all);
  std::string out = "[";
  std::span<const float> rest = vectors.values;
  for (size_t i = 0; i < vectors.rows.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},\"embedding\":[", i > 0 ? "," : "",
                   i);
    for (int64_t row = 0; row < vectors.rows[i]; ++row) {
      if (row > 0) out += ',';
      AppendVector(rest.first(columns), out);
      rest = rest.subspan(columns);
    }
    out += "]}";
  }
  return out + "]";
}

std::string RankingText(std::span<const RankedDocument> ranked,
                        std::span<const std::string> documents, DocumentUse use,
                        std::string_view model, int64_t tokens) {
  std::string out = "{\"object\":\"list\",\"results\":[";
  for (const RankedDocument& one : ranked) {
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},\"relevance_score\":{}",
                   out.back() == '[' ? "" : ",", one.index, one.score);
    if (use == DocumentUse::kShown) {
      const std::string text = QuotedText(documents[static_cast<size_t>(one.index)]);
      out += ",\"document\":{\"text\":" + text + "}";
    }
    out += '}';
  }
  return out + "],\"model\":" + QuotedText(model) + "," + UsageText(tokens) + "}";
}

std::string ScoresText(std::span<const RankedDocument> ranked,
                       std::span<const std::string> documents, DocumentUse use) {
  std::string out = "[";
  for (const RankedDocument& one : ranked) {
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},\"score\":{}",
                   out.back() == '[' ? "" : ",", one.index, one.score);
    if (use == DocumentUse::kShown) {
      out += ",\"text\":" + QuotedText(documents[static_cast<size_t>(one.index)]);
    }
    out += '}';
  }
  return out + "]";
}

}  // namespace kvant::tools
