// SPDX-License-Identifier: Apache-2.0
// PatientStore: a store that a thread may wait for beyond its end.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace spmdx::bridge {

// The same store; but a thread that calls it when it has gone stays in that call until the process ends, instead of
// raising. A thread that makes a group would raise in an interpreter that is coming to its end, which ends the process.
c10::intrusive_ptr<c10d::Store> patient(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace spmdx::bridge
