#!/usr/bin/env bash
# run.sh --region REGION --budget DOLLARS [...]: tries a whole cluster in an AWS account. See README.md.
set -euo pipefail
top=$(cd -- "$(dirname -- "$0")/../.." && pwd)
python=${PYTHON:-$top/.venv/bin/python}
[ -x "$python" ] || { echo "no $python: run make setup first" >&2; exit 2; }
cd -- "$top"
exec "$python" -m deploy.acceptance "$@"
