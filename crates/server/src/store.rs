//! Responses that are kept for later requests to go on from.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use volley_protocol::responses::StoredResponse;

/// A kept response.
pub struct Kept {
    /// Its body.
    pub body: String,
    /// The conversation up to and with it.
    pub conversation: StoredResponse,
    /// Name of the key that asked for it; others do not see it.
    pub owner: Option<String>,
}

/// The latest responses, up to a number; the one not used for longest goes first.
pub struct ResponseStore {
    limit: usize,
    kept: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    by_id: HashMap<String, Arc<Kept>>,
    /// Longest unused first.
    order: VecDeque<String>,
}

impl Shelf {
    fn touch(&mut self, id: &str) {
        if let Some(at) = self.order.iter().position(|other| other == id) {
            self.order.remove(at);
        }
        self.order.push_back(id.to_owned());
    }
}

impl ResponseStore {
    /// A store for `limit` responses.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: Mutex::default(),
        }
    }

    /// Keeps a response.
    pub fn put(&self, id: String, kept: Kept) {
        let mut shelf = self.shelf();
        shelf.touch(&id);
        shelf.by_id.insert(id, Arc::new(kept));
        while shelf.order.len() > self.limit {
            if let Some(oldest) = shelf.order.pop_front() {
                shelf.by_id.remove(&oldest);
            }
        }
    }

    /// The response of this id, if it is this owner's.
    pub fn get(&self, id: &str, owner: Option<&str>) -> Option<Arc<Kept>> {
        let mut shelf = self.shelf();
        let kept = Arc::clone(shelf.by_id.get(id)?);
        if kept.owner.as_deref() != owner {
            return None;
        }
        shelf.touch(id);
        Some(kept)
    }

    /// Forgets a response; false if there is none of this owner's.
    pub fn remove(&self, id: &str, owner: Option<&str>) -> bool {
        if self.get(id, owner).is_none() {
            return false;
        }
        let mut shelf = self.shelf();
        shelf.order.retain(|other| other != id);
        shelf.by_id.remove(id).is_some()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(body: &str, owner: Option<&str>) -> Kept {
        Kept {
            body: body.to_owned(),
            conversation: StoredResponse::default(),
            owner: owner.map(str::to_owned),
        }
    }

    #[test]
    fn the_longest_unused_goes_first() {
        let store = ResponseStore::new(2);
        store.put("a".into(), kept("A", None));
        store.put("b".into(), kept("B", None));
        assert_eq!(store.get("a", None).unwrap().body, "A");
        store.put("c".into(), kept("C", None));
        assert!(store.get("b", None).is_none());
        assert!(store.get("a", None).is_some());
        assert!(store.remove("a", None));
        assert!(!store.remove("a", None));
    }

    #[test]
    fn only_the_owner_sees_a_response() {
        let store = ResponseStore::new(2);
        store.put("a".into(), kept("A", Some("ada")));
        assert!(store.get("a", Some("bob")).is_none());
        assert!(store.get("a", None).is_none());
        assert!(!store.remove("a", Some("bob")));
        assert!(store.remove("a", Some("ada")));
    }

    #[test]
    fn a_store_of_none_keeps_none() {
        let store = ResponseStore::new(0);
        store.put("a".into(), kept("A", None));
        assert!(store.get("a", None).is_none());
    }
}
