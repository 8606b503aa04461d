#!/bin/sh
# Measure all subjects on a GPU, then the tuning-time benchmark; every step has a hard time limit,
# and what is measured already is not measured again.
#
#   OUT=folder [WHEELS=folder] [STEPS="rms-norm ..."] [LIMIT=seconds] [DEVICE=slug] \
#       sh benchmarks/gpu/run_tuning.sh
#
# Results stay in the tree and are packed after every step into $OUT/tuning.tar.gz, whose paths are
# relative to the repository's root. WHEELS names a folder of wheels to install into a temporary
# place first, for a machine without a network. LIMIT is for each side of the tuning-time benchmark.
set -u
OUT=${OUT:-/tmp/tuning-results}
STEPS=${STEPS:-"rms-norm softmax liger-dyt fla-l2norm matmul time"}
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
    echo "== $1"
    timeout -k 5 "$(($2 + 15))" python3 -m benchmarks.tune_subject "$1" --budget "$2" --gpus 1 ||
        echo "$1: ended with $?"
    pack
}

for step in $STEPS; do
    case $step in
    rms-norm) measure rms-norm 110 ;;
    softmax) measure softmax 100 ;;
    liger-dyt) measure liger-dyt 40 ;;
    fla-l2norm) measure fla-l2norm 50 ;;
    matmul) measure matmul 40 ;;
    time)
        echo "== tuning time"
        limit=${LIMIT:-75}
        timeout -k 5 "$((2 * limit + 20))" python3 -m benchmarks.tuning_time --limit "$limit" \
            --json "benchmarks/results/tuning_time.${DEVICE:-nvidia-h200}.json" ||
            echo "tuning time: ended with $?"
        pack
        ;;
    esac
done
