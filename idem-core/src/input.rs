//! What a handler is called with: one message, or a set of them.

/// The new messages of a batch, for a handler that writes all of them with one statement.
///
/// A handler that takes `Batch<M>` instead of `M` is called once per transaction, with the messages that are new: copies
/// and duplicates are left out. An error rolls all of them back, and the batch is split until the message that fails is
/// alone; so the handler must be able to take any part of a batch, in any order, and a batch of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<M>(Vec<M>);

impl<M> Batch<M> {
    /// A batch of these messages, for a test that calls the handler.
    pub fn new(messages: impl Into<Vec<M>>) -> Self {
        Self(messages.into())
    }
}

impl<M> std::ops::Deref for Batch<M> {
    type Target = [M];

    fn deref(&self) -> &[M] {
        &self.0
    }
}

impl<M> IntoIterator for Batch<M> {
    type Item = M;
    type IntoIter = std::vec::IntoIter<M>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, M> IntoIterator for &'a Batch<M> {
    type Item = &'a M;
    type IntoIter = std::slice::Iter<'a, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// What a handler of messages `M` takes: `M` itself, or [`Batch<M>`].
pub trait Input<M>: Sized + Send + 'static {
    /// Whether it takes many at once.
    const SET: bool;

    /// Of one message.
    fn one(message: M) -> Self;

    /// Of many; `None` where it takes one at a time.
    fn many(messages: Vec<M>) -> Option<Self>;
}

impl<M: Send + 'static> Input<M> for M {
    const SET: bool = false;

    fn one(message: M) -> Self {
        message
    }

    fn many(_messages: Vec<M>) -> Option<Self> {
        None
    }
}

impl<M: Send + 'static> Input<M> for Batch<M> {
    const SET: bool = true;

    fn one(message: M) -> Self {
        Self(vec![message])
    }

    fn many(messages: Vec<M>) -> Option<Self> {
        Some(Self(messages))
    }
}
