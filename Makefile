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

# The pictures of the README, of a recording that is made now.
pictures: all
	@LAGGARD=$(B)/laggard tools/make-pictures

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

# What a release is: all that is committed, the page's script among it, so that nobody needs npm.
VERSION = $(shell sed -n "s/.* version: '\([^']*\)', license:.*/\1/p" meson.build)
DIST = laggard-$(VERSION)
dist: $(B)/$(DIST).tar.xz
$(B)/$(DIST).tar.xz: FORCE
	@mkdir -p $(B)
	@git archive --prefix=$(DIST)/ HEAD | xz -T0 > $@.tmp && mv $@.tmp $@
	@echo $@

# The Debian package of that, made as a distribution makes it; T=check has lintian look at it.
deb: dist
	@tools/install-deps build deb
	@rm -rf $(B)/deb && mkdir -p $(B)/deb && tar -C $(B)/deb -xf $(B)/$(DIST).tar.xz
	@cd $(B)/deb/$(DIST) && dpkg-buildpackage -us -uc > ../build.log 2>&1 || { tail -30 ../build.log; exit 1; }
	@[ "$(T)" != check ] || lintian --fail-on error,warning --info --display-info $(B)/deb/*.changes
	@ls $(B)/deb/*.deb

clean:
	find $(B) -mindepth 1 -maxdepth 1 ! -name trixie -exec rm -rf {} +

.PHONY: all deps try test check asan fuzz bench web pictures matrix mutants cases install uninstall dist deb clean FORCE
