//! The allocator, the one that the program `callboard` has. Profilers that count allocations (`valgrind --tool=dhat`) see those of the
//! system's one alone: build with `RUSTFLAGS="--cfg callboard_system_allocator"` for them.

#[cfg(not(callboard_system_allocator))]
#[global_allocator]
static MIMALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) const NAME: &str = if cfg!(callboard_system_allocator) { "the system's" } else { "mimalloc" };
