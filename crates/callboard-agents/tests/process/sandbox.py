"""Runs inside a confined command: tries each way out, and prints its name and how it ended, one to a line.

Arguments: the process id of the board, a file outside of the folder, a descriptor that the board holds open on it, and a
terminal. Where the kernel let a call through, its arguments do no harm: most are wrong, and answer with another error.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import struct
import socket
import sys

board, outside, descriptor, terminal = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
X32 = 0x40000000
NEW_NS, NEW_USER, NEW_PID, NEW_NET, NEW_IPC, NEW_UTS = (1 << bit for bit in (17, 28, 29, 30, 27, 26))
SIGCHLD = 17


def call(number, *arguments):
    """A system call by its number on x86-64."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *wide) == -1:
        raise OSError(ctypes.get_errno(), "")


def attempt(name, way):
    try:
        way()
        print(name, "DONE")
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))
    except PermissionError:
        print(name, "EPERM")


def calls(**named):
    for name, (number, *arguments) in named.items():
        attempt(name, lambda: call(number, *arguments))


path = outside.encode()
word = ctypes.create_string_buffer(64)
limits = (ctypes.c_ulong * 2)(0, 0)
iovec = (ctypes.c_ulong * 2)(ctypes.addressof(word), 8)

# The terminal.
attempt("open_dev_tty", lambda: os.open("/dev/tty", os.O_RDWR))
attempt("open_ptmx", lambda: os.open("/dev/ptmx", os.O_RDWR))
attempt("open_console", lambda: os.open("/dev/console", os.O_RDWR))
attempt("open_terminal", lambda: os.open(terminal, os.O_RDWR))
attempt("open_terminal_to_read", lambda: os.open(terminal, os.O_RDONLY | os.O_NOCTTY))
for stream in range(3):
    calls(**{f"tiocsti_{stream}": (16, stream, 0x5412, b"y")})
calls(
    tiocsti_high_bits=(16, 0, 0x1_0000_5412, b"y"),
    tioclinux=(16, 0, 0x541C, word),
    tiocsetd=(16, 0, 0x5423, word),
    tioccons=(16, 0, 0x541D, 0),
    tiocsctty=(16, 0, 0x540E, 1),
    tiocspgrp=(16, 0, 0x5410, word),
)

# What is inherited.
attempt("inherited_descriptor", lambda: os.read(descriptor, 1))
attempt("write_inherited_descriptor", lambda: os.write(descriptor, b"H4RM"))

# Other processes.
calls(
    kill_board=(62, board, 0),
    kill_first=(62, 1, 9),
    ptrace_first=(101, 16, 1, 0, 0),
    prlimit_first=(302, 1, 4, limits, 0),
    setpriority_first=(141, 0, 1, 19),
    kill_continue_board=(62, board, 18),
    tkill_board=(200, board, 0),
    tgkill_board=(234, board, board, 0),
    sigqueue_board=(129, board, 0, word),
    ptrace_attach=(101, 16, board, 0, 0),
    ptrace_seize=(101, 0x4206, board, 0, 0),
    ptrace_traceme=(101, 0, 0, 0, 0),
    process_vm_readv=(310, board, iovec, 1, iovec, 1, 0),
    process_vm_writev=(311, board, iovec, 1, iovec, 1, 0),
    process_madvise=(440, 0, iovec, 1, 4, 0),
    process_mrelease=(448, 0, 0),
    pidfd_getfd=(438, 0, 0, 0),
    kcmp=(312, board, os.getpid(), 0, 0, 0),
    migrate_pages=(256, board, 0, 0, 0),
    move_pages=(279, board, 0, 0, 0, 0, 0),
    lower_resident_limit=(160, 5, limits),
    prlimit_resident_limit=(302, 0, 5, limits, 0),
    prlimit_resident_limit_high_bits=(302, 0, 0x1_0000_0005, limits, 0),
    prlimit_board=(302, board, 4, limits, 0),
    prlimit_read_board=(302, board, 1, 0, limits),
    setpriority_board=(141, 0, board, 19),
    setpriority_group=(141, 1, 0, 19),
    setpriority_user=(141, 2, 0, 19),
    ioprio_board=(251, 1, board, 3 << 13),
    ioprio_user=(251, 3, 0, 3 << 13),
    sched_setaffinity_board=(203, board, 8, word),
    sched_setscheduler_board=(144, board, 0, word),
    sched_setparam_board=(142, board, word),
    sched_setattr_board=(314, board, word, 0),
)


