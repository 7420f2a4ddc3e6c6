// What hugging_face_test.py asks leeway about Hugging Face directories.
//
//   hugging_face_tool logits DIR IDS OUT    ids of one sequence a line -> float32 logits of every position, raw
//   hugging_face_tool copy DIR TO           reads a directory and writes it again
//   hugging_face_tool ids TOKENIZER TEXT    the ids of the text of a file, on one line

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "model/model_files.h"
#include "model/transformer/transformer.h"
#include "tokenizer/tokenizer.h"

namespace leeway {
namespace {

// Token by token over a cache, as an engine decodes.
absl::Status WriteLogits(const std::string& directory, const std::string& ids, const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const ModelDirectory model, ReadModelDirectory(directory));
  ParallelFor parallel(2);
  Transformer<float> transformer(model.shape, &parallel);
  transformer.SetParameters(model.parameters);
  std::ifstream lines(ids);
  std::ofstream out(path, std::ios::binary);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    KeyValueCache<float> cache(model.shape);
    std::vector<float> logits;
    for (int32_t id = 0; words >> id;) {
      const SequenceChunk<float> chunk{&cache, absl::MakeConstSpan(&id, 1), true};
      LEEWAY_RETURN_IF_ERROR(transformer.Decode(absl::MakeConstSpan(&chunk, 1), &logits));
      out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * 4));
    }
  }
  return out.flush() ? absl::OkStatus() : absl::InternalError(path + " could not be written");
}

absl::Status Copy(const std::string& from, const std::string& to) {
  LEEWAY_ASSIGN_OR_RETURN(const ModelDirectory model, ReadModelDirectory(from));
  return WriteModelDirectory(RealFileSystem(), to, model);
}

absl::Status PrintIds(const std::string& name, const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, NewTokenizer(name));
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, RealFileSystem()->ReadFile(path));
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(text));
  for (const int32_t id : ids) std::cout << id << ' ';
  std::cout << '\n';
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[0] == "logits") return WriteLogits(words[1], words[2], words[3]);
  if (words.size() == 3 && words[0] == "copy") return Copy(words[1], words[2]);
  if (words.size() == 3 && words[0] == "ids") return PrintIds(words[1], words[2]);
  return absl::InvalidArgumentError("expected: logits DIR IDS OUT, copy DIR TO, or ids TOKENIZER TEXT");
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  const absl::Status status = leeway::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
