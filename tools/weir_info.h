/* weir_info.h - the command `weir info`. */
#ifndef WEIR_INFO_H
#define WEIR_INFO_H

int info_main(int argc, char **argv);
void info_help(void);

#endif
