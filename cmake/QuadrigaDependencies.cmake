# Every third-party library, found once. README.md says in a line each why it is here.
find_program(QUADRIGA_CCACHE ccache)
if(QUADRIGA_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${QUADRIGA_CCACHE}")
endif()

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)  # Asio and Beast, headers only
find_package(nlohmann_json 3.11 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(tl-expected REQUIRED)
find_package(GTest REQUIRED)

find_package(PkgConfig REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

# Boost headers as a system library, with the options every user of Asio shares.
add_library(quadriga_asio INTERFACE)
target_link_libraries(quadriga_asio INTERFACE Threads::Threads)
target_include_directories(quadriga_asio SYSTEM INTERFACE ${Boost_INCLUDE_DIRS})
target_compile_definitions(quadriga_asio INTERFACE BOOST_ASIO_NO_DEPRECATED)
