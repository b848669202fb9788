#include "recipe/keys.h"

#include "kitbash/error.h"

namespace kitbash {
namespace {

struct Key : FieldInfo {
  Key(const char* n, const char* t, const char* d) { name = n, type = t, doc = d; }
  Key must() && { return required = true, std::move(*this); }
  Key may() && { return optional = true, std::move(*this); }
  Key in(double a, double b) && { return lo = a, hi = b, std::move(*this); }
  Key of(const char* k) && { return kind = k, std::move(*this); }
  Key is(FieldValue v) && { return fallback = std::move(v), std::move(*this); }
  Key one_of(std::vector<std::string> c) && { return choices = std::move(c), std::move(*this); }
};

constexpr double kOpen = std::numeric_limits<double>::infinity();
constexpr double kMany = 9007199254740992.0;  // 2^53: every token count below it is exact in a double
constexpr double kRows = 2147483647.0;        // positions and rows of a micro-batch are i32
std::string str(const char* s) { return s; }

std::vector<KeyTable> declare() {
  return {
      {"recipe",
       "a recipe",
       {
           Key("kitbash", "int", "number of the recipe format: 1; every file has it")
               .may()
               .in(kRecipeFormat, kRecipeFormat),
           Key("name", "text", "name of the run; default: the file's name").may(),
           Key("extends", "text", "recipe below this one, relative to this file").may(),
           Key("model", "table", "what is trained").must(),
           Key("train", "table", "how numbers are computed").may(),
           Key("optimizer", "slot", "how weights are stepped").of("optimizer").must(),
           Key("data", "table", "what is read; not needed to check and plan").may(),
           Key("curriculum", "tables", "stages, in order; at least one").must(),
       }},
      {"model",
       "model",
       {
           Key("dim", "int", "width of the residual stream").must().in(1, 1 << 20),
           Key("layers", "int", "number of layers (attention and ffn)").must().in(1, 65536),
           Key("vocab", "int", "number of token ids").must().in(2, 1 << 28),
           Key("std", "float", "of embedding and head at the start").is(0.02).in(0, 10),
           Key("pattern", "texts", "named layers, repeated over the depth; default: the only named layer").may(),
           Key("at", "table", "exceptions by layer number from 0, negative from the end").may(),
           Key("residual", "slot", "how layers are joined along the depth").of("residual").must(),
           Key("norm", "slot", "before every attention, ffn and the head").of("norm").is(str("rmsnorm")),
           Key("objective", "slot", "what is learnt").of("objective").is(str("next-token")),
           Key("layer", "table", "named layers: [model.layer.NAME]").must(),
       }},
      {"layer",
       "a layer",
       {
           Key("like", "text", "another named layer: the same, except").may(),
           Key("attention", "slot", "mixes tokens").of("attention").must(),
           Key("ffn", "slot", "works on each token").of("ffn").must(),
       }},
      {"train",
       "train",
       {
           Key("seed", "int", "of the initial weights and of sampling").is(int64_t(0)).in(0, kMany),
           Key("compute", "text", "type of activations and of the weights' working copies")
               .is(str("f32"))
               .one_of({"f32", "bf16"}),
           Key("recompute", "text", "what the backward pass computes again instead of keeping")
               .is(str("none"))
               .one_of({"none", "light", "block"}),
           Key("clip", "float", "bound of the global gradient norm; 0: off").is(1.0).in(0, kOpen),
           Key("deterministic", "bool", "same device and threads: same bits; false: kernels may add in any order")
               .is(true),
           Key("checkpoint_every", "int", "steps between checkpoints; 0: only at the end of a stage and on a signal")
               .is(int64_t(0))
               .in(0, kMany),
           Key("keep", "int", "newest checkpoints that stay").is(int64_t(3)).in(1, 1000),
           Key("log_every", "int", "steps between two lines of the log").is(int64_t(20)).in(1, kMany),
           Key("eval_tokens", "int", "held-out tokens read at the end of a stage; 0: all").is(int64_t(0)).in(0, kMany),
       }},
      {"data",
       "data",
       {
           Key("tokenizer", "slot", "text to token ids and back").of("tokenizer").must(),
           Key("join", "bool", "short samples share a document of the context, with eos between them").is(true),
           Key("interleave", "int", "open samples that documents are cut from in turn, in training")
               .is(int64_t(1))
               .in(1, 1024),
           Key("sources", "table", "named sources: [data.sources.NAME]").must(),
       }},
      {"curriculum",
       "a curriculum stage",
       {
           Key("name", "text", "default: stage and its number").may(),
           Key("context", "int", "longest document, in tokens").must().in(1, kRows),
           Key("tokens", "int", "budget of the stage").must().in(1, kMany),
           Key("batch_tokens", "int", "tokens a step; a multiple of micro_tokens").must().in(1, kMany),
           Key("micro_tokens", "int", "bound of a micro-batch; default: batch_tokens").may().in(1, kRows),
           Key("max_documents", "int",
               "bound of documents in a micro-batch; default: a 64th of its tokens, at least 16")
               .may()
               .in(1, kRows),
           Key("lr", "float", "peak learning rate").must().in(0, 1e3),
           Key("schedule", "slot", "the rate's way through the stage").of("schedule").must(),
           Key("mix", "table", "share of each source in the tokens; default: all sources alike").may(),
       }},
  };
}

}  // namespace

const std::vector<KeyTable>& key_tables() {
  static const std::vector<KeyTable> tables = declare();
  return tables;
}
const KeyTable& key_table(const std::string& name) {
  for (const auto& t : key_tables())
    if (t.name == name) return t;
  kb::fail("[recipe] there is no table of keys called '", name, "'");
}

}  // namespace kitbash
