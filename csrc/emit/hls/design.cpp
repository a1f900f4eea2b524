// SPDX-License-Identifier: Apache-2.0
// Design: what its parts are made of, and who reads what.
#include "emit/hls/design.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx::emit::hls {
namespace {

std::string plain(const std::string& op) {
  const size_t dot = op.find('.');
  const std::string last = dot == op.npos ? op : op.substr(dot + 1);
  std::string name;
  for (const char c : last) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::vector<uint32_t> of_nests(const Stage& stage, std::vector<uint32_t> Nest::* streams) {
  std::vector<uint32_t> found;
  for (const auto* nests : {&stage.once, &stage.repeated})
    for (const Nest& nest : *nests)
      for (const uint32_t stream : nest.*streams)
        if (std::ranges::find(found, stream) == found.end()) found.push_back(stream);
  return found;
}

}  // namespace

Elem elem_of(DType dtype) {
  if (is_complex(dtype) || dtype == DType::unknown)
    throw ShardingError("a tensor of " + std::string(name(dtype)) +
                        " is not written for HLS. Expected real numbers. Leave the op to another compiler.");
  if (dtype == DType::b8) return Elem::flag;
  return is_floating(dtype) ? Elem::real : Elem::whole;
}

const char* type_text(Elem of) {
  constexpr const char* kTypes[] = {"number_t", "acc_t", "int", "bool"};
  return kTypes[static_cast<size_t>(of)];
}

uint32_t Design::add_stream(Elem elem, Shape shape, uint32_t stage) {
  streams.push_back({elem, std::move(shape), stage});
  return static_cast<uint32_t>(streams.size() - 1);
}

uint32_t Design::add_stage(Stage stage) {
  stage.name = plain(stage.op) + "_" + std::to_string(stages.size());
  stages.push_back(std::move(stage));
  return static_cast<uint32_t>(stages.size() - 1);
}

uint32_t Design::add_rom(Rom rom) {
  roms.push_back(std::move(rom));
  return static_cast<uint32_t>(roms.size() - 1);
}

Operand Design::of_stream(uint32_t stream) const {
  Operand made;
  made.kind = Operand::Kind::stream;
  made.elem = streams[stream].elem;
  made.shape = streams[stream].shape;
  made.number = stream;
  return made;
}

Shape contiguous(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

bool is_contiguous(const Operand& of) {
  const Shape dense = contiguous(of.shape);
  for (size_t d = 0; d < of.shape.size(); ++d)
    if (of.shape[d] != 1 && of.strides[d] != dense[d]) return false;
  return true;
}

std::vector<double> elements(const Design& design, const Operand& of) {
  const int64_t count = numel(of.shape);
  if (of.kind == Operand::Kind::splat) return std::vector<double>(count, of.splat);
  std::vector<double> found;
  found.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = of.offset;
    for (size_t d = of.shape.size(); d-- > 0; rest /= of.shape[d]) at += rest % of.shape[d] * of.strides[d];
    found.push_back(design.roms[of.number].numbers[at]);
  }
  return found;
}

std::vector<uint32_t> reads(const Stage& stage) { return of_nests(stage, &Nest::reads); }
std::vector<uint32_t> writes(const Stage& stage) { return of_nests(stage, &Nest::writes); }

bool holds_all(const Design& design, const Uses& uses, uint32_t stream) {
  int64_t count = 0;
  for (const uint32_t other : writes(design.stages[design.streams[stream].stage]))
    count += !uses.of_stream[other].empty();
  return count > 1;
}

Uses uses(const Design& design) {
  Uses found{std::vector<std::vector<uint32_t>>(design.streams.size()), std::vector<bool>(design.stages.size())};
  for (size_t s = design.stages.size(); s-- > 0;) {
    const Stage& stage = design.stages[s];
    bool alive = stage.kind == Stage::Kind::store;
    for (const uint32_t stream : writes(stage)) alive |= !found.of_stream[stream].empty();
    found.is_alive[s] = alive;
    if (!alive) continue;
    for (const uint32_t stream : reads(stage))
      found.of_stream[stream].insert(found.of_stream[stream].begin(), static_cast<uint32_t>(s));
  }
  return found;
}

}  // namespace spmdx::emit::hls
