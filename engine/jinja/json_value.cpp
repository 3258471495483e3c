// JSON as values. The tree is built from the events of nlohmann's parser, which keeps its own
// stack.
#include <nlohmann/json.hpp>

#include "engine/jinja/template.h"

namespace kvant::jinja {
namespace {

class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value& root() { return root_; }
  const std::string& error() const { return error_; }

  bool null() override { return Place(Value(None{})); }
  bool boolean(bool value) override { return Place(Value(value)); }
  bool number_integer(number_integer_t value) override { return Place(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return Place(Value(Whole{value})); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) return TooLarge();
    return Place(Value(double{value}));
  }
  bool string(string_t& value) override { return Place(Value(Text::Foreign(std::move(value)))); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return Open(true); }
  bool start_array(std::size_t) override { return Open(false); }
  bool key(string_t& value) override {
    open_.back().key = Value(Text::Foreign(std::move(value)));
    return true;
  }
  bool end_object() override {
    auto dict = open_.back().members.Finish();
    return Close(std::move(dict));
  }
  bool end_array() override {
    auto list = Value::Make(Sequence::Kind::kList, std::move(open_.back().items));
    return Close(std::move(list));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  struct Container {
    bool is_object = false;
    Value key;
    DictBuilder members;
    std::vector<Value> items;
  };

  bool TooLarge() {
    error_ = "a whole number has more than 64 bits";
    return false;
  }
  bool Open(bool value) {
    if (open_.size() == size_t{kJsonValueDepthMax}) {
      error_ = fmt::format("JSON is nested deeper than {} levels", kJsonValueDepthMax);
      return false;
    }
    open_.emplace_back();
    open_.back().is_object = value;
    return true;
  }
  bool Close(Result<Value> made) {
    open_.pop_back();
    if (made.ok()) return Place(std::move(made).value());
    error_ = made.error().message;
    return false;
  }
  bool Place(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Container& container = open_.back();
    if (container.is_object) return container.members.Set(container.key, std::move(value)).ok();
    container.items.push_back(std::move(value));
    return true;
  }

  Value root_;
  std::vector<Container> open_;
  std::string error_;
};

}  // namespace

Result<Value> ValueOfJson(std::string_view json, const std::string& what) {
  ValueBuilder builder;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) {
    return Wrong("{}: {}", what, builder.error());
  }
  return builder.root();
}

}  // namespace kvant::jinja
