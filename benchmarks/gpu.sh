#!/bin/sh
# Every benchmark that needs a GPU, those of the bars first, and at the end which bars are met.
#
#   sh benchmarks/gpu.sh [FOLDER]          writes FOLDER/gpu.log and one JSON file a part (default runs/gpu)
#
# It stops starting things when LIMIT seconds (480) are over. Run it again with the same FOLDER: parts that are done are
# not repeated (remove FOLDER/NAME.done to repeat one), and compiled code is found again. PYTHON chooses the
# interpreter, WORKERS the loader's processes.
set -u
PYTHON=${PYTHON:-python}
LIMIT=${LIMIT:-480}
WORKERS=${WORKERS:-16}
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-runs/gpu}"
OUT=$(cd "${1:-runs/gpu}" && pwd)
LOG=$OUT/gpu.log
BEGUN=$(date +%s)
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$OUT/compiled}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$OUT/triton}"

mkdir -p "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR"

say() { echo "$*" | tee -a "$LOG"; }

left() { echo $((LIMIT - $(date +%s) + BEGUN)); }

# part NAME SECONDS SCRIPT ARGUMENTS...: run a script once, within its own time and what is left of all.
part() {
    name=$1 seconds=$2
    shift 2
    if [ -e "$OUT/$name.done" ]; then
        say "== $name: done before"
        return
    fi
    [ "$(left)" -lt "$seconds" ] && seconds=$(left)
    if [ "$seconds" -lt 20 ]; then
        say "== $name: left out, no time; run this again"
        return
    fi
    say "== $name ($(left) s left): $*"
    script=$1
    shift
    { timeout -k 5 "$seconds" "$PYTHON" "$HERE/$script" "$@" 2>&1; echo $? >"$OUT/status"; } | tee -a "$LOG"
    status=$(cat "$OUT/status")
    case $status in
    124 | 137) say "== $name: cut off after $seconds s" ;;
    *) say "== $name: ended with $status" && touch "$OUT/$name.done" ;;
    esac
}

# Compiling takes most of the time: all networks at once, on all cores, before anything is measured.
if [ ! -e "$OUT/warm.done" ]; then
    say "== compiling, side by side"
    quick="--steps 1 --warmups 1 --overhead"
    timeout -k 5 170 "$PYTHON" "$HERE/step.py" --variants floor --classes 80 $quick >"$OUT/warm-floor.log" 2>&1 &
    for classes in 80 200 1000; do
        timeout -k 5 170 "$PYTHON" "$HERE/step.py" --variants compiled --classes "$classes" $quick \
            >"$OUT/warm-$classes.log" 2>&1 &
    done
    wait
    # What was found fastest while others used the GPU as well is no guide: it is measured again, on an idle one.
    find "$TORCHINDUCTOR_CACHE_DIR" -name '*.best_config' -delete
    touch "$OUT/warm.done"
    say "== compiled ($(left) s left)"
fi

part step 330 step.py --variants plain,floor,graphed --classes 80 200 1000 --overhead --json "$OUT/step.json"
part overhead 150 step.py --variants "" --classes 80 --overhead sst sst+satl --json "$OUT/overhead.json"
part end_to_end 150 end_to_end.py --workers "$WORKERS" --json "$OUT/end_to_end.json"
part same_numbers 300 same_numbers.py --device cuda --jobs 10 --json "$OUT/same_numbers.json"
part others 300 step.py --variants floor-graph,eager-fp32,eager-bf16,compiled --classes 80 200 --overhead \
    --json "$OUT/others.json"
part ignore 150 step.py --variants "" --classes 80 --overhead ignore sst sst+satl --json "$OUT/ignore.json"
part augmented 150 step.py --variants graphed --classes 80 --with-augment --overhead --json "$OUT/augmented.json"
part batch16 200 step.py --batch 16 --variants plain,floor,graphed --classes 80 --overhead --json "$OUT/batch16.json"
for name in kernels augmentation; do
    [ -e "$HERE/$name.py" ] && part "$name" 90 "$name.py" --device cuda
done
part frozen_stages 60 frozen_stages.py
[ -e "$HERE/loader.py" ] && part loader 120 loader.py --device cuda --workers "$WORKERS" --step-ms 14

say "== bars"
cd "$OUT" || exit 1
"$PYTHON" "$HERE/bars.py" others.json step.json overhead.json end_to_end.json same_numbers.json 2>&1 | tee -a "$LOG"
