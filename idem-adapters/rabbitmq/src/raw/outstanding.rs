//! The messages that the server has not confirmed.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Why a connection has ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// The server closed the channel, because of one of the messages that were unconfirmed or of their exchange.
    Refused {
        code: u16,
        text: String,
        /// How many messages were unconfirmed.
        unconfirmed: usize,
    },
    /// The connection was lost or closed.
    Lost(String),
}

/// The server's answer to a published message.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// It is in each queue to which it was routed.
    Stored,
    /// No queue was bound for it. The server's reason.
    Returned(String),
    /// A queue could not store it (`basic.nack`).
    Nacked,
}

/// A message that was sent.
pub(super) struct Waiting {
    pub(super) id: Arc<str>,
    pub(super) routing_key: String,
    pub(super) returned: Option<String>,
    pub(super) answer: oneshot::Sender<Result<Answer, Arc<End>>>,
}

impl Waiting {
    /// Answers the call. It may have been dropped.
    fn answer(self, stored: bool) {
        let _ = self.answer.send(Ok(match self.returned {
            Some(reason) => Answer::Returned(reason),
            None if stored => Answer::Stored,
            None => Answer::Nacked,
        }));
    }
}

/// The unconfirmed messages of a channel, by their delivery tag: the number of the message on its channel, from 1.
///
/// A queue may never confirm a message. It is published again under new tags, so the tag of a call that was dropped is
/// forgotten when a copy of its message is sent: there is at most one such tag of each message.
#[derive(Default)]
pub(super) struct Outstanding {
    /// How many messages were sent.
    sent: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// The tags of each message id.
    tags: HashMap<Arc<str>, Vec<u64>>,
}

impl Outstanding {
    /// Adds a message, which must be sent next.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.sent += 1;
        let tags = self.tags.entry(Arc::clone(&waiting.id)).or_default();
        tags.retain(|tag| {
            let gone = self.waiting.get(tag).is_none_or(|copy| copy.answer.is_closed());
            if gone {
                self.waiting.remove(tag);
            }
            !gone
        });
        tags.push(self.sent);
        self.waiting.insert(self.sent, waiting);
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Answers the message with this tag; with `multiple`, also all before it.
    pub(super) fn confirm(&mut self, tag: u64, multiple: bool, stored: bool) {
        // With `multiple`, 0 means all.
        let tag = if multiple && tag == 0 { u64::MAX } else { tag };
        if !multiple {
            self.answer(tag, stored);
            return;
        }
        while let Some(first) = self.waiting.first_key_value().map(|(first, _)| *first).filter(|first| *first <= tag) {
            self.answer(first, stored);
        }
    }

    fn answer(&mut self, tag: u64, stored: bool) {
        let Some(waiting) = self.waiting.remove(&tag) else { return };
        if let Some(tags) = self.tags.get_mut(&waiting.id) {
            tags.retain(|other| *other != tag);
            if tags.is_empty() {
                self.tags.remove(&waiting.id);
            }
        }
        waiting.answer(stored);
    }

    /// Records that the server returned a message, before it acks it. The server names no tag, so all unconfirmed copies
    /// with this id and routing key are taken for returned. If a queue was bound between two of them, that costs a
    /// duplicate; the other way round, a returned message could look confirmed.
    pub(super) fn returned(&mut self, id: &str, routing_key: &[u8], reason: &str) {
        for tag in self.tags.get(id).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(tag).filter(|it| it.routing_key.as_bytes() == routing_key) {
                waiting.returned = Some(reason.to_owned());
            }
        }
    }

    /// Answers all with the reason for which the channel has ended.
    pub(super) fn end(&mut self, end: &Arc<End>) {
        for (_, waiting) in mem::take(self).waiting {
            let _ = waiting.answer.send(Err(Arc::clone(end)));
        }
    }
}

/// The unconfirmed messages, which reading and writing share.
#[derive(Default)]
pub(super) struct Unconfirmed(Mutex<Outstanding>);

