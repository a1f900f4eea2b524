// SPDX-License-Identifier: Apache-2.0
// Transport: messages of buffers, wherever these lie, through a c10d backend.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "bridge/world/failure_detector.h"
#include "runtime/data/comm.h"

namespace c10d {
class Backend;
}

namespace spmdx::bridge {

using Group = c10::intrusive_ptr<c10d::Backend>;

constexpr int kTag = 0;  // of all messages: those between two processes keep their order

// What messages under way need until they have come.
struct Carried {
  std::vector<std::pair<at::Tensor, at::Tensor>> late;  // targets that the group cannot write to, and what comes
  std::vector<at::Tensor> sent;
  void land() const;  // REQUIRES: all has come. Copies it to where it belongs.
};

class Transport {
 public:
  // `on_stream`: the group sends from the memory of the accelerator, on a stream; else from that of the host.
  Transport(Group group, bool on_stream);
  ~Transport();
  // Sends and receives are under way when it returns. Throws what the group throws.
  Works post(std::span<const Message> sends, std::span<const Message> receives, Carried& carried);
  // The same for a collective of the group's own, whose members are the processes of the call. Sums overwrite what was
  // given.
  Works call(const NativeCall& call, Carried& carried);
  // Whether the last of these has ended, so that the group can be freed: it waits for them.
  bool is_idle() const;
  // From any thread: ends all that is under way.
  void abort();

 private:
  bool carries(const at::Tensor& tensor) const { return tensor.is_cpu() || on_stream_; }
  at::Tensor as_sent(const at::Tensor& tensor) const;
  at::Tensor sendable(const at::Tensor& tensor) const;
  at::Tensor landing(const at::Tensor& target, Carried& carried) const;
  c10::intrusive_ptr<c10d::Work> scatter_sums(at::Tensor& taken, at::Tensor& given, Carried& carried);
  Works post_each(std::span<const Message> sends, std::span<const Message> receives, Carried& carried);
  Works post_as_one(std::span<const Message> sends, std::span<const Message> receives, Carried& carried);

  const Group group_;
  const bool on_stream_;
  c10::intrusive_ptr<c10d::Work> called_;  // the last collective
};

}  // namespace spmdx::bridge
