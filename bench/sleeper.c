/* sleeper.c - see sleeper.h. */
#include "sleeper.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;

static void *sleep_on(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&sleeping);
    pthread_mutex_unlock(&sleeping);
    return NULL;
}

bool sleeper_start(void)
{
    pthread_mutex_lock(&sleeping);
    if (pthread_create(&thread, NULL, sleep_on, NULL) == 0)
        return true;
    pthread_mutex_unlock(&sleeping);
    return false;
}

void sleeper_end(void)
{
    pthread_mutex_unlock(&sleeping);
    pthread_join(thread, NULL);
}
