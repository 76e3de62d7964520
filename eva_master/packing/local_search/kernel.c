/* The local search of reference.py over plain arrays: the same decisions, bit for bit.
 *
 * Everything but the loads is made for one search. Costs are int64, in millionths of micro-dollars
 * per hour.
 */

#include "loads.c"

#include "../greedy/best.c"

#include "../lp/pricing/knapsack.c"
#include "../lp/pricing/multisets.c"
#include "../configuration/assign.c"

#define STALLED 100
#define CHOICE_DRAWS 16
#define ORDER_DRAWS 24
#define DRAWS (CHOICE_DRAWS + ORDER_DRAWS)
#define MOST_DISMANTLED 5

enum { LOAD, CANDIDATE, MEMBERS, TAKEN, KINDS }; /* of work, see round_work.py */

/* ---- a search ---- */

typedef struct { i32 gang, class_, count; } Members;
typedef struct { i32 ppm, count; } Figure;
typedef ARRAY(Figure) Figures;
typedef ARRAY(Members) MemberList;

typedef struct {
    i32 offering; /* -1: a new instance, of the cheapest offering for its load */
    i32 empty, load, kept, staying, trial, entered; /* entered: when, of those in use */
    i64 price, paid;
    Ints movable;
    MemberList members;
} Slot;

typedef struct {
    i64 cost;
    i32 rank, slot, load, gangs; /* gangs: the load afterwards if gangs lose by it, or -1 */
} Vacancy;

typedef struct { i32 examined; ARRAY(Vacancy) all; } Vacancies;

typedef struct {
    i32 slot, load;
    Ints movable;
    MemberList members;
} Before;

typedef struct {
    /* Shapes. */
    i32 runs, groups, slots, classes, families, offerings, buyable, iterations;
    /* By task run. */
    const i32 *class_, *group, *home, *place;
    const u64 *movable;
    const i64 *share, *ends;
    /* By group. */
    const i64 *move_cost, *charge;
    /* By instance: offering or -1, load, load of what stays. */
    const i32 *offering, *load, *staying;
    const i64 *price;
        /* By offering: launches left or -1, its family, boot time. */
    const i64 *limit, *new_cost, *boot_ms;
    const i32 *family_of;
    /* Offerings that can be bought, cheapest first: cost and number. */
    const i64 *buyable_cost;
    const i32 *buyable_number;
    const double *draws;
    const i64 *weights;
    i32 round, any_ends;
} Input;

typedef struct {
    i64 total, left, done[KINDS];
    i32 met, tried, kept, used; /* used: instances in `order` */
    i32 *place;                 /* by task run */
    i32 *order, *order_load;    /* the instances, at most slots + runs */
    i32 most;
} Output;

typedef struct {
    const Input *in;
    Loads *loads;
    i64 total, left, done[KINDS];
    i32 met, fault;
    Slot *slot;
    i32 slots, slots_room, entered;
    Ints order, kept, spare; /* instances in use; kept ones; numbers of instances to use again */
    i32 *place, *away, *fresh;
    i64 *gang_loss;
    Figures *progress;
    Vacancies *vacancies;
    /* The trial. */
    i32 trial;
    Ints pool, pool_place, pool_away, opened, options, used, now, then;
    ARRAY(Before) before;
    i32 befores; /* how many of `before` are of this trial */
} Search;

static void spend(Search *s, i32 kind, i64 count) {
    i64 work = s->in->weights[kind] * count;
    s->left -= work < s->left ? work : s->left;
    s->done[kind] += count;
}

static Load *load_at(Search *s, i32 load) { return &s->loads->loads.at[load]; }

static i32 progress_of(Search *s, i32 load, i32 class_) {
    const Load *held = load_at(s, load);
    const Progress *all = s->loads->progress.at + held->progress;
    for (i32 n = 0; n < held->members; n++)
        if (all[n].class_ == class_) return all[n].ppm;
    return MILLION;
}

static i64 lost(Search *s, i32 load) {
    if (load_at(s, load)->lost < 0 && !price(s->loads, load))
        s->fault = NO_MEMORY, s->left = 0, load_at(s, load)->lost = 0;
    return load_at(s, load)->lost;
}

static i32 more(Search *s, i32 load, i32 class_) {
    i32 larger = loads_more(s->loads, load, class_);
    if (larger < 0) s->fault = NO_MEMORY, s->left = 0;
    return larger;
}

