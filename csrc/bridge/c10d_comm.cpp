// SPDX-License-Identifier: Apache-2.0
// C10dComm: point-to-point messages of a c10d backend.
#include "bridge/c10d_comm.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <memory>

#include "base/error.h"
#include "bridge/aten_backend.h"
#include "bridge/place.h"
#include "bridge/recorder.h"
#include "runtime/differences.h"

namespace spmdx::bridge {
namespace {

constexpr int kTag = 0;
// So many processes tell each other directly what they are about to do; more of them tell some.
constexpr int64_t kAllPeers = 16;

// What was announced for one step, and what comes in.
struct Roll {
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

// Led by the user's line.
std::string led(const Progress& at, const std::string& reason) {
  const std::string line = source_text(at.source);
  return (line.empty() ? "" : line + ": ") + reason;
}

// The memory of a tensor. REQUIRES: it is contiguous.
at::Tensor memory_of(const at::Tensor& tensor) {
  at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte));
  return bytes.set_(tensor.storage(), tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()),
                    {static_cast<int64_t>(tensor.nbytes())}, {1});
}

// Received for a tensor that a group cannot write to.
using Late = std::vector<std::pair<at::Tensor, at::Tensor>>;

class C10dComm final : public Comm {
 public:
  void join(World world, std::function<Group(const std::string&)> make_group) {
    make_group_ = std::move(make_group);
    processes_ = world.processes;
    watch_ = std::make_unique<Watch>(std::move(world));
    open_groups();
    if (on_stream()) watch_->set_abort_stream([this] { carrier()->abort(); });
  }

  Watch* watch() { return watch_.get(); }
  int64_t announced() const { return announced_; }
  Processes processes() const override { return processes_; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, const Progress& at) override {
    if (!watch_) return Comm::exchange(sends, receives, at);
    KernelGuard guard;
    sent_.clear();
    Late late;
    const auto post = [&] {
      return on_stream() ? posted_as_one(sends, receives, late) : posted(sends, receives, late);
    };
    watch_->carry(post, at, on_stream());
    for (const auto& [target, came] : late) target.copy_(came);
    sent_.clear();
  }

  void announce(uint64_t fingerprint) override {
    if (!watch_) return;
    ++announced_;
    Roll roll;
    roll.mine = one_number(static_cast<int64_t>(fingerprint));
    if (watch_->broken().empty()) try {
        for (const auto& [to, from] : neighbours()) {
          std::vector<at::Tensor> coming = {one_number(0)}, going = {roll.mine};
          roll.works.push_back(control_->recv(coming, static_cast<int>(from), kTag));
          roll.works.push_back(control_->send(going, static_cast<int>(to), kTag));
          roll.theirs.push_back(coming[0]);
        }
      } catch (const std::exception& error) {  // a connection that is closed already: `agree` tells why
        roll.lost = error.what();
      }
    std::lock_guard lock(mutex_);
    rolls_.push_back(std::move(roll));
  }

  void agree(const Progress& at, const std::function<std::string()>& describe) override {
    if (!watch_) return;
    Roll roll;
    {
      std::lock_guard lock(mutex_);
      internal_check(!rolls_.empty(), "a step was not announced");
      roll = std::move(rolls_.front());
      rolls_.pop_front();
    }
    try {
      watch_->wait(roll.works, at, roll.lost);
    } catch (const CommError& error) {
      throw CommError(led(at, error.what()));  // no op has begun that could lead
    }
    bool equal = roll.theirs.size() == neighbours().size();
    for (const at::Tensor& other : roll.theirs) equal &= *other.data_ptr<int64_t>() == *roll.mine.data_ptr<int64_t>();
    if (!equal) disagree(at, describe());
  }

