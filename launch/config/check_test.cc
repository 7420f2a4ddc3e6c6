#include "launch/config/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file_system.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/commands/prepared_config.h"
#include "launch/config/config_loader.h"
#include "launch/roles/task_options.h"
#include "launch/run/run_directory.h"
#include "model/model_files.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A folder of its own, with a file run.toml; runs go below it.
class CheckTest : public ::testing::Test {
 protected:
  CheckTest() {
    char name[] = "/tmp/leeway_check_XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~CheckTest() override { std::filesystem::remove_all(directory_); }

  std::string file() const { return directory_ + "/run.toml"; }
  std::vector<Diagnostic> Check(const std::string& text, std::vector<std::string> overrides = {}) {
    std::ofstream(file()) << text;
    std::vector<std::string> arguments = {file(), "run.directory=" + directory_ + "/runs"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return PrepareConfig(arguments).errors;
  }

  std::string directory_;
};

struct Broken {
  const char* name;
  const char* text;
  // Of the first error.
  int line;
  int column;
  const char* key;
  const char* says;
};

class BrokenConfigTest : public CheckTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenConfigTest, SaysWhatAndWhere) {
  const Broken& broken = GetParam();
  const std::vector<Diagnostic> errors = Check(broken.text);
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_EQ(errors[0].place.ToString(), fmt::format("{}:{}:{}", file(), broken.line, broken.column));
  EXPECT_EQ(errors[0].key, broken.key);
  EXPECT_THAT(errors[0].message, HasSubstr(broken.says));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/runs"));
}

constexpr char kTask[] = "[task]\nname = \"sort5\"\n";

INSTANTIATE_TEST_SUITE_P(
    , BrokenConfigTest,
    ::testing::Values(
        Broken{"Syntax", "seed = \n", 1, 8, "", "not TOML"},
        Broken{"SyntaxOfTableName", "[?task]\nname = \"sort5\"\n", 1, 2, "", "not TOML"},
        Broken{"LetterInTableName", "[\u00DEtask]\nname = \"sort5\"\n", 1, 2, "", "not TOML"},
        Broken{"WrongType", "seed = \"one\"\n[task]\nname = \"sort5\"\n", 1, 8, "seed",
               "expected an integer >= 0, got the text \"one\""},
        Broken{"NumberWithSuffix", "[task]\nname = \"sort5\"\n[trainer]\nsteps = \"8k\"\n", 4, 9, "trainer.steps",
               "did you mean 8?"},
        Broken{"UnknownKey", "[task]\nname = \"sort5\"\n[trainer]\nstepps = 8\n", 4, 1, "trainer.stepps",
               "unknown key (did you mean trainer.steps?)"},
        Broken{"UnknownSection", "[task]\nname = \"sort5\"\n[traner]\nsteps = 8\n", 3, 2, "traner",
               "unknown section (did you mean trainer?)"},
        Broken{"OutOfRange", "[task]\nname = \"sort5\"\n[trainer]\nsteps = 0\n", 4, 9, "trainer.steps",
               "expected an integer >= 1, got 0"},
        Broken{"UnknownChoice", "mode = \"asink\"\n[task]\nname = \"sort5\"\n", 1, 8, "mode",
               "expected one of async, sync, got \"asink\" (did you mean \"async\"?)"},
        Broken{"MissingTask", "seed = 1\n", 1, 1, "task.name", "missing"},
        Broken{"UnknownTask", "[task]\nname = \"sort6\"\n", 2, 8, "task.name", "sort5"},
        Broken{"BadLatency", "[task]\nname = \"sort5\"\nlatency = \"20ms\"\n", 3, 11, "task.latency", "lognormal"},
        Broken{"FileOfAnotherTask", "[task]\nname = \"sort5\"\nfile = \"questions.jsonl\"\n", 3, 8, "task.file",
               "question_file"},
        Broken{"MissingQuestionFile", "[task]\nname = \"question_file\"\nfile = \"no-such.jsonl\"\n", 3, 8, "task.file",
               "no-such.jsonl"},
        Broken{"IndivisibleHeads", "[task]\nname = \"sort5\"\n[model]\nhidden = 64\nheads = 5\n", 5, 9, "model.heads",
               "64 is not divisible by model.heads = 5"},
        Broken{"OddHead", "[task]\nname = \"sort5\"\n[model]\nhead_dim = 15\n", 4, 12, "model.head_dim", "even"},
        Broken{"BadKeyValueHeads", "[task]\nname = \"sort5\"\n[model]\nkey_value_heads = 3\n", 4, 19,
               "model.key_value_heads", "divisor of model.heads = 4"},
        Broken{"TooFewPositions", "[task]\nname = \"sort5\"\n[model]\nmax_positions = 4\n", 4, 17,
               "model.max_positions", "expected at least"},
        Broken{"QueueTooSmallForABatch", "[task]\nname = \"sort5\"\n[queue]\nmax_groups = 15\n", 4, 14,
               "queue.max_groups", "would wait for ever: a batch is 16 groups"},
        Broken{"QueueBytesTooFew", "[task]\nname = \"sort5\"\n[queue]\nmax_bytes = \"64KiB\"\n", 4, 13,
               "queue.max_bytes", "would wait for ever"},
        Broken{"TrajectoryTooSmall", "[task]\nname = \"sort5\"\n[queue]\nmax_trajectory_bytes = 10\n", 4, 24,
               "queue.max_trajectory_bytes", "expected at least"},
        Broken{"WaitWithoutTicketOrder",
               "[task]\nname = \"sort5\"\n[staleness]\norder = \"ready\"\nbreach = \"wait\"\n", 5, 10,
               "staleness.breach", "needs order `ticket`"},
        Broken{"BudgetInSyncMode", "mode = \"sync\"\n[task]\nname = \"sort5\"\n[staleness]\nbudget = 3\n", 5, 10,
               "staleness.budget", "no lag can occur"},
        Broken{"IllegalCorrection",
               "[task]\nname = \"sort5\"\n[objective]\nname = \"ppo_clip\"\ncorrection = \"tis\"\n", 5, 14,
               "objective.correction", "decoupled"},
        Broken{"GroupOfOne", "[task]\nname = \"sort5\"\n[trainer]\ngroup_size = 1\n", 4, 14, "trainer.group_size",
               "nothing would be learnt"},
        Broken{
            "GroupOfOneUnderAnyAdvantage",
            "[task]\nname = \"sort5\"\n[objective]\nadvantage = \"reinforce_pp_baseline\"\n[trainer]\ngroup_size = 1\n",
            6, 14, "trainer.group_size", "nothing would be learnt"},
        Broken{"WidthBeyondAllBounds", "[task]\nname = \"sort5\"\n[model]\nhidden = 9223372036854775807\n", 4, 10,
               "model.hidden", "1073741824"},
        Broken{"MoreMemoryThanThereIs", "[task]\nname = \"sort5\"\n[model]\nlayers = 10000000\n", 4, 10, "model.layers",
               "this machine has"},
        Broken{"AnyPort", "[task]\nname = \"sort5\"\n[queue]\naddress = \"127.0.0.1:0\"\n", 4, 11, "queue.address",
               "choose a port"},
        Broken{"SocketWithoutFolder", "[task]\nname = \"sort5\"\n[queue]\naddress = \"unix:/nonexist/s\"\n", 4, 11,
               "queue.address", "/nonexist is no folder"},
        Broken{"MoreUpdatesThanGroups", "[task]\nname = \"sort5\"\n[trainer]\nupdates_per_step = 17\n", 4, 20,
               "trainer.updates_per_step", "17 updates"},
        Broken{"ShortGroupTooLarge",
               "[task]\nname = \"sort5\"\n[queue]\nshort_group = \"train\"\nshort_group_minimum = 9\n", 5, 23,
               "queue.short_group_minimum", "at most trainer.group_size = 8"},
        Broken{"MissingModel", "[task]\nname = \"sort5\"\n[model]\ninit = \"no-such-model\"\n", 4, 8, "model.init",
               "no such folder"},
        Broken{"RunNameWithSlash", "run.name = \"a/b\"\n[task]\nname = \"sort5\"\n", 1, 12, "run.name", "without '/'"},
        Broken{"OpenToAll", "[task]\nname = \"sort5\"\n[queue]\naddress = \"0.0.0.0:7000\"\n", 4, 11, "queue.address",
               "other machines can reach it and TLS is not configured"},
        Broken{"HalfOfTls", "[task]\nname = \"sort5\"\n[security]\nkey = \"x.key\"\n", 4, 7, "security.certificate",
               "certificate, key and authority are set together"},
        Broken{"NoTokenFile", "[task]\nname = \"sort5\"\n[security]\ntoken_file = \"/nonexistent\"\n", 4, 14,
               "security.token_file", "No such file"},
        Broken{"ForeignHost", "[task]\nname = \"sort5\"\n[queue]\naddress = \"example.org:80\"\n", 4, 11,
               "queue.address", "example.org"}),
    [](const ::testing::TestParamInfo<Broken>& test) { return std::string(test.param.name); });

TEST_F(CheckTest, WarmStartNeedsDemonstrations) {
  std::ofstream questions(directory_ + "/q.jsonl");
  for (int i = 0; i < 20; ++i) questions << fmt::format("{{\"question\": \"q{}\", \"answer\": \"[0-9]\"}}\n", i);
  questions.close();
  const std::vector<Diagnostic> errors = Check(
      "[task]\nname = \"question_file\"\nfile = \"q.jsonl\"\nmatch = \"regex\"\n[trainer.warm_start]\nsteps = 5\n");
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].ToString(),
              HasSubstr(":6:9: trainer.warm_start.steps: task question_file has no demonstrations"));
}

