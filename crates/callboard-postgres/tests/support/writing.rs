//! Records that tasks write one after the other while something happens, and what has to be there of them.

use std::sync::Arc;

use callboard::storage::{Append, Key, Storage as _, StorageError};
use callboard_postgres::Postgres;
use futures::future::join_all;

const STREAMS: u64 = 8;

fn stream(number: u64) -> Key {
    Key::new(["test", &format!("stream {number}")])
}

/// Eight tasks write so many records each, to streams of their own, and read each record back. `before` is called with the numbers of
/// a stream and of a record before that is written.
pub(crate) async fn write(store: &Arc<Postgres>, records: u64, before: impl Fn(u64, u64) + Send + Sync + 'static) {
    let before = Arc::new(before);
    let writers = (0..STREAMS).map(|number| {
        let (store, before) = (Arc::clone(store), Arc::clone(&before));
        tokio::spawn(async move {
            for expected in 0..records {
                before(number, expected);
                let payload = expected.to_string().into_bytes().into();
                store.append(Append::new(stream(number), expected, payload)).await?;
                assert_eq!(store.read(&stream(number), expected + 1, 9).await?.len(), 1);
            }
            Ok::<_, StorageError>(())
        })
    });
    for written in join_all(writers).await {
        assert_eq!(written.unwrap(), Ok(()));
    }
}

/// Checks that each record of [`write`] is there once.
pub(crate) async fn check(store: &Postgres, records: u64) {
    for number in 0..STREAMS {
        let records_there = store.read(&stream(number), 1, usize::MAX).await.unwrap();
        let payloads: Vec<u64> =
            records_there.iter().map(|record| String::from_utf8_lossy(&record.payload).parse().unwrap()).collect();
        assert_eq!(payloads, (0..records).collect::<Vec<_>>());
    }
}