def signal_by_pidfd(flags=0):
    libc.syscall.restype = ctypes.c_long
    handle = libc.syscall(434, board, 0)
    if handle == -1:
        raise OSError(ctypes.get_errno(), "")
    call(424, handle, 0, 0, flags)


attempt("pidfd_send_signal_board", signal_by_pidfd)
for name in ("mem", "environ", "maps", "fd/0", "cwd", "root", "exe", "cmdline", "status"):
    attempt("proc_board_" + name.replace("/", "_"), lambda: os.open(f"/proc/{board}/{name}", os.O_RDONLY))
attempt("proc_board_oom", lambda: os.open(f"/proc/{board}/oom_score_adj", os.O_WRONLY))

def sigio(owner):
    """Has the kernel send SIGKILL whenever a pipe can be read; that it was sent is seen by who is no longer there."""
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETOWN, owner)
    fcntl.fcntl(read, getattr(fcntl, "F_SETSIG", 10), signal.SIGKILL)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(write, b"x")
    raise OSError(errno.EINPROGRESS, "")


attempt("sigio_board", lambda: sigio(board))
attempt("sigio_group_of_board", lambda: sigio(-os.getpgid(board)))
attempt("kill_group_of_board", lambda: os.killpg(os.getpgid(board), 0))
attempt("join_group_of_board", lambda: os.setpgid(0, os.getpgid(board)))
attempt("signal_group_by_pidfd", lambda: signal_by_pidfd(4))
calls(
    tgsigqueue_board=(297, board, board, 0, word),
    get_robust_list_board=(274, board, word, word),
    mbind_move_all=(237, 0, 0, 0, 0, 0, 4),
)


def int80(number, *arguments):
    """A call of the 32-bit interface, in a child, since not all kernels have one."""
    child = os.fork()
    if child == 0:
        code = b"\x53\xb8" + struct.pack("<I", number)
        code += b"\xbb" + struct.pack("<I", arguments[0]) + b"\xb9" + struct.pack("<I", arguments[1])
        code += b"\xcd\x80\x5b\xc3"
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        answer = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(-answer if -200 < answer < 0 else 255)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        raise OSError(errno.ENOSYS, "")
    if os.WEXITSTATUS(status) != 255:
        raise OSError(os.WEXITSTATUS(status), "")


attempt("int80_kill_board", lambda: int80(37, board, 0))
attempt("int80_ptrace", lambda: int80(26, 16, board))
attempt("int80_getpid", lambda: int80(20, 0, 0))

# What the processes of a user share.
calls(
    keyctl_user_keyring=(250, 0, -4, 0),
    keyctl_search=(250, 10, -4, b"user", b"key", 0),
    add_key=(248, b"user", b"key", b"H4RM", 4, -4),
    request_key=(249, b"user", b"key", 0, -4),
    shmget=(29, 0, 4096, 0o1600),
    shmat=(30, 0, 0, 0),
    shmctl=(31, 0, 0, 0),
    semget=(64, 0, 1, 0o1600),
    semop=(65, 0, word, 1),
    semctl=(66, 0, 0, 0),
    msgget=(68, 0, 0o1600),
    msgsnd=(69, 0, word, 1, 0),
    msgrcv=(70, 0, word, 1, 0, 0),
    mq_open=(240, b"callboard", os.O_CREAT | os.O_RDWR, 0o600, 0),
    mq_unlink=(241, b"callboard"),
)
attempt("shared_memory_of_others", lambda: os.open(f"/dev/shm/callboard-attack-{board}", os.O_RDWR))

