# Sourced by lint and test: runs the checks that are not tests, one line for each.

checks=          # what ran, as lines `name<TAB>ok|FAILED<TAB>seconds`
checks_failed=0
checks_failed_names=

run_checks() {
  run_check "ruff check" "$venv/bin/ruff" check --quiet --output-format concise .
  run_check "ruff format" "$venv/bin/ruff" format --quiet --check --output-format concise .
  run_check "mypy" "$venv/bin/mypy" --no-error-summary
}

run_check() {
  local name=$1 began=$SECONDS result=ok
  shift
  "$@" || result=FAILED
  printf '%-12s %s (%d s)\n' "$name" "$result" $((SECONDS - began))
  checks+="$name"$'\t'"$result"$'\t'"$((SECONDS - began))"$'\n'
  if [ "$result" != ok ]; then
    checks_failed=$((checks_failed + 1))
    checks_failed_names+="$name, "
  fi
}
