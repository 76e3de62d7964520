/* The search of knapsack.py, bit for bit; included by kernel.c. */

#define SETS_KEPT 100       /* the last ones found */
#define CPU_CELLS 512       /* of the grid */
#define MEMORY_CELLS 8      /* likewise */
#define UNLIMITED (1LL << 40)
#define TINY 1e-12

/* A question, as KnapsackProblem tells it. All rows are contiguous. */
typedef struct {
    const i64 *capacity, *need, *counts;
    const double *value;
    i64 classes, parts, nodes;
    i64 items; /* limit of the items that are looked at */
    double worth;
} KnapsackQuestion;

typedef struct {
    double bound;
    i64 nodes, items, found;
    i64 *members; /* SETS_KEPT rows by class; the set found as number n is in row n % SETS_KEPT */
} KnapsackAnswer;

/* A bound by room, see RoomBound: rows of CPU time for each number of GPUs and amount of memory. */
typedef struct {
    i64 gpus, cpus, memory;     /* cells */
    i64 cpu_cell, memory_cell;  /* what is in one */
    double *value, *row;        /* row: scratch */
} Grid;

typedef struct { double ratio; i64 at; } Rated;

typedef struct {
    const KnapsackQuestion *q;
    KnapsackAnswer *a;
    i64 size, *class_, *need, *most, *taken;
    double *value, *share, *ratio, whole, best, left_out;
    const Grid *grid;
} Knapsack;

static int needs_nothing(const KnapsackQuestion *q, i64 class_) {
    i64 any = 0;
    for (i64 part = 0; part < q->parts; part++) any |= q->need[class_ * q->parts + part];
    return !any && q->value[class_] > 0 && q->counts[class_] > 0;
}

/* How many tasks with this need there is room for, up to `most`. */
static i64 fitting(const i64 *need, const i64 *room, i64 parts, i64 most) {
    for (i64 part = 0; part < parts; part++)
        if (need[part] && room[part] / need[part] < most) most = room[part] / need[part];
    return most;
}

/* Whether item `b` does for `a`: it needs no more, is worth no less, and is never used up. */
static int replaces(const Knapsack *k, i64 b, i64 a) {
    i64 parts = k->q->parts;
    int does = k->value[b] >= k->value[a] && k->q->counts[k->class_[b]] >= k->most[b];
    for (i64 part = 0; part < parts && does; part++) does = k->need[b * parts + part] <= k->need[a * parts + part];
    return does;
}

static int dominated(const Knapsack *k, i64 a) {
    for (i64 b = 0; b < k->size; b++)
        if (b != a && replaces(k, b, a) && (b < a || !replaces(k, a, b))) return 1;
    return 0;
}

/* Move an item from one place to another. */
static void move_item(Knapsack *to, i64 place, const Knapsack *from, i64 at) {
    i64 parts = from->q->parts;
    to->class_[place] = from->class_[at], to->value[place] = from->value[at];
    to->most[place] = from->most[at], to->share[place] = from->share[at];
    memcpy(to->need + place * parts, from->need + at * parts, (size_t)parts * sizeof *to->need);
}

/* The prices of `dual_prices`, with a tableau for scratch. */
static void find_prices(const double *fractions, const double *value, i64 columns, i64 rows, double *tableau,
                        double *prices) {
    i64 wide = columns + rows + 1;
    double *last = tableau + rows * wide;
    memset(tableau, 0, (size_t)((rows + 1) * wide) * sizeof *tableau);
    for (i64 row = 0; row < rows; row++) {
        for (i64 n = 0; n < columns; n++) tableau[row * wide + n] = fractions[n * rows + row];
        tableau[row * wide + columns + row] = tableau[row * wide + wide - 1] = 1.0;
    }
    for (i64 n = 0; n < columns; n++) last[n] = -value[n];
    for (i64 turn = 0; turn < 4 * rows * rows + 50; turn++) {
        i64 entering = 0, leaving = -1;
        double least = INFINITY;
        for (i64 n = 1; n < wide - 1; n++)
            if (last[n] < last[entering]) entering = n;
        if (last[entering] >= -TINY) break;
        for (i64 row = 0; row < rows; row++) {
            double entry = tableau[row * wide + entering];
            if (entry > TINY && (leaving < 0 || tableau[row * wide + wide - 1] / entry < least))
                least = tableau[row * wide + wide - 1] / entry, leaving = row;
        }
        if (leaving < 0) break;
        double *pivot = tableau + leaving * wide, entry = pivot[entering];
        for (i64 n = 0; n < wide; n++) pivot[n] /= entry;
        for (i64 row = 0; row <= rows; row++) {
            double *other = tableau + row * wide, factor = other[entering];
            if (row == leaving) continue;
            for (i64 n = 0; n < wide; n++) other[n] -= factor * pivot[n];
        }
    }
    for (i64 row = 0; row < rows; row++) prices[row] = last[columns + row] > TINY ? last[columns + row] : TINY;
}