/* The load with one task more, counted once a round; -1 if no more loads may be met. */
static i32 meet(Search *s, i32 load, i32 class_) {
    i32 larger = more(s, load, class_);
    if (larger < 0) return -1;
    Load *met = load_at(s, larger);
    if (met->round != s->in->round) {
        if (s->left <= 0) return -1;
        spend(s, LOAD, 1);
        s->met++, met->round = s->in->round;
    }
    return larger;
}

static int fits(Search *s, i32 load, const Slot *slot) {
    if (slot->offering < 0) return load_at(s, load)->any;
    return s->loads->fits.at[(size_t)load * s->loads->words + (slot->offering >> 6)] >> (slot->offering & 63) & 1;
}

/* -- gangs -- */

static void change_progress(Search *s, i32 gang, i32 before, i32 after, i32 members) {
    if (before == after) return;
    Figures *figures = &s->progress[gang];
    i32 n = 0;
    while (figures->at[n].ppm != before) n++;
    if (!(figures->at[n].count -= members)) {
        memmove(figures->at + n, figures->at + n + 1, (size_t)(figures->n - n - 1) * sizeof(Figure));
        figures->n--;
    }
    for (n = 0; n < figures->n && figures->at[n].ppm < after; n++) {}
    if (n < figures->n && figures->at[n].ppm == after) {
        figures->at[n].count += members;
        return;
    }
    if (!PUSH(*figures, (Figure){0, 0})) { s->fault = NO_MEMORY, s->left = 0; return; }
    memmove(figures->at + n + 1, figures->at + n, (size_t)(figures->n - n - 1) * sizeof(Figure));
    figures->at[n] = (Figure){after, members};
}

static i64 loss_of(Search *s, i32 gang, i32 slowest) {
    return s->in->charge[gang] * (MILLION - slowest);
}

static void update_gang(Search *s, i32 gang) {
    i64 cost = loss_of(s, gang, s->progress[gang].at[0].ppm);
    s->total += cost - s->gang_loss[gang];
    s->gang_loss[gang] = cost;
}

static void join(Search *s, Slot *slot, i32 gang, i32 class_, i32 count) {
    MemberList *members = &slot->members;
    i32 n = 0;
    while (n < members->n && (members->at[n].gang != gang || members->at[n].class_ != class_)) n++;
    if (n < members->n) members->at[n].count += count;
    else if (!PUSH(*members, (Members){gang, class_, count})) { s->fault = NO_MEMORY, s->left = 0; return; }
    change_progress(s, gang, MILLION, progress_of(s, slot->load, class_), count);
    update_gang(s, gang);
}

static void leave(Search *s, Slot *slot, i32 gang, i32 class_, i32 count) {
    MemberList *members = &slot->members;
    i32 n = 0;
    while (members->at[n].gang != gang || members->at[n].class_ != class_) n++;
    if (!(members->at[n].count -= count)) members->at[n] = members->at[--members->n];
    change_progress(s, gang, progress_of(s, slot->load, class_), MILLION, count);
    update_gang(s, gang);
}

/* How much more gangs lose if a task run is put on an instance. */
static i64 gangs_lose(Search *s, i32 run, const Slot *slot, i32 after) {
    i32 group = s->in->group[run], class_ = s->in->class_[run], here = slot->members.n;
    const Members *all = slot->members.at;
    i64 worse = 0;
    spend(s, MEMBERS, here + 1);
    s->now.n = s->then.n = 0;
    for (i32 n = 0; n < here; n++)
        if (!PUSH(s->now, progress_of(s, slot->load, all[n].class_))
            || !PUSH(s->then, progress_of(s, after, all[n].class_)))
            return s->fault = NO_MEMORY, s->left = 0;
    for (i32 first = s->in->charge[group] > 0 ? -1 : 0; first < here; first++) {
        i32 gang = first < 0 ? group : all[first].gang, slowest = MILLION + 1, f = 0;
        int joining = s->in->charge[group] > 0 && gang == group, again = first >= 0 && joining;
        for (i32 n = 0; n < first && !again; n++) again = all[n].gang == gang;
        if (again) continue;
        if (joining) slowest = progress_of(s, after, class_);
        const Figures *figures = &s->progress[gang];
        for (; f < figures->n; f++) { /* the slowest of the members elsewhere */
            i32 ppm = figures->at[f].ppm, count = joining && ppm == MILLION;
            for (i32 n = 0; n < here; n++)
                if (all[n].gang == gang && s->now.at[n] == ppm) count += all[n].count;
            if (count != figures->at[f].count) break;
        }
        if (f < figures->n && figures->at[f].ppm < slowest) slowest = figures->at[f].ppm;
        for (i32 n = 0; n < here; n++)
            if (all[n].gang == gang && s->then.at[n] < slowest) slowest = s->then.at[n];
        worse += loss_of(s, gang, slowest) - s->gang_loss[gang];
    }
    return worse;
}

