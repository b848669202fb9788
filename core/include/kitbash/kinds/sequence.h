// sequence.h: how tokens are laid out, for every kind that looks along them.
//
// A micro-batch is [tokens, dim], documents one after the other, no batch axis, no padding between them. Tokens past the
// last border are unused: they belong to extent `tokens` (kb_type.extent), are zero and count nowhere.
//   cu        [documents + 1] i32   document d is rows cu[d] .. cu[d + 1]; borders past the last document repeat the last one,
//                                   so that unused documents are empty
//   position  [tokens] i32          index inside the document, counted from its true start (past included)
//   document  [tokens] i32          d, or -1 past the last border
//   past      [documents] i32       only when b.stateful(): tokens of this sequence that are already in its state
//   slot      [documents] i32       only when b.stateful(): the row of SEQUENCE and TOKEN states that document d uses
// Train and eval: every document starts from nothing. Prefill and decode: document d continues the sequence in slot[d], whose
// state rows are zero for a new sequence; rows of other slots stay as they are. Prefill may come in pieces; decode is one row
// a sequence (or a few, for speculation). So the four modes differ for an author in two bits: b.training(), b.stateful().
// The list is append only: inputs in this order, absent ones 0.
#pragma once
#include "kitbash/builder.h"

namespace kb {

inline Values with(Values v, const Sequence& s) {
  for (const Value& x : {s.cu, s.position, s.document, s.past, s.slot}) v.push_back(x);
  return v;
}

}  // namespace kb
