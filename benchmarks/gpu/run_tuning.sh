#!/bin/sh
# Measure all subjects on a GPU, then the tuning-time benchmark; every step has a hard time limit,
# and what is measured already is not measured again.
#
#   OUT=folder [WHEELS=folder] [STEPS="rms-norm:110 ... time"] [TOTAL=seconds] [LIMIT=seconds] \
#       [DEVICE=slug] sh benchmarks/gpu/run_tuning.sh
#
# A step is a subject and the seconds that it may take at most. TOTAL bounds all steps together;
# what they leave of it goes to the subjects that did not finish, in the same order. Results stay in
# the tree and are packed after every step into $OUT/tuning.tar.gz, whose paths are relative to the
# repository's root. WHEELS names a folder of wheels to install into a temporary place first, for a
# machine without a network. LIMIT is for each side of the tuning-time benchmark.
set -u
OUT=${OUT:-/tmp/tuning-results}
STEPS=${STEPS:-"rms-norm:110 softmax:110 liger-dyt:40 fla-l2norm:50 matmul:40 time"}
TOTAL=${TOTAL:-3600}
began=$(date +%s)
mkdir -p "$OUT" benchmarks/results/matrices
if [ -n "${WHEELS:-}" ]; then
    site=$(mktemp -d)
    python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl || exit 1
    PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
export PYTHONPATH=".:builder${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

pack() {
    find examples/*/tuning/measurements benchmarks/results -type f ! -name '.*' 2>/dev/null |
        tar czf "$OUT/tuning.tar.gz.part" -T - && mv "$OUT/tuning.tar.gz.part" "$OUT/tuning.tar.gz"
}

# measure SUBJECT SECONDS: the budget ends it in order; it is killed some seconds later if it hangs.
measure() {
    left=$((TOTAL - $(date +%s) + began - 5))
    seconds=$(($2 < left ? $2 : left))
    if [ "$seconds" -lt 15 ]; then # importing and collecting take about as long
        echo "== $1: no time left"
        return
    fi
    echo "== $1 $seconds"
    timeout -k 5 "$((seconds + 15))" python3 -m benchmarks.tune_subject "$1" --budget "$seconds" \
        --gpus 1 2>&1 | tee "$OUT/last.log" || true
    pack
    if ! grep -q "results measured" "$OUT/last.log" || grep -q "budget ran out" "$OUT/last.log"; then
        unfinished="${unfinished:-} $1"
    fi
}

unfinished=
for step in $STEPS; do
    case $step in
    time)
        echo "== tuning time"
        limit=${LIMIT:-75}
        timeout -k 5 "$((2 * limit + 20))" python3 -m benchmarks.tuning_time --limit "$limit" \
            --json "benchmarks/results/tuning_time.${DEVICE:-nvidia-h200}.json" ||
            echo "tuning time: ended with $?"
        pack
        ;;
    *) measure "${step%%:*}" "${step##*:}" ;;
    esac
done
for subject in $unfinished; do
    measure "$subject" "$TOTAL"
done
