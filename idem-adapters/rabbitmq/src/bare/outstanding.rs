//! The messages that the server has not confirmed.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

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
    pub(super) id: String,
    pub(super) routing_key: String,
    pub(super) returned: Option<String>,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl Waiting {
    /// Answers the call. It may have been dropped.
    fn answer(self, stored: bool) {
        let _ = self.answer.send(match self.returned {
            Some(reason) => Answer::Returned(reason),
            None if stored => Answer::Stored,
            None => Answer::Nacked,
        });
    }
}

/// The unconfirmed messages of a channel, by their delivery tag: the number of the message on its channel, from 1.
#[derive(Default)]
pub(super) struct Outstanding {
    /// How many messages before the first of `waiting` were sent.
    before: u64,
    waiting: VecDeque<Option<Waiting>>,
}

impl Outstanding {
    /// Adds a message, which must be sent next.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(Some(waiting));
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.iter().flatten().count()
    }

    /// Answers the message with this tag; with `multiple`, also all before it.
    pub(super) fn confirm(&mut self, tag: u64, multiple: bool, stored: bool) {
        // With `multiple`, 0 means all.
        let tag = if multiple && tag == 0 { u64::MAX } else { tag };
        let Some(end) = tag.checked_sub(self.before) else { return };
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        if !multiple && end > self.waiting.len() {
            return;
        }
        let end = end.min(self.waiting.len());
        let begin = if multiple { 0 } else { end.saturating_sub(1) };
        let confirmed = self.waiting.range_mut(begin..end).filter_map(mem::take);
        confirmed.for_each(|waiting| waiting.answer(stored));
        while matches!(self.waiting.front(), Some(None)) {
            self.waiting.pop_front();
            self.before += 1;
        }
    }

    /// Records that the server returned a message, before it acks it. The server names no tag: it is the first message
    /// with this id and routing key that was not returned, since returns come in the order of publishing.
    ///
    /// A copy of a message that is still unconfirmed has the same id and routing key, so it is returned as well.
    pub(super) fn returned(&mut self, id: &[u8], routing_key: &[u8], reason: String) {
        let is_it = |waiting: &&mut Waiting| {
            waiting.id.as_bytes() == id && waiting.routing_key.as_bytes() == routing_key && waiting.returned.is_none()
        };
        if let Some(waiting) = self.waiting.iter_mut().flatten().find(is_it) {
            waiting.returned = Some(reason);
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

    fn sent(outstanding: &mut Outstanding, id: &str) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let (id, routing_key) = (id.to_owned(), format!("to-{id}"));
        outstanding.push(Waiting { id, routing_key, returned: None, answer });
        answered
    }

    #[test]
    fn a_tag_answers_its_message_and_with_multiple_all_before() {
        let mut outstanding = Outstanding::default();
        let mut calls: Vec<_> = ["1", "2", "3", "4", "5"].map(|id| sent(&mut outstanding, id)).into();
        outstanding.confirm(2, false, true);
        outstanding.confirm(2, false, false);
        outstanding.confirm(9, false, true);
        let mut answers = || calls.iter_mut().map(|call| call.try_recv().ok()).collect::<Vec<_>>();
        let stored = || Some(Answer::Stored);
        assert_eq!(answers(), [None, stored(), None, None, None]);
        outstanding.confirm(4, true, false);
        assert_eq!(answers(), [Some(Answer::Nacked), None, Some(Answer::Nacked), Some(Answer::Nacked), None]);
        outstanding.confirm(0, true, true);
        assert_eq!(answers()[4], stored());
        assert_eq!((outstanding.count(), outstanding.before), (0, 5));
    }

    #[test]
    fn a_returned_message_is_not_stored_and_its_neighbours_are() {
        let mut outstanding = Outstanding::default();
        let mut calls: Vec<_> = ["a", "b", "b", "c"].map(|id| sent(&mut outstanding, id)).into();
        outstanding.returned(b"b", b"to-b", "NO_ROUTE".to_owned());
        outstanding.returned(b"c", b"elsewhere", "NO_ROUTE".to_owned());
        outstanding.confirm(0, true, true);
        let answers: Vec<_> = calls.iter_mut().map(|call| call.try_recv().unwrap()).collect();
        let returned = Answer::Returned("NO_ROUTE".to_owned());
        assert_eq!(answers, [Answer::Stored, returned, Answer::Stored, Answer::Stored]);
    }

    #[test]
    fn a_dropped_call_keeps_its_tag() {
        let mut outstanding = Outstanding::default();
        drop(sent(&mut outstanding, "a"));
        let mut second = sent(&mut outstanding, "b");
        outstanding.confirm(1, false, true);
        assert!(second.try_recv().is_err());
        outstanding.confirm(2, false, true);
        assert_eq!(second.try_recv().unwrap(), Answer::Stored);
    }
}
