#include "deploy/launcher/address.h"

#include <array>
#include <cstdio>
#include <memory>

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

namespace deploy {
namespace {

struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using Certificate = std::unique_ptr<X509, Free>;

Certificate read_certificate(const std::string& path) {
    if (path.empty()) return nullptr;
    const std::unique_ptr<std::FILE, Free> file(std::fopen(path.c_str(), "re"));
    return Certificate(file ? PEM_read_X509(file.get(), nullptr, nullptr, nullptr) : nullptr);
}

bool vouches_for(X509* certificate, const std::string& host) {
    return X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
           X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1;
}

/// Its first name that is a name, not a pattern; empty when it has none.
std::string first_name(X509* certificate) {
    const std::unique_ptr<GENERAL_NAMES, Free> names(static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
    for (int i = 0; i < (names ? sk_GENERAL_NAME_num(names.get()) : 0); ++i) {
        const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
        if (name->type != GEN_DNS) continue;
        const std::string text(
            reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
            static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName)));
        if (!text.empty() &&
            text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") == std::string::npos) {
            return text;
        }
    }
    return "";
}

std::string bracketed(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

std::string name_of_this_machine() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::string certificate_name(const std::string& path) {
    const Certificate certificate = read_certificate(path);
    return certificate ? first_name(certificate.get()) : "";
}

ShownAddress shown_address(const Config& config, std::uint16_t port) {
    const bool is_any = config.host == "0.0.0.0" || config.host == "::";
    const std::string host = !is_any ? config.host : config.host == "::" ? "::1" : "127.0.0.1";
    const std::string end = ":" + std::to_string(port);
    const auto url_of = [&](const std::string& name) {
        return scheme_of(config) + bracketed(name) + end;
    };
    ShownAddress shown{.url = url_of(host)};
    if (const Certificate certificate = read_certificate(config.tls_cert)) {
        const std::string name = first_name(certificate.get());
        if (vouches_for(certificate.get(), host)) {
            if (is_any && !name.empty() && name != "localhost") shown.elsewhere = url_of(name);
        } else if (is_any && vouches_for(certificate.get(), "localhost")) {
            shown.url = url_of("localhost");
        } else if (!name.empty()) {
            shown.url = url_of(name);
            shown.resolve = name + end + ":" + bracketed(host);
        }
    } else if (is_any && !config.keys_file.empty()) {
        // Without keys the router answers for addresses and allowed_hosts alone (DNS rebinding).
        const std::string name = name_of_this_machine();
        if (!name.empty()) shown.elsewhere = url_of(name);
    }
    return shown;
}

}  // namespace deploy
