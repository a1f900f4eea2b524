// SPDX-License-Identifier: Apache-2.0
// A simulated NCCL process group: messages between simulated CUDA devices, in order of streams, which Gloo carries.
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdlib>
#include <utility>

#include "bridge/world/leavable.h"
#include "simulated.h"

namespace simulated {
namespace {

using c10d::OpType;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

struct Message {
  OpType kind;  // SEND, RECV, or a collective of all
  at::Tensor tensor;
  int peer;
  Ticket ready;      // the position of the caller's stream
  at::Tensor given;  // of a collective that does not write to what it reads
};

// One stream's worth of messages between the processes. After the first failure all others fail.
class Communicator {
 public:
  // SIMULATED_NCCL_DELAY_US: how long every group of messages sleeps before it begins.
  explicit Communicator(c10::intrusive_ptr<c10d::Backend> gloo) : gloo_(std::move(gloo)) {
    const char* delay = std::getenv("SIMULATED_NCCL_DELAY_US");
    queue_.set_delay(delay ? std::atoll(delay) : 0);
  }

  Queue& queue() { return queue_; }

  // All messages at the same time; ends when they have ended.
  void exchange(const std::vector<Message>& messages) {
    const Works works = post(messages);
    std::vector<std::thread> waits;
    for (const auto& work : works) {
      waits.emplace_back([this, &work] {
        try {
          if (!work->wait()) abort("the wait was ended");
        } catch (const std::exception& error) {
          abort(text_of(error));
        }
      });
    }
    for (std::thread& wait : waits) wait.join();
    std::lock_guard lock(mutex_);
    running_.clear();
    const auto late = std::exchange(late_, {});
    if (broken_.empty())
      for (const auto& [taken, part] : late) taken.copy_(part);
    TORCH_CHECK_WITH(DistBackendError, broken_.empty(), "NCCL error: ", broken_);
  }

  void abort(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (broken_.empty()) broken_ = why;
    for (const auto& work : running_) work->abort();
  }

 private:
  static std::string text_of(const std::exception& error) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    return of_torch ? of_torch->what_without_backtrace() : error.what();
  }

  // Those that could be posted.
  Works post(const std::vector<Message>& messages) try {
    std::lock_guard lock(mutex_);
    for (const Message& message : messages) {
      if (!broken_.empty()) break;
      running_.push_back(begin(message));
    }
    return running_;
  } catch (const std::exception& error) {  // a connection that is closed already
    abort(text_of(error));
    return running_;
  }

  c10::intrusive_ptr<c10d::Work> begin(const Message& message) {
    std::vector<at::Tensor> tensors = {host_alias(message.tensor)};
    at::Tensor given = message.given.defined() ? host_alias(message.given) : at::Tensor();
    switch (message.kind) {
      case OpType::SEND:
        return gloo_->send(tensors, message.peer, 0);
      case OpType::RECV:
        return gloo_->recv(tensors, message.peer, 0);
      case OpType::ALLREDUCE:
        return spmdx::bridge::leavable(gloo_->allreduce(tensors));
      case OpType::_ALLGATHER_BASE:
        return spmdx::bridge::leavable(gloo_->_allgather_base(tensors[0], given));
      default: {  // Gloo's ends in its wait(), which cannot be left
        std::vector<at::Tensor> sums = {given.clone()};
        const int64_t each = tensors[0].numel();
        late_.emplace_back(tensors[0], sums[0].narrow(0, gloo_->getRank() * each, each));
        return spmdx::bridge::leavable(gloo_->allreduce(sums));
      }
    }
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  Queue& queue_ = *new Queue;  // never freed: its thread runs to the end
  std::mutex mutex_;
  std::string broken_;
  Works running_;
  std::vector<std::pair<at::Tensor, at::Tensor>> late_;  // where parts of sums go when all has ended
};

// A group of messages. It lets streams wait, never the host.
class GroupWork final : public c10d::Work {
 public:
  GroupWork(int rank, OpType kind, c10::Device device, std::shared_ptr<Communicator> communicator)
      : Work(rank, kind), device_(device), communicator_(std::move(communicator)) {}

  static c10::intrusive_ptr<GroupWork> launch(int rank, OpType kind, std::vector<Message> messages,
                                              const std::shared_ptr<Communicator>& communicator) {
    auto work = c10::make_intrusive<GroupWork>(rank, kind, messages[0].tensor.device(), communicator);
    Queue& queue = communicator->queue();
    for (const Message& message : messages) queue.wait_for(message.ready);
    // The entry keeps the tensors until the messages have gone.
    work->end_ = queue.enqueue("nccl", [work, messages = std::move(messages)] { work->run(messages); });
    return work;
  }

