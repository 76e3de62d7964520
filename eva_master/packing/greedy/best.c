/* The inner loop of Algorithm 1, as in instance_fill.py with numpy; included by kernel.c. */

/* A machine that is being filled. All rows are contiguous. */
typedef struct {
    const i64 *need;     /* WIDTH for each class */
    const i64 *prices, *charges, *workloads; /* by class */
    const i64 *shares;   /* of each class in an empty machine: a row of classes for each resource */
    const i64 *capacity; /* WIDTH */
    i64 classes, labels; /* labels: how many workloads have numbers */
} Filling;

/* Find the task that should join next, and drop candidates that can never join any more.
 *
 * A task's gain is at most its worth alone, plus the gain of the others by its joining, if any. So
 * classes that are worth less than the best gain are skipped. Candidates are classes, the most
 * valuable first, equal ones ascending. The kept ones are moved to just before those that were not
 * examined; returned is how many are gone, all of them at the beginning. `chosen` is the best class,
 * -1 if there is none, and its gain. */
i64 best_to_join(const Filling *filling, i64 *candidates, i64 size, const i64 *left,
                 const i64 *newcomer, const i64 *dropped, const i64 *room, i64 *chosen) {
    i64 best = -1, most = -1, closest = -1, gained = 0, kept = 0, position = 0, spare[WIDTH];
    for (i64 n = 0; n < filling->labels; n++)
        if (dropped[n] < gained) gained = dropped[n];
    for (int part = 0; part < WIDTH; part++)
        spare[part] = room[part] * MILLION / (filling->capacity[part] > 1 ? filling->capacity[part] : 1);
    while (position < size) {
        i64 number = candidates[position], worth = filling->prices[number] * MILLION;
        if (worth - gained < most) break;
        position++;
        int fits = left[number] > 0;
        for (int part = 0; part < WIDTH; part++) fits &= filling->need[number * WIDTH + part] <= room[part];
        if (!fits) continue;
        candidates[kept++] = number;
        i64 workload = filling->workloads[number];
        i64 gain = worth - newcomer[workload] * filling->charges[number] - dropped[workload], aligned = 0;
        if (gain < most || gain < 0) continue;
        for (int part = 0; part < WIDTH; part++)
            aligned += spare[part] * filling->shares[part * filling->classes + number];
        if (gain > most || aligned > closest || (aligned == closest && number < best))
            best = number, most = gain, closest = aligned;
    }
    i64 gone = position - kept;
    memmove(candidates + gone, candidates, (size_t)kept * sizeof *candidates);
    chosen[0] = best, chosen[1] = most;
    return gone;
}
