//! A connection that is closed so that its last response arrives, and that is given up if the client reads nothing.
//!
//! A socket that is closed while it holds bytes that were not read resets the connection, and the reset may reach the client before
//! the response that refused those bytes, which is then lost. So the end of writing is sent first, and what still arrives is read
//! and dropped, until the client closes too or a bound is reached.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::header_time::Progress;

/// How long to wait for the client's end.
const MAX_TIME: Duration = Duration::from_secs(1);
/// How long a client may take nothing of what is written.
const MAX_STALL: Duration = Duration::from_secs(30);
/// How many bytes to drop.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// A connection whose shutdown waits for the client's end.
pub(crate) struct Lingering<S> {
    stream: S,
    /// Set when the end of writing was sent.
    end: Option<Pin<Box<Sleep>>>,
    dropped: usize,
    /// Set while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    progress: Progress,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lingering<S> {
    pub(crate) fn new(stream: S, progress: Progress) -> Self {
        Self { stream, end: None, dropped: 0, stalled: None, progress }
    }

    /// Passes on what a write resulted in, and fails when the client has taken nothing for too long.
    fn bounded(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.progress.is_writing(written.is_pending());
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(MAX_STALL)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads and drops what arrives, and is ready when the client has ended or a bound is reached.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 16 * 1024];
        while self.dropped < MAX_BYTES {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.dropped += buffer.filled().len(),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.end.as_mut().map_or(Poll::Ready(()), |end| end.as_mut().poll(cx)),
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.end = Some(Box::pin(tokio::time::sleep(MAX_TIME)));
        }
        self.poll_drain(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_a_response_is_given_up() {
        let (mut client, server) = duplex(4);
        let mut server = Lingering::new(server, Progress::default());
        server.write_all(b"full").await.unwrap();
        let almost = MAX_STALL - Duration::from_millis(1);
        assert!(timeout(almost, server.write(b"more")).await.is_err(), "it is given up too early");
        // The time begins anew with each byte that is taken.
        client.read_u8().await.unwrap();
        assert_eq!(server.write(b"more").await.unwrap(), 1);
        assert!(timeout(almost, server.write(b"more")).await.is_err(), "it is given up too early");
        let stalled = timeout(Duration::from_millis(2), server.write(b"more")).await.unwrap();
        assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_when_the_client_ends_or_after_a_while() {
        let (client, server) = duplex(64);
        let mut server = Lingering::new(server, Progress::default());
        assert!(timeout(MAX_TIME / 2, server.shutdown()).await.is_err(), "the client has not ended");
        drop(client);
        timeout(Duration::ZERO, server.shutdown()).await.unwrap().unwrap();

        let (_client, server) = duplex(64);
        timeout(MAX_TIME * 2, Lingering::new(server, Progress::default()).shutdown()).await.unwrap().unwrap();
    }
}