/* -- one task run -- */

static i64 most(i64 a, i64 b) { return a > b ? a : b; }

static void hold(Search *s, Slot *slot, i32 load) {
    i64 after_lost = lost(s, load);
    const Load *before = load_at(s, slot->load), *after = load_at(s, load);
    i64 cost;
    if (slot->offering < 0) cost = most(after->new_cost, slot->paid) - most(before->new_cost, slot->paid);
    else cost = ((load != slot->empty) - (slot->load != slot->empty)) * (slot->price - slot->paid);
    s->total += cost + after_lost - before->lost;
    i32 was = slot->load;
    slot->load = load;
    for (i32 n = 0; n < slot->members.n; n++) {
        Members m = slot->members.at[n];
        change_progress(s, m.gang, progress_of(s, was, m.class_), progress_of(s, load, m.class_), m.count);
    }
    for (i32 n = 0; n < slot->members.n; n++) update_gang(s, slot->members.at[n].gang);
}

static void put(Search *s, i32 run, i32 number) {
    Slot *slot = &s->slot[number];
    i32 class_ = s->in->class_[run], group = s->in->group[run], home = s->in->home[run];
    i32 load = more(s, slot->load, class_);
    if (load < 0) return;
    s->place[run] = number;
    if (!PUSH(slot->movable, run)) { s->fault = NO_MEMORY, s->left = 0; return; }
    hold(s, slot, load);
    if (s->in->charge[group]) join(s, slot, group, class_, 1);
    if (home >= 0 && home != number && !s->away[group]++) s->total += s->in->move_cost[group];
}

static void take_apart(Search *s, i32 number) {
    Slot *slot = &s->slot[number];
    spend(s, TAKEN, slot->movable.n);
    for (i32 n = 0; n < slot->movable.n; n++) {
        i32 run = slot->movable.at[n], group = s->in->group[run], home = s->in->home[run];
        s->place[run] = -1;
        if (s->in->charge[group]) leave(s, slot, group, s->in->class_[run], 1);
        if (home >= 0 && home != number && !--s->away[group]) s->total -= s->in->move_cost[group];
    }
    if (slot->movable.n) hold(s, slot, slot->staying);
    slot->movable.n = 0;
}

/* What a task run adds on an instance, without its move; NEVER if it does not fit. */
static i64 added(Search *s, const Slot *slot, i32 after, i64 paid) {
    if (!fits(s, after, slot)) return NEVER;
    i64 cost = lost(s, after) - load_at(s, slot->load)->lost;
    const Load *now = load_at(s, slot->load), *then = load_at(s, after);
    if (slot->offering < 0) {
        cost += then->new_cost - now->new_cost;
        if (paid) cost += most(paid - then->new_cost, 0) - most(paid - now->new_cost, 0);
    } else if (slot->load == slot->empty) cost += slot->price - paid;
    return cost;
}

