// SPDX-License-Identifier: Apache-2.0
// Transport: tensors that the group can send and write to, and one work where it sends from a stream.
#include "bridge/world/transport.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/world/leavable.h"

namespace spmdx::bridge {
namespace {

// The memory of a tensor. REQUIRES: it is contiguous.
at::Tensor memory_of(const at::Tensor& tensor) {
  at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte));
  return bytes.set_(tensor.storage(), tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()),
                    {static_cast<int64_t>(tensor.nbytes())}, {1});
}

}  // namespace

Transport::Transport(Group group, bool on_stream) : group_(std::move(group)), on_stream_(on_stream) {}

Transport::~Transport() = default;

// NCCL does not know every dtype.
at::Tensor Transport::as_sent(const at::Tensor& tensor) const { return on_stream_ ? memory_of(tensor) : tensor; }

at::Tensor Transport::sendable(const at::Tensor& tensor) const {
  const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
  return carries(plain) ? plain : to_host(plain);
}

at::Tensor Transport::landing(const at::Tensor& target, Carried& carried) const {
  if (target.is_contiguous() && carries(target)) return target;
  const auto device = carries(target) ? target.device() : c10::Device(c10::kCPU);
  return carried.late.emplace_back(target, at::empty(target.sizes(), target.options().device(device))).second;
}

Works Transport::post_each(std::span<const Message> sends, std::span<const Message> receives, Carried& carried) {
  Works works;
  for (const Message& message : receives) {
    const at::Tensor target = tensor_of(message.buffer);
    if (target.numel() == 0) continue;
    std::vector<at::Tensor> whole = {as_sent(landing(target, carried))};
    works.push_back(group_->recv(whole, static_cast<int>(message.peer), kTag));
  }
  for (const Message& message : sends) {
    std::vector<at::Tensor> whole = {as_sent(sendable(tensor_of(message.buffer)))};
    if (whole[0].numel() == 0) continue;
    works.push_back(group_->send(whole, static_cast<int>(message.peer), kTag));
    carried.sent.push_back(whole[0]);
  }
  return works;
}

// A stream runs works one after the other. Sends and receives that wait for each other must be one work.
Works Transport::post_as_one(std::span<const Message> sends, std::span<const Message> receives, Carried& carried) {
  group_->startCoalescing();
  try {
    const bool any = !post_each(sends, receives, carried).empty();
    const auto all = group_->endCoalescing();
    return any && all ? Works{all} : Works{};
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      group_->endCoalescing();         // or the next group would be a part of this one
    } catch (const std::exception&) {  // a consequence of the first error, which says more
    }
    std::rethrow_exception(error);
  }
}

Works Transport::post(std::span<const Message> sends, std::span<const Message> receives, Carried& carried) {
  return on_stream_ ? post_as_one(sends, receives, carried) : post_each(sends, receives, carried);
}

// Gloo has no reduce_scatter but an all_reduce of which each takes its part.
c10::intrusive_ptr<c10d::Work> Transport::scatter_sums(at::Tensor& taken, at::Tensor& given, Carried& carried) {
  if (on_stream_) return group_->_reduce_scatter_base(taken, given);
  carried.late.emplace_back(taken, given.narrow(0, group_->getRank() * taken.numel(), taken.numel()));
  std::vector<at::Tensor> sums = {given};
  return group_->allreduce(sums);
}

Works Transport::call(const NativeCall& call, Carried& carried) {
  at::Tensor given = sendable(tensor_of(call.given)), taken = tensor_of(call.taken);
  carried.sent.push_back(given);
  c10::intrusive_ptr<c10d::Work> work;
  switch (call.kind) {
    case NativeKind::all_gather: {
      at::Tensor rows = memory_of(landing(taken, carried)), row = memory_of(given);
      work = group_->_allgather_base(rows, row);
      break;
    }
    case NativeKind::reduce_scatter:
      work = scatter_sums(taken, given, carried);
      break;
    case NativeKind::all_reduce: {
      if (!given.is_same(taken)) carried.late.emplace_back(taken, given);
      std::vector<at::Tensor> sums = {given};
      work = group_->allreduce(sums);
      break;
    }
  }
  called_ = work;
  return {on_stream_ ? work : leavable(work)};
}

bool Transport::is_idle() const { return on_stream_ || !called_ || called_->isCompleted(); }

void Carried::land() const {
  for (const auto& [target, came] : late) target.copy_(came);
}

void Transport::abort() { group_->abort(); }

}  // namespace spmdx::bridge
