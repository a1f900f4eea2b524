// SPDX-License-Identifier: Apache-2.0
// Writes of rows (index_copy, index_add, index_put) and of single elements (scatter, scatter_add) into a window: the
// indices that point into it are picked, and ATen's kernel does these.
#include "bridge/backend/kernels/window_writes.h"

#include <ATen/Functions.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/indices.h"
#include "bridge/backend/number.h"
#include "graph/args.h"
#include "rules/rows/indexing.h"
#include "rules/rows/windows.h"

namespace spmdx::bridge {
namespace {

bool is_index_put(std::string_view base) { return base == "aten.index_put" || base == "aten._index_put_impl"; }

bool counts_from_end(const Window& window) {
  const std::string_view base = base_name(window.op);
  return base == "aten.index" || base == "aten.index_fill" || is_index_put(base);
}

// ATen's kernels of these ops take no other indices.
void require_long(const Window& window, const at::Tensor& indices) {
  const std::string_view base = base_name(window.op);
  TORCH_CHECK_INDEX(base != "aten.index_fill" || indices.scalar_type() == at::kLong,
                    "index_fill_(): Expected dtype int64 for index.");
  TORCH_CHECK(base != "aten.index_copy" || indices.scalar_type() == at::kLong,
              "index_copy_(): Expected a long tensor for index, but got ", indices.scalar_type());
}

// The indices that point into the window.
struct Picked {
  std::vector<int64_t> at;    // which of the indices these are, row by row
  std::vector<int64_t> rows;  // where they point to, counted from the start of the window
};

at::Tensor as_tensor(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

// Throws for wrong indices. Of the few that a write has, most devices have none: a call of a kernel costs more than
// this.
Picked pick(const Window& window, const at::Tensor& indices) {
  require_long(window, indices);
  const at::Tensor flat = indices.to(at::kLong).contiguous();
  const auto* all = flat.const_data_ptr<int64_t>();
  const bool from_end = counts_from_end(window);
  Picked picked;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t row = all[i] < 0 && from_end ? all[i] + window.total : all[i];
    if (row < 0 || row >= window.total) checked_indices(window, indices);
    if (row < window.start || row >= window.start + window.extent) continue;
    picked.at.push_back(i);
    picked.rows.push_back(row - window.start);
  }
  return picked;
}

// Number holds no complex ones.
bool is_number_argument(const Arg& arg) {
  return std::holds_alternative<int64_t>(arg) || std::holds_alternative<double>(arg) ||
         std::holds_alternative<bool>(arg) || std::holds_alternative<RealParam>(arg) ||
         std::holds_alternative<IntParam>(arg);
}

// What an index_put writes: as many rows as there are indices, along the dim `at`.
struct Put {
  std::vector<uint32_t> indices;  // the operands that index a dim each; kNone: the dim has none
  size_t values = 0;              // operand
  int64_t at = 0;                 // where the dims of the indices are among those of the values
  bool adds = false;
};

Put put_of(const Window& window, const Call& inner) {
  return {own_argument<TensorListArg>(inner, 1).inputs, own_argument<TensorArg>(inner, 2).input, window.place,
          rules::adds_rows(inner)};
}

// All indices in one shape, flat.
std::vector<at::Tensor> flat_indices(const Put& put, std::span<const BufferRef> inputs, std::vector<int64_t>& shape) {
  std::vector<at::Tensor> given;
  for (const uint32_t operand : put.indices)
    if (operand != kNone) given.push_back(tensor_of(inputs[operand]));
  if (given.size() > 1) given = at::broadcast_tensors(given);
  shape = given.front().sizes().vec();
  for (at::Tensor& indices : given) indices = indices.flatten();
  return given;
}

// The values of an index_put, one row for each index.
at::Tensor rows_of_values(const Put& put, const at::Tensor& values, const at::Tensor& target,
                          const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < target.dim(); ++d)
    if (d >= std::ssize(put.indices) || put.indices[static_cast<size_t>(d)] == kNone) sizes.push_back(target.size(d));
  sizes.insert(sizes.begin() + put.at, shape.begin(), shape.end());
  const at::Tensor rows = values.expand(sizes);
  const auto dims = std::ssize(shape);
  return dims == 0 ? rows.unsqueeze(put.at) : rows.flatten(put.at, put.at + dims - 1);
}

// It has kernels for more dtypes than index_add and index_copy.
Write put_rows(const Window& window, const Call& inner) {
  const Put put = put_of(window, inner);
  if (inner.inputs.at(put.values).dtype != inner.inputs.at(0).dtype) return nullptr;
  return [window, put](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    std::vector<int64_t> shape;
    std::vector<at::Tensor> indices = flat_indices(put, inputs, shape);
    const Picked picked = pick(window, indices.front());
    if (picked.at.empty()) return;
    const at::Tensor chosen = as_tensor(picked.at);
    c10::List<std::optional<at::Tensor>> list;
    size_t next = 0;
    for (const uint32_t operand : put.indices) {
      if (operand == kNone)
        list.push_back(std::nullopt);
      else
        list.push_back(next == 0 ? as_tensor(picked.rows) : indices[next].index_select(0, chosen));
      next += operand != kNone;
    }
    const at::Tensor rows = rows_of_values(put, tensor_of(inputs[put.values]), target, shape);
    target.index_put_(list, rows.index_select(put.at, chosen), put.adds);
  };
}

// The source of index_add and its like, which is one row without the dim where the index is one number.
at::Tensor rows_of_source(const Window& window, const at::Tensor& source, const at::Tensor& target) {
  if (source.dim() == target.dim()) return source;
  std::vector<int64_t> sizes = target.sizes().vec();
  sizes[static_cast<size_t>(window.dim)] = 1;
  return source.reshape(sizes);
}

// Writes the rows to these places of the dim.
using WriteRows = std::function<void(at::Tensor& target, const at::Tensor& places, const at::Tensor& rows,
                                     std::span<const Param> params)>;

at::Scalar scalar_of(const Number& number, std::span<const Param> params) {
  return number.integer ? at::Scalar(number.whole(params)) : at::Scalar(number.real(params));
}

// Empty where the call has an argument that these do not know.
WriteRows rows_writer(const Window& window, const Call& inner) {
  const std::string_view base = base_name(inner.op);
  const int64_t dim = window.dim;
  if (base == "aten.index_copy")
    return [dim](at::Tensor& target, const at::Tensor& places, const at::Tensor& rows, std::span<const Param>) {
      target.index_copy_(dim, places, rows);
    };
  if (base == "aten.index_reduce")
    return [dim, how = own_argument<std::string>(inner, 4), with_self = boolean(inner, 5, true)](
               at::Tensor& target, const at::Tensor& places, const at::Tensor& rows, std::span<const Param>) {
      target.index_reduce_(dim, places, rows, how, with_self);
    };
  if (!is_number_argument(argument(inner, 4))) return nullptr;
  return [dim, alpha = number(inner, 4)](at::Tensor& target, const at::Tensor& places, const at::Tensor& rows,
                                         std::span<const Param> params) {
    target.index_add_(dim, places, rows, scalar_of(alpha, params));
  };
}

Write write_rows(const Window& window, const Call& inner) {
  const auto source = own_argument<TensorArg>(inner, 3).input;
  const WriteRows write = rows_writer(window, inner);
  if (!write || inner.inputs.at(source).dtype != inner.inputs.at(0).dtype) return nullptr;
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    const Picked picked = pick(window, tensor_of(inputs[window.index]));
    if (picked.at.empty()) return;
    const at::Tensor rows = rows_of_source(window, tensor_of(inputs[source]), target);
    write(target, as_tensor(picked.rows), rows.index_select(window.dim, as_tensor(picked.at)), params);
  };
}

