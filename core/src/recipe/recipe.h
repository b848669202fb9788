// recipe.h: a checked and resolved recipe. Everything here came from TOML that passed every check against the
// manifests; no plugin code has run yet.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/catalog.h"

namespace kitbash {

struct Where {  // a place in a recipe; file empty: a default; line 0: a --set, and `file` holds it: "--set model.dim=8"
  std::string file;
  int line = 0, column = 0;
  std::string text() const;  // "quickstart.toml:41"; "" when there is none
};

// One component with all its keys, in the order of its manifest, and its children by slot.
struct ComponentConfig {
  const ComponentInfo* info = nullptr;
  std::vector<FieldValue> values;  // parallel to info->fields; a slot holds the name of its filler
  std::map<std::string, std::unique_ptr<ComponentConfig>> children;
  Where where;
};

struct LayerConfig {
  std::string name;  // of the named layer: "linear", "global"
  const ComponentConfig *attention = nullptr, *ffn = nullptr;
};

struct ModelConfig {
  int64_t dim = 0, vocab = 0;
  double std = 0.02;                // of embedding and head at the start
  bool tie = false;                 // head = embedding (not offered until something needs it: must be false)
  std::vector<LayerConfig> layers;  // one a layer, pattern and `at` applied
  std::map<std::string, LayerConfig> named;
  std::vector<std::unique_ptr<ComponentConfig>> owned;
  const ComponentConfig *residual = nullptr, *norm = nullptr, *objective = nullptr;
  Where where;
};

struct StageConfig {
  std::string name;
  int64_t context = 0;        // longest document, in tokens
  int64_t tokens = 0;         // budget of the stage
  int64_t batch_tokens = 0;   // tokens a step
  int64_t micro_tokens = 0;   // bound of a micro-batch
  int64_t max_documents = 0;  // bound of documents in a micro-batch
  double lr = 0;              // peak
  std::unique_ptr<ComponentConfig> schedule;
  std::map<std::string, double> mix;  // share of each source in the tokens; with [data] never empty
  Where where;
};

struct TrainConfig {
  int64_t seed = 0;
  std::string compute = "f32";     // bf16, f32
  std::string recompute = "none";  // none, light, block
  double clip = 1.0;               // of the global gradient norm; 0: off
  bool deterministic = true;
  int64_t checkpoint_every = 0;  // steps; 0: at the end of a stage and on a signal
  int64_t keep = 3;              // newest checkpoints that stay
  int64_t log_every = 20;        // steps
  int64_t eval_tokens = 0;       // held-out tokens read at the end of a stage; 0: all
};

// [data]: tokenizer, and sources by name. A recipe without it can be checked and planned, not trained: no tokenizer then.
struct DataConfig {
  std::unique_ptr<ComponentConfig> tokenizer;
  std::map<std::string, std::unique_ptr<ComponentConfig>> sources;
  Where where;
  bool join = true;        // short samples are joined to documents of the context, with eos between them
  int64_t interleave = 1;  // open samples that documents are cut from in turn, in training
};

struct Recipe {
  std::string name, path;
  std::vector<std::string> pattern;   // as written: names of layers, repeated
  std::map<int64_t, std::string> at;  // as written: exceptions by number, negative from the end
  ModelConfig model;
  TrainConfig train;
  std::unique_ptr<ComponentConfig> optimizer;
  DataConfig data;
  std::vector<StageConfig> curriculum;
  std::vector<std::string> notes;  // one for each key dropped by a `use` switch, each deprecated name
  std::string resolved;            // the whole recipe as TOML, with every default
};

struct RecipeError {
  Where where;
  std::string message;
  std::string text() const;  // file:line:col: error: message
};
struct RecipeErrors {  // thrown; the named file first, then what it extends, then --set; by position in each
  std::vector<RecipeError> errors;
  std::vector<std::string> notes;  // the keys that a component with an unknown key accepts
  std::string text() const;        // all of it, a line each
};

// `set`: "model.residual.use=standard", applied over the file and what it extends. Throws RecipeErrors with every
// mistake.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& set, const Catalog& catalog);
// The same of a text that lies in no file of its own; `name` stands for the file in messages ("CHECKPOINT/recipe"), and
// paths of a `set` are relative to the current folder.
struct RecipeText {
  std::string text, name;
};
Recipe load_recipe(const RecipeText& text, const std::vector<std::string>& set, const Catalog& catalog);
// A component on its own: keys from a TOML file ("" = none) and sets; for `probe` and `explain`. `notes` gets what
// Recipe::notes would.
std::unique_ptr<ComponentConfig> load_component(const std::string& kind, const std::string& name,
                                                const std::string& path, const std::vector<std::string>& set,
                                                const Catalog& catalog, std::vector<std::string>* notes = nullptr);

}  // namespace kitbash
