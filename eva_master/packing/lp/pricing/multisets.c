/* The search of multisets_reference.py, bit for bit; included by kernel.c. */

#define DEEPEST 256 /* tasks in a set */
#define KEPT 64     /* sets */
#define STEPS 6     /* of the subgradient method */
#define LEVELS 2    /* of prices, tried for each direction */

/* A question, as MultisetQuestion of the reference tells it. All rows are contiguous. */
typedef struct {
    const double *value, *charge, *fraction;
    const i64 *need, *most, *starts;
    const double *pairs, *directions, *shares;
    const i64 *observed;
    const double *rates;
    const i64 *capacity, *least, *tasks;
    double *joining, *present; /* scratch: a row by workload for each task and two more */
    double *worth, *above;     /* scratch, by position */
    i64 *count;                /* scratch, by workload: of the multiset at hand */
    i64 classes, labels, turns, sets, nodes;
    double limit, whole;
} Question;

typedef struct {
    double bound;
    i64 nodes, found;
    double *values; /* KEPT */
    i64 *members;   /* KEPT rows, by position */
} Answer;

typedef struct {
    const Question *q;
    Answer *a;
    double limit, best, *worth, *above;
    i64 *count, size, order[DEEPEST], path[DEEPEST], best_path[DEEPEST];
    double rest[DEEPEST + 1];
} Walk;

static void left_out(Walk *w, double bound) {
    if (bound > w->a->bound) w->a->bound = bound;
}

static int enough(Walk *w, double bound) {
    if (w->a->nodes >= w->q->nodes) return left_out(w, bound), 1;
    w->a->nodes++;
    return 0;
}

static int worst(const Answer *a) {
    int at = 0;
    for (int n = 1; n < a->found; n++)
        if (a->values[n] < a->values[at]) at = n;
    return at;
}

static void keep_best(Walk *w) {
    Answer *a = w->a;
    i64 at = a->found < KEPT ? a->found++ : worst(a), *row = a->members + at * w->q->classes;
    a->values[at] = w->best;
    memset(row, 0, (size_t)w->q->classes * sizeof *row);
    for (i64 n = 0; n < w->size; n++) row[w->best_path[n]]++;
    if (a->found == KEPT) w->limit = a->values[worst(a)];
    left_out(w, w->best);
}

static double cost_at(const double *price, const double *fraction) {
    double cost = 0;
    for (int part = 0; part < WIDTH; part++) cost += price[part] * fraction[part];
    return cost;
}

/* Choose classes for the tasks from `place` on. */
static void fill(Walk *w, i64 place, const i64 *room, double above, double value) {
    const Question *q = w->q;
    if (place == w->size) {
        if (value > w->best) {
            w->best = value;
            memcpy(w->best_path, w->path, (size_t)place * sizeof *w->path);
        }
        return;
    }
    i64 label = w->order[place], from = q->starts[label], run = 0, left[WIDTH];
    if (place && w->order[place - 1] == label)
        for (i64 n = place; n-- && w->path[n] == w->path[place - 1]; run++) from = w->path[n];
    for (i64 c = from; c < q->starts[label + 1]; c++, run = 0) {
        double reached = above + w->above[c], bound = reached + w->rest[place + 1];
        int fits = run < q->most[c] && bound > w->best;
        for (int part = 0; part < WIDTH && fits; part++) {
            left[part] = room[part] - q->need[c * WIDTH + part];
            fits = left[part] >= 0;
        }
        if (!fits || enough(w, bound)) continue;
        w->path[place] = c;
        fill(w, place + 1, left, reached, value + w->worth[c]);
    }
}

/* The bound of the multiset at prices, which move to where it may be less. */
static double lowered(Walk *w, double *price) {
    const Question *q = w->q;
    double bound = 0, over[WIDTH], squares = 0;
    for (int part = 0; part < WIDTH; part++) bound += price[part], over[part] = -1.0;
    for (i64 label = 0; label < q->labels; label++) {
        if (!w->count[label]) continue;
        i64 chosen = -1;
        double most = -INFINITY, number = (double)w->count[label];
        for (i64 c = q->starts[label]; c < q->starts[label + 1]; c++) {
            double above = w->worth[c] - cost_at(price, q->fraction + c * WIDTH);
            if (above > most) most = above, chosen = c;
        }
        bound += number * most;
        for (int part = 0; part < WIDTH; part++) over[part] += number * q->fraction[chosen * WIDTH + part];
    }
    for (int part = 0; part < WIDTH; part++) squares += over[part] * over[part];
    double length = (bound - w->limit) / (squares > 1e-12 ? squares : 1e-12);
    for (int part = 0; part < WIDTH; part++) {
        double moved = price[part] + length * over[part];
        price[part] = moved > 0 ? moved : 0;
    }
    return bound;
}

/* Find the best set of the multiset, whose tasks run at `rate`. */
static void choose(Walk *w, const double *rate, double *price) {
    const Question *q = w->q;
    double before[WIDTH], prices[WIDTH], best = INFINITY, start = 0;
    for (i64 label = 0; label < q->labels; label++)
        for (i64 c = q->starts[label]; w->count[label] && c < q->starts[label + 1]; c++)
            w->worth[c] = q->value[c] - q->charge[c] * (1.0 - rate[label]);
    for (int step = 0; step < STEPS; step++) {
        memcpy(before, price, sizeof before);
        double bound = lowered(w, price);
        if (bound < best) best = bound, memcpy(prices, before, sizeof prices);
        if (best <= w->limit) return;
    }
    for (int part = 0; part < WIDTH; part++) start += prices[part];
    w->size = 0;
    for (i64 label = 0; label < q->labels; label++) {
        double most = -INFINITY;
        for (i64 c = q->starts[label]; w->count[label] && c < q->starts[label + 1]; c++) {
            w->above[c] = w->worth[c] - cost_at(prices, q->fraction + c * WIDTH);
            if (w->above[c] > most) most = w->above[c];
        }
        for (i64 n = 0; n < w->count[label]; n++) w->order[w->size] = label, w->rest[w->size++] = most;
    }
    w->rest[w->size] = 0;
    for (i64 n = w->size; n--;) w->rest[n] += w->rest[n + 1];
    w->best = w->limit;
    fill(w, 0, q->capacity, start, 0.0);
    if (w->best > w->limit) keep_best(w);
}

