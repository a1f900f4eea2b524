// SPDX-License-Identifier: Apache-2.0
// Profiled: ranges are record functions; a thread of ours joins the profile while it works for a step.
#include "bridge/step/profiled.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/python/source.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {
namespace {

using Arguments = std::unordered_map<std::string, c10::IValue>;

// What makes a thread part of a profile.
struct ProfileOfThread {
  std::shared_ptr<c10::ThreadLocalDebugInfo> state;
  at::RecordFunctionTLS callbacks;
};
ProfileOfThread profile_of_thread() { return {c10::ThreadLocalDebugInfo::current(), at::get_record_function_tls_()}; }
void set_profile_of_thread(const ProfileOfThread& profile) {
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(profile.state);
  at::set_record_function_tls_(profile.callbacks);
}

// That of the thread which began the profile.
struct Joined {
  std::mutex mutex;
  std::optional<ProfileOfThread> profile;  // guarded by mutex
};
Joined& joined() {
  static auto* instance = new Joined;
  return *instance;
}

// The ranges of this thread that have not ended, and what it had before it joined the profile of another thread.
struct OfThread {
  std::vector<std::unique_ptr<at::RecordFunction>> ranges;
  std::optional<ProfileOfThread> before;
};
OfThread& of_thread() {
  thread_local OfThread instance;
  return instance;
}

std::string list_of_axes(const Graph& graph, const Node& node) {
  std::string text;
  for (const std::string& axis : axis_names(*graph.mesh, sub_axis_list(node.sub_axes)))
    text += (text.empty() ? "" : ",") + axis;
  return text;
}

std::string at_line(const std::string& line) { return line.empty() ? line : " at " + line; }

class Profiled final : public Observer {
 public:
  void enter() override {
    if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE)) return;
    std::optional<ProfileOfThread> profile;
    {
      std::lock_guard lock(joined().mutex);
      profile = joined().profile;
    }
    if (!profile) return;
    of_thread().before = profile_of_thread();
    set_profile_of_thread(*profile);
  }
  void leave() override {
    if (const auto before = std::exchange(of_thread().before, std::nullopt)) set_profile_of_thread(*before);
  }
  void begin_plan(const Graph& traced) override {
    const auto nodes = static_cast<int64_t>(traced.nodes.size());
    begin([&] { return "spmdx.plan of " + std::to_string(nodes) + " ops"; }, [&] { return Arguments{{"ops", nodes}}; });
  }
  void begin_step(int64_t number, const std::shared_ptr<const Plan>&) override {
    begin([&] { return "spmdx.step#" + std::to_string(number); }, [&] { return Arguments{{"step", number}}; });
  }
  void begin_node(const Graph& graph, NodeId node) override { begin_node(graph, graph.nodes[node], ""); }
  void next_shard() override {}
  void begin_wait(const Graph& graph, NodeId node) override { begin_node(graph, graph.nodes[node], "wait."); }
  void end() override { of_thread().ranges.pop_back(); }

 private:
  // Names and arguments are made only for threads that are profiled, and arguments where they are asked for.
  template <class Name, class MakeArguments>
  void begin(const Name& name, const MakeArguments& arguments) {
    auto& range = of_thread().ranges.emplace_back(std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE));
    if (!range->isActive()) return;
    if (!range->needsInputs()) return range->before(name());
    const Arguments kwargs = arguments();
    range->before(name(), &kwargs);
  }

  void begin_node(const Graph& graph, const Node& node, const std::string& prefix) {
    if (!moves_bytes(node)) {  // an op, or what a device does by itself, as to cut a slice
      const std::string head =
          is_collective(node) ? "spmdx." + std::string(spmdx::name(collective_kind(node))) : node.call->op;
      const auto name = [&] { return head + at_line(source_text(node.source)); };
      return begin(name, [&] { return Arguments{{"line", source_text(node.source)}}; });
    }
    const auto name = [&] {
      return "spmdx." + prefix + std::string(spmdx::name(collective_kind(node))) +
             " axes=" + list_of_axes(graph, node) + " bytes=" + std::to_string(node.bytes) +
             at_line(source_text(node.source));
    };
    begin(name, [&] {
      return Arguments{{"axes", list_of_axes(graph, node)}, {"bytes", node.bytes}, {"line", source_text(node.source)}};
    });
  }
};

}  // namespace

void join_profile() {
  std::lock_guard lock(joined().mutex);
  joined().profile = profile_of_thread();
}

void forget_profile() {
  std::optional<ProfileOfThread> last;  // dies after the lock is given up
  std::lock_guard lock(joined().mutex);
  last.swap(joined().profile);
}

Observer& profiled() {
  static auto* instance = new Profiled;  // steps may run until the process ends
  return *instance;
}

}  // namespace spmdx::bridge
