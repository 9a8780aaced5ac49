#!/bin/bash
# All tests: those without vLLM side by side, then those with it one by one. test.sh PYTHON [pytest's own words]
# Words that choose tests (-k, a file) may leave one half without any, which is no failure; both is.
set -uo pipefail
python=$1
shift
NOTHING=5 # pytest's exit code where no test was selected

# They mostly wait for processes that they start, so more of them than cores pay, and who is done takes over slow ones; servers
# run one at a time.
"$python" -m pytest -n 3 --dist worksteal -m "not engine and not gpu" "$@"
unit=$?
if [ $unit -ne 0 ] && [ $unit -ne $NOTHING ]; then
  exit $unit
fi
ADVISOR_REQUIRE_ENGINE=1 "$python" -m pytest -m "engine or gpu" "$@"
engine=$?
if [ $engine -eq $NOTHING ]; then
  exit $unit
fi
exit $engine