# Sockets.
for family in ("UNIX", "NETLINK", "PACKET", "VSOCK", "ALG", "BLUETOOTH", "CAN", "KEY", "XDP", "TIPC"):
    number = getattr(socket, "AF_" + family, {"XDP": 44, "KEY": 15}.get(family))
    kind = socket.SOCK_RAW if family in ("NETLINK", "PACKET", "KEY", "CAN") else socket.SOCK_STREAM
    attempt("socket_" + family.lower(), lambda: call(41, number, kind, 0))
attempt("socket_unix_high_bits", lambda: call(41, 0x1_0000_0001, 1, 0))
attempt("socket_raw_internet", lambda: call(41, socket.AF_INET, socket.SOCK_RAW, 1))


def datagram(kind, address):
    """A socket of a pair can be connected to another one, if it sends datagrams."""
    socket.socketpair(socket.AF_UNIX, kind)[0].connect(address)


def datagram_to(kind, address):
    socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"H4RM", address)


above = os.path.dirname(outside)
service, abstract = above + "/datagrams", f"\0callboard-attack-{board}"
for kind in ("DGRAM", "RAW"):
    number = getattr(socket, "SOCK_" + kind)
    attempt(f"pair_{kind.lower()}_connect", lambda: datagram(number, service))
    attempt(f"pair_{kind.lower()}_send", lambda: datagram_to(number | socket.SOCK_CLOEXEC, service))
    attempt(f"pair_{kind.lower()}_abstract", lambda: datagram_to(number | socket.SOCK_NONBLOCK, abstract))
attempt("pair_dgram_high_bits", lambda: call(53, 1, 0x1_0000_0002, 0, ctypes.create_string_buffer(8)))
attempt("pair_stream_connect", lambda: datagram(socket.SOCK_STREAM, above + "/streams"))
attempt("pair_seqpacket_connect", lambda: datagram(socket.SOCK_SEQPACKET, above + "/streams"))
internet = socket.socket()
attempt("interface_down", lambda: fcntl.ioctl(internet, 0x8914, struct.pack("16sh14x", b"lo", 0)))
attempt("packet_filter", lambda: internet.setsockopt(socket.SOL_IP, 64, bytes(256)))

# Namespaces and mounts.
for name, flag in dict(ns=NEW_NS, user=NEW_USER, pid=NEW_PID, net=NEW_NET, ipc=NEW_IPC, uts=NEW_UTS).items():
    calls(**{f"unshare_{name}": (272, flag), f"clone_{name}": (56, flag | SIGCHLD, 0, 0, 0, 0)})
calls(
    clone3=(435, word, 64),
    setns=(308, 0, 0),
    mount=(165, b"none", b"/none", b"tmpfs", 0, 0),
    mount_bind=(165, b"/", b"/none", b"", 4096, 0),
    umount2=(166, b"/none", 2),
    pivot_root=(155, b".", b"."),
    chroot=(161, b"."),
    open_tree=(428, -100, b"/", 1),
    move_mount=(429, 0, b"", -100, b"/", 4),
    fsopen=(430, b"tmpfs", 0),
    fspick=(433, -100, b"/", 0),
    mount_setattr=(442, -100, b"/", 0, word, 32),
)