static int by_cost(const void *a, const void *b) {
    const Vacancy *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Kept instances with room for a run of a class, cheapest first; some are outdated. */
static Vacancies *vacancies_for(Search *s, i32 class_) {
    Vacancies *vacancies = &s->vacancies[class_];
    if (vacancies->examined == s->kept.n) return vacancies;
    i32 before = vacancies->all.n;
    for (i32 rank = vacancies->examined; rank < s->kept.n; rank++) {
        i32 number = s->kept.at[rank];
        Slot *slot = &s->slot[number];
        if (slot->kept < 0) continue;
        i32 after = meet(s, slot->kept, class_);
        if (after < 0) break;
        i32 now = slot->load;
        slot->load = slot->kept;
        i64 cost = added(s, slot, after, 0);
        slot->load = now;
        if (cost == NEVER && !fits(s, after, slot)) continue;
        i32 gangs = load_at(s, after)->members ? after : -1;
        if (!PUSH(vacancies->all, (Vacancy){cost, rank, number, slot->kept, gangs})) s->fault = NO_MEMORY, s->left = 0;
    }
    if (vacancies->all.n > before)
        qsort(vacancies->all.at, (size_t)vacancies->all.n, sizeof(Vacancy), by_cost);
    vacancies->examined = s->kept.n;
    return vacancies;
}

/* The instance on which a task run adds the least cost, or -1. */
static i32 cheapest(Search *s, i32 run) {
    i32 group = s->in->group[run], class_ = s->in->class_[run], home = -1, best = -1;
    i64 moving = 0, least = NEVER, seen = 0;
    if (!s->away[group]) {
        home = s->in->home[run];
        moving = home >= 0 ? s->in->move_cost[group] : 0;
    }
    int home_first = moving && s->slot[home].trial != s->trial;
    for (i32 n = home_first ? -1 : 0; n < s->options.n; n++) {
        i32 number = n < 0 ? home : s->options.at[n];
        Slot *slot = &s->slot[number];
        seen++;
        i32 after = meet(s, slot->load, class_);
        if (after < 0) break;
        if (!fits(s, after, slot)) continue;
        i64 cost = added(s, slot, after, slot->paid) + (number != home ? moving : 0);
        if (load_at(s, after)->members) cost += gangs_lose(s, run, slot, after);
        if (cost < least) best = number, least = cost;
    }
    spend(s, CANDIDATE, seen);
    seen = 0;
    Vacancies *vacancies = vacancies_for(s, class_);
    for (i32 n = 0; n < vacancies->all.n; n++) {
        const Vacancy *vacancy = &vacancies->all.at[n];
        const Slot *slot = &s->slot[vacancy->slot];
        seen++;
        if (vacancy->cost + moving >= least) break;
        if (vacancy->load != slot->kept || slot->trial == s->trial) continue;
        i64 whole = vacancy->cost + moving;
        if (vacancy->gangs >= 0) whole += gangs_lose(s, run, slot, vacancy->gangs);
        if (whole < least) best = vacancy->slot, least = whole;
    }
    spend(s, CANDIDATE, seen);
    return best;
}

/* -- instances -- */

static i32 new_slot(Search *s, i32 empty) {
    i32 number;
    if (s->spare.n) {
        number = s->spare.at[--s->spare.n];
        s->slot[number].movable.n = s->slot[number].members.n = 0;
    } else {
        if (!grown((void **)&s->slot, &s->slots_room, s->slots, sizeof(Slot))) return s->fault = NO_MEMORY, s->left = 0, -1;
        number = s->slots++;
        memset(&s->slot[number], 0, sizeof(Slot));
    }
    Slot *slot = &s->slot[number];
    slot->offering = -1, slot->empty = slot->load = slot->staying = empty;
    slot->kept = -1;
    slot->price = slot->paid = 0, slot->trial = 0;
    return number;
}

static int enter_use(Search *s, i32 number) {
    s->slot[number].entered = s->entered++;
    return PUSH(s->order, number);
}

/* An empty new instance of each family. */
static void candidates(Search *s) {
    for (i32 family = 0; family < s->in->families; family++) {
        Slot *slot = &s->slot[s->fresh[family]];
        if (slot->load != slot->empty) {
            i32 number = new_slot(s, family);
            if (number < 0) return;
            s->fresh[family] = number;
        }
    }
}

static i64 cost_of(Search *s, const Slot *slot) {
    return slot->offering < 0 ? load_at(s, slot->load)->new_cost : slot->price;
}

static void count_in_full(Search *s, i32 number) {
    Slot *slot = &s->slot[number];
    if (!slot->paid) return;
    i64 cost = load_at(s, slot->load)->new_cost;
    if (slot->offering < 0) s->total += cost - most(cost, slot->paid);
    else if (slot->load == slot->empty) s->total -= slot->paid;
    slot->paid = 0;
}

static int is_late(Search *s, const Slot *slot) {
    const Load *load = load_at(s, slot->load);
    if (slot->offering >= 0 || slot->load == slot->empty || slot->movable.n < load->size) return 0;
    i64 boot = s->in->boot_ms[load->cheapest];
    for (i32 n = 0; n < slot->movable.n; n++) {
        i64 end = s->in->ends[slot->movable.at[n]];
        if (end >= boot) return 0;
    }
    return 1;
}

static int within_limits(Search *s, i64 *remaining) {
    memcpy(remaining, s->in->limit, (size_t)s->in->offerings * sizeof(i64));
    for (i32 part = 0; part < 2; part++) {
        const Ints *part_of = part ? &s->opened : &s->order;
        for (i32 n = 0; n < part_of->n; n++) {
            const Slot *slot = &s->slot[part_of->at[n]];
            if (s->in->any_ends && is_late(s, slot)) return 0;
            if (slot->offering >= 0 || slot->load == slot->empty) continue;
            i32 offering = load_at(s, slot->load)->cheapest;
            if (remaining[offering] >= 0 && --remaining[offering] < 0) return 0;
        }
    }
    return 1;
}

typedef struct { i64 excess; i32 entered, slot; } Ranked;

static int by_excess(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->excess != y->excess) return x->excess < y->excess ? -1 : 1;
    return x->entered < y->entered ? -1 : x->entered > y->entered;
}

