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
  bool is_on_stream() const override { return on_stream; }

  const std::thread::id here = std::this_thread::get_id();
  std::latch held{1};
  std::mutex mutex;
  std::vector<std::string> exchanged;
  bool on_stream = false;
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
  RunningCollectiveRef start(const std::string& name, bool is_awaited) {
    auto running =
        std::make_shared<RunningCollective>(backend, std::vector<Transfer>{}, Progress{0, 0, name}, graph, NodeId{0});
    return queue.start(std::move(running), is_awaited);
  }
};

using Texts = std::vector<std::string>;

}  // namespace

TEST(what_is_waited_for_at_once_is_exchanged_by_who_waits) {
  Exchanges all;
  CHECK(all.start("awaited", true)->is_over());
  all.start("beside", false)->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"awaited here", "beside there"}), true);
}

TEST(exchanges_keep_their_order_whoever_waits) {
  Exchanges all;
  const RunningCollectiveRef held = all.start("held", false), next = all.start("awaited", true);
  CHECK(!next->is_over());
  all.comm.held.count_down();
  next->wait();
  held->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"held there", "awaited there"}), true);
}

TEST(on_a_stream_none_is_exchanged_by_who_waits) {
  Exchanges all;
  all.comm.on_stream = true;
  all.start("awaited", true)->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"awaited there"}), true);
}

TEST(what_fails_here_is_told_by_the_wait) {
  Exchanges all;
  const RunningCollectiveRef failing = all.start("fails", true);
  CHECK_THROWS(std::runtime_error, failing->wait(), "lost");
  all.start("awaited", true)->wait();
  CHECK_EQ(all.comm.exchanged == (Texts{"fails here", "awaited here"}), true);
}

}  // namespace spmdx
