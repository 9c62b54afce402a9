// The files of the page, compiled in from router/dashboard/page/ (cmake/EmbedFiles.cmake).
#pragma once

#include <span>
#include <string_view>

namespace router {

struct PageFile {
    std::string_view name;  // "style.css"
    std::string_view text;
};
[[nodiscard]] std::span<const PageFile> page_files();

}  // namespace router
