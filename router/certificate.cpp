#include "router/certificate.h"

namespace router {
namespace {

std::string days_text(int days) {
    return std::to_string(days) + (days == 1 ? " day" : " days");
}

}  // namespace

std::string days_left_text(int days) {
    if (days < 0) return "WARNING: the certificate has ended, clients refuse it; replace it";
    const std::string left = days_text(days) + " left";
    return days < kCertificateDaysShort ? "WARNING: only " + left + "; replace the certificate"
                                        : left;
}

std::optional<std::string> certificate_warning(int days) {
    if (days >= kCertificateDaysShort) return std::nullopt;
    const std::string what = days < 0 ? "The TLS certificate has ended, clients refuse it"
                                      : "The TLS certificate ends in " + days_text(days);
    return what + ": put a new one in its place and reload (SIGHUP).";
}

std::optional<int> CertificateWatch::look(const proto::TlsContext& context, Clock::time_point now,
                                          std::chrono::system_clock::time_point today) {
    if (due_ && now < *due_) return std::nullopt;
    due_ = now + kEvery;
    const int days = context.days_left(today);
    if (days >= kCertificateDaysShort) return std::nullopt;
    return days;
}

}  // namespace router
