//! Options of a worker: how much it does at once, and how long it waits.

use std::time::Duration;

use crate::{RetryPolicy, Source, Store, Worker};

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Sets how many deliveries are processed at once, each on its own connection, from 1 to 65535; 16 by default. The
    /// [`prefetch`](Self::prefetch) follows from it. With [`inbox`](Self::inbox) it is only the prefetch.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.parts.settings.concurrency = deliveries;
        self
    }

    /// Sets how many deliveries may be unsettled at once, of each queue of the source: those that are processed, and those
    /// that wait here until they can be. The default is [`concurrency`](Self::concurrency) and a quarter of it, rounded
    /// up, so that the next delivery is at hand when one ends. With [`batch`](Self::batch) it is twice as many as are
    /// processed, and with an order by partition or key 16 times as many. With the order of a queue and with
    /// [`inbox`](Self::inbox) none waits.
    ///
    /// A delivery that waits here is not given to another worker that is idle, and its payload is in memory. If handlers
    /// are slow, set this to the concurrency: each then waits for the broker in between, which costs little beside the
    /// handler. Fewer than are processed at once, or more than 65535, are an error when the worker starts.
    ///
    /// With an order by partition or key, deliveries behind a slow or failing one of their ordering key are unsettled too.
    /// When there are as many of them as this, no other key goes on, so set it to several times the concurrency.
    ///
    /// Where the broker has a limit for all workers together (`max_ack_pending` of a NATS consumer), no single message waits
    /// here by default, and a value that is set here must fit into that limit.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, reports: impl Source) {
    /// // A report takes a minute. None waits here while another worker is idle.
    /// let worker = Worker::new("reports", store, reports).concurrency(4).prefetch(4);
    /// # }
    /// ```
    pub fn prefetch(mut self, deliveries: usize) -> Self {
        self.parts.settings.prefetch = Some(deliveries);
        self
    }

    /// Takes deliveries in batches of at most this size; 1 by default, which disables batches. Deliveries that are
    /// available are processed together, in one transaction with one commit, and each is settled by its own outcome.
    /// [`concurrency`](Self::concurrency) is then the number of batches at once. The [`prefetch`](Self::prefetch) is
    /// twice what these batches hold, so that the next batch is available when one ends.
    ///
    /// A message that fails rolls back its batch. The other messages run again without it. It is then run alone, and
    /// only that run counts as an attempt. A handler therefore runs more often than without batches, and so do its
    /// effects outside the transaction. If batches deadlock because their handlers write the same rows in different
    /// orders, they become smaller and run one at a time until no deadlock has occurred for a while.
    ///
    /// A handler must not end the transaction. In a batch the database rejects its COMMIT, and after its ROLLBACK
    /// nothing can be written. Its message becomes a dead letter. The others run again without it, some of them several
    /// times in vain.
    ///
    /// The handlers of a batch share one session. PostgreSQL: if a handler changes the role, search path, row security,
    /// replication role, time zone or date style, the batch is split, so that no other handler runs under the change.
    /// Any other `SET LOCAL` lasts until the end of the batch, unless the store is configured to reset the session
    /// between messages, which costs one round trip per message. A batch with an order is an error at the start.
    ///
    /// ```
    /// # use std::time::Duration; use idem_core::*; fn add<S: Store>(store: S, readings: impl Source) {
    /// // Four batches at a time, of up to 100, each with one commit.
    /// let worker = Worker::new("meters", store, readings).batch(100).concurrency(4).linger(Duration::from_millis(20));
    /// # }
    /// ```
    pub fn batch(mut self, deliveries: usize) -> Self {
        self.parts.settings.batch = deliveries;
        self
    }

    /// Sets how long a batch that is not full waits for more deliveries; zero by default. At low load, each message
    /// takes that much longer.
    pub fn linger(mut self, wait: Duration) -> Self {
        self.parts.settings.linger = wait;
        self
    }

    /// Sets how many rows of the inbox run at once, besides the deliveries, each on its own connection; 4 by default.
    /// With [`inbox`](Self::inbox) all messages run from the inbox, and the default is that of
    /// [`concurrency`](Self::concurrency).
    pub fn inbox_concurrency(mut self, rows: usize) -> Self {
        self.parts.settings.inbox_concurrency = Some(rows);
        self
    }

    /// Sets how many [external calls](crate::External) are made at once; 16 by default. A call holds no connection, so this
    /// only bounds how much a provider gets at once from this worker. Zero is an error.
    ///
    /// All handlers share these calls. While one provider hangs, its calls hold them until their timeouts, and those to other
    /// providers wait: give each provider a separate worker.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, orders: impl Source) {
    /// // The provider allows 100 requests per second, and answers each within 200 ms.
    /// let worker = Worker::new("billing", store, orders).call_concurrency(20);
    /// # }
    /// ```
    pub fn call_concurrency(mut self, calls: usize) -> Self {
        self.parts.settings.call_concurrency = calls;
        self
    }

    /// Stores each message in the inbox, acks it, and then runs it from there, with the same handlers, tables and
    /// guarantee. Off by default: a message runs when it is delivered, and is acked when it is processed.
    ///
    /// Use it if a handler takes longer than the broker waits for an ack, or if slow handlers must not fill up the
    /// broker. Each delivery is settled within milliseconds, whatever its outcome, and the backlog is in the database.
    /// `concurrency` is then only the prefetch. Deliveries that are available are stored together, up to 100 messages
    /// per commit.
    ///
    /// The cost is one row written and deleted per message, one commit per batch stored and one per batch taken, and
    /// therefore a few milliseconds from the delivery to the handler (the histogram `idem_inbox_wait_seconds`).
    /// Messages run in no particular order. A worker on another machine finds rows stored here only when it polls
    /// ([`poll_interval`](Self::poll_interval)).
    ///
    /// Combining it with an order is an error when the worker starts.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, invoices: impl Source) {
    /// // Each invoice takes minutes: eight of them run at once, and the queue does not wait for them.
    /// let worker = Worker::new("invoices", store, invoices).inbox().inbox_concurrency(8);
    /// # }
    /// ```
    pub fn inbox(mut self) -> Self {
        self.parts.settings.inbox = true;
        self
    }

    /// Sets how long a handler may run; 30 seconds by default. A handler that runs longer is dropped, which rolls back,
    /// and counts as failed. The timeout does not cover COMMIT. A handler may have its own,
    /// [`HandlerOptions::timeout`](crate::HandlerOptions::timeout).
    pub fn handler_timeout(mut self, handler_timeout: Duration) -> Self {
        self.parts.settings.handler_timeout = handler_timeout;
        self
    }

    /// Sets how long a codec may take to [prepare](crate::Codec::prepare) for a message; 10 seconds by default. A
    /// preparation that takes longer is dropped and tried again, with increasing delays of up to one minute. A timeout
    /// counts as unavailable and never makes the message a dead letter. JSON needs no preparation.
    pub fn prepare_timeout(mut self, limit: Duration) -> Self {
        self.parts.settings.prepare_timeout = limit;
        self
    }

    /// Sets when and how often a message whose handler failed runs again; 5 attempts by default. A handler
    /// may have its own policy, [`HandlerOptions::retry`](crate::HandlerOptions::retry).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.parts.settings.retry = policy;
        self
    }

    /// Sets the maximum payload size in bytes; 1 MiB by default. A larger payload is never decoded; it is kept whole as
    /// a dead letter.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.parts.settings.max_payload = bytes;
        self
    }

    /// Sets how long a row taken from the inbox stays leased to this worker before it runs; 10 seconds by default.
    /// While it runs, the row is locked. After a crash, the row waits until the lease expires. Zero is an error.
    pub fn lease_duration(mut self, lease: Duration) -> Self {
        self.parts.settings.lease = lease;
        self
    }

    /// Sets how often the worker polls the inbox; every second by default. Rows that this worker itself schedules wake
    /// it earlier. Zero is an error.
    pub fn poll_interval(mut self, every: Duration) -> Self {
        self.parts.settings.poll = every;
        self
    }

    /// Sets how long a shutdown waits for running handlers; 30 seconds by default. After that, handlers are dropped,
    /// which rolls back, and their deliveries are released.
    pub fn shutdown_timeout(mut self, patience: Duration) -> Self {
        self.parts.settings.shutdown_timeout = patience;
        self
    }
}
