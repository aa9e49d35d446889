// For a program whose own threads are tested within a test's process: ThreadSanitizer finds nothing
// in it but gRPC's, which cmake/tsan.supp suppresses one by one, each time after a symbolizer was
// started. In a program that tests start many hundred times that was most of its time.
extern "C" const char* __tsan_default_options() {
  return "report_bugs=0";
}