impl Unconfirmed {
    pub(super) fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Call = oneshot::Receiver<Result<Answer, Arc<End>>>;

    fn sent(outstanding: &mut Outstanding, id: &str) -> Call {
        let (answer, answered) = oneshot::channel();
        let (id, routing_key) = (Arc::from(id), format!("to-{id}"));
        outstanding.push(Waiting { id, routing_key, returned: None, answer });
        answered
    }

    fn answer(call: &mut Call) -> Option<Answer> {
        call.try_recv().ok().map(Result::unwrap)
    }

    #[test]
    fn a_tag_answers_its_message_and_with_multiple_all_before() {
        let mut outstanding = Outstanding::default();
        let mut calls: Vec<_> = ["1", "2", "3", "4", "5"].map(|id| sent(&mut outstanding, id)).into();
        outstanding.confirm(2, false, true);
        outstanding.confirm(2, false, false);
        outstanding.confirm(9, false, true);
        let mut answers = || calls.iter_mut().map(answer).collect::<Vec<_>>();
        let stored = || Some(Answer::Stored);
        assert_eq!(answers(), [None, stored(), None, None, None]);
        outstanding.confirm(4, true, false);
        assert_eq!(answers(), [Some(Answer::Nacked), None, Some(Answer::Nacked), Some(Answer::Nacked), None]);
        outstanding.confirm(0, true, true);
        assert_eq!(answers()[4], stored());
        assert_eq!((outstanding.count(), outstanding.tags.len(), outstanding.sent), (0, 0, 5));
    }

    #[test]
    fn a_returned_message_is_not_stored_and_its_neighbours_are() {
        let mut outstanding = Outstanding::default();
        let mut calls: Vec<_> = ["a", "b", "c"].map(|id| sent(&mut outstanding, id)).into();
        outstanding.returned("b", b"to-b", "NO_ROUTE");
        outstanding.returned("c", b"elsewhere", "NO_ROUTE");
        outstanding.confirm(0, true, true);
        let answers: Vec<_> = calls.iter_mut().filter_map(answer).collect();
        assert_eq!(answers, [Answer::Stored, Answer::Returned("NO_ROUTE".to_owned()), Answer::Stored]);
    }

    /// The server does not say which of two copies it returns: the first may be in a queue, and the second may not.
    #[test]
    fn a_return_concerns_all_copies() {
        let mut outstanding = Outstanding::default();
        let mut first = sent(&mut outstanding, "a");
        let mut second = sent(&mut outstanding, "a");
        outstanding.returned("a", b"to-a", "NO_ROUTE");
        outstanding.confirm(2, true, true);
        let returned = || Some(Answer::Returned("NO_ROUTE".to_owned()));
        assert_eq!((answer(&mut first), answer(&mut second)), (returned(), returned()));
    }

    #[test]
    fn a_dropped_call_keeps_its_tag() {
        let mut outstanding = Outstanding::default();
        drop(sent(&mut outstanding, "a"));
        let mut second = sent(&mut outstanding, "b");
        outstanding.confirm(1, false, true);
        assert_eq!(answer(&mut second), None);
        outstanding.confirm(2, false, true);
        assert_eq!(answer(&mut second), Some(Answer::Stored));
    }

    /// One queue that never confirms, beside one that does.
    #[test]
    fn a_message_that_is_never_confirmed_takes_one_slot() {
        let mut outstanding = Outstanding::default();
        for _ in 0..100 {
            drop(sent(&mut outstanding, "hangs"));
            let mut other = sent(&mut outstanding, "other");
            outstanding.confirm(outstanding.sent, false, true);
            assert_eq!(answer(&mut other), Some(Answer::Stored));
        }
        assert_eq!((outstanding.count(), outstanding.tags.len()), (1, 1));
        assert_eq!(outstanding.tags.get("hangs").map(Vec::len), Some(1));
    }
}
