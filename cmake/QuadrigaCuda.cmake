# quadriga_cubins: device code without CMake's CUDA language.
#
# Each .cu is compiled device-only to an sm_90a cubin by a custom command, checked for spills
# (CompileCubin.cmake), and put into the program by .incbin in a generated assembly file beside a
# generated table (kernels/cuda/cubins.h). Host code stays with the C++ compiler.
find_program(QUADRIGA_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
if(NOT QUADRIGA_NVCC)
    message(FATAL_ERROR "QUADRIGA_CUDA is ON, but nvcc was found neither on the PATH nor under CUDA_HOME "
                        "or /usr/local/cuda: install the CUDA 13 toolkit, set QUADRIGA_NVCC, or use the "
                        "preset cpu, which needs none.")
endif()
execute_process(COMMAND "${QUADRIGA_NVCC}" --version OUTPUT_VARIABLE nvcc_version RESULT_VARIABLE nvcc_result)
if(NOT nvcc_result EQUAL 0 OR NOT nvcc_version MATCHES "release ([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "${QUADRIGA_NVCC} --version does not tell a release; is it NVIDIA's compiler?")
endif()
# As the driver counts: 13.0 is 13000.
math(EXPR QUADRIGA_CUDA_VERSION "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
message(STATUS "CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}: ${QUADRIGA_NVCC}")
enable_language(ASM)
option(QUADRIGA_CUDA_SM70 "Put PTX for sm_70, made by clang (tests/volta/ptx), into the programs beside the cubins" OFF)

# quadriga_sm_70_ptx(ASSEMBLY DECLARATIONS ROWS FILES): what PTX for sm_70 adds to the generated sources; nothing when it
# is not asked for. Which files have it is kernel_names.cpp's list.
function(quadriga_sm_70_ptx out_assembly out_declarations out_rows out_files)
    set(assembly "")
    set(declarations "")
    set(rows "")
    set(files "")
    if(QUADRIGA_CUDA_SM70)
        find_program(QUADRIGA_CLANG_CUDA clang++-22)
        find_package(Python3 REQUIRED COMPONENTS Interpreter)
        if(NOT QUADRIGA_CLANG_CUDA)
            message(FATAL_ERROR "QUADRIGA_CUDA_SM70 is ON, but clang++-22 was not found: deploy/install-packages --volta")
        endif()
        set(names "${CMAKE_CURRENT_SOURCE_DIR}/kernel_names.cpp")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${names}")
        file(STRINGS "${names}" listed REGEX "^    {\"[a-z0-9_]+\", (true|false), true},$")
        foreach(line IN LISTS listed)
            string(REGEX REPLACE "^    {\"([a-z0-9_]+)\".*" "\\1" stem "${line}")
            set(ptx "${CMAKE_CURRENT_BINARY_DIR}/sm_70/${stem}.ptx")
            add_custom_command(OUTPUT "${ptx}"
                COMMAND "${CMAKE_COMMAND}" -E env "QUADRIGA_NVCC=${QUADRIGA_NVCC}" "${Python3_EXECUTABLE}"
                        "${CMAKE_SOURCE_DIR}/tests/volta/ptx" --no-install --only "${stem}" --out "${CMAKE_CURRENT_BINARY_DIR}/sm_70"
                DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cu" "${CMAKE_SOURCE_DIR}/tests/volta/ptx"
                DEPFILE "${ptx}.d"
                COMMENT "Compiling device code ${stem}.cu for sm_70" VERBATIM)
            list(APPEND files "${ptx}")
            string(APPEND assembly ".balign 64\n.global quadriga_sm_70_${stem}\nquadriga_sm_70_${stem}:\n"
                                   ".incbin \"${ptx}\"\n.byte 0\n.global quadriga_sm_70_${stem}_end\nquadriga_sm_70_${stem}_end:\n")
            string(APPEND declarations "extern const std::byte quadriga_sm_70_${stem}[];\n"
                                       "extern const std::byte quadriga_sm_70_${stem}_end[];\n")
            string(APPEND rows "        {\"${stem}\", {quadriga_sm_70_${stem}, quadriga_sm_70_${stem}_end}},\n")
        endforeach()
    endif()
    set(${out_assembly} "${assembly}" PARENT_SCOPE)
    set(${out_declarations} "${declarations}" PARENT_SCOPE)
    set(${out_rows} "${rows}" PARENT_SCOPE)
    set(${out_files} "${files}" PARENT_SCOPE)
endfunction()

# quadriga_cubins(OUT files.cu...): sets OUT to the generated sources that hold the cubins.
function(quadriga_cubins out)
    set(sources ${ARGN})
    set(assembly "# Made by QuadrigaCuda.cmake.\n.section .rodata\n")
    set(declarations "")
    set(rows "")
    set(cubins "")
    foreach(source IN LISTS sources)
        get_filename_component(stem "${source}" NAME_WE)
        set(cubin "${CMAKE_CURRENT_BINARY_DIR}/${stem}.cubin")
        # The long form: -arch=sm_90a would also run a plain sm_90 pass, which knows no wgmma.
        # No contraction: arithmetic is what is written, as on the CPU.
        add_custom_command(OUTPUT "${cubin}"
            COMMAND "${CMAKE_COMMAND}" "-DLOG=${cubin}.ptxas.txt" -P "${CMAKE_SOURCE_DIR}/cmake/CompileCubin.cmake" --
                    "${QUADRIGA_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 --expt-relaxed-constexpr -cubin
                    -gencode arch=compute_90a,code=sm_90a -Xptxas -v -fmad=false -lineinfo
                    -Werror all-warnings -Xcompiler -Wall,-Wextra "-I${CMAKE_SOURCE_DIR}"
                    -MD -MF "${cubin}.d" -MT "${cubin}" -o "${cubin}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
            DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" "${CMAKE_SOURCE_DIR}/cmake/CompileCubin.cmake"
            DEPFILE "${cubin}.d"
            COMMENT "Compiling device code ${source}" VERBATIM)
        list(APPEND cubins "${cubin}")
        string(APPEND assembly ".balign 64\n.global quadriga_cubin_${stem}\nquadriga_cubin_${stem}:\n"
                               ".incbin \"${cubin}\"\n.global quadriga_cubin_${stem}_end\nquadriga_cubin_${stem}_end:\n")
        string(APPEND declarations "extern const std::byte quadriga_cubin_${stem}[];\n"
                                   "extern const std::byte quadriga_cubin_${stem}_end[];\n")
        string(APPEND rows "    {\"${stem}\", {quadriga_cubin_${stem}, quadriga_cubin_${stem}_end}},\n")
    endforeach()
    quadriga_sm_70_ptx(ptx_assembly ptx_declarations ptx_rows ptx_files)
    string(APPEND assembly "${ptx_assembly}.section .note.GNU-stack,\"\",@progbits\n")
    string(APPEND declarations "${ptx_declarations}")
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/cubins.S" CONTENT "${assembly}" @ONLY)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/cubins.cpp" @ONLY CONTENT
"// Made by QuadrigaCuda.cmake.
#include \"kernels/cuda/cubins.h\"

#include <vector>

extern \"C\" {
${declarations}}

namespace kernels::cuda {
namespace {

const Cubin kCubins[] = {
${rows}};

}  // namespace

std::span<const Cubin> cubins() {
    return kCubins;
}

std::span<const Cubin> sm_70_ptx() {
    static const std::vector<Cubin> all = {
${ptx_rows}    };
    return all;
}

}  // namespace kernels::cuda
")
    set_source_files_properties("${CMAKE_CURRENT_BINARY_DIR}/cubins.S" PROPERTIES OBJECT_DEPENDS "${cubins};${ptx_files}")
    set(${out} "${CMAKE_CURRENT_BINARY_DIR}/cubins.S" "${CMAKE_CURRENT_BINARY_DIR}/cubins.cpp" PARENT_SCOPE)
endfunction()

# quadriga_sm_90_check(TARGET files.cu...): a target that compiles sources of sm_70 for sm_90a too, and keeps nothing of it.
function(quadriga_sm_90_check target)
    set(cubins "")
    foreach(source IN LISTS ARGN)
        set(cubin "${CMAKE_CURRENT_BINARY_DIR}/sm_90_check/${source}.cubin")
        add_custom_command(OUTPUT "${cubin}"
            COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_CURRENT_BINARY_DIR}/sm_90_check"
            COMMAND "${QUADRIGA_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 --expt-relaxed-constexpr -cubin
                    -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -Xcompiler -Wall,-Wextra
                    "-I${CMAKE_SOURCE_DIR}" -MD -MF "${cubin}.d" -MT "${cubin}" -o "${cubin}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
            DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
            DEPFILE "${cubin}.d"
            COMMENT "Compiling device code ${source} for sm_90a too" VERBATIM)
        list(APPEND cubins "${cubin}")
    endforeach()
    add_custom_target(${target} DEPENDS ${cubins})
endfunction()

# quadriga_carry(TARGETS...): a target cuda-carry that puts the programs, stripped, and the shared
# libraries a bare machine may lack into <build>/carry. Where nothing else needs it the C++ library
# is linked statically; the programs look for the rest beside themselves.
function(quadriga_carry)
    set(folder "${CMAKE_BINARY_DIR}/carry")
    set(commands COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}")
    foreach(target IN LISTS ARGN)
        # The three that serve use libraries which bring the C++ library along.
        if(NOT target MATCHES "^quadriga(-router|-replica)?$")
            target_link_options(${target} PRIVATE -static-libstdc++)
        endif()
        set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN")
        list(APPEND commands COMMAND "${CMAKE_STRIP}" -o "${folder}/${target}" "$<TARGET_FILE:${target}>")
    endforeach()
    foreach(library libhwy.so.1 libutf8proc.so.2 libspdlog.so.1.10 libfmt.so.9 libprometheus-cpp-core.so.1.0
            libtomlplusplus.so.3
            libcrypto.so.3 libssl.so.3 libstdc++.so.6)
        find_file(QUADRIGA_CARRY_${library} ${library} PATHS "${hwy_LIBDIR}" "${utf8proc_LIBDIR}" NO_CACHE)
        if(QUADRIGA_CARRY_${library})
            list(APPEND commands COMMAND "${CMAKE_COMMAND}" -E copy "${QUADRIGA_CARRY_${library}}" "${folder}/${library}")
        endif()
    endforeach()
    add_custom_target(cuda-carry ${commands} DEPENDS ${ARGN} VERBATIM)
endfunction()
