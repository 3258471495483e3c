// The code behind the lists of natives.h: each a function of a run, the value in front of it and
// its arguments. kInvalid for what Python refuses.
//
// Thread-safety: one run, one thread.
#pragma once

#include "engine/jinja/natives.h"

namespace kvant::jinja {

enum class SortOrder : uint8_t { kAscending, kDescending };
enum class LetterCase : uint8_t { kMatters, kIgnored };

using NativeCode = Result<Value>(Run& run, const Value& self, const Bound& arguments);

NativeCode DictCopy;
NativeCode DictGet;
NativeCode DictItems;
NativeCode DictKeys;
NativeCode DictValues;
NativeCode FilterAbs;
NativeCode FilterAttr;
NativeCode FilterBatch;
NativeCode FilterCapitalize;
NativeCode FilterCenter;
NativeCode FilterDefault;
NativeCode FilterDictSort;
NativeCode FilterEscape;
NativeCode FilterFirst;
NativeCode FilterFloat;
NativeCode FilterFormat;
NativeCode FilterGroupBy;
NativeCode FilterIndent;
NativeCode FilterInt;
NativeCode FilterItems;
NativeCode FilterJoin;
NativeCode FilterLast;
NativeCode FilterLength;
NativeCode FilterList;
NativeCode FilterLower;
NativeCode FilterMap;
NativeCode FilterMax;
NativeCode FilterMin;
NativeCode FilterReject;
NativeCode FilterRejectAttr;
NativeCode FilterReplace;
NativeCode FilterReverse;
NativeCode FilterRound;
NativeCode FilterSafe;
NativeCode FilterSelect;
NativeCode FilterSelectAttr;
NativeCode FilterSlice;
NativeCode FilterSort;
NativeCode FilterString;
NativeCode FilterSum;
NativeCode FilterTitle;
NativeCode FilterToJson;
NativeCode FilterTrim;
NativeCode FilterTruncate;
NativeCode FilterUnique;
NativeCode FilterUpper;
NativeCode FilterUrlEncode;
NativeCode FilterWordCount;
NativeCode MakeCycler;
NativeCode MakeDict;
NativeCode MakeJoiner;
NativeCode MakeNamespace;
NativeCode MakeRange;
NativeCode RaiseException;
NativeCode SequenceCopy;
NativeCode SequenceCount;
NativeCode SequenceIndex;
NativeCode StrftimeNow;
NativeCode TestBoolean;
NativeCode TestCallable;
NativeCode TestDefined;
NativeCode TestDivisibleBy;
NativeCode TestEqual;
NativeCode TestEscaped;
NativeCode TestEven;
NativeCode TestFalse;
NativeCode TestFilter;
NativeCode TestFloat;
NativeCode TestGreater;
NativeCode TestGreaterEqual;
NativeCode TestIn;
NativeCode TestInteger;
NativeCode TestIterable;
NativeCode TestLess;
NativeCode TestLessEqual;
NativeCode TestLower;
NativeCode TestMapping;
NativeCode TestNone;
NativeCode TestNumber;
NativeCode TestOdd;
NativeCode TestSameAs;
NativeCode TestSequence;
NativeCode TestString;
NativeCode TestTest;
NativeCode TestTrue;
NativeCode TestUndefined;
NativeCode TestUnequal;
NativeCode TestUpper;
NativeCode TextCapitalize;
NativeCode TextCenter;
NativeCode TextCount;
NativeCode TextEndsWith;
NativeCode TextFind;
NativeCode TextFindLast;
NativeCode TextFormat;
NativeCode TextIndex;
NativeCode TextIsAlnum;
NativeCode TextIsAlpha;
NativeCode TextIsAscii;
NativeCode TextIsDigit;
NativeCode TextIsLower;
NativeCode TextIsSpace;
NativeCode TextIsUpper;
NativeCode TextJoin;
NativeCode TextLeftJustify;
NativeCode TextLower;
NativeCode TextPartition;
NativeCode TextPartitionLast;
NativeCode TextRemovePrefix;
NativeCode TextRemoveSuffix;
NativeCode TextReplace;
NativeCode TextRightJustify;
NativeCode TextSplit;
NativeCode TextSplitLines;
NativeCode TextSplitRight;
NativeCode TextStartsWith;
NativeCode TextStripBoth;
NativeCode TextStripLeft;
NativeCode TextStripRight;
NativeCode TextSwapCase;
NativeCode TextTitle;
NativeCode TextUpper;
NativeCode TextZeroFill;

// ---- Functions that several of them need ----

// The value that "a.b.0" or an index names in an item, as map(attribute=...) means it.
// `otherwise` takes the place of what is undefined on the way, where it is given.
Result<Value> ValueAt(Run& run, const Value& item, const Value& path,
                      const Value* otherwise = nullptr);
// The items in ascending order of their keys, equal ones in the order in which they came.
Result<std::vector<Value>> SortedItems(Run& run, std::vector<Value> items,
                                       const std::vector<Value>& keys, SortOrder order);
// The string in lower case, unless case matters; other values as they are.
Value KeyForCase(const Value& value, LetterCase letter_case);
// The pieces of a text between separators, at most `most` + 1 if that is not negative.
std::vector<Text> SplitText(const Text& text, std::string_view separator, int64_t most);
Text LowerText(const Text& text);
Text UpperText(const Text& text);
Text CapitalizeText(const Text& text);
Text TitleText(const Text& text);
Text CenterText(const Text& text, int64_t width, const Text& fill);
std::vector<Text> LinesOf(const Text& text);

// JSON as Python's json.dumps writes it.
struct JsonStyle {
  bool ascii = false;  // escape all other characters
  bool sort_keys = false;
  bool lines = false;  // a line for each item, indented
  std::string indent;
  Text item_separator{", "};
  Text key_separator{": "};
};
Result<Text> ToJson(Run& run, const Value& value, const JsonStyle& style);

// A time as strftime writes it, in local time. kInvalid for an unknown directive.
Result<std::string> TimeText(std::string_view format, int64_t now);

}  // namespace kvant::jinja
