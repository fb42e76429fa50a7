# SPDX-License-Identifier: Apache-2.0
# `make help` lists what can be asked for.

PYTHON ?= .venv/bin/python
JOBS ?= 2

.DEFAULT_GOAL := build
.PHONY: help bootstrap build demo test test-gpu fuzz-programs fuzz-bytes chaos busy crash-points bench \
        format check thread-safety tidy race asan tsan surface types clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

bootstrap: ## install what is missing: Debian packages, .venv
	@tools/bootstrap

# Configures once; ninja does so again by itself when a build file changes.
build/%/build.ninja: | bootstrap
	@cmake --preset $* -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python

build: bootstrap build/release/build.ninja ## set up and build everything
	@ninja -C build/release -j $(JOBS)
	@ln -sfn ../../build/release/lib python/paddle/_lib
	@ln -sfn ../../build/release/bin/fleetrun .venv/bin/fleetrun
	@ln -sfn ../../build/release/bin/fleet_server .venv/bin/fleet_server

demo: build ## train two models, each in one process and in several, and compare
	@$(PYTHON) examples/python/demo.py

test: build ## set up, build, and pass all tests
	@ctest --test-dir build/release --output-on-failure -j $(JOBS)
	@$(PYTHON) tools/test_folders.py -j $(JOBS)

test-gpu: ## eager tests on a GPU: make test-gpu PYTHON=python3
	@tools/test-gpu $(PYTHON)

TIME ?= 10m
fuzz-programs: build ## random programs in all modes: make fuzz-programs TIME=1h FROM=1
	@$(PYTHON) tests/random_programs/fuzz.py --time $(TIME) --jobs $(JOBS) \
	  $(if $(FROM),--from $(FROM)) --report build/random_programs.tsv

chaos: build ## servers and workers are killed, stopped, cut off: make chaos TIME=10m SEED=1
	@$(PYTHON) tests/chaos/run.py --time $(TIME) $(if $(SEED),--seed $(SEED))

busy: build ## training beside 8 busy processes, async and sync: nobody is declared dead
	@for sync in 0 1; do $(PYTHON) tests/chaos/run.py --time 0s --kinds busy --events 1 \
	  --busy-seconds 300 --heartbeat-timeout 4 --sync $$sync || exit 1; done

crash-points: build ## processes end at every call of saves and logs
	@FLEET_LOG_LEVEL=ERROR build/release/bin/crash_points

fuzz-bytes: build/fuzz/build.ninja ## readers get bytes of any kind: make fuzz-bytes TIME=10m
	@ninja -C build/fuzz -j $(JOBS)
	@$(PYTHON) tests/fuzz_bytes/run.py --time $(TIME)

bench: build ## ours and the peers in one run, as ratios
	@$(PYTHON) benchmarks/run.py

PYRIGHT ?= pyright
types: build ## pyright on the examples: make types PYRIGHT="npx pyright"
	@$(PYTHON) python/make_stubs.py python/paddle build/release/lib build/release/stubs
	@$(PYRIGHT) -p tools/pyrightconfig.json

surface: build ## which names of the API are present and tested
	@$(PYTHON) tools/surface.py

format: ## format all sources
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 -i
	@.venv/bin/ruff check --quiet --fix .
	@.venv/bin/ruff format --quiet .

check: ## formatting, layers and the map, changing nothing
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 --dry-run -Werror
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --quiet --check .
	@python3 tools/check_layers.py
	@python3 tools/check_map.py

thread-safety: build/clang/build.ninja ## clang's thread-safety analysis of libfleet_core
	@ninja -C build/clang -j $(JOBS)

tidy: build/clang/build.ninja ## clang-tidy on what differs from the commit before
	@python3 tools/tidy.py -j $(JOBS)

# Cases that move tens of megabytes from thread to thread: some take a minute each
# under the sanitizer, and others pass through the same lines with less.
# `make tsan` runs them.
large := 64Megabytes CallsCutShort ASendOfMoreWaits ASendReturnsAtOnce \
         ASendThatWaits ThatSendToEachOther ThatSendMuch WhatWasSentArrives
empty :=
space := $(empty) $(empty)

# RocksDB is not built with the sanitizer, which does not see how its readers and
# writers agree.
tsan_options := suppressions=$(CURDIR)/tools/rocksdb.tsan

race: build/tsan/build.ninja ## the most threaded folders under ThreadSanitizer
	@ninja -C build/tsan -j $(JOBS) race_tests
	@TSAN_OPTIONS='$(tsan_options)' GTEST_FILTER='-$(subst $(space),:,$(large:%=*%*))' \
	  ctest --test-dir build/tsan --output-on-failure -j $(JOBS) -L race

asan: build/asan/build.ninja ## all tests under AddressSanitizer and UBSan
	@ninja -C build/asan -j $(JOBS)
	@tools/test-asan

tsan: build/tsan/build.ninja ## the folders without LibTorch under ThreadSanitizer
	@ninja -C build/tsan -j $(JOBS)
	@TSAN_OPTIONS='$(tsan_options)' ctest --test-dir build/tsan --output-on-failure

clean: ## remove what was built (.venv stays)
	rm -rf build python/paddle/_lib
