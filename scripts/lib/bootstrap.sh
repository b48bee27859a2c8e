# Sourced by the scripts: makes .venv hold one lock and the project; changes nothing
# outside the repository but the caches of pip and uv.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$root/.venv
python=$venv/bin/python
uv=$venv/.uv/bin/uv
stamp=$venv/.taxiway-lock
needed_mb=6000

# With this variable set no bytecode is kept, and every import of TFX compiles
# thousands of files again.
unset PYTHONDONTWRITEBYTECODE
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# bootstrap LOCK: make .venv hold requirements/LOCK.txt and the project.
bootstrap() {
  local lock=$1 recorded
  recorded=$(cat -- "$stamp" 2> /dev/null || true)
  # The dev lock holds all of the full one: don't take the tools away again.
  if [ "${recorded%% *}" = dev ] || [ -x "$venv/bin/pytest" ]; then lock=dev; fi
  is_ready "$lock" && return
  {
    # Two scripts started at once: the second waits, then finds the work done.
    if command -v flock > /dev/null; then
      flock -n 9 || { say "waiting for another script that is setting up .venv"; flock 9; }
    fi
    is_ready "$lock" || set_up "$lock"
  } 9> "$root/.bootstrap.lock"
}

is_ready() {
  [ -x "$venv/bin/taxiway" ] && [ "$(cat "$stamp" 2> /dev/null)" = "$(wanted_stamp "$1")" ] &&
    "$python" -c '' 2> /dev/null
}

wanted_stamp() {
  printf '%s %s %s' "$1" "$(cat -- "$root/requirements/$1.txt" "$root/pyproject.toml" \
    "$root/scripts/lib/bootstrap.sh" | sha256sum | cut -d ' ' -f 1)" "$root"
}

set_up() {
  local lock=$1
  say "setting up .venv from requirements/$lock.txt (once; a few minutes on a new machine)"
  check_machine
  rm -f -- "$stamp"
  make_venv
  hand_pip_settings_to_uv
  install_uv
  install_lock "$lock"
  install_project
  wanted_stamp "$lock" > "$stamp"
  say "ready: .venv"
}

check_machine() {
  local free_mb
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    die "Taxiway's locks are for Linux on x86_64, this is: $(uname -sm)."
  free_mb=$(df -Pk -- "$root" | awk 'NR == 2 { print int($4 / 1024) }')
  [ -d "$venv" ] || [ "$free_mb" -ge "$needed_mb" ] ||
    die "setting up needs about $needed_mb MB in $root, only $free_mb MB are free."
}

is_python_311() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' > /dev/null 2>&1
}

make_venv() {
  local base
  is_python_311 "$python" && return
  base=$(find_python) || exit 1
  say "  making .venv with $base"
  "$base" -c 'import venv, ensurepip' 2> /dev/null ||
    die "$base lacks the modules venv and ensurepip: install the Debian package python3.11-venv (apt-get install python3.11-venv) and run this again."
  "$base" -m venv --clear "$venv" || die "$base -m venv failed; see above."
}

find_python() {
  local candidate
  for candidate in "${TAXIWAY_PYTHON:-}" python3.11 python3 python; do
    if [ -n "$candidate" ] && command -v "$candidate" > /dev/null &&
      is_python_311 "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  die "Python 3.11 is needed (the locks are for it) and none was found as python3.11, python3 or python: install it, or name it with TAXIWAY_PYTHON=/path/to/python3.11."
}

# uv does not read pip's settings: give it those that say where packages come from.
hand_pip_settings_to_uv() {
  local index=${PIP_INDEX_URL:-}
  if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    [ -n "$index" ] || index=$(pip config get global.index-url 2> /dev/null) || index=
    [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
  fi
  [ -z "${PIP_EXTRA_INDEX_URL:-}" ] || export UV_INDEX=${UV_INDEX:-$PIP_EXTRA_INDEX_URL}
  [ -z "${PIP_TRUSTED_HOST:-}" ] || export UV_INSECURE_HOST=${UV_INSECURE_HOST:-$PIP_TRUSTED_HOST}
  [ -z "${PIP_DEFAULT_TIMEOUT:-}" ] || export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-$PIP_DEFAULT_TIMEOUT}
  [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
  # A company's certificates are usually in the system's store, not in uv's own.
  if [ -z "${SSL_CERT_FILE:-}" ] && [ -r /etc/ssl/certs/ca-certificates.crt ]; then
    export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1}
  fi
}

pip() {
  "$python" -c 'import pip' 2> /dev/null || "$python" -m ensurepip > /dev/null ||
    die "there is no pip in .venv: remove the folder .venv and run this again."
  "$python" -m pip --disable-pip-version-check "$@"
}

# pinned NAME: print the dev lock's line of one distribution, hashes included.
pinned() {
  awk -v name="$1" '
    /^[^ #]/ { inside = index($0, name "==") == 1 }
    inside { print }
  ' "$root/requirements/dev.txt"
}

has_uv() { "$uv" --version > /dev/null 2>&1; }

# install ARGS: uv pip install, or pip install where there is no uv.
install() {
  if has_uv; then
    "$uv" pip install --quiet --python "$python" "$@"
  else
    pip install --quiet "$@"
  fi
}

install_uv() {
  local version
  version=$(pinned uv | sed -n '1s/^uv==\([^ ]*\).*/\1/p')
  [ "$("$uv" --version 2> /dev/null | cut -d ' ' -f 2)" = "$version" ] && return
  say "  installing uv $version"
  pinned uv > "$venv/uv.txt"
  # In a folder of its own, so that syncing .venv does not remove it.
  rm -rf -- "$venv/.uv"
  pip install --quiet --no-deps --require-hashes --target "$venv/.uv" -r "$venv/uv.txt" ||
    say "  uv could not be installed: going on with pip, which takes longer"
}

install_lock() {
  local file=$root/requirements/$1.txt
  install_build_tools
  if has_uv; then
    say "  installing $(grep -c '^[^ #]' "$file") packages"
    "$uv" pip sync --python "$python" --require-hashes --no-build-isolation \
      --compile-bytecode "$file" >&2 && return
    say "  uv failed: going on with pip, which takes longer"
  fi
  pip install --no-deps --require-hashes --no-build-isolation -r "$file" ||
    die "the packages of requirements/$1.txt could not be installed; the lines above say which and why. Is the package index reachable?"
}

# A few packages come as source. They are built with the lock's own setuptools, not
# with whatever is newest on the day.
install_build_tools() {
  { pinned setuptools; pinned wheel; pinned packaging; } > "$venv/build-tools.txt"
  install --no-deps --require-hashes -r "$venv/build-tools.txt" ||
    die "setuptools could not be installed; the lines above say why. Is the package index reachable?"
}

install_project() {
  say "  installing the project itself"
  install --no-deps --no-build-isolation --editable "$root" ||
    die "the project could not be installed into .venv; see above."
}
