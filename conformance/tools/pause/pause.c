/* Holds the namespaces of a pod: sleeps until a termination signal, and reaps the children that
 * a shared process namespace leaves to it. */

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number) {
	(void)signal_number;
	_exit(0);
}

static void collect(int signal_number) {
	int saved = errno;
	(void)signal_number;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
	errno = saved;
}

static int on(int signal_number, void (*handler)(int)) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NOCLDSTOP};
	return sigaction(signal_number, &action, 0);
}

int main(void) {
	/* The first process of a namespace is not ended by signals that it does not handle. */
	if (on(SIGINT, end) || on(SIGTERM, end) || on(SIGCHLD, collect)) {
		return 1;
	}
	for (;;) {
		pause();
	}
}
