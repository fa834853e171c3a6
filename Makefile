# SPDX-License-Identifier: Apache-2.0
# Carrel. `make help` lists the targets.
VERSION    := 0.1.0
PREFIX     ?= /usr/local
DESTDIR    ?=
ifeq ($(origin CC),default)
CC         := gcc
endif
BUILD      := build
LIBEXECDIR := $(PREFIX)/libexec/carrel
Q          := $(if $(V),,@)

# --- sources, by layer -------------------------------------------------------------------------
BASE    := $(wildcard src/base/*.c)
SYS     := $(wildcard src/sys/*.c)
POLICY  := $(wildcard src/policy/*.c)
SANDBOX := $(wildcard src/sandbox/*.c)
JSON    := $(wildcard src/json/*.c)
AUDIT   := $(wildcard src/audit/*.c)
READING := $(filter-out %/writer.c %/record.c,$(AUDIT))
# carrel-sink has the key that signs heads; carrel-export sends records elsewhere, and has no key.
SINK    := $(wildcard src/sink/*.c) $(READING) src/audit/record.c
EXPORT  := $(wildcard src/export/*.c) $(READING)
STORE   := $(wildcard src/store/*.c)
HTTP    := $(wildcard src/http/*.c)
# What sees a workspace's files: joins the sandbox, has no HTTP and reads no JSON.
FILES   := $(wildcard src/files/*.c)
# What works on a plan: a short-lived process for each job, with no more than that job needs.
PLAN    := $(wildcard src/plan/*.c) src/files/glob.c
# carrel starts commands and is kept small; carrel-full has the verbs and options that need JSON.
CLI     := $(addprefix src/cli/,main.c run.c options.c common.c) src/policy/units.c
FULL    := $(addprefix src/cli/,full.c run.c options.c common.c doctor.c plan.c) $(addprefix src/client/,plan_state.c plan_tool.c) $(JSON)
LIB     := $(BASE) $(SYS) $(POLICY) $(SANDBOX)
SMALL   := $(filter-out %/events.c %/pack.c %/state_dir.c,$(BASE))
LEAN    := $(SMALL) $(filter-out %/landlock.c %/calls.c,$(SYS)) $(filter-out %/explain.c %/doctor.c src/sandbox/session%,$(SANDBOX)) $(CLI)
INIT    := $(wildcard src/init/*.c) src/sandbox/wire.c $(SMALL) $(addprefix src/sys/,message.c mount.c path.c)
# The daemon: carrel-serve is the broker and has neither HTTP nor JSON; carrel-front has no privileges.
SERVE   := $(wildcard src/broker/*.c) $(AUDIT)
FRONT   := $(wildcard src/front/*.c) $(wildcard src/api/*.c) $(HTTP) $(STORE) $(JSON) \
  src/broker/protocol.c src/broker/settings.c src/files/protocol.c $(READING)
CLIENT  := $(wildcard src/client/*.c) src/cli/common.c src/json/encode.c src/files/protocol.c src/broker/settings.c $(READING)
PROBES  := $(patsubst tests/escape/probes/%.c,$(BUILD)/probes/%,$(wildcard tests/escape/probes/*.c))
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))
FUZZ    := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c)) $(BUILD)/fuzz/planted

# --- flags ---------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wformat=2 -Wshadow -Wstrict-prototypes -Wold-style-definition \
  -Wmissing-prototypes -Wmissing-declarations -Wundef -Wvla -Walloca -Wpointer-arith -Wcast-qual \
  -Wwrite-strings -Wswitch-enum -Wconversion -Wimplicit-fallthrough -Wnull-dereference -Wdate-time \
  -Wframe-larger-than=65536
WARN_gcc := -Wformat-signedness -Wlogical-op -Wduplicated-cond -Wduplicated-branches \
  -Wuse-after-free=3 -Wdangling-pointer=2
WARN_clang := -Wcomma -Wassign-enum -Wconditional-uninitialized -Wunreachable-code
FAMILY := $(if $(findstring clang,$(CC)),clang,gcc)
HARDEN := -ffile-prefix-map=$(CURDIR)=. -fno-common -fstack-protector-strong -fstack-clash-protection -ftrivial-auto-var-init=pattern
ifeq ($(shell uname -m),x86_64)
HARDEN += -fcf-protection
endif
WERROR := $(if $(CI),-Werror)
CPPFLAGS_ALL := -D_GNU_SOURCE -DCARREL_VERSION='"$(VERSION)"' \
  -DCARREL_INIT_PATH='"$(LIBEXECDIR)/carrel-init"' -iquote src -Iinclude -include src/base/poison.h
CFLAGS  ?= -O2 -g
FORTIFY := -D_FORTIFY_SOURCE=3
CFLAGS_ALL := -std=gnu17 $(CFLAGS) $(WARN) $(WARN_$(FAMILY)) $(WERROR) $(HARDEN) -MMD -MP
# The command and pid 1 are static: a loader would take longer than making a sandbox. With musl, where
# there is one, they also start without the dozens of CPUID instructions of glibc's start-up, each of
# which is a trip to the hypervisor in a virtual machine (0.4 ms in all, measured).
LINK_PIE    := -pie -Wl,-z,relro,-z,now,-z,noexecstack
LINK_STATIC := -static-pie -Wl,-z,relro,-z,now,-z,noexecstack
MUSL := $(shell command -v musl-gcc)
ifneq ($(MUSL),)
LEAN_CC    := $(MUSL)
LEAN_FLAGS := -fPIE -isystem $(BUILD)/musl-include
# Not static-pie: Debian's musl-gcc would link that against a loader.
LEAN_LINK  := -static -Wl,-z,relro,-z,now,-z,noexecstack
# Its headers declare lengths as unsigned; the weak build checks the same sources with glibc's.
LEAN_CFLAGS = $(filter-out -Wconversion -fcf-protection $(WARN_$(FAMILY)),$(CFLAGS_ALL))
LEAN_INCLUDE := $(BUILD)/musl-include/linux
else
LEAN_CC     = $(CC)
LEAN_FLAGS := -fPIE $(FORTIFY)
LEAN_LINK   = $(LINK_STATIC)
LEAN_CFLAGS = $(CFLAGS_ALL)
endif
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

.PHONY: all run test test-long test-build bench lint fmt fuzz fuzz-coverage install clean help deps compile objects
# On all processors, unless somebody has said on how many.
ALL_CPUS = --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
all: deps
	@$(MAKE) $(ALL_CPUS) compile
PROGRAMS := carrel carrel-full carrel-init carrel-serve carrel-front carrel-files carrel-client carrel-plan carrel-sink carrel-export
compile: $(addprefix $(BUILD)/,$(PROGRAMS)) $(BUILD)/libcarrel.a $(BUILD)/example
# Each source once, for what the compiler says of it.
objects: $(patsubst %.c,$(BUILD)/obj/%.o,$(shell find src -name '*.c'))

# --- one rule per flavour: plain, weak (controls can be left out; tests only), asan -----------------
define flavour
$(1)/obj/%.o: %.c $(5)
	@mkdir -p $$(@D)
	@echo "  CC $$@"
	$$(Q)$(2) $$(CPPFLAGS_ALL) $(3) $(4) -c $$< -o $$@
endef
$(eval $(call flavour,$(BUILD),$$(CC),$$(CFLAGS_ALL),$(FORTIFY) -fPIE,))
$(eval $(call flavour,$(BUILD)/lean,$$(LEAN_CC),$$(LEAN_CFLAGS),$(LEAN_FLAGS),$(BUILD)/.lean | $(LEAN_INCLUDE)))
$(eval $(call flavour,$(BUILD)/weak,$$(CC),$$(CFLAGS_ALL),$(FORTIFY) -fPIE -DCARREL_WEAK,))
$(eval $(call flavour,$(BUILD)/asan,$$(CC),$$(CFLAGS_ALL),$(SANITIZE),))

# The place of carrel-init is compiled in: another PREFIX, another object. And objects of two C libraries do not link.
$(BUILD)/.prefix: SAYS = $(PREFIX)
$(BUILD)/.lean: SAYS = $(LEAN_CC)
$(BUILD)/.prefix $(BUILD)/.lean: FORCE
	@mkdir -p $(@D)
	@echo '$(SAYS)' | cmp -s - $@ || echo '$(SAYS)' >$@
FORCE:
$(foreach at,$(BUILD) $(BUILD)/lean $(BUILD)/weak $(BUILD)/asan,$(at)/obj/src/sandbox/start.o): $(BUILD)/.prefix
# So is the description of the HTTP interface.
$(BUILD)/obj/src/api/host.o $(BUILD)/asan/obj/src/api/host.o: docs/openapi.json

# musl brings no kernel headers; these are the system's.
$(BUILD)/musl-include/linux:
	@mkdir -p $(@D)
	@for dir in linux asm asm-generic; do \
	  for at in /usr/include/$$dir /usr/include/*-linux-gnu/$$dir; do \
	    [ ! -d $$at ] || ln -sfn $$at $(@D)/$$dir; done; done

$(BUILD)/libcarrel.a: $(LIB:%.c=$(BUILD)/obj/%.o)
	rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/carrel: $(LEAN:%.c=$(BUILD)/lean/obj/%.o)
	$(LEAN_CC) $(LEAN_LINK) $^ -o $@
$(BUILD)/carrel-init: $(INIT:%.c=$(BUILD)/lean/obj/%.o)
	$(LEAN_CC) $(LEAN_LINK) $^ -o $@ && strip $@
$(BUILD)/carrel-full: $(FULL:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_STATIC) $^ -ljansson -o $@
$(BUILD)/carrel-serve: $(SERVE:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -lcrypto -o $@
$(BUILD)/carrel-front: $(FRONT:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -ljansson -lsqlite3 -lcrypto -o $@
$(BUILD)/carrel-files: $(FILES:%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/src/sys/calls.o $(BASE:%.c=$(BUILD)/obj/%.o)
	$(CC) $(LINK_PIE) $^ -larchive -lz -lcrypto -o $@
$(BUILD)/carrel-client: $(CLIENT:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -ljansson -lcurl -larchive -lcrypto -o $@
$(BUILD)/carrel-plan: $(PLAN:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -ljansson -lcrypto -o $@
$(BUILD)/carrel-sink: $(SINK:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -lcrypto -o $@
$(BUILD)/carrel-export: $(EXPORT:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	$(CC) $(LINK_PIE) $^ -ljansson -lcurl -lz -lcrypto -o $@
$(BUILD)/asan/carrel-sink: $(sort $(SINK:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o))
	$(CC) $(SANITIZE) $^ -ljansson -lcrypto -o $@
$(BUILD)/asan/carrel-export: $(sort $(EXPORT:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o))
	$(CC) $(SANITIZE) $^ -ljansson -lcurl -lz -lcrypto -o $@
$(BUILD)/asan/carrel-serve: $(SERVE:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o)
	$(CC) $(SANITIZE) $^ -ljansson -lcrypto -o $@
$(BUILD)/asan/carrel-front: $(sort $(FRONT:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o))
	$(CC) $(SANITIZE) $^ -ljansson -lsqlite3 -lcrypto -o $@
$(BUILD)/asan/carrel-files: $(FILES:%.c=$(BUILD)/asan/obj/%.o) $(BUILD)/asan/obj/src/sys/calls.o $(BASE:%.c=$(BUILD)/asan/obj/%.o)
	$(CC) $(SANITIZE) $^ -larchive -lz -lcrypto -o $@
$(BUILD)/asan/carrel-plan: $(PLAN:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o)
	$(CC) $(SANITIZE) $^ -ljansson -lcrypto -o $@
$(BUILD)/weak/carrel: $(LEAN:%.c=$(BUILD)/weak/obj/%.o)
	$(CC) $(LINK_STATIC) $^ -o $@
$(BUILD)/weak/carrel-init: $(INIT:%.c=$(BUILD)/weak/obj/%.o)
	$(CC) $(LINK_STATIC) $^ -o $@
$(BUILD)/weak/carrel-full: $(FULL:%.c=$(BUILD)/weak/obj/%.o) $(LIB:%.c=$(BUILD)/weak/obj/%.o)
	$(CC) $(LINK_STATIC) $^ -ljansson -o $@
$(BUILD)/asan/carrel: $(LEAN:%.c=$(BUILD)/asan/obj/%.o)
	$(CC) $(SANITIZE) $^ -o $@
$(BUILD)/asan/carrel-full: $(FULL:%.c=$(BUILD)/asan/obj/%.o) $(LIB:%.c=$(BUILD)/asan/obj/%.o)
	$(CC) $(SANITIZE) $^ -ljansson -o $@
# Pid 1 runs in a root without libraries: it stays static and plain.
$(BUILD)/asan/carrel-init: $(BUILD)/carrel-init
	@mkdir -p $(@D) && cp $< $@
# Some verbs of the sanitized command are this one's.
$(BUILD)/asan/carrel-client: $(BUILD)/carrel-client
	@mkdir -p $(@D) && cp $< $@
$(BUILD)/example: examples/run.c $(BUILD)/libcarrel.a
	$(CC) $(CFLAGS) -std=gnu17 -Iinclude $< $(BUILD)/libcarrel.a -ljansson -o $@

# --- tests -----------------------------------------------------------------------------------------
$(BUILD)/probes/%: tests/escape/probes/%.c tests/escape/probes/probe.h
	@mkdir -p $(@D)
	$(CC) -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -static $< -o $@
$(BUILD)/tests/newroot: tests/tools/newroot.c $(BUILD)/libcarrel.a
	@mkdir -p $(@D)
	$(CC) -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Iinclude $< $(BUILD)/libcarrel.a -ljansson -o $@
# What unit tests and fuzz targets link: all but the verbs of the command line.
TESTED := $(LIB) $(JSON) $(AUDIT) $(STORE) $(HTTP) src/cli/options.c src/broker/protocol.c \
  src/broker/oldlinks.c src/broker/settings.c src/front/asleep.c src/front/backlog.c src/front/job.c src/front/record_text.c src/front/spool.c src/front/util.c src/client/args.c src/client/text.c src/client/table.c \
  src/client/where.c src/client/place.c src/client/packages.c src/client/unpack.c src/api/env_script.c src/client/plan_tree.c src/cli/common.c \
  $(addprefix src/client/,template_file.c template_lock.c template_remedy.c) \
  $(filter-out %/main.c %/serve.c %/join.c %/asleep.c,$(FILES)) $(filter-out %/main.c src/files/%,$(PLAN)) \
  $(addprefix src/export/,batch.c bulk.c ecs.c lines.c target.c) src/sink/keep.c
TESTED_LIBS := -ljansson -lsqlite3 -lcrypto -larchive -lz
DEPS = -MMD -MP -MF $@.d -MT $@
# From an archive, each takes only what it needs: a twelfth of the room, and tests/run copies them all.
$(BUILD)/asan/obj/libtested.a: $(TESTED:%.c=$(BUILD)/asan/obj/%.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/fuzz/obj/libtested.a: $(TESTED:%.c=$(BUILD)/fuzz/obj/%.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/asan/obj/libtested.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) $(CPPFLAGS_ALL) -std=gnu17 -O1 -g -Wall -Wextra $(WERROR) $(SANITIZE) $(DEPS) $< \
	  $(BUILD)/asan/obj/libtested.a $(TESTED_LIBS) -o $@
FUZZER := clang $(CPPFLAGS_ALL) -std=gnu17 -O1 -g $(SANITIZE)
$(BUILD)/fuzz/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(FUZZER) -fsanitize=fuzzer-no-link $(DEPS) -c $< -o $@
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/obj/libtested.a
	@echo "  LD $@"
	$(Q)$(FUZZER) -Wall -Wextra $(WERROR) -fsanitize=fuzzer $(DEPS) $< $(BUILD)/fuzz/obj/libtested.a $(TESTED_LIBS) -o $@
# The proof that the fuzzer finds something when there is something.
$(BUILD)/fuzz/planted: tests/fuzz/fuzz_wire.c $(BUILD)/fuzz/obj/libtested.a
	@echo "  LD $@"
	$(Q)$(FUZZER) -DPLANTED_BUG -fsanitize=fuzzer $(DEPS) $< $(BUILD)/fuzz/obj/libtested.a $(TESTED_LIBS) -o $@
# The same targets, counting the lines they reach: tools/fuzz-coverage.
COUNTED := clang $(CPPFLAGS_ALL) -std=gnu17 -O1 -g -fprofile-instr-generate -fcoverage-mapping
$(BUILD)/coverage/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(COUNTED) -fsanitize=fuzzer-no-link $(DEPS) -c $< -o $@
$(BUILD)/coverage/obj/libtested.a: $(TESTED:%.c=$(BUILD)/coverage/obj/%.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/coverage/%: tests/fuzz/%.c $(BUILD)/coverage/obj/libtested.a
	@echo "  LD $@"
	$(Q)$(COUNTED) -fsanitize=fuzzer $(DEPS) $< $(BUILD)/coverage/obj/libtested.a $(TESTED_LIBS) -o $@

test-build: compile $(addprefix $(BUILD)/weak/,carrel carrel-full carrel-init) \
  $(addprefix $(BUILD)/asan/,carrel carrel-full carrel-init carrel-serve carrel-front carrel-files carrel-client carrel-plan carrel-sink carrel-export) $(PROBES) $(UNIT) $(BUILD)/tests/newroot $(if $(shell command -v clang),$(FUZZ))
deps:
	@tools/install-deps build
run:
	@tools/install-deps run
	@$(MAKE) $(ALL_CPUS) compile
	@tools/bring-tools $(BUILD)/carrel $(SERVE_OPTIONS)
	@$(BUILD)/carrel serve $(SERVE_OPTIONS)
test:
	@tools/install-deps test
	@$(MAKE) $(ALL_CPUS) test-build
	@BUILD=$(BUILD) tests/run
test-long:
	@tools/install-deps test vm
	@$(MAKE) $(ALL_CPUS) test-build
	@BUILD=$(BUILD) tests/run --long
	@tests/vm/run
bench: deps
	@tools/install-deps bench
	@$(MAKE) $(ALL_CPUS) compile
	@bench/run --write-docs
fuzz:
	@tools/install-deps test
	@$(MAKE) $(ALL_CPUS) $(FUZZ)
	@tests/fuzz/run --seconds 60
fuzz-coverage:
	@tools/install-deps test
	@$(MAKE) --no-print-directory $(patsubst $(BUILD)/fuzz/fuzz_%,$(BUILD)/coverage/fuzz_%,$(filter $(BUILD)/fuzz/fuzz_%,$(FUZZ)))
	@BUILD=$(BUILD) tools/fuzz-coverage --seconds 60
lint:
	@tools/install-deps lint
	@tools/lint
fmt:
	clang-format -i $$(git ls-files '*.c' '*.h')
install: compile
	install -Dm755 $(BUILD)/carrel $(DESTDIR)$(PREFIX)/bin/carrel
	for part in $(filter-out carrel,$(PROGRAMS)); do \
	  install -Dm755 $(BUILD)/$$part $(DESTDIR)$(LIBEXECDIR)/$$part; done
	install -Dm644 $(BUILD)/libcarrel.a $(DESTDIR)$(PREFIX)/lib/libcarrel.a
	install -Dm644 include/carrel.h $(DESTDIR)$(PREFIX)/include/carrel.h
	for page in man/*.[1-8]; do \
	  install -Dm644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done
	install -Dm644 packaging/completion/carrel.bash \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions/carrel
	install -Dm644 packaging/completion/_carrel $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_carrel
	install -Dm644 packaging/completion/carrel.fish \
	  $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/carrel.fish
	for file in packaging/templates/*; do \
	  install -Dm644 $$file $(DESTDIR)$(PREFIX)/share/carrel/templates/$${file##*/}; done
	install -Dm644 packaging/serve.conf $(DESTDIR)$(PREFIX)/share/doc/carrel/serve.conf
	for unit in carrel.service carrel.socket; do \
	  sed 's,/usr/local/bin,$(PREFIX)/bin,' packaging/systemd/$$unit | \
	  install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; done
clean:
	rm -rf $(BUILD)
help:
	@echo "make            build build/carrel, build/carrel-init, build/libcarrel.a"
	@echo "make run        install what is missing, build, and start the daemon (SERVE_OPTIONS=--state DIR …)"
	@echo "make test       install, build and run all tests; test-long: their full sizes, and in a VM"
	@echo "make bench      figures beside a bare process and bubblewrap"
	@echo "make lint       formatting, static analysis, layers, docs;  make fmt: format"
	@echo "make fuzz       every fuzz target for 60 s;  make fuzz-coverage: and the lines of the parsers they reach"
	@echo "make install PREFIX=/usr/local DESTDIR=    make clean"

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
