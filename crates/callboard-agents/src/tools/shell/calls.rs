//! The allow-list of system calls of a confined command.
//!
//! No call kills the process. An allowed call runs; a refused one returns `EPERM`; any other, also of the 32-bit and x32
//! interfaces, returns `ENOSYS`, as an older kernel would, so that programs fall back. `clone3` and `openat2` are among the
//! latter, because their flags and modes are in memory that a filter cannot read. Filters only see numbers, so "of its own" below
//! means the number 0, by which a thread names itself.

use std::collections::BTreeMap;

use libc::{SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, c_long, sock_filter};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The number on every processor; the crate does not have it for all.
const FCHMODAT2: c_long = 452;

/// Calls that are allowed with any arguments.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files and folders: restricted by Landlock.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_statx, libc::SYS_newfstatat, libc::SYS_fstat,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fchmod, libc::SYS_fchmodat,
    FCHMODAT2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_truncate, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_fadvise64, libc::SYS_readahead, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_linkat,
    libc::SYS_unlinkat, libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_getdents64,
    libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_umask, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_dup,
    libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_sync, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs,
    libc::SYS_sync_file_range, libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee,
    libc::SYS_vmsplice, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    libc::SYS_memfd_create, libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr, libc::SYS_listxattr,
    libc::SYS_llistxattr, libc::SYS_flistxattr,
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_msync, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_membarrier, libc::SYS_get_mempolicy, libc::SYS_set_mempolicy, libc::SYS_mbind,
    libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_set_robust_list,
    libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_restart_syscall,
    libc::SYS_sched_yield, libc::SYS_io_setup, libc::SYS_io_destroy, libc::SYS_io_submit, libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_getitimer,
    libc::SYS_setitimer, libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    // Programs, threads and signals: Landlock restricts signals to the command.
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_set_tid_address, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getpgid, libc::SYS_setpgid,
    libc::SYS_getsid, libc::SYS_setsid, libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigqueueinfo, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo, libc::SYS_sigaltstack, libc::SYS_prctl, libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self,
    // Users: without capabilities a thread cannot change its user.
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid,
    libc::SYS_getgroups, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid,
    libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_setgroups, libc::SYS_capget, libc::SYS_capset,
    // Information about the machine and the process.
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getcpu, libc::SYS_getrandom, libc::SYS_getrusage, libc::SYS_getrlimit,
    libc::SYS_getpriority, libc::SYS_ioprio_get, libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_sched_getattr, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_sched_rr_get_interval,
    // Operations on existing sockets: internet sockets, and pairs of streams.
    libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4, libc::SYS_connect,
    libc::SYS_shutdown, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt,
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg,
];

/// Older forms, which some processors lack.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_OLDER: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_chmod, libc::SYS_chown,
    libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat, libc::SYS_rename, libc::SYS_link,
    libc::SYS_unlink, libc::SYS_symlink, libc::SYS_readlink, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_mknod,
    libc::SYS_getdents, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create,
    libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_inotify_init, libc::SYS_fork, libc::SYS_vfork,
    libc::SYS_getpgrp, libc::SYS_alarm, libc::SYS_pause, libc::SYS_time, libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLDER: &[c_long] = &[];

/// Calls that are refused with any arguments: they affect other processes, the machine, or objects that Landlock does not cover.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_process_mrelease, libc::SYS_pidfd_getfd, libc::SYS_kcmp, libc::SYS_migrate_pages, libc::SYS_move_pages,
    // Objects that processes of one user share: keyrings, System V and POSIX objects.
    libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl,
    libc::SYS_shmdt, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop, libc::SYS_semctl, libc::SYS_msgget,
    libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl, libc::SYS_mq_open, libc::SYS_mq_unlink,
    // Namespaces and mounts.
    libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The kernel.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register, libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module,
    libc::SYS_kexec_load, libc::SYS_syslog, libc::SYS_acct, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_reboot,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_settimeofday, libc::SYS_clock_settime,
    libc::SYS_clock_adjtime, libc::SYS_adjtimex, libc::SYS_quotactl, libc::SYS_vhangup, libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Files by other means than paths.
    libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
];

/// The flags of `clone` that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// `CLONE_NEWTIME` shares its bit with the signal argument of `clone`, which is below this value.
const CLONE_NEWTIME: u64 = 0x80;

