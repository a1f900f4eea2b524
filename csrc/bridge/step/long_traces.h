// SPDX-License-Identifier: Apache-2.0
// Long traces: a program that neither reads nor marks steps is cut into steps, so that memory stays bounded.
#pragma once

namespace spmdx::bridge {

// Ends a graph that grew too long, or that read too many bytes of uploads; once that happened, and until the program
// ends a graph itself, where it comes to the op again with which the graph began. `op`: what is about to be recorded,
// whatever tells ops apart. REQUIRES: between two ops. Holds the recorder's lock.
void end_if_long(const void* op);

}  // namespace spmdx::bridge
