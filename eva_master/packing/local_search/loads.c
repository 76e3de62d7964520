/* Loads: sets of tasks on one instance of a family, and their prices, as in load_cache.py.
 *
 * Loads, classes, families and workloads are numbers; the load of a family's empty instance has the
 * family's number. Loads outlive a search. All money is int64, in micro-dollars per hour or in
 * millionths of these; the caller refuses problems whose sums might not fit.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef int32_t i32;
typedef uint64_t u64;
typedef __int128 i128;

#define MILLION 1000000
#define NEVER ((i64)1 << 61)
#define WIDTH 4

enum { FINE = 0, NO_MEMORY = 1 };

/* ---- growing arrays ---- */

#define ARRAY(type) struct { type *at; i32 n, room; }

static int grown(void **at, i32 *room, i32 n, size_t size) {
    if (n < *room) return 1;
    i32 more = *room ? 2 * *room : 8;
    void *moved = realloc(*at, (size_t)more * size);
    if (!moved) return 0;
    *at = moved, *room = more;
    return 1;
}

#define PUSH(array, ...) \
    (grown((void **)&(array).at, &(array).room, (array).n, sizeof *(array).at) \
         ? ((array).at[(array).n++] = (__VA_ARGS__), 1) : 0)

typedef ARRAY(i32) Ints;

/* ---- numbers by hash; a key may be there several times ---- */

typedef struct { u64 key; i32 value; } Entry; /* no key is 0 */

typedef struct {
    Entry *at;
    u64 slots, used;
} Table;

static int table_new(Table *table) {
    table->slots = 1 << 12, table->used = 0;
    table->at = calloc(table->slots, sizeof *table->at);
    return table->at != NULL;
}

static u64 first_place(const Table *table, u64 key) {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) & (table->slots - 1);
}

static u64 next_place(const Table *table, u64 place) { return (place + 1) & (table->slots - 1); }

static void enter(Table *table, u64 key, i32 value) {
    u64 place = first_place(table, key);
    while (table->at[place].key) place = next_place(table, place);
    table->at[place] = (Entry){key, value}, table->used++;
}

static int table_add(Table *table, u64 key, i32 value) {
    if (2 * table->used >= table->slots) {
        Table larger = {.slots = 2 * table->slots};
        larger.at = calloc(larger.slots, sizeof *larger.at);
        if (!larger.at) return 0;
        for (u64 place = 0; place < table->slots; place++)
            if (table->at[place].key) enter(&larger, table->at[place].key, table->at[place].value);
        free(table->at);
        *table = larger;
    }
    return enter(table, key, value), 1;
}

/* Part of a member in the key of a set: keys of sets are sums. */
static u64 mixed(u64 number) {
    number = (number + 1) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 29) * 0x94D049BB133111EBu;
    return number ^ number >> 32;
}

/* ---- loads ---- */

typedef struct {
    i64 lost, new_cost; /* lost: -1 until it is priced */
    i32 round, members, progress; /* progress: where that of its gangs' classes is */
    i32 cheapest, size, family, classes, any; /* classes: where they are, ascending */
    u64 key;
    i64 need[WIDTH];
} Load;

typedef struct { i32 class_, ppm; } Progress;

typedef struct {
    i32 family, number; /* of the offering */
    i64 new_cost, capacity[WIDTH];
} Sized;

/* A task of some class on some family; `need` is negative where it cannot be. */
typedef struct { i64 need[WIDTH], to_family, worth, speed; } ClassFigures;

typedef struct { i32 names, size, workload, ppm; } Observed; /* ppm: -1 once it is gone */

typedef struct { i32 workload, rank, count; i64 worth, ppm; } Shared;

typedef struct {
    ARRAY(Load) loads;
    ARRAY(u64) fits, within; /* within: a bit for each workload, by the last digits of its number */
    ARRAY(Progress) progress;
    Ints classes;
    i32 words, families;
    Table larger, known; /* the load with one task more; loads by what they hold */
    ARRAY(Sized) sized;
    ARRAY(ClassFigures) figures; /* a row of families for each class */
    Ints workload_of;            /* a class */
    i64 lost_ppm, gang_lost_ppm;
    const i64 *pairs; /* throughput beside another one, by the ranks of both */
    const i32 *rank;  /* of a workload among the names */
    i32 ranks, observed_size; /* observed_size: of the largest observed set */
    ARRAY(Observed) observed;
    Ints names;
    Table sets;
    ARRAY(Shared) shared; /* while a load is priced */
    Ints set;
} Loads;

