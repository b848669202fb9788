// --device: what is said where there is no GPU, and that libraries of CUDA kernels are listed but not opened on the CPU.
#include <nlohmann/json.hpp>

#include "base/safetensors.h"
#include "tests/cli/run.h"

namespace kitbash::test {
namespace {

std::string norm_file(const Folder& folder) {
  static const std::vector<double> ones(64, 1);
  const std::string path = folder / "in.safetensors";
  write_safetensors(path, {{"in.x", "F32", {3, 4}, ones.data()}, {"param.norm", "F32", {4}, ones.data()}});
  return path;
}

TEST(Device, siblings_are_listed_and_inspected_but_not_opened_on_the_cpu) {
  const Folder f;
  const Ran listed = kitbash({"components", "--json", "--plugin-path", KITBASH_SIBLINGS});
  ASSERT_EQ(listed.code, 0) << listed.err;
  bool found = false;
  const auto json = nlohmann::json::parse(listed.out);
  for (const auto& k : json["kernels"])
    found =
        found || (k["plugin"] == "norm-rmsnorm-cuda" && k["ops"].dump() == "[\"rms_norm\"]" && k["device"] == "cuda");
  EXPECT_TRUE(found) << listed.out;
  EXPECT_TRUE(has(kitbash({"components", "--plugin-path", KITBASH_SIBLINGS}).out, "norm-rmsnorm-cuda"));
  const Ran inspected = kitbash({"plugin", "inspect", std::string(KITBASH_SIBLINGS) + "/libkb_test_sibling.cuda.so"});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_TRUE(has(inspected.out, "norm-rmsnorm-cuda")) << inspected.out;
  const Ran ran = kitbash({"probe", "norm.rmsnorm", "--in", norm_file(f), "--out", f / "out.safetensors",
                           "--plugin-path", KITBASH_SIBLINGS});
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST(Device, without_a_gpu_every_verb_says_why_and_exits_with_2) {
  const Folder f;
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a GPU";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"probe", "norm.rmsnorm", "--in", norm_file(f), "--out", f / "out.safetensors"},
        {"train", recipe("quickstart.toml"), "--run", f / "run"},
        {"bench", recipe("quickstart.toml")}}) {
    std::vector<std::string> on = words;
    on.insert(on.end(), {"--device", "cuda"});
    const Ran r = kitbash(on);
    EXPECT_EQ(r.code, 2) << words[0] << r.err;
    // Built without CUDA, with it but without a driver, or with a driver that has no GPU.
    EXPECT_TRUE(has(r.err, "there must be a plugin 'backend-cuda'") ||
                has(r.err, "an NVIDIA driver must be installed") || has(r.err, "a GPU must be visible"))
        << words[0] << r.err;
    EXPECT_FALSE(std::filesystem::exists(f / "run/metrics.jsonl"));
  }
}

TEST(Device, another_name_is_a_usage_error) {
  const Ran r = kitbash({"train", recipe("quickstart.toml"), "--device", "gpu"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "must be cpu or cuda but got 'gpu'")) << r.err;
}

}  // namespace
}  // namespace kitbash::test