TEST_F(CheckTest, GoodConfigHasNoErrors) { EXPECT_THAT(Check(kTask), IsEmpty()); }

TEST_F(CheckTest, AllErrorsShowAtOnceInOrderOfTheirPlaces) {
  const std::vector<Diagnostic> errors = Check(
      "mode = 3\n[task]\nname = \"sort5\"\nlatency = \"slow\"\n[model]\nheads = 5\n[trainer]\nsteps = "
      "-1\n[staleness]\norder = \"ready\"\nbreach = \"wait\"\n");
  EXPECT_THAT(errors, SizeIs(5)) << FormatDiagnostics(errors);
  const std::string text = FormatDiagnostics(errors);
  size_t at = 0;
  for (const char* part : {"run.toml:1:8: mode", "run.toml:4:11: task.latency", "run.toml:6:9: model.heads",
                           "run.toml:8:9: trainer.steps", "run.toml:11:10: staleness.breach"}) {
    const size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " is missing or out of order in\n" << text;
    at = found;
  }
}

TEST_F(CheckTest, OverridesAreBlamedWithTheirColumn) {
  const std::vector<Diagnostic> errors = Check(kTask, {"trainer.steps=many"});
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].ToString(), "<argument 2>:1:15: trainer.steps: expected an integer >= 1, got the text \"many\"");
}