void loads_free(Loads *loads) {
    if (!loads) return;
    free(loads->loads.at), free(loads->fits.at), free(loads->within.at), free(loads->progress.at);
    free(loads->classes.at), free(loads->sized.at), free(loads->figures.at);
    free(loads->workload_of.at), free(loads->observed.at), free(loads->names.at);
    free(loads->shared.at), free(loads->set.at);
    free(loads->larger.at), free(loads->known.at), free(loads->sets.at);
    free(loads);
}

/* What instances of the families cost that can be launched, by offering, each family's together. */
Loads *loads_new(i32 words, i32 families, const Sized *sized, i32 offerings, i64 lost_ppm,
                 i64 gang_lost_ppm) {
    Loads *loads = calloc(1, sizeof *loads);
    if (!loads) return NULL;
    loads->words = words, loads->families = families;
    loads->lost_ppm = lost_ppm, loads->gang_lost_ppm = gang_lost_ppm;
    int fine = table_new(&loads->larger) & table_new(&loads->known) & table_new(&loads->sets);
    for (i32 n = 0; n < offerings; n++) fine &= PUSH(loads->sized, sized[n]);
    for (i32 family = 0; family < families && fine; family++) {
        Load empty = {.cheapest = -1, .any = offerings > 0, .family = family, .key = mixed((u64)family << 32) | 1};
        fine &= PUSH(loads->loads, empty) && PUSH(loads->within, 0);
        for (i32 word = 0; word < words; word++) {
            i32 rest = offerings - 64 * word;
            fine &= PUSH(loads->fits, rest >= 64 ? ~(u64)0 : ((u64)1 << (rest > 0 ? rest : 0)) - 1);
        }
        fine &= table_add(&loads->known, empty.key, family);
    }
    if (!fine) return loads_free(loads), NULL;
    return loads;
}

/* One more class, with its figures on all families. */
int loads_class(Loads *loads, i32 workload, const ClassFigures *figures) {
    int fine = PUSH(loads->workload_of, workload);
    for (i32 family = 0; family < loads->families; family++) fine &= PUSH(loads->figures, figures[family]);
    return fine ? FINE : NO_MEMORY;
}

/* The pairwise throughput from now on; the caller keeps the arrays. */
void loads_pairs(Loads *loads, const i64 *pairs, i32 ranks, const i32 *rank) {
    loads->pairs = pairs, loads->ranks = ranks, loads->rank = rank;
}

static const ClassFigures *figures_of(const Loads *loads, i32 class_, i32 family) {
    return &loads->figures.at[(size_t)class_ * loads->families + family];
}

static const i32 *classes_of(const Loads *loads, const Load *load) {
    return loads->classes.at + load->classes;
}

static int is_set(const Loads *loads, const Load *load, const Load *base, i32 class_) {
    if (load->family != base->family || load->size != base->size + 1) return 0;
    const i32 *all = classes_of(loads, load), *before = classes_of(loads, base);
    i32 n = 0;
    for (; n < base->size && before[n] <= class_; n++)
        if (all[n] != before[n]) return 0;
    return all[n] == class_ && !memcmp(all + n + 1, before + n, (size_t)(base->size - n) * sizeof *all);
}

static int size_load(Loads *loads, Load *load, const Load *base, i32 class_) {
    const ClassFigures *more = figures_of(loads, class_, load->family);
    size_t words = loads->words;
    int fine = 1;
    i32 fits = loads->fits.n;
    for (size_t word = 0; word < words; word++) fine &= PUSH(loads->fits, 0);
    if (more->need[0] < 0 || !base->any || !fine) return fine;
    for (int n = 0; n < WIDTH; n++) load->need[n] = base->need[n] + more->need[n];
    for (i32 n = 0; n < loads->sized.n; n++) {
        const Sized *sized = &loads->sized.at[n];
        if (sized->family != load->family) continue;
        int held = 1;
        for (int part = 0; part < WIDTH; part++) held &= load->need[part] <= sized->capacity[part];
        if (!held) continue;
        load->any = 1;
        loads->fits.at[fits + (sized->number >> 6)] |= (u64)1 << (sized->number & 63);
        if (sized->new_cost < load->new_cost)
            load->new_cost = sized->new_cost, load->cheapest = sized->number;
    }
    return 1;
}

