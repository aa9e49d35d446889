// Checks of the files by which daemons prove to each other who they are.
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ctl/certificates.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr int64_t kSecondsADay = 24 * 3600, kSoonDays = 30;

std::string DayText(int64_t unix_seconds) {
  return absl::FormatTime("%Y-%m-%d", absl::FromUnixSeconds(unix_seconds), absl::UTCTimeZone());
}

Check Blank(const std::string& name, const std::string& path) {
  return {.name = name,
          .verdict = Verdict::kFailed,
          .found = path,
          .why = "without it peers refuse this daemon, and it does not start anew",
          .remedy = ""};
}

// The file's text; empty, and the check says why, where it cannot be had.
std::string TextOf(const std::string& path, Check* check) {
  if (path.empty()) {
    check->found = "not set, where others of peers.tls_* are";
    check->remedy = "set all three of peers.tls_*, or none";
    return "";
  }
  absl::StatusOr<std::string> text = ReadFile(path, kMostPemBytes);
  if (text.ok()) return *std::move(text);
  check->found = std::string(text.status().message());
  if (absl::IsPermissionDenied(text.status())) {
    check->verdict = Verdict::kSkipped;
    check->found += " (run doctor as root or as the daemon's user)";
  } else {
    check->remedy = "copy the file there, or mend peers.tls_* in the configuration";
  }
  return "";
}

void JudgeValidity(const CertificateFacts& facts, int64_t now, Check* check) {
  const Validity& good = facts.validity;
  absl::StrAppend(&check->found, " of ", Printable(facts.subject));
  if (good.from > now) {
    absl::StrAppend(&check->found, " is good from ", DayText(good.from), " on only");
    check->remedy = "set this machine's clock, or issue it anew";
    return;
  }
  if (good.to <= now) {
    absl::StrAppend(&check->found, " ended on ", DayText(good.to));
  } else {
    const int64_t days = (good.to - now) / kSecondsADay;
    absl::StrAppend(&check->found, " ends in ", days, " days, on ", DayText(good.to));
    check->verdict = days < kSoonDays ? Verdict::kWarning : Verdict::kOk;
  }
  if (check->verdict != Verdict::kOk) {
    check->remedy =
        "renew it (spcclctl tls init, after the old file is moved away), restart spccld";
  }
}

// The one of the text that ends first decides.
Check CheckEnd(const std::string& name, const std::string& path, int64_t now, std::string* text) {
  Check check = Blank(name, path);
  *text = TextOf(path, &check);
  if (text->empty()) return check;
  const absl::StatusOr<std::vector<CertificateFacts>> all = InspectCertificates(*text);
  if (!all.ok()) {
    absl::StrAppend(&check.found, ": ", all.status().message());
    check.remedy = "put the PEM file of the certificate there";
    return check;
  }
  const CertificateFacts* first = &all->front();
  for (const CertificateFacts& facts : *all) {
    if (facts.validity.to < first->validity.to) first = &facts;
  }
  JudgeValidity(*first, now, &check);
  return check;
}

Check CheckKey(const std::string& path, const std::string& certificate) {
  Check check = Blank("certificate's key", path);
  check.why = "whoever reads it may pass for this node; and it must be of the certificate";
  const std::string key = TextOf(path, &check);
  if (key.empty()) return check;
  const PathFacts facts = FactsOf(path);
  absl::StrAppend(&check.found, ", owner uid ", UserText(facts.uid), ", mode ",
                  ModeText(facts.mode));
  if ((facts.mode & (S_IROTH | S_IWOTH)) != 0) {
    check.found += ", all may read or write it";
    check.remedy = absl::StrCat("chmod 0600 ", path, "; renew it: others may have it");
  } else if (!certificate.empty() && !IsOfKey(certificate, key)) {
    check.found += ", is not of the certificate";
    check.remedy = "copy the certificate and the key of one `spcclctl tls init` there";
  } else if ((facts.mode & (S_IRGRP | S_IWGRP)) != 0) {
    check.verdict = Verdict::kWarning;
    check.found += ", its group may read or write it";
    check.remedy = absl::StrCat("chmod 0600 ", path);
  } else {
    check.verdict = Verdict::kOk;
    check.found += certificate.empty() ? "" : ", is of the certificate";
  }
  return check;
}

}  // namespace

std::vector<Check> CheckCertificates(const DaemonConfig& config, int64_t now) {
  const std::string authority = config.Get("peers.tls_ca");
  const std::string certificate = config.Get("peers.tls_cert"), key = config.Get("peers.tls_key");
  if (authority.empty() && certificate.empty() && key.empty()) {
    Check none = Blank("certificate", "TLS is not configured");
    none.verdict = Verdict::kSkipped;
    return {none};
  }
  std::string authority_text, certificate_text;
  std::vector<Check> checks = {CheckEnd("authority", authority, now, &authority_text),
                               CheckEnd("certificate", certificate, now, &certificate_text)};
  Check& own = checks.back();
  if (!authority_text.empty() && !certificate_text.empty() &&
      !IsSignedBy(certificate_text, authority_text)) {
    own.verdict = Verdict::kFailed;
    own.found += ", and the authority has not signed it";
    own.remedy = "all nodes need the authority's ca.pem that has signed their certificates";
  }
  checks.push_back(CheckKey(key, certificate_text));
  return checks;
}

}  // namespace spccl::ctl
