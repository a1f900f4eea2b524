// SPDX-License-Identifier: Apache-2.0
// Rules of ops that move data: dims they act upon stay whole, all others pass.
#include <algorithm>

#include "rules/families.h"
#include "rules/fits.h"
#include "rules/row.h"

namespace spmdx {
namespace {

size_t rank_of(const Call& call) { return call.inputs.at(0).shape.size(); }

// One letter per dim; those in `acted` get the mark.
std::string marked(const std::vector<bool>& acted, char mark = '!') {
  std::string text;
  for (size_t d = 0; d < acted.size(); ++d) {
    text += static_cast<char>('a' + static_cast<char>(d));
    if (acted[d]) text += mark;
  }
  return text;
}

// As marked, but acted dims are letters of this tensor alone (upper case, from `tensor` on): sizes may differ.
std::string resized(const std::vector<bool>& acted, char tensor) {
  std::string text;
  for (size_t d = 0; d < acted.size(); ++d) {
    if (acted[d])
      text += {tensor, '!'};
    else
      text += static_cast<char>('a' + static_cast<char>(d));
    tensor = static_cast<char>(tensor + acted[d]);
  }
  return text;
}

std::vector<bool> only(size_t dim, size_t rank) {
  std::vector<bool> acted(rank, false);
  if (rank > 0) acted.at(dim) = true;
  return acted;
}

size_t dim_of(const Call& call, size_t arg, size_t rank, int64_t missing = 0) {
  return static_cast<size_t>(normal_dim(integer(call, arg, missing), rank));
}

// Acted dims whole and of a size of their own in every input (from 'A') and output (from 'N').
OpRule resize_dims(const Call& call, const std::vector<bool>& acted) {
  Letters letters;
  const auto count = static_cast<size_t>(std::count(acted.begin(), acted.end(), true));
  fits(count * (call.inputs.size() + call.outputs.size()) <= 26, "too many dims of " + call.op);
  char tensor = 'A';
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    (i < call.inputs.size() ? letters.inputs : letters.outputs).push_back(resized(acted, tensor));
    tensor = static_cast<char>(tensor + static_cast<char>(count));
  }
  return from_letters(call, letters);
}

OpRule whole_dims(const Call& call, const std::vector<bool>& acted) {
  const std::string text = marked(acted);
  return from_letters(
      call, {std::vector<std::string>(call.inputs.size(), text), std::vector<std::string>(call.outputs.size(), text)});
}

// `big` has one dim more than `small`: it is whole, the others pass.
std::pair<std::string, std::string> with_and_without(size_t dim, size_t rank) {
  const std::string big = marked(only(dim, rank));
  std::string small = dims(rank);
  small.erase(dim, 1);
  return {big, small};
}

std::vector<bool> padded_dims(const Call& call, size_t arg, size_t rank) {
  std::vector<bool> acted(rank, false);
  const std::vector<int64_t> widths = integers(call, arg);
  for (size_t i = 0; i < widths.size(); ++i)
    if (widths[i] != 0) acted.at(rank - 1 - i / 2) = true;
  return acted;
}

}  // namespace

// The same bits: where items are of another size, those of the last dim belong together.
OpRule view_dtype(const Call& call) {
  const bool same = itemsize(call.inputs.at(0).dtype) == itemsize(call.outputs.at(0).dtype);
  return from_letters(call, {{same ? "*" : "*A!"}, {same ? "*" : "*B!"}});
}

OpRule permute(const Call& call) {
  const size_t rank = rank_of(call);
  std::string out;
  for (int64_t d : integers(call, 1)) out += static_cast<char>('a' + normal_dim(d, rank));
  return from_letters(call, {{dims(rank)}, {out}});
}

// A dim that grows from 1, or is new, is a factor of the output alone.
OpRule expand(const Call& call) {
  const size_t rank = rank_of(call), out_rank = call.outputs[0].shape.size();
  fits(rank <= out_rank, "expand to fewer dims");
  const std::string out = dims(out_rank);
  return from_letters(call, {{out.substr(out_rank - rank)}, {out}});
}

OpRule repeat(const Call& call) {
  const size_t rank = rank_of(call), out_rank = call.outputs[0].shape.size();
  std::string out, in;
  for (size_t d = 0; d < out_rank; ++d) {
    const bool old = d + rank >= out_rank;
    const bool same = old && call.inputs[0].shape[d + rank - out_rank] == call.outputs[0].shape[d];
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    out += same ? std::string{letter} : std::string{static_cast<char>(letter - 'a' + 'A'), '!'};
    if (old) in += same ? std::string{letter} : std::string{letter, '!'};
  }
  return from_letters(call, {{in}, {out}});
}

OpRule slice(const Call& call) {
  const size_t rank = rank_of(call), dim = dim_of(call, 1, rank);
  if (call.inputs[0].shape == call.outputs[0].shape) return whole_dims(call, std::vector<bool>(rank, false));
  return taking_rows(call, only(dim, rank));
}

OpRule slice_backward(const Call& call) {
  const size_t rank = rank_of(call);
  return taking_rows(call, only(dim_of(call, 2, rank), rank));
}

OpRule fft(const Call& call) { return resize_dims(call, acted_dims(call, 1, rank_of(call))); }

OpRule select(const Call& call) {
  const size_t rank = rank_of(call);
  const auto [big, small] = with_and_without(dim_of(call, 1, rank), rank);
  return from_letters(call, {{big}, {small}});
}

