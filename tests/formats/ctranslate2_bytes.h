// Builds model.bin of CTranslate2 for the tests from the format's description, independently of the
// reader.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace kvant::test {

struct CTranslate2Variable {
  std::string name;
  std::vector<uint32_t> shape;
  uint8_t type = 0;  // F32, I8, I16, I32, F16, BF16; before version 4 the bytes of a value
  std::string bytes;
};

class CTranslate2Builder {
 public:
  uint32_t version = 6;
  std::string spec = "TransformerSpec";
  uint32_t revision = 7;
  std::vector<CTranslate2Variable> variables;
  std::vector<std::pair<std::string, std::string>> aliases;

  CTranslate2Builder& AddF32(const std::string& name, std::vector<uint32_t> shape,
                             const std::vector<float>& values) {
    variables.push_back(
        {name, std::move(shape), static_cast<uint8_t>(version < 4 ? 4 : 0), Raw(values)});
    return *this;
  }
  CTranslate2Builder& AddI8(const std::string& name, std::vector<uint32_t> shape,
                            const std::vector<int8_t>& values) {
    variables.push_back({name, std::move(shape), 1, Raw(values)});
    return *this;
  }

  CTranslate2Variable& operator[](const std::string& name) {
    for (CTranslate2Variable& variable : variables) {
      if (variable.name == name) return variable;
    }
    return variables.emplace_back(CTranslate2Variable{name, {}, 1, std::string(1, '\0')});
  }
  bool Has(const std::string& name) const {
    return std::any_of(variables.begin(), variables.end(),
                       [&](const auto& variable) { return variable.name == name; });
  }
  void Remove(const std::string& name) {
    std::erase_if(variables, [&](const auto& variable) { return variable.name == name; });
    std::erase_if(aliases, [&](const auto& alias) { return alias.first == name; });
  }

  template <class T>
  static std::string Raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  template <class T>
  static std::string RawNumber(T number) {
    return Raw(std::vector<T>{number});
  }

  std::string Bytes() const {
    std::string out = RawNumber(version);
    out += Text(spec) + RawNumber(revision);
    out += RawNumber(static_cast<uint32_t>(variables.size()));
    for (const CTranslate2Variable& variable : variables) {
      out += Text(variable.name) + static_cast<char>(variable.shape.size());
      out += Raw(variable.shape) + static_cast<char>(variable.type);
      const size_t unit = version < 4 ? variable.type : 1;
      out += RawNumber(static_cast<uint32_t>(variable.bytes.size() / unit)) + variable.bytes;
    }
    if (version < 3) return out;
    out += RawNumber(static_cast<uint32_t>(aliases.size()));
    for (const auto& [alias, name] : aliases) out += Text(alias) + Text(name);
    return out;
  }

  void Write(const std::string& path) const { std::ofstream(path, std::ios::binary) << Bytes(); }

 private:
  static std::string Text(const std::string& text) {
    return RawNumber(static_cast<uint16_t>(text.size() + 1)) + text + '\0';
  }
};

}  // namespace kvant::test
