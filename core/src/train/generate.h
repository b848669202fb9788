// generate.h: text from a checkpoint: the prompt in pieces through prefill, then one token a step through decode, with the
// states and caches of the attentions. The logits equal those of the training forward at every length.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/stream.h"
#include "model/language_model.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace kitbash {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest token
  double top_p = 0.95;       // the smallest set of tokens with this probability
  uint64_t seed = 0;
};

class Generator {
 public:
  // `capacity`: longest sequence, prompt and answer together; `piece`: tokens of the prompt that go through prefill at once.
  Generator(const Recipe& recipe, Registry& registry, int64_t capacity, int64_t piece, int threads,
            kb_device_kind device = KB_CPU);
  void load(const std::string& checkpoint);
  void start();  // an empty sequence
  // Appends tokens; returns the logits of the last one. Throws when the sequence would outgrow the capacity.
  const std::vector<double>& append(const std::vector<int32_t>& tokens);
  int64_t length() const { return length_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  StoreMemory& memory() { return *memory_; }

 private:
  void run(Program& p, const int32_t* tokens, int64_t n);
  Device device_;
  LanguageModel model_;
  Tokenizer tokenizer_;
  std::unique_ptr<Program> prefill_, decode_;
  std::unique_ptr<StoreMemory> memory_;
  Arena arena_;
  int64_t capacity_, piece_, length_ = 0;
  std::vector<double> logits_;
};

// Pure in (logits, options, position).
int32_t sample_token(const std::vector<double>& logits, const SamplingOptions& o, int64_t position);
// Calls `say` with each piece of text; stops at eos or after `tokens`. Returns the number of tokens generated.
int64_t generate_text(Generator& g, const std::string& prompt, int64_t tokens, const SamplingOptions& o,
                      const std::function<void(const std::string&)>& say);

}  // namespace kitbash
