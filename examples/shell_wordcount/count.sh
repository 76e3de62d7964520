#!/bin/sh
# How large a part of a text is one word, and how sure can we be? A bootstrap in sh and awk: every
# iteration draws the text's sentences anew, with replacement, and counts words; iteration N seeds
# its random numbers with N, so a resumed run draws what an uninterrupted one would have drawn.
# Environment: STEPS (iterations), RESAMPLES (draws in each), WORD, SAVE_EVERY (iterations from one
# checkpoint to the next).
set -eu
cd "$(dirname "$0")"

STEPS=${STEPS:-400}
RESAMPLES=${RESAMPLES:-400}
WORD=${WORD:-the}
SAVE_EVERY=${SAVE_EVERY:-20}

# SIGTERM asks for a checkpoint: take note of it, and leave the loop after the running iteration.
stopping=
trap 'stopping=yes' TERM
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs a command that a SIGTERM to every process of the task leaves alone. When the signal comes
# before the shield is up (status 143), the command has not started yet: try again.
shielded() {
    status=143
    while [ "$status" -eq 143 ]; do
        status=0
        (trap '' TERM && exec "$@") || status=$?
    done
    return "$status"
}

sample() {
    shielded awk -v seed="$step" -v resamples="$RESAMPLES" -v word="$WORD" \
        -f resample.awk declaration.txt >>"$work/state/draws"
}

# Publishes a checkpoint, and says how far this process has come.
save() {
    echo "$step" >"$work/state/step"
    shielded awk '{ words += $1; hits += $3 } END { print hits / words }' \
        "$work/state/draws" >"$work/share"
    read -r share <"$work/share"
    shielded eva-progress --steps $((step - first)) --total $((STEPS - first)) \
        --metric "share=$share" checkpoint "$work/state"
    echo "step $step share $share"
}

mkdir "$work/state"
: >"$work/state/draws"
step=0
if shielded eva-progress latest >"$work/latest"; then
    read -r latest <"$work/latest"
    cp "$latest/draws" "$latest/step" "$work/state/"
    read -r step <"$work/state/step"
    echo "resumed at step $step"
fi
first=$step

saved=$step
while [ "$step" -lt "$STEPS" ] && [ -z "$stopping" ]; do
    sample
    step=$((step + 1))
    if [ $((step - saved)) -ge "$SAVE_EVERY" ] || [ "$step" -eq "$STEPS" ]; then
        save
        saved=$step
    fi
done
if [ -n "$stopping" ]; then
    [ "$step" -eq "$saved" ] || save
    exit 0
fi

# The middle 95 % of the draws.
awk '{ print $3 / $1 }' "$work/state/draws" | sort -n >"$work/shares"
draws=$(wc -l <"$work/shares")
low=$(sed -n "$((draws / 40 + 1))p" "$work/shares")
high=$(sed -n "$((draws - draws / 40))p" "$work/shares")
echo "done: share of '$WORD' between $low and $high"
if [ -n "${EVA_STORAGE:-}" ]; then
    cp "$work/state/draws" "$EVA_STORAGE/outputs/draws.txt"
fi
