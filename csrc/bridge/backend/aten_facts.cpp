// SPDX-License-Identifier: Apache-2.0
// The table of facts about ATen's own kernels, alphabetical by op.
#include "bridge/backend/aten_facts.h"

#include <unordered_map>

#include "graph/graph.h"

namespace spmdx::bridge {
namespace {

constexpr AtenFacts kFacts[] = {
    {.op = "aten._amp_update_scale", .iterated = false},
    {.op = "aten._batch_norm_with_update_functional", .composed = true},
    {.op = "aten._chunk_cat", .composed = true},
    {.op = "aten._embedding_bag", .meta_differs = true},
    {.op = "aten._embedding_bag_forward_only", .meta_differs = true},
    {.op = "aten._index_put_impl", .overlap = Overlap::apart, .window = Access::write, .indexes = true},
    {.op = "aten._log_softmax", .overlap = Overlap::unchecked},
    {.op = "aten._pack_padded_sequence", .composed = true},
    {.op = "aten._softmax", .overlap = Overlap::unchecked, .any_dim = true},
    {.op = "aten._unsafe_index", .indexes = true},
    {.op = "aten._unsafe_masked_index", .composed = true},
    {.op = "aten._unsafe_masked_index_put_accumulate", .composed = true},
    {.op = "aten.addbmm", .overlap = Overlap::unchecked},
    {.op = "aten.addmm", .overlap = Overlap::unchecked},
    {.op = "aten.addmv", .overlap = Overlap::unchecked},
    {.op = "aten.addr", .overlap = Overlap::apart},
    {.op = "aten.affine_grid_generator", .composed = true},
    {.op = "aten.all", .overlap = Overlap::unchecked},
    {.op = "aten.amax", .overlap = Overlap::unchecked},
    {.op = "aten.amin", .overlap = Overlap::unchecked},
    {.op = "aten.angle", .iterated = false},
    {.op = "aten.any", .overlap = Overlap::unchecked},
    {.op = "aten.baddbmm", .overlap = Overlap::unchecked},
    {.op = "aten.block_diag", .composed = true},
    {.op = "aten.bmm", .overlap = Overlap::unchecked},
    {.op = "aten.cat", .overlap = Overlap::apart},
    {.op = "aten.cauchy", .composed = true},
    {.op = "aten.dist", .composed = true},
    {.op = "aten.empty_quantized", .composed = true},
    {.op = "aten.fill", .overlap = Overlap::unchecked, .iterated = false},
    {.op = "aten.from_file", .composed = true},
    {.op = "aten.gather", .overlap = Overlap::apart, .window = Access::read},
    {.op = "aten.geometric", .composed = true},
    {.op = "aten.index", .window = Access::read, .indexes = true},
    {.op = "aten.index_add", .overlap = Overlap::apart, .window = Access::write},
    {.op = "aten.index_copy", .overlap = Overlap::apart, .window = Access::write},
    {.op = "aten.index_fill", .window = Access::write},
    {.op = "aten.index_put", .overlap = Overlap::apart, .window = Access::write, .indexes = true},
    {.op = "aten.index_reduce", .overlap = Overlap::apart, .window = Access::write, .any_dim = true},
    {.op = "aten.index_select", .overlap = Overlap::apart, .window = Access::read},
    {.op = "aten.ldexp", .iterated = false},
    {.op = "aten.leaky_relu_backward", .back_to_front = true},
    {.op = "aten.log_normal", .composed = true},
    {.op = "aten.log_sigmoid_forward", .iterated = false},
    {.op = "aten.log_softmax", .overlap = Overlap::unchecked},
    {.op = "aten.masked_fill", .iterated = false},
    {.op = "aten.masked_scatter", .overlap = Overlap::unchecked, .composed = true},
    {.op = "aten.mean", .overlap = Overlap::unchecked},
    {.op = "aten.mm", .overlap = Overlap::unchecked},
    {.op = "aten.multilabel_margin_loss_forward", .meta_differs = true},
    {.op = "aten.mvlgamma", .iterated = false},
    {.op = "aten.norm", .constant_reals = true},
    {.op = "aten.pow.Scalar", .iterated = false},
    {.op = "aten.prod", .overlap = Overlap::unchecked},
    {.op = "aten.put", .overlap = Overlap::apart, .composed = true},
    {.op = "aten.range", .constant_reals = true},
    {.op = "aten.rrelu_with_noise_functional", .composed = true},
    {.op = "aten.rsub", .back_to_front = true},
    {.op = "aten.scatter", .overlap = Overlap::apart, .window = Access::write},
    {.op = "aten.scatter_add", .overlap = Overlap::apart, .window = Access::write},
    {.op = "aten.scatter_reduce", .overlap = Overlap::apart, .window = Access::write},
    {.op = "aten.select_scatter", .any_dim = true},
    {.op = "aten.slice_scatter", .any_dim = true},
    {.op = "aten.softmax", .overlap = Overlap::unchecked},
    {.op = "aten.sort", .any_dim = true},
    {.op = "aten.stack", .overlap = Overlap::apart},
    {.op = "aten.sum", .overlap = Overlap::unchecked},
    {.op = "aten.take", .overlap = Overlap::apart},
    {.op = "aten.threshold_backward", .back_to_front = true},
    {.op = "aten.to_sparse", .composed = true},
    {.op = "aten.tril", .overlap = Overlap::unchecked, .iterated = false},
    {.op = "aten.triu", .overlap = Overlap::unchecked, .iterated = false},
};

}  // namespace

const AtenFacts& facts_of(std::string_view op) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, const AtenFacts*>;
    for (const AtenFacts& facts : kFacts) map->emplace(facts.op, &facts);
    return map;
  }();
  static constexpr AtenFacts usual{};
  auto found = index->find(op);
  if (found == index->end()) found = index->find(base_name(op));
  return found == index->end() ? usual : *found->second;
}

}  // namespace spmdx::bridge
