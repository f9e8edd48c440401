//! How long a connection waits for the headers of a request.
//!
//! The timer of `hyper` is registered and removed with each request, and has the connection read once more after each response, which
//! was measured to be a fifth of what a request costs. Here a connection has one timer, which is moved when it has elapsed too early.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use hyper::body::{Frame, SizeHint};

/// What a connection is doing.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// How many requests have begun and ended: an odd number while one is under way.
    requests: AtomicU64,
    /// Whether the client has not yet taken all that was written.
    is_writing: AtomicBool,
}

/// A request whose headers have arrived.
pub(crate) struct UnderWay(Progress);

impl Progress {
    /// The headers of a request have arrived.
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether the client takes nothing now of what is written.
    pub(crate) fn is_writing(&self, is_writing: bool) {
        self.0.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// The number of requests, unless one is under way or is being answered.
    fn idle(&self) -> Option<u64> {
        let requests = self.0.requests.load(Ordering::Relaxed);
        (requests.is_multiple_of(2) && !self.0.is_writing.load(Ordering::Relaxed)).then_some(requests)
    }

    /// Waits for the connection's end; `None` if no headers of a request have arrived for so long.
    pub(crate) async fn in_time<C: Future>(&self, mut connection: Pin<&mut C>, time: Duration) -> Option<C::Output> {
        let mut sleep = pin!(tokio::time::sleep(time));
        let (mut idle, mut deadline) = (Some(0), sleep.deadline());
        poll_fn(|cx| {
            if let Poll::Ready(output) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let before = std::mem::replace(&mut idle, self.idle());
            if idle.is_none() {
                return Poll::Pending;
            }
            if idle != before {
                deadline = tokio::time::sleep(time).deadline();
            }
            loop {
                ready!(sleep.as_mut().poll(cx));
                if sleep.deadline() >= deadline {
                    return Poll::Ready(None);
                }
                sleep.as_mut().reset(deadline);
            }
        })
        .await
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// The body of a response. Its request is under way until it has been read to its end.
pub(crate) struct Answer {
    pub(crate) body: Body,
    pub(crate) _request: UnderWay,
}

impl HttpBody for Answer {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::convert::Infallible;

    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::lingering::Lingering;

    const TIME: Duration = Duration::from_secs(10);
    const ALMOST: Duration = Duration::from_millis(9_999);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    /// A connection whose requests take this long, and which holds so many bytes that were not read.
    fn connect(takes: Duration, holds: usize) -> DuplexStream {
        let (client, server) = duplex(holds);
        let progress = Progress::default();
        let service = service_fn({
            let progress = progress.clone();
            move |_: Request<hyper::body::Incoming>| {
                let request = progress.begin();
                async move {
                    tokio::time::sleep(takes).await;
                    Ok::<_, Infallible>(Response::new(Answer { body: Body::from("done"), _request: request }))
                }
            }
        });
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(Lingering::new(server, progress.clone())), service);
        tokio::spawn(async move { progress.in_time(pin!(connection), TIME).await });
        client
    }

    async fn request(client: &mut DuplexStream) -> String {
        client.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("done") {
            answer.push(char::from(client.read_u8().await.unwrap()));
        }
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_the_headers_of_its_next_request_do_not_arrive() {
        let mut client = connect(Duration::ZERO, 1024);
        assert!(timeout(ALMOST, client.read_u8()).await.is_err(), "it has ended too early");
        for _ in 0..3 {
            request(&mut client).await;
            // A part of a request is none.
            assert!(timeout(ALMOST, client.read_u8()).await.is_err(), "the time begins anew with each request");
        }
        client.write_all(&REQUEST[..20]).await.unwrap();
        assert_eq!(timeout(Duration::from_millis(2), client.read(&mut [0])).await.unwrap().unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_under_way_may_take_longer() {
        let mut client = connect(TIME * 7, 1024);
        assert!(request(&mut client).await.starts_with("HTTP/1.1 200"));
        assert!(timeout(ALMOST, client.read_u8()).await.is_err(), "it has ended too early");
        assert_eq!(timeout(Duration::from_millis(2), client.read(&mut [0])).await.unwrap().unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_when_a_response_was_taken() {
        let mut client = connect(Duration::ZERO, 64);
        client.write_all(REQUEST).await.unwrap();
        // More than there is room for.
        tokio::time::sleep(TIME * 2).await;
        let mut answer = [0; 128];
        let mut length = 0;
        while !answer[..length].ends_with(b"done") {
            length += timeout(ALMOST, client.read(&mut answer[length..])).await.unwrap().unwrap();
            assert!(length > 0, "it has ended");
        }
        assert!(timeout(ALMOST, client.read_u8()).await.is_err(), "it has ended too early");
    }
}