OpRule select_backward(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const auto [big, small] = with_and_without(dim_of(call, 2, rank), rank);
  return from_letters(call, {{small}, {big}});
}

OpRule slice_scatter(const Call& call) {
  const size_t rank = rank_of(call);
  const std::vector<bool> acted = only(dim_of(call, 2, rank), rank);
  const std::string whole = resized(acted, 'A');
  return from_letters(call, {{whole, resized(acted, 'B')}, {whole}});
}

OpRule select_scatter(const Call& call) {
  const size_t rank = rank_of(call);
  const auto [big, small] = with_and_without(dim_of(call, 2, rank), rank);
  return from_letters(call, {{big, small}, {big}});
}

// The extent that all operands have on the joined dim, which may then be cut in all of them alike; −1 where they
// differ.
int64_t joined_extent(const Call& call, size_t dim) {
  const size_t rank = call.outputs[0].shape.size();
  const Shape& first = call.inputs[0].shape;
  for (const TensorType& type : call.inputs)
    if (type.shape.size() != rank || type.shape[dim] != first.at(dim)) return -1;
  return first[dim];
}

// Legacy: an empty 1-D tensor among others takes no part.
OpRule cat(const Call& call) {
  OpRule rule = replicated(call);
  const Shape& out = call.outputs[0].shape;
  const size_t dim = dim_of(call, 1, out.size());
  rule.factors.clear();
  std::vector<int> shared(out.size(), -1);
  auto fresh = [&rule](int64_t size, FactorKind kind) {
    rule.factors.push_back({size, kind, Reduction::none});
    return static_cast<int>(rule.factors.size()) - 1;
  };
  for (size_t d = 0; d < out.size(); ++d)
    if (out[d] != 1) shared[d] = fresh(out[d], d == dim ? FactorKind::replicate : FactorKind::pass);
  const int64_t extent = out.empty() ? -1 : joined_extent(call, dim);
  const int joined = extent > 1 ? fresh(extent, FactorKind::composite) : -1;
  auto assign = [&](const Shape& shape, TensorFactors& factors, bool output) {
    factors.assign(shape.size(), {});
    if (shape.size() != out.size()) return;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      if (d != dim || output)
        factors[d] = {shared[d]};
      else
        factors[d] = {joined >= 0 ? joined : fresh(shape[d], FactorKind::replicate)};
    }
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) assign(call.inputs[i].shape, rule.inputs[i], false);
  assign(out, rule.outputs[0], true);
  return rule;
}

OpRule stack(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const auto [big, small] = with_and_without(dim_of(call, 1, rank), rank);
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), small), {big}});
}

// Padding with zeros is linear, with anything else it is not.
OpRule pad(const Call& call) {
  OpRule rule = taking_rows(call, padded_dims(call, 1, rank_of(call)));
  if (is_zero(argument(call, 2))) rule.linearity = Linearity::joint;
  return rule;
}

OpRule pad_backward(const Call& call) { return resize_dims(call, padded_dims(call, 2, rank_of(call))); }

// A roll without dims is one of the flattened tensor.
OpRule rolled(const Call& call) {
  const size_t rank = rank_of(call);
  if (integers(call, 2).empty()) return whole_dims(call, std::vector<bool>(rank, true));
  const std::string text = marked(acted_dims(call, 2, rank), '^');
  return from_letters(call, {{text}, {text}});
}

OpRule flip(const Call& call) {
  const size_t rank = rank_of(call);
  return whole_dims(call, integers(call, 1).empty() ? std::vector<bool>(rank) : acted_dims(call, 1, rank));
}

OpRule rot90(const Call& call) {
  const size_t rank = rank_of(call);
  return resize_dims(call, acted_dims(call, 2, rank));
}

OpRule unfold(const Call& call) {
  const size_t rank = rank_of(call);
  const std::vector<bool> acted = only(dim_of(call, 1, rank), rank);
  return from_letters(call, {{resized(acted, 'A')}, {resized(acted, 'B') + "_"}});
}

// (grad, sizes of x, dim, size, step)
OpRule unfold_backward(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const std::vector<bool> acted = only(dim_of(call, 2, rank), rank);
  return from_letters(call, {{resized(acted, 'A') + "_"}, {resized(acted, 'B')}});
}

OpRule scan(const Call& call) {
  const size_t rank = rank_of(call);
  return whole_dims(call, only(dim_of(call, row_of(call).arg, rank, -1), rank));
}

OpRule scan_blocks(const Call& call) {
  const size_t rank = rank_of(call);
  std::string text = dims(rank);
  if (rank > 0) text.insert(dim_of(call, 1, rank, -1) + 1, "^");
  return from_letters(call, {{text}, {text}});
}

// (x, k, dim, largest, sorted) -> (values, indices): only the dim of x may be cut.
OpRule topk(const Call& call) {
  const size_t rank = rank_of(call);
  if (rank == 0) return replicated(call);
  const size_t dim = dim_of(call, 2, rank, -1);
  std::string in = dims(rank), out = in;
  in.replace(dim, 1, "A^");
  out.replace(dim, 1, "N!");
  return from_letters(call, {{in}, {out, out}});
}

OpRule resized(const Call& call) {
  const size_t rank = rank_of(call);
  return resize_dims(call, only(dim_of(call, row_of(call).arg, rank, -1), rank));
}

}  // namespace spmdx