  void failed(const Progress& at, std::exception_ptr error, bool overwrote) override {
    if (overwrote) overwrote_ = true;
    if (!watch_ || !watch_->broken().empty()) return;
    std::string what = "an error that is no exception";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      what = known.what();
    }
    what = what.substr(0, what.find('\n'));
    const std::string line = source_text(at.source);
    const std::string trouble = watch_->world().peers[processes_.here].name + " failed in step " +
                                std::to_string(at.step) + " at " + (line.empty() ? "" : line + ": ") + at.op + ": " +
                                what +
                                ". Expected the step to run everywhere. Mend that, and catch the error in every "
                                "process to go on: spmdx.runtime.recover().";
    watch_->report(trouble);
    watch_->set_broken(trouble);
  }

  void recover() {
    const int64_t generation = watch_->recover();
    {
      std::lock_guard lock(mutex_);
      rolls_.clear();
    }
    generation_ = generation;
    open_groups();
    if (watch_->anybody(overwrote_.exchange(false)))
      throw CommError(
          "the step that failed had begun to overwrite tensors, which may now differ between processes. "
          "Expected them as they were before it. The processes can talk again: load the last checkpoint, "
          "then go on.");
  }

 private:
  Group carrier() {
    std::lock_guard lock(mutex_);
    return data_;
  }

  bool on_stream() const { return watch_->world().on_stream; }
  bool carries(const at::Tensor& tensor) const { return tensor.is_cpu() || on_stream(); }

  // NCCL does not know every dtype.
  at::Tensor as_sent(const at::Tensor& tensor) const { return on_stream() ? memory_of(tensor) : tensor; }

  at::Tensor sendable(const at::Tensor& tensor) const {
    const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
    return carries(plain) ? plain : to_host(plain);
  }

  at::Tensor landing(const at::Tensor& target, Late& late) const {
    if (target.is_contiguous() && carries(target)) return target;
    const auto device = carries(target) ? target.device() : c10::Device(c10::kCPU);
    return late.emplace_back(target, at::empty(target.sizes(), target.options().device(device))).second;
  }

  Works posted(std::span<const Message> sends, std::span<const Message> receives, Late& late) {
    Works works;
    for (const Message& message : receives) {
      const at::Tensor target = tensor_of(message.buffer);
      if (target.numel() == 0) continue;
      std::vector<at::Tensor> whole = {as_sent(landing(target, late))};
      works.push_back(data_->recv(whole, static_cast<int>(message.peer), kTag));
    }
    for (const Message& message : sends) {
      std::vector<at::Tensor> whole = {as_sent(sendable(tensor_of(message.buffer)))};
      if (whole[0].numel() == 0) continue;
      works.push_back(data_->send(whole, static_cast<int>(message.peer), kTag));
      sent_.push_back(whole[0]);
    }
    return works;
  }

  // Of a stream, which runs one after the other: none would end before the others have begun, were they not one work.
  Works posted_as_one(std::span<const Message> sends, std::span<const Message> receives, Late& late) {
    data_->startCoalescing();
    try {
      const bool any = !posted(sends, receives, late).empty();
      const auto all = data_->endCoalescing();
      return any && all ? Works{all} : Works{};
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      try {
        data_->endCoalescing();          // or the next group would be a part of this one
      } catch (const std::exception&) {  // follows from the first error, which says more
      }
      std::rethrow_exception(error);
    }
  }

  void open_groups() {
    const std::string suffix = "/" + std::to_string(generation_);
    Group data = open_group("data" + suffix);
    {
      std::lock_guard lock(mutex_);
      data_.swap(data);
    }
    control_ = open_group("control" + suffix);
  }

  // Making it waits for all the others, on a thread that is left behind if they do not come.
  Group open_group(const std::string& name) {
    auto made = std::make_shared<std::promise<Group>>();
    const std::shared_future<Group> group = made->get_future().share();
    std::thread([make = make_group_, name, made] {
      try {
        made->set_value(make(name));
      } catch (...) {
        made->set_exception(std::current_exception());
      }
    }).detach();
    const auto is_made = [group](c10d::Store&) {
      return group.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    const Progress at{announced_, 0, "meeting of the processes"};
    watch_->wait_until(is_made, at);
    try {
      return group.get();
    } catch (const std::exception& error) {  // somebody has gone: waiting tells who
      watch_->wait({}, at, error.what());
      throw;
    }
  }

  // (to, from) for every message that announces a step.
  std::vector<std::pair<int64_t, int64_t>> neighbours() const {
    const int64_t count = processes_.count, here = processes_.here;
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t distance = 1; distance < count; count <= kAllPeers ? ++distance : distance *= 2)
      pairs.emplace_back((here + distance) % count, (here + count - distance) % count);
    return pairs;
  }

  // Everybody tells what it was about to run, and quotes the first line that is not the same.
  [[noreturn]] void disagree(const Progress& at, const std::string& account) {
    const std::string prefix = "account/" + std::to_string(generation_) + "/" + std::to_string(at.step) + "/";
    watch_->set(prefix + std::to_string(processes_.here), account);
    auto others = std::make_shared<std::vector<Account>>();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto gathered = [prefix, others, until, all = processes_](c10d::Store& store) {
      others->clear();
      for (int64_t process = 0; process < all.count; ++process) {
        const std::string name = prefix + std::to_string(process);
        if (process == all.here || !store.check({name})) continue;
        const std::vector<uint8_t> text = store.get(name);
        others->push_back({process, {text.begin(), text.end()}});
      }
      return std::ssize(*others) == all.count - 1 || std::chrono::steady_clock::now() > until;
    };
    watch_->wait_until(gathered, at, Watch::kUnwatched);
    const std::string said =
        "step " + std::to_string(at.step) + ": " + first_difference({processes_.here, account}, *others);
    watch_->set_broken(said);
    throw CommError(led(at, said));
  }

  Processes processes_;
  std::function<Group(const std::string&)> make_group_;
  std::unique_ptr<Watch> watch_;
  Group data_, control_;
  int64_t generation_ = 0;
  std::atomic<int64_t> announced_ = 0;
  std::atomic<bool> overwrote_ = false;  // by a step that failed
  std::vector<at::Tensor> sent_;         // alive until they are gone
  std::mutex mutex_;
  std::deque<Roll> rolls_;  // announced, not agreed on yet
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

