// SPDX-License-Identifier: Apache-2.0
// C10dComm: point-to-point messages of a c10d backend.
#include "bridge/world/c10d_comm.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"
#include "bridge/python/source.h"
#include "bridge/tensor/generator.h"
#include "bridge/world/posted.h"
#include "bridge/world/regroup.h"
#include "runtime/step/differences.h"

namespace spmdx::bridge {
namespace {

// Up to so many processes, each tells all others directly what it is about to do; beyond, each tells some.
constexpr int64_t kAllPeers = 16;

// What was announced for one step, and what comes in.
struct Announcement {
  at::Tensor mine;
  std::vector<at::Tensor> theirs;
  Works works;
  std::string lost;  // why some of it could not be sent
};

at::Tensor one_number(int64_t value) {
  at::Tensor tensor = at::empty({1}, at::kLong);
  *tensor.data_ptr<int64_t>() = value;
  return tensor;
}

// The reason with the user's line before it.
std::string with_line(const Progress& at, const std::string& reason) {
  const std::string line = source_text(at.source);
  return (line.empty() ? "" : line + ": ") + reason;
}

class C10dComm final : public Comm {
 public:
  void join(World world, MakeGroup make_group) {
    processes_ = world.processes;
    detector_ = std::make_unique<FailureDetector>(std::move(world));
    groups_ = std::make_unique<Groups>(*detector_, std::move(make_group));
    open_groups();
    if (detector_->world().on_stream)
      detector_->set_abort_stream([this] {
        transport()->abort();
        groups_->abort();
      });
  }

  FailureDetector* detector() { return detector_.get(); }
  std::atomic<int64_t>& native_collectives() { return native_collectives_; }
  int64_t announced() const { return announced_; }
  Processes processes() const override { return processes_; }
  bool is_on_stream() const override { return detector_ && detector_->world().on_stream; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, const Progress& at) override {
    if (!detector_) return Comm::exchange(sends, receives, at);
    KernelGuard guard;
    const std::shared_ptr<Transport> data = transport();
    Carried carried;
    detector_->carry([&] { return data->post(sends, receives, carried); }, at);
    carried.land();
  }

  void call(std::span<const NativeCall> calls, const Progress& at) override {
    if (!detector_) return Comm::call(calls, at);
    KernelGuard guard;
    for (const NativeCall& one : calls) {
      const std::shared_ptr<Transport> group = groups_->among(*one.group, at);
      Carried carried;
      detector_->carry([&] { return group->call(one, carried); }, at);
      carried.land();
      ++native_collectives_;
    }
  }

  ExchangeRef begin(std::span<const Message> sends, std::span<const Message> receives, const Progress& at) override {
    if (!detector_ || detector_->world().on_stream) return Comm::begin(sends, receives, at);
    return post(*detector_, transport(), sends, receives);
  }

  void announce(uint64_t fingerprint) override {
    if (!detector_) return;
    ++announced_;
    Announcement announcement;
    announcement.mine = one_number(static_cast<int64_t>(fingerprint));
    if (detector_->broken().empty()) try {
        const Group control = control_group();
        for (const auto& [to, from] : neighbours()) {
          std::vector<at::Tensor> coming = {one_number(0)}, going = {announcement.mine};
          announcement.works.push_back(control->recv(coming, static_cast<int>(from), kTag));
          announcement.works.push_back(control->send(going, static_cast<int>(to), kTag));
          announcement.theirs.push_back(coming[0]);
        }
      } catch (const std::exception& error) {  // a connection that is closed already: `agree` tells why
        announcement.lost = error.what();
      }
    std::lock_guard lock(mutex_);
    announcements_.push_back(std::move(announcement));
  }

  void agree(const Progress& at, const std::function<std::string()>& describe) override {
    if (!detector_) return;
    Announcement announcement;
    {
      std::lock_guard lock(mutex_);
      internal_check(!announcements_.empty(), "a step was not announced");
      announcement = std::move(announcements_.front());
      announcements_.pop_front();
    }
    try {
      detector_->wait(announcement.works, at, announcement.lost);
    } catch (const CommError& error) {
      throw CommError(with_line(at, error.what()));  // no op has begun whose line could lead the message
    }
    bool equal = announcement.theirs.size() == neighbours().size();
    for (const at::Tensor& other : announcement.theirs)
      equal &= *other.data_ptr<int64_t>() == *announcement.mine.data_ptr<int64_t>();
    if (!equal) disagree(at, describe());
  }