static Ranked ranked_as(Search *s, i32 number) {
    const Slot *slot = &s->slot[number];
    i64 excess = -cost_of(s, slot) - load_at(s, slot->load)->lost;
    for (i32 n = 0; n < slot->movable.n; n++) excess += s->in->share[slot->movable.at[n]];
    return (Ranked){excess, slot->entered, number};
}

/* Instances that can be taken apart, those first that cost most above their contents' worth. */
static i32 rank(Search *s, Ranked *ranked) {
    i32 n = 0;
    for (i32 place = 0; place < s->order.n; place++)
        if (s->slot[s->order.at[place]].movable.n) ranked[n++] = ranked_as(s, s->order.at[place]);
    qsort(ranked, (size_t)n, sizeof *ranked, by_excess);
    return n;
}

/* The ranks after a trial that was kept: of the instances that it touched, others stand. */
static i32 rank_touched(Search *s, Ranked *ranked, i32 count) {
    i32 n = 0;
    for (i32 place = 0; place < count; place++)
        if (s->slot[ranked[place].slot].trial != s->trial) ranked[n++] = ranked[place];
    for (i32 touched = 0; touched < s->befores; touched++) {
        i32 number = s->before.at[touched].slot, first = 0, last = n;
        if (!s->slot[number].movable.n) continue;
        Ranked fresh = ranked_as(s, number);
        while (first < last) {
            i32 middle = (first + last) / 2;
            if (by_excess(&fresh, &ranked[middle]) < 0) last = middle;
            else first = middle + 1;
        }
        memmove(ranked + first + 1, ranked + first, (size_t)(n++ - first) * sizeof *ranked);
        ranked[first] = fresh;
    }
    return n;
}

static void keep(Search *s, i32 number) {
    Slot *slot = &s->slot[number];
    slot->kept = slot->offering < 0 && slot->load == slot->empty ? -1 : slot->load;
    if (!PUSH(s->kept, number)) s->fault = NO_MEMORY, s->left = 0;
}

/* -- a trial -- */

static void touch(Search *s, i32 number) {
    Slot *slot = &s->slot[number];
    if (slot->trial == s->trial) return;
    slot->trial = s->trial;
    if (s->befores == s->before.n && !PUSH(s->before, (Before){0})) goto failed;
    Before *before = &s->before.at[s->befores++];
    before->slot = number, before->load = slot->load;
    before->movable.n = before->members.n = 0;
    for (i32 n = 0; n < slot->movable.n; n++)
        if (!PUSH(before->movable, slot->movable.at[n])) goto failed;
    for (i32 n = 0; n < slot->members.n; n++)
        if (!PUSH(before->members, slot->members.at[n])) goto failed;
    return;
failed:
    s->fault = NO_MEMORY, s->left = 0;
}

static void undo(Search *s, i64 total) {
    for (i32 n = 0; n < s->befores; n++) {
        Slot *slot = &s->slot[s->before.at[n].slot];
        while (slot->members.n) {
            Members m = slot->members.at[slot->members.n - 1];
            leave(s, slot, m.gang, m.class_, m.count);
        }
    }
    for (i32 n = 0; n < s->befores; n++) {
        Before *before = &s->before.at[n];
        Slot *slot = &s->slot[before->slot];
        slot->load = before->load, slot->paid = 0;
        Ints movable = slot->movable;
        slot->movable = before->movable, before->movable = movable;
        for (i32 m = 0; m < before->members.n; m++) {
            Members member = before->members.at[m];
            join(s, slot, member.gang, member.class_, member.count);
        }
    }
    for (i32 n = 0; n < s->pool.n; n++) {
        s->away[s->in->group[s->pool.at[n]]] = s->pool_away.at[n];
        s->place[s->pool.at[n]] = s->pool_place.at[n];
    }
    s->total = total;
}

