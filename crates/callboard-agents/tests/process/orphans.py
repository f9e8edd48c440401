# Starts 300 processes whose parents end, and lets them end. `os` is imported by the test that this is a part of.
for _ in range(300):
    reads, writes = os.pipe()
    middle = os.fork()
    if middle == 0:
        if os.fork(): os._exit(0)
        os.close(writes)
        # Until its parent is gone, so that another one has it.
        os.read(reads, 1)
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(reads); os.close(writes)
