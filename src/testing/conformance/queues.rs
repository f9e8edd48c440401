//! Rules of queues.

use super::subject::{Subject, expect, text};
use crate::storage::{Delivery, Key, StorageError};

fn queue() -> Key {
    Key::new(["inbox", "reviewer"])
}

impl Subject {
    #[track_caller]
    fn item(&self, delivery: Option<Delivery>, expected: &str, deliveries: u32) -> Delivery {
        let Some(delivery) = delivery else { panic!("{expected} is not delivered") };
        let (payload, times) = (text(&delivery.payload), delivery.deliveries);
        assert_eq!(payload, expected, "the item that comes next");
        assert_eq!(times, deliveries, "how often {payload} was delivered");
        delivery
    }

    #[track_caller]
    fn nothing(&self, delivery: Option<Delivery>, why: &str) {
        let Some(Delivery { id, payload, .. }) = delivery else { return };
        panic!("{:?} is delivered from {:?}, as {id:?}: {why}", text(&payload), id.queue);
    }
}

/// First in, first out.
pub(super) async fn items_come_out_in_the_order_they_went_in(subject: Subject) {
    subject.nothing(subject.next(&queue()).await, "the queue is new");
    for id in ["c", "a", "b"] {
        subject.enqueue(&queue(), id).await;
    }
    for id in ["c", "a", "b"] {
        subject.item(subject.next(&queue()).await, id, 1);
    }
    subject.nothing(subject.next(&queue()).await, "each item was delivered, and its lease lasts");
}

/// An item whose lease ran out comes before younger ones, and its deliveries are counted.
pub(super) async fn a_leased_item_is_not_delivered_until_the_lease_runs_out(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    subject.enqueue(&queue(), "b").await;
    subject.item(subject.next(&queue()).await, "a", 1);
    subject.advance_secs(9);
    let younger = subject.item(subject.next(&queue()).await, "b", 1);
    expect(subject.store().nack(&younger.id, 0).await);
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
    subject.item(subject.next(&queue()).await, "b", 2);
    subject.nothing(subject.next(&queue()).await, "both are leased");
}

/// An extension counts from now.
pub(super) async fn an_extended_lease_lasts_longer(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    subject.advance_secs(9);
    expect(subject.store().extend(&delivery.id, 10).await);
    subject.advance_secs(9);
    subject.nothing(subject.next(&queue()).await, "its lease was extended");
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
}

/// It is never delivered again, and acknowledging it again is fine; holding it longer is not.
pub(super) async fn an_acknowledged_item_is_gone(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    expect(subject.store().ack(&delivery.id).await);
    expect(subject.store().ack(&delivery.id).await);
    assert!(matches!(subject.store().extend(&delivery.id, 10).await, Err(StorageError::Fenced { .. })));
    subject.advance_secs(60);
    subject.nothing(subject.next(&queue()).await, "it was acknowledged");
}

/// The delay replaces the lease.
pub(super) async fn a_returned_item_returns_after_its_delay(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    expect(subject.store().nack(&delivery.id, 30).await);
    subject.advance_secs(29);
    subject.nothing(subject.next(&queue()).await, "it was returned with a delay of 30 s, 29 s ago");
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
}

/// A consumer that was too slow can neither hold, remove nor return the item of the next one.
pub(super) async fn an_older_delivery_is_fenced(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let old = subject.item(subject.next(&queue()).await, "a", 1);
    subject.advance_secs(10);
    expect(subject.store().extend(&old.id, 10).await);
    subject.advance_secs(10);
    let new = subject.item(subject.next(&queue()).await, "a", 2);
    let fenced = Err(StorageError::Fenced { key: queue(), current: 2 });
    assert_eq!(subject.store().ack(&old.id).await, fenced);
    assert_eq!(subject.store().extend(&old.id, 10).await, fenced);
    assert_eq!(subject.store().nack(&old.id, 0).await, fenced);
    expect(subject.store().nack(&new.id, 0).await);
    assert_eq!(subject.store().ack(&new.id).await, fenced, "a returned item has no lease");
    subject.item(subject.next(&queue()).await, "a", 3);
}

/// Held, done or not yet delivered: a repeat is acknowledged and adds nothing.
pub(super) async fn a_repeated_dedupe_id_adds_nothing_for_two_minutes(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    subject.enqueue(&queue(), "a").await;
    expect(subject.store().ack(&delivery.id).await);
    subject.advance_secs(119);
    subject.enqueue(&queue(), "a").await;
    subject
        .nothing(subject.next(&queue()).await, "its dedupe id was enqueued 119 s ago, so that a repeat adds nothing");
    subject.advance_secs(1);
    subject.enqueue(&queue(), "a").await;
    subject.item(subject.next(&queue()).await, "a", 1);
}

/// Queues with similar names are different queues.
pub(super) async fn queues_do_not_share_items_or_ids(subject: Subject) {
    let queues = [&["a"][..], &["a", ""], &["a", "b"], &["a\0"], &[]].map(|name| Key::new(name.iter().copied()));
    for queue in &queues {
        subject.enqueue(queue, "x").await;
    }
    for queue in &queues {
        subject.item(subject.next(queue).await, "x", 1);
        subject.nothing(subject.next(queue).await, "its only item is leased");
    }
}
