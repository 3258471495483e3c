// The fields of structs of options, for lists that have a row for each: the row then says where the
// number lies in C++ and in C, and the lists can assert that no field is forgotten.
//
// Thread-safety: constants and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace kvant {

// A flag (0 or 1), a choice (its number; -1: none) or a whole number of a struct. 64 bits without a
// sign keep their bits.
template <class Struct>
struct WholeField {
  int64_t (*get)(const Struct&);
  void (*set)(Struct&, int64_t);
};

template <class Value>
inline constexpr bool kIsOptional = false;
template <class Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;

// The member of a member: FieldAt(options, &SessionOptions::placement, &ThreadPlacement::pin).
template <class Struct, class Member, class... Deeper>
constexpr auto& FieldAt(Struct& options, Member member, Deeper... deeper) {
  if constexpr (sizeof...(deeper) == 0) {
    return options.*member;
  } else {
    return FieldAt(options.*member, deeper...);
  }
}

template <class Struct, auto... kPath>
inline constexpr WholeField<Struct> kWholeField = {
    .get = [](const Struct& options) -> int64_t {
      const auto& value = FieldAt(options, kPath...);
      if constexpr (kIsOptional<std::remove_cvref_t<decltype(value)>>) {
        return value.has_value() ? static_cast<int64_t>(*value) : -1;
      } else {
        return static_cast<int64_t>(value);
      }
    },
    .set =
        [](Struct& options, int64_t number) {
          auto& value = FieldAt(options, kPath...);
          using Value = std::remove_cvref_t<decltype(value)>;
          if constexpr (kIsOptional<Value>) {
            value.reset();
            if (number != -1) value = static_cast<Value::value_type>(number);
          } else {
            value = static_cast<Value>(number);
          }
        },
};

// Copies a number, flag or choice that has a field in both structs.
template <class Options, class InC>
struct CopiedField {
  void (*to_c)(const Options&, InC&);
  void (*from_c)(const InC&, Options&);
};

template <auto kOurs, auto kInC>
inline constexpr int kCopied = 0;  // pairs of members are below
template <class Options, class Value, class InC, class ValueInC, Value Options::*kOurs,
          ValueInC InC::*kInC>
inline constexpr CopiedField<Options, InC> kCopied<kOurs, kInC> = {
    .to_c = [](const Options& from, InC& to) { to.*kInC = static_cast<ValueInC>(from.*kOurs); },
    .from_c = [](const InC& from, Options& to) { to.*kOurs = static_cast<Value>(from.*kInC); },
};

struct AnyField {
  template <class Field>
  operator Field() const;  // NOLINT(google-explicit-constructor): stands for any field
};

// How many fields a struct without constructors has.
template <class Struct, class... Fields>
consteval size_t CountFields(Fields... fields) {
  if constexpr (requires { Struct{fields..., AnyField()}; }) {
    return CountFields<Struct>(fields..., AnyField());
  } else {
    return sizeof...(fields);
  }
}

}  // namespace kvant
