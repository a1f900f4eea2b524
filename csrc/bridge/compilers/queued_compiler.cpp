// SPDX-License-Identifier: Apache-2.0
// QueuedCompiler: a table by text, and a queue.
#include "bridge/compilers/queued_compiler.h"

#include <algorithm>
#include <chrono>

#include "graph/dtypes.h"

namespace spmdx::bridge {
namespace {

// What is a number of the plan that changes from run to run, and no float: a seed, a place where a part begins.
bool is_open_int(const Arg& arg) { return std::holds_alternative<IntParam>(arg); }
// Whether a number of Python meets floats of 16 bits, to which tensors that stand for it are rounded.
bool rounds_numbers(const Call& local) {
  const auto is_number = [](const TensorType& type) { return type.wrapped_number; };
  const auto is_short = [](const TensorType& type) { return is_floating(type.dtype) && itemsize(type.dtype) < 4; };
  return std::any_of(local.inputs.begin(), local.inputs.end(), is_number) &&
         std::any_of(local.inputs.begin(), local.inputs.end(), is_short);
}
bool is_generator(const Arg& arg) {
  const auto* opaque = std::get_if<OpaqueArg>(&arg);
  return opaque && opaque->text == "generator";
}

}  // namespace

bool QueuedCompiler::takes(const Call& local) const {
  if (!ops_.contains(local.op) || is_left(local)) return false;
  if (rounds_numbers(local)) return false;
  return std::ranges::includes(dtypes_, dtypes_of(local)) &&
         std::none_of(local.args.begin(), local.args.end(), is_open_int) &&
         std::none_of(local.args.begin(), local.args.end(), is_generator);
}

bool QueuedCompiler::is_left(const Call& local) const {
  const std::lock_guard lock(mutex_);
  const auto [from, to] = left_.equal_range(local.hash);
  return std::any_of(from, to, [&](const auto& entry) { return *entry.second.call == local; });
}

std::shared_ptr<Kernel> QueuedCompiler::kernel(const Segment& segment) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = entries_.try_emplace(segment.text);
  if (fresh) {
    at->second.standing.state = CompileState::waiting;
    at->second.calls = segment.calls;
    queue_.push_back({segment.graph, segment.text});
    there_.notify_one();
  }
  return at->second.kernel;
}

CompileStanding QueuedCompiler::standing(const Segment& segment) const {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(segment.text);
  return at == entries_.end() ? CompileStanding{} : at->second.standing;
}

void QueuedCompiler::refuse(const Segment& segment, const std::string& why) {
  SourceId source = 0;
  for (const Node& node : segment.graph.nodes)
    if (source == 0) source = node.source;
  std::shared_ptr<Kernel> unused;  // freed without the lock, since it may need the GIL
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[segment.text];
    if (entry.standing.state == CompileState::refused) return;  // another shard was first
    entry.standing.state = CompileState::refused;
    entry.standing.why = why;
    unused = std::move(entry.kernel);
    version_ += 1;
  }
  if (refused_) refused_(source, segment.text, why);
}

std::optional<CompileRequest> QueuedCompiler::take(double seconds) {
  std::unique_lock lock(mutex_);
  there_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopped_ || !queue_.empty(); });
  if (stopped_ || queue_.empty()) return std::nullopt;
  CompileRequest request = std::move(queue_.front());
  queue_.pop_front();
  return request;
}

void QueuedCompiler::deliver(const std::string& text, std::shared_ptr<Kernel> kernel, const std::string& why,
                             int64_t compile_ns) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[text];
  entry.standing = {kernel ? CompileState::compiled : CompileState::refused, why, compile_ns};
  entry.kernel = std::move(kernel);
  entry.calls.clear();
  version_ += 1;
  delivered_.notify_all();
}

void QueuedCompiler::leave(const std::string& text, const std::vector<std::pair<size_t, std::string>>& nodes) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(text);
  if (at == entries_.end()) return;
  for (const auto& [node, why] : nodes) {
    const CallRef& call = at->second.calls.at(node);
    left_.emplace(call->hash, LeftCall{call, why});
  }
  entries_.erase(at);
  version_ += 1;
  cuts_ += 1;
  delivered_.notify_all();
}

std::vector<LeftCall> QueuedCompiler::left() const {
  const std::lock_guard lock(mutex_);
  std::vector<LeftCall> calls;
  for (const auto& [hash, call] : left_) calls.push_back(call);
  return calls;
}

void QueuedCompiler::await() {
  if (!waits_) return;
  std::unique_lock lock(mutex_);
  delivered_.wait(lock, [this] { return stopped_ || count_waiting() == 0; });
}

int64_t QueuedCompiler::waiting() const {
  const std::lock_guard lock(mutex_);
  return count_waiting();
}

int64_t QueuedCompiler::count_waiting() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry.second.standing.state == CompileState::waiting; });
}

void QueuedCompiler::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  queue_.clear();
  there_.notify_all();
  delivered_.notify_all();
}

}  // namespace spmdx::bridge