TEST_F(CheckTest, MissingFileIsNamed) {
  const std::vector<Diagnostic> errors = PrepareConfig({directory_ + "/absent.toml"}).errors;
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_THAT(errors[0].ToString(), HasSubstr("absent.toml:1:1: no such file"));
}

TEST_F(CheckTest, BusyPortIsFoundBeforeTheStart) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  const std::vector<Diagnostic> errors = Check(fmt::format("{}[queue]\naddress = \"127.0.0.1:{}\"\n", kTask, port));
  close(fd);
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].place.line, 4);
  EXPECT_THAT(errors[0].message, HasSubstr(fmt::format("port {} is busy", port)));
}

TEST_F(CheckTest, ResumeWithAnotherSeedIsRefusedWithTheDifference) {
  const std::string text = "seed = 2\n[staleness]\nbudget = 1\n[task]\nname = \"sort5\"\n";
  std::ofstream(file()) << kTask;
  const PreparedConfig first = PrepareConfig({file(), "run.directory=" + directory_ + "/runs"});
  ASSERT_THAT(first.errors, IsEmpty());
  { ASSERT_TRUE(RunDirectory::Open(first.run_directory, first.resolved.config).ok()); }
  const std::vector<Diagnostic> errors = Check(text);
  ASSERT_THAT(errors, SizeIs(2)) << FormatDiagnostics(errors);
  EXPECT_EQ(
      errors[0].ToString(),
      file() +
          ":1:8: seed: the run that exists has 1, wanted is 2; a resume can not change it (choose another run.name)");
  EXPECT_EQ(
      errors[1].ToString(),
      file() + ":3:10: staleness.budget: the run that exists has 2, wanted is 1; a resume may raise it, not lower it");
  EXPECT_THAT(Check(kTask, {"trainer.steps=500", "staleness.budget=3"}), IsEmpty());
  // Derived sizes differ because of the width: all complaints stand where that was written.
  const std::vector<Diagnostic> sizes = Check("[task]\nname = \"sort5\"\n[model]\nhidden = 32\n");
  ASSERT_THAT(sizes, SizeIs(3)) << FormatDiagnostics(sizes);
  for (const Diagnostic& error : sizes) EXPECT_EQ(error.place.ToString(), file() + ":4:10") << error.key;
}