/* The level of prices at which no task that may still join is a bargain. */
static double no_bargain(Walk *w, i64 last, const i64 *room, const double *joining, const double *share) {
    const Question *q = w->q;
    double level = 0;
    for (i64 label = last; label < q->labels; label++) {
        double lost = 1.0 - joining[label];
        for (i64 c = q->starts[label]; w->count[label] < q->tasks[label] && c < q->starts[label + 1]; c++) {
            double worth = q->value[c] - q->charge[c] * lost;
            int fits = worth > level * share[c];
            for (int part = 0; part < WIDTH && fits; part++) fits = q->need[c * WIDTH + part] <= room[part];
            if (fits) level = worth / share[c];
        }
    }
    return level;
}

/* A bound of the multiset and all that include it by workloads from `last` on, and its prices. */
static double bounded(Walk *w, i64 last, const i64 *room, const double *joining, const double *present,
                      double *price) {
    const Question *q = w->q;
    double best = INFINITY;
    for (i64 turn = 0; turn < q->turns; turn++) {
        const double *share = q->shares + turn * q->classes;
        double level = no_bargain(w, last, room, joining, share);
        for (int tried = 0; tried < LEVELS; tried++) {
            double bound = level, used = 0;
            for (i64 label = 0; label < q->labels; label++) {
                if (!w->count[label]) continue;
                double most = -INFINITY, its = 0, lost = 1.0 - present[label], number = (double)w->count[label];
                for (i64 c = q->starts[label]; c < q->starts[label + 1]; c++) {
                    double above = q->value[c] - q->charge[c] * lost - level * share[c];
                    if (above > most) most = above, its = share[c];
                }
                bound += number * most;
                used += number * its;
            }
            if (bound < best) {
                best = bound;
                for (int part = 0; part < WIDTH; part++) price[part] = level * q->directions[turn * WIDTH + part];
            }
            if (best <= w->limit) return best;
            if (used <= 1.0) break;
            level += (bound - w->limit) / (used - 1.0);
        }
    }
    return best;
}

/* What is known of larger sets: the most that tasks run at in any set that includes the multiset,
 * or, if it is `exact`, in the multiset itself. */
static void observe(Walk *w, double *joining, double *present, int exact) {
    const Question *q = w->q;
    for (i64 n = 0; n < q->sets; n++) {
        const i64 *row = q->observed + n * (q->labels + 1);
        i64 its = row[q->labels], equal = 1, within = 1;
        for (i64 label = 0; label < q->labels && within; label++) {
            within = w->count[label] <= row[label];
            equal &= w->count[label] == row[label];
        }
        if (!within) continue;
        if (exact ? equal : q->rates[n] > present[its]) present[its] = q->rates[n];
        if (!exact && w->count[its] < row[its] && q->rates[n] > joining[its]) joining[its] = q->rates[n];
    }
}

/* Go through the multisets that include this one by more tasks of workloads from `last` on. */
static void widen(Walk *w, i64 last, i64 depth, const i64 *room, double outer) {
    const Question *q = w->q;
    i64 labels = q->labels, left[WIDTH];
    const double *joining = q->joining + depth * labels, *present = q->present + depth * labels;
    double *slower = q->joining + (depth + 1) * labels, *among = q->present + (depth + 1) * labels;
    double *joins = q->joining + (DEEPEST + 1) * labels, *rate = q->present + (DEEPEST + 1) * labels;
    double price[WIDTH];
    size_t row = (size_t)labels * sizeof(double);
    if (depth == DEEPEST) return left_out(w, outer);
    for (i64 label = last; label < labels; label++) {
        int fits = w->count[label] < q->tasks[label];
        for (int part = 0; part < WIDTH && fits; part++) {
            left[part] = room[part] - q->least[label * WIDTH + part];
            fits = left[part] >= 0;
        }
        if (!fits) continue;
        if (enough(w, outer)) return;
        for (i64 n = 0; n < labels; n++) {
            double pair = q->pairs[n * labels + label];
            slower[n] = joining[n] * pair;
            among[n] = n == label && !w->count[n] ? joining[n] : present[n] * pair;
        }
        w->count[label]++;
        memcpy(joins, slower, row), memcpy(rate, among, row);
        observe(w, joins, rate, 0);
        double bound = bounded(w, label, left, joins, rate, price);
        if (bound > outer) bound = outer;
        if (bound > w->limit) {
            memcpy(rate, among, row);
            observe(w, joins, rate, 1);
            choose(w, rate, price);
        }
        if (bound > w->limit) widen(w, label, depth + 1, left, bound);
        w->count[label]--;
    }
}

void multisets(const Question *q, Answer *a) {
    Walk w = {.q = q, .a = a, .limit = q->limit, .worth = q->worth, .above = q->above, .count = q->count};
    for (i64 label = 0; label < q->labels; label++)
        q->joining[label] = q->present[label] = 1.0, q->count[label] = 0;
    a->bound = q->limit, a->nodes = a->found = 0;
    widen(&w, 0, 0, q->capacity, q->whole);
}
