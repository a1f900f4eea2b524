// SPDX-License-Identifier: Apache-2.0
// Observer: who watches plans, steps, ops and collectives as they begin and end. The bridge implements it.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>

#include "graph/graph.h"

namespace spmdx {

struct Plan;

// Ranges nest: on each thread, `end` ends what began last there. Program threads tell of plans, the step thread (or the
// thread that runs a brief step) of steps, the queue thread of what crosses to other processes; none with a leaf lock.
class Observer {
 public:
  virtual ~Observer() = default;
  // The thread works for a step from now on, and no more. All else that it tells, but plans, lies in between.
  virtual void enter() = 0;
  virtual void leave() = 0;
  virtual void begin_plan(const Graph& traced) = 0;
  virtual void begin_step(int64_t number, const std::shared_ptr<const Plan>& plan) = 0;
  // An op on all shards that this process has, one after the other, or a collective.
  virtual void begin_node(const Graph& graph, NodeId node) = 0;
  // The next shard of the node that began last.
  virtual void next_shard() = 0;
  // The run cannot go on without what this collective brings.
  virtual void begin_wait(const Graph& graph, NodeId node) = 0;
  virtual void end() = 0;
};

namespace detail {
inline std::atomic<Observer*> observer{nullptr};
inline std::atomic<int64_t> planning_since_ns{0};
}  // namespace detail

// Null: nobody watches, which is all that a run asks then. Any thread.
inline Observer* observer() {
  Observer* const watching = detail::observer.load(std::memory_order_relaxed);
  if (watching) std::atomic_thread_fence(std::memory_order_acquire);
  return watching;
}
// Who is told of every plan that the program asked for, when it is made, and how long that took; null: nobody. The
// function is called with Engine::planning, and so waits for nothing. Any thread.
using PlanListener = void (*)(const Plan& plan, int64_t took_ns);
namespace detail {
inline std::atomic<PlanListener> plan_listener{nullptr};
}
inline void tell_of_plan(const Plan& plan, int64_t took_ns) {
  if (const PlanListener listener = detail::plan_listener.load(std::memory_order_acquire)) listener(plan, took_ns);
}
inline void set_plan_listener(PlanListener listener) {
  detail::plan_listener.store(listener, std::memory_order_release);
}

// Ranges that have begun end with the observer that they began with. Any thread.
inline void set_observer(Observer* watching) { detail::observer.store(watching, std::memory_order_release); }

// Nanoseconds of the clock below.
inline int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// When the plan was begun that is made now; 0: none is made. Any thread.
inline int64_t planning_since_ns() { return detail::planning_since_ns.load(std::memory_order_relaxed); }

// A plan that is made while the object lives. Holds Engine::planning.
class PlanRange {
 public:
  explicit PlanRange(const Graph& traced) : observer_(observer()) {
    detail::planning_since_ns.store(now_ns(), std::memory_order_relaxed);
    if (observer_) observer_->begin_plan(traced);
  }
  ~PlanRange() {
    if (observer_) observer_->end();
    detail::planning_since_ns.store(0, std::memory_order_relaxed);
  }
  PlanRange(const PlanRange&) = delete;

 private:
  Observer* const observer_;
};

// A step that this thread runs while the object lives.
class StepRange {
 public:
  StepRange(int64_t number, const std::shared_ptr<const Plan>& plan) : observer_(observer()) {
    if (!observer_) return;
    observer_->enter();
    observer_->begin_step(number, plan);
  }
  ~StepRange() {
    if (!observer_) return;
    observer_->end();
    observer_->leave();
  }
  StepRange(const StepRange&) = delete;

 private:
  Observer* const observer_;
};

// The nodes that a run comes to, one after the other.
class NodeRanges {
 public:
  explicit NodeRanges(const Graph& graph) : observer_(observer()), graph_(graph) {}
  ~NodeRanges() { end(); }
  NodeRanges(const NodeRanges&) = delete;
  void at(NodeId node) {
    if (!observer_) return;
    if (node == now_) return observer_->next_shard();
    end();
    observer_->begin_node(graph_, node);
    now_ = node;
  }
  void end() {
    if (now_ != kNone) observer_->end();
    now_ = kNone;
  }

 private:
  Observer* const observer_;
  const Graph& graph_;
  NodeId now_ = kNone;
};

// A wait for a collective while the object lives.
class WaitRange {
 public:
  WaitRange(const Graph& graph, NodeId node) : observer_(observer()) {
    if (observer_) observer_->begin_wait(graph, node);
  }
  ~WaitRange() {
    if (observer_) observer_->end();
  }
  WaitRange(const WaitRange&) = delete;

 private:
  Observer* const observer_;
};

// Another thread works for the run of a graph while the object lives.
class HelperRange {
 public:
  HelperRange() : observer_(observer()) {
    if (observer_) observer_->enter();
  }
  ~HelperRange() {
    if (observer_) observer_->leave();
  }
  HelperRange(const HelperRange&) = delete;

 private:
  Observer* const observer_;
};

// A collective that is exchanged while the object lives.
class CarriedRange {
 public:
  CarriedRange(const Graph& graph, NodeId node) : observer_(observer()) {
    if (observer_) observer_->begin_node(graph, node);
  }
  ~CarriedRange() {
    if (observer_) observer_->end();
  }
  CarriedRange(const CarriedRange&) = delete;

 private:
  Observer* const observer_;
};

}  // namespace spmdx
