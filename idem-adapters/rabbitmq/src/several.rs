//! Several queues for one worker.

use std::sync::Arc;

use idem_core::Error;

use crate::source::Queue;

impl Queue {
    /// Adds another queue of the same server, for one worker on one connection. Each delivery has its own queue's name
    /// as its source.
    ///
    /// Each queue has its own prefetch, which limits its unsettled deliveries, and the queues take turns: a backlog in
    /// one does not delay the others. With an order, the deliveries of each queue share an ordering key. If one queue
    /// cannot be consumed, the worker resubscribes to all of them.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// let both = rabbit.queue("orders").await?.and(rabbit.declare("refunds").await?)?;
    /// # let _ = both;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the queues come from different [`RabbitMq`](crate::RabbitMq)s, or one is added twice.
    pub fn and(mut self, mut other: Self) -> Result<Self, Error> {
        if !Arc::ptr_eq(&self.config, &other.config) {
            return Err(Error::Config(format!(
                "queues `{}` and `{}` belong to different connections, but a worker has one: make both by the same RabbitMq",
                self.name, other.name
            )));
        }
        self.members.append(&mut other.members);
        let mut names: Vec<_> = self.members.iter().map(|member| &*member.name).collect();
        let joined = names.join(", ");
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Config(format!("queue `{}` is given twice to one worker: give it once", twice[0])));
        }
        self.name = joined.into();
        Ok(self)
    }
}
