/* weir_fetch.h - the command `weir fetch`: reads columns that `weir share` serves, and
 * adds to them. */
#ifndef WEIR_FETCH_H
#define WEIR_FETCH_H

void fetch_help(void);

/* argv[0] is the name of the program, the arguments follow. Returns the exit status. */
int fetch_main(int argc, char **argv);

#endif
