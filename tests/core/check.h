// SPDX-License-Identifier: Apache-2.0
// A tiny test harness: TEST(name) { … } registers itself; CHECK, CHECK_EQ and CHECK_THROWS report and go on.
#pragma once
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "sharding/spec.h"

namespace spmdx::test {

struct Case {
  const char* file;
  const char* name;
  void (*run)();
};
std::vector<Case>& cases();
void fail(const char* file, int line, const std::string& what);  // marks the running test as failed
void passed();                                                   // counts a check that held

struct Register {
  Register(const char* file, const char* name, void (*run)()) { cases().push_back({file, name, run}); }
};

inline void check(bool holds, const char* file, int line, const std::string& what) {
  if (holds) return passed();
  fail(file, line, what);
}

// Values without operator<< show as "?".
template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "?";
  }
}
template <class T>
std::string show(const std::vector<T>& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + show(T(value));
  return text + "]";
}

template <class A, class B>
void check_eq(const A& a, const B& b, const char* file, int line, const char* text) {
  check(a == b, file, line, std::string(text) + "\n    left:  " + show(a) + "\n    right: " + show(b));
}

// `part` must occur in the message of the exception.
template <class Error>
void check_throws(const std::function<void()>& run, const std::string& part, const char* file, int line) {
  try {
    run();
  } catch (const Error& error) {
    const std::string what = error.what();
    return check(what.find(part) != what.npos, file, line, "the message lacks \"" + part + "\": " + what);
  } catch (const std::exception& error) {
    return fail(file, line, std::string("threw another kind of exception: ") + error.what());
  }
  fail(file, line, "threw nothing; expected \"" + part + "\"");
}

}  // namespace spmdx::test

#define TEST(id)                                                                 \
  static void test_##id();                                                       \
  static const ::spmdx::test::Register register_##id{__FILE__, #id, &test_##id}; \
  static void test_##id()
#define CHECK(...) ::spmdx::test::check(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)
#define CHECK_EQ(a, b) ::spmdx::test::check_eq((a), (b), __FILE__, __LINE__, #a " == " #b)
// CHECK_THROWS(ShardingError, to_sharding(…), "part of the message")
#define CHECK_THROWS(Error, expression, part) \
  ::spmdx::test::check_throws<Error>([&] { static_cast<void>(expression); }, (part), __FILE__, __LINE__)
