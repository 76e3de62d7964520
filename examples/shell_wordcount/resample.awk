# Draws as many lines as the text has, with replacement, `resamples` times; counts each draw's words.
# Prints one line per draw: words, distinct words, occurrences of `word`.
{ line[NR] = tolower($0); gsub(/[^a-z' -]/, " ", line[NR]) }
END {
    srand(seed)
    for (draw = 0; draw < resamples; draw++) {
        words = distinct = 0
        split("", count)
        for (i = 0; i < NR; i++) {
            fields = split(line[1 + int(rand() * NR)], field)
            for (j = 1; j <= fields; j++) {
                words++
                if (!count[field[j]]++) distinct++
            }
        }
        print words, distinct, count[word] + 0
    }
}