  void failed(const Progress& at, std::exception_ptr error, bool overwrote) override {
    if (overwrote) overwrote_ = true;
    if (!detector_ || !detector_->broken().empty()) return;
    std::string what = "an error that is no exception";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      what = known.what();
    }
    what = what.substr(0, what.find('\n'));
    const std::string line = source_text(at.source);
    const std::string trouble = detector_->world().peers[processes_.here].name + " failed in step " +
                                std::to_string(at.step) + " at " + (line.empty() ? "" : line + ": ") + at.op + ": " +
                                what +
                                ". Expected the step to run everywhere. Mend that, and catch the error in every "
                                "process to go on: spmdx.runtime.recover().";
    detector_->report(trouble);
    detector_->set_broken(trouble);
  }

  void call_off(const std::string& why) { detector_->call_off(announced_, why); }

  void recover(Engine& engine) {
    const Progress at{announced_, current_source(), "recover"};
    try {
      regroup(engine, at);
    } catch (const CommError& error) {
      throw CommError(with_line(at, error.what()));
    } catch (...) {
      detector_->break_off("spmdx.runtime.recover() was broken off. Expected it to end. Call it again.");
      throw;
    }
  }

 private:
  std::shared_ptr<Transport> transport() {
    std::lock_guard lock(mutex_);
    return data_;
  }

  Group control_group() {
    std::lock_guard lock(mutex_);
    return control_;
  }

  void regroup(Engine& engine, const Progress& at) {
    const Reached mine{engine.standing(), overwrote_, current_draw()};
    std::vector<Reached> all;
    for (const std::string& text : detector_->regroup(text_of(mine), at)) all.push_back(reached_from(text));
    std::deque<Announcement> dropped;  // dies after the lock is given up
    {
      std::lock_guard lock(mutex_);
      dropped.swap(announcements_);
    }
    open_groups();
    const Resumed now = resumed(all);
    set_current_draw(now.drawn);
    announced_ = now.next;
    engine.resume(now.agreed, now.next);
    overwrote_ = false;
    detector_->end_regrouping();
    if (const std::string why = why_tensors_may_differ(all); !why.empty())
      throw CommError(why +
                      " Expected them as they were before it. The processes can talk again: load the last "
                      "checkpoint, then go on.");
  }

  void open_groups() {
    const std::string suffix = "/" + std::to_string(detector_->generation());
    auto data = std::make_shared<Transport>(open_group("data" + suffix), detector_->world().on_stream);
    {
      std::lock_guard lock(mutex_);
      data_.swap(data);
    }
    Group control = open_group("control" + suffix);
    std::lock_guard lock(mutex_);
    control_.swap(control);
  }

  Group open_group(const std::string& name) {
    std::vector<int64_t> all(static_cast<size_t>(processes_.count));
    std::iota(all.begin(), all.end(), 0);
    return groups_->open(name, all, {announced_, 0, "meeting of the processes"});
  }

  // (to, from) for every message that announces a step.
  std::vector<std::pair<int64_t, int64_t>> neighbours() const {
    const int64_t count = processes_.count, here = processes_.here;
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t distance = 1; distance < count; count <= kAllPeers ? ++distance : distance *= 2)
      pairs.emplace_back((here + distance) % count, (here + count - distance) % count);
    return pairs;
  }

  // Every process tells what it was about to run, and quotes the first line that differs.
  [[noreturn]] void disagree(const Progress& at, const std::string& account) {
    const std::string prefix =
        "account/" + std::to_string(detector_->generation()) + "/" + std::to_string(at.step) + "/";
    detector_->set(prefix + std::to_string(processes_.here), account);
    auto others = std::make_shared<std::vector<Account>>();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto gathered = [prefix, others, until, all = processes_](c10d::Store& store) {
      others->clear();
      for (int64_t process = 0; process < all.count; ++process) {
        if (process == all.here) continue;
        const std::string text = text_at(store, prefix + std::to_string(process));
        if (!text.empty()) others->push_back({process, text});
      }
      return std::ssize(*others) == all.count - 1 || std::chrono::steady_clock::now() > until;
    };
    detector_->wait_until(gathered, at, FailureDetector::kUnwatched);
    const std::string said =
        "step " + std::to_string(at.step) + ": " + first_difference({processes_.here, account}, *others);
    if (processes_.count > kAllPeers) detector_->report(said);  // some of them see no difference
    detector_->set_broken(said);
    throw CommError(with_line(at, said));
  }

