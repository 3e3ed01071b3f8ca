/* trainyard-executor: one host's agent. */
#include "base/log.h"
#include "executor/agent/agent.h"
#include "executor/agent/options.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct program {
    struct agent *agent;
    const char *path; /* of this program, or of the one that has replaced its file */
    char **argv;
    struct reactor_watch signals;
    bool draining, leaving;
};

static void reload(struct agent *agent) {
    struct err why;
    if (agent_reload(agent, &why) == ST_OK)
        log_event(LOG_INFO, "reloaded", NULL);
    else
        log_event(LOG_ERROR, "not_reloaded", "reason", LOG_STR(why.msg), NULL);
}

static void signal_ready(void *ctx, uint32_t events) {
    (void)events;
    struct program *p = ctx;
    struct signalfd_siginfo info;
    char name[16];
    if (read(p->signals.fd, &info, sizeof info) != sizeof info || p->leaving)
        return;
    snprintf(name, sizeof name, "SIG%s", sigabbrev_np((int)info.ssi_signo));
    if (info.ssi_signo == SIGHUP) {
        reload(p->agent);
        return;
    }
    if (info.ssi_signo == SIGUSR2) {
        if (!p->draining)
            agent_restart(p->agent, p->path, p->argv);
        return;
    }
    if (info.ssi_signo != SIGUSR1) {
        p->leaving = true;
        agent_leave(p->agent, name);
    } else if (!p->draining) {
        p->draining = true;
        agent_drain(p->agent, name);
    }
}

/* A process that starts this program may wait for the line, and has read it before a restart. */
static void ready_print(const struct agent *agent) {
    static bool printed;
    if (!printed && !agent_host(agent)->handed)
        printf("ready %s\n", directory_id(agent_host(agent)->directory));
    fflush(stdout);
    printed = true;
}

/* The signals are blocked in every thread from here on; workers get an empty mask. */
static status_t signals_open(sigset_t *ret, struct err *e) {
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGHUP);
    sigaddset(ret, SIGQUIT);
    sigaddset(ret, SIGUSR1);
    sigaddset(ret, SIGUSR2);
    errno = pthread_sigmask(SIG_BLOCK, ret, NULL);
    return errno ? err_errno(e, "block signals") : ST_OK;
}

static status_t parent_watch(long parent, struct err *e) {
    if (parent == 0)
        return ST_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
        return err_errno(e, "request a signal at the parent's death");
    return getppid() == parent ? ST_OK : err_set(e, ST_UNAVAILABLE, "the parent process %ld has already ended", parent);
}

static status_t signals_watch(struct program *p, struct reactor *loop, const sigset_t *signals, struct err *e) {
    p->signals = (struct reactor_watch){ .fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK),
                                         .ready = signal_ready,
                                         .ctx = p };
    return p->signals.fd < 0 ? err_errno(e, "open the signals") : reactor_watch_add(loop, &p->signals, EPOLLIN, e);
}

/* Read at the start: after an upgrade the link has the path of a file that is gone. */
static status_t program_path(char ret[PATH_MAX], struct err *e) {
    const ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    if (n < 0)
        return err_errno(e, "read the path of this program");
    ret[n] = '\0';
    return ST_OK;
}

static void started_log(const struct host *host) {
    log_event(LOG_INFO, "started", "executor", LOG_STR(directory_id(host->directory)), "incarnation",
              LOG_INT(directory_incarnation(host->directory)), "slots", LOG_INT(host->inventory.slots), "devices",
              LOG_INT(host->inventory.n_devices), "device_reason", LOG_STR(host->inventory.device_reason), NULL);
}

/* Without what was handed over, the agent starts as after its death, and ends the ranks. */
static Trainyard__Handover__Handover *handed_take(void) {
    Trainyard__Handover__Handover *handed = NULL;
    struct err why;
    if (handover_take(&handed, &why) != ST_OK)
        log_event(LOG_ERROR, "ranks_not_taken_over", "reason", LOG_STR(why.msg), NULL);
    return handed;
}

static status_t agent_run(const struct agent_options *options, char **argv, const sigset_t *signals, struct err *e) {
    CLEANUP(handover_freep) Trainyard__Handover__Handover *handed = handed_take();
    CLEANUP(reactor_closep) struct reactor *loop = NULL;
    char path[PATH_MAX];
    struct program p = { .signals.fd = -1, .path = path, .argv = argv };
    TRY(program_path(path, e));
    TRY(reactor_open(&loop, e));
    status_t st = agent_open(options, loop, handed, ready_print, &p.agent, e);
    if (st == ST_OK)
        st = signals_watch(&p, loop, signals, e);
    if (st == ST_OK) {
        started_log(agent_host(p.agent));
        st = reactor_run(loop, e);
    }
    p.agent = agent_close(p.agent);
    closep(&p.signals.fd);
    return st;
}

int main(int argc, char **argv) {
    struct options o;
    struct err why = { "" };
    sigset_t signals;
    if (options_parse(argc, argv, &o, &why) != ST_OK) {
        fprintf(stderr, "trainyard-executor: %s\n", why.msg);
        return 2;
    }
    if (o.what == OPTIONS_HELP || o.what == OPTIONS_VERSION) {
        fputs(o.what == OPTIONS_HELP ? options_help() : "trainyard-executor " TRAINYARD_VERSION "\n", stdout);
        return 0;
    }
    log_setup(o.format, o.level);
    prctl(PR_SET_DUMPABLE, 0); /* no core dump has a secret of a job, and no program of the same user reads one here */
    status_t st = signals_open(&signals, &why);
    if (st == ST_OK)
        st = parent_watch(o.parent_pid, &why);
    if (st == ST_OK)
        st = agent_run(&o.agent, argv, &signals, &why);
    if (st != ST_OK) {
        fprintf(stderr, "trainyard-executor: %s\n", why.msg);
        return 1;
    }
    return 0;
}
