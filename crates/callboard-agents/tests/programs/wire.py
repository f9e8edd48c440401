import socket

# Whoever listens at the other end is told when everybody is gone who holds this one.
def connect():
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["WIRE"])
    return line

