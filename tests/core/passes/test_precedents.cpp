// SPDX-License-Identifier: Apache-2.0
// Programs that are decided as others were: the same one, those of other sizes, those that only look alike; and what
// is left of a precedent in a file that was damaged.
#include <random>

#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/precedent/words.h"

using namespace spmdx;

namespace {

std::string number(int64_t value) { return std::to_string(value); }

// Two layers, whose inner dim is cut, over so many rows; softmax over the results; then the loss of that.
std::string layers(int64_t rows, int64_t inner = 64, const std::string& reduced = "1") {
  const std::string x = "f32[" + number(rows) + ", 32", h = "f32[" + number(rows) + ", " + number(inner) + "]",
                    y = "f32[" + number(rows) + ", 32]";
  const std::string left = reduced == "1" ? number(rows) : "32";
  return "mesh(data=2, model=2)\n"
         "%0 = input " +
         x + "] !" + "f32[" + number(rows) +
         "@data, 32]\n"
         "%1 = input f32[32, " +
         number(inner) + "] !f32[32, " + number(inner) +
         "@model] state\n"
         "%2 = input f32[" +
         number(inner) + ", 32] !f32[" + number(inner) +
         "@model, 32] state\n"
         "%3 : " +
         h +
         " = aten.mm(%0, %1)\n"
         "%4 : " +
         h +
         " = aten.relu(%3)\n"
         "%5 : " +
         y +
         " = aten.mm(%4, %2)\n"
         "%6 : " +
         y +
         " = aten._log_softmax(%5, 1, false)\n"
         "%7 : f32[" +
         left + "] = aten.sum.dim_IntList(%6, [" + reduced +
         "], false, none)\n"
         "return %7\n"
         "return %4\n";
}

std::shared_ptr<const Precedent> precedent_of_program(const std::string& text) {
  return compile(parse_graph(text), {}, nullptr).precedent;
}

std::string text_of(const Compiled& compiled) { return print(compiled.graph); }

Compiled compile_like(const std::string& text, const Precedent& precedent) {
  return compile(parse_graph(text), {}, &precedent);
}

}  // namespace

TEST(a_program_that_is_decided_like_itself_gets_its_own_plan) {
  const Compiled first = compile(parse_graph(layers(64)), {}, nullptr);
  const Compiled again = compile_like(layers(64), *first.precedent);
  CHECK(again.follows && !first.follows);
  CHECK_EQ(text_of(again), text_of(first));
}

TEST(programs_of_other_sizes_are_decided_alike) {
  const auto precedent = precedent_of_program(layers(64));
  for (const int64_t rows : {2, 3, 17, 63, 65, 128, 200}) {
    const Compiled like = compile_like(layers(rows), *precedent);
    CHECK(like.follows);
    CHECK_EQ(text_of(like), text_of(compile(parse_graph(layers(rows)), {}, nullptr)));
  }
}

TEST(likeness_does_not_depend_on_sizes_but_for_none_and_one) {
  const auto likeness = [](int64_t rows) { return likeness_of(parse_graph(layers(rows))); };
  CHECK_EQ(likeness(64), likeness(2));
  CHECK(likeness(64) != likeness(1));
  CHECK(likeness(64) != likeness(0));
}

TEST(what_only_looks_alike_is_not_decided_alike) {
  const auto precedent = precedent_of_program(layers(32, 64, "1"));
  const Compiled other = compile_like(layers(32, 64, "0"), *precedent);
  CHECK(!other.follows);
  CHECK_EQ(text_of(other), text_of(compile(parse_graph(layers(32, 64, "0")), {}, nullptr)));
}

// What is small is gathered: the rows, or the weight.
TEST(where_the_sizes_change_the_answer_it_is_searched_for) {
  const auto product = [](int64_t rows, int64_t columns) {
    const std::string x = number(rows), y = number(columns);
    return "mesh(data=4)\n%0 = input f32[" + x + ", 64] !f32[" + x + "@data, 64]\n%1 = input f32[64, " + y +
           "] !f32[64, " + y + "@data] state\n%2 : f32[" + x + ", " + y + "] = aten.mm(%0, %1)\n%3 : f32[" + x + ", " +
           y + "] = aten.relu(%2)\nreturn %3\n";
  };
  const std::string many_rows = product(8192, 8), many_columns = product(8, 8192);
  const auto fresh = [](const std::string& text) { return compile(parse_graph(text), {}, nullptr); };
  const Compiled like = compile_like(many_columns, *precedent_of_program(many_rows));
  CHECK_EQ(text_of(like), text_of(fresh(many_columns)));
  CHECK(text_of(fresh(many_rows)).find("as f32[64, 8] for") != std::string::npos);
  CHECK(text_of(like).find("as f32[8, 64] for") != std::string::npos);
}

TEST(options_are_one_number) {
  const CompileOptions plain;
  CompileOptions other;
  CHECK_EQ(hash(plain), hash(other));
  other.dump_dir = "elsewhere";
  CHECK_EQ(hash(plain), hash(other));
  const auto differs = [&](auto&& change) {
    CompileOptions changed;
    change(changed);
    CHECK(hash(plain) != hash(changed));
  };
  differs([](CompileOptions& o) { o.bucket_bytes += 1; });
  differs([](CompileOptions& o) { o.gather_budget = 7; });
  differs([](CompileOptions& o) { o.memory_limit = 1 << 30; });
  differs([](CompileOptions& o) { o.recomputes = false; });
  differs([](CompileOptions& o) { o.topology = topology_named("nvlink"); });
  differs([](CompileOptions& o) { o.topology.levels[0].efficiency = {{1024, 0.5}}; });
  differs([](CompileOptions& o) { o.topology.hardware.launch_ns = 1; });
  differs([](CompileOptions& o) { o.kinds.axis = "kind"; });
  differs([](CompileOptions& o) { o.kinds.of_device = {0}; });
}

TEST(precedents_survive_as_words) {
  const auto precedent = precedent_of_program(layers(64));
  const auto read = precedent_of(words_of(*precedent));
  CHECK(read && *read == *precedent);
  CHECK(!precedent->trail.stretches.empty() && !precedent->strategies.empty());
}

TEST(words_that_are_not_those_of_a_precedent_are_none) {
  std::vector<uint64_t> words = words_of(*precedent_of_program(layers(64)));
  CHECK(!precedent_of({}));
  for (size_t length = 0; length < words.size(); ++length) CHECK(!precedent_of(std::span(words).first(length)));
  words.push_back(0);
  CHECK(!precedent_of(words));
}

// A plan that follows nonsense is a plan all the same: it is verified, and what does not fit is decided anew.
TEST(damaged_words_never_make_a_wrong_plan) {
  const Graph traced = parse_graph(layers(48));
  Precedent precedent_of_layers = *precedent_of_program(layers(48));
  precedent_of_layers.expanded = {true};  // as if a form had been kept in which composites are expanded
  precedent_of_layers.composites.assign(5, true);
  const std::vector<uint64_t> words = words_of(precedent_of_layers);
  std::mt19937_64 random(7);
  int read = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint64_t> damaged = words;
    for (uint64_t n = random() % 3 + 1; n > 0; --n) {
      uint64_t& word = damaged[random() % damaged.size()];
      const uint64_t bit = uint64_t{1} << random() % (random() % 2 ? 8 : 64);  // of a count, or of a tile
      word = random() % 2 ? word ^ bit : random() % 9;
    }
    const auto precedent = precedent_of(damaged);
    if (!precedent) continue;
    ++read;
    verify(compile(traced, {}, &*precedent).graph);
  }
  CHECK(read > 100);
}
