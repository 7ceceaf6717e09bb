//! A bound on waiting requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts requests that wait for their first token, and refuses those beyond a limit.
#[derive(Clone, Debug)]
pub struct Admission {
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

impl Admission {
    /// At most `limit` requests wait at a time.
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: Arc::default(),
            limit,
        }
    }

    /// A place in the queue, or `None` if it is full. Dropping the ticket gives the place back:
    /// at the first token, or when the client goes away.
    pub fn enter(&self) -> Option<Ticket> {
        self.waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
                (waiting < self.limit).then_some(waiting + 1)
            })
            .ok()
            .map(|_| Ticket(Arc::clone(&self.waiting)))
    }
}

/// A place in the queue.
#[derive(Debug)]
pub struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_places_come_back() {
        let admission = Admission::new(2);
        let first = admission.enter().unwrap();
        let _second = admission.enter().unwrap();
        assert!(admission.enter().is_none());
        drop(first);
        let _third = admission.enter().unwrap();
        assert!(admission.enter().is_none());
    }
}