  bool wait(std::chrono::milliseconds) override {
    current_queue(device_).wait_for(end_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { communicator_->abort("the communicator was aborted"); }

 private:
  void run(const std::vector<Message>& messages) try {
    communicator_->exchange(messages);
    finish();
  } catch (const std::exception&) {
    finish(std::current_exception());
  }

  c10::Device device_;
  std::shared_ptr<Communicator> communicator_;
  Ticket end_;
};

// As torch::cuda::nccl does; it sends no others.
bool is_known_to_nccl(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kHalf:
    case at::kDouble:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kBFloat16:
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fn:
      return true;
    default:
      return false;
  }
}

class SimulatedNccl final : public c10d::Backend {
 public:
  explicit SimulatedNccl(c10::intrusive_ptr<c10d::Backend> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), communicator_(std::make_shared<Communicator>(std::move(gloo))) {}
  ~SimulatedNccl() override { abort(); }

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }
  void abort() override { communicator_->abort("the communicator was aborted"); }

  void startCoalescing() override {
    TORCH_CHECK(!open_, "startCoalescing: a group is open already. Expected endCoalescing first.");
    open_ = true;
  }

  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    TORCH_CHECK(open_, "endCoalescing: no group is open");
    open_ = false;
    std::vector<Message> messages = std::exchange(group_, {});
    if (messages.empty()) return nullptr;
    return GroupWork::launch(rank_, OpType::COALESCED, std::move(messages), communicator_);
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int) override {
    return add(OpType::SEND, tensors, to);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return add(OpType::RECV, tensors, from);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    TORCH_CHECK_VALUE(tensors.size() == 1, "Expected one tensor");
    return collective(OpType::ALLREDUCE, tensors[0], {});
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& taken, at::Tensor& given,
                                                 const c10d::AllgatherOptions&) override {
    TORCH_CHECK_VALUE(taken.numel() == given.numel() * size_, "Expected as much for each rank as it gives");
    return collective(OpType::_ALLGATHER_BASE, taken, given);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& taken, at::Tensor& given,
                                                      const c10d::ReduceScatterOptions&) override {
    TORCH_CHECK_VALUE(given.numel() == taken.numel() * size_, "Expected as much of each rank as it takes");
    return collective(OpType::_REDUCE_SCATTER_BASE, taken, given);
  }

 private:
  static void check(const at::Tensor& tensor) {
    TORCH_CHECK_VALUE(tensor.is_cuda() && tensor.layout() == at::kStrided, "Tensors must be CUDA and dense");
    TORCH_CHECK_VALUE(tensor.is_contiguous(), "Tensors must be contiguous");
    TORCH_CHECK(is_known_to_nccl(tensor.scalar_type()), "Unconvertible NCCL type ", tensor.scalar_type());
  }

  c10::intrusive_ptr<c10d::Work> collective(OpType kind, const at::Tensor& taken, const at::Tensor& given) {
    TORCH_CHECK(!open_, "a collective within a group of messages");
    check(taken);
    if (given.defined()) check(given);
    return GroupWork::launch(rank_, kind, {{kind, taken, -1, current_queue(taken.device()).tail(), given}},
                             communicator_);
  }

  c10::intrusive_ptr<c10d::Work> add(OpType kind, const std::vector<at::Tensor>& tensors, int peer) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "Expected one tensor");
    const at::Tensor& tensor = tensors[0];
    check(tensor);
    TORCH_CHECK_VALUE(peer >= 0 && peer < size_ && peer != rank_, "Invalid rank ", peer);
    TORCH_CHECK_VALUE(group_.empty() || group_[0].tensor.device() == tensor.device(),
                      "Expected all tensors of a group on one device");
    Message message{kind, tensor, peer, current_queue(tensor.device()).tail(), {}};
    if (!open_) return GroupWork::launch(rank_, kind, {std::move(message)}, communicator_);
    group_.push_back(std::move(message));
    return nullptr;
  }

  std::shared_ptr<Communicator> communicator_;
  bool open_ = false;  // between startCoalescing and endCoalescing
  std::vector<Message> group_;
};

}  // namespace
}  // namespace simulated

PYBIND11_MODULE(simulated_nccl, m) {
  using simulated::SimulatedNccl;
  pybind11::module_::import("torch.distributed");
  pybind11::class_<SimulatedNccl, c10d::Backend, c10::intrusive_ptr<SimulatedNccl>>(m, "SimulatedNccl");
  m.def("make",
        [](c10::intrusive_ptr<c10d::Backend> gloo) { return c10::make_intrusive<SimulatedNccl>(std::move(gloo)); });
}
