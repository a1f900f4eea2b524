// SPDX-License-Identifier: Apache-2.0
// Leavable: a work of a group that has no way to break one off; who waits for it can be.
#pragma once
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace spmdx::bridge {

// It ends as `work` does. Where it is aborted before that, `wait` returns false, and `work` goes on, with what it
// needs, for as long as it likes.
c10::intrusive_ptr<c10d::Work> leavable(const c10::intrusive_ptr<c10d::Work>& work);

}  // namespace spmdx::bridge