# The kernel.
calls(
    bpf=(321, 0, word, 64),
    perf_event_open=(298, word, 0, -1, -1, 0),
    userfaultfd=(323, 0),
    io_uring_setup=(425, 4, word),
    io_uring_enter=(426, 0, 0, 0, 0, 0, 0),
    io_uring_register=(427, 0, 0, 0, 0),
    init_module=(175, word, 0, b""),
    finit_module=(313, 0, b"", 0),
    delete_module=(176, b"none", 0),
    kexec_load=(246, 0, 0, 0, 0),
    kexec_file_load=(320, 0, 0, 0, 0, 0),
    syslog=(103, 3, word, 8),
    acct=(163, b"/none"),
    swapon=(167, b"/none", 0),
    swapoff=(168, b"/none"),
    reboot=(169, 0xFEE1DEAD, 672274793, 0, 0),
    sethostname=(170, 1, 6),
    setdomainname=(171, 1, 6),
    settimeofday=(164, 1, 0),
    clock_settime=(227, 0, 1),
    adjtimex=(159, 1),
    quotactl=(179, 0, 0, 0, 0),
    vhangup=(153,),
    iopl=(172, 3),
    ioperm=(173, 0, 1, 1),
    modify_ldt=(154, 0, word, 8),
    personality=(135, 0x0400000),
    fanotify_init=(300, 0, 0),
    fanotify_mark=(301, 0, 0, 0, 0, 0),
    name_to_handle_at=(303, -100, path, word, word, 0),
    open_by_handle_at=(304, -100, word, 0),
    lookup_dcookie=(212, 0, word, 8),
    uselib=(134, path),
    remap_file_pages=(216, 0, 0, 0, 0, 0),
    statmount=(457, word, word, 64, 0),
    listmount=(458, word, word, 8, 0),
    quotactl_fd=(443, 0, 0, 0, 0),
    memfd_secret=(447, 0),
    setxattrat=(463, -100, path, 0, b"user.attack", word, 16),
    open_tree_attr=(467, -100, b"/", 1, word, 32),
    file_setattr=(469, -100, path, word, 24, 0),
    unknown_call=(999,),
)

# The other interfaces: x32 numbers.
calls(
    x32_getpid=(X32 | 39,),
    x32_ptrace=(X32 | 521, 16, board, 0, 0),
    x32_ioctl_tiocsti=(X32 | 514, 0, 0x5412, b"y"),
    x32_socket_unix=(X32 | 41, 1, 1, 0),
    x32_open=(X32 | 2, path, 0),
)

