// SPDX-License-Identifier: Apache-2.0
// spmdx-opt: reads graph text, runs passes and prints the result; shows rules and reshard plans.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "emit/stablehlo.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/search/decisions_text.h"
#include "rules/lookup.h"
#include "sharding/notation.h"
#include "sharding/reshard/reshard.h"
#include "sharding/topology_file.h"
#include "tools/write_hls.h"

namespace spmdx {
namespace {

constexpr const char* kUsage =
    "usage: spmdx-opt [--pass NAME]... [--compile] [--verify] [--hash-seed N] FILE|-   run passes, print the graph\n"
    "       spmdx-opt [--pass NAME]... --decisions FILE|-              the same, print what search decides\n"
    "       spmdx-opt [--pass NAME]... --effort FILE|-                 the same, print how much search looks at\n"
    "       spmdx-opt --passes                                         list the passes\n"
    "       spmdx-opt --rules                                          list the ops that have a rule\n"
    "       spmdx-opt --rule FILE|-                                    print the rule of every node\n"
    "       spmdx-opt --reshard 'mesh(a=2, b=4)' 'f32[8@a, 4]' 'f32[8, 4@a]'\n"
    "       spmdx-opt --stablehlo FILE|-                               write it as StableHLO, annotations for Shardy\n"
    "       spmdx-opt --hls-ops                                        list the ops that are written for it\n"
    "       spmdx-opt --hls FOLDER FILE|- [NUMBER] [UNROLL]            write a project of C++ for high-level "
    "synthesis\n"
    "Any of them with --topology NAME|FILE: costs are those of this topology, not of in-process.\n"
    "The first with --compile --like FILE: decided as the program in FILE was, which may differ by sizes alone.\n"
    "The first with --memory-limit BYTES: of a device, under which values are computed anew.\n";

using Words = std::vector<std::string>;

// A mistake on the command line: shown with the usage.
struct UsageError : ShardingError {
  using ShardingError::ShardingError;
};

std::string read_all(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path))
    throw UsageError("cannot open '" + path + "'. Expected a readable file, or - for the standard input.");
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- rules ----

// Factors are named in the order in which they appear in the operands, then the results.
class FactorNames {
 public:
  explicit FactorNames(const OpRule& rule) {
    for (const TensorFactors& operand : rule.inputs) add(operand);
    for (const TensorFactors& result : rule.outputs) add(result);
    for (int factor = 0; factor < static_cast<int>(rule.factors.size()); ++factor) add({{factor}});
  }
  const std::vector<int>& order() const { return order_; }
  std::string name(int factor) const {
    constexpr std::string_view kLetters = "ijklmnopqrstuvwxyzabcdefgh";
    const auto index = static_cast<size_t>(std::ranges::find(order_, factor) - order_.begin());
    return index < kLetters.size() ? std::string(1, kLetters[index]) : "f" + std::to_string(index) + " ";
  }

