//! The input of a handler: one message, or a batch.

/// The new messages of a batch, for a handler that writes all of them with one statement.
///
/// A handler that takes `Batch<M>` instead of `M` is called once per transaction with the new messages: copies and
/// duplicates are left out. An error rolls all of them back, and the batch is split until the failing message is alone.
/// The handler must therefore accept any subset of a batch, in any order, and a batch of one. Its only other parameters
/// are the connection, `State<T>` and `Outbox`: other extractors belong to one delivery.
///
/// ```
/// # use idem_core::{Batch, BoxError};
/// # struct Reading { meter: i64, value: i64 }
/// async fn store(readings: Batch<Reading>) -> Result<(), BoxError> {
///     let (meters, values): (Vec<i64>, Vec<i64>) = readings.iter().map(|one| (one.meter, one.value)).unzip();
///     // One statement for all: INSERT INTO readings SELECT * FROM unnest($1, $2)
///     # let _ = (meters, values);
///     Ok(())
/// }
///
/// let _ = store(Batch::new([Reading { meter: 7, value: 42 }]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<M>(Vec<M>);

impl<M> Batch<M> {
    /// Creates a batch of these messages, for a test that calls the handler.
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

/// The input of a handler of messages `M`: `M` itself, or [`Batch<M>`].
///
/// ```
/// # use idem_core::{Batch, Input};
/// # struct Reading;
/// // The `Handler::Input` of a handler.
/// assert!(!<Reading as Input<Reading>>::TAKES_BATCH);
/// assert!(<Batch<Reading> as Input<Reading>>::TAKES_BATCH);
/// ```
pub trait Input<M>: Sized + Send + 'static {
    /// Whether it takes a batch.
    const TAKES_BATCH: bool;

    /// Creates the input from one message.
    fn one(message: M) -> Self;

    /// Joins several inputs; `None` if the handler takes one message at a time.
    fn join(inputs: Vec<Self>) -> Option<Self>;
}

impl<M: Send + 'static> Input<M> for M {
    const TAKES_BATCH: bool = false;

    fn one(message: M) -> Self {
        message
    }

    fn join(_inputs: Vec<Self>) -> Option<Self> {
        None
    }
}

impl<M: Send + 'static> Input<M> for Batch<M> {
    const TAKES_BATCH: bool = true;

    fn one(message: M) -> Self {
        Self(vec![message])
    }

    fn join(inputs: Vec<Self>) -> Option<Self> {
        Some(Self(inputs.into_iter().flatten().collect()))
    }
}
