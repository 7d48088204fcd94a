/* weir_share.h - the command `weir share`: serves columns on a device to other
 * processes, which read them where they are, and add to them. */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

void share_help(void);

/* argv[0] is the name of the program, the arguments follow. Returns the exit status. */
int share_main(int argc, char **argv);

#endif