 private:
  void add(const TensorFactors& dims) {
    for (const std::vector<int>& dim : dims) {
      for (int factor : dim) {
        if (std::ranges::find(order_, factor) == order_.end()) order_.push_back(factor);
      }
    }
  }
  std::vector<int> order_;
};

// "ij", "(ij)k" where a dim has several factors, "1" for a dim without, "()" for rank 0.
std::string operand_text(const TensorFactors& dims, const FactorNames& names) {
  std::string out;
  for (const std::vector<int>& factors : dims) {
    std::string dim;
    for (int factor : factors) dim += names.name(factor);
    out += factors.empty() ? "1" : factors.size() == 1 ? dim : "(" + dim + ")";
  }
  return dims.empty() ? "()" : out;
}

std::string operands_text(const std::vector<TensorFactors>& operands, const FactorNames& names) {
  std::string out;
  for (size_t i = 0; i < operands.size(); ++i) out += (i ? "," : "") + operand_text(operands[i], names);
  return out;
}

std::string factor_text(const std::string& letter, const Factor& factor) {
  constexpr const char* kKinds[] = {"", "reduce", "replicate", "composite"};
  std::string out = " " + letter + "=" + std::to_string(factor.size);
  if (factor.kind == FactorKind::pass) return out;
  out += std::string("(") + kKinds[static_cast<size_t>(factor.kind)];
  if (factor.reduction != Reduction::none) out += " " + std::string(name(factor.reduction));
  return out + ")";
}

// "aten.mm: ij,jk->ik  i=4 j=8(reduce sum) k=2  linear each".
std::string rule_text(const std::string& op, const OpRule& rule) {
  constexpr const char* kLinearities[] = {"", "joint", "each", "monotone", "movement"};
  const FactorNames names(rule);
  std::string out = op + ": " + operands_text(rule.inputs, names) + "->" + operands_text(rule.outputs, names) + " ";
  for (int factor : names.order()) out += factor_text(names.name(factor), rule.factors[factor]);
  if (rule.linearity != Linearity::none) {
    out += std::string("  linear ") + kLinearities[static_cast<size_t>(rule.linearity)];
    for (size_t i = 0; i < rule.inputs.size() && i < 64; ++i) {
      if ((rule.linear_inputs >> i & 1) == 0) out += " not " + std::to_string(i);
    }
  }
  if (rule.expand) out += "  expands";
  if (rule.random) out += "  random";
  return rule.fallback ? out + "  fallback" : out;
}

int show_rules_of(const std::string& path) {
  const Graph graph = parse_graph(read_all(path));
  for (const Node& node : graph.nodes) std::cout << rule_text(node.call->op, *rule_for(node.call)) << "\n";
  return 0;
}

// ---- reshard ----

std::string over(const Mesh& mesh, SubAxisSet sub_axes) {
  std::string out;
  for (const std::string& axis : axis_names(mesh, sub_axis_list(sub_axes)))
    out += (out.empty() ? " over " : ",") + axis;
  return out;
}

int show_reshard(const std::string& mesh, const std::string& from, const std::string& to, const Topology& topology) {
  const Graph graph = parse_graph(mesh + "\n%0 = input " + from + "\n%1 = input " + to + "\n");
  if (!graph.mesh) throw ShardingError("'" + mesh + "' is no mesh. Expected one like mesh(a=2, b=4).");
  const TensorType& type = graph.values[0].type;
  if (type != graph.values[1].type) {
    throw ShardingError("cannot turn " + str(type) + " into " + str(graph.values[1].type) +
                        ". Expected the same dtype and shape twice.");
  }
  const auto decided = [&](const Input& input) {
    return input.physical ? input.physical : replicated(graph.mesh, type.shape.size());
  };
  const ShardingRef source = decided(graph.inputs[0]);
  const ReshardPlanRef plan = plan_reshard(type.dtype, type.shape, source, decided(graph.inputs[1]), topology);
  std::cout << str(type, source) << "\n";
  for (const Move& move : plan->moves) {
    std::cout << "  " << name(move.kind) << over(*graph.mesh, move.sub_axes) << " -> " << str(type, move.to)
              << "  bytes " << move.bytes << "\n";
  }
  std::cout << "moves " << plan->moves.size() << " bytes " << plan->bytes << " cost_ns " << plan->cost_ns << "\n";
  return 0;
}

// ---- passes ----

const Pass& pass_named(const std::string& wanted) {
  std::string known;
  for (const Pass& pass : all_passes()) {
    if (wanted == pass.name) return pass;
    known += (known.empty() ? "" : ", ") + std::string(pass.name);
  }
  throw UsageError("no pass is called '" + wanted + "'. Expected one of " + known + ".");
}

// Propagate, the passes before it, and all of them together.
bool needs_no_shardings(std::string_view name) {
  for (const Pass& pass : all_passes()) {
    if (name == pass.name) return true;
    if (pass.name == std::string_view("propagate")) break;
  }
  return name == "compile";
}

// The passes after propagate read a sharding of every value.
void expect_propagated(const Graph& graph, const std::string& pass) {
  if (!graph.mesh || needs_no_shardings(pass)) return;
  for (const Value& value : graph.values)
    if (!value.sharding)
      throw ShardingError(pass + ": a value of " + str(value.type) +
                          " has no sharding yet. Expected a graph that was propagated. Run the pass propagate first.");
}

// REQUIRES: a graph that was propagated, but not partitioned.
void decide(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) throw ShardingError("nothing is decided without a mesh. Expected a graph that has one.");
  expect_propagated(draft.graph, "search");
  for (const Node& node : draft.graph.nodes)
    if (node.call->op.starts_with("spmdx.comm."))
      throw ShardingError(
          "the graph has " + node.call->op +
          ", so it was partitioned. Expected a graph without collectives. Pass the text before search.");
  search(draft, options);
}

void show_decisions(Draft& draft, const CompileOptions& options) {
  decide(draft, options);
  std::cout << decisions_text(draft.graph, *draft.decisions, options);
}

void show_effort(Draft& draft, const CompileOptions& options) {
  decide(draft, options);
  const Effort& effort = draft.decisions->effort;
  std::cout << "costs asked " << effort.costs_asked << " demands seen " << effort.demands_seen << "\n";
}

// --compile, of a program that may be decided as the one in a file was; no file: none.
void compile_like(Draft& draft, const std::string& file, const CompileOptions& options) {
  std::shared_ptr<const Precedent> like;
  if (!file.empty()) like = compile(parse_graph(read_all(file)), options, nullptr).precedent;
  Compiled compiled = compile(draft.graph, options, like.get());
  if (like && !compiled.follows) std::cerr << "not decided as " << file << " was: the programs differ by more\n";
  draft.graph = std::move(compiled.graph);
}