// index_fill
Write fill_rows(const Window& window, const Call& inner) {
  const auto* value = std::get_if<TensorArg>(&argument(inner, 3));
  if (!value && !is_number_argument(argument(inner, 3))) return nullptr;
  return [=, from = value ? value->input : kNone, filler = value ? Number{} : number(inner, 3)](
             at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    const Picked picked = pick(window, tensor_of(inputs[window.index]));
    if (picked.at.empty()) return;
    const at::Tensor places = as_tensor(picked.rows);
    if (from == kNone)
      target.index_fill_(window.dim, places, scalar_of(filler, params));
    else
      target.index_fill_(window.dim, places, tensor_of(inputs[from]));
  };
}

// Where in a dense tensor of sizes `target` the elements lie that are picked of indices of sizes `sizes`.
at::Tensor places_of(const Window& window, const Picked& picked, c10::IntArrayRef sizes, c10::IntArrayRef target) {
  std::vector<int64_t> places(picked.at.size(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t rest = picked.at[i], stride = 1;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d], stride *= target[d])
      places[i] += stride * (static_cast<int64_t>(d) == window.dim ? picked.rows[i] : rest % sizes[d]);
  }
  return as_tensor(places);
}

// Elements of the source that belong to the indices.
at::Tensor as_indices(at::Tensor source, const at::Tensor& indices) {
  source = at::atleast_1d(source);
  for (int64_t d = 0; d < indices.dim(); ++d) source = source.narrow(d, 0, indices.size(d));
  return source;
}

