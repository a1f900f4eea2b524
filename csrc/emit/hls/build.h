// SPDX-License-Identifier: Apache-2.0
// Build: stages that several rows make, and texts of what they read.
#pragma once
#include <functional>

#include "emit/hls/design.h"

namespace spmdx::emit::hls {

// "i0 * 4 + i1 + 2", of counters of loops; the others are counted on from the first one that is given.
std::string index_text(const Shape& shape, const Shape& strides, int64_t offset = 0, size_t first = 0);
// "acc_t(0.5)": of a fixed point in a type that holds as many bits of it as a number has, and more.
std::string literal(const Design& design, Elem elem, double number);
std::string read_text(uint32_t stream);  // "s3.read()"
Line write_line(uint32_t stream, const std::string& expression);
std::string number_text(int64_t number);
int64_t lanes_of(const Design& design, int64_t count);  // the most that divide a count, up to HlsOptions::unroll

// One number for all elements.
Operand splat_of(Elem elem, const Shape& shape, double number);
// The operand as a stream, which a stage makes of what is none.
Operand as_stream(Design& design, const Operand& of);
// Elements at offset + sum of index × stride of an operand that lies contiguous: views of arrays, else a stage.
Operand at_strides(Design& design, const std::string& op, const Operand& of, const Shape& shape, const Shape& strides,
                   int64_t offset);
Operand reshaped(Design& design, const Operand& of, const Shape& shape);
// Dim d of the operand becomes dim dims[d], and is spread if its size is 1.
Operand broadcast(Design& design, const Operand& of, const Shape& shape, const std::vector<int64_t>& dims);
Operand broadcast(Design& design, const Operand& of, const Shape& shape);  // by PyTorch's rules

// One result of what operands of its shape have at the same place, in the loops of a stage that there is already where
// that is possible.
using Expression = std::function<std::string(const std::vector<std::string>& operands)>;
Operand elementwise(Design& design, const std::string& op, Elem elem, const Shape& shape,
                    const std::vector<Operand>& operands, const std::vector<Operator>& ops,
                    const Expression& expression);

// The operand, which a stage reads beside the others: a copy where one of them is the same stream.
Operand apart_from(Design& design, const Operand& of, const std::vector<Operand>& others);

// A stage's buffer that holds a stream, or the constant array as it is: its name.
std::string held(Design& design, Stage& stage, const Operand& of, const std::string& name);
// The same as rows that are read at once: the operand in the shape `trips`, of which one dim tells rows apart.
std::string in_lanes(Design& design, Stage& stage, const Operand& of, const Shape& trips, size_t lane_dim,
                     const std::string& name);

}  // namespace spmdx::emit::hls
