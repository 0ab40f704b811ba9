// saccade train, generate and look as a user runs them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "saccade/random.h"
#include "support/cli_support.h"
#include "support/environment.h"
#include "support/page_parts.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TrainCommand : public CommandTest {
 protected:
  /// A few steps of a tiny model.
  static std::vector<std::string> tiny(const std::vector<std::string>& task, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", "--layers", "2",  "--heads", "2", "--d-model", "16", "--context",
                                       "15",    "--steps",  "12", "--batch", "4", "--warmup",  "2"};
    arguments.insert(arguments.end(), task.begin(), task.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<std::string> tiny_induction(const std::vector<std::string>& more) {
    return tiny({"--task", "induction", "--vocab", "32"}, more);
  }

  /// Expects one line on standard error that contains `message`, and exit code 2.
  static void expect_refused(const Outcome& outcome, const std::string& message) {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  /// Trains once without interruption and once with repeated kills, and compares the files of both. The arguments
  /// end with -o.
  void expect_killed_ends_as_whole(const std::vector<std::string>& arguments) {
    std::vector<std::string> whole = arguments, killed = arguments;
    whole.push_back("whole");
    killed.push_back("killed");
    ASSERT_EQ(run(whole).exit_code, 0);
    int kills = 0;
    Outcome outcome;
    for (double seconds = 0.15; outcome.exit_code != 0; seconds *= 1.2) {
      std::vector<std::string> under_timeout{"-s", "KILL", std::to_string(seconds), SACCADE_COMMAND};
      under_timeout.insert(under_timeout.end(), killed.begin(), killed.end());
      outcome = run_program("timeout", under_timeout);
      if (outcome.exit_code != 0) ++kills;
      ASSERT_LT(kills, 60) << outcome.err;
      const bool begun = std::filesystem::exists(path("killed/config.json"));
      if (begun && killed.back() != "--resume") killed.push_back("--resume");
    }
    EXPECT_GT(kills, 0);
    for (const char* file : {"/checkpoint.safetensors", "/model.safetensors", "/loss.csv"})
      EXPECT_TRUE(read(std::string("whole") + file) == read(std::string("killed") + file)) << file;
  }

  /// Runs the command with a limit on the size of its files, so that a write fails as on a full disk.
  Outcome run_with_small_files(int kibibytes, const std::vector<std::string>& arguments) {
    std::string line = "trap '' XFSZ; ulimit -f " + std::to_string(kibibytes) + "; exec \"$0\" \"$@\"";
    std::vector<std::string> all{"-c", line, SACCADE_COMMAND};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program("/bin/bash", all);
  }
};

TEST_F(TrainCommand, LeavesAModelACurveAndPictures) {
  const Outcome outcome = run(tiny_induction({"-o", "run", "--heatmaps-at", "0,12", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json learnt = outcome.json();
  EXPECT_EQ(learnt.at("steps"), 12);
  EXPECT_GT(learnt.at("tokens_per_second"), 0.0);
  EXPECT_NEAR(learnt.at("loss_unseen").get<double>(), std::log(32.0), 0.4);
  EXPECT_EQ(learnt.at("heads").size(), 4u);
  std::vector<std::string> names;
  for (const auto& [name, contents] : files()) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("run", "run/checkpoint.safetensors", "run/config.json", "run/heads_step_000000.svg",
                          "run/heads_step_000012.svg", "run/loss.csv", "run/loss.svg", "run/model.safetensors",
                          "run/model_step_000000.safetensors", "run/model_step_000012.safetensors"));
  const std::string curve = read("run/loss.csv");
  EXPECT_THAT(curve, StartsWith("step,loss,loss_repeated,loss_unseen,lr,gradient_norm\n1,3."));
  EXPECT_EQ(std::ranges::count(curve, '\n'), 13);
  EXPECT_THAT(read("run/heads_step_000012.svg"), AllOf(HasSubstr("After 12 steps"), HasSubstr("layer 1, head 1")));
  EXPECT_EQ(json::parse(read("run/config.json")).at("d-model"), 16);
  EXPECT_TRUE(load_safetensors(path("run/model.safetensors")).tensors.contains("trf_blocks.1.att.W_query.weight"));
  EXPECT_EQ(read("run/model_step_000012.safetensors"), read("run/model.safetensors"));
  EXPECT_NE(read("run/model_step_000000.safetensors"), read("run/model.safetensors"));
}

TEST_F(TrainCommand, TellsHowFarItIsInPlainLinesWhereThereIsNoTerminal) {
  const Outcome outcome = run(tiny_induction({"-o", "run"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("saccade train: 6 of 12, "));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("loss 3."), HasSubstr(" tokens/s\n"), Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("64 new sequences: loss "), HasSubstr("induction")));
}

TEST_F(TrainCommand, TheSameOptionsGiveTheSameFiles) {
  ASSERT_EQ(run(tiny_induction({"-o", "a", "--dropout", "0.1"})).exit_code, 0);
  ASSERT_EQ(
      run(tiny_induction({"-o", "b", "--dropout", "0.1"}), {.environment = {{"OMP_NUM_THREADS", "1"}}}).exit_code,
      0);
  ASSERT_EQ(run(tiny_induction({"-o", "c", "--dropout", "0.1", "--seed", "1"})).exit_code, 0);
  for (const char* file : {"/checkpoint.safetensors", "/model.safetensors", "/loss.csv", "/loss.svg",
                           "/heads_step_000012.svg", "/config.json"}) {
    EXPECT_TRUE(read(std::string("a") + file) == read(std::string("b") + file)) << file;
    EXPECT_FALSE(read(std::string("a") + file) == read(std::string("c") + file)) << file;
  }
}

TEST_F(TrainCommand, AKilledRunEndsAsAnUninterruptedOne) {
#ifdef _WIN32
  GTEST_SKIP() << "the command timeout is of Unix";
#endif
  std::vector<std::string> arguments =
      tiny_induction({"--steps", "400", "--checkpoint-every", "7", "--dropout", "0.1", "-o"});
  arguments.erase(std::ranges::find(arguments, "--steps"), std::ranges::find(arguments, "--steps") + 2);
  expect_killed_ends_as_whole(arguments);
}

TEST_F(TrainCommand, AKilledRunOnATextEndsAsAnUninterruptedOne) {
#ifdef _WIN32
  GTEST_SKIP() << "the command timeout is of Unix";
#endif
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the quick brown fox jumps. ";
  write("fox.txt", text);
  expect_killed_ends_as_whole({"train", "--text", "fox.txt", "--layers", "1", "--heads", "2", "--d-model", "16",
                               "--context", "16", "--steps", kIsSlow ? "300" : "1500", "--batch", "4",
                               "--checkpoint-every", "7", "-o"});
}

TEST_F(TrainCommand, AFinishedRunIsOnlyLookedAtAgain) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const auto before = files();
  const Outcome outcome = run({"train", "--resume", "-o", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("12 steps made before"));
  EXPECT_EQ(files(), before);
}

TEST_F(TrainCommand, LearnsABytewiseText) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the quick brown fox jumps. ";
  write("fox.txt", text);
  const Outcome outcome = run({"train", "--text",    "fox.txt", "--layers", "1",   "--heads", "2", "--d-model",
                               "32",    "--context", "24",      "--steps",  "150", "--batch", "8", "--lr",
                               "0.003", "--warmup",  "10",      "-o",       "fox", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json learnt = outcome.json();
  EXPECT_GT(learnt.at("unigram_bits_per_byte"), 3.5);
  EXPECT_LT(learnt.at("bits_per_byte"), 1.5);

  const Outcome generated =
      run({"generate", "--model", "fox", "--prompt", "the quick brown ", "-n", "10", "--temp", "0"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_EQ(generated.out, "the quick brown fox jumps.\n");
  const Outcome piped = run({"generate", "--model", "fox/model.safetensors", "-p", "-", "-n", "4", "--temp", "0"},
                            {.standard_input = "the quick brown fox "});
  EXPECT_EQ(piped.out, "the quick brown fox jump\n");

  const Outcome explained = run({"look", "--model", "fox", "--text", "the quick", "-o", "heads.svg"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, AllOf(HasSubstr("previous token"), HasSubstr("induction")));
  EXPECT_THAT(read("heads.svg"), AllOf(HasSubstr("layer 0, head 1"), HasSubstr(">q<")));
}

#ifndef _WIN32
TEST_F(TrainCommand, GenerationShowsATerminalNoControlCharacter) {
  write("text.txt", std::string(400, 'a'));
  ASSERT_EQ(run(tiny({"--text", "text.txt"}, {"-o", "run"})).exit_code, 0);
  // ESC, a tab, a whole character, a C1 control, a mark that turns the direction, a byte that is no UTF-8, and the
  // first byte of a character.
  const std::string prompt =
      "\x1b[31mr\t\xc3\xa9\xc2\x9b"
      "2\xe2\x80\xae\xff\nend\xe2";
  const Outcome shown = run_on_terminal({"generate", "-m", "run", "-p", prompt, "-n", "0"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.out, "?[31mr\t\xc3\xa9??2????\r\nend?\r\n");
  EXPECT_EQ(run({"generate", "-m", "run", "-p", prompt, "-n", "0"}).out, prompt + "\n");
}
#endif

TEST_F(TrainCommand, GenerationFollowsFromItsSeed) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const auto generated = [&](const std::string& seed, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"generate", "--model", "run", "--prompt", "1 2 3", "--seed", seed});
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith("1 2 3 "));
    return outcome.out;
  };
  EXPECT_EQ(generated("1"), generated("1"));
  EXPECT_NE(generated("1"), generated("2"));
  EXPECT_EQ(generated("1", {"--top-k", "1"}), generated("2", {"--temperature", "0"}));
}

TEST_F(TrainCommand, ExplainsNumbersAsJsonToo) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const Outcome outcome = run({"look", "--model", "run", "--text", "4 5 6 4 5", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json explained = outcome.json();
  EXPECT_EQ(explained.at("tokens"), json({4, 5, 6, 4, 5}));
  ASSERT_EQ(explained.at("heads").size(), 4u);
  const json& head = explained.at("heads").at(3);
  EXPECT_EQ(head.at("layer"), 1);
  EXPECT_GE(head.at("induction"), 0.0);
  EXPECT_LE(head.at("induction"), 1.0);
}

#ifdef SACCADE_HAS_TOKENIZER
TEST_F(TrainCommand, MeasuresWhatChangesWithoutHeads) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const auto ablate = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"look", "--model", "run", "--text", "4 5 6 4 5", "--json", "--ablate"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  };
  const nlohmann::json one = ablate({"L1H0"}), all = ablate({"L1H0,L0H0,L0H1"}), mean = ablate({"L1H0", "--mean"});
  EXPECT_EQ(one["before"], all["before"]);
  EXPECT_NE(one["after"], one["before"]);
  EXPECT_NE(all["after"], one["after"]);
  EXPECT_NE(mean["after"], one["after"]);
  EXPECT_EQ(mean["replaced_by"], "mean");
  EXPECT_EQ(one["tokens"], 5);
  EXPECT_EQ(one["before"]["next"].size(), 5u);
  EXPECT_THAT(run({"look", "--model", "run", "--text", "4 5 6 4 5", "--ablate", "L0H0"}).out,
              StartsWith("loss    "));
  expect_refused(run({"look", "--model", "run", "--text", "4 5", "--ablate", "L2H0"}),
                 "L2H0: the model has 2 layers of 2 heads, counted from 0");
}
#else
TEST_F(TrainCommand, SaysThatAblationNeedsTheTokenizer) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  expect_refused(run({"look", "--model", "run", "--text", "4 5 6 4 5", "--ablate", "L1H0"}),
                 "built without saccade::tokenizer, which --ablate needs");
}
#endif

TEST_F(TrainCommand, PutsTheModelIntoAPage) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const Outcome outcome = run({"look", "--model", "run", "--text", "4 5 6 4 5", "--live", "-o", "live.html"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the page carries the model and what runs it: 0."));
  const std::string page = read("live.html");
  EXPECT_THAT(page, HasSubstr("'wasm-unsafe-eval'"));
  EXPECT_THAT(page, HasSubstr("id=\"model-0\""));
  ASSERT_EQ(run({"look", "--model", "run", "--text", "4 5 6 4 5", "-o", "still.html"}).exit_code, 0);
  EXPECT_THAT(read("still.html"), Not(HasSubstr("wasm")));
  const auto refused = [&](std::vector<std::string> more, const std::string& message) {
    more.insert(more.begin(), {"look", "--model", "run", "--live"});
    expect_refused(run(more), message);
  };
  refused({"--text", "4 5", "-o", "p.html", "--live-weights", "file"}, "pages carry models of saccade train");
  refused({"--text", "4 5"}, "--live needs -o PAGE.html, the page that carries the model");
  refused({"--text", "4 5", "-o", "a.svg"}, "--live needs -o PAGE.html");
  refused({"--text", "4 5", "--ablate", "L0H0"}, "--live needs -o PAGE.html");
  refused({}, "--live needs -o PAGE.html, and --text, the text with which it begins");
  refused({"-o", "p.html"}, "--live needs --text, the text with which the page begins");
  refused({"--text", "4 5", "--pair", "6 7", "-o", "p.html"}, "reads one text, so --pair cannot be given");

  Safetensors saved = load_safetensors(path("run/model.safetensors"));
  saved.tensors.at("final_norm.scale").at<float>(3) = -70'000.0f;
  save_safetensors(path("large.safetensors"), saved);
  expect_refused(
      run({"look", "--model", "large.safetensors", "--text", "4 5", "--live", "-o", "p.html"}),
      "the tensor final_norm.scale has the weight -70000, but the page has weights as f16, up to 65504");
  EXPECT_FALSE(std::filesystem::exists(path("p.html")));
}

TEST_F(TrainCommand, KeepsTheTextOfAPageWithAModel) {
  std::string foxes;
  for (int i = 0; i < 20; ++i) foxes += "the quick brown fox jumps over the lazy dog. ";
  write("fox.txt", foxes);
  ASSERT_EQ(run(tiny({"--text", "fox.txt"}, {"-o", "fox"})).exit_code, 0);
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const auto text_of_page = [&](const std::string& model, const std::string& text) {
    const Outcome outcome = run({"look", "--model", model, "--text", text, "--live", "-o", "live.html"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return index_of(read("live.html"))["model"]["text"];
  };
  EXPECT_EQ(text_of_page("fox", " the quick  "), " the quick  ");
  EXPECT_EQ(text_of_page("fox", "  "), "  ");
  EXPECT_EQ(text_of_page("run", " 4, 5 6 "), "4 5 6");
}

TEST_F(TrainCommand, RefusesArgumentsThatDoNotFit) {
  write("short.txt", "A text of thirty-two characters.");
  expect_refused(run({"train", "-o", "run"}), "--task induction or --text FILE... is needed");
  expect_refused(run({"train", "--text", "nowhere.txt", "-o", "run"}), "nowhere.txt");
  expect_refused(run({"train", "--text", "short.txt", "-o", "run"}), "the text has 32 bytes");
  expect_refused(run(tiny_induction({"--heads", "3", "-o", "run"})), "");
  expect_refused(run(tiny({"--task", "induction", "--vocab", "20"}, {"-o", "run"})),
                 "seqlen must be from 7 to vocab_size / 2 = 10, got 15");
  expect_refused(run(tiny_induction({"--dropout", "1", "-o", "run"})), "dropout");
  expect_refused(run(tiny_induction({"--lr", "-1", "-o", "run"})), "lr");
  expect_refused(run(tiny_induction({"--heatmaps-at", "1,x", "-o", "run"})), "--heatmaps-at");
  expect_refused(run(tiny_induction({"-o", "short.txt/run"})), "short.txt/run");
  EXPECT_THAT(files(), testing::SizeIs(1));  // short.txt
}

TEST_F(TrainCommand, RefusesToMixRuns) {
  expect_refused(run({"train", "--resume", "-o", "run"}), "run holds no run");
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const auto before = files();
  expect_refused(run(tiny_induction({"-o", "run"})), "run holds a run already; --resume goes on with it");
  expect_refused(run({"train", "--resume", "--d-model", "32", "-o", "run"}),
                 "--d-model is 32, but the run in run has 16");
  expect_refused(run({"train", "--resume", "--lr", "0.5", "-o", "run"}), "--lr is 0.5");
  EXPECT_EQ(files(), before);
}

TEST_F(TrainCommand, RefusesDamagedCheckpoints) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  const std::string checkpoint = read("run/checkpoint.safetensors"), config = read("run/config.json");
  const auto refused = [&](const std::string& file, const std::string& contents, const std::string& message) {
    write(file, contents);
    const auto before = files();
    expect_refused(run({"train", "--resume", "-o", "run"}), message);
    EXPECT_EQ(files(), before);
  };
  refused("run/checkpoint.safetensors", checkpoint.substr(0, checkpoint.size() / 2), "checkpoint.safetensors");
  refused("run/checkpoint.safetensors", "", "checkpoint.safetensors");
  refused("run/checkpoint.safetensors", read("run/model.safetensors"), "is no checkpoint of saccade train");
  write("run/checkpoint.safetensors", checkpoint);
  refused("run/config.json", "{", "config.json is not what saccade train writes");
  refused("run/config.json", "[]", "config.json");
  std::string other = config;
  other.replace(other.find("\"d-model\": 16"), 13, "\"d-model\": 32");
  refused("run/config.json", other, "is of another run");
  write("run/config.json", config);
  EXPECT_EQ(run({"train", "--resume", "-o", "run"}).exit_code, 0);
}

TEST_F(TrainCommand, AFullDiskLeavesNoHalfOfACheckpoint) {
#ifdef _WIN32
  GTEST_SKIP() << "limits of the size of files are of Unix";
#endif
  const Outcome first = run_with_small_files(16, tiny_induction({"-o", "run", "--heatmaps-at", "none"}));
  EXPECT_EQ(first.exit_code, 2);
  EXPECT_THAT(first.err, HasSubstr("checkpoint.safetensors"));
  for (const auto& [name, contents] : files())
    EXPECT_THAT(name, AllOf(Not(HasSubstr("checkpoint")), Not(HasSubstr("tmp")))) << contents.size();

  ASSERT_EQ(run({"train", "--resume", "--checkpoint-every", "5", "-o", "run"}).exit_code, 0);
  const std::string before = read("run/checkpoint.safetensors");
  ASSERT_EQ(run(tiny_induction({"-o", "other"})).exit_code, 0);
  EXPECT_TRUE(read("other/checkpoint.safetensors") == before);
}

TEST_F(TrainCommand, ModelsThatAreNoneAreRefused) {
  ASSERT_EQ(run(tiny_induction({"-o", "run"})).exit_code, 0);
  write("damaged.safetensors", read("run/model.safetensors").substr(0, 3000));
  save_safetensors(path("other.safetensors"), {{{"W_query", TorchGenerator(1).rand({3, 3})}}, {}});
  save_safetensors(path("heads.safetensors"), {load_safetensors(path("run/model.safetensors")).tensors,
                                               {{"num_heads", "5"}, {"tokens", "bytes"}}});
  for (const std::string command : {"generate", "look"}) {
    const std::string text = command == "generate" ? "--prompt" : "--text";
    const auto with = [&](const std::string& model, const std::string& value) {
      return run({command, "--model", model, text, value});
    };
    expect_refused(with("nowhere", "1"), "nowhere");
    expect_refused(with("damaged.safetensors", "1"), "damaged.safetensors");
    expect_refused(with("other.safetensors", "1"), "its metadata has no tokens");
    expect_refused(with("heads.safetensors", "1"), "num_heads 5");
    expect_refused(with("run", "1 32"), "numbers from 0 to 31, not '32'");
    expect_refused(with("run", "one"), "not 'one'");
    expect_refused(with("run", " "), text + " has no token in it");
  }
  expect_refused(run({"generate", "--model", "run", "--prompt", "1", "--temperature", "-1"}), "temperature");
  expect_refused(run({"look", "--model", "run", "--text", "1", "-o", "heads.jpg"}), ".svg or .png");
}

}  // namespace
}  // namespace saccade::test
