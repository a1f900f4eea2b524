// SPDX-License-Identifier: Apache-2.0
// Build: elementwise ops, which share the loops of a stage where they can.
#include <algorithm>

#include "emit/hls/build.h"

namespace spmdx::emit::hls {
namespace {

// The last stage that writes one of the operands, if it is a group of the shape: all others are there before it, so
// that no ring of stages comes about.
uint32_t group_for(Design& design, const std::string& op, const Shape& shape, const std::vector<Operand>& operands) {
  int64_t last = -1;
  for (const Operand& operand : operands)
    if (operand.is_stream()) last = std::max<int64_t>(last, design.streams[operand.number].stage);
  if (last >= 0 && design.stages[last].kind == Stage::Kind::group && design.stages[last].shape == shape)
    return static_cast<uint32_t>(last);
  Stage stage;
  stage.kind = Stage::Kind::group;
  stage.op = op;
  stage.shape = shape;
  stage.once.push_back({shape, {}, {}});
  return design.add_stage(std::move(stage));
}

std::string value_text(uint32_t stream) { return "v" + std::to_string(stream); }

// An operand where the loops are, which a line reads first if it comes from another stage.
std::string text_in(Design& design, uint32_t group, const Operand& of) {
  Stage& stage = design.stages[group];
  Nest& nest = stage.once[0];
  if (of.kind == Operand::Kind::splat) return literal(design, of.elem, of.splat);
  if (of.kind == Operand::Kind::rom) {
    if (std::ranges::find(stage.roms, of.number) == stage.roms.end()) stage.roms.push_back(of.number);
    return "w" + std::to_string(of.number) + "[0][" + index_text(of.shape, of.strides, of.offset) + "]";
  }
  const Stream& stream = design.streams[of.number];
  if (stream.stage != group && std::ranges::find(nest.reads, of.number) == nest.reads.end()) {
    nest.reads.push_back(of.number);
    nest.lines.push_back({"const " + std::string(type_text(stream.elem)) + " " + value_text(of.number) + " = " +
                          read_text(of.number) + ";"});
  }
  return value_text(of.number);
}

}  // namespace

Operand elementwise(Design& design, const std::string& op, Elem elem, const Shape& shape,
                    const std::vector<Operand>& operands, const std::vector<Operator>& ops,
                    const Expression& expression) {
  const uint32_t group = group_for(design, op, shape, operands);
  std::vector<std::string> texts;
  for (const Operand& operand : operands) texts.push_back(text_in(design, group, operand));
  const Elem made = elem == Elem::wide ? Elem::real : elem;
  const uint32_t out = design.add_stream(made, shape, group);
  Nest& nest = design.stages[group].once[0];
  const std::string type = type_text(made);
  nest.lines.push_back({"const " + type + " " + value_text(out) + " = " + type + "(" + expression(texts) + ");"});
  nest.lines.push_back(write_line(out, value_text(out)));
  nest.ops.insert(nest.ops.end(), ops.begin(), ops.end());
  nest.writes.push_back(out);
  return design.of_stream(out);
}

}  // namespace spmdx::emit::hls
