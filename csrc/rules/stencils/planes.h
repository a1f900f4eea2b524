// SPDX-License-Identifier: Apache-2.0
// Planes: ops on images (pooling, upsampling, padding). Batch and channels pass; if the op is a stencil, cut spatial
// dims exchange halos.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

OpRule planes(const Call& call);   // spatial dims of a stencil are composite, those of other ops may not be cut
OpRule stencil(const Call& call);  // of spmdx.stencil: cut dims pass, or are summed over
OpRule halo(const Call& call);     // of spmdx.halo: the dim is cut into its parts or not at all

Values expand_stencil(Builder& builder,
                      const Node& node);  // into spmdx.halo and spmdx.stencil, if a spatial dim is cut
// Localise functions: of spmdx.stencil, and of a spmdx.halo that takes no rows from other devices.
void stencil_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void halo_parts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

// A spatial dim of a stencil that is cut in some operand.
struct CutDim {
  size_t spatial;  // 0 is the first spatial dim
  int64_t parts;
};
// The cut spatial dims of a call of a stencil, without those whose windows are one row and need no halo.
std::vector<CutDim> cut_dims(OpBuilder& maths, const Call& call, const Values& inputs);
// Emits the call as a spmdx.stencil over parts of the cut dims; operands on the side that the parts do not own get
// halos. Returns all results.
Values in_parts(OpBuilder& maths, const Call& call, Values inputs, const std::vector<CutDim>& cuts);

}  // namespace spmdx::rules
