//! Releases memory of forked processes that execute no program. Such a process shares each page with its parent until one of them writes
//! to it, and the kernel stores two copies from then on. So it releases the pages that it does not use, above all the heap.

use std::ops::Range;

use libc::c_long;

/// The most ranges that are released; of a process with more, the rest is kept.
const MOST: usize = 1_024;

/// How much of a line of `/proc/self/maps` is read. A longer line has a path, and is not of a range that is released.
const LINE: usize = 256;

/// Releases the private anonymous memory of this process, except for the stack and the thread's own variables. It reads as zeros
/// afterwards. Memory that the kernel does not list is kept.
///
/// Afterwards nothing in the heap may be used, and of the C library only [`call`]: the dynamic linker resolves other functions at their
/// first call with data in the heap.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn release() {
    let mut ranges = [const { 0..0 }; MOST];
    // SAFETY: it takes no arguments; the address is that of a variable of this thread, and is not read.
    let own = unsafe { libc::__errno_location() } as usize;
    let stack = (&raw const ranges) as usize;
    let count = list(&mut ranges, [own, stack]);
    for range in ranges.iter().take(count) {
        let (start, length) = (range.start as c_long, (range.end - range.start) as c_long);
        // SAFETY: memory of this process that nothing uses from here on.
        unsafe { call(libc::SYS_madvise, [start, length, libc::MADV_DONTNEED.into(), 0]) };
    }
}

/// A plain system call.
///
/// # Safety
/// The requirements of the system call.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) unsafe fn call(number: c_long, [first, second, third, fourth]: [c_long; 4]) -> c_long {
    // SAFETY: as the caller guarantees.
    unsafe { libc::syscall(number, first, second, third, fourth) }
}

/// The ranges that can be released, and their number, without those that contain one of these addresses.
#[allow(unsafe_code, reason = "system calls")]
fn list(ranges: &mut [Range<usize>; MOST], used: [usize; 2]) -> usize {
    // SAFETY: a path that lives through the call.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let (mut count, mut files_end) = (0, 0);
    let (mut line, mut length) = ([0; LINE], 0);
    let mut bytes = [0; 4_096];
    loop {
        // SAFETY: the bytes live through the call, which writes no more of them.
        let read = unsafe { libc::read(file, bytes.as_mut_ptr().cast(), bytes.len()) };
        let Some(read) = usize::try_from(read).ok().filter(|read| *read > 0) else { break };
        for byte in bytes.iter().take(read) {
            if *byte != b'\n' {
                if let Some(place) = line.get_mut(length) {
                    *place = *byte;
                    length += 1;
                }
                continue;
            }
            let mapping = line.get(..length).and_then(Mapping::of);
            length = 0;
            let Some(Mapping { range, is_of_file, is_free }) = mapping else { continue };
            // The zero-initialized variables (.bss) of a program or a library follow the mapping of its file: they are kept.
            if is_of_file || range.start == files_end {
                files_end = range.end;
            } else if is_free
                && !used.iter().any(|address| range.contains(address))
                && let Some(place) = ranges.get_mut(count)
            {
                *place = range;
                count += 1;
            }
        }
    }
    // SAFETY: a descriptor that is used no more; if it was not opened, an error that changes nothing.
    unsafe { libc::close(file) };
    count
}

/// A line of `/proc/self/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<usize>,
    is_of_file: bool,
    /// Whether it is private and writable, and without a name or with that of a heap.
    is_free: bool,
}

impl Mapping {
    /// `start-end permissions offset device inode name`.
    fn of(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let mut addresses = words.next()?.split(|byte| *byte == b'-');
        let range = hexadecimal(addresses.next()?)?..hexadecimal(addresses.next()?)?;
        let permissions = words.next()?;
        let is_of_file = words.nth(2)? != b"0";
        // Kernels that have names of anonymous memory list that of the allocator mimalloc by its name.
        let is_plain = words.next().is_none_or(|name| name == b"[heap]" || name == b"[anon:mimalloc]");
        Some(Self { range, is_of_file, is_free: !is_of_file && is_plain && permissions == b"rw-p" })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0_usize, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        number.checked_mul(16)?.checked_add(digit as usize)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn mapping(line: &str) -> (Range<usize>, bool, bool) {
        let Mapping { range, is_of_file, is_free } = Mapping::of(line.as_bytes()).unwrap();
        (range, is_of_file, is_free)
    }

    #[test]
    fn lines_of_the_list_are_read_as_the_kernel_writes_them() {
        for (line, expected) in [
            ("55d0-55e0 rw-p 00000000 00:00 0                          [heap]", (0x55d0..0x55e0, false, true)),
            ("7f00-7f10 rw-p 00000000 00:00 0 ", (0x7f00..0x7f10, false, true)),
            ("7f00-7f10 rw-p 00000000 00:00 0                          [anon:mimalloc]", (0x7f00..0x7f10, false, true)),
            ("7f00-7f10 ---p 00000000 00:00 0 ", (0x7f00..0x7f10, false, false)),
            ("7f00-7f10 rw-s 00000000 00:01 1024     /dev/zero (deleted)", (0x7f00..0x7f10, true, false)),
            ("7f00-7f10 rw-p 001d6000 fe:00 4711     /usr/lib/libc.so.6", (0x7f00..0x7f10, true, false)),
            ("7ffe-7fff rw-p 00000000 00:00 0                          [stack]", (0x7ffe..0x7fff, false, false)),
        ] {
            assert_eq!(mapping(line), expected, "{line}");
        }
        for line in ["", "7f00", "7f00-xyz rw-p 0 00:00 0", "7f00-7f10 rw-p", "ffffffffffffffffff-0 rw-p 0 00:00 0"] {
            assert_eq!(Mapping::of(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_heap_is_listed_and_the_stack_and_what_belongs_to_files_are_not() {
        static VARIABLE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let heap = vec![1_u8; 8 << 20];
        let mut ranges = [const { 0..0 }; MOST];
        let stack = (&raw const ranges) as usize;
        let count = list(&mut ranges, [stack, stack]);
        let has = |address: usize| ranges[..count].iter().any(|range| range.contains(&address));
        assert!(has(heap.as_ptr() as usize));
        assert!(!has(stack) && !has((&raw const VARIABLE) as usize) && !has(list as *const () as usize));
    }
}
