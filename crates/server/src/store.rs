//! Responses that are kept for later requests to go on from.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
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

impl Kept {
    /// Length of its JSON, which its memory is in proportion to.
    fn bytes(&self) -> usize {
        let mut items = Length(0);
        // Values always have a JSON form, and counting takes all of it.
        let _ = serde_json::to_writer(&mut items, &self.conversation.items);
        self.body.len() + items.0
    }
}

/// Counts what is written.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The latest responses, up to a number and a size; the one not used for longest goes first.
pub struct ResponseStore {
    most: usize,
    most_bytes: usize,
    kept: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    by_id: HashMap<String, (Arc<Kept>, usize)>,
    /// Longest unused first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Shelf {
    fn take(&mut self, id: &str) -> bool {
        self.order.retain(|other| other != id);
        let taken = self.by_id.remove(id);
        self.bytes -= taken.as_ref().map_or(0, |(_, bytes)| *bytes);
        taken.is_some()
    }

    fn touch(&mut self, id: &str) {
        if let Some(at) = self.order.iter().position(|other| other == id) {
            self.order.remove(at);
        }
        self.order.push_back(id.to_owned());
    }
}

impl ResponseStore {
    /// A store for `most` responses of `most_bytes` bytes of JSON together.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            most,
            most_bytes,
            kept: Mutex::default(),
        }
    }

    /// Keeps a response.
    pub fn put(&self, id: String, kept: Kept) {
        let bytes = kept.bytes();
        let mut shelf = self.shelf();
        shelf.take(&id);
        shelf.touch(&id);
        shelf.bytes += bytes;
        shelf.by_id.insert(id, (Arc::new(kept), bytes));
        while (shelf.order.len() > self.most || shelf.bytes > self.most_bytes)
            && let Some(oldest) = shelf.order.front().cloned()
        {
            shelf.take(&oldest);
        }
    }

    /// The response of this id, if it is this owner's.
    pub fn get(&self, id: &str, owner: Option<&str>) -> Option<Arc<Kept>> {
        let mut shelf = self.shelf();
        let kept = Arc::clone(&shelf.by_id.get(id)?.0);
        if kept.owner.as_deref() != owner {
            return None;
        }
        shelf.touch(id);
        Some(kept)
    }

    /// Forgets a response; false if there is none of this owner's.
    pub fn remove(&self, id: &str, owner: Option<&str>) -> bool {
        self.get(id, owner).is_some() && self.shelf().take(id)
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
        let store = ResponseStore::new(2, usize::MAX);
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
        let store = ResponseStore::new(2, usize::MAX);
        store.put("a".into(), kept("A", Some("ada")));
        assert!(store.get("a", Some("bob")).is_none());
        assert!(store.get("a", None).is_none());
        assert!(!store.remove("a", Some("bob")));
        assert!(store.remove("a", Some("ada")));
    }

    #[test]
    fn a_store_of_none_keeps_none() {
        let store = ResponseStore::new(0, usize::MAX);
        store.put("a".into(), kept("A", None));
        assert!(store.get("a", None).is_none());
    }

    #[test]
    fn large_responses_make_room_by_their_size() {
        let store = ResponseStore::new(100, 1000);
        let of = |bytes: usize| kept(&"x".repeat(bytes), None);
        assert_eq!(of(5).bytes(), 5 + "[]".len());
        store.put("a".into(), of(400));
        store.put("b".into(), of(400));
        assert!(store.get("a", None).is_some());
        store.put("c".into(), of(400));
        assert!(store.get("b", None).is_none() && store.get("a", None).is_some());
        store.put("a".into(), of(10));
        store.put("d".into(), of(500));
        assert!(
            store.get("c", None).is_some(),
            "what is put anew counts once"
        );
        store.put("e".into(), of(1001));
        for id in ["a", "c", "d", "e"] {
            assert!(store.get(id, None).is_none(), "{id}");
        }
    }
}
