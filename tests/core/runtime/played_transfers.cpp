// SPDX-License-Identifier: Apache-2.0
// Messages wait in queues; a native collective waits until its whole group has called it.
#include "runtime/played_transfers.h"

#include <deque>
#include <map>

#include "check.h"

namespace spmdx::test {
namespace {

// The shards of `all` that a process holds, in order.
Shards part_of_process(const Processes& processes, int64_t process, const Sharding& layout, const Shards& all) {
  Shards held;
  for (const int64_t index : held_by(processes, process, *layout.mesh, layout.used())) held.push_back(all.at(index));
  return held;
}

std::vector<double>& data_of(const BufferRef& buffer) { return static_cast<Doubles&>(*buffer).data; }

class Post {
 public:
  void send(int64_t here, const Messages& sends) {
    for (const Message& message : sends) sent_[{here, message.peer}].push_back(message.buffer);
  }

  void deliver(int64_t here, const Messages& receives, Traffic& traffic) {
    for (const Message& message : receives) {
      auto& waiting = sent_[{message.peer, here}];
      CHECK(!waiting.empty());
      if (waiting.empty()) return;
      CHECK_EQ(at(waiting.front()).data.size(), at(message.buffer).data.size());
      data_of(message.buffer) = at(waiting.front()).data;
      traffic.elements += static_cast<int64_t>(at(waiting.front()).data.size());
      waiting.pop_front();
    }
  }

  void check_that_all_has_come() const {
    for (const auto& [ends, left] : sent_) CHECK(left.empty());
  }

 private:
  std::map<std::pair<int64_t, int64_t>, std::deque<BufferRef>> sent_;  // by (from, to)
};

// What the members of one group call together.
void complete(const std::vector<NativeCall>& calls) {
  std::vector<double> all, sum(data_of(calls[0].given).size());
  for (const NativeCall& call : calls) {
    const std::vector<double>& given = data_of(call.given);
    CHECK(call.kind == calls[0].kind);
    CHECK_EQ(given.size(), sum.size());
    all.insert(all.end(), given.begin(), given.end());
    for (size_t i = 0; i < sum.size() && i < given.size(); ++i) sum[i] += given[i];
  }
  for (size_t m = 0; m < calls.size(); ++m) {
    std::vector<double>& taken = data_of(calls[m].taken);
    const std::vector<double>& whole = calls[m].kind == NativeKind::all_gather ? all : sum;
    const size_t start = calls[m].kind == NativeKind::reduce_scatter ? m * taken.size() : 0;
    CHECK_EQ(taken.size() * (calls[m].kind == NativeKind::reduce_scatter ? calls.size() : 1), whole.size());
    std::copy_n(whole.begin() + static_cast<int64_t>(start), taken.size(), taken.begin());
  }
}

// Each process calls its collectives in order; one begins when it is the next of all of its members.
void play_calls(const std::vector<NativeCalls>& by_process, Traffic& traffic) {
  std::vector<size_t> next(by_process.size());
  const auto is_next = [&](int64_t process, const NativeCall& call) {
    const NativeCalls& calls = by_process[process];
    return next[process] < calls.size() && *calls[next[process]].group == *call.group;
  };
  for (bool any = true; any;) {
    any = false;
    for (size_t p = 0; p < by_process.size(); ++p) {
      if (next[p] == by_process[p].size()) continue;
      const NativeCall& call = by_process[p][next[p]];
      if (!std::ranges::all_of(*call.group, [&](int64_t member) { return is_next(member, call); })) continue;
      std::vector<NativeCall> together;
      for (const int64_t member : *call.group) together.push_back(by_process[member][next[member]]);
      for (const int64_t member : *call.group) ++next[member];
      complete(together);
      ++traffic.calls[call.kind];
      any = true;
    }
  }
  for (size_t p = 0; p < by_process.size(); ++p) CHECK_EQ(next[p], by_process[p].size());  // nobody waits for ever
}

// Which nobody else holds.
Shards copies(const Shards& shards) {
  Shards made;
  for (const BufferRef& shard : shards) made.push_back(std::make_shared<Doubles>(static_cast<const Doubles&>(*shard)));
  return made;
}

}  // namespace

Traffic play(int64_t count, int64_t devices, const Relayout& relayout, NativeRules rules) {
  FakeBackend backend;
  const Shards before = shards_of(relayout.shape, relayout.from);
  const Shards expected = transfer_here(backend, DType::f64, relayout, before);
  std::vector<Route> routes;
  std::vector<Transfer> transfers;
  for (int64_t p = 0; p < count; ++p) routes.push_back(make_route({count, p, devices}, relayout, rules));
  for (int64_t p = 0; p < count; ++p)
    transfers.emplace_back(backend, routes[p], DType::f64, relayout.reduction(),
                           copies(part_of_process({count, p, devices}, p, *relayout.from, before)), true);
  Post post;
  Traffic traffic;
  for (const int round : {1, 2}) {
    std::vector<Messages> receives(count);
    std::vector<NativeCalls> calls(count);
    for (int64_t p = 0; p < count; ++p) {
      Messages sends;
      round == 1 ? transfers[p].first_round(sends, receives[p], calls[p])
                 : transfers[p].second_round(sends, receives[p]);
      post.send(p, sends);
    }
    play_calls(calls, traffic);
    for (int64_t p = 0; p < count; ++p) post.deliver(p, receives[p], traffic);
    post.check_that_all_has_come();
  }
  for (int64_t p = 0; p < count; ++p)
    CHECK_EQ(contents(transfers[p].finish()),
             contents(part_of_process({count, p, devices}, p, *relayout.to, expected)));
  return traffic;
}

ShardingRef any_layout(const MeshRef& mesh, const Shape& shape, SubAxisSet partial, std::mt19937& random) {
  std::vector<SubAxisList> dims(shape.size());
  for (SubAxisId sub_axis = 0; sub_axis < mesh->sub_axes().size(); ++sub_axis) {
    const size_t where = random() % (dims.size() + 1);
    if (!(partial >> sub_axis & 1) && where < dims.size()) dims[where].push_back(sub_axis);
  }
  return sharding(mesh, shape, dims, partial, partial ? Reduction::sum : Reduction::none);
}

}  // namespace spmdx::test
