#!/usr/bin/env bash
# Run `make run` and `make test` in fresh Debian systems, and print a table: as root and as a user, with and without
# bubblewrap and a browser, in clones below /tmp, in the home folder and in a folder with a space. Systems are made once
# in FRESH; each run changes only a layer above its system. Needs root and debootstrap. Arguments: rows to run (1 to 8).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fresh="${FRESH:-/opt/fresh-systems}"
programs=python3,python3-pip,python3-venv,make,git,ca-certificates

system() { # name, more packages...
  local root="$fresh/$1"
  shift
  [[ -e "$root/.complete" ]] && return
  debootstrap --variant=minbase --include="$programs" bookworm "$root" >"$root.log" 2>&1
  [[ $# = 0 ]] || chroot "$root" sh -c "apt-get -qq update && apt-get -qq install -y --no-install-recommends $*" >>"$root.log" 2>&1
  chroot "$root" useradd --create-home user
  echo "127.0.0.1 localhost" >"$root/etc/hosts"
  cp -L /etc/resolv.conf "$root/etc/"
  cp -a /etc/ssl/certs/. "$root/etc/ssl/certs/"
  [[ ! -e /etc/pip.conf ]] || cp /etc/pip.conf "$root/etc/"
  touch "$root/.complete"
}

# A new root by pivot_root: in a chroot, the kernel refuses the namespaces that bubblewrap needs.
run() { # row, system, user, folder
  local row="$1" root="$fresh/$2" user="$3" folder="$4" layer="$fresh/run-$1" start=$SECONDS outcome
  rm -rf "$layer"
  mkdir -p "$layer/new" "$layer/work" "$layer/root"
  git bundle create -q "$layer/toolspan.bundle" HEAD
  cat >"$layer/inside.sh" <<INSIDE
set -e
git clone -q /toolspan.bundle "$folder" && cd "$folder" && git checkout -q --detach
make run >run.log 2>&1 || { tail -n 20 run.log; echo "make run FAILED"; exit 1; }
make test
INSIDE
  unshare --mount --pid --fork --propagation private bash -c '
    set -e
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/new,workdir=$2/work" "$2/root"
    cp "$2/toolspan.bundle" "$2/inside.sh" "$2/root/"
    cd "$2/root"
    mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs -o mode=1777 tmpfs dev/shm && mkdir -p .old
    pivot_root . .old && cd / && umount -l .old
    [ "$3" = root ] && home=/root || home=/home/user
    exec setpriv --reuid="$3" --regid="$3" --init-groups \
      env -i HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 sh /inside.sh
  ' bash "$root" "$layer" "$user" >"$fresh/row-$row.log" 2>&1 && outcome=passed || outcome=FAILED
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$row" "$2" "$user" "$folder" "$outcome" \
    "$(grep -E '^[0-9]+ (passed|failed)' "$fresh/row-$row.log" | tail -n 1)" "$((SECONDS - start)) s"
  rm -rf "$layer"
}

mkdir -p "$fresh"
system plain
system full bubblewrap chromium chromium-driver
printf '| | system | user | folder | outcome | tests | time |\n|---|---|---|---|---|---|---|\n'
for row in "${@:-1 2 3 4 5 6 7 8}"; do
  for number in $row; do
    case "$number" in
    1) run 1 plain root /tmp/toolspan ;;
    2) run 2 plain user '$HOME/toolspan' ;;
    3) run 3 plain user /tmp/toolspan ;;
    4) run 4 plain root '$HOME/my projects/toolspan' ;;
    5) run 5 full root /tmp/toolspan ;;
    6) run 6 full user '$HOME/toolspan' ;;
    7) run 7 full user '$HOME/my projects/toolspan' ;;
    8) run 8 full user /tmp/toolspan ;;
    esac
  done
done
