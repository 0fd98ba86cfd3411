# SPDX-License-Identifier: Apache-2.0
# Front door to Meson: what is real lives in meson.build and tools/. Packages: tools/install-deps.
B = build
prefix ?= /usr/local

all: $(B)/build.ninja
	@ninja -C $(B)

$(B)/build.ninja:
	@tools/install-deps --check build
	meson setup $(B) --prefix $(prefix)

deps:
	@tools/install-deps build test

try: deps
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 scenarios/show.py

test check: deps
	@tools/run-tests $(T)

asan: deps
	@tools/run-tests asan

fuzz: deps
	@tools/run-fuzz $(T)

bench: deps
	@tools/install-deps bench
	@$(MAKE) --no-print-directory all
	@bench/run $(T)

# The page's script and style, which are committed: only who changes web/src needs npm.
web:
	cd web && npm ci --no-audit --no-fund && npm run -s check && npm run -s build

matrix: all
	@LAGGARD=$(B)/laggard tests/matrix/run --write doc/calibration.md $(T) # docs: elsewhere, it is made here

mutants: deps
	@tools/mutants $(T)

cases: deps
	@tools/run-tests cases

install: all
	meson configure $(B) -Dprefix=$(prefix)
	DESTDIR=$(DESTDIR) meson install -C $(B) --quiet

# What the last make install put there, by its own list.
uninstall:
	@test -e $(B)/meson-logs/install-log.txt || { echo "nothing was installed from $(B)"; exit 1; }
	@grep -v '^#' $(B)/meson-logs/install-log.txt | xargs -d '\n' rm -df --

clean:
	find $(B) -mindepth 1 -maxdepth 1 ! -name trixie -exec rm -rf {} +

.PHONY: all deps try test check asan fuzz bench web matrix mutants cases install uninstall clean
