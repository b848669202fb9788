// Training on a device with memory of its own, on the fake of tests/runtime/fake_cuda.cpp: the bits of the CPU, recorded or not;
// checkpoints that go from one device to the other; what is said when memory is short or a number is bad.
#include <cmath>

#include "fixture.h"
#include "train/generate.h"

namespace kitbash::test {
namespace {

// The fake has the kernels of the CPU backend, so the recipe holds only components made of base ops.
std::string base_recipe(const std::string& train = "") {
  std::string text = recipe_text(train, 4, 3);
  auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at; (at = text.find(from)) != text.npos;) text.replace(at, from.size(), to);
  };
  replace("{ use = \"block-attnres\", block_layers = 1 }", "\"standard\"");
  replace("{ use = \"kda\", heads = 2, head_dim = 8, decay = { use = \"bounded\", floor = -5.0 } }",
          "{ use = \"gated-mla\", heads = 2, kv_rank = 8, nope_dim = 8, rope_dim = 4, v_dim = 8 }");
  replace(
      "ffn = { use = \"latent-moe\", experts = 4, active = 2, latent = 8, width = 8, shared = 8, router = "
      "\"quantile\", "
      "activation = \"situ-glu\" }",
      "ffn = { use = \"dense\", width = 16, activation = \"situ-glu\" }");
  return text;
}