TEST_F(CheckTest, ALineOfTheQuestionFileIsTheFilesFault) {
  std::ofstream(directory_ + "/q.jsonl") << R"({"question": "q", "answer": "a"})"
                                         << "\n"
                                         << R"({"question": "r", "answer": "much too long an answer"})"
                                         << "\n";
  const std::vector<Diagnostic> errors =
      Check("[task]\nname = \"question_file\"\nmax_answer_tokens = 8\nfile = \"q.jsonl\"\n");
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].ToString(), HasSubstr(":4:8: task.file: " + directory_ + "/q.jsonl:2: 'answer' has 23 bytes"));
}

TEST_F(CheckTest, EveryBrokenLineOfAQuestionFileIsNamed) {
  std::ofstream questions(directory_ + "/q.jsonl");
  for (int i = 0; i < 20; ++i) questions << "{\"question\": \"q\", \"answer\": \"a\"}\n";
  questions << "{\n[]\n";
  questions.close();
  std::ofstream(file()) << "[task]\nname = \"question_file\"\nfile = \"q.jsonl\"\n";
  const std::vector<Diagnostic> errors = PrepareConfig({file(), "run.directory=" + directory_}).errors;
  ASSERT_THAT(errors, SizeIs(2)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr("q.jsonl:21"));
  EXPECT_THAT(errors[1].message, HasSubstr("q.jsonl:22"));
}

TEST_F(CheckTest, OtherQuestionsAreNotResumed) {
  const std::string text = "run.directory = \"" + directory_ +
                           "\"\nrun.name = \"r\"\n[task]\nname = \"question_file\"\nfile = \"q.jsonl\"\n";
  const auto write = [&](const std::string& answer) {
    std::ofstream questions(directory_ + "/q.jsonl");
    for (int i = 0; i < 20; ++i) questions << fmt::format("{{\"question\": \"q{}\", \"answer\": \"{}\"}}\n", i, answer);
  };
  write("a");
  std::ofstream(file()) << text;
  const PreparedConfig first = PrepareConfig({file()});
  ASSERT_THAT(first.errors, IsEmpty()) << FormatDiagnostics(first.errors);
  std::filesystem::create_directory(directory_ + "/r");
  std::ofstream(directory_ + "/r/config.toml") << first.resolved.config.ToToml();
  EXPECT_THAT(PrepareConfig({file()}).errors, IsEmpty());
  write("b");
  const std::vector<Diagnostic> errors = PrepareConfig({file()}).errors;
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_EQ(errors[0].key, "task.file_digest");
  EXPECT_EQ(errors[0].place.ToString(), file() + ":5:8");
}

TEST_F(CheckTest, CheckpointsWithoutAConfigurationOrBeyondTheStepsAreNotResumed) {
  const std::string text = "run.directory = \"" + directory_ + "\"\nrun.name = \"r\"\n[task]\nname = \"sort5\"\n";
  std::filesystem::create_directories(directory_ + "/r/checkpoints/step-30");
  std::ofstream(file()) << text;
  std::vector<Diagnostic> errors = PrepareConfig({file()}).errors;
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr("holds checkpoints but no config.toml"));
  std::ofstream(directory_ + "/r/config.toml") << PrepareConfig({file()}).resolved.config.ToToml();
  errors = PrepareConfig({file(), "trainer.steps=29"}).errors;
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr("has trained 30 steps"));
}

