/* trainyard-executor: one host's agent. */
#include "base/clock.h"
#include "base/log.h"
#include "executor/agent/agent.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempts.h"
#include "executor/agent/devices.h"
#include "executor/agent/libraries.h"
#include "executor/agent/options.h"
#include "executor/agent/report.h"
#include "executor/agent/sample.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    LEAVE_LOOK_MS = 20,
    LEAVE_MOST_MS = 5000, /* workers have two seconds, the last records the rest; then the spool keeps them */
};

/* ---- leaving ---- */

struct program {
    struct agent agent;
    struct reactor_watch signals;
    struct reactor_timer leave;
    int64_t leave_by_ms;
    bool left;
};

static void leave_fire(void *ctx) {
    struct program *p = ctx;
    bool late = clock_mono_ms() >= p->leave_by_ms;
    bool told = attempts_running(p->agent.attempts) == 0 &&
                (report_drained(p->agent.report) || !attach_attached(p->agent.attach));
    if (!p->left && (told || late)) {
        p->left = true;
        attach_leave(p->agent.attach);
    }
    if (late || (p->left && attach_gone(p->agent.attach)))
        reactor_quit(p->agent.loop);
    else
        reactor_timer_set(p->agent.loop, &p->leave, LEAVE_LOOK_MS);
}

static void signal_ready(void *ctx, uint32_t events) {
    (void)events;
    struct program *p = ctx;
    struct signalfd_siginfo info;
    if (read(p->signals.fd, &info, sizeof info) != sizeof info || p->agent.leaving)
        return;
    log_event(LOG_INFO, "leaving", "signal", LOG_INT(info.ssi_signo), "workers",
              LOG_INT((int64_t)attempts_running(p->agent.attempts)), NULL);
    p->agent.leaving = true;
    p->leave_by_ms = clock_mono_ms() + LEAVE_MOST_MS;
    samples_stop_all(p->agent.samples);
    attempts_leave(p->agent.attempts);
    reactor_timer_set(p->agent.loop, &p->leave, 0);
}

/* ---- from start to end ---- */

/* Whoever started this program may wait for the line. */
static void ready_print(const struct agent *agent) {
    static bool printed;
    if (!printed)
        printf("ready %s\n", directory_id(agent->directory));
    fflush(stdout);
    printed = true;
}

/* Blocked in every thread from here on; workers get an empty mask. */
static status_t signals_open(sigset_t *ret, struct err *e) {
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGHUP);
    errno = pthread_sigmask(SIG_BLOCK, ret, NULL);
    return errno ? err_errno(e, "block signals") : ST_OK;
}

static status_t parent_watch(long parent, struct err *e) {
    if (parent == 0)
        return ST_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
        return err_errno(e, "ask for a signal at the parent's death");
    return getppid() == parent ? ST_OK : err_set(e, ST_UNAVAILABLE, "the parent process %ld is gone already", parent);
}

/* GPUs that workers cannot use are not offered: why stands where else the driver's absence does. */
static void libraries_need(struct agent *agent) {
    struct inventory *inv = &agent->inventory;
    struct libraries found;
    struct err why;
    if (inv->n_devices == 0)
        return;
    if (libraries_check(agent->options->worker, agent->options->library_path, LIBRARIES_MOST_MS, &found, &why) ==
        ST_OK) {
        inv->devices_lone = found.lone;
        snprintf(inv->device_reason, sizeof inv->device_reason, "%s", found.without);
        return;
    }
    snprintf(inv->device_reason, sizeof inv->device_reason, "%d GPU%s, which workers cannot use: %.400s",
             inv->n_devices, inv->n_devices == 1 ? "" : "s", why.msg);
    inv->n_devices = 0;
    agent->nvml = nvml_close(agent->nvml);
}

static status_t agent_open(struct program *p, const struct options *o, const sigset_t *signals, struct err *e) {
    struct agent *agent = &p->agent;
    agent->options = &o->agent;
    agent->attached = ready_print;
    inventory_take(&agent->inventory, o->agent.slots, o->agent.nvml, o->agent.gpu_part, &agent->nvml);
    libraries_need(agent);
    TRY(directory_open(o->agent.directory, &agent->directory, e));
    TRY(reactor_open(&agent->loop, e));
    p->signals = (struct reactor_watch){ .fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK),
                                         .ready = signal_ready,
                                         .ctx = p };
    p->leave = (struct reactor_timer){ .fire = leave_fire, .ctx = p };
    if (p->signals.fd < 0)
        return err_errno(e, "open the signals");
    TRY(reactor_watch_add(agent->loop, &p->signals, EPOLLIN, e));
    char spool[PATH_MAX];
    if (snprintf(spool, sizeof spool, "%s/spool", directory_path(agent->directory)) >= (int)sizeof spool)
        return err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
    TRY(spool_open(spool, o->agent.spool_bytes, &agent->spool, e));
    for (size_t i = 0; i < spool_count(agent->spool); i++)
        if (spool_log_damage(spool_at(agent->spool, i)))
            log_event(LOG_ERROR, "spool_damaged", "message", LOG_STR(spool_log_damage(spool_at(agent->spool, i))),
                      NULL);
    TRY(devices_open(agent, &agent->devices, e));
    TRY(attempts_open(agent, &agent->attempts, e));
    TRY(samples_open(agent, &agent->samples, e));
    TRY(attach_open(agent, &agent->attach, e));
    return report_open(agent, &agent->report, e);
}

static void agent_close(struct program *p) {
    struct agent *agent = &p->agent;
    agent->samples = samples_close(agent->samples);
    agent->attempts = attempts_close(agent->attempts);
    agent->devices = devices_close(agent->devices);
    agent->nvml = nvml_close(agent->nvml);
    agent->report = report_close(agent->report);
    agent->attach = attach_close(agent->attach);
    agent->spool = spool_close(agent->spool);
    closep(&p->signals.fd);
    agent->loop = reactor_close(agent->loop);
    agent->directory = directory_close(agent->directory);
}

int main(int argc, char **argv) {
    struct options o;
    struct program p = { .signals.fd = -1 };
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
    status_t st = signals_open(&signals, &why);
    if (st == ST_OK)
        st = parent_watch(o.parent_pid, &why);
    if (st == ST_OK)
        st = agent_open(&p, &o, &signals, &why);
    if (st == ST_OK) {
        log_event(LOG_INFO, "started", "executor", LOG_STR(directory_id(p.agent.directory)), "incarnation",
                  LOG_INT(directory_incarnation(p.agent.directory)), "slots", LOG_INT(p.agent.inventory.slots),
                  "devices", LOG_INT(p.agent.inventory.n_devices), "device_reason",
                  LOG_STR(p.agent.inventory.device_reason), NULL);
        st = reactor_run(p.agent.loop, &why);
    }
    agent_close(&p);
    if (st != ST_OK) {
        fprintf(stderr, "trainyard-executor: %s\n", why.msg);
        return 1;
    }
    return 0;
}
