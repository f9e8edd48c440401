//! Rules of queues.

use super::{Subject, expect, text};
use crate::storage::{Delivery, Key, StorageError};

fn queue() -> Key {
    Key::new(["inbox", "reviewer"])
}

impl Subject {
    #[track_caller]
    fn item(&self, delivery: Option<Delivery>, expected: &str, deliveries: u32) -> Delivery {
        let Some(delivery) = delivery else { panic!("{expected} is not delivered") };
        assert_eq!((text(&delivery.payload).as_str(), delivery.deliveries), (expected, deliveries));
        delivery
    }
}

/// First in, first out.
pub async fn items_come_out_in_the_order_they_went_in(subject: Subject) {
    assert_eq!(subject.next(&queue()).await, None);
    for id in ["c", "a", "b"] {
        subject.enqueue(&queue(), id).await;
    }
    for id in ["c", "a", "b"] {
        subject.item(subject.next(&queue()).await, id, 1);
    }
    assert_eq!(subject.next(&queue()).await, None);
}

/// An item whose lease ran out comes before younger ones, and its deliveries are counted.
pub async fn a_leased_item_is_not_delivered_until_the_lease_runs_out(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    subject.enqueue(&queue(), "b").await;
    subject.item(subject.next(&queue()).await, "a", 1);
    subject.advance_secs(9);
    let younger = subject.item(subject.next(&queue()).await, "b", 1);
    expect(subject.store().nack(&younger.id, 0).await);
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
    subject.item(subject.next(&queue()).await, "b", 2);
    assert_eq!(subject.next(&queue()).await, None);
}

/// An extension counts from now.
pub async fn an_extended_lease_lasts_longer(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    subject.advance_secs(9);
    expect(subject.store().extend(&delivery.id, 10).await);
    subject.advance_secs(9);
    assert_eq!(subject.next(&queue()).await, None);
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
}

/// It never comes back, and acknowledging it again is fine; holding it longer is not.
pub async fn an_acknowledged_item_is_gone(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    expect(subject.store().ack(&delivery.id).await);
    expect(subject.store().ack(&delivery.id).await);
    assert!(matches!(subject.store().extend(&delivery.id, 10).await, Err(StorageError::Fenced { .. })));
    subject.advance_secs(60);
    assert_eq!(subject.next(&queue()).await, None);
}

/// The delay replaces the lease.
pub async fn a_returned_item_comes_back_after_its_delay(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    expect(subject.store().nack(&delivery.id, 30).await);
    subject.advance_secs(29);
    assert_eq!(subject.next(&queue()).await, None);
    subject.advance_secs(1);
    subject.item(subject.next(&queue()).await, "a", 2);
}

/// Whoever was too slow can neither hold, remove nor return the item of the next one.
pub async fn an_older_delivery_is_fenced(subject: Subject) {
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
    assert_eq!(subject.store().ack(&new.id).await, fenced, "a returned item is nobody's");
    subject.item(subject.next(&queue()).await, "a", 3);
}

/// Held, done or not yet delivered: a repeat is acknowledged and adds nothing.
pub async fn a_repeated_dedupe_id_adds_nothing_for_two_minutes(subject: Subject) {
    subject.enqueue(&queue(), "a").await;
    subject.enqueue(&queue(), "a").await;
    let delivery = subject.item(subject.next(&queue()).await, "a", 1);
    subject.enqueue(&queue(), "a").await;
    expect(subject.store().ack(&delivery.id).await);
    subject.advance_secs(119);
    subject.enqueue(&queue(), "a").await;
    assert_eq!(subject.next(&queue()).await, None);
    subject.advance_secs(1);
    subject.enqueue(&queue(), "a").await;
    subject.item(subject.next(&queue()).await, "a", 1);
}

/// Queues with similar names are different queues.
pub async fn queues_do_not_share_items_or_ids(subject: Subject) {
    let queues = [&["a"][..], &["a", ""], &["a", "b"], &["a\0"], &[]].map(|name| Key::new(name.iter().copied()));
    for queue in &queues {
        subject.enqueue(queue, "x").await;
    }
    for queue in &queues {
        subject.item(subject.next(queue).await, "x", 1);
        assert_eq!(subject.next(queue).await, None);
    }
}
