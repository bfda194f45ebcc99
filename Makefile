# Two commands do everything on a fresh machine:
#
#     make book    set up, run stale chapters, export, render, translate
#     make test    set up, run every check
#
# The others are their parts. All are quick when nothing changed.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
BOOK := _build/html/index.html
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 900 \
	--nbval-sanitize-with tests/nbval.cfg -n 2 --dist loadfile

.PHONY: setup book run check test machine viz pdf standalone wheel miniature \
	bench bench-quick clean
.DEFAULT_GOAL := book

# $(call step,what,command): say what is done, do it, say how long it took.
step = @echo "== $(1)"; start=$$(date +%s); $(2) || exit 1; \
	echo "   $$(( $$(date +%s) - start )) s"

setup: $(READY)

$(READY): requirements.txt pyproject.toml tools/setup.sh
	$(call step,set up .venv,PYTHON=$(PYTHON) sh tools/setup.sh .venv)
	@touch $@

book: setup
	$(call step,carry the texts over to the notebooks,$(BIN)/python tools/pair.py)
	$(call step,export the package,$(BIN)/python tools/export.py)
	$(call step,execute the chapters whose code changed,$(BIN)/python tools/run.py)
	$(call step,write the ledger,$(BIN)/python tools/ledger.py)
	$(call step,write what is covered,$(BIN)/python tools/covered.py)
	$(call step,write the index of exercises,$(BIN)/python tools/exercises.py)
	$(call step,write the machine,$(BIN)/python tools/machine.py)
	$(call step,render the book,$(BIN)/jupyter-book build . -q)
	@printf '== translate "forty two": '
	@$(BIN)/transformer-lit translate --model numbers forty two
	@echo "The book: file://$(CURDIR)/$(BOOK)"

run: setup
	$(call step,carry the texts over to the notebooks,$(BIN)/python tools/pair.py)
	$(call step,export the package,$(BIN)/python tools/export.py)
	$(call step,execute every chapter,$(BIN)/python tools/run.py --all)

check: setup
	$(call step,lock,$(BIN)/python tools/lock.py --check)
	$(call step,texts and notebooks agree,$(BIN)/python tools/pair.py --check)
	$(call step,chapters and package agree,$(BIN)/python tools/export.py --check)
	$(call step,notebooks are up to date,$(BIN)/python tools/run.py --check)
	$(call step,ledger,$(BIN)/python tools/ledger.py --check)
	$(call step,what is covered,$(BIN)/python tools/covered.py --check)
	$(call step,exercises,$(BIN)/python tools/exercises.py --check)
	$(call step,ruff,$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .)
	$(call step,mypy,$(BIN)/mypy)
	$(call step,codespell,$(BIN)/codespell book machine transformer_lit tools tests benchmarks *.md)
	$(call step,what nbval does not see and the cost of the import,\
		$(BIN)/pytest -q tests/test_notebooks.py tests/test_import.py)
	$(call step,write the machine,$(BIN)/python tools/machine.py)
	$(call step,render the book and take warnings as errors,$(BIN)/jupyter-book \
		build . --all -W -n --keep-going -q)
	$(call step,re-execute the notebooks and compare,OMP_NUM_THREADS=1 \
		$(BIN)/pytest -q $(NBVAL) notebooks)

test: check standalone wheel
	$(call step,tests,OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup tests)

machine viz: setup
	$(call step,write the machine,$(BIN)/python tools/machine.py)

pdf: book
	$(call step,print the book,$(BIN)/python tools/pdf.py)
	@echo "The book on paper: file://$(CURDIR)/_build/transformer_lit.pdf"

standalone: setup
	$(call step,standalone notebooks,$(BIN)/python tools/standalone.py)

# An environment like Colab's, and the packages that notebooks install there.
_build/colab/ready: $(READY) tools/colab.sh
	$(call step,set up an environment like Colab,sh tools/colab.sh _build/colab)
	@touch $@

wheel: _build/colab/ready
	@rm -f _build/colab/wheels/transformer_lit-*
	$(call step,build the wheel,_build/colab/venv/bin/python -m pip wheel -q \
		--no-deps --no-build-isolation -w _build/colab/wheels .)

miniature: setup
	$(call step,train the miniature,$(BIN)/python tools/miniature.py)

# What results/bench.json lacks; the peers' environments are made on the way.
bench: setup
	$(call step,time ours and others,$(BIN)/python -m benchmarks run)

bench-quick: setup
	$(call step,time ours and torch.nn,$(BIN)/python -m benchmarks quick)

clean:
	rm -rf _build .venv
