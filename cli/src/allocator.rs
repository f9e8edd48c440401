//! The allocator of the program. Journal records and states are made on one thread and freed on another, for which that of the C library
//! takes a lock of the thread that made them.

#[global_allocator]
static MIMALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;
