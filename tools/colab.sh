#!/bin/sh
# Makes, in the folder named by the first argument, an environment that has
# what Colab's has of our needs, but not this package, and a folder of wheels
# of what a notebook may install there. The tests run notebooks in it offline.
set -eu
here=$1
python=${PYTHON:-.venv/bin/python}
[ -x "$here/venv/bin/python" ] || "$python" -m venv "$here/venv"
pip="$here/venv/bin/python -m pip"
$pip install --quiet \
  hatchling==1.28.0 ipykernel==7.4.0 matplotlib==3.10.0 numpy==2.0.2 \
  safetensors==0.6.2 sentencepiece==0.2.1 torch==2.13.0 tqdm==4.67.1
$pip wheel --quiet --wheel-dir "$here/wheels" \
  num2words sacrebleu sacremoses "setuptools>=77.0.3,<82" tyro
