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
# A room is a directory of src/; $(call room,…) has its files, those of rooms inside it too.
room = $(shell find $(addprefix src/,$(1)) -name '*.c' | sort)
here = $(wildcard $(addsuffix /*.c,$(addprefix src/,$(1))))
# Of base/, what needs libcrypto: not in the library.
DIGEST  := src/base/digest.c
SEAL    := src/base/seal.c
BASE    := $(filter-out $(DIGEST) $(SEAL),$(call room,base))
SYS     := $(call room,sys)
POLICY  := $(call room,policy)
SANDBOX := $(call room,sandbox)
JSON    := $(call room,json)
AUDIT   := $(call here,audit) $(DIGEST)
READING := $(filter-out %/writer.c %/record.c,$(AUDIT))
# carrel-sink has the key that signs heads; carrel-export sends records elsewhere, and has no key.
SINK    := $(call room,audit/sink) $(READING) src/audit/record.c
EXPORT  := $(call room,audit/export) $(READING)
HTTP    := $(call room,http)
# Every connection of a sandbox whose network is a list of names.
EGRESS  := $(call room,egress) $(SEAL) src/protocol/egress.c $(addprefix src/http/,head.c chunked.c)
# One job with an object store: scans, knows what is there, has rclone carry the bytes.
MOVER   := $(call room,mover) src/protocol/store.c src/base/digest.c
# Ends TLS, and has the key for it.
TLS     := $(call room,tls)
# What sees a workspace's files: joins the sandbox, has no HTTP and reads no JSON.
FILES   := $(call room,files) src/protocol/files.c src/policy/glob.c
# What works on a plan: a short-lived process for each job, with no more than that job needs.
PLAN    := $(call room,plan/core plan/derive plan/apply plan/trees plan/verbs) $(DIGEST)
# carrel starts commands and is kept small; carrel-full has the verbs and options that need JSON.
CLI     := $(addprefix src/cli/,main.c run.c options.c common.c help.c) src/policy/units.c
FULL    := $(addprefix src/cli/,full.c run.c options.c common.c help.c doctor.c plan.c) $(call room,plan/local) src/plan/core/state.c $(JSON)
LIB     := $(BASE) $(SYS) $(POLICY) src/protocol/egress.c $(SANDBOX)
SMALL   := $(filter-out %/answers.c %/events.c %/hash.c %/log.c %/names.c %/network.c %/pack.c %/state_dir.c,$(BASE))
LEAN    := $(SMALL) src/base/pack.c src/policy/network.c src/policy/network_inner.c src/protocol/egress.c $(filter-out %/landlock.c %/calls.c %/privileges.c %/tree_walk.c %/tree_remove.c,$(SYS)) $(filter-out %/explain.c %/doctor.c src/sandbox/session/%,$(SANDBOX)) $(CLI)
INIT    := $(call room,init) src/sandbox/wire.c $(filter-out %/near.c,$(SMALL)) $(addprefix src/sys/,address.c fds.c message.c mount.c path.c refusals.c)
# What asks pid 1 for root, from inside: no library of the sandbox's, and none of ours but the messages.
SUDO    := $(call room,sudo) src/sandbox/wire.c $(filter-out %/near.c,$(SMALL)) $(addprefix src/sys/,fds.c message.c)
# The daemon: carrel-serve is the broker and has neither HTTP nor JSON; carrel-front has no privileges.
SERVE   := $(call room,broker) $(addprefix src/protocol/,broker.c settings.c store.c store_job.c) $(AUDIT) $(SEAL)
FRONT   := $(call room,front protocol) src/plan/core/state.c $(HTTP) $(JSON) $(READING) $(SEAL)
CLIENT  := $(call room,client plan/local) src/plan/core/state.c src/cli/common.c src/cli/help.c src/json/encode.c $(addprefix src/protocol/,files.c settings.c) $(READING)
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
  -DCARREL_INIT_PATH='"$(LIBEXECDIR)/carrel-init"' \
  -DCARREL_EGRESS_PATH='"$(LIBEXECDIR)/carrel-egress"' -iquote src -Iinclude -include src/base/poison.h
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

.PHONY: all run test test-long test-build bench lint fmt fuzz fuzz-coverage install dist clean help deps compile objects
# On all processors, unless somebody has said on how many.
ALL_CPUS = --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
all: deps
	@$(MAKE) $(ALL_CPUS) compile
PROVISION := $(wildcard provision/*.py) provision/uv.sh
PROGRAMS := carrel carrel-full carrel-init carrel-serve carrel-front carrel-files carrel-client carrel-plan carrel-sink carrel-export carrel-egress carrel-mover carrel-tls carrel-sudo
compile: $(addprefix $(BUILD)/,$(PROGRAMS) provision/__main__.py) $(BUILD)/libcarrel.a $(BUILD)/example
# Each source once, for what the compiler says of it.
objects: $(patsubst %.c,$(BUILD)/obj/%.o,$(shell find src -name '*.c'))

# --- one rule per flavour: plain, weak (controls can be left out; tests only), asan -----------------
# What is compiled is shown with V=1; otherwise each archive and each program has a line.
define flavour
$(1)/obj/%.o: %.c $(5)
	@mkdir -p $$(@D)
	$$(Q)$(2) $$(CPPFLAGS_ALL) $(3) $(4) -c $$< -o $$@
endef
$(eval $(call flavour,$(BUILD),$$(CC),$$(CFLAGS_ALL),$(FORTIFY) -fPIE,))
$(eval $(call flavour,$(BUILD)/lean,$$(LEAN_CC),$$(LEAN_CFLAGS),$(LEAN_FLAGS),$(BUILD)/.lean | $(LEAN_INCLUDE)))
$(eval $(call flavour,$(BUILD)/weak,$$(CC),$$(CFLAGS_ALL),$(FORTIFY) -fPIE -DCARREL_WEAK,))
$(eval $(call flavour,$(BUILD)/asan,$$(CC),$$(CFLAGS_ALL),$(SANITIZE),))
# Every function says that it is entered (tools/way): none is inlined, and each begins at a multiple of 16.
$(eval $(call flavour,$(BUILD)/way,$$(CC),$$(filter-out -O2,$$(CFLAGS_ALL)) -w,-O0 -fPIE -falign-functions=16 -finstrument-functions,))

# The place of carrel-init is compiled in: another PREFIX, another object. And objects of two C libraries do not link.
$(BUILD)/.prefix: SAYS = $(PREFIX)
$(BUILD)/.lean: SAYS = $(LEAN_CC)
$(BUILD)/.prefix $(BUILD)/.lean: FORCE
	@mkdir -p $(@D)
	@echo '$(SAYS)' | cmp -s - $@ || echo '$(SAYS)' >$@
FORCE:
$(foreach at,$(BUILD) $(BUILD)/lean $(BUILD)/weak $(BUILD)/asan $(BUILD)/way,$(at)/obj/src/sandbox/start.o $(at)/obj/src/sandbox/netnames.o): $(BUILD)/.prefix
# So are the description of the HTTP interface, and the script that makes environments.
$(BUILD)/obj/src/front/host.o $(BUILD)/asan/obj/src/front/host.o $(BUILD)/way/obj/src/front/host.o: docs/openapi.json
$(foreach at,$(BUILD) $(BUILD)/asan $(BUILD)/way $(BUILD)/fuzz $(BUILD)/coverage,$(at)/obj/src/front/workspaces/env_script.o): src/front/workspaces/env.sh
$(foreach at,$(BUILD) $(BUILD)/asan $(BUILD)/way,$(at)/obj/src/front/workspaces/template_start.o): src/front/workspaces/service.sh
$(foreach at,$(BUILD) $(BUILD)/asan $(BUILD)/way,$(at)/obj/src/front/code/source.o): src/front/code/kernel.py src/front/code/kernel.js

# musl brings no kernel headers; these are the system's.
$(BUILD)/musl-include/linux:
	@mkdir -p $(@D)
	@for dir in linux asm asm-generic; do \
	  for at in /usr/include/$$dir /usr/include/*-linux-gnu/$$dir; do \
	    [ ! -d $$at ] || ln -sfn $$at $(@D)/$$dir; done; done

$(BUILD)/libcarrel.a: $(LIB:%.c=$(BUILD)/obj/%.o)
	@echo "  AR $@"
	$(Q)rm -f $@ && $(AR) qcs $@ $^
$(BUILD)/carrel: $(LEAN:%.c=$(BUILD)/lean/obj/%.o)
	@echo "  LD $@"
	$(Q)$(LEAN_CC) $(LEAN_LINK) $^ -o $@
$(BUILD)/carrel-init: $(INIT:%.c=$(BUILD)/lean/obj/%.o)
	@echo "  LD $@"
	$(Q)$(LEAN_CC) $(LEAN_LINK) $^ -o $@ && strip $@
$(BUILD)/carrel-sudo: $(SUDO:%.c=$(BUILD)/lean/obj/%.o)
	@echo "  LD $@"
	$(Q)$(LEAN_CC) $(LEAN_LINK) $^ -o $@ && strip $@
$(BUILD)/carrel-full: $(FULL:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	@echo "  LD $@"
	$(Q)$(CC) $(LINK_STATIC) $^ -ljansson -o $@
# The programs beside the command: name, sources, libraries; all but the client also with sanitizers.
define program
$(BUILD)/$(1): $(2:%.c=$(BUILD)/obj/%.o) $(BUILD)/libcarrel.a
	@echo "  LD $$@"
	$$(Q)$$(CC) $$(LINK_PIE) $$^ $(3) -o $$@
endef
define sanitized
$(call program,$(1),$(2),$(3))
$(BUILD)/asan/$(1): $(patsubst %.c,$(BUILD)/asan/obj/%.o,$(sort $(2) $(LIB)))
	@echo "  LD $$@"
	$$(Q)$$(CC) $$(SANITIZE) $$^ $(3) -ljansson -lcrypto -o $$@
endef
$(eval $(call sanitized,carrel-serve,$(SERVE),-lcrypto))
$(eval $(call sanitized,carrel-front,$(FRONT),-ljansson -lsqlite3 -lcrypto -lz))
$(eval $(call sanitized,carrel-files,$(FILES),-larchive -lz -lcrypto))
$(eval $(call program,carrel-client,$(CLIENT),-ljansson -lcurl -lcrypto))
$(eval $(call sanitized,carrel-plan,$(PLAN),-ljansson -lcrypto))
$(eval $(call sanitized,carrel-sink,$(SINK),-lcrypto))
$(eval $(call sanitized,carrel-export,$(EXPORT),-ljansson -lcurl -lz -lcrypto))
$(eval $(call sanitized,carrel-egress,$(EGRESS),-lcares -lresolv -lssl -lcrypto))
$(eval $(call sanitized,carrel-mover,$(MOVER),-ljansson -lcurl -lcrypto))
$(eval $(call sanitized,carrel-tls,$(TLS),-lssl -lcrypto))
# Some verbs of the sanitized command are this one's.
$(BUILD)/asan/carrel-client: $(BUILD)/carrel-client
	@mkdir -p $(@D) && cp $< $@
# What fetches tools and builds templates, in Python: found beside the client that starts it.
$(foreach at,$(BUILD) $(BUILD)/asan $(BUILD)/mcp,$(at)/provision/__main__.py): $(PROVISION)
	@rm -rf $(@D) && mkdir -p $(@D) && cp $^ $(@D)
# The command without its controls (tests only), and with sanitizers.
define command
$(BUILD)/$(1)/carrel: $(LEAN:%.c=$(BUILD)/$(1)/obj/%.o)
	@echo "  LD $$@"
	$$(Q)$$(CC) $(2) $$^ -o $$@
$(BUILD)/$(1)/carrel-full: $(patsubst %.c,$(BUILD)/$(1)/obj/%.o,$(sort $(FULL) $(LIB)))
	@echo "  LD $$@"
	$$(Q)$$(CC) $(2) $$^ -ljansson -o $$@
endef
$(eval $(call command,weak,$(LINK_STATIC)))
$(BUILD)/weak/carrel-egress: $(patsubst %.c,$(BUILD)/weak/obj/%.o,$(sort $(EGRESS) $(LIB)))
	@echo "  LD $@"
	$(Q)$(CC) $(LINK_PIE) $^ -lcares -lresolv -lssl -lcrypto -ljansson -o $@
# The daemon with what the conformance suite of MCP wants a server to have (tests only).
MCP := $(call room,front/mcp) tests/conformance/mcp_fixtures.c
$(eval $(call flavour,$(BUILD)/mcp,$$(CC),$$(CFLAGS_ALL),$(FORTIFY) -fPIE -DCARREL_MCP_FIXTURES,))
$(BUILD)/mcp/carrel-front: $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(MCP),$(FRONT))) $(MCP:%.c=$(BUILD)/mcp/obj/%.o) $(BUILD)/libcarrel.a
	@echo "  LD $@"
	$(Q)$(CC) $(LINK_PIE) $^ -ljansson -lsqlite3 -lcrypto -lz -o $@
$(addprefix $(BUILD)/mcp/,$(filter-out carrel-front,$(PROGRAMS))): $(BUILD)/mcp/%: $(BUILD)/%
	@mkdir -p $(@D) && cp $< $@
$(eval $(call command,asan,$(SANITIZE)))
$(BUILD)/weak/carrel-init: $(INIT:%.c=$(BUILD)/weak/obj/%.o)
	@echo "  LD $@"
	$(Q)$(CC) $(LINK_STATIC) $^ -o $@
# Pid 1 and what asks it run in a root without libraries: they stay static and plain.
$(BUILD)/asan/carrel-init $(BUILD)/asan/carrel-sudo $(BUILD)/weak/carrel-sudo: $(BUILD)/carrel-init $(BUILD)/carrel-sudo
	@mkdir -p $(@D) && cp $(BUILD)/$(@F) $@
$(BUILD)/example: examples/run.c $(BUILD)/libcarrel.a
	@echo "  LD $@"
	$(Q)$(CC) $(CFLAGS) -std=gnu17 -Iinclude $< $(BUILD)/libcarrel.a -ljansson -o $@

# The same programs for tools/way: name, sources, how to link. No way needs the client.
$(BUILD)/way/obj/hook.o: tests/tools/way.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -fPIE -c $< -o $@
define traced
$(BUILD)/way/$(1): $(patsubst %.c,$(BUILD)/way/obj/%.o,$(sort $(2))) $(BUILD)/way/obj/hook.o
	@echo "  LD $$@"
	$$(Q)$$(CC) $(3) -o $$@
endef
WAY := carrel carrel-full carrel-init carrel-serve carrel-front carrel-files carrel-plan carrel-sink carrel-export carrel-egress carrel-mover carrel-tls
$(eval $(call traced,carrel,$(LEAN),$(LINK_STATIC) $$^))
$(eval $(call traced,carrel-full,$(FULL) $(LIB),$(LINK_STATIC) $$^ -ljansson))
$(eval $(call traced,carrel-init,$(INIT),$(LINK_STATIC) $$^))
$(eval $(call traced,carrel-serve,$(SERVE) $(LIB),$(LINK_PIE) $$^ -ljansson -lcrypto))
$(eval $(call traced,carrel-front,$(FRONT) $(LIB),$(LINK_PIE) $$^ -ljansson -lsqlite3 -lcrypto -lz))
$(eval $(call traced,carrel-files,$(FILES) $(LIB),$(LINK_PIE) $$^ -ljansson -larchive -lz -lcrypto))
$(eval $(call traced,carrel-plan,$(PLAN) $(LIB),$(LINK_PIE) $$^ -ljansson -lcrypto))
$(eval $(call traced,carrel-sink,$(SINK) $(LIB),$(LINK_PIE) $$^ -ljansson -lcrypto))
$(eval $(call traced,carrel-egress,$(EGRESS) $(LIB),$(LINK_PIE) $$^ -ljansson -lcares -lresolv -lssl -lcrypto))
$(eval $(call traced,carrel-mover,$(MOVER) $(LIB),$(LINK_PIE) $$^ -ljansson -lcurl -lcrypto))
$(eval $(call traced,carrel-tls,$(TLS) $(LIB),$(LINK_PIE) $$^ -ljansson -lssl -lcrypto))
$(eval $(call traced,carrel-export,$(EXPORT) $(LIB),$(LINK_PIE) $$^ -ljansson -lcurl -lz -lcrypto))
.PHONY: way
way: $(addprefix $(BUILD)/way/,$(WAY))

# --- tests -----------------------------------------------------------------------------------------
$(BUILD)/probes/%: tests/escape/probes/%.c tests/escape/probes/probe.h
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -static $< -o $@
$(BUILD)/tests/newroot: tests/tools/newroot.c $(BUILD)/libcarrel.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Iinclude $< $(BUILD)/libcarrel.a -ljansson -o $@
# What unit tests and fuzz targets link: all but the verbs of the command line.
TESTED := $(LIB) $(JSON) $(AUDIT) $(HTTP) $(call room,protocol front/store) $(call here,audit/sink audit/export) \
  $(filter %rows.c,$(FRONT)) $(addprefix src/front/,core/record_text.c core/room.c core/scope.c core/util.c code/line.c e2b/envelope.c e2b/form.c exec/exec.c exec/input.c exec/spool.c files/asleep.c workspaces/env_script.c workspaces/oldlinks.c) \
  $(addprefix src/client/,core/args.c core/text.c core/table.c core/where.c files/place.c plan/plan_tree.c) \
  $(addprefix src/cli/,common.c help.c options.c) $(addprefix src/mover/,index.c tree.c) \
  $(filter-out %/main.c %/serve.c %/join.c %/asleep.c,$(FILES)) $(filter-out %/main.c,$(PLAN)) \
  $(addprefix src/egress/,names.c dns.c hello.c web.c look.c inner.c inner_down.c mask.c) $(SEAL)
TESTED := $(sort $(filter-out src/audit/sink/main.c src/audit/export/main.c,$(TESTED)))
TESTED_LIBS := -ljansson -lsqlite3 -lcrypto -larchive -lz -lresolv
DEPS = -MMD -MP -MF $@.d -MT $@
# From an archive, each takes only what it needs: a twelfth of the room, and tests/run copies them all.
$(BUILD)/asan/obj/libtested.a: $(TESTED:%.c=$(BUILD)/asan/obj/%.o)
	@echo "  AR $@"
	$(Q)rm -f $@ && $(AR) qcs $@ $^
$(BUILD)/fuzz/obj/libtested.a: $(TESTED:%.c=$(BUILD)/fuzz/obj/%.o)
	@echo "  AR $@"
	$(Q)rm -f $@ && $(AR) qcs $@ $^
$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/asan/obj/libtested.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) $(CPPFLAGS_ALL) -std=gnu17 -O1 -g -Wall -Wextra $(WERROR) $(SANITIZE) $(DEPS) $< \
	  $(BUILD)/asan/obj/libtested.a $(TESTED_LIBS) -o $@
FUZZER := clang $(CPPFLAGS_ALL) -std=gnu17 -O1 -g $(SANITIZE)
$(BUILD)/fuzz/obj/%.o: %.c
	@mkdir -p $(@D)
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
	$(Q)$(COUNTED) -fsanitize=fuzzer-no-link $(DEPS) -c $< -o $@
$(BUILD)/coverage/obj/libtested.a: $(TESTED:%.c=$(BUILD)/coverage/obj/%.o)
	@echo "  AR $@"
	$(Q)rm -f $@ && $(AR) qcs $@ $^
$(BUILD)/coverage/%: tests/fuzz/%.c $(BUILD)/coverage/obj/libtested.a
	@echo "  LD $@"
	$(Q)$(COUNTED) -fsanitize=fuzzer $(DEPS) $< $(BUILD)/coverage/obj/libtested.a $(TESTED_LIBS) -o $@

test-build: compile $(addprefix $(BUILD)/mcp/,$(PROGRAMS) provision/__main__.py) $(addprefix $(BUILD)/weak/,carrel carrel-full carrel-init carrel-egress carrel-sudo) \
  $(addprefix $(BUILD)/asan/,carrel carrel-full carrel-init carrel-serve carrel-front carrel-files carrel-client carrel-plan carrel-sink carrel-export carrel-egress carrel-mover carrel-tls carrel-sudo provision/__main__.py) $(PROBES) $(UNIT) $(BUILD)/tests/newroot $(if $(shell command -v clang),$(FUZZ))
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
	@$(MAKE) $(ALL_CPUS) test-build way
	@BUILD=$(BUILD) tests/run --long
	@tests/vm/run
# The packages of the clients, in build/dist.
dist:
	@tools/make-dist
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
	for file in $(PROVISION); do \
	  install -Dm644 $$file $(DESTDIR)$(LIBEXECDIR)/$$file; done
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
	for file in packaging/networks/*; do \
	  install -Dm644 $$file $(DESTDIR)$(PREFIX)/share/carrel/networks/$${file##*/}; done
	install -Dm644 packaging/serve.conf $(DESTDIR)$(PREFIX)/share/doc/carrel/serve.conf
	for unit in carrel.service carrel.socket; do \
	  sed 's,/usr/local/bin,$(PREFIX)/bin,' packaging/systemd/$$unit | \
	  install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; done
clean:
	rm -rf $(BUILD)
help:
	@echo "make            install what is missing and build the programs; V=1 shows every command"
	@echo "make run        install what is missing, build, and start the daemon (SERVE_OPTIONS=--state DIR …)"
	@echo "make test       install, build and run all tests; test-long: their full sizes, and in a VM"
	@echo "make bench      figures beside a bare process and bubblewrap;  make dist: packages of the clients"
	@echo "make lint       formatting, static analysis, layers, docs;  make fmt: format"
	@echo "make fuzz       every fuzz target for 60 s;  make fuzz-coverage: and the lines of the parsers they reach"
	@echo "make way        programs that say what they enter, for tools/way: which files a request goes through"
	@echo "make install PREFIX=/usr/local DESTDIR=    make clean"

-include $(shell find $(BUILD) -path $(BUILD)/bases -prune -o -name '*.d' -print 2>/dev/null)
