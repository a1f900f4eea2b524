// SPDX-License-Identifier: Apache-2.0
// Which thread exchanges a collective: the one that waits for it, where nothing else is under way.
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "runtime/collective/collective_queue.h"
#include "runtime/fake_backend.h"

namespace spmdx {
namespace {

using namespace test;

// Notes who exchanges what; the first one may have to wait.
struct NotingComm final : Comm {
  void exchange(std::span<const Message>, std::span<const Message>, const Progress& at) override {
    if (at.op == "held") held.wait();
    std::lock_guard lock(mutex);
    exchanged.push_back(at.op + (std::this_thread::get_id() == here ? " here" : " there"));
    if (at.op == "fails") throw std::runtime_error("lost");
  }

  const std::thread::id here = std::this_thread::get_id();
  std::latch held{1};
  std::mutex mutex;
  std::vector<std::string> exchanged;
};

struct Exchanges {
  FakeBackend backend;
  NotingComm comm;
  Graph graph;
  CollectiveQueue queue{comm};

  Exchanges() {
    Call made;
    made.op = "all_reduce";
    made.args = {TensorArg{0}};
    made.inputs = made.outputs = {{DType::f64, {2}}};
    graph.add_node(seal(std::move(made)), {graph.add_input({DType::f64, {2}}, "x")}, 0, 0);
  }
  RunningCollectiveRef make(const std::string& name) {
    return std::make_shared<RunningCollective>(backend, std::vector<Transfer>{}, Progress{0, 0, name}, graph,
                                               NodeId{0});
  }
  RunningCollectiveRef start(const std::string& name) {
    const RunningCollectiveRef running = make(name);
    queue.start(running);
    return running;
  }
};

using Texts = std::vector<std::string>;

}  // namespace

TEST(exchanges_run_on_a_thread_of_their_own_in_order) {
  Exchanges all;
  CHECK(all.queue.is_idle());
  const RunningCollectiveRef held = all.start("held"), next = all.start("next");
  CHECK(!all.queue.is_idle() && !next->is_over());
  all.comm.held.count_down();
  next->wait();
  held->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"held there", "next there"}), true);
}

TEST(where_nothing_is_under_way_who_waits_may_exchange) {
  Exchanges all;
  const RunningCollectiveRef awaited = all.make("awaited");
  CHECK(!awaited->is_over());
  awaited->run_here(all.comm);
  CHECK(awaited->is_over());
  awaited->wait();
  all.start("beside")->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"awaited here", "beside there"}), true);
}

TEST(what_fails_is_told_by_the_wait) {
  Exchanges all;
  const RunningCollectiveRef failing = all.make("fails");
  failing->run_here(all.comm);
  CHECK_THROWS(std::runtime_error, failing->wait(), "lost");
  CHECK_THROWS(std::runtime_error, all.start("fails")->wait(), "lost");
  CHECK_EQ(all.comm.exchanged == (Texts{"fails here", "fails there"}), true);
}

}  // namespace spmdx
