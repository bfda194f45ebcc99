#!/bin/sh
# Makes the virtual environment named by the first argument and installs the
# lock, with uv where it is there, else with pip.
set -eu
venv=$1
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "transformer_lit needs Python 3.11 or newer; set PYTHON=..." >&2
  exit 1
}
if command -v uv >/dev/null 2>&1; then
  # uv does not read pip's settings; hand over where else to look.
  if [ -n "${PIP_FIND_LINKS:-}" ]; then
    export UV_FIND_LINKS="$PIP_FIND_LINKS"
  fi
  [ -x "$venv/bin/python" ] || uv venv --quiet --python "$python" "$venv"
  uv pip install --quiet --python "$venv/bin/python" -r requirements.txt
else
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet -r requirements.txt
fi