typedef struct { double size; i32 rank; } Ordered;

static int by_size(const void *a, const void *b) {
    const Ordered *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int has(const Ints *numbers, i32 number) {
    for (i32 n = 0; n < numbers->n; n++)
        if (numbers->at[n] == number) return 1;
    return 0;
}

static int options_anew(Search *s, const i32 *dismantled, i32 count) {
    s->options.n = 0;
    int fine = 1;
    for (i32 n = 0; n < s->opened.n; n++) fine &= PUSH(s->options, s->opened.at[n]);
    for (i32 n = 0; n < count; n++) fine &= PUSH(s->options, dismantled[n]);
    for (i32 n = 0; n < s->used.n; n++) fine &= PUSH(s->options, s->used.at[n]);
    for (i32 n = 0; n < s->in->families; n++) fine &= PUSH(s->options, s->fresh[n]);
    return fine;
}

static int refill(Search *s, const i32 *dismantled, i32 count, i32 bought, const double *noise,
                  i64 limit, Ordered *order) {
    for (i32 n = 0; n < s->pool.n; n++) {
        double size = (double)s->in->share[s->pool.at[n]];
        order[n] = (Ordered){size * (0.8 / 2 - 1 - 0.8 * noise[n % ORDER_DRAWS]), n};
    }
    qsort(order, (size_t)s->pool.n, sizeof *order, by_size);
    candidates(s);
    s->used.n = 0;
    if (!options_anew(s, dismantled, count)) return s->fault = NO_MEMORY, 0;
    for (i32 n = 0; n < s->pool.n; n++) {
        i32 run = s->pool.at[order[n].rank], number = cheapest(s, run);
        if (number < 0 || s->left <= 0) return 0;
        touch(s, number);
        put(s, run, number);
        if (s->fault) return 0;
        int fresh = 0;
        for (i32 family = 0; family < s->in->families; family++) fresh |= s->fresh[family] == number;
        if (fresh) {
            if (!PUSH(s->opened, number)) return s->fault = NO_MEMORY, 0;
            candidates(s);
            if (s->fault || !options_anew(s, dismantled, count)) return s->fault = NO_MEMORY, 0;
        } else if (!has(&s->options, number)) {
            if (!PUSH(s->used, number) || !PUSH(s->options, number)) return s->fault = NO_MEMORY, 0;
        }
        i64 spare = bought >= 0 ? s->slot[bought].paid : 0;
        for (i32 d = 0; d < count; d++) {
            const Slot *slot = &s->slot[dismantled[d]];
            if (slot->offering < 0 || slot->load == slot->empty) spare += slot->paid;
        }
        if (s->total - spare >= limit) return 0;
    }
    return 1;
}

static int try_trial(Search *s, const i32 *dismantled, i32 count, i32 offering, const double *noise,
                     Ordered *order, i64 *remaining) {
    i64 before = s->total;
    i32 bought = -1;
    s->trial++;
    s->befores = s->pool.n = s->pool_place.n = s->pool_away.n = s->opened.n = 0;
    for (i32 d = 0; d < count; d++) {
        const Ints *movable = &s->slot[dismantled[d]].movable;
        for (i32 n = 0; n < movable->n; n++) {
            i32 run = movable->at[n];
            if (!PUSH(s->pool, run) || !PUSH(s->pool_place, dismantled[d])
                || !PUSH(s->pool_away, s->away[s->in->group[run]]))
                return s->fault = NO_MEMORY, 0;
        }
    }
    for (i32 d = 0; d < count; d++) touch(s, dismantled[d]), take_apart(s, dismantled[d]);
    if (offering >= 0) {
        bought = new_slot(s, s->in->family_of[offering]);
        if (bought < 0 || !PUSH(s->opened, bought)) return s->fault = NO_MEMORY, 0;
        s->slot[bought].paid = s->in->new_cost[offering];
        s->total += s->slot[bought].paid;
    }
    int done = !s->fault && refill(s, dismantled, count, bought, noise, before, order);
    if (s->fault) return 0;
    if (bought >= 0) count_in_full(s, bought);
    for (i32 d = 0; d < count; d++) count_in_full(s, dismantled[d]);
    if (done && s->total < before && within_limits(s, remaining)) {
        for (i32 n = 0; n < s->opened.n; n++)
            if (!enter_use(s, s->opened.at[n])) return s->fault = NO_MEMORY, 0;
        for (i32 n = 0; n < s->befores; n++) keep(s, s->before.at[n].slot);
        i32 left = 0;
        for (i32 n = 0; n < s->order.n; n++) {
            const Slot *slot = &s->slot[s->order.at[n]];
            if (slot->offering >= 0 || slot->load != slot->empty) s->order.at[left++] = s->order.at[n];
        }
        s->order.n = left;
        return 1;
    }
    undo(s, before);
    for (i32 n = 0; n < s->opened.n; n++) {
        int fresh = 0;
        for (i32 family = 0; family < s->in->families; family++) fresh |= s->fresh[family] == s->opened.at[n];
        if (!fresh && !PUSH(s->spare, s->opened.at[n])) return s->fault = NO_MEMORY, 0;
    }
    return 0;
}

static i32 above(const i64 *costs, i32 n, i64 cost) {
    i32 first = 0, last = n;
    while (first < last) {
        i32 middle = (first + last) / 2;
        if (cost < costs[middle]) last = middle;
        else first = middle + 1;
    }
    return first;
}

/* An offering that costs about as much as what is taken apart, or less; -1 if none does. */
static i32 offering_for(Search *s, const i32 *dismantled, i32 count, double draw) {
    i64 cost = 0;
    for (i32 d = 0; d < count; d++) cost += cost_of(s, &s->slot[dismantled[d]]);
    i32 first = above(s->in->buyable_cost, s->in->buyable, (i64)((double)cost * 0.25));
    i32 last = above(s->in->buyable_cost, s->in->buyable, (i64)((double)cost * 1.25));
    if (first == last) return -1;
    return s->in->buyable_number[first + (i32)((last - first) * draw)];
}

static i32 chosen(const Ranked *ranked, i32 n, const double **draws, i32 *dismantled) {
    static const double shares[] = {0.1, 0.2, 0.5, 0.8};
    double draw = *(*draws)++;
    i32 size = 1, count = 0;
    for (i32 share = 0; share < 4; share++) size += draw >= shares[share];
    for (; count < size && count < n; count++) {
        draw = *(*draws)++;
        i32 index = (i32)((double)n * (count ? draw : draw * draw));
        for (i32 d = 0; d < count; d++)
            if (ranked[index].slot == dismantled[d]) index = (index + 1) % n, d = -1;
        dismantled[count] = ranked[index].slot;
    }
    return count;
}

static void run_search(Search *s, Output *out, Ranked *ranked, Ranked *alone, Ordered *order,
                       i64 *remaining) {
    i32 n = rank(s, ranked), improved = 0, next_alone = 0;
    i32 alones = n;
    memcpy(alone, ranked, (size_t)n * sizeof *ranked);
    for (i32 trial = 0; trial < s->in->iterations; trial++) {
        if (trial - improved >= STALLED * (i64)n || s->left <= 0) return;
        const double *draws = s->in->draws + (size_t)trial * DRAWS, *noise = draws + CHOICE_DRAWS;
        i32 dismantled[MOST_DISMANTLED], count = 0, bought = -1;
        if (next_alone < alones && *draws++ < 0.5) dismantled[count++] = alone[next_alone++].slot;
        else {
            count = chosen(ranked, n, &draws, dismantled);
            if (*draws++ < 0.5) bought = offering_for(s, dismantled, count, *draws++);
            for (i32 d = 0; d < count; d++)
                if (*draws++ < 0.3) {
                    Slot *slot = &s->slot[dismantled[d]];
                    slot->paid = cost_of(s, slot);
                }
        }
        out->tried++;
        int improvement = try_trial(s, dismantled, count, bought, noise, order, remaining);
        if (s->fault) return;
        if (improvement) {
            out->kept++, improved = trial;
            n = rank_touched(s, ranked, n);
        }
    }
}

static int begin(Search *s) {
    const Input *in = s->in;
    for (i32 number = 0; number < in->slots; number++) {
        i32 made = new_slot(s, load_at(s, in->load[number])->family);
        if (made < 0) return 0;
        Slot *slot = &s->slot[made];
        slot->offering = in->offering[number], slot->price = in->price[number];
        slot->load = in->load[number], slot->staying = in->staying[number];
        lost(s, slot->load), lost(s, slot->staying);
        if (!enter_use(s, made)) return 0;
    }
    for (i32 family = 0; family < in->families; family++) {
        s->fresh[family] = new_slot(s, family);
        if (s->fresh[family] < 0) return 0;
    }
    for (i32 run = 0; run < in->runs; run++) s->progress[in->group[run]].n += in->charge[in->group[run]] > 0;
    for (i32 gang = 0; gang < in->groups; gang++) {
        i32 members = s->progress[gang].n;
        s->progress[gang].n = 0;
        if (members && !PUSH(s->progress[gang], (Figure){MILLION, members})) return 0;
    }
    i64 total = s->total;
    for (i32 run = 0; run < in->runs; run++) {
        i32 group = in->group[run];
        Slot *slot = &s->slot[in->place[run]];
        s->place[run] = in->place[run];
        if (in->home[run] >= 0) s->away[group] += in->home[run] != in->place[run];
        if (in->movable[run >> 6] >> (run & 63) & 1 && !PUSH(slot->movable, run)) return 0;
        if (in->charge[group]) join(s, slot, group, in->class_[run], 1);
    }
    s->total = total; /* the caller's, with all losses */
    for (i32 number = 0; number < in->slots; number++) keep(s, number);
    return !s->fault;
}

int search(Loads *loads, const Input *in, Output *out) {
    Search s = {.in = in, .loads = loads, .total = out->total, .left = out->left};
    size_t runs = (size_t)in->runs + 1, groups = (size_t)in->groups + 1;
    size_t ranks = (size_t)in->slots + runs;
    s.place = malloc(runs * sizeof *s.place), s.away = calloc(groups, sizeof *s.away);
    s.gang_loss = calloc(groups, sizeof *s.gang_loss);
    s.progress = calloc(groups, sizeof *s.progress);
    s.fresh = malloc(((size_t)in->families + 1) * sizeof *s.fresh);
    s.vacancies = calloc((size_t)in->classes + 1, sizeof *s.vacancies);
    Ranked *ranked = malloc(ranks * sizeof *ranked), *alone = malloc(ranks * sizeof *alone);
    Ordered *order = malloc(runs * sizeof *order);
    i64 *remaining = malloc(((size_t)in->offerings + 1) * sizeof *remaining);
    if (!s.place || !s.away || !s.gang_loss || !s.progress || !s.fresh || !s.vacancies || !ranked
        || !alone || !order || !remaining || !begin(&s))
        s.fault = s.fault ? s.fault : NO_MEMORY;
    else run_search(&s, out, ranked, alone, order, remaining);
    if (!s.fault && s.order.n <= out->most) {
        out->total = s.total, out->met = s.met;
        memcpy(out->done, s.done, sizeof s.done);
        out->used = s.order.n;
        memcpy(out->place, s.place, (size_t)in->runs * sizeof *s.place);
        for (i32 n = 0; n < s.order.n; n++) {
            out->order[n] = s.order.at[n];
            out->order_load[n] = s.slot[s.order.at[n]].load;
        }
    }
    for (i32 n = 0; n < s.slots; n++) free(s.slot[n].movable.at), free(s.slot[n].members.at);
    for (i32 n = 0; s.progress && n < in->groups; n++) free(s.progress[n].at);
    for (i32 n = 0; s.vacancies && n < in->classes; n++) free(s.vacancies[n].all.at);
    for (i32 n = 0; n < s.before.n; n++) free(s.before.at[n].movable.at), free(s.before.at[n].members.at);
    free(s.slot), free(s.order.at), free(s.kept.at), free(s.spare.at), free(s.place), free(s.away);
    free(s.fresh), free(s.gang_loss), free(s.progress), free(s.vacancies), free(s.pool.at);
    free(s.pool_place.at), free(s.pool_away.at), free(s.opened.at), free(s.options.at);
    free(s.used.at), free(s.now.at), free(s.then.at), free(s.before.at), free(ranked), free(alone), free(order), free(remaining);
    return s.fault;
}