TEST_F(CheckTest, HomeFolderIsTheShellsBusiness) {
  std::ofstream(file()) << kTask;
  const std::vector<Diagnostic> errors = PrepareConfig({file(), "run.directory=~/runs"}).errors;
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr("write the path in full"));
}

TEST_F(CheckTest, SocketThatIsServedIsBusy) {
  const std::string path = directory_ + "/s";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  const std::string text = std::string(kTask) + "[queue]\naddress = \"unix:" + path + "\"\n";
  // A socket file that nobody listens on is a leftover.
  EXPECT_THAT(Check(text), IsEmpty());
  ASSERT_EQ(listen(fd, 1), 0);
  const std::vector<Diagnostic> errors = Check(text);
  close(fd);
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr("listens on " + path + " already"));
}

TEST_F(CheckTest, ModelOfAnotherVocabularyIsRefused) {
  std::filesystem::create_directory(directory_ + "/model");
  std::ofstream(directory_ + "/model/config.json")
      << R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
             "tie_word_embeddings": true, "rope_theta": 10000.0, "torch_dtype": "float32"})";
  const std::vector<Diagnostic> errors = Check(std::string(kTask) + "[model]\ninit = \"model\"\n");
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].ToString(), HasSubstr(":4:8: model.init: vocabularies differ: "));
  EXPECT_THAT(errors[0].message, HasSubstr("32000"));
}

TEST_F(CheckTest, BrokenInitialWeightsAreRefusedBeforeAnythingStarts) {
  const std::string text = std::string(kTask) + "[model]\ninit = \"model\"\nhidden = 16\nlayers = 1\nheads = 2\n";
  std::ofstream(file()) << kTask;
  const PreparedConfig prepared = PrepareConfig({file(), "model.hidden=16", "model.layers=1", "model.heads=2"});
  ASSERT_THAT(prepared.errors, IsEmpty());
  ModelDirectory model;
  model.shape = ShapeOf(prepared.resolved.config, prepared.resolved.tokenizer->vocabulary_size());
  model.parameters.resize(static_cast<size_t>(model.shape.ParameterCount()));
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_ + "/model", model).ok());
  EXPECT_THAT(Check(text), IsEmpty());

  const std::string weights = directory_ + "/model/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  std::vector<Diagnostic> errors = Check(text);
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_EQ(errors[0].place.ToString(), file() + ":4:8");
  EXPECT_THAT(errors[0].message, AllOf(HasSubstr(weights), HasSubstr("leave model.init empty")));
  std::filesystem::remove(directory_ + "/model/config.json");
  errors = Check(text);
  ASSERT_THAT(errors, SizeIs(1)) << FormatDiagnostics(errors);
  EXPECT_THAT(errors[0].message, HasSubstr(directory_ + "/model/config.json"));

  // The rest of what the trainer compares.
  model.shape.tied_head = false;
  model.shape.rope_theta = 5e5;
  model.shape.max_positions = 4;
  model.parameters.resize(static_cast<size_t>(model.shape.ParameterCount()));
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_ + "/model", model).ok());
  errors = Check(text + "tied_head = true\nrope_theta = 10000.0\nmax_positions = 12\n");
  ASSERT_THAT(errors, SizeIs(3)) << FormatDiagnostics(errors);
  EXPECT_EQ(errors[2].place.ToString(), file() + ":10:17");
  EXPECT_THAT(errors[0].message, HasSubstr("tie_word_embeddings = false"));
  EXPECT_THAT(errors[1].message, HasSubstr("model.rope_theta = 10000, but"));
  EXPECT_THAT(errors[2].message, HasSubstr("max_position_embeddings = 4"));
}