void join(World world, std::function<Group(const std::string& name)> make_group) {
  instance().join(std::move(world), std::move(make_group));
}

void leave(const std::string& why) {
  if (Watch* watch = instance().watch()) watch->leave(instance().announced(), why);
}

void recover() {
  if (instance().watch()) instance().recover();
}

std::vector<std::string> await_values(const std::vector<std::string>& keys, const Awaited& awaited) {
  const Progress at{instance().announced(), awaited.source, awaited.what};
  return instance().watch()->wait_for(keys, at, awaited.stale, awaited.patience);
}

void compare_replicas(uint64_t digest) {
  static std::atomic<int64_t> count = 0;
  Watch& watch = *instance().watch();
  const World& world = watch.world();
  const std::string prefix = "replica/" + std::to_string(count++) + "/", mine = std::to_string(digest);
  std::vector<std::string> keys;
  for (int64_t process = 0; process < world.processes.count; ++process)
    keys.push_back(prefix + std::to_string(process));
  watch.set(keys[world.processes.here], mine);
  const std::vector<std::string> all = await_values(keys, {"comparison of replicas", current_source()});
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& theirs) { return theirs != mine; });
  if (other == all.end()) return;
  throw CommError(world.peers[other - all.begin()].name + " reads another value than process " +
                  std::to_string(world.processes.here) +
                  " here. Expected replicas to be equal. Look for what was set on one process only "
                  "(load_local_shards_, from_local_shards, a custom op that is not deterministic).");
}

bool lives(int64_t process) { return instance().watch()->lives(process); }

bool runs(int64_t process) { return instance().watch()->runs(process); }

std::string broken() { return instance().watch() ? instance().watch()->broken() : std::string(); }

void set_before_first_use(std::function<void()> callback) { before_first_use() = std::move(callback); }

void note_use() {
  static std::once_flag once;
  NoGil no_gil;  // the callback takes the lock of the interpreter
  if (before_first_use()) std::call_once(once, [] { before_first_use()(); });
}

}  // namespace spmdx::bridge
