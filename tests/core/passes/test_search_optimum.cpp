// SPDX-License-Identifier: Apache-2.0
// The search against brute force, on small programs drawn at random: never below the optimum, and how near it comes.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "check.h"
#include "graph/text.h"
#include "passes/brute_force.h"
#include "passes/passes.h"

using namespace spmdx;

namespace {

using Dims = std::array<int64_t, 2>;

// A program over matrices: products, sums, transposes, scales and relu of what came last or right before that. Every
// input is cut.
class Drawn {
 public:
  Drawn(unsigned seed, std::string mesh, std::vector<std::string> axes, int nodes)
      : random_(seed), axes_(std::move(axes)), text_(std::move(mesh) + "\n") {
    for (int i = 2 + below(2); i > 0; --i) add({size(), size()}, "input");
    for (int i = 0; i < nodes; ++i) add_node();
    text_ += "return " + name(last()) + (below(3) ? " !" + typed(values_.back(), true) : "") + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  int below(size_t n) { return static_cast<int>(random_() % n); }
  int64_t size() { return std::array<int64_t, 4>{12, 64, 500, 1024}[below(4)]; }
  size_t last() const { return values_.size() - 1; }
  static std::string name(size_t value) { return "%" + std::to_string(value); }

  std::string typed(const Dims& dims, bool cut) {
    std::array<std::string, 2> by;
    for (const std::string& axis : axes_) {
      std::string& here = by[below(2)];
      if (cut && here.empty()) here = "@" + axis;
    }
    return "f32[" + std::to_string(dims[0]) + by[0] + ", " + std::to_string(dims[1]) + by[1] + "]";
  }

  void add(const Dims& dims, const std::string& made) {
    text_ += name(values_.size()) +
             (made == "input" ? " = input " + typed(dims, true) : " : " + typed(dims, false) + " = " + made) + "\n";
    values_.push_back(dims);
  }

  // Some value that fits `first` as the other operand.
  size_t mate(const Dims& first, bool of_product) {
    std::vector<size_t> fit;
    for (size_t i = 0; i < values_.size(); ++i)
      if (of_product ? values_[i][0] == first[1] : values_[i] == first) fit.push_back(i);
    return fit.empty() ? values_.size() : fit[below(fit.size())];
  }

  void add_node() {
    const size_t x = last() - (below(3) == 0 ? 1 : 0);
    const Dims dims = values_[x];
    const int kind = below(6);
    const size_t product = mate(dims, true);
    if (kind < 3 && product < values_.size())
      add({dims[0], values_[product][1]}, "aten.mm(" + name(x) + ", " + name(product) + ")");
    else if (kind == 3)
      add({dims[1], dims[0]}, "aten.permute(" + name(x) + ", [1, 0])");
    else if (kind == 4)
      add(dims, "aten.relu(" + name(x) + ")");
    else if (kind == 5)
      add(dims, "aten.mul.Scalar(" + name(x) + ", 2)");
    else
      add(dims, "aten.add.Tensor(" + name(x) + ", " + name(mate(dims, false)) + ", 1)");
  }

  std::mt19937 random_;
  std::vector<std::string> axes_;
  std::string text_;
  std::vector<Dims> values_;
};

struct Distance {
  int programs = 0, exact = 0, below = 0;
  double worst = 1;
};

// Where only moves count: no time for work.
CompileOptions moves_only(std::string_view name) {
  CompileOptions options;
  options.topology = topology_named(name);
  options.topology.hardware.flops_per_second = {{DType::f32, INFINITY}};
  options.topology.hardware.memory_bytes_per_second = INFINITY;
  return options;
}

void measure(const std::string& text, const CompileOptions& options, Distance& distance) {
  Graph graph = parse_graph(text);
  simplify(graph);
  propagate(graph, options);
  const int64_t found = decide(graph, options).total_ns, least = test::brute_force(graph, options).total_ns;
  ++distance.programs;
  distance.exact += found == least;
  distance.below += found < least;
  distance.worst = std::max(distance.worst, static_cast<double>(found + 1) / static_cast<double>(least + 1));
}

constexpr unsigned kPrograms = 200;

// Of up to 6 nodes over an axis of 2, 3 or 4 devices.
Distance over_one_axis(const CompileOptions& options) {
  Distance distance;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    const std::string mesh = "mesh(a=" + std::to_string(2 + seed % 3) + ")";
    measure(Drawn(seed, mesh, {"a"}, 2 + static_cast<int>(seed) % 5).text(), options, distance);
  }
  return distance;
}

// Of up to 3 nodes: each of them has some 30 strategies.
Distance over_two_axes(const CompileOptions& options) {
  Distance distance;
  for (unsigned seed = 0; seed < kPrograms; ++seed)
    measure(Drawn(seed, "mesh(a=2, b=2)", {"a", "b"}, 2 + static_cast<int>(seed) % 2).text(), options, distance);
  return distance;
}

}  // namespace

// Less than the least would mean that one of the two counts wrongly.
TEST(over_one_axis_the_search_moves_as_little_as_can_be) {
  for (const char* name : {"in-process", "gloo"}) {
    const Distance distance = over_one_axis(moves_only(name));
    CHECK_EQ(distance.below, 0);
    CHECK_EQ(distance.exact, distance.programs);
  }
}

// With work counted, too, it may leave work to all devices that could be shared at the price of no move: by design, see
// "Small programs are searched more widely" in docs/decisions.md.
TEST(over_one_axis_the_search_is_nearly_always_at_the_optimum) {
  const Distance distance = over_one_axis({});
  CHECK_EQ(distance.below, 0);
  CHECK(distance.exact * 100 >= distance.programs * 98);
  CHECK(distance.worst < 3);
}

TEST(over_two_axes_the_search_is_near_the_optimum) {
  const Distance moves = over_two_axes(moves_only("in-process"));
  CHECK_EQ(moves.below, 0);
  CHECK(moves.exact * 100 >= moves.programs * 93);
  CHECK(moves.worst < 1.8);
  const Distance all = over_two_axes({});
  CHECK_EQ(all.below, 0);
  CHECK(all.exact * 100 >= all.programs * 70);
  CHECK(all.worst < 2.1);  // an axis of two that shares out nothing
}
