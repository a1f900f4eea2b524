// SPDX-License-Identifier: Apache-2.0
// Design: a graph as stages that streams connect, before it is text.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "emit/hls/number.h"

namespace spmdx::emit::hls {

// What elements are: numbers, sums of numbers, integers of 32 bits, truth values.
enum class Elem : uint8_t { real, wide, whole, flag };
Elem elem_of(DType dtype);       // Throws ShardingError for complex numbers.
const char* type_text(Elem of);  // "number_t", "acc_t", "int", "bool"
inline bool is_real(Elem of) { return of == Elem::real || of == Elem::wide; }

// What an op is given or gives: a stream, a constant array, or one number that all elements are.
struct Operand {
  enum class Kind : uint8_t { none, stream, rom, splat };
  Kind kind = Kind::none;
  Elem elem = Elem::real;
  Shape shape;
  uint32_t number = 0;  // of the stream or the array
  Shape strides;        // of an array: how its elements are found
  int64_t offset = 0;
  double splat = 0;
  bool is_stream() const { return kind == Kind::stream; }
};

// Operators of one iteration of a loop, which cost something.
enum class Operator : uint8_t { move, logic, add, multiply, divide, compare, exp, log, root, table, power, round };

struct Line {
  std::string text;
  int64_t writes = -1;  // the stream that it writes: it is left out where nobody reads that
};

// Loops, one within the other, whose innermost one is a pipeline. Their counters are i0, i1 …
struct Nest {
  Shape trips;
  std::vector<Line> lines;
  std::vector<Operator> ops;  // of one lane
  int64_t lanes = 1;          // times that the lines between `lanes_from` and the end are there, counted by u
  size_t lanes_from = 0;
  // Elements of arrays are put together with what they were by this operator, and are so again after so many
  // iterations.
  std::optional<Operator> carries = std::nullopt;
  int64_t distance = 1;
  std::vector<std::string> carried = {};          // the arrays
  std::vector<uint32_t> reads = {}, writes = {};  // streams
};

// An array of a stage, or one variable where its size is 0. More lanes: rows that are read at once.
struct Buffer {
  std::string name;
  Elem elem = Elem::real;
  int64_t size = 0, lanes = 1;
};

// A constant array.
struct Rom {
  Elem elem = Elem::real;
  std::vector<double> numbers;
  int64_t lanes = 1;
};

// What runs at once with all other stages: nests that are done once, then some that are repeated, counted by r.
struct Stage {
  enum class Kind : uint8_t { load, compute, group, store };
  Kind kind = Kind::compute;
  std::string name, op;
  Shape shape;        // of a group: that of its loops
  int64_t port = -1;  // of a load or a store: which argument of the top function
  std::vector<Buffer> buffers;
  std::vector<uint32_t> roms;
  std::vector<Nest> once, repeated;
  int64_t repeats = 1;
};

struct Stream {
  Elem elem = Elem::real;
  Shape shape;
  uint32_t stage = 0;  // that writes it
};

struct Port {
  bool is_input = true;
  int64_t place = 0;  // among the graph's inputs or outputs
  Elem elem = Elem::real;
  Shape shape;
  std::string name() const { return (is_input ? "in" : "out") + std::to_string(place); }
};

struct HlsOptions {
  Number number;
  int64_t unroll = 4;    // products that a product of matrices or a convolution makes at once, at most
  double clock_ns = 10;  // that the vendor's tool is asked for
  std::string part = "xczu7ev-ffvc1156-2-e";
};

struct Design {
  HlsOptions options;
  std::vector<Stage> stages;
  std::vector<Stream> streams;
  std::vector<Rom> roms;
  std::vector<Port> ports;

  uint32_t add_stream(Elem elem, Shape shape, uint32_t stage);
  uint32_t add_stage(Stage stage);  // gives it a name
  uint32_t add_rom(Rom rom);
  Operand of_stream(uint32_t stream) const;
};

// Elements of an array or of one number, in the order of rows.
std::vector<double> elements(const Design& design, const Operand& of);
Shape contiguous(const Shape& shape);  // strides
bool is_contiguous(const Operand& of);
// Streams that stages read, and by which ones; stages that nobody reads anything of are removed, with their lines.
struct Uses {
  std::vector<std::vector<uint32_t>> of_stream;  // stages
  std::vector<bool> is_alive;                    // stages
};
Uses uses(const Design& design);
// Whether a stream has room for all that is ever in it: a stage that writes several never waits for one of them, so
// that no ring of stages that wait for each other comes about. Those of stages that spread a stream have it as well.
bool holds_all(const Design& design, const Uses& uses, uint32_t stream);
std::vector<uint32_t> reads(const Stage& stage);  // each once, in the order of nests
std::vector<uint32_t> writes(const Stage& stage);

}  // namespace spmdx::emit::hls