# Files outside, and their attributes.
attempt("read_outside", lambda: os.open(outside, os.O_RDONLY))
attempt("write_outside", lambda: os.open(outside, os.O_WRONLY))
attempt("truncate_outside", lambda: os.truncate(outside, 0))
attempt("rename_outside", lambda: os.rename(outside, outside + ".moved"))
attempt("link_outside", lambda: os.link(outside, "linked"))
attempt("unlink_outside", lambda: os.unlink(outside))
attempt("setxattr_outside", lambda: os.setxattr(outside, "user.attack", b"H4RM"))
attempt("removexattr_outside", lambda: os.removexattr(outside, "user.attack"))
attempt("chmod_outside", lambda: os.chmod(outside, 0o777))
attempt("chmod_above", lambda: os.chmod("..", 0o777))
attempt("chmod_by_handle", lambda: os.chmod(os.open(outside, os.O_PATH), 0o777))
attempt("chmod_system", lambda: os.chmod("/usr", 0o777))
attempt("utime_outside", lambda: os.utime(outside, (1, 1)))
attempt("group_outside", lambda: os.chown(outside, -1, os.getgid()))
attempt("chown_outside", lambda: os.chown(outside, 12345, 12345))
attempt("mknod_device", lambda: os.mknod("device", 0o20600, os.makedev(1, 1)))
inside = os.open("inside", os.O_CREAT | os.O_RDWR, 0o600)
attempt("rename_inside_out", lambda: os.rename("inside", above + "/moved"))
attempt("link_inside_out", lambda: os.link("inside", above + "/linked"))
attempt("remove_the_folder", lambda: os.rmdir(os.getcwd()))
attempt("rename_the_folder", lambda: os.rename(os.getcwd(), above + "/renamed"))
os.symlink(outside, "way")
attempt("read_through_link", lambda: os.open("way", os.O_RDONLY))
attempt("write_through_link", lambda: os.open("way", os.O_WRONLY | os.O_TRUNC))
attempt("list_above", lambda: os.listdir(".."))
attempt("make_above", lambda: os.mkdir("../made"))
handle = os.open(outside, os.O_PATH)
attempt("reopen_handle", lambda: os.open(f"/proc/self/fd/{handle}", os.O_RDONLY))
attempt("run_handle", lambda: call(322, handle, b"", 0, 0, 0x1000))
attempt("link_handle", lambda: call(265, handle, b"", -100, b"linked", 0x1000))
attempt("link_handle_by_proc", lambda: os.link(f"/proc/self/fd/{handle}", "linked", follow_symlinks=True))
attempt("freeze_file_system", lambda: fcntl.ioctl(inside, 0xC0045877, 0))
attempt("make_immutable", lambda: fcntl.ioctl(inside, 0x40086602, struct.pack("l", 0x10)))
attempt("write_cgroup", lambda: os.open("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY))
attempt("make_cgroup", lambda: os.mkdir("/sys/fs/cgroup/callboard-attack"))
for device in ("fuse", "kvm", "net/tun", "loop-control", "uinput", "vhost-vsock"):
    attempt("open_" + device.replace("/", "_").replace("-", "_"), lambda: os.open("/dev/" + device, os.O_RDWR))
attempt("own_memory_by_proc", lambda: os.open("/proc/self/mem", os.O_RDWR))
attempt("own_oom_score", lambda: os.open("/proc/self/oom_score_adj", os.O_WRONLY))
attempt("read_shadow", lambda: os.open("/etc/shadow", os.O_RDONLY))
attempt("read_home", lambda: os.listdir("/root"))
attempt("open_mem", lambda: os.open("/dev/mem", os.O_RDONLY))
attempt("open_disk", lambda: os.open("/dev/vda", os.O_RDONLY))
attempt("write_sysctl", lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
attempt("write_sysrq", lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY))
attempt("setuid_other", lambda: os.setuid(12345))
attempt("setgroups_other", lambda: os.setgroups([12345]))
attempt("bind_low_port", lambda: socket.socket().bind(("127.0.0.1", 1)))


def capabilities():
    header, sets = (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()
    call(125, header, sets)
    if not any(sets):
        raise OSError(errno.EPERM, "")


def new_privileges():
    if libc.prctl(39, 0, 0, 0, 0) == 1:
        raise OSError(errno.EPERM, "")


def core_dump():
    import resource

    if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0):
        raise OSError(errno.EPERM, "")


attempt("any_capability", capabilities)
attempt("new_privileges", new_privileges)
attempt("core_dump", core_dump)

# Bits by which a file or a folder outlives the command with its user or group.
for bit in (0o4000, 0o2000):
    kind = "setuid" if bit == 0o4000 else "setgid"
    calls(
        **{
            f"chmod_{kind}": (90, b"inside", bit | 0o755),
            f"fchmod_{kind}": (91, inside, bit | 0o755),
            f"fchmodat_{kind}": (268, -100, b"inside", bit | 0o755),
            f"fchmodat2_{kind}": (452, -100, b"inside", bit | 0o755, 0),
            f"mkdir_{kind}": (83, b"folder", bit | 0o755),
            f"mkdirat_{kind}": (258, -100, b"folder", bit | 0o755),
            f"mknod_{kind}": (133, b"pipe", bit | 0o10755, 0),
            f"mknodat_{kind}": (259, -100, b"pipe", bit | 0o10755, 0),
            f"creat_{kind}": (85, b"made", bit | 0o755),
            f"open_{kind}": (2, b"made", os.O_CREAT | os.O_WRONLY, bit | 0o755),
            f"openat_{kind}": (257, -100, b"made", os.O_CREAT | os.O_WRONLY, bit | 0o755),
            f"tmpfile_{kind}": (257, -100, b".", os.O_TMPFILE | os.O_RDWR, bit | 0o755),
            f"mode_high_bits_{kind}": (90, b"inside", 0x1_0000_0000 | bit | 0o755),
        }
    )
how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
attempt("openat2_setuid", lambda: call(437, -100, b"made", how, len(how)))

# What defines agents, models and servers: a folder, a file, one that is missing, one in a folder, and one by a link.
def made(name, flags=0):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY | flags, 0o600))