// Writes elements of a flat tensor.
using WriteElements = std::function<void(const at::Tensor& flat, const at::Tensor& places, const at::Tensor& elements)>;

WriteElements elements_writer(const Call& inner) {
  if (base_name(inner.op) == "aten.scatter_reduce")
    return [how = own_argument<std::string>(inner, 4), with_self = boolean(inner, 5, true)](
               const at::Tensor& flat, const at::Tensor& places, const at::Tensor& elements) {
      flat.scatter_reduce_(0, places, elements, how, with_self);
    };
  if (rules::adds_rows(inner))
    return [](const at::Tensor& flat, const at::Tensor& places, const at::Tensor& elements) {
      flat.scatter_add_(0, places, elements);
    };
  return [](const at::Tensor& flat, const at::Tensor& places, const at::Tensor& elements) {
    flat.scatter_(0, places, elements);
  };
}

Write write_elements(const Window& window, const Call& inner) {
  const auto* source = std::get_if<TensorArg>(&argument(inner, 3));
  if (source ? inner.inputs.at(source->input).dtype != inner.inputs.at(0).dtype
             : !is_number_argument(argument(inner, 3)))
    return nullptr;
  return [=, write = elements_writer(inner), value = source ? Number{} : number(inner, 3),
          from = source ? source->input : kNone](at::Tensor& target, std::span<const BufferRef> inputs,
                                                 std::span<const Param> params) {
    const at::Tensor indices = at::atleast_1d(tensor_of(inputs[window.index]));
    const Picked picked = pick(window, indices);
    if (picked.at.empty()) return;
    const at::Tensor dense = target.contiguous(), flat = dense.view(-1);
    const at::Tensor places = places_of(window, picked, indices.sizes(), dense.sizes());
    if (from == kNone)
      flat.scatter_(0, places, scalar_of(value, params));
    else
      write(flat, places, as_indices(tensor_of(inputs[from]), indices).flatten().index_select(0, as_tensor(picked.at)));
    if (!dense.is_same(target)) target.copy_(dense);
  };
}

}  // namespace

at::Tensor checked_indices(const Window& window, const at::Tensor& given) {
  require_long(window, given);
  const bool from_end = counts_from_end(window);
  check_indices(given, from_end ? -window.total : 0, window.total, window.op.c_str() + 5);
  return from_end ? at::where(given.lt(0), at::add(given, window.total), given) : given;
}

Write write_in_window(const Window& window, const Call& inner) {
  if (!rules::writes_in_place(inner)) return nullptr;
  const std::string_view base = base_name(inner.op);
  if (is_index_put(base)) return put_rows(window, inner);
  if (base == "aten.index_fill") return fill_rows(window, inner);
  if (base == "aten.index_add" || base == "aten.index_copy" || base == "aten.index_reduce")
    return write_rows(window, inner);
  return write_elements(window, inner);
}

}  // namespace spmdx::bridge
