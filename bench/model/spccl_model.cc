// spccl-model: what collectives would take on many GPUs, dense and sparse, by a cost model. Nothing
// that it prints was measured. docs/model.md
//
// Exit codes: 0 fine, 1 wrong use, 2 what it tells could not be printed.
#include <cstdio>
#include <string>

#include "bench/model/fit.h"
#include "bench/model/options.h"
#include "bench/model/report.h"
#include "bench/support/output.h"

int main(int argc, char** argv) {
  using namespace spccl::bench::model;  // NOLINT(google-build-using-namespace): the whole program
  const ParsedOptions parsed = ParseOptions(argc, argv);
  if (!parsed.go_on) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return spccl::bench::EndOutput("spccl-model", parsed.exit_code);
  }
  const Options& options = parsed.options;
  std::string text;
  switch (options.print) {
    case Options::Print::kTable:
      text = TableText(options, MakeRows(options));
      break;
    case Options::Print::kPaper:
      text = PaperText(options);
      break;
    case Options::Print::kSources:
      text = SourcesText(options);
      break;
    case Options::Print::kFit:
      text = FitText(options, FitToPaper(options.system));
      break;
  }
  std::fputs(text.c_str(), stdout);
  return spccl::bench::EndOutput("spccl-model", 0);
}
