// SPDX-License-Identifier: Apache-2.0
// QueuedCompiler: segments that wait for Python to compile them, and what came of them.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "runtime/segments/compiler.h"

namespace spmdx::bridge {

// A segment to compile.
struct CompileRequest {
  Graph graph;
  std::string text;
};

// A call that a compiler would not take after all.
struct LeftCall {
  CallRef call;
  std::string why;
};

// All that is public: Any thread, without the GIL. Takes QueuedCompiler::mutex.
class QueuedCompiler final : public Compiler {
 public:
  // Of a segment that a kernel was made of, and that is run by the backend after all: its first source, its text, and
  // why. Called by the step thread, with none of the locks.
  using Refused = std::function<void(SourceId source, const std::string& text, const std::string& why)>;
  // `waits`: steps wait for the kernels of their segments.
  QueuedCompiler(std::set<std::string> ops, std::set<std::string> ops_with_numbers, std::set<DType> dtypes,
                 bool in_place, bool checks, bool waits, Refused refused)
      : ops_(std::move(ops)),
        ops_with_numbers_(std::move(ops_with_numbers)),
        dtypes_(std::move(dtypes)),
        in_place_(in_place),
        checks_(checks),
        waits_(waits),
        refused_(std::move(refused)) {}

  bool takes(const Call& local) const override;
  bool takes_numbers(const Call& local) const override { return ops_with_numbers_.contains(local.op); }
  std::shared_ptr<Kernel> kernel(const Segment& segment) override;
  CompileStanding standing(const Segment& segment) const override;
  void refuse(const Segment& segment, const std::string& why) override;
  void await() override;
  bool in_place() const override { return in_place_; }
  bool checks() const override { return checks_; }
  uint64_t version() const override { return version_; }
  uint64_t cuts() const override { return cuts_; }

  // The next one, which the caller has to `deliver`; none within so many seconds, or after `stop`.
  std::optional<CompileRequest> take(double seconds);
  // Null: it is refused.
  void deliver(const std::string& text, std::shared_ptr<Kernel> kernel, const std::string& why, int64_t compile_ns);
  // Instead of `deliver`: some nodes of the segment, with reasons, are calls that are not taken any more, wherever they
  // are, so that other segments will be asked for.
  void leave(const std::string& text, const std::vector<std::pair<size_t, std::string>>& nodes);
  std::vector<LeftCall> left() const;
  int64_t waiting() const;  // how many were not delivered
  void stop();

 private:
  struct Entry {
    CompileStanding standing;
    std::shared_ptr<Kernel> kernel;
    std::vector<CallRef> calls;  // while it waits
  };

  const std::set<std::string> ops_, ops_with_numbers_;
  const std::set<DType> dtypes_;
  const bool in_place_, checks_, waits_;
  const Refused refused_;
  std::atomic<uint64_t> version_ = 1, cuts_ = 1;
  int64_t count_waiting() const;  // with the lock held
  bool is_left(const Call& local) const;

  mutable std::mutex mutex_;
  std::condition_variable there_, delivered_;
  bool stopped_ = false;
  std::unordered_map<std::string, Entry> entries_;  // by text
  std::deque<CompileRequest> queue_;
  std::unordered_multimap<uint64_t, LeftCall> left_;  // by the call's hash
};

}  // namespace spmdx::bridge
