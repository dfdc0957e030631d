# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

.DEFAULT_GOAL := help
.PHONY: help venv lock demo demo-down test test-unit test-role test-soak lint bench mutants recordings catalog-check lab-up lab-down docs dist clean
SHELL := /bin/bash
PYTHON := .venv/bin/python
NODES ?= 2
PROFILE ?= none
LAB ?= default
DIR ?= ../shared/cases/topology
DAYS ?= 90

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## make .venv with the locked tools (a second call is instant)
	@tools/bootstrap

demo: venv ## bare hosts to a verified two-node fleet on this machine: build/demo/report.html
	@$(PYTHON) tools/demo.py

demo-down: venv ## end the demo's lab
	@$(PYTHON) tools/demo.py --down

test: venv ## everything: static checks, unit, hardware, role and whole-playbook tests
	@$(PYTHON) tools/run_tests.py all

test-unit: venv ## the tests that need no host (2 to 3 minutes)
	@$(PYTHON) tools/run_tests.py unit

test-role: venv ## molecule scenario of one role: make test-role ROLE=nvidia_driver
	@$(PYTHON) tools/run_tests.py role "$(ROLE)"

test-soak: venv ## the long tail: make test-soak PART=mutants|kills|dkms
	@$(PYTHON) tools/soak.py "$(PART)"

lint: venv ## ruff, mypy, yamllint, ansible-lint, docs, changelog, ansible-test sanity
	@$(PYTHON) tools/lint.py $(CHECKS)

bench: venv ## the figures of the design, measured: build/bench/bench.json
	@PYTHONPATH=.:tests:collections $(PYTHON) -m bench.main

mutants: venv ## delete each task of a role in turn and see that a test notices: make mutants ROLE=nvidia_driver
	@$(PYTHON) tools/mutants.py "$(ROLE)"

recordings: venv ## read recorded output with the parsers and compare: make recordings DIR=path (docs/recordings.md)
	@$(PYTHON) tools/recordings.py "$(DIR)"

catalog-check: venv ## name what the catalog holds past its date: out of support, or read at its source more than DAYS=90 days ago
	@$(PYTHON) tools/catalog_check.py --days "$(DAYS)"

lab-up: venv ## boot hosts: make lab-up NODES=2 PROFILE=h100-sxm8
	@tests/lab/lab up --lab "$(LAB)" --nodes "$(NODES)" --profile "$(PROFILE)"

lab-down: venv ## remove them
	@tests/lab/lab down --lab "$(LAB)"

docs: venv ## regenerate the generated pages of docs/
	@$(PYTHON) tools/generate_docs.py

dist: venv ## build the collection's artifact: build/dist/
	@$(PYTHON) tools/dist.py

lock: venv ## resolve the tools' versions anew, for both kinds of controller
	@$(PYTHON) tools/lock.py

clean: ## remove what the other targets made, the lab's cache excepted
	@rm -rf build .cache .venv
