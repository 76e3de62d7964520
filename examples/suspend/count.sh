#!/bin/sh
# Counts to STEPS, one a second, and reports how far it is every ten seconds. When it is told to stop
# it writes that down, and it goes on from there.
set -eu
STEPS=${STEPS:-120}

stopping=
trap 'stopping=yes' TERM
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A SIGTERM goes to all processes of the task: keep it from those that have to finish. One that
# comes before that (status 143) has it tried again.
shielded() {
    status=143
    while [ "$status" -eq 143 ]; do
        status=0
        (trap '' TERM && exec "$@") || status=$?
    done
    return "$status"
}

mkdir "$work/state"
step=0
if shielded eva-progress latest >"$work/latest"; then
    read -r latest <"$work/latest"
    read -r step <"$latest/step"
    echo "goes on at step $step"
fi
first=$step

report() {
    shielded eva-progress --steps $((step - first)) --total $((STEPS - first)) "$@"
}

report || true
while [ "$step" -lt "$STEPS" ] && [ -z "$stopping" ]; do
    sleep 1 || true
    step=$((step + 1))
    echo "step $step"
    [ $((step % 10)) -ne 0 ] || report || true
done
echo "$step" >"$work/state/step"
report checkpoint "$work/state"
[ -n "$stopping" ] || echo "done: counted to $step"