int run_passes(const Words& words, const CompileOptions& options) {
  std::vector<Pass> passes;
  std::string like;
  std::string path;
  bool verify_after = false, decisions_only = false, effort_only = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--pass") {
      if (++i == words.size()) throw UsageError("--pass without a name. Expected the name of a pass.");
      passes.push_back(pass_named(words[i]));
    } else if (words[i] == "--compile") {
      passes.push_back({"compile", [&like](Draft& draft, const CompileOptions& o) { compile_like(draft, like, o); }});
    } else if (words[i] == "--like") {
      if (++i == words.size()) throw UsageError("--like without a file. Expected a file.");
      like = words[i];
    } else if (words[i] == "--verify") {
      verify_after = true;
    } else if (words[i] == "--decisions") {
      decisions_only = true;
    } else if (words[i] == "--effort") {
      effort_only = true;
    } else if (words[i] == "--hash-seed") {
      if (++i == words.size()) throw UsageError("--hash-seed without a number. Expected a whole number.");
      hash_seed = std::strtoull(words[i].c_str(), nullptr, 10);
    } else if (!path.empty() || (words[i].starts_with("-") && words[i] != "-")) {
      throw UsageError("unexpected argument '" + words[i] + "'. Expected options, then one file.");
    } else {
      path = words[i];
    }
  }
  if (path.empty()) throw UsageError("no file is given. Expected a file, or - for the standard input.");
  Draft draft{parse_graph(read_all(path)), {}};
  for (const Pass& pass : passes) {
    expect_propagated(draft.graph, pass.name);
    pass.run(draft, options);
  }
  if (verify_after) expect_propagated(draft.graph, "verify");
  if (verify_after) verify(draft.graph);
  if (decisions_only) return show_decisions(draft, options), 0;
  if (effort_only) return show_effort(draft, options), 0;
  std::cout << print(draft.graph);
  return 0;
}

int list_passes() {
  for (const Pass& pass : all_passes()) std::cout << pass.name << "\n";
  return 0;
}

int list_rules() {
  for (const std::string& rule : all_rules()) std::cout << rule << "\n";
  return 0;
}

int show_stablehlo(const std::string& path) {
  std::cout << stablehlo_of_step(parse_graph(read_all(path)));
  return 0;
}

// Takes --topology and what follows it out of the words.
Topology take_topology(Words& words) {
  const auto at = std::ranges::find(words, "--topology");
  if (at == words.end()) return {};
  if (at + 1 == words.end()) throw UsageError("--topology without a name. Expected the name of a topology, or a file.");
  Topology topology = topology_from(at[1]);
  words.erase(at, at + 2);
  return topology;
}

// The same of --memory-limit.
int64_t take_memory_limit(Words& words) {
  const auto at = std::ranges::find(words, "--memory-limit");
  if (at == words.end()) return kNoLimit;
  int64_t bytes = 0;
  const std::string text = at + 1 == words.end() ? "" : at[1];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes <= 0)
    throw UsageError("--memory-limit " + text + ". Expected a number of bytes above 0, as 1073741824.");
  words.erase(at, at + 2);
  return bytes;
}

int run(Words words) {
  CompileOptions options;
  options.topology = take_topology(words);
  options.memory_limit = take_memory_limit(words);
  if (words == Words{"--passes"}) return list_passes();
  if (words == Words{"--rules"}) return list_rules();
  if (words == Words{"--hls-ops"}) return list_hls_ops();
  if (words == Words{"--help"}) return std::cout << kUsage, 0;
  if (words.size() == 2 && words[0] == "--rule") return show_rules_of(words[1]);
  if (words.size() == 2 && words[0] == "--stablehlo") return show_stablehlo(words[1]);
  if (words.size() == 4 && words[0] == "--reshard") return show_reshard(words[1], words[2], words[3], options.topology);
  if (words.size() >= 3 && words.size() <= 5 && words[0] == "--hls")
    return write_hls(read_all(words[2]), words[1], words.size() > 3 ? words[3] : "float",
                     words.size() > 4 ? std::max(1, std::atoi(words[4].c_str())) : 4);
  return run_passes(words, options);
}

}  // namespace
}  // namespace spmdx

int main(int argc, char** argv) {
  try {
    return spmdx::run({argv + 1, argv + argc});
  } catch (const spmdx::UsageError& error) {
    std::cerr << "spmdx-opt: " << error.what() << "\n" << spmdx::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "spmdx-opt: " << error.what() << "\n";
  }
  return 1;
}