/// A program with one of these bits runs as its owner or group, also after the command has ended.
const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// Calls that set a mode, and the index of that argument.
const MODES: &[(c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Calls whose mode counts only if their flags create a file, and the indices of flags and mode.
const OPENING: &[(c_long, u8, u8)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

/// The flags that create a file. `O_TMPFILE` includes the bit of `O_DIRECTORY`.
const MAKING: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];

/// The bits of the socket type; the other bits of the argument are flags.
const SOCKET_KIND: u64 = 0xf;

/// Requests that insert characters into a terminal, take control of it, or change how the console works.
#[allow(clippy::unnecessary_cast, reason = "not all C libraries have them as 64 bits")]
const TERMINAL_REQUESTS: [u64; 5] = [
    libc::TIOCSTI as u64,
    libc::TIOCLINUX as u64,
    libc::TIOCSETD as u64,
    libc::TIOCCONS as u64,
    libc::TIOCSCTTY as u64,
];

/// The personalities that change how programs run, without an effect on checks; containers allow the same.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The filters of the system calls of a command, in the order in which the kernel takes them: of two errors it returns that of
/// the last filter.
///
/// # Errors
/// This processor is not known.
pub(super) fn filters() -> Result<Vec<Vec<sock_filter>>, String> {
    let not_listed = program(SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow, allowed()?)?;
    Ok(vec![not_listed, program(SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), refused()?)?])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn allowed() -> Result<Rules, String> {
    let mut rules = any(ALLOWED.iter().chain(ALLOWED_OLDER));
    let conditional = [
        libc::SYS_clone,
        libc::SYS_ioctl,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_setrlimit,
        libc::SYS_prlimit64,
        libc::SYS_setpriority,
        libc::SYS_ioprio_set,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
        libc::SYS_personality,
    ];
    // The second filter determines the arguments with which they are refused.
    rules.extend(any(conditional.iter()));
    Ok(rules)
}

fn refused() -> Result<Rules, String> {
    let mut rules = any(REFUSED.iter());
    let families = [libc::AF_INET, libc::AF_INET6].map(|family| family as u64);
    let others = [
        (libc::SYS_socket, all(families.map(|family| is(0, SeccompCmpOp::Ne, family)))?),
        (libc::SYS_personality, all(PERSONALITIES.map(|kind| is(0, SeccompCmpOp::Ne, kind)))?),
        (libc::SYS_clone, all([is(0, SeccompCmpOp::MaskedEq(CLONE_NEWTIME), CLONE_NEWTIME)])?),
        // Orphans of a command are found by this limit, which has no other effect.
        (libc::SYS_setrlimit, all([is(0, SeccompCmpOp::Eq, libc::RLIMIT_RSS.into())])?),
        (libc::SYS_prlimit64, all([is(1, SeccompCmpOp::Eq, libc::RLIMIT_RSS.into()), is_set(2)])?),
        // The limits of another process or thread.
        (libc::SYS_prlimit64, all([is(0, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_sched_setaffinity, all([is(0, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_sched_setparam, all([is(0, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_sched_setscheduler, all([is(0, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_sched_setattr, all([is(0, SeccompCmpOp::Ne, 0)])?),
        // A process by its id (0 and 1), and not a group or a user.
        (libc::SYS_setpriority, all([is(0, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_setpriority, all([is(1, SeccompCmpOp::Ne, 0)])?),
        (libc::SYS_ioprio_set, all([is(0, SeccompCmpOp::Ne, 1)])?),
        (libc::SYS_ioprio_set, all([is(1, SeccompCmpOp::Ne, 0)])?),
    ];
    let namespaces = (0..u64::BITS).map(|bit| 1 << bit).filter(|flag| NAMESPACES & flag != 0);
    let clones = namespaces.map(|flag| Ok((libc::SYS_clone, all([is(0, SeccompCmpOp::MaskedEq(flag), flag)])?)));
    let requests = TERMINAL_REQUESTS.map(|request| Ok((libc::SYS_ioctl, all([is(1, SeccompCmpOp::Eq, request)])?)));
    // A datagram socket of a pair can be connected to the socket of any program, by its path.
    let pairs = [libc::SOCK_DGRAM, libc::SOCK_RAW]
        .map(|kind| Ok((libc::SYS_socketpair, all([is(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind as u64)])?)));
    let has = |argument, bits| is(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let modes = SET_ID.into_iter().flat_map(|bit| {
        let set = MODES.iter().map(move |(call, mode)| Ok((*call, all([has(*mode, bit)])?)));
        let made = MAKING.into_iter().flat_map(move |flag| {
            OPENING.iter().map(move |(call, flags, mode)| Ok((*call, all([has(*flags, flag), has(*mode, bit)])?)))
        });
        set.chain(made)
    });
    let others = others.into_iter().map(Ok).chain(pairs).chain(modes);
    for rule in others.chain(clones).chain(requests) {
        let (call, rule) = rule.map_err(|error: String| error)?;
        rules.entry(call).or_default().push(rule);
    }
    Ok(rules)
}

fn any<'a>(calls: impl Iterator<Item = &'a c_long>) -> Rules {
    calls.map(|call| (*call, Vec::new())).collect()
}

/// A condition on the lower 32 bits of an argument: the kernel ignores the others.
fn is(argument: u8, compared: SeccompCmpOp, with: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compared, with).map_err(|error| error.to_string())
}

/// A condition that an argument is not a null pointer.
fn is_set(argument: u8) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).map_err(|error| error.to_string())
}

fn all<const N: usize>(conditions: [Result<SeccompCondition, String>; N]) -> Result<SeccompRule, String> {
    let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>()?;
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

fn program(otherwise: SeccompAction, listed: SeccompAction, rules: Rules) -> Result<Vec<sock_filter>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("the filter of system calls is wrong: {error}");
    let architecture = std::env::consts::ARCH.try_into().map_err(|_| "this processor is not known".to_owned())?;
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture).map_err(|error| wrong(&error))?;
    let mut program: BpfProgram = filter.try_into().map_err(|error| wrong(&error))?;
    answer_other_interfaces(&mut program)?;
    let instruction = |it: seccompiler::sock_filter| sock_filter { code: it.code, jt: it.jt, jf: it.jf, k: it.k };
    Ok(program.into_iter().map(instruction).collect())
}

/// The library kills processes that use a 32-bit interface; this replaces the kill by `ENOSYS`, as for other unknown calls.
fn answer_other_interfaces(program: &mut BpfProgram) -> Result<(), String> {
    match program.get_mut(2) {
        Some(instruction) if instruction.k == SECCOMP_RET_KILL_PROCESS => {
            instruction.k = SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
            Ok(())
        }
        _ => Err("the filter of system calls does not begin as expected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_refused() {
        let allowed: BTreeSet<_> = ALLOWED.iter().chain(ALLOWED_OLDER).collect();
        let both: Vec<_> = REFUSED.iter().filter(|call| allowed.contains(call)).collect();
        assert!(both.is_empty(), "{both:?}");
        assert_eq!(allowed.len(), ALLOWED.len() + ALLOWED_OLDER.len(), "each is listed once");
    }
}
