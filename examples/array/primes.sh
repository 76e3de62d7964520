#!/bin/sh
# Counts the primes in the stretch of SIZE numbers that is this task's: tasks differ by their number
# alone. The count is its output.
set -eu
SIZE=${SIZE:-2000}
first=$((EVA_TASK_INDEX * SIZE))
last=$((first + SIZE - 1))

awk -v first="$first" -v last="$last" 'BEGIN {
    for (number = first; number <= last; number++) {
        prime = number > 1
        for (factor = 2; prime && factor * factor <= number; factor++)
            if (number % factor == 0)
                prime = 0
        count += prime
    }
    print count + 0
}' >"$EVA_STORAGE/outputs/primes"
read -r count <"$EVA_STORAGE/outputs/primes"
echo "task $EVA_TASK_INDEX of $EVA_TASK_COUNT: $count primes from $first to $last"
