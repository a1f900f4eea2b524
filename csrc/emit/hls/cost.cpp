// SPDX-License-Identifier: Apache-2.0
// Cost: the table of operators, and what memory takes.
#include "emit/hls/cost.h"

#include <algorithm>

namespace spmdx::emit::hls {
namespace {

Cost of_float(Operator op) {
  switch (op) {
    case Operator::move:
      return {0, {0, 0, 0, 0}};
    case Operator::logic:
      return {0, {0, 0, 32, 0}};
    case Operator::add:
      return {4, {2, 0, 390, 205}};
    case Operator::multiply:
      return {3, {3, 0, 321, 143}};
    case Operator::divide:
      return {15, {0, 0, 994, 761}};
    case Operator::compare:
      return {1, {0, 0, 239, 66}};
    case Operator::exp:
      return {8, {7, 0, 924, 277}};
    case Operator::log:
      return {12, {13, 0, 1200, 650}};
    case Operator::root:
      return {11, {0, 0, 615, 405}};
    case Operator::table:  // by exp and a division, or by a polynomial
      return {30, {12, 0, 2500, 1500}};
    case Operator::power:
      return {25, {25, 0, 3000, 2000}};
    case Operator::round:
      return {2, {0, 0, 300, 100}};
  }
  return {};
}

// DSPs of a product: 25 × 18 bits each.
int64_t dsps(int64_t a, int64_t b) { return ((a + 24) / 25) * ((b + 17) / 18); }

// A table of 1,024 places of 32 bits, and a product that finds what is between two of them.
Cost of_table(const Number& number, int64_t shifts) {
  const int64_t width = number.width;
  return {6 + shifts, {2 * dsps(32, 32), 4, 10 * width + shifts * 64, 12 * width}};
}

Cost of_fixed(Operator op, const Number& number) {
  const int64_t width = number.width, bits = width + number.fraction();
  switch (op) {
    case Operator::move:
      return {0, {}};
    case Operator::logic:
      return {0, {0, 0, width, 0}};
    case Operator::add:
    case Operator::compare:
      return {1, {0, 0, width, width}};
    case Operator::multiply:
      return {3, {dsps(width, width), 0, width, 2 * width}};
    case Operator::divide:
      return {bits, {0, 0, bits * bits, 2 * bits * bits}};
    case Operator::round:
      return {1, {0, 0, width, width}};
    case Operator::exp:
      return of_table(number, 1);
    case Operator::log:
    case Operator::root:
      return of_table(number, width / 4);
    case Operator::table:
      return of_table(number, 0);
    case Operator::power: {
      Cost made = of_table(number, width / 4);
      made.resources += of_table(number, 1).resources;
      made.latency += of_table(number, 1).latency + 3;
      return made;
    }
  }
  return {};
}

}  // namespace

Resources& Resources::operator+=(const Resources& other) {
  dsp += other.dsp;
  bram18 += other.bram18;
  lut += other.lut;
  ff += other.ff;
  return *this;
}

Resources Resources::operator*(int64_t times) const { return {dsp * times, bram18 * times, lut * times, ff * times}; }

Cost cost_of(Operator op, const Number& number) { return number.is_fixed ? of_fixed(op, number) : of_float(op); }

int64_t bits_of(Elem elem, const Number& number) {
  if (elem == Elem::flag) return 1;
  if (elem == Elem::whole) return 32;
  return elem == Elem::wide ? wide(number).width : number.width;
}

Resources memory(int64_t count, int64_t bits) {
  if (count * bits <= 1024) return {0, 0, (count * bits + 63) / 64 + bits, bits};
  return {0, ((bits + 17) / 18) * ((count + 1023) / 1024), 0, 0};
}

int64_t interval_of(const Nest& nest, const Number& number) {
  if (!nest.carries) return 1;
  const int64_t latency = std::max<int64_t>(1, cost_of(*nest.carries, number).latency);
  return (latency + nest.distance - 1) / nest.distance;
}

// Two cycles to read and write; operators follow each other, as in a chain, though some may run side by side.
int64_t depth_of(const Nest& nest, const Number& number) {
  int64_t depth = 2;
  for (const Operator op : nest.ops) depth += cost_of(op, number).latency;
  return depth;
}

}  // namespace spmdx::emit::hls
