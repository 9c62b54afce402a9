# Writes OUTPUT, a source file that holds the files given behind `--` as text (router/dashboard/page_files.h).
set(rows "")
set(seen FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
    set(argument "${CMAKE_ARGV${i}}")
    if(seen)
        get_filename_component(name "${argument}" NAME)
        file(READ "${argument}" text)
        string(FIND "${text}" ")embedded\"" end)
        if(NOT end EQUAL -1)
            message(FATAL_ERROR "${argument} contains the end mark of the text it becomes")
        endif()
        string(APPEND rows "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
    elseif(argument STREQUAL "--")
        set(seen TRUE)
    endif()
endforeach()
file(WRITE "${OUTPUT}"
"// Made by EmbedFiles.cmake.
#include \"router/dashboard/page_files.h\"

namespace router {
namespace {

constexpr PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> page_files() {
    return kFiles;
}

}  // namespace router
")