/* The load with one task more, or -1 if there is too little memory. */
i32 loads_more(Loads *loads, i32 number, i32 class_) {
    u64 link = ((u64)(uint32_t)number << 32 | (uint32_t)class_) + 1, place = first_place(&loads->larger, link);
    for (; loads->larger.at[place].key; place = next_place(&loads->larger, place))
        if (loads->larger.at[place].key == link) return loads->larger.at[place].value;
    const Load *base = &loads->loads.at[number];
    u64 key = base->key + (mixed((u64)(uint32_t)class_) & ~(u64)1);
    i32 larger = -1;
    for (place = first_place(&loads->known, key); loads->known.at[place].key; place = next_place(&loads->known, place))
        if (loads->known.at[place].key == key && is_set(loads, &loads->loads.at[loads->known.at[place].value], base, class_)) {
            larger = loads->known.at[place].value;
            break;
        }
    if (larger < 0) {
        Load load = {.lost = -1, .new_cost = NEVER, .cheapest = -1, .key = key, .family = base->family};
        load.size = base->size + 1, load.classes = loads->classes.n;
        i32 before = 0;
        while (before < base->size && classes_of(loads, base)[before] <= class_) before++;
        for (i32 n = 0; n < load.size; n++) { /* the array may move */
            i32 one = n == before ? class_ : classes_of(loads, base)[n - (n > before)];
            if (!PUSH(loads->classes, one)) return -1;
        }
        u64 within = loads->within.at[number] | (u64)1 << (loads->workload_of.at[class_] & 63);
        larger = loads->loads.n;
        if (!size_load(loads, &load, base, class_) || !PUSH(loads->loads, load)
            || !PUSH(loads->within, within) || !table_add(&loads->known, key, larger))
            return -1;
    }
    return table_add(&loads->larger, link, larger) ? larger : -1;
}

/* The load of some classes on a family, or -1 if there is too little memory. */
i32 loads_find(Loads *loads, i32 family, const i32 *classes, i32 size) {
    i32 load = family;
    for (i32 n = 0; n < size && load >= 0; n++) load = loads_more(loads, load, classes[n]);
    return load;
}

i32 loads_family(const Loads *loads, i32 number) { return loads->loads.at[number].family; }

i32 loads_count(const Loads *loads) { return loads->loads.n; }

/* Classes of a load, ascending, and how many they are. */
const i32 *loads_classes(const Loads *loads, i32 number, i32 *size) {
    const Load *load = &loads->loads.at[number];
    *size = load->size;
    return classes_of(loads, load);
}

/* ---- throughput ---- */

/* Observed throughput of a workload in a set, sorted workloads; where it is or would be kept. */
static Observed *seen_in(Loads *loads, const i32 *set, i32 size, i32 workload, u64 *key) {
    *key = mixed((u64)(uint32_t)workload << 32);
    for (i32 n = 0; n < size; n++) *key += mixed((u64)(uint32_t)set[n]);
    *key |= 1;
    u64 place = first_place(&loads->sets, *key);
    for (; loads->sets.at[place].key; place = next_place(&loads->sets, place)) {
        if (loads->sets.at[place].key != *key) continue;
        Observed *seen = &loads->observed.at[loads->sets.at[place].value];
        if (seen->workload == workload && seen->size == size
            && !memcmp(loads->names.at + seen->names, set, (size_t)size * sizeof *set))
            return seen;
    }
    return NULL;
}

/* A workload's throughput was observed in a set: in millionths, -1 if that holds no longer.
 * Pairs are told by `loads_pairs`. */
int loads_observed(Loads *loads, const i32 *set, i32 size, i32 workload, i32 ppm) {
    u64 key;
    Observed *seen = seen_in(loads, set, size, workload, &key);
    if (seen) return seen->ppm = ppm, FINE;
    Observed fresh = {loads->names.n, size, workload, ppm};
    for (i32 n = 0; n < size; n++)
        if (!PUSH(loads->names, set[n])) return NO_MEMORY;
    if (size > loads->observed_size) loads->observed_size = size;
    if (!table_add(&loads->sets, key, loads->observed.n) || !PUSH(loads->observed, fresh)) return NO_MEMORY;
    return FINE;
}

static int holds(const Loads *loads, const Load *load, const i32 *set, i32 size, i32 *rest) {
    if (size > 2 ? load->size != size : load->size < size) return 0;
    memcpy(rest, set, (size_t)size * sizeof *set);
    i32 missing = size;
    const i32 *classes = classes_of(loads, load);
    for (i32 n = 0; n < load->size && missing; n++)
        for (i32 m = 0; m < missing; m++)
            if (rest[m] == loads->workload_of.at[classes[n]]) {
                rest[m] = rest[--missing];
                break;
            }
    return !missing;
}

