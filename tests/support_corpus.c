/* support_corpus.c - see support_corpus.h. */
#include "support_corpus.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support.h"

#define ANSWERS_MAX 200
#define INPUT_MAX   16384

typedef struct answer {
    char words[80];
} answer;

static bool keeps;
static struct {
    char folder[400];
    const char *suffix;
    size_t count;
    answer answers[ANSWERS_MAX];
} corpus;

void corpus_read_options(int argc, char **argv)
{
    keeps = argc == 2 && strcmp(argv[1], "--keep") == 0;
}

/* ---- answers ---- */

/* How many letters and digits come next; and whether there are digits. */
static size_t word_at(const char *at, bool *has_digits)
{
    size_t length = 0;
    for (*has_digits = false; isalnum((unsigned char)at[length]); length++)
        *has_digits |= isdigit((unsigned char)at[length]) != 0;
    return length;
}

/* Words without numbers and nothing else, so that it is the name of a file, too. */
static answer answer_of(weir_status status)
{
    answer it = { "success" };
    if (status == WEIR_OK)
        return it;
    weir_error last = weir_last_error();
    must_equal(last.status, status);
    size_t end = 0, length;
    for (const char *at = last.message; *at != '\0'; at += length + (length == 0)) {
        bool has_digits;
        length = word_at(at, &has_digits);
        if (length == 0 || has_digits || end + 1 + length >= sizeof it.words)
            continue;
        end += (size_t)snprintf(it.words + end, sizeof it.words - end, "%s%.*s",
                                end == 0 ? "" : "-", (int)length, at);
    }
    return it;
}

static bool is_known(const answer *it)
{
    for (size_t i = 0; i < corpus.count; i++)
        if (strcmp(corpus.answers[i].words, it->words) == 0)
            return true;
    return false;
}

static void remember(const answer *it)
{
    must(corpus.count < ANSWERS_MAX);
    corpus.answers[corpus.count++] = *it;
}

/* ---- files ---- */

static void keep(const answer *it, const uint8_t *input, size_t length)
{
    char path[600];
    (void)mkdir(corpus.folder, 0777);
    snprintf(path, sizeof path, "%s/%s%s", corpus.folder, it->words, corpus.suffix);
    FILE *file = fopen(path, "wb");
    must(file != NULL && fwrite(input, 1, length, file) == length);
    must(fclose(file) == 0);
    printf("kept: %s\n", path);
}

void corpus_must_have(weir_status status, const uint8_t *input, size_t length)
{
    answer it = answer_of(status);
    if (is_known(&it))
        return;
    if (!keeps) {
        fprintf(stderr, "  nothing in %s is answered %s; --keep puts this there\n",
                corpus.folder, it.words);
        must(is_known(&it));
    }
    keep(&it, input, length);
    remember(&it);
}

/* A copy that ends where the input does, so that a read behind it is found. */
static weir_status try_file(const char *path, corpus_try function)
{
    static uint8_t room[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    must(file != NULL);
    size_t length = fread(room, 1, sizeof room, file);
    must(length < sizeof room && fclose(file) == 0);
    uint8_t *input = malloc(length + (length == 0));
    must(input != NULL);
    memcpy(input, room, length);
    weir_status status = function(input, length);
    free(input);
    return status;
}

static int is_input(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), end = strlen(corpus.suffix);
    return length > end && strcmp(entry->d_name + length - end, corpus.suffix) == 0;
}

void corpus_begin(const char *pattern, size_t least, corpus_try function)
{
    struct dirent **entries = NULL;
    const char *star = strchr(pattern, '*');
    must(star != NULL && star > pattern);
    corpus.count = 0;
    corpus.suffix = star + 1;
    snprintf(corpus.folder, sizeof corpus.folder, "%s/tests/corpus/%.*s", WEIR_TOP,
             (int)(star - 1 - pattern), pattern);
    int count = scandir(corpus.folder, &entries, is_input, alphasort);
    must(keeps || (count >= 0 && (size_t)count >= least));
    for (int i = 0; i < count; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", corpus.folder, entries[i]->d_name);
        answer it = answer_of(try_file(path, function));
        if (!is_known(&it))
            remember(&it);
        free(entries[i]);
    }
    free(entries);
}