static int by_ratio(const void *one, const void *other) {
    const Rated *a = one, *b = other;
    if (a->ratio != b->ratio) return a->ratio > b->ratio ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

/* Give the items their shares of the machine, and sort them by value for their share; returned is 1 if
 * there is too little memory. */
static int sort_items(Knapsack *k, Knapsack *sorted) {
    i64 n = k->size, parts = k->q->parts;
    double scale = 0, prices[WIDTH], sum = 0;
    size_t cells = (size_t)(n * parts + (parts + 1) * (n + parts + 1));
    double *fractions = malloc(cells * sizeof *fractions + (size_t)n * sizeof(Rated));
    if (fractions == NULL) return 1;
    Rated *rated = (Rated *)(fractions + cells);
    for (i64 at = 0; at < n; at++)
        for (i64 part = 0; part < parts; part++) {
            i64 capacity = k->q->capacity[part];
            fractions[at * parts + part] = (double)k->need[at * parts + part] / (double)(capacity > 1 ? capacity : 1);
        }
    find_prices(fractions, k->value, n, parts, fractions + n * parts, prices);
    for (i64 part = 0; part < parts; part++) sum += prices[part];
    for (i64 at = 0; at < n; at++) {
        double share = 0;
        for (i64 part = 0; part < parts; part++) share += fractions[at * parts + part] * prices[part];
        double ratio = k->value[at] / (share > TINY ? share : TINY);
        rated[at] = (Rated){ratio, at}, k->share[at] = share;
        if (!at || ratio > scale) scale = ratio;
    }
    qsort(rated, (size_t)n, sizeof *rated, by_ratio);
    for (i64 at = 0; at < n; at++) {
        move_item(sorted, at, k, rated[at].at);
        sorted->share[at] *= scale;
        sorted->ratio[at] = sorted->value[at] / (sorted->share[at] > TINY ? sorted->share[at] : TINY);
    }
    sorted->ratio[n] = 0, sorted->size = n, sorted->whole = sum * scale;
    free(fractions);
    return 0;
}

/* Choose the items: classes that are worth something and that no other one does for. */
static void choose_items(Knapsack *all, Knapsack *kept) {
    const KnapsackQuestion *q = all->q;
    for (i64 c = 0; c < q->classes; c++) {
        const i64 *need = q->need + c * q->parts;
        int fits = q->value[c] > 0 && q->counts[c] > 0 && !needs_nothing(q, c);
        for (i64 part = 0; part < q->parts && fits; part++) fits = need[part] <= q->capacity[part];
        if (!fits) continue;
        all->class_[all->size] = c, all->value[all->size] = q->value[c];
        all->most[all->size] = fitting(need, q->capacity, q->parts, UNLIMITED);
        memcpy(all->need + all->size++ * q->parts, need, (size_t)q->parts * sizeof *need);
    }
    for (i64 at = 0; at < all->size; at++)
        if (!dominated(all, at)) move_item(kept, kept->size++, all, at);
    for (i64 at = 0; at < kept->size; at++)
        if (q->counts[kept->class_[at]] < kept->most[at]) kept->most[at] = q->counts[kept->class_[at]];
}

/* The most that fits into a room can be worth. */
static double room_bound(const Grid *g, const i64 *room) {
    return g->value[(room[0] * g->memory + room[2] / g->memory_cell) * g->cpus + room[1] / g->cpu_cell];
}

/* Let so many tasks of an item, which need so many cells together, be in any room or not. */
static void add_to_grid(const Grid *g, i64 gpus, i64 cpus, i64 memory, double value) {
    i64 wide = g->cpus - cpus;
    for (i64 gpu = g->gpus - 1; gpu >= gpus; gpu--)
        for (i64 cell = g->memory - 1; cell >= memory; cell--) {
            double *to = g->value + (gpu * g->memory + cell) * g->cpus + cpus;
            const double *from = g->value + ((gpu - gpus) * g->memory + cell - memory) * g->cpus;
            if (!gpus && !memory) from = memcpy(g->row, from, (size_t)wide * sizeof *from);
            for (i64 n = 0; n < wide; n++) to[n] = from[n] + value > to[n] ? from[n] + value : to[n];
        }
}

/* Make the grid of the items; returned is 1 if there is too little memory. */
static int make_grid(Grid *g, const Knapsack *k) {
    const i64 *capacity = k->q->capacity;
    g->cpu_cell = capacity[1] / CPU_CELLS > 1 ? capacity[1] / CPU_CELLS : 1;
    g->memory_cell = capacity[2] / MEMORY_CELLS > 1 ? capacity[2] / MEMORY_CELLS : 1;
    g->gpus = capacity[0] + 1, g->cpus = capacity[1] / g->cpu_cell + 1, g->memory = capacity[2] / g->memory_cell + 1;
    size_t cells = (size_t)(g->gpus * g->cpus * g->memory);
    g->value = calloc(cells + (size_t)g->cpus, sizeof *g->value);
    if (g->value == NULL) return 1;
    g->row = g->value + cells;
    for (i64 at = 0; at < k->size; at++) {
        const i64 *need = k->need + at * k->q->parts;
        i64 gpus = need[0], cpus = need[1] / g->cpu_cell, memory = need[2] / g->memory_cell, step = 1;
        for (i64 remaining = k->most[at]; remaining > 0; remaining -= step, step *= 2) {
            if (step > remaining) step = remaining;
            if (step * gpus >= g->gpus || step * cpus >= g->cpus || step * memory >= g->memory) break;
            add_to_grid(g, step * gpus, step * cpus, step * memory, (double)step * k->value[at]);
        }
    }
    return 0;
}

/* Note the set of the tasks that are taken, and all that ask for nothing. */
static void keep_set(const Knapsack *k) {
    const KnapsackQuestion *q = k->q;
    i64 *row = k->a->members + k->a->found++ % SETS_KEPT * q->classes;
    for (i64 c = 0; c < q->classes; c++) row[c] = needs_nothing(q, c) ? q->counts[c] : 0;
    for (i64 at = 0; at < k->size; at++)
        if (k->taken[at]) row[k->class_[at]] = k->taken[at];
}

static void leave_out(Knapsack *k, double bound) {
    if (bound > k->left_out) k->left_out = bound;
}

/* Add tasks of the items from `first` on to those that are taken. */
static void add_items(Knapsack *k, i64 first, const i64 *room, double share, double value) {
    i64 parts = k->q->parts, rest[WIDTH];
    for (i64 at = first; at < k->size; at++) {
        const i64 *need = k->need + at * parts;
        double most = value + share * k->ratio[at];
        if (most <= k->best) return;
        if (k->a->items == k->q->items) return leave_out(k, most);
        k->a->items++;
        for (i64 count = fitting(need, room, parts, k->most[at]); count > 0; count--) {
            double number = (double)count, reached = value + number * k->value[at];
            double spare = share - number * k->share[at], bound = reached + spare * k->ratio[at + 1];
            for (i64 part = 0; part < parts; part++) rest[part] = room[part] - count * need[part];
            k->a->nodes++, k->taken[at] = count;
            if (reached > k->best) k->best = reached, keep_set(k);
            if (bound > k->best && k->grid != NULL) {
                double held = reached + room_bound(k->grid, rest);
                if (held < bound) bound = held;
            }
            if (bound <= k->best) continue;
            if (k->a->nodes < k->q->nodes) add_items(k, at + 1, rest, spare, reached);
            else leave_out(k, bound);
        }
        k->taken[at] = 0;
    }
}

/* Search among items that are sorted; returned is 1 if there is too little memory. */
static int search_items(Knapsack *k, double extra, double worth) {
    KnapsackAnswer *a = k->a;
    Grid grid = {0};
    a->nodes = 1, a->bound = extra + k->whole;
    if (!k->size || k->whole <= worth) {
        if (worth < 0) keep_set(k);
        return 0;
    }
    if (k->q->capacity[0]) {
        if (make_grid(&grid, k)) return 1;
        k->grid = &grid;
        double whole = room_bound(&grid, k->q->capacity);
        a->bound = extra + whole;
        if (whole <= worth) return free(grid.value), 0;
    }
    a->nodes = 0, k->best = k->left_out = worth;
    add_items(k, 0, k->q->capacity, k->whole, 0.0);
    a->bound = extra + (k->left_out > k->best ? k->left_out : k->best);
    free(grid.value);
    return 0;
}

/* Find sets of tasks that fit and are worth more than was asked for. Returned is 1 if there is too little
 * memory. */
int knapsack(const KnapsackQuestion *q, KnapsackAnswer *a) {
    size_t n = (size_t)q->classes, each = n * (size_t)(q->parts + 6) + 1;
    i64 *memory = calloc(2 * each, sizeof *memory);
    if (memory == NULL) return 1;
    Knapsack side[2];
    double extra = 0;
    for (int number = 0; number < 2; number++) {
        i64 *start = memory + (size_t)number * each;
        double *floats = (double *)(start + n * (size_t)(q->parts + 3));
        side[number] = (Knapsack){.q = q, .a = a, .class_ = start, .most = start + n, .taken = start + 2 * n,
                                  .need = start + 3 * n, .value = floats, .share = floats + n,
                                  .ratio = floats + 2 * n};
    }
    a->items = a->found = 0;
    for (i64 c = 0; c < q->classes; c++)
        if (needs_nothing(q, c)) extra += q->value[c] * (double)q->counts[c];
    choose_items(side, side + 1);
    side[0].size = 0;
    int failed = (side[1].size && sort_items(side + 1, side)) || search_items(side, extra, q->worth - extra);
    free(memory);
    return failed;
}
