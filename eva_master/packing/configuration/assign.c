/* The assignment problem by shortest augmenting paths, step by step as in SciPy's
 * `linear_sum_assignment`, ties included; included by kernel.c. */

/* Duals, the tree of shortest paths, and the assignment so far: by row, or by column. */
typedef struct {
    i64 rows, columns;
    const double *cost; /* a row of columns for each row */
    double *row_dual, *column_dual, *shortest;
    i64 *from, *row_of, *open, *column_of;
    char *row_seen, *column_seen;
} Assigning;

/* Grow shortest paths from a row until one ends at a free column; returned is that column, and in
 * `length` the path's. Of columns as near the last free one is taken, or else the first one. */
static i64 free_column(Assigning *a, i64 row, double *length) {
    i64 open = a->columns;
    double least = 0;
    for (i64 n = 0; n < open; n++) a->open[n] = open - n - 1, a->shortest[n] = INFINITY;
    memset(a->row_seen, 0, (size_t)a->rows);
    memset(a->column_seen, 0, (size_t)a->columns);
    for (;;) {
        i64 nearest = 0;
        double lowest = INFINITY;
        a->row_seen[row] = 1;
        for (i64 n = 0; n < open; n++) {
            i64 column = a->open[n];
            double path = least + a->cost[row * a->columns + column] - a->row_dual[row] - a->column_dual[column];
            if (path < a->shortest[column]) a->shortest[column] = path, a->from[column] = row;
            path = a->shortest[column];
            if (path < lowest || (path == lowest && a->row_of[column] < 0)) lowest = path, nearest = n;
        }
        i64 column = a->open[nearest];
        least = lowest;
        a->column_seen[column] = 1;
        a->open[nearest] = a->open[--open];
        if (a->row_of[column] < 0) {
            *length = least;
            return column;
        }
        row = a->row_of[column];
    }
}

/* Choose a column for each row, at the least cost; there are at least as many columns, and all costs
 * are finite. Returned is 1 if there is too little memory. */
int assign(i64 rows, i64 columns, const double *cost, i64 *chosen) {
    size_t r = (size_t)rows, c = (size_t)columns;
    char *memory = calloc(r * 9 + c * 41, 1);
    if (memory == NULL) return 1;
    double *floats = (double *)memory;
    i64 *whole = (i64 *)(floats + r + 2 * c);
    char *marks = (char *)(whole + 3 * c);
    Assigning a = {rows, columns, cost, floats, floats + r, floats + r + c, whole, whole + c, whole + 2 * c,
                   chosen, marks, marks + r};
    for (i64 n = 0; n < columns; n++) a.row_of[n] = -1;
    for (i64 n = 0; n < rows; n++) chosen[n] = -1;
    for (i64 row = 0; row < rows; row++) {
        double length;
        i64 column = free_column(&a, row, &length);
        a.row_dual[row] += length;
        for (i64 n = 0; n < rows; n++)
            if (a.row_seen[n] && n != row) a.row_dual[n] += length - a.shortest[chosen[n]];
        for (i64 n = 0; n < columns; n++)
            if (a.column_seen[n]) a.column_dual[n] -= length - a.shortest[n];
        for (i64 last = -1; last != row;) {
            last = a.row_of[column] = a.from[column];
            i64 before = chosen[last];
            chosen[last] = column, column = before;
        }
    }
    free(memory);
    return 0;
}