  // Set by `join`, before any step.
  Processes processes_;
  std::unique_ptr<FailureDetector> detector_;
  std::unique_ptr<Groups> groups_;
  std::shared_ptr<Transport> data_;  // guarded by mutex_
  Group control_;                    // guarded by mutex_
  std::atomic<int64_t> announced_ = 0, native_collectives_ = 0;
  std::atomic<bool> overwrote_ = false;  // by a step that failed
  std::mutex mutex_;
  std::deque<Announcement> announcements_;  // announced, not agreed on yet; guarded by mutex_
};

C10dComm& instance() {
  static auto* comm = new C10dComm;  // outlives the thread that runs steps
  return *comm;
}

std::function<void()>& before_first_use() {
  static auto* callback = new std::function<void()>;  // a Python function, which outlives its interpreter
  return *callback;
}

}  // namespace

Comm& comm() { return instance(); }

void join(World world, MakeGroup make_group) { instance().join(std::move(world), std::move(make_group)); }

void leave(int64_t steps, const std::string& why) {
  if (FailureDetector* detector = instance().detector()) detector->leave(steps, why);
}

void end_world(const std::string& why) {
  if (FailureDetector* detector = instance().detector()) detector->set_broken(why);
}

void call_off(const std::string& why) {
  if (instance().detector()) instance().call_off(why);
}

void recover(Engine& engine) {
  if (instance().detector()) instance().recover(engine);
}

int64_t generation() { return instance().detector() ? instance().detector()->generation() : 0; }

int64_t native_collectives() { return instance().native_collectives(); }

void reset_native_collectives() { instance().native_collectives() = 0; }

std::vector<std::string> await_values(const std::vector<std::string>& keys, const Awaited& awaited) {
  const Progress at{instance().announced(), awaited.source, awaited.what};
  return instance().detector()->wait_for(keys, at, awaited.stale, awaited.patience);
}

void compare_replicas(uint64_t digest) {
  static std::pair<int64_t, int64_t> turn{-1, 0};  // generation and number; of the thread of the program
  FailureDetector& detector = *instance().detector();
  const World& world = detector.world();
  turn = {detector.generation(), turn.first == detector.generation() ? turn.second + 1 : 0};
  const std::string prefix = "replica/" + std::to_string(turn.first) + "/" + std::to_string(turn.second) + "/";
  const std::string mine = std::to_string(digest);
  std::vector<std::string> keys;
  for (int64_t process = 0; process < world.processes.count; ++process)
    keys.push_back(prefix + std::to_string(process));
  detector.set(keys[world.processes.here], mine);
  const Progress at{instance().announced(), current_source(), "comparison of replicas"};
  const std::vector<std::string> all = await_values(keys, {at.op, at.source});
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& theirs) { return theirs != mine; });
  if (other == all.end()) return;
  throw CommError(with_line(at, world.peers[other - all.begin()].name + " reads another value than process " +
                                    std::to_string(world.processes.here) +
                                    " here. Expected replicas to be equal. Look for what was set on one process only "
                                    "(load_local_shards_, from_local_shards, a custom op that is not deterministic)."));
}

bool lives(int64_t process) { return instance().detector()->lives(process); }

bool runs(int64_t process) { return instance().detector()->runs(process); }

std::string broken() { return instance().detector() ? instance().detector()->broken() : std::string(); }

void set_before_first_use(std::function<void()> callback) { before_first_use() = std::move(callback); }

void note_use() {
  static std::once_flag once;
  NoGil no_gil;  // the callback takes the lock of the interpreter
  if (before_first_use()) std::call_once(once, [] { before_first_use()(); });
}

}  // namespace spmdx::bridge