struct World {
  kb_device_kind kind;
  Registry registry;
  explicit World(kb_device_kind k) : kind(k), registry(Catalog::from_files(files(k))) { register_base_ops(registry); }
  static std::vector<std::string> files(kb_device_kind kind) {
    std::vector<std::string> all{kind == KB_CPU ? std::string(KITBASH_PLUGINS) + "/libkb_backend_cpu.so"
                                                : std::string(KITBASH_FAKE_CUDA)};
    for (const auto& e : fs::directory_iterator(KITBASH_PLUGINS)) {
      const std::string name = e.path().filename().string();
      if (!contains(name, "backend") && !contains(name, ".cuda.")) all.push_back(e.path().string());
    }
    return all;
  }
  Recipe recipe(const Place& p) const { return load_recipe(p.recipe_file(), {}, registry.catalog()); }
  Outcome train(const Place& p, const std::string& run, bool resume = false, int64_t stop_after = 0,
                bool capture = true) {
    const Recipe r = recipe(p);
    TrainOptions o;
    o.run = p.run(run), o.resume = resume, o.stop_after = stop_after, o.threads = 1, o.device = {kind, capture};
    Outcome out;
    testing::internal::CaptureStdout();
    try {
      Trainer t(r, registry, o);
      out.end = t.run();
      out.checkpoint = t.last_checkpoint(), out.results = t.results();
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    out.out = testing::internal::GetCapturedStdout();
    return out;
  }
};
World& cpu() {
  static World w(KB_CPU);
  return w;
}
World& gpu() {
  static World w(KB_CUDA);
  return w;
}

// But for the plugins, among which are the backends.
std::vector<std::string> differ(const std::string& a, const std::string& b) {
  std::vector<std::string> lines = diff_checkpoints(a, b);
  std::erase_if(lines, [](const std::string& l) { return l.starts_with("plugin"); });
  return lines;
}

TEST(DeviceTraining, gives_the_bits_of_the_cpu_and_needs_no_recording_for_that) {
  const Place p(base_recipe());
  const Outcome on_cpu = cpu().train(p, "cpu"), on_gpu = gpu().train(p, "gpu");
  ASSERT_EQ(on_cpu.end, TrainEnd::done) << on_cpu.out;
  ASSERT_EQ(on_gpu.end, TrainEnd::done) << on_gpu.out;
  EXPECT_EQ(joined(differ(on_cpu.checkpoint, on_gpu.checkpoint)), "");
  ASSERT_EQ(on_gpu.results.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(on_gpu.results[i].held_out.bits_per_byte, on_cpu.results[i].held_out.bits_per_byte);
  const Outcome plain = gpu().train(p, "plain", false, 0, false);
  EXPECT_EQ(joined(differ(on_gpu.checkpoint, plain.checkpoint)), "");
  auto seen = [&](const char* run) {
    std::string lines;
    for (const std::string& l : metrics(p.run(run))) lines += l + "\n";
    return lines;
  };
  EXPECT_EQ(seen("gpu"), seen("plain"));
}

TEST(DeviceTraining, a_run_goes_on_on_the_other_device) {
  const Place p(base_recipe());
  const Outcome whole = cpu().train(p, "whole");
  cpu().train(p, "a", false, 3);
  EXPECT_EQ(joined(differ(whole.checkpoint, gpu().train(p, "a", true).checkpoint)), "");
  gpu().train(p, "b", false, 5);
  EXPECT_EQ(joined(differ(whole.checkpoint, cpu().train(p, "b", true).checkpoint)), "");
}

TEST(DeviceTraining, kernels_may_add_in_any_order_only_when_the_recipe_says_so) {
  for (const bool fixed : {true, false}) {
    const Place p(base_recipe(fixed ? "" : "deterministic = false"));
    const Recipe r = gpu().recipe(p);
    const Session s(r, gpu().registry, 1, ArenaMode::planned, {KB_CUDA});
    EXPECT_EQ(s.device().table().deterministic, fixed);
  }
}

TEST(DeviceTraining, generates_what_the_cpu_does) {
  const Place p(base_recipe());
  const std::string checkpoint = cpu().train(p, "r", false, 4).checkpoint;
  std::vector<std::vector<double>> logits;
  for (World* w : {&cpu(), &gpu()}) {
    const Recipe r = w->recipe(p);
    Generator g(r, w->registry, 64, 8, 1, w->kind);
    g.load(checkpoint);
    g.start();
    g.append(g.tokenizer().encode("abcdefghijklmn"));
    logits.push_back(g.append({97}));
    EXPECT_EQ(g.append({98}).size(), 258u);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(DeviceTraining, says_what_the_memory_would_be_for_when_there_is_too_little) {
  const Place p(base_recipe());
  setenv("KITBASH_FAKE_CUDA_BYTES", "100000", 1);
  const std::string said = error_of([&] { gpu().train(p, "r"); });
  unsetenv("KITBASH_FAKE_CUDA_BYTES");
  for (const char* part : {"[train] stage 'short' needs ", " on the GPU: parameters ", ", gradients ", ", optimiser ",
                           ", activations and workspaces ", "KiB are free. Lower micro_tokens of the stage"})
    EXPECT_TRUE(contains(said, part)) << said;
  EXPECT_FALSE(fs::exists(p.run("r") + "/checkpoints/latest"));
}

TEST(DeviceTraining, a_bad_number_is_found_by_running_node_by_node) {
  const Place p(base_recipe());
  const std::string checkpoint = gpu().train(p, "r", false, 3).checkpoint;
  {
    const Recipe r = gpu().recipe(p);
    Session s(r, gpu().registry, 1, ArenaMode::planned, {KB_CUDA});
    s.enter_stage(r.curriculum[0]);
    const CheckpointInfo info = load_checkpoint(checkpoint, s.memory());
    const float nan = NAN;
    for (const StoreEntry& e : s.model().store.entries())
      if (e.life == Life::param && e.name.starts_with("layers.1.ffn.") && e.type.rank == 2) {
        s.memory().write(e.name, &nan, 0, 4);
        break;
      }
    CheckpointFolder(p.run("r") + "/checkpoints").save(s.memory(), info);
  }
  const Outcome o = gpu().train(p, "r", true);
  const size_t at = o.out.find("first bad value: ");
  ASSERT_NE(at, o.out.npos) << o.out;
  EXPECT_TRUE(contains(o.out.substr(at, o.out.find('\n', at) - at), "layers.1.ffn")) << o.out.substr(at, 200);
  for (const double x : read_manifest(o.checkpoint).position.recent_loss) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace kitbash::test