/* Forget losses that follow from what was observed of a set: of a pair, or of all of a load. */
int loads_forget(Loads *loads, const i32 *set, i32 size) {
    u64 within = 0;
    i32 *rest = malloc(((size_t)size + 1) * sizeof *rest);
    if (!rest) return NO_MEMORY;
    for (i32 n = 0; n < size; n++) within |= (u64)1 << (set[n] & 63);
    for (i32 n = loads->families; n < loads->loads.n; n++)
        if ((loads->within.at[n] & within) == within && holds(loads, &loads->loads.at[n], set, size, rest))
            loads->loads.at[n].lost = -1;
    free(rest);
    return FINE;
}

static i64 rounded_down(i128 value) { return (i64)(value >= 0 ? value / MILLION : -((MILLION - 1 - value) / MILLION)); }

static i64 times(i64 value, i64 ppm) { return rounded_down((i128)value * ppm); }

/* Throughput of one workload of the set that is being priced. */
static i64 throughput(Loads *loads, i32 index, i32 size) {
    const Shared *own = &loads->shared.at[index];
    u64 key;
    if (size != 2 && size <= loads->observed_size) {
        const Observed *seen = seen_in(loads, loads->set.at, size, own->workload, &key);
        if (seen && seen->ppm >= 0) return seen->ppm;
    }
    i64 value = MILLION;
    const i64 *row = loads->pairs + (size_t)own->rank * loads->ranks;
    for (i32 n = 0; n < loads->shared.n; n++) {
        i32 tasks = loads->shared.at[n].count - (n == index);
        if (!tasks) continue;
        i64 pair = row[loads->shared.at[n].rank], power = pair;
        while (--tasks) power = times(power, pair);
        value = times(value, power);
    }
    return value;
}

/* Count a task of a class among the workloads, which are in the order of their names. */
static int share(Loads *loads, i32 class_, i64 worth) {
    i32 workload = loads->workload_of.at[class_], rank = loads->rank[workload], n = loads->shared.n;
    while (n && loads->shared.at[n - 1].rank > rank) n--;
    if (n && loads->shared.at[n - 1].rank == rank) n--;
    else {
        if (!PUSH(loads->shared, (Shared){0})) return 0;
        memmove(loads->shared.at + n + 1, loads->shared.at + n, (size_t)(loads->shared.n - n - 1) * sizeof(Shared));
        loads->shared.at[n] = (Shared){workload, rank, 0, 0, 0};
    }
    loads->shared.at[n].count++, loads->shared.at[n].worth += worth;
    return 1;
}

/* What the tasks of a load lose to each other and to a slow family, and how far gangs get there. */
static int price(Loads *loads, i32 number) {
    Load *load = &loads->loads.at[number];
    const i32 *classes = classes_of(loads, load);
    i64 to_family = 0;
    i128 to_neighbours = 0;
    i32 members = 0;
    loads->shared.n = loads->set.n = 0;
    for (i32 n = 0; n < load->size; n++) {
        const ClassFigures *figures = figures_of(loads, classes[n], load->family);
        if (!share(loads, classes[n], figures->worth)) return 0;
        to_family += figures->to_family;
        members += figures->speed >= 0 && (!n || classes[n - 1] != classes[n]);
        i32 workload = loads->workload_of.at[classes[n]], place = loads->set.n;
        if (!PUSH(loads->set, workload)) return 0;
        for (; place && loads->set.at[place - 1] > workload; place--)
            loads->set.at[place] = loads->set.at[place - 1], loads->set.at[place - 1] = workload;
    }
    for (i32 n = 0; n < loads->shared.n; n++) {
        Shared *shared = &loads->shared.at[n];
        shared->ppm = throughput(loads, n, load->size);
        to_neighbours += (i128)shared->worth * (MILLION - shared->ppm);
    }
    load->lost = to_family * MILLION + rounded_down(to_neighbours * loads->lost_ppm);
    if (members > load->members) {
        load->progress = loads->progress.n;
        for (i32 n = 0; n < members; n++)
            if (!PUSH(loads->progress, (Progress){0, 0})) return 0;
    }
    load->members = 0;
    for (i32 n = 0; n < load->size; n++) {
        const ClassFigures *figures = figures_of(loads, classes[n], load->family);
        if (figures->speed < 0 || (n && classes[n - 1] == classes[n])) continue;
        i64 ppm = MILLION, workload = loads->workload_of.at[classes[n]];
        for (i32 m = 0; m < loads->shared.n; m++)
            if (loads->shared.at[m].workload == workload) ppm = loads->shared.at[m].ppm;
        i64 lost = times(figures->speed, MILLION - ppm);
        i64 counted = figures->speed - times(lost, loads->gang_lost_ppm);
        loads->progress.at[load->progress + load->members++] = (Progress){classes[n], (i32)counted};
    }
    return 1;
}
