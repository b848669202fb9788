#include "probe/signature.h"

#include "kitbash/error.h"

namespace kitbash {

namespace {

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all{
      {"attention", "forward", 0, {{"x", KB_COMPUTE}}, true, false, {"y"}, {}},
      {"attention",
       "recur",
       1,
       {{"q", KB_COMPUTE},
        {"k", KB_COMPUTE},
        {"v", KB_COMPUTE},
        {"z", KB_WIDE},
        {"beta", KB_WIDE},
        {"s0", KB_WIDE, true}},
       true,
       false,
       {"o", "state"},
       {}},
      {"decay", "forward", 0, {{"z", KB_WIDE}}, false, false, {"g"}, {}},
      {"ffn", "forward", 0, {{"x", KB_COMPUTE}}, false, true, {"y"}, {}},
      {"router", "forward", 0, {{"x", KB_COMPUTE}}, false, true, {"ids", "weights"}, {"experts", "active"}},
      {"router", "choose", 1, {{"scores", KB_WIDE}}, false, true, {"ids", "weights"}, {"experts", "active"}},
      {"activation", "forward", 0, {{"gate", KB_COMPUTE}, {"linear", KB_COMPUTE}}, false, false, {"y"}, {}},
      {"norm", "forward", 0, {{"x", KB_COMPUTE}}, false, false, {"y"}, {}},
      {"optimizer",
       "forward",
       0,
       {{"w", KB_WIDE}, {"g", KB_WIDE}, {"lr", KB_WIDE}, {"step", KB_WIDE}},
       false,
       false,
       {"w"},
       {"role", "blocks", "flags", "name"}},
  };
  return all;
}

}  // namespace

const Signature& find_signature(const std::string& kind, const std::string& verb) {
  std::string verbs, kinds;
  for (const Signature& s : signatures()) {
    if (s.kind == kind && s.verb == verb) return s;
    if (s.kind == kind) verbs += std::string(verbs.empty() ? "" : ", ") + s.verb;
    if (kinds.find(s.kind) == std::string::npos) kinds += std::string(kinds.empty() ? "" : ", ") + s.kind;
  }
  if (!verbs.empty())
    kb::fail("[probe] a component of kind ", kind, " is probed by one of ", verbs, " but got '", verb, "'");
  kb::fail("[probe] what is probed must be a component of kind ", kinds, ", an op (op.NAME) or 'model' but got kind '",
           kind, "'");
}

}  // namespace kitbash
