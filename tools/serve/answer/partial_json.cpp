#include "tools/serve/answer/partial_json.h"

#include <string>

namespace kvant::tools {
namespace {

// Finds the last place at which all that is open could be closed.
class PlaceToClose {
 public:
  explicit PlaceToClose(std::string_view text) {
    for (at_ = 0; at_ < text.size(); ++at_) Take(text[at_]);
  }
  // The text up to there, and what closes it.
  std::string Closed(std::string_view text) const {
    return std::string(text.substr(0, end_)) +
           std::string(open_at_end_.rbegin(), open_at_end_.rend());
  }

 private:
  void Take(char c) {
    if (in_text_) return TakeOfText(c);
    switch (c) {
      case '"': in_text_ = true; break;
      case '{':
      case '[':
        open_ += c == '{' ? '}' : ']';
        is_value_ = c == '[';
        EndAt(at_ + 1);
        break;
      case '}':
      case ']':
        if (!open_.empty()) open_.pop_back();
        is_value_ = false;
        EndAt(at_ + 1);
        break;
      case ':': is_value_ = true; break;
      case ',':
        EndAt(at_);  // so that a number before it is whole
        is_value_ = open_.ends_with(']');
        break;
      default: break;
    }
  }

  void TakeOfText(char c) {
    if (is_escaped_ || c == '\\') {
      is_escaped_ = !is_escaped_;
    } else if (c == '"') {
      in_text_ = false;
      if (is_value_) EndAt(at_ + 1);
      is_value_ = false;
    }
  }

  void EndAt(size_t place) {
    end_ = place;
    open_at_end_ = open_;
  }

  size_t at_ = 0;
  std::string open_;  // what closes each object and array that is open
  bool in_text_ = false;
  bool is_escaped_ = false;
  bool is_value_ = false;  // a text here is a value, rather than a member's name
  size_t end_ = 0;
  std::string open_at_end_;
};

}  // namespace

Json WholePartOf(std::string_view text) {
  Json json = Json::parse(PlaceToClose(text).Closed(text), nullptr, false);
  return json.is_object() ? json : Json::object();
}

}  // namespace kvant::tools