def swap(one, other):
    call(316, -100, one.encode(), -100, other.encode(), 2)


os.mkdir("other")
for kind, name in dict(agent="agents/a.toml", models="models.toml", flow="conf/flow.toml", linked="linked.toml").items():
    attempt(f"define_{kind}_write", lambda: os.open(name, os.O_WRONLY))
    attempt(f"define_{kind}_truncate", lambda: os.truncate(name, 0))
    attempt(f"define_{kind}_remove", lambda: os.unlink(name))
    attempt(f"define_{kind}_rename_away", lambda: os.rename(name, "away"))
    attempt(f"define_{kind}_rename_over", lambda: os.rename("inside", name))
    attempt(f"define_{kind}_swap", lambda: swap("inside", name))
    attempt(f"define_{kind}_chmod", lambda: os.chmod(name, 0o666))
for kind, name in dict(agents="agents", conf="conf", servers="mcp.toml").items():
    attempt(f"define_{kind}_remove", lambda: os.rmdir(name))
    attempt(f"define_{kind}_rename_away", lambda: os.rename(name, "away"))
    attempt(f"define_{kind}_rename_over", lambda: os.rename("other", name))
    attempt(f"define_{kind}_swap", lambda: swap("other", name))
attempt("define_agents_add", lambda: made("agents/new.toml"))
attempt("define_agents_add_folder", lambda: os.mkdir("agents/new"))
attempt("define_agents_link_into", lambda: os.link("inside", "agents/new.toml"))
attempt("define_agents_symlink_into", lambda: os.symlink("/etc/passwd", "agents/new.toml"))
attempt("define_agents_link_out", lambda: os.link("agents/a.toml", "hard"))
attempt("define_models_link_out", lambda: os.link("models.toml", "hard"))
attempt("define_servers_make", lambda: made("mcp.toml"))
attempt("define_servers_make_new", lambda: made("mcp.toml", os.O_EXCL))
attempt("define_servers_link", lambda: os.link("inside", "mcp.toml"))
attempt("define_servers_symlink", lambda: os.symlink("inside", "mcp.toml"))
attempt("define_servers_make_below", lambda: made("mcp.toml/new"))
attempt("define_servers_chmod", lambda: os.chmod("mcp.toml", 0o777))

# In a folder that is closed, as an earlier command of its owner leaves it, and in one that nobody may write in, until it is opened.
def opened(name, way):
    os.chmod(name, 0o755)
    way()


for name in ("closed/flow.toml", "closed/none.toml", "shut/none.toml"):
    kind, folder = name.replace("/", "_").removesuffix(".toml"), name.split("/")[0]
    attempt(f"define_{kind}_make", lambda: opened(folder, lambda: made(name)))
    attempt(f"define_{kind}_make_new", lambda: opened(folder, lambda: made(name, os.O_EXCL)))
    attempt(f"define_{kind}_symlink", lambda: opened(folder, lambda: os.symlink("inside", name)))
    attempt(f"define_{kind}_remove", lambda: opened(folder, lambda: os.unlink(name)))
    attempt(f"define_{kind}_remove_folder", lambda: opened(folder, lambda: os.rmdir(name)))
    attempt(f"define_{kind}_rename_away", lambda: opened(folder, lambda: os.rename(name, "away")))
    attempt(f"define_{kind}_rename_over", lambda: opened(folder, lambda: os.rename("inside", name)))
for folder in ("closed", "shut"):
    attempt(f"define_{folder}_rename_away", lambda: os.rename(folder, "away"))
    attempt(f"define_{folder}_rename_over", lambda: os.rename("other", folder))
    attempt(f"define_{folder}_swap", lambda: swap("other", folder))
