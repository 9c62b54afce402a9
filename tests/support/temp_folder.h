// A folder for the files of one test, removed with all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace test_support {

class TempFolder {
public:
    TempFolder() {
        std::string path = (std::filesystem::temp_directory_path() / "quadriga.XXXXXX").string();
        if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp");
        path_ = path;
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

    /// Replaces the file in one step, as an editor does. Returns its path.
    std::string write(const std::string& name, const std::string& text) const {
        const std::string fresh = path(name + ".new");
        std::ofstream(fresh, std::ios::binary) << text;
        std::filesystem::rename(fresh, path(name));
        return path(name);
    }

private:
    std::string path_;
};

}  // namespace test_support