TEST_F(CheckTest, TheInitialModelGivesTheKeysThatAreNotSet) {
  ModelDirectory model;
  model.shape = {.vocabulary = 64,
                 .hidden = 24,
                 .layers = 1,
                 .heads = 4,
                 .key_value_heads = 2,
                 .head_dim = 8,
                 .intermediate = 40,
                 .max_positions = 512,
                 .rope_theta = 1e6,
                 .rms_epsilon = 1e-6,
                 .tied_head = false,
                 .family = ModelFamily::kQwen3};
  model.parameters.resize(static_cast<size_t>(model.shape.ParameterCount()));
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_ + "/model", model).ok());
  std::ofstream(file()) << kTask;
  const std::vector<std::string> words = {file(), "run.directory=" + directory_ + "/runs",
                                          "model.init=" + directory_ + "/model"};
  const PreparedConfig prepared = PrepareConfig(words);
  ASSERT_THAT(prepared.errors, IsEmpty()) << FormatDiagnostics(prepared.errors);
  const ModelShape shape = ShapeOf(prepared.resolved.config, 64);
  EXPECT_EQ(shape.family, ModelFamily::kQwen3);
  EXPECT_EQ(ParameterLayout(shape).size(), ParameterLayout(model.shape).size());
  EXPECT_EQ(shape.ParameterCount(), model.shape.ParameterCount());
  EXPECT_EQ(shape.key_value_heads, 2);
  EXPECT_EQ(shape.max_positions, 512);
  EXPECT_EQ(shape.rope_theta, 1e6);
  EXPECT_EQ(shape.rms_epsilon, 1e-6);
  EXPECT_FALSE(shape.tied_head);

  // What is written must agree.
  std::vector<std::string> contradicting = words;
  contradicting.insert(contradicting.end(), {"model.family=qwen2", "model.layers=1", "model.hidden=32"});
  const PreparedConfig refused = PrepareConfig(contradicting);
  ASSERT_THAT(refused.errors, SizeIs(2)) << FormatDiagnostics(refused.errors);
  EXPECT_THAT(FormatDiagnostics(refused.errors), AllOf(HasSubstr("model_type = qwen3"), HasSubstr("hidden_size = 24")));

  // A resolved configuration has all keys: where only rollout workers run, the folder is not needed.
  std::ofstream(directory_ + "/resolved.toml") << prepared.resolved.config.ToToml();
  std::filesystem::remove_all(directory_ + "/model");
  const LoadedConfig loaded = LoadConfig({{directory_ + "/resolved.toml"}, {}});
  const ResolvedConfig again = ResolveConfig(loaded.config, "run");
  EXPECT_THAT(again.errors, IsEmpty()) << FormatDiagnostics(again.errors);
  EXPECT_EQ(again.config.RunFingerprint(), prepared.resolved.config.RunFingerprint());
}

TEST_F(CheckTest, ResolvingIsIdempotentAndKeepsTheFingerprint) {
  std::ofstream(file()) << kTask;
  const PreparedConfig first = PrepareConfig({file(), "run.directory=" + directory_ + "/runs"});
  ASSERT_THAT(first.errors, IsEmpty());
  const Config& config = first.resolved.config;
  EXPECT_EQ(config.GetInteger("model.head_dim"), 16);
  EXPECT_EQ(config.GetInteger("model.intermediate"), 176);  // 64 * 8 / 3 = 170, up to a multiple of 16
  EXPECT_EQ(config.GetInteger("queue.max_groups"), 64);     // (2 + 2) * 16
  EXPECT_EQ(config.GetString("run.name"), "run");
  std::ofstream(directory_ + "/resolved.toml") << config.ToToml();
  const PreparedConfig second = PrepareConfig({directory_ + "/resolved.toml"});
  ASSERT_THAT(second.errors, IsEmpty()) << FormatDiagnostics(second.errors);
  EXPECT_THAT(CompareForResume(config, second.resolved.config), IsEmpty());
  EXPECT_EQ(config.RunFingerprint(), second.resolved.config.RunFingerprint());
  EXPECT_THAT(DescribeFeasibility(first.resolved), HasSubstr("lag of a trained token at most 2"));
}

TEST(ShippedConfigTest, EveryShippedConfigIsGood) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LEEWAY_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    const PreparedConfig prepared = PrepareConfig({entry.path().string(), "run.directory=/tmp/leeway-no-such-runs"});
    EXPECT_THAT(prepared.errors, IsEmpty()) << FormatDiagnostics(prepared.errors);
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace leeway
