// probe: what it says of tensors that are missing or of another kind than they must be.
#include "base/safetensors.h"
#include "tests/cli/run.h"

namespace kitbash::test {
namespace {

struct Probe : ::testing::Test {
  Folder folder;
  std::map<std::string, std::pair<std::vector<int64_t>, std::string>> tensors{{"in.x", {{3, 4}, "F32"}},
                                                                              {"param.norm", {{4}, "F32"}}};
  Ran run(const std::vector<std::string>& more = {}) {
    static const std::vector<double> zeros(256);
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.second, t.first, zeros.data()});
    write_safetensors(folder / "in.safetensors", list);
    std::vector<std::string> words{
        "probe", "norm.rmsnorm", "--in", folder / "in.safetensors", "--out", folder / "out.safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    return kitbash(words);
  }
  void refused(const std::string& sentence) {
    const Ran r = run();
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(has(r.err, sentence)) << r.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "out.safetensors"));
  }
};

TEST_F(Probe, writes_what_the_component_gives) {
  const Ran r = run();
  EXPECT_EQ(r.code, 0) << r.err;
  const SafetensorsFile f = SafetensorsFile::open(folder / "out.safetensors");
  ASSERT_NE(f.find("out.y"), nullptr);
  EXPECT_EQ(f.at("out.y").shape, (std::vector<int64_t>{3, 4}));
}

TEST_F(Probe, names_a_missing_input) {
  tensors.erase("in.x");
  refused("error: [probe] norm.rmsnorm needs the tensor in.x, which ");
}

TEST_F(Probe, names_a_missing_parameter_with_its_type) {
  tensors.erase("param.norm");
  refused("error: [probe] norm.rmsnorm needs the tensor param.norm (f32 [4]), which ");
}

TEST_F(Probe, says_which_shape_a_parameter_must_have) {
  tensors["param.norm"].first = {5};
  refused("[probe] param.norm must be f32 [4] but got F32 [5]");
  tensors["param.norm"].first = {2, 2};
  refused("[probe] param.norm must be f32 [4] but got F32 [2, 2]");
}

TEST_F(Probe, says_which_type_a_tensor_must_have) {
  tensors["in.x"].second = "I32";
  refused("[probe] in.x must be f32 [3, 4] but got I32 [3, 4]");
}

TEST_F(Probe, refuses_modes_and_components_that_it_does_not_know) {
  EXPECT_TRUE(has(run({"--dtype", "f16"}).err, "--dtype must be f32 or f64 on the cpu but got 'f16'"));
  EXPECT_TRUE(has(run({"--arena", "big"}).err, "--arena must be planned, separate or poison but got 'big'"));
  const Ran r = kitbash({"probe", "norm.rmsnrom", "--in", folder / "in.safetensors", "--out", folder / "o"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "rmsnorm")) << r.err;
}

TEST_F(Probe, refuses_tensors_of_more_axes_than_there_may_be) {
  tensors["in.x"].first = {1, 1, 1, 1, 1, 1, 1, 3, 4};
  refused("[probe] in.x must have at most 8 axes but got 9");
}

TEST_F(Probe, refuses_a_scalar_where_a_component_asks_for_an_axis) {
  tensors["in.x"].first = {};
  refused("[(norm.rmsnorm)] a value must have the axis -1 to ask its size but has 0 axes");
}

TEST_F(Probe, refuses_an_input_without_elements_to_a_component) {
  tensors["in.x"].first = {3, 0};
  refused("[probe] in.x must have elements but one of its axes is empty");
}

TEST_F(Probe, of_an_op_refuses_what_only_a_component_has) {
  tensors = {{"in.0", {{3, 4}, "F32"}}};
  run();
  const auto op = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"probe", "op.exp", "--in", folder / "in.safetensors", "--out", folder / "o"};
    words.insert(words.end(), more.begin(), more.end());
    return kitbash(words);
  };
  EXPECT_EQ(op({}).code, 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--update"}, {"--set", "a=1"}, {"--config", "x.toml"}, {"--verb", "foo"}}) {
    const Ran r = op(more);
    EXPECT_EQ(r.code, 2) << more[0];
    EXPECT_EQ(r.err,
              "error: [probe] " + more[0] + " needs a component but got op.exp; an op takes --attr NAME=VALUE\n");
  }
}

TEST_F(Probe, refuses_attributes_that_a_kind_does_not_take) {
  EXPECT_EQ(run({"--attr", "z=1"}).err,
            "error: [probe] a component of kind norm takes no --attr but got 'z'; keys are given by --set\n");
  const Ran r = kitbash(
      {"probe", "router.quantile", "--attr", "expert=8", "--in", folder / "in.safetensors", "--out", folder / "o"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "takes the --attr experts, active but got 'expert'")) << r.err;
}

TEST_F(Probe, names_the_file_that_it_cannot_write) {
  run();
  const Ran r =
      kitbash({"probe", "norm.rmsnorm", "--in", folder / "in.safetensors", "--out", folder / "no/where.safetensors"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "error: [" + (folder / "no/where.safetensors") + "] cannot be created: ")) << r.err;
}

TEST_F(Probe, gives_equal_files_in_every_arena) {
  std::vector<std::string> files;
  for (const char* arena : {"planned", "separate", "poison"}) {
    EXPECT_EQ(run({"--arena", arena}).code, 0);
    files.push_back(content(folder / "out.safetensors"));
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0], files[2]);
}

}  // namespace
}  // namespace kitbash::test
